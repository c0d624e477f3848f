"""The terminal view of a simulated run: its metrics, where each second of a step went, the queue, the waste."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.text import Text

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import G_TRAINED
from fleetsim.engine.transport import sync_times, sync_words
from fleetsim.estimates import Estimate
from fleetsim.job import words
from fleetsim.job.assumptions import Assumption, assumed_values, short
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.words import lost_words
from fleetsim.quantities import WASTE, quantity
from fleetsim.sim.records import Records
from fleetsim.simulate.counted_steps import counted_words
from fleetsim.tell.characters import bar, sparkline
from fleetsim.tell.terminal import grid, section, with_interval

_BAR_WIDTH, _SPARK_WIDTH = 40, 24
_MOST_STEPS = 12
_MOST_DEFAULTS = 6
WAIT, TRAIN, SYNC, CHECKPOINT, SWITCH = "·", "█", "▒", "c", "s"

# The first block of the view, in reading order.
_MAIN = (
    "step_s",
    "trainer_idle_fraction",
    "sync_fraction",
    "trainer_idle_with_sync_fraction",
    "rollout_idle_fraction",
    "rollout_utilization",
    "switch_fraction",
    "lent_fraction",
    "generated_tok_s",
    "instance_tok_s",
    "goodput",
    "cost_per_step",
    "kv_use",
    "preemptions",
)
# Of use to some placements only: shown when they are anything.
RARE = ("switch_fraction", "lent_fraction")


@dataclass(frozen=True, slots=True)
class RunView:
    """What the view shows.

    metrics: flat, dotted names. steps, staleness_steps: of the first replication. profile: what the engine's speed
    rests on. warmups: steps left out of the metrics, by replication. assumed: defaults and what the scenario calls
    assumed.
    """

    scenario: Scenario
    metrics: Mapping[str, Estimate]
    binding: str
    replications: int
    steps: NDArray[Any]
    staleness_steps: NDArray[Any]
    profile: EngineSource
    warmups: tuple[int, ...]
    assumed: tuple[Assumption, ...]


def trained_staleness(records: Records) -> NDArray[Any]:
    """Staleness in steps of every trained group of a run: the step that trained it - updates in its weights."""
    groups = records.groups[records.groups["status"] == G_TRAINED]
    age: NDArray[Any] = groups["trained_step"] - records.updates[groups["version"]]
    return age


def run_report(view: RunView) -> Group:
    """Everything that `fleetsim simulate` prints on stdout."""
    blocks: list[RenderableType] = [opening(view), section("metrics", metrics(view))]
    if view.scenario.published is not None:
        blocks.append(section("predicted and published", published(view)))
    blocks += [
        section(f"where the seconds go (wait {WAIT}  train {TRAIN}  sync {SYNC}{_others(view)})", time_split(view)),
        section("queue by step, staleness of the trained samples by age", queue(view)),
        section(quantity("tokens_per_trained_token").title, waste(view)),
        section("accuracy", Text(words.profile(view.profile))),
    ]
    return Group(*blocks)


def warm_up_report(view: RunView) -> Group:
    """What `fleetsim simulate` prints of a run that was cut off in its warm-up: the steps as they were, no metric."""
    return Group(
        section(f"where the seconds went (wait {WAIT}  train {TRAIN}  sync {SYNC}{_others(view)})", time_split(view)),
        section("accuracy", Text(words.profile(view.profile))),
    )


def _others(view: RunView) -> str:
    """The legend of what only some runs spend time on."""
    rare = ((f"checkpoint {CHECKPOINT}", "checkpoint_s"), (f"switch {SWITCH}", "switch_s"))
    return "".join(f"  {legend}" for legend, column in rare if view.steps[column].any())


def opening(view: RunView) -> Group:
    """What ran, what its transport made of a weight sync, what nobody measured, and what binds."""
    s = view.scenario
    runs = units.plural(view.replications, "replication")
    what = (
        f"{s.name}: {units.plural(s.fleet.instances, 'instance')} ({words.instance_words(s)}), "
        f"{units.plural(s.trainer.gpus, 'trainer GPU')}, {s.trainer.batch_samples:,} samples per step"
    )
    transport = sync_words(sync_times(s))
    assumed = ", ".join(f"{path} = {short(value)}" for path, value in assumed_values(s).items())
    return Group(
        Text(what, style="bold"),
        Text(f"{units.plural(s.run.steps, 'step')}, {runs}, seed {s.run.seed}"),
        Text(counted_words(s, view.warmups)),
        *([Text(units.capital(transport))] if transport else []),
        *([Text(f"Assumed, not measured: {assumed}")] if assumed else []),
        Text(words.as_settings(words.binds(view.binding, s.admission.law, s.sync.scope, s.fleet.in_flight_unit))),
        *([Text(defaults)] if (defaults := defaults_words(view)) else []),
    )


def defaults_words(view: RunView) -> str:
    """ "9 values are defaults: engine.dtype, ... and 3 more"; without those that the scenario itself calls assumed."""
    called = assumed_values(view.scenario)
    paths = [a.path for a in view.assumed if a.path not in called]
    if not paths:
        return ""
    more = len(paths) - _MOST_DEFAULTS
    shown = ", ".join(paths[:_MOST_DEFAULTS]) + (f" and {more} more (--html names them)" if more > 0 else "")
    return f"{units.plural(len(paths), 'value')} {'is a default' if len(paths) == 1 else 'are defaults'}: {shown}"


def metrics(view: RunView) -> RenderableType:
    """The main metrics, with intervals where the run was replicated."""
    table = grid("", "", align=("left", "left"))
    for name in _MAIN:
        if name in view.metrics and not (name in RARE and view.metrics[name].mean == 0.0):
            q = quantity(name)
            label = f"{q.title}, {_prices(view.scenario)}" if name == "cost_per_step" else q.title
            table.add_row(label, with_interval(view.metrics[name], q.unit))
    return table


def _prices(s: Scenario) -> str:
    """What a cost rests on: "at $3 a GPU-hour", or the prices of both pools."""
    rollout, trainer = s.cost.instance_price_usd_per_gpu_h, s.cost.trainer_price_usd_per_gpu_h
    if rollout == trainer:
        return f"at {units.price(rollout)} a GPU-hour"
    return f"at {units.price(rollout)} a rollout and {units.price(trainer)} a trainer GPU-hour"


def published(view: RunView) -> RenderableType:
    """The published outcome beside the prediction, with the ratio."""
    p = view.scenario.published
    assert p is not None
    table = grid("", "predicted", "published", "ratio", align=("left", "right", "right", "right"))
    if p.step_s is not None:
        predicted = view.metrics["step_s"].mean
        table.add_row("step", units.seconds(predicted), units.seconds(p.step_s), f"{predicted / p.step_s:.2f}")
    if p.tok_s_per_gpu is not None:
        s = view.scenario
        gpus = s.fleet.instances * s.engine.tp
        predicted = view.metrics["generated_tok_s"].mean / gpus
        table.add_row(
            "tok/s per rollout GPU",
            units.number(predicted),
            units.number(p.tok_s_per_gpu),
            f"{predicted / p.tok_s_per_gpu:.2f}",
        )
    if p.bottleneck is not None:
        table.add_row("what binds", view.binding, p.bottleneck, "")
    return Group(table, Text(p.note, style="dim")) if p.note else table


def time_split(view: RunView) -> RenderableType:
    """The trainer's cycle, step by step: waiting for samples, training, held by the sync."""
    table = grid("step", "", "seconds", "wait", "train", "sync", align=("right", "left", *("right",) * 4))
    steps = view.steps
    shown = (
        range(len(steps))
        if len(steps) <= _MOST_STEPS
        else [*range(_MOST_STEPS // 2), *range(len(steps) - _MOST_STEPS // 2, len(steps))]
    )
    longest = max((float(s["end_s"] - s["start_s"]) for s in steps), default=0.0)
    last = -1
    for i in shown:
        row = steps[i]
        if i != last + 1:
            table.add_row("...", "", "", "", "", "")
        last = i
        parts = [
            (float(row["wait_s"]), WAIT),
            (float(row["train_s"]), TRAIN),
            (float(row["sync_block_s"]), SYNC),
            (float(row["checkpoint_s"]), CHECKPOINT),
            (float(row["switch_s"]), SWITCH),
        ]
        total = float(row["end_s"] - row["start_s"])
        width = max(1, round(_BAR_WIDTH * total / longest)) if longest > 0 else 0
        table.add_row(
            str(int(row["step"])),
            bar(parts, width),
            *(f"{x:.1f}" for x in (total, row["wait_s"], row["train_s"], row["sync_block_s"])),
        )
    return table


def queue(view: RunView) -> RenderableType:
    """Samples in the buffer over the run, and how old the trained samples were."""
    depth = [float(d) for d in view.steps["queue_depth"]]
    age = [float(d) for d in view.steps["oldest_age_steps"]]
    m = view.metrics
    table = grid("", "", "", align=("left", "left", "left"))
    table.add_row(
        "queue depth", sparkline(depth, _SPARK_WIDTH), f"0 to {units.number(max(depth, default=0.0))} samples"
    )
    table.add_row("oldest sample", sparkline(age, _SPARK_WIDTH), f"0 to {units.number(max(age, default=0.0))} steps")
    counts = np.bincount(view.staleness_steps.astype(np.int64)) if len(view.staleness_steps) else np.zeros(1)
    table.add_row(
        "staleness",
        sparkline([float(c) for c in counts], _SPARK_WIDTH),
        f"0 to {len(counts) - 1} steps; mean {units.number(m['staleness_steps.mean'].mean)}, "
        f"p99 {units.number(m['staleness_steps.p99'].mean)}",
    )
    return table


def waste(view: RunView) -> RenderableType:
    """Tokens generated for each one that was trained, where the others went, and how many long samples were lost."""
    table = grid("", "", align=("left", "left"))
    table.add_row("all", with_interval(view.metrics["tokens_per_trained_token"], "number"))
    for name in WASTE:
        if name in view.metrics and view.metrics[name].mean > 0:
            table.add_row(quantity(name).heading, with_interval(view.metrics[name], "number"))
    lost, longest = (view.metrics[f"samples_lost.{of}"] for of in ("all", "longest_tenth"))
    return Group(table, Text(lost_words(lost, longest)))
