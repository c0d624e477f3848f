"""Plans with all their runs, the rows that are shown, and what each forbidden thing would buy."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.search.explore import SearchTally
from fleetsim.search.found import Found
from fleetsim.search.front import Budget
from fleetsim.search.permissions import Allowed
from fleetsim.search.reasons import AnswerGrounds
from fleetsim.search.shares import Candidate

# Metrics whose ranges are told of each row.
RANGED = ("step_s", "cost_per_step")


# A plan with all its runs, and its ranges.
PlanRow = Found[Candidate]


def usd_per_token(row: PlanRow) -> float:
    """US dollars of a trained output token."""
    return row.usd / (row.mean("goodput") * row.choice.share.gpus * row.step_s)


def usd_per_h(row: PlanRow) -> float:
    """US dollars of an hour, of both pools."""
    return 3600 * row.choice.usd_per_s


@dataclass(frozen=True, slots=True)
class Bought:
    """What one thing would buy that the recipe forbids. row: the best plan with it, None where it is no better."""

    permission: str
    row: PlanRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans(AnswerGrounds):
    """What was found for a job.

    rows: the recommended one, then the others of the front by their step. bought: a line for each thing that is
    forbidden and could be had. tally: what was looked at; stuck: how many of it cannot run. expected_loss: what staying
    with the recommended row costs on average, beside the others; None where no input is in doubt.
    """

    given: frozenset[str]
    budget: Budget
    allowed: Allowed
    rows: tuple[PlanRow, ...]
    bought: tuple[Bought, ...]
    tally: SearchTally
    stuck: int
    expected_loss: float | None = None

    @property
    def best(self) -> PlanRow:
        """The recommended row."""
        return self.rows[0]

    @property
    def better(self) -> list[tuple[str, PlanRow]]:
        """Permissions that nobody gave and that make the plan better, with the best plan of each."""
        return [(b.permission, b.row) for b in self.bought if b.row is not None]

    @property
    def feasible(self) -> bool:
        """Whether the step that was asked for is held."""
        return self.budget.holds(self.best.step_s)
