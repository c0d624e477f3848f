"""A plan in about eight lines."""

from __future__ import annotations

from fleetsim import units
from fleetsim.job.brief import assumed_line, losses_line, measure_line, ranged, regime_line, step_line
from fleetsim.job.caveats import backlog_line
from fleetsim.job.grounds import observed_line
from fleetsim.job.trainer_scaling import count_words, gpus_each, takes_turns
from fleetsim.job.trials import with_instances
from fleetsim.job.words import binding_words, kind_of, target, target_value
from fleetsim.search.objective import usd_per_h
from fleetsim.search.targets import Target
from fleetsim.size.size import Sizing
from fleetsim.size.words import being_wrong, headline
from fleetsim.tell.document import Brief, Document, Tone, brief


def in_brief(result: Sizing) -> Document:
    """The answer and the lines of its Brief, and nothing else."""
    kind, title = kind_of("size", result.scenario), headline(result)
    return Document(kind, title, (), (), result.warnings, (), brief=brief_of(result))


def brief_of(result: Sizing) -> Brief:
    """What one must know of a plan; its headline is the answer."""
    here = with_instances(result.scenario, result.instances)
    return brief(
        ("missed", _missed(result)),
        ("step", _step(result)),
        ("cost", _cost(result)),
        ("age", regime_line(result.recommended.estimates)),
        ("lost", losses_line(result.recommended.estimates, result.scenario)),
        ("backlog", backlog_line(here, result.recommended.estimates)),
        ("binds", binding_words(result.binding, idle=result.recommended.mean("trainer_idle_fraction")).name),
        ("prefill", None if result.sides is None else result.sides.verdict.rstrip(".")),
        ("change", None if result.change is None else result.change.words_in(gpus_each(here))),
        ("observed", observed_line(result.scenario)),
        ("assumed", assumed_line(result.scenario, result.assumptions, result.in_doubt)),
        ("measure", _measure(result)),
        tone=_tone(result),
    )


def _tone(result: Sizing) -> Tone:
    if not result.feasible:
        return "bad"
    doubtful = result.spread is not None and (result.spread.wide or not result.spread.held)
    return "unsure" if doubtful or result.missed else "good"


def _missed(result: Sizing) -> str:
    """Targets that the answer misses, with what it comes to instead."""
    said = []
    for t in result.missed:
        is_ = target_value(t.name, result.recommended.mean(t.metric))
        text = f"{target(t.name, t.limit)}: it is {is_}"
        if result.largest is not None and t.helped_by_instances and _nearer(result, t):
            best = target_value(t.name, result.largest.mean(t.metric))
            text += f", and {best} with {count_words(result.scenario, result.largest.instances)}"
        said.append(text)
    return "; ".join(said)


def _nearer(result: Sizing, t: Target) -> bool:
    """Whether the largest fleet comes nearer to a target: one that takes turns may wait for a larger share."""
    assert result.largest is not None
    return result.largest.mean(t.metric) < result.recommended.mean(t.metric)


def _step(result: Sizing) -> str:
    return step_line(result.recommended.mean, result.spans)


def _cost(result: Sizing) -> str:
    s, step = result.scenario, result.recommended.estimates["cost_per_step"].mean
    hour, own = units.money(usd_per_h(s, result.instances)), not takes_turns(s)
    gpus = f"{result.instances * s.engine.gpus:,}{f' + {s.trainer.gpus:,}' if own else ''} GPUs"
    return f"{ranged('cost_per_step', step, result.spans)} a step, {hour} an hour for {gpus}"


def _measure(result: Sizing) -> str | None:
    """The input whose error costs most, what being wrong costs, and whether some case leaves no count."""
    if result.spread is None:
        return None
    none = "; if it is slow, no count is enough" if result.knee is None and not result.spread.held else ""
    first = result.spread.parts[0]
    return f"{measure_line(first)}; {being_wrong(result, first.what)}{none}"
