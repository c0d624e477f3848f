"""The one change that helps most, with the fleet that is then right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fleetsim.job.change import Change, Typed
from fleetsim.job.levers import ONE_MORE
from fleetsim.size.alternatives import Alternative, Alternatives
from fleetsim.size.larger_budget import WayOut
from fleetsim.size.second_search import Anew


def change_of(
    alternatives: Alternatives,
    way_out: WayOut | None,
    instances: int,
    likeliest: bool = True,
    wider: Mapping[str, Any] | None = None,
) -> Change | None:
    """The change that helps most, None where nothing helps: where no fleet holds the targets, the one with which a
    fleet does; else the one that saves most with the count that is then right; else the one with the cheapest second.

    likeliest: whether `instances` is for the likeliest case, as the counts of all changes are.
    wider: the changes that are the way out.
    """
    if way_out is not None:
        older = f"staleness p99 {way_out.staleness_p99_steps:.3g} steps"
        return replace(_anew("a larger staleness budget", Typed(wider or {}), way_out, older), mends=True)
    most = max(alternatives.tried, key=lambda a: a.saves_usd, default=None)
    if most is not None and most.anew is not None and most.saves_usd > 0.0 and likeliest:
        return _anew(most.text, most.flag, most.anew, most.risk)
    best = alternatives.named(alternatives.cheapest or "")
    return None if best is None else _alone(best, instances)


def _anew(text: str, typed: Typed, found: Anew, risk: str | None) -> Change:
    saves_s = found.step_s / found.step_ratio - found.step_s
    return Change(text, typed.own, found.instances, found.instead_of, found.saves_usd, saves_s, found.step_s, risk)


def _alone(a: Alternative, instances: int) -> Change:
    """A lever at the same count; for the lever of one more instance, at one more."""
    step_s = a.gain_s / (1.0 - a.step_ratio.mean) - a.gain_s
    more = a.flag.changes["fleet.instances"] if a.name == ONE_MORE else instances
    return Change(a.text, a.flag.own, more, instances, -a.cost_change, a.gain_s, step_s, a.risk)
