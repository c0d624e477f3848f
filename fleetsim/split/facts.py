"""A split advice, told: what to do and why, every way to use the GPUs, the best two at work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.job.facts import AHEAD_NOT_AGE, assumed_line, being_wrong, measure_line, run_facts, run_line
from fleetsim.job.grounds import assumed_section, observed_line, observed_section, rests_on, worth_knowing
from fleetsim.job.input_moves import InputPart
from fleetsim.job.metrics import CANDIDATE_METRICS
from fleetsim.job.words import binding_line, instance_words, kind_of
from fleetsim.quantities import quantity
from fleetsim.records import as_dict
from fleetsim.search.permissions import stale
from fleetsim.search.workers import workers_of, workers_words
from fleetsim.sim.records import Records
from fleetsim.simulate.gantt import gantt
from fleetsim.size.pictures import levers
from fleetsim.split import words
from fleetsim.split.pictures import ranking, ratio_chart, way_chart
from fleetsim.split.split import Advice
from fleetsim.split.spread import WayEnd
from fleetsim.split.ways import By, Outcome
from fleetsim.tell.data import estimate, head, told
from fleetsim.tell.document import Block, Document, Listed, Section, page_only, pair, present
from fleetsim.tell.facts import Fact, Facts, Words, explained, facts

_RATIO = "best split beside best colocated"
_SIGNS = (
    "idle: the trainer's share / the instances'; stale: optimizer steps that 99 % of the samples are at most old when "
    f"they are trained ({AHEAD_NOT_AGE}); long lost: share of the longest tenth of the samples that is dropped or "
    "aborted"
)


def document(result: Advice, runs: Mapping[str, Records] | None = None) -> Document:
    """What `split` says. runs: label of a way -> its first replication, for a page; None without a page.

    Raises ValueError for a run whose activity was not recorded.
    """
    return Document(
        f"{kind_of('split', result.scenario)} · {units.plural(result.gpus, 'GPU')}",
        split_facts(result),
        (
            Section(
                "Every way to use these GPUs",
                (
                    page_only(*([] if runs is None else _pictures(result))),
                    ranking(result),
                    words.orders(result),
                    Words(tail=_SIGNS),
                ),
                short="every way (rollout + trainer GPUs; mean ± half of the 95 % interval)",
            ),
            Section(
                "What the recipe does not allow, and what it would buy",
                (Listed(tuple(words.bought(result)), code=True),) if result.bought else (),
                short="what older samples would buy",
            ),
            Section(
                "The trainer's seconds",
                (words.law(result), page_only(words.rules(result))),
                short="the trainer's seconds",
            ),
            Section(
                "What else would help",
                () if runs is None else present(*levers(result.alternatives)),
                on=("page",),
            ),
            Section(
                "The best split and the best colocated way at work",
                tuple(
                    gantt(run, f"gantt-{i}", f"{label}, step by step")
                    for i, (label, run) in enumerate((runs or {}).items())
                ),
                on=("page",),
            ),
            observed_section(result.scenario),
            *(() if (r := result.spread) is None else (worth_knowing(r.parts, r.confidence, "right there", _ways_of),)),
            assumed_section(result.assumptions),
            rests_on(result.profile, result.assumptions, "Nothing was assumed: every value that matters was given."),
        ),
        result.warnings,
    )


def _measure(result: Advice) -> str:
    """The input whose error costs most, and what being wrong costs."""
    if result.spread is None:
        return ""
    first, r = result.spread.parts[0], result.spread
    of = {"step_s": "a step", "goodput": "goodput", "cost_per_step": "the cost of a step"}[result.by]
    return f"{measure_line(first)}; {being_wrong(r.expected_loss, of, None if r.widest == first.what else r.widest)}"


def split_facts(result: Advice) -> Facts:
    """What one must know of an advice, as a table."""
    spread, way, ratio = result.spread, result.chosen.arrangement, result.ratio
    of = result.chosen.estimates
    turns = "the same GPUs in turn" if not way.apart else "rollout + trainer GPUs"
    fleet = f"{units.plural(way.instances, 'instance')} ({instance_words(way.scenario)})"
    less = "" if ratio is None else units.ratio_change(ratio).partition(" [")[0]
    run = Fact("run", run_line(result.scenario, result.as_run_s))
    observed, measure = Fact("observed", observed_line(result.scenario)), Fact("measure", _measure(result))
    if result.contradicted:
        return facts(words.headline(result), run, observed, measure, tone="unsure")
    return facts(
        words.headline(result),
        run,
        Fact("arrangement", value=way.label, title="advised", note=turns),
        Fact("fleet", fleet, value=way.instances),
        Fact("workers", workers_words(way.scenario, of), value=sum(workers_of(way.scenario).values()) or None),
        run_facts(of, way.scenario, result.spans, result.chosen.age),
        Fact("beside", words.beside(result), value=less, title=less and _RATIO, note=quantity(result.by).title),
        Fact("ahead", words.ahead(result) or ""),
        Fact("binds", binding_line(result.binding, way.scenario, of)),
        Fact("change", "" if result.change is None else result.change.words),
        Fact("allow", words.allow(result)),
        observed,
        Fact("assumed", assumed_line(result.scenario, result.assumptions, result.in_doubt)),
        measure,
        explained("on_policy", words.on_policy(result)),
        explained("explanation", result.explanation),
        explained("drafts", None if result.drafts is None else result.drafts.text),
        explained("sides", None if result.sides is None else result.sides.text),
        tone="unsure" if spread is not None and spread.wide else "good",
    )


def _ways_of(part: InputPart[WayEnd]) -> str:
    return f"{part.low.way}; {part.high.way}"


def _pictures(result: Advice) -> Iterator[Block | None]:
    """All ways, the measure that they are ranked by first."""
    measures: tuple[By, ...] = (result.by, *(m for m in ("step_s", "cost_per_step") if m != result.by))
    first, *others = (way_chart(result, m) for m in measures)
    yield first
    yield pair(*others)
    yield ratio_chart(result)
    if result.stuck:
        yield f"Ways that cannot run: {'; '.join(f'{label}: {reason}' for label, reason in result.stuck)}."


def split_document(result: Advice, advice: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of `fleetsim split --json`."""
    ratio = result.ratio
    return {
        **head("split", result.scenario),
        "gpus": result.gpus,
        "by": result.by,
        "trainer_rules": as_dict(result.rules),
        "recommendation": {
            "verdict": result.verdict,
            "best_split_over_best_colocated": None if ratio is None else estimate(ratio),
            "best_split": None if result.best_split is None else result.best_split.arrangement.label,
            "best_colocated": None if result.best_colocated is None else result.best_colocated.arrangement.label,
            "change": None if result.change is None else as_dict(result.change),
            **outcome_data(result.chosen),
        },
        "advice": advice,
        **told(split_facts(result)),
        "arrangements": [outcome_data(o) for o in result.outcomes],
        "splits": result.splits,
        "staleness_steps_permitted": result.oldest,
        "forbidden": [{"allow": stale(steps), **outcome_data(way)} for steps, way in result.bought],
        "stuck": [{"arrangement": label, "reason": reason} for label, reason in result.stuck],
        **result.said(),
    }


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """One way, as it stands in a JSON document."""
    way = outcome.arrangement
    return {
        "arrangement": way.label,
        "kind": way.kind,
        "instances": way.instances,
        "rollout_gpus": way.rollout_gpus,
        "trainer_gpus": way.trainer_gpus,
        "stations": workers_of(way.scenario),
        "trainer_fixed_s": way.scenario.trainer.fixed_s,
        "replications": outcome.replications,
        "binding": outcome.binding,
        "ranks": dict(outcome.ranks),
        "ratio_to_first": estimate(outcome.ratio),
        "ties_with_first": outcome.ties,
        **{field: estimate(outcome.estimates[metric]) for field, metric in CANDIDATE_METRICS.items()},
    }
