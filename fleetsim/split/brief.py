"""A split advice in about eight lines."""

from __future__ import annotations

from fleetsim import units
from fleetsim.job.binding import binding_words
from fleetsim.job.brief import assumed_line, measure_line, with_range
from fleetsim.job.observed import observed_line
from fleetsim.job.words import instance_words
from fleetsim.size.explain import bound_by
from fleetsim.split import words
from fleetsim.split.split import SplitResult
from fleetsim.tell.document import Brief, brief


def brief_of(result: SplitResult) -> Brief:
    """What one must know of an advice; its headline is the answer."""
    spread = result.spread
    in_doubt = () if spread is None else [part.path for part in spread.parts]
    return brief(
        ("step", _step(result)),
        ("cost", _cost(result)),
        ("beside", words.beside(result)),
        ("age", words.age(result)),
        ("binds", binding_words(bound_by(result.chosen.binding, result.alternatives)).name),
        ("change", None if result.change is None else result.change.words),
        ("observed", observed_line(result.scenario)),
        ("assumed", assumed_line(result.scenario, result.assumptions, in_doubt)),
        ("measure", _measure(result)),
        tone="unsure" if spread is not None and spread.wide else "good",
    )


def _step(result: SplitResult) -> str:
    idle, step = (result.chosen.mean(name) for name in ("trainer_idle_fraction", "step_s"))
    said = with_range(idle, _ends(result, "trainer_idle_fraction"), units.share)
    return f"{with_range(step, _ends(result, 'step_s'), units.seconds)}, trainer idle {said}"


def _cost(result: SplitResult) -> str:
    step, cost = (result.chosen.mean(name) for name in ("step_s", "cost_per_step"))
    hour = units.money(3600.0 * cost / step)
    way = result.chosen.arrangement
    fleet = f"{units.plural(way.instances, 'instance')} ({instance_words(way.scenario)})"
    return f"{with_range(cost, _ends(result, 'cost_per_step'), units.money)} a step, {hour} an hour; {fleet}"


def _ends(result: SplitResult, metric: str) -> tuple[float, float] | None:
    return None if result.spread is None else result.spread.metrics[metric]


def _measure(result: SplitResult) -> str | None:
    """The input whose error costs most."""
    if result.spread is None:
        return None
    first = result.spread.parts[0]
    return measure_line(first.what, first.measure, first.usd_per_h)
