"""The one change of a simulated job that saves most, solved anew: with the fewest instances that keep its step.

Each lever is pulled alone, in few short runs under the draws of the job. A fleet of fewer instances that makes the same
step is a change as well; a lever must save more than that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, StuckError
from fleetsim.job.change import Change, Typed
from fleetsim.job.input_moves import shortened
from fleetsim.job.levers import Lever, cuts_many, levers_of, more_lost, risk_words
from fleetsim.job.trials import Measure, flat, one_more, unit_of, with_instances

# A step that is longer by no more is kept; a change that saves less of it, in seconds or dollars, is none.
_KEPT = 0.01
# What another change must save more of, to be told instead of fewer instances alone.
_MORE = 0.02
_ITSELF = "fewer_instances"


@dataclass(frozen=True, slots=True)
class _Tried:
    """A lever at a count of instances. now: the job as it is."""

    lever: Lever
    instances: int
    now: Mapping[str, Any]
    run: Mapping[str, Any]

    @property
    def saves_usd(self) -> float:
        """US dollars of a step."""
        return float(self.now["cost_per_step"]) - float(self.run["cost_per_step"])

    @property
    def saves_s(self) -> float:
        """Seconds of a step."""
        return float(self.now["step_s"]) - float(self.run["step_s"])

    @property
    def usd_per_s(self) -> float:
        """US dollars that a second costs by which a step becomes shorter."""
        return -self.saves_usd / self.saves_s

    def both(self, metric: str) -> tuple[float, float]:
        """A metric without and with it."""
        return float(self.now[metric]), float(self.run[metric])

    @property
    def loses_more(self) -> bool:
        """Whether notably more samples are thrown away, or many are cut."""
        return cuts_many(self.lever.truncated) or any(
            more_lost(self.both(f"samples_lost.{which}")) for which in ("longest_tenth", "all")
        )

    def change(self, scenario: Scenario) -> Change:
        """As it is told."""
        names = ("staleness_steps.p99", "staleness_steps.mean", "samples_lost.longest_tenth", "samples_lost.all")
        risk = risk_words(self.lever, *map(self.both, names))
        typed = Typed({"fleet.instances": self.instances}) if self.lever.name == _ITSELF else self.lever.flag
        of, step_s = scenario.fleet.instances, float(self.run["step_s"])
        return Change(self.lever.text, typed.own, self.instances, of, self.saves_usd, self.saves_s, step_s, risk)


def change_of(scenario: Scenario, measure: Measure, given: Collection[str] | None = None) -> Change | None:
    """The change that saves most dollars of a step, else that makes it shorter for the least money; None without one.

    measure should remember runs. given: as in levers_of.
    """
    job = shortened(scenario)
    now = _run(job, measure)
    if now is None:
        return None
    grown = with_instances(job, job.fleet.instances + unit_of(job))
    alone = Lever(_ITSELF, "fewer instances", Typed({}), job)
    levers = [alone] if job.fleet.placement == "colocated" else [alone, *levers_of(job, grown, one_more(job), given)]
    tried = [found for lever in levers if (found := _fewest(lever, now, job, measure)) is not None]
    tried = [one for one in tried if not one.loses_more]
    saving = [one for one in tried if one.saves_usd > _KEPT * float(now["cost_per_step"])]
    if saving:
        best = max(saving, key=lambda one: one.saves_usd)
        plain = next((one for one in saving if one.lever is alone), None)
        enough = plain is not None and best.saves_usd - plain.saves_usd < _MORE * float(now["cost_per_step"])
        return (plain if enough and plain is not None else best).change(scenario)
    shorter = [one for one in tried if one.saves_s > _MORE * float(now["step_s"])]
    return min(shorter, key=lambda one: one.usd_per_s).change(scenario) if shorter else None


def _fewest(lever: Lever, now: Mapping[str, Any], job: Scenario, measure: Measure) -> _Tried | None:
    """A lever with the fewest instances that keep the step of the job; None where it gets stuck."""
    count = lever.scenario.fleet.instances
    at = _run(lever.scenario, measure)
    if at is None:
        return None
    best, unit = _Tried(lever, count, now, at), unit_of(job)
    if count > job.fleet.instances or job.fleet.placement == "colocated":
        return best
    low, high = 0, count // unit  # in engines: too few, enough
    most_s = (1 + _KEPT) * float(now["step_s"])
    while high - low > 1 and float(best.run["step_s"]) <= most_s:
        middle = (low + high) // 2
        run = _run(with_instances(lever.scenario, middle * unit), measure)
        if run is not None and float(run["step_s"]) <= most_s:
            high, best = middle, _Tried(lever, middle * unit, now, run)
        else:
            low = middle
    return best


def _run(scenario: Scenario, measure: Measure) -> Mapping[str, Any] | None:
    try:
        return flat(measure(scenario, 0))
    except (StuckError, InputError):
        return None
