"""Plans against each other by seconds and dollars of a step: which are beaten, and which few stand for the rest."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, get_args

from msgspec import Struct

from fleetsim.config.scenario import Scenario, has_spot
from fleetsim.estimates import Estimate
from fleetsim.job.input_moves import MetricRanges
from fleetsim.job.result import Later
from fleetsim.job.trials import Trial, per_whole_step, trial_of
from fleetsim.search.ranges import KnownMetrics, ranges_of

# --- A choice that was simulated: by one look, or by all replications of long runs.

C = TypeVar("C")


@dataclass(frozen=True, eq=False)
class Found(Generic[C]):
    """scenario: of the choice, as it runs. runs: flat metrics, run by run. decided: whether these are all replications,
    not a look. long: the same of one long run, where there is one. known_later: what is known of it in joint cases."""

    choice: C
    scenario: Scenario
    runs: tuple[Mapping[str, Any], ...]
    decided: bool = False
    long: tuple[Mapping[str, Any], ...] = ()
    known_later: Later[KnownMetrics | None] = Later(lambda: None)  # noqa: RUF009 - it never changes

    def mean(self, metric: str) -> float:
        """The mean of one metric over its runs."""
        return sum(float(run[metric]) for run in self.runs) / len(self.runs)

    @cached_property
    def whole(self) -> tuple[Mapping[str, Any], ...]:
        """Its runs, of what is held against others: seconds and dollars of a step's worth of whole samples."""
        return tuple(map(per_whole_step, self.runs))

    @property
    def step_s(self) -> float:
        """Mean seconds of a step's worth of whole samples."""
        return sum(float(run["step_s"]) for run in self.whole) / len(self.whole)

    @property
    def alone_s(self) -> float:
        """The same as if no worker were waited for, of a look that was made so before."""
        return float(self.runs[0].get("alone_s", self.step_s))

    @property
    def usd(self) -> float:
        """Mean US dollars of a step's worth of whole samples."""
        return sum(float(run["cost_per_step"]) for run in self.whole) / len(self.whole)

    @property
    def age(self) -> float:
        """Optimizer steps that 99 % of the trained samples are at most old, in each of its runs."""
        return age_of((*self.runs, *self.long))

    @property
    def sure_age(self) -> float:
        """The same, but where a sample more or less would make it a step less: a quantile between two whole steps."""
        return float(math.floor(_oldest((*self.runs, *self.long)) + 1e-9))

    @property
    def replications(self) -> int:
        """Runs behind its figures."""
        return len(self.runs)

    @cached_property
    def trial(self) -> Trial:
        """The same, as a trial of its count."""
        return trial_of(self.scenario.fleet.instances, self.runs)

    @property
    def estimates(self) -> Mapping[str, Estimate]:
        """By dotted metric name."""
        return self.trial.estimates

    @property
    def binding(self) -> str:
        """What binds in it."""
        return self.trial.binding

    @property
    def known(self) -> KnownMetrics | None:
        """What its ranges are worked out from, in short runs when it is first asked for."""
        return self.known_later()

    @cached_property
    def ranges(self) -> MetricRanges | None:
        """How far it may be off; None where no input is in doubt, or nobody asked."""
        return ranges_of(self.known)

    def range_of(self, metric: str) -> tuple[float, float]:
        """From, to; twice the mean where no input is in doubt."""
        mean = self.mean(metric)
        return (mean, mean) if self.ranges is None else self.ranges.metrics[metric]


def age_of(runs: Iterable[Mapping[str, Any]]) -> float:
    """Whole optimizer steps that 99 % of the trained samples are at most old, in every one of some runs."""
    return float(math.ceil(_oldest(runs) - 1e-9))


def _oldest(runs: Iterable[Mapping[str, Any]]) -> float:
    return max(float(run["staleness_steps.p99"]) for run in runs)


# --- What may be bought and what is wanted: GPUs, dollars per hour, seconds of a step, and what counts first.

Objective = Literal["step", "cost", "token"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
# GPUs of the largest plan that is looked for where only a step time is asked for.
MOST_GPUS = 1024
# Two plans whose steps, or costs, differ by less are equally good.
SAME = 0.01


class Budget(Struct, frozen=True):
    """gpus: of both pools and of judges together. price_per_h: US dollars per hour, of all of it. step_s: seconds of a
    step, at most. Each is None where nobody asks for it. objective: what counts first."""

    gpus: int | None = None
    price_per_h: float | None = None
    step_s: float | None = None
    objective: Objective = "step"

    def gpus_of(self, usd_per_gpu_h: float, beside_usd_per_h: float = 0.0, beside: int = 0) -> int:
        """The most GPUs of a type at so many dollars per hour, beside what else is paid, and other GPUs."""
        most = MOST_GPUS if self.gpus is None else max(0, self.gpus - beside)
        if self.price_per_h is None or usd_per_gpu_h <= 0:
            return most
        # A budget of exactly so many GPUs must not lose one to the last bit of a division.
        paid = math.floor((self.price_per_h - beside_usd_per_h) / usd_per_gpu_h + 1e-9)
        return max(0, min(most if self.gpus is not None else 100_000, paid))

    def allows(self, gpus: int, usd_per_h: float) -> bool:
        """Whether so much may be bought."""
        paid = self.price_per_h is None or usd_per_h <= self.price_per_h * (1 + 1e-9)
        return paid and (self.gpus is None or gpus <= self.gpus)

    @property
    def metric(self) -> str:
        """What is to be least: dollars per step and per trained token rank alike, for all train the same batch."""
        return "step_s" if self.objective == "step" else "cost_per_step"

    def metric_at(self, step_s: float) -> str:
        """What is to be least where the best step takes so long: one that is too long is to be shorter."""
        return self.metric if self.holds(step_s) else "step_s"

    def affords(self, found: Found[Any]) -> bool:
        """Whether an hour of its runs is paid: they alone say what calls cost that are paid by use. Of spot machines,
        whose share of the time is luck in a few runs, the law counts (`allows`)."""
        free = self.price_per_h is None or has_spot(found.scenario)
        return free or self.allows(0, 3600.0 * found.usd / found.step_s)

    def holds(self, step_s: float) -> bool:
        """Whether a step is short enough."""
        return self.step_s is None or step_s <= self.step_s

    def badness(self, step_s: float, usd: float) -> tuple[bool, float]:
        """What is compared to recommend one plan: smaller is better; a step that is too long comes after all others,
        the shortest of them first."""
        if not self.holds(step_s):
            return True, step_s
        return False, step_s if self.metric == "step_s" else usd


# A plan that another comes so close to, or beats, in both is not looked for: half of the one percent that is promised.
CLOSE = 0.005
MOST_ROWS = 7


class Front:
    """The seconds and dollars that no other plan beats in both, while plans are found."""

    def __init__(self) -> None:
        self._steps: list[float] = []  # ascending
        self._usd: list[float] = []  # of each of them, descending

    def add(self, step_s: float, usd: float) -> None:
        """One plan more."""
        if self.beats(step_s, usd, 0.0):
            return
        at = bisect_left(self._steps, step_s)
        after = at
        while after < len(self._usd) and self._usd[after] >= usd:
            after += 1
        self._steps[at:after], self._usd[at:after] = [step_s], [usd]

    def beats(self, step_s: float, usd: float, close: float = CLOSE) -> bool:
        """Whether one of them needs as little of both, or hardly more."""
        return self.least_usd(step_s * (1 + close)) <= usd * (1 + close)

    def least_usd(self, step_s: float) -> float:
        """Dollars of the cheapest whose step takes no longer; infinite without one."""
        last = bisect_right(self._steps, step_s)
        return self._usd[last - 1] if last else math.inf

    @property
    def least_s(self) -> float:
        """The shortest step."""
        return self._steps[0] if self._steps else math.inf


def front_of(points: Sequence[Found[C]]) -> list[Found[C]]:
    """The plans that no other beats in both, the shortest step first; of equals the first."""
    found: list[Found[C]] = []
    for point in sorted(points, key=lambda p: (p.step_s, p.usd)):
        if not found or point.usd < found[-1].usd:
            found.append(point)
    return found


def thinned(front: Sequence[Found[C]], kept: Found[C], most: int = MOST_ROWS) -> list[Found[C]]:
    """At most so many plans of a front: `kept`, both ends, and those that leave the smallest gaps between them.

    Plans within two percent of one that stays in both measures tell nothing new and go first.
    """
    chosen = [kept]
    others = [p for p in front if p is not kept]

    def gap(point: Found[Any]) -> float:
        return min(max(abs(_ratio(point.step_s, c.step_s)), abs(_ratio(point.usd, c.usd))) for c in chosen)

    for end in [others[0], others[-1]] if others else []:
        if end not in chosen and gap(end) > 0.02:
            chosen.append(end)
    while len(chosen) < most:
        left = [p for p in others if p not in chosen]
        farthest = max(left, key=gap, default=None)
        if farthest is None or gap(farthest) <= 0.02:
            break
        chosen.append(farthest)
    return chosen


def _ratio(a: float, b: float) -> float:
    return math.log(a / b) if a > 0 and b > 0 else math.inf


class Goal:
    """What a search is for. only_best: nothing but the best by the budget's objective. nearer: how much shorter than
    what was found a step must be to be worth a look, in shares of one, while no plan makes the one that is asked for.
    oldest: steps that 99 % of the trained samples may be old, None = nobody says.

    A front of a thousand GPUs has hundreds of plans, of which few are told: once it is known roughly (`tell`), the
    shortest step, the cheapest plan and the cheapest of a few steps are looked for, and nothing between them."""

    def __init__(self, budget: Budget, only_best: bool, oldest: float | None = None, nearer: float = CLOSE) -> None:
        self.budget, self.only_best, self.oldest, self.nearer = budget, only_best, oldest, nearer
        self._front, self._best, self._told = Front(), (True, math.inf), tuple[float, ...]()

    @property
    def missed(self) -> bool:
        """Whether a step is asked for that no plan makes so far."""
        return self.budget.step_s is not None and self._best[0]

    def add(self, step_s: float, usd: float) -> None:
        """One plan that was found."""
        self._front.add(step_s, usd)
        self._best = min(self._best, self.budget.badness(step_s, usd))

    def permits(self, age: float) -> bool:
        """Whether samples may be so many steps old."""
        return self.oldest is None or age <= self.oldest

    def decides(self, step_s: float, usd: float) -> bool:
        """Whether a plan is better than all so far, and leaves no other a chance that is worse, however fresh."""
        alone = self.oldest is not None and (self.only_best or self.missed)
        return alone and self.budget.badness(step_s, usd) < self._best

    def worth(self, step_s: float, usd: float) -> bool:
        """Whether a plan is worth a look whose step takes, and costs, at least so much."""
        missed, least = self._best
        if self.only_best or self.missed:
            # till a plan makes the step, all that may, and what comes nearer
            return self.budget.badness(step_s, usd) < (missed, least * (1 - (self.nearer if self.missed else CLOSE)))
        if not self.budget.holds(step_s) or self._front.beats(step_s, usd):
            return False
        if not self._told or step_s < self._front.least_s:
            return True
        return any(step_s <= told and usd < self._front.least_usd(told) for told in self._told)

    def tell(self, found: Sequence[Found[C]]) -> None:
        """From now on only what stands for the front of these is looked for."""
        if found and not (self.only_best or self.missed):
            self._told = (*(p.step_s for p in self._rows(found)), self.budget.step_s or math.inf, math.inf)

    def rows(self, found: Sequence[Found[C]]) -> list[Found[C]]:
        """What is told of the plans that were found."""
        front = front_of(found)
        cheapest = (
            max((p for p in front if p.step_s <= told), key=lambda p: p.step_s, default=None) for told in self._told
        )
        return self._rows([p for p in (front[0], *cheapest) if p is not None] if self._told else front)

    def _rows(self, found: Sequence[Found[C]]) -> list[Found[C]]:
        return thinned(front_of(found), min(found, key=lambda p: self.budget.badness(p.step_s, p.usd)))

    def order(self, step_s: float, usd: float) -> tuple[bool, float]:
        """The smallest is looked at first: the shortest step until one is short enough, for it says most of all that
        are smaller."""
        if self.missed:
            return False, step_s
        if self.only_best or self.budget.step_s is not None:
            return self.budget.badness(step_s, usd)
        return False, step_s * usd
