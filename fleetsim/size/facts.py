"""A plan as a table of facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.job import words as job_words
from fleetsim.job.facts import assumed_line, measure_line, run_differs, run_facts, run_line
from fleetsim.job.grounds import assumed_section, observed_line, observed_section, rests_on, worth_knowing
from fleetsim.job.metrics import CANDIDATE_METRICS
from fleetsim.job.trainer_scaling import count_words, gpus_each, takes_turns
from fleetsim.job.trials import Trial, with_instances
from fleetsim.job.words import binding_line, instance_words, target, target_value
from fleetsim.records import as_dict
from fleetsim.search.objective import RULE
from fleetsim.sim.records import Records
from fleetsim.simulate.pictures import over_time
from fleetsim.size import words
from fleetsim.size.pictures import counts_of, curves, headroom_chart, headroom_table, levers, rate_table, trials_table
from fleetsim.size.size import Sizing
from fleetsim.size.words import being_wrong, headline
from fleetsim.tell.data import estimate, head, told
from fleetsim.tell.document import Block, Document, Listed, Section, page_only, present, terminal_only
from fleetsim.tell.facts import Fact, Facts, Tone, explained, facts


def brief_facts(result: Sizing) -> Facts:
    """What one must know of a plan: the answer and its lines."""
    here, of = with_instances(result.scenario, result.instances), result.recommended.estimates
    each = instance_words(result.scenario)
    run = Fact("run", run_line(result.scenario, result.as_run_s))
    if run_differs(result.scenario, result.as_run_s):
        observed, measure = (
            Fact("observed", observed_line(result.scenario)),
            Fact("measure", measured_first(result) or ""),
        )
        assumed = assumed_line(result.scenario, result.assumptions, result.in_doubt)
        other = f"no fleet is advised until they agree; what is assumed of the run, and may be other: {assumed}"
        return facts(headline(result), run, Fact("explain", other), observed, measure, tone="unsure")
    return facts(
        headline(result),
        run,
        Fact("instances", value=result.instances, title="rollout instances", note=each),
        Fact("missed", _missed(result)),
        run_facts(of, here, result.spans, on_demand=result.alternatives.beside_on_demand),
        Fact("binds", binding_line(result.binding, here, of)),
        Fact("more", words.longer(result)),
        Fact("workers", words.workers(result), value=sum(crew.workers for crew in result.crews) or None),
        Fact("prefill", "" if result.sides is None else result.sides.verdict.rstrip(".")),
        Fact("change", "" if result.change is None else result.change.words_in(gpus_each(here))),
        Fact("allow", "" if result.allow is None else result.allow.words_in(gpus_each(here))),
        Fact("observed", observed_line(result.scenario)),
        Fact("assumed", assumed_line(result.scenario, result.assumptions, result.in_doubt)),
        Fact("measure", measured_first(result) or ""),
        tone=_tone(result),
    )


def all_facts(result: Sizing) -> Facts:
    """The same, and what is worked out for those who ask for more."""
    cap = result.queue_cap
    batches = "one batch" if cap.steps == 1 else units.plural(cap.steps, "batch")
    return brief_facts(result).and_more(
        Fact("queue_cap_samples", value=cap.samples, title="queue cap, samples", note=batches),
        explained("explanation", result.explanation),
        explained("surplus", words.surplus(result)),
        explained("drafts", None if result.drafts is None else result.drafts.text),
        explained("sides", None if result.sides is None else result.sides.text),
        explained("queue", units.sentence(words.queue(result))),
        explained("headroom", units.sentence(words.headroom(result))),
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
        largest, now = result.largest, result.recommended.mean(t.metric)
        # the largest fleet may be no nearer: one that takes turns may wait for a larger share
        if largest is not None and t.helped_by_instances and largest.mean(t.metric) < now:
            there = largest.estimates[t.metric]
            # A target holds where the whole interval does: a mean below it would read as if it were reached.
            idle = t.name == "trainer_idle_fraction" and there.mean <= t.limit
            best = target_value(t.name, there.mean) + (units.bracket(there, "share") if idle else "")
            text += f", and {best} with {count_words(result.scenario, largest.instances)}"
        said.append(text)
    return "; ".join(said)


def measured_first(result: Sizing) -> str | None:
    """The input whose error costs most, what being wrong costs, and whether some case leaves no count."""
    if result.spread is None:
        return None
    none = "; if it is slow, no count is enough" if result.knee is None and not result.spread.held else ""
    first = result.spread.parts[0]
    return f"{measure_line(first)}; {being_wrong(result, first.what)}{none}"


class Pictured(Struct, frozen=True):
    """What only a page shows. around: fleets around the answer. run: the recommended fleet's, with its activity
    recorded."""

    around: tuple[Trial, ...]
    run: Records


def document(result: Sizing, pictured: Pictured | None = None, call: Sequence[str] = ("fleetsim", "size")) -> Document:
    """What `size` says. pictured: None without a page. call: the words that ask the same again. Raises ValueError for a
    run whose activity was not recorded."""
    # The two rates, where an instance has the same rate whatever it does.
    rates = rate_table(result) if result.scenario.engine.kind == "constant" else None
    arithmetic = words.arithmetic(result)
    return Document(
        job_words.kind_of("size", result.scenario),
        all_facts(result),
        (
            Section(
                "More or fewer GPUs" if takes_turns(result.scenario) else "More or fewer instances",
                (
                    terminal_only(trials_table(result.candidates, result.instances, gpus_each(result.scenario))),
                    page_only(
                        *(_counts(result, pictured.around) if pictured else ()),
                        units.sentence(RULE) if pictured and result.targets else None,
                    ),
                ),
                short="candidates (> recommended; mean ± half of the 95 % interval)",
            ),
            Section("What else would help", present(*levers(result.alternatives)) if pictured else (), on=("page",)),
            Section("rate matching, on paper", present(arithmetic, rates), on=("terminal",)),
            Section(
                "Where the headroom goes",
                (
                    terminal_only(headroom_table(result)),
                    page_only(*((headroom_chart(result), f"On paper: {arithmetic}.") if pictured else ())),
                ),
                short="where the headroom goes",
                folded=True,
            ),
            *((_at_work(result, pictured.run),) if pictured else ()),
            *(() if (r := result.spread) is None else (worth_knowing(r.parts, r.confidence, "instances", counts_of),)),
            observed_section(result.scenario),
            assumed_section(result.assumptions),
            rests_on(result.profile, result.assumptions, "Nothing was assumed: every value that matters was given."),
            Section("Next", (Listed(words.next_commands(result, call), code=True),), short="next"),
        ),
        result.warnings,
    )


def _counts(result: Sizing, around: Sequence[Trial]) -> tuple[Block | None, ...]:
    runs = [trial for trial in around if trial.stuck is None]
    figures = trials_table(runs, result.instances, gpus_each(result.scenario))
    return *curves(result, runs, len(around) - len(runs)), figures


def _at_work(result: Sizing, run: Records) -> Section:
    """The recommended fleet's run in pictures."""
    return over_time(
        run,
        result.recommended.estimates,
        f"The recommended fleet at work: {units.plural(result.instances, 'instance')}",
        "One of its simulated runs, the first replication, without a cap on the queue beyond the scenario's.",
        result.queue_cap.samples,
        folded=True,
    )


def size_document(result: Sizing, advice: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of `fleetsim size --json`."""
    fleet = result.scenario.fleet
    pools = {} if fleet.first is None else {fleet.first: result.instances}
    pools |= {name: pool.instances for name, pool in fleet.pools.items()}
    return {
        **head("size", result.scenario),
        "recommendation": {
            "instances": 0 if fleet.first else result.instances,
            "second_instances": sum(pools.values()),
            "pools": pools,
            "queue_cap_samples": result.queue_cap.samples,
            "queue_cap_steps": result.queue_cap.steps,
            "stations": {crew.station: crew.told() for crew in result.crews},
            "binding": result.binding,
            "at_knee": result.at_knee,
            "feasible": result.feasible,
            "largest_tried": None if result.largest is None else candidate_data(result.largest),
            "missed_targets": [t.name for t in result.missed],
            "change": None if result.change is None else as_dict(result.change),
        },
        "advice": advice,
        **told(all_facts(result)),
        "targets": [as_dict(t) for t in result.targets],
        "rate_matching": as_dict(result.rate_matching),
        "headroom": as_dict(result.headroom),
        "queue_cap": as_dict(result.queue_cap),
        "candidates": [candidate_data(c) for c in result.candidates],
        "confidence": result.confidence,
        **result.said(),
    }


def candidate_data(trial: Trial) -> dict[str, Any]:
    """One fleet, as it stands in a JSON document."""
    return {
        "instances": trial.instances,
        "replications": trial.replications,
        "binding": trial.binding,
        **{field: estimate(trial.estimates[metric]) for field, metric in CANDIDATE_METRICS.items()},
    }
