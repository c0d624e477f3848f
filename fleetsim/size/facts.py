"""A plan as a table of facts."""

from __future__ import annotations

from fleetsim import units
from fleetsim.job.facts import assumed_line, measure_line, run_facts
from fleetsim.job.grounds import observed_line
from fleetsim.job.shared_gpus import count_words, gpus_each
from fleetsim.job.trials import with_instances
from fleetsim.job.words import binding_words, instance_words, target, target_value
from fleetsim.search.targets import Target
from fleetsim.size import words
from fleetsim.size.size import Sizing
from fleetsim.size.words import being_wrong, headline
from fleetsim.tell.facts import Fact, Facts, Tone, explained, facts


def brief_facts(result: Sizing) -> Facts:
    """What one must know of a plan: the answer and its lines."""
    here, of = with_instances(result.scenario, result.instances), result.recommended.estimates
    idle = of["trainer_idle_fraction"].mean
    each = instance_words(result.scenario)
    return facts(
        headline(result),
        Fact("instances", value=result.instances, title="rollout instances", note=each),
        Fact("missed", _missed(result)),
        run_facts(of, here, result.spans),
        Fact("binds", binding_words(result.binding, idle=idle).name),
        Fact("prefill", "" if result.sides is None else result.sides.verdict.rstrip(".")),
        Fact("change", "" if result.change is None else result.change.words_in(gpus_each(here))),
        Fact("observed", observed_line(result.scenario)),
        Fact("assumed", assumed_line(result.scenario, result.assumptions, result.in_doubt)),
        Fact("measure", _measure(result) or ""),
        tone=_tone(result),
    )


def all_facts(result: Sizing) -> Facts:
    """The same, and what is worked out for those who ask for more."""
    cap = result.queue_cap
    return brief_facts(result).and_more(
        Fact("queue_cap_samples", value=cap.samples, title="queue cap, samples", note=_batches(cap.steps)),
        explained("likely", words.likely(result)),
        explained("reach", words.reach(result)),
        explained("explanation", result.explanation),
        explained("surplus", words.surplus(result)),
        explained("drafts", None if result.drafts is None else result.drafts.text),
        explained("sides", None if result.sides is None else result.sides.text),
        explained("queue", units.sentence(words.queue(result))),
        explained("headroom", units.sentence(words.headroom(result))),
    )


def _batches(steps: float) -> str:
    return "one batch" if steps == 1 else units.plural(steps, "batch")


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


def _measure(result: Sizing) -> str | None:
    """The input whose error costs most, what being wrong costs, and whether some case leaves no count."""
    if result.spread is None:
        return None
    none = "; if it is slow, no count is enough" if result.knee is None and not result.spread.held else ""
    first = result.spread.parts[0]
    return f"{measure_line(first)}; {being_wrong(result, first.what)}{none}"
