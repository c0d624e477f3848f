"""A split advice, told: what to do and why, every way to use the GPUs, the best two at work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.estimates import Estimate
from fleetsim.job.facts import AHEAD_NOT_AGE, assumed_line, being_wrong, likely, measure_line, run_facts, run_line
from fleetsim.job.grounds import assumed_section, observed_line, observed_section, rests_on, worth_knowing
from fleetsim.job.input_moves import InputPart
from fleetsim.job.metrics import CANDIDATE_METRICS
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trainer_scaling import course_of, law_words, time_factor
from fleetsim.job.words import binding_line, instance_words, kind_of
from fleetsim.policies.admission import MAX_STALENESS
from fleetsim.quantities import quantity
from fleetsim.records import as_dict
from fleetsim.search.permissions import number_of, stale
from fleetsim.search.workers import workers_of, workers_words
from fleetsim.sim.records import Records
from fleetsim.simulate.pictures import gantt
from fleetsim.size.pictures import levers
from fleetsim.split.pictures import ranking, ratio_chart, way_chart
from fleetsim.split.split import Advice
from fleetsim.split.spread import WayEnd
from fleetsim.split.ways import By, Outcome
from fleetsim.tell.data import estimate, head, told
from fleetsim.tell.document import Block, Document, Listed, Section, page_only, pair, present
from fleetsim.tell.facts import Fact, Facts, Words, explained, facts

# --- Sentences of a split advice.

# A measure, what it is of a step, and how more and less of it are called.
_MEASURES = {
    "step_s": ("a step", "shorter", "longer"),
    "goodput": ("goodput", "less", "more"),
    "cost_per_step": ("a step", "cheaper", "dearer"),
}
_MOST_TIES = 6


def headline(result: Advice) -> str:
    """The answer in one sentence."""
    way = result.chosen.arrangement
    each = instance_words(way.scenario)
    if result.contradicted:
        return f"No way is advised. {run_line(result.scenario, result.as_run_s)}."
    if result.verdict == "split":
        return f"Split {way.label}{_likely(result)}: rollout + trainer GPUs."
    fleet = units.plural(way.instances, "instance")
    return f"Do not split{_likely(result)}: {way.label} on all {units.plural(result.gpus, 'GPU')}, {fleet} ({each})."


def _likely(result: Advice) -> str:
    """The range of the advice, where it is more than one way."""
    spread = result.spread
    if spread is None:
        return ""
    return likely(*spread.ways, spread.wide) if spread.held else " (unsure)"


def beside(result: Advice) -> str:
    """The advised way against the better one of the other kind."""
    best, other, ratio = result.best_split, result.best_colocated, result.ratio
    if best is None or other is None or ratio is None:
        return f"nothing to compare it with: {'no split' if best is None else 'no colocated way'} can run"
    said = comparison(ratio, result.by, best.replications, _doubted(result))
    if result.verdict == "split":
        return f"{said} than {other.arrangement.label}"
    if result.verdict == "do_not_split":
        return f"the best split, {best.arrangement.label}: {said}"
    low, high = units.percent(ratio.ci_low), units.share(ratio.ci_high)
    return (
        f"the best split, {best.arrangement.label}, is no better than by chance ({low} to {high} of it), and sharing "
        "is simpler"
    )


def _doubted(result: Advice) -> str:
    """Between what the ratio lies as far as inputs are in doubt: "likely 0.62 to 0.91 times"."""
    between = None if result.spread is None else result.spread.ratio
    if between is None:
        return ""
    low, high = (f"{x:.2f}" for x in between)
    return "" if low == high else f"likely {low} to {high} times"


def ahead(result: Advice) -> str | None:
    """How far the advised way runs ahead, where that is not what the recipe says."""
    job, way = result.scenario, result.chosen.arrangement
    law, number = law_of(job), number_of(job, way)
    if number is None:
        return None
    setting = "admission.batches_ahead" if law.budget == "batches" else MAX_STALENESS
    own = None if law.waits_for_trainer else law.number(job.admission)
    if own == number:
        return None
    why = "" if own is None else f", not {own:g}: more lets its samples become older than the recipe permits"
    if own is not None and number > own:
        why = f", not {own:g}, as --allow permits"
    return f"--set {setting}={number:g}{why}"


def bought(result: Advice) -> Iterator[tuple[str, str]]:
    """(flag, what it would buy): "--allow 'staleness<=1'", "12 + 4, a step of 35.0 s instead of 1 min 21 s"."""
    what = _MEASURES[result.by][0]
    for steps, way in result.bought:
        now, then = (_value(o, result.by) for o in (result.chosen, way))
        yield f"--allow '{stale(steps)}'", f"{way.arrangement.label}, {what} of {then} instead of {now}"


def allow(result: Advice) -> str:
    """The same in a line, and the change that would help more: what stands there instead is said once."""
    said = [f"{permission}: {told}" for permission, told in bought(result)]
    instead = said[0].rpartition(" instead of ")[2] if said else ""
    later = [one.removesuffix(f" instead of {instead}") for one in said[1:]]
    change = [] if result.allow is None else [result.allow.words]
    return "; ".join([*(f"with {first}" for first in said[:1]), *later, *change])


def on_policy(result: Advice) -> str | None:
    """What staleness 0 would cost, where the advice is asynchronous."""
    sync = next((o for o in result.outcomes if o.arrangement.kind == "colocated_sync"), None)
    if sync is None or result.chosen.arrangement.on_policy:
        return None
    old = result.chosen.mean("staleness_steps.p99")
    return (
        f"Its samples are up to {units.plural(old, 'step')} old (p99). Colocated sync trains on-policy; "
        f"a step of it takes {units.seconds(sync.mean('step_s'))}."
    )


def orders(result: Advice) -> str:
    """Whether the three measures agree on the best way, what ties with it, and how many ways were looked at."""
    names = {name: quantity(name).title.partition(",")[0] for name in _MEASURES}
    first = result.outcomes[0]
    agree = " and ".join(f"by {name}" for m, name in names.items() if first.ranks[m] == 1)
    others = [
        f"by {names[m]} {o.arrangement.label}"
        for m in names
        for o in result.outcomes
        if o.ranks[m] == 1 and o is not first
    ]
    sentences = [f"First {agree}: {first.arrangement.label}{''.join(f'; {other}' for other in others)}."]
    ties = [o.arrangement.label for o in result.outcomes[1:] if o.ties and o.replications > 1]
    if ties:
        more = ", ..." if len(ties) > _MOST_TIES else ""
        sentences.append(f"Not significantly different from it (=): {', '.join(ties[:_MOST_TIES])}{more}.")
    if result.looked_at + len(result.stuck) < result.splits:
        sentences.append(f"{result.looked_at:,} of {result.splits:,} splits were simulated, closest around the best.")
    return " ".join(sentences)


def law(result: Advice) -> str:
    """The trainer's seconds where they matter, and the law behind them."""
    trainer, known = result.scenario.trainer, mean_step_s(result.scenario)
    course = course_of(result.scenario)
    counts = {result.gpus: "colocated"}
    if result.best_split is not None:
        counts = {result.best_split.arrangement.trainer_gpus: "best split"} | counts
    taken = [f"{known * time_factor(trainer, g, course):.3g} s on {g} ({what})" for g, what in counts.items()]
    return (
        f"{known:.3g} s per step on {units.plural(trainer.gpus, 'GPU')}, so {units.listed(taken)}: "
        f"{law_words(trainer, course)}. Checkpoints and weight syncs do not scale."
    )


def rules(result: Advice) -> str:
    """What a split had to keep to."""
    least, unit = result.rules.trainer_least or 1, result.rules.trainer_unit
    whole = f", in multiples of {unit}" if unit is not None else ", in whole servers or a part that divides one"
    return (
        f"A split's trainer has at least {units.plural(least, 'GPU')}"
        + (whole if unit != 1 else "")
        + f"; {units.plural(result.splits, 'split')} of {units.plural(result.gpus, 'GPU')} keep to that."
    )


def comparison(ratio: Estimate, by: str, replications: int, *also: str) -> str:
    """A paired ratio, with what else there is to say of it: "15.5 % shorter (±0.4 of seeds; 12.0 s)"."""
    _, less, more = _MEASURES[by]
    size, luck = units.changed_by(ratio, replications)
    beside = "; ".join(filter(None, (luck, *also)))
    return f"{size} {less if ratio.mean < 1.0 else more}{f' ({beside})' if beside else ''}"


def _value(outcome: Outcome, by: str) -> str:
    value = outcome.mean(by)
    q = quantity(by)
    return f"{value:,.0f} {q.title.partition(', ')[2]}" if by == "goodput" else units.written(value, q.unit)


# --- The advice as a table of facts, a Document, and JSON.

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
                    orders(result),
                    Words(tail=_SIGNS),
                ),
                short="every way (rollout + trainer GPUs; mean ± half of the 95 % interval)",
            ),
            Section(
                "What the recipe does not allow, and what it would buy",
                (Listed(tuple(bought(result)), code=True),) if result.bought else (),
                short="what older samples would buy",
            ),
            Section("The trainer's seconds", (law(result), page_only(rules(result))), short="the trainer's seconds"),
            Section(
                "What else would help", () if runs is None else present(*levers(result.alternatives)), on=("page",)
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
        return facts(headline(result), run, observed, measure, tone="unsure")
    return facts(
        headline(result),
        run,
        Fact("arrangement", value=way.label, title="advised", note=turns),
        Fact("fleet", fleet, value=way.instances),
        Fact("workers", workers_words(way.scenario, of), value=sum(workers_of(way.scenario).values()) or None),
        run_facts(of, way.scenario, result.spans, result.chosen.age),
        Fact("beside", beside(result), value=less, title=less and _RATIO, note=quantity(result.by).title),
        Fact("ahead", ahead(result) or ""),
        Fact("binds", binding_line(result.binding, way.scenario, of)),
        Fact("change", "" if result.change is None else result.change.words),
        Fact("allow", allow(result)),
        observed,
        Fact("assumed", assumed_line(result.scenario, result.assumptions, result.in_doubt)),
        measure,
        explained("on_policy", on_policy(result)),
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
