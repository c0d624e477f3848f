"""Branch and bound over plans: the most promising first, and only those that their bound leaves a chance are simulated.

A plan has three looks: the rough bound, by rate and trainer alone; the bound of its scenario (`bound.py`); and one
simulated run, all under the same draws. Dollars are seconds times a price, so that a bound of one is a bound of both.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.trials import Measure, Tell, flat
from fleetsim.plan.bound import Bounds
from fleetsim.plan.shares import Candidate
from fleetsim.sim.threads import side_by_side

# Simulated at a time: what they find prunes the next ones.
_AT_ONCE = 8

# Whether a plan whose step takes, and costs, at least so much is still worth a look.
Worth = Callable[[float, float], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A simulated plan. runs: flat metrics, run by run."""

    candidate: Candidate
    scenario: Scenario
    runs: tuple[dict[str, Any], ...]

    @property
    def step_s(self) -> float:
        """Mean seconds of a step."""
        return sum(float(run["step_s"]) for run in self.runs) / len(self.runs)

    @property
    def usd(self) -> float:
        """Mean US dollars of a step."""
        return sum(float(run["cost_per_step"]) for run in self.runs) / len(self.runs)


@dataclass(slots=True)
class Tally:
    """Plans that were looked at, and how far: by the rough bound, by their scenario's, by a run. impossible: that no
    scenario, engine or trainer can be. stuck: with the reason."""

    plans: int = 0
    impossible: int = 0
    rough: int = 0
    bound: int = 0
    simulated: int = 0
    runs: int = 0
    stuck: list[StuckError] = field(default_factory=list)


class Search:
    """The plans of one job that were simulated so far."""

    def __init__(self, measure: Measure, tell: Tell | None = None) -> None:
        self.found: dict[Scenario, Found] = {}
        self.tally = Tally()
        self._bounds = Bounds()
        self.measure, self._tell = measure, tell or (lambda text: None)

    def exploring(
        self, candidates: Iterable[Candidate], worth: Worth, order: Callable[[float, float], Any], what: str
    ) -> Iterator[Found]:
        """Simulates those that stay worth a look while others are found, the first by `order` of their bounds first."""
        waiting: list[tuple[Any, int, float, Candidate, Scenario | None]] = []
        before = len(self.found)
        for candidate in candidates:
            bound = self._bounds.rough_s(candidate)
            self.tally.plans += 1
            if bound == float("inf"):
                self.tally.impossible += 1
            else:
                key = order(bound, candidate.usd_per_s * bound)
                waiting.append((key, self.tally.plans, bound, candidate, None))
        heapq.heapify(waiting)
        while waiting:
            chosen = self._next(waiting, worth, order)
            self._tell(f"{what}: {len(waiting):,} left, {len(self.found) - before:,} simulated")
            yield from self.simulated(chosen)

    def _next(
        self,
        waiting: list[tuple[Any, int, float, Candidate, Scenario | None]],
        worth: Worth,
        order: Callable[[float, float], Any],
    ) -> list[tuple[Candidate, Scenario]]:
        """The next few that are worth a simulation, taken from the heap."""
        chosen: list[tuple[Candidate, Scenario]] = []
        while waiting and len(chosen) < _AT_ONCE:
            _, number, bound, candidate, scenario = heapq.heappop(waiting)
            if not worth(bound, candidate.usd_per_s * bound):
                if scenario is None:
                    self.tally.rough += 1
                else:
                    self.tally.bound += 1
            elif scenario is not None:
                chosen.append((candidate, scenario))
            elif (made := candidate.scenario()) is None:
                self.tally.impossible += 1
            else:
                closer = max(bound, self._bounds.step_s(made))
                key = order(closer, candidate.usd_per_s * closer)
                heapq.heappush(waiting, (key, number, closer, candidate, made))
        return chosen

    def simulated(self, plans: Sequence[tuple[Candidate, Scenario]], replications: int = 1) -> list[Found]:
        """The plans, by so many runs each; those that get stuck are left out."""
        jobs = [(scenario, r) for _, scenario in plans for r in range(replications)]
        runs = iter(list(side_by_side(lambda job: self._one(*job), jobs)))
        found = []
        for candidate, scenario in plans:
            own = [next(runs) for _ in range(replications)]
            if any(run is None for run in own):
                continue
            one = Found(candidate, scenario, tuple(run for run in own if run is not None))
            self.found[scenario] = one
            found.append(one)
        self.tally.simulated += len(plans)
        self.tally.runs += len(jobs)
        return found

    def _one(self, scenario: Scenario, replication: int) -> dict[str, Any] | None:
        try:
            return flat(self.measure(scenario, replication))
        except StuckError as error:
            self.tally.stuck.append(error)
            return None
