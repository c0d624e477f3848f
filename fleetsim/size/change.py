"""The one change that helps most, with the fleet that is then right."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleetsim import units
from fleetsim.faces import flag
from fleetsim.job.job import PATHS
from fleetsim.size.alternatives import Alternative, Alternatives
from fleetsim.size.larger_budget import WayOut
from fleetsim.size.second_search import Anew

# Below this share of a step two steps take as long.
_ALIKE = 0.005


@dataclass(frozen=True, slots=True)
class Change:
    """text: the change in words. flag: what to type for it. instances: the count that it needs, instead_of: the
    recommended one. mends: with it a fleet holds the targets, and without it none does. saves_usd, saves_s: of a step,
    below 0 where it costs more. risk: what it asks of the algorithm.
    """

    text: str
    flag: str
    instances: int
    instead_of: int
    saves_usd: float
    saves_s: float
    step_s: float
    risk: str | None
    mends: bool = False

    @property
    def words(self) -> str:
        """ "--max-staleness 3 needs 5 instances instead of 53, saves $0.66 and 28.8 s a step"."""
        count = units.plural(self.instances, "instance")
        needs = f" needs {count} instead of {self.instead_of:,}," if self.instances != self.instead_of else ""
        if self.mends:
            needs = f" holds that with {count},"
        asks = f" ({self.risk})" if self.risk else ""
        return f"{self.flag}{needs} {self._saves}{asks}"

    @property
    def _saves(self) -> str:
        money, time = (f(abs(x)) for f, x in ((units.money, self.saves_usd), (units.seconds, self.saves_s)))
        if abs(self.saves_s) <= _ALIKE * self.step_s:
            return f"saves {money} a step" if self.saves_usd > 0 else f"costs {money} more a step"
        if self.saves_usd > 0 and self.saves_s > 0:
            return f"saves {money} and {time} a step"
        if self.saves_s > 0:
            return f"saves {time} a step for {money} more"
        return f"saves {money} a step, which takes {time} longer"


def change_of(
    alternatives: Alternatives, way_out: WayOut | None, instances: int, likeliest: bool = True
) -> Change | None:
    """What lets a fleet hold the targets, where none does; else what saves most with a count of its own; else what
    makes a step shorter for the least money. None where nothing helps.

    likeliest: the instances are for the likeliest case, as the counts of all changes are.
    """
    if way_out is not None:
        text, typed = "a larger staleness budget", f"{flag('max_staleness')} {way_out.max_staleness:g}"
        older = f"staleness p99 {way_out.staleness_p99_steps:.3g} steps"
        return replace(_anew(text, typed, way_out, older), mends=True)
    saving = [(a.anew.saves_usd, a, a.anew) for a in alternatives.tried if a.anew and a.anew.saves and a.anew.holds]
    saving = [one for one in saving if not one[1].loses_more]
    if saving and likeliest:
        _, a, anew = max(saving, key=lambda one: one[0])
        return _anew(a.text, typed_as(a.flag), anew, a.risk)
    best = alternatives.named(alternatives.cheapest or "")
    return None if best is None else _alone(best, instances)


def _anew(text: str, typed: str, found: Anew, risk: str | None) -> Change:
    saves_s = found.step_s / found.step_ratio - found.step_s
    return Change(text, typed, found.instances, found.instead_of, found.saves_usd, saves_s, found.step_s, risk)


def _alone(a: Alternative, instances: int) -> Change:
    """A lever at the count as it is; one more instance is a count of its own."""
    step_s = a.gain_s / (1.0 - a.step_ratio.mean) - a.gain_s
    more = int(a.flag.rpartition("=")[2]) if a.flag.startswith("--set fleet.instances=") else instances
    return Change(a.text, typed_as(a.flag), more, instances, -a.cost_change, a.gain_s, step_s, a.risk)


_FLAGS = {path: name for name, path in PATHS.items()} | {"workload.output_tokens.max": "max_len"}


def typed_as(sets: str) -> str:
    """The same with the flags that `size` has for some of the settings."""
    typed = []
    for written in sets.removeprefix("--set ").split(" --set "):
        path, _, value = written.partition("=")
        typed.append(f"{flag(_FLAGS[path])} {value}" if path in _FLAGS else f"--set {written}")
    return " ".join(typed)
