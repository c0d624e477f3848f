"""A split advice in about eight lines."""

from __future__ import annotations

from fleetsim import units
from fleetsim.job.binding import binding_words
from fleetsim.job.brief import assumed_line, measure_line, ranged, step_line
from fleetsim.job.observed import observed_line
from fleetsim.job.words import instance_words
from fleetsim.size.explain import bound_by
from fleetsim.split import words
from fleetsim.split.split import SplitResult
from fleetsim.tell.document import Brief, brief


def brief_of(result: SplitResult) -> Brief:
    """What one must know of an advice; its headline is the answer."""
    spread = result.spread
    idle, step_s = (result.chosen.mean(name) for name in ("trainer_idle_fraction", "step_s"))
    return brief(
        ("step", step_line(step_s, idle, result.spans)),
        ("cost", _cost(result)),
        ("beside", words.beside(result)),
        ("age", words.age(result)),
        ("binds", binding_words(bound_by(result.chosen.binding, result.alternatives)).name),
        ("change", None if result.change is None else result.change.words),
        ("observed", observed_line(result.scenario)),
        ("assumed", assumed_line(result.scenario, result.assumptions, result.in_doubt)),
        ("measure", None if spread is None else measure_line(spread.parts[0])),
        tone="unsure" if spread is not None and spread.wide else "good",
    )


def _cost(result: SplitResult) -> str:
    step, cost = (result.chosen.mean(name) for name in ("step_s", "cost_per_step"))
    hour = units.money(3600.0 * cost / step)
    way = result.chosen.arrangement
    fleet = f"{units.plural(way.instances, 'instance')} ({instance_words(way.scenario)})"
    return f"{ranged('cost_per_step', cost, result.spans)} a step, {hour} an hour; {fleet}"
