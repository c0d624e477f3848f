"""A simulated run, told: what binds, its metrics, where each second of a step went, the queue, the waste.

A terminal has the run in characters, a page in pictures, with every metric and how it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import sync_times, sync_words
from fleetsim.estimates import Estimate
from fleetsim.job import words
from fleetsim.job.engine_choices import BUSY, engine_words, side_words
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.facts import assumed_line, run_differs, run_facts, run_line, surplus_line, swing_line
from fleetsim.job.grounds import assumed_section, how_sure, observed_line, rests_on
from fleetsim.job.trainer_scaling import gpus_each
from fleetsim.job.words import binding_line, binding_words, lost_words
from fleetsim.quantities import WASTE, quantity
from fleetsim.records import as_dict
from fleetsim.sim.engines import speculation_of
from fleetsim.sim.records import Records
from fleetsim.simulate.pictures import over_time
from fleetsim.simulate.run_view import RunView, counted_words, every_metric, formulas, main_metrics, published
from fleetsim.tell.data import head
from fleetsim.tell.data import told as said
from fleetsim.tell.document import (
    Block,
    Document,
    Section,
    Table,
    bar,
    estimated,
    page_only,
    present,
    sparkline,
    terminal_only,
)
from fleetsim.tell.facts import Fact, Facts, explained, facts, measured, ranged


def document(view: RunView, warnings: tuple[str, ...] = (), run: Records | None = None) -> Document:
    """What `simulate` says. run: the first replication, for the pictures of a page; None without a page.

    Raises ValueError for a run whose activity was not recorded.
    """
    outcome = published(view)
    wasted = quantity("tokens_per_trained_token").title
    return Document(
        "fleetsim simulate",
        run_told(view),
        (
            *(() if run is None else (over_time(run, view.metrics, "The run"),)),
            Section(
                "Every metric",
                (terminal_only(main_metrics(view)), page_only(every_metric(view), formulas(view), outcome)),
                short="metrics",
            ),
            Section("predicted and published", present(outcome), on=("terminal",)),
            Section(f"where the seconds go ({time_legend(view.steps)})", (time_split(view.steps),), on=("terminal",)),
            Section(
                "queue by step, staleness of the trained samples by age",
                (queue(view.steps, view.staleness_steps, view.metrics),),
                on=("terminal",),
            ),
            Section(wasted, waste(view.metrics), on=("terminal",)),
            *(() if view.ranges is None else (how_sure(view.ranges),)),
            assumed_section(view.assumed),
            rests_on(view.profile, view.assumed, "Every value that bears on the run was given."),
        ),
        warnings,
    )


def run_told(view: RunView) -> Facts:
    """What one must know of a run, as a table."""
    s, ranges, of = view.scenario, view.ranges, view.metrics
    spans = None if ranges is None else ranges.metrics
    binding = binding_words(view.binding, s, of["trainer_idle_fraction"].mean)
    transport = sync_words(sync_times(s))
    wide = ", a wide range" if ranges is not None and ranges.wide else ""
    step_s = of["step_s"].mean
    known, runs = not run_differs(s, step_s), units.plural(view.replications, "replication")
    length = f"{units.plural(len(view.steps), 'step')}, {runs}, seed {s.run.seed}"
    change = binding.lift if view.change is None else view.change.words_in(gpus_each(s))
    rollout = f"{units.plural(s.fleet.instances, 'instance')} ({words.instance_words(s)})"
    trainer = f"{units.plural(s.trainer.gpus, 'trainer GPU')}, {s.trainer.batch_samples:,} samples per step"
    return facts(
        f"{s.name}: a step takes {ranged('step_s', of['step_s'].mean, spans)}{wide}.",
        Fact("run", run_line(s, step_s)),
        Fact("fleet", f"{rollout}, {trainer}"),
        run_facts(of, s, spans, on_demand=view.on_demand),
        measured("rollout_utilization", of["rollout_utilization"]),
        measured("goodput", of["goodput"]),
        Fact("binds", binding_line(view.binding, s, of)),
        Fact("supply", surplus_line(view.enough) or "" if known else ""),
        Fact("change", change if known else ""),
        Fact("allow", view.allow.words_in(gpus_each(s)) if known and view.allow is not None else ""),
        Fact("observed", observed_line(s)),
        Fact("assumed", assumed_line(s, view.assumed, () if ranges is None else [part.path for part in ranges.parts])),
        Fact("measure", "" if ranges is None else swing_line(ranges) or ""),
        explained("run", f"{length}; {counted_words(view.warmups, len(view.steps))}"),
        explained("transport", units.sentence(transport) if transport else ""),
        explained("why", words.binds(binding)),
        explained("drafts", engine_words(s) if speculation_of(s) is not None else ""),
        explained("sides", side_words(s, of[BUSY].mean) if s.engine.disaggregation else ""),
        tone="unsure" if ranges is not None and ranges.wide else "good",
    )


def warm_up(view: RunView) -> Document:
    """What a terminal shows of a run that was cut off in its warm-up: the steps as they were, no metric."""
    return Document(
        "fleetsim simulate",
        facts(""),
        (
            Section(f"where the seconds went ({time_legend(view.steps)})", (time_split(view.steps),)),
            Section("accuracy", (view.profile.accuracy,)),
        ),
    )


def simulate_document(
    scenario: Scenario,
    replications: int,
    profile: EngineSource,
    warnings: Sequence[str],
    metrics: Mapping[str, Any] | None = None,
    values: Sequence[Mapping[str, Any]] = (),
    shown: RunView | None = None,
    advice: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The document of `fleetsim simulate --json`; `metrics` nested, with Estimate leaves, `values` flat, per run.

    shown: what is told of a run that is past its warm-up.
    """
    told: dict[str, Any] = {}
    if shown is not None:
        told = {
            "advice": advice,
            **said(run_told(shown)),
            "ranges": shown.ranges and as_dict(shown.ranges),
            "change": shown.change and as_dict(shown.change),
        }
    return {
        **head("simulate", scenario),
        **told,
        "replications": replications,
        "metrics": metrics or {},
        "values": [dict(run) for run in values],
        "sync_times": as_dict(sync_times(scenario)),
        "profile": as_dict(profile),
        "warnings": list(warnings),
    }


_BAR_WIDTH, _SPARK_WIDTH = 40, 24
_MOST_STEPS = 12
# Column of the steps -> the character that its seconds are drawn with.
_DRAWN: Mapping[str, str] = {
    "wait_s": "·",
    "train_s": "█",
    "sync_block_s": "▒",
    "checkpoint_s": "c",
    "evaluation_s": "e",
    "switch_s": "s",
}


def time_legend(steps: NDArray[Any]) -> str:
    """Which character is what: "wait ·  train █  sync ▒", and what only some runs spend time on."""
    always = (("wait", "wait_s"), ("train", "train_s"), ("sync", "sync_block_s"))
    rare = (("checkpoint", "checkpoint_s"), ("evaluation", "evaluation_s"), ("switch", "switch_s"))
    return "  ".join(f"{name} {_DRAWN[column]}" for name, column in (*always, *(r for r in rare if steps[r[1]].any())))


def time_split(steps: NDArray[Any]) -> Table:
    """The trainer's cycle, step by step: waiting for samples, training, held by the sync."""
    whole = [float(s["end_s"] - s["start_s"]) for s in steps]
    longest, rows = max(whole, default=0.0), list[tuple[str, ...]]()
    for step, total in zip(steps, whole, strict=True):
        width = max(1, round(_BAR_WIDTH * total / longest)) if longest > 0 else 0
        drawn = bar([(float(step[column]), character) for column, character in _DRAWN.items()], width)
        seconds = (total, step["wait_s"], step["train_s"], step["sync_block_s"])
        rows.append((str(int(step["step"])), drawn, *(f"{x:.1f}" for x in seconds)))
    if len(rows) > _MOST_STEPS:
        rows[_MOST_STEPS // 2 : -_MOST_STEPS // 2] = [("...", "", "", "", "", "")]
    return Table("", ("step", "", "seconds", "wait", "train", "sync"), tuple(rows), left=2, numbered=True)


def queue(steps: NDArray[Any], staleness_steps: NDArray[Any], metrics: Mapping[str, Estimate]) -> Table:
    """Samples in the buffer over the run, and how old the trained samples were.

    staleness_steps: of every trained group."""
    depth, age = ([float(d) for d in steps[column]] for column in ("queue_depth", "oldest_age_steps"))
    counts = np.bincount(staleness_steps.astype(np.int64)) if len(staleness_steps) else np.zeros(1)
    mean, p99 = (units.number(metrics[f"staleness_steps.{of}"].mean) for of in ("mean", "p99"))
    drawn = (
        ("queue depth", depth, f"0 to {units.number(max(depth, default=0.0))} samples"),
        ("oldest sample", age, f"0 to {units.number(max(age, default=0.0))} steps"),
        ("staleness", counts.tolist(), f"0 to {len(counts) - 1} steps; mean {mean}, p99 {p99}"),
    )
    return Table("", ("", "", ""), tuple((name, sparkline(of, _SPARK_WIDTH), said) for name, of, said in drawn), left=3)


def waste(metrics: Mapping[str, Estimate]) -> tuple[Block, ...]:
    """Tokens generated for each one that was trained, where the others went, and how many long samples were lost."""
    shown = [name for name in WASTE if name in metrics and metrics[name].mean > 0]
    of = {"all": "tokens_per_trained_token", **{quantity(name).heading: name for name in shown}}
    rows = tuple((title, estimated(metrics[name], "number")) for title, name in of.items())
    lost, longest = (metrics[f"samples_lost.{of}"] for of in ("all", "longest_tenth"))
    return present(Table("", ("", ""), rows, left=2), lost_words(lost, longest))
