"""Pictures of one simulated run: where its seconds go, its queue, its staleness, its waste, its lengths."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fleetsim import units
from fleetsim.config.workload import longest_length
from fleetsim.estimates import Estimate
from fleetsim.job.words import lost_words
from fleetsim.quantities import WASTE, quantity
from fleetsim.sim import timeline
from fleetsim.sim.metrics import lengths_of
from fleetsim.sim.records import Records
from fleetsim.sim.window import window_of
from fleetsim.simulate.gantt import gantt
from fleetsim.tell.charts.chart import Chart, Mark, MarkLook
from fleetsim.tell.charts.kinds import Layer, StepSeries, cause_bars, histogram_chart, stacked_bars, step_chart
from fleetsim.tell.document import Section, pair, present

COUNTED = "counted from here"
# Column of the steps, what it is called, how it is drawn; the first three are always there.
_SECONDS = (
    ("train_s", "train", MarkLook("accent")),
    ("wait_s", "wait for samples", MarkLook("quiet", pattern=".")),
    ("sync_block_s", "held by weight sync", MarkLook("second", pattern="/")),
    ("switch_s", "GPUs change hands", MarkLook("quiet", pattern="\\")),
    ("checkpoint_s", "checkpoint", MarkLook("third", pattern="x")),
    ("evaluation_s", "evaluation", MarkLook("shade-6", pattern="/")),
)


def over_time(
    records: Records,
    metrics: Mapping[str, Estimate],
    title: str,
    told: str = "",
    cap: int | None = None,
    folded: bool = False,
) -> Section:
    """One run in pictures. metrics: flat, over all replications. told: a paragraph before them. cap: as advised.

    Raises ValueError for a run whose activity was not recorded.
    """
    waste = waste_chart(metrics)
    return Section(
        title,
        present(
            told,
            gantt(records),
            seconds_chart(records),
            pair(queue_chart(records, cap), staleness_chart(records, metrics)),
            pair(lengths_chart(records), waste),
            waste_words(metrics) if waste is None else None,
        ),
        on=("page",),
        folded=folded,
    )


def seconds_chart(records: Records) -> Chart:
    """The trainer's cycle, step by step."""
    steps, window = records.steps, window_of(records)
    layers = [
        Layer(name, steps[column], look)
        for i, (column, name, look) in enumerate(_SECONDS)
        if i < 2 or bool(steps[column].any())
    ]
    counted = window.steps
    shares = ", ".join(
        f"{name} {units.share(float(counted[column].sum()) / window.span_s)}"
        for column, name, _ in _SECONDS
        if counted[column].any()
    )
    words = (
        f"The trainer's cycle, step by step, in the first replication. From step {window.first} on, where counting "
        f"begins: {shares} of the time, {units.seconds(window.step_s)} a step."
    )
    begins = Mark(window.first - 0.5, COUNTED) if window.first else None
    return stacked_bars(
        "seconds", "Where the seconds go", words, layers, x_title="optimizer step", y_title="seconds", begins=begins
    )


def queue_chart(records: Records, cap: int | None = None) -> Chart:
    """Samples in the buffer over the whole run; cap: one that is advised, drawn as a line."""
    depth = timeline.queue_depth(records)
    window = window_of(records)
    batch = records.scenario.trainer.batch_samples
    limits = []
    if cap is not None:
        limits.append(Mark(cap, f"advised cap {cap:,}"))
    elif records.scenario.buffer.capacity_samples is not None:
        capacity = records.scenario.buffer.capacity_samples
        limits.append(Mark(capacity, f"capacity {capacity:,}"))
    if not limits or limits[0].at != batch:
        limits.append(Mark(batch, f"one batch {batch:,}"))
    top = int(depth["samples"].max())
    words = (
        f"Finished samples that wait for the trainer, those before a full buffer included: at most {top:,}, where "
        f"one batch is {batch:,}. It falls when a batch is taken."
    )
    end = timeline.end_of(records)
    times, values = np.append(depth["time_s"], end), np.append(depth["samples"], depth["samples"][-1])
    return step_chart(
        "queue",
        "Queue depth",
        words,
        [StepSeries(quantity("queue_depth").title, times, values)],
        x_title="seconds of the run",
        y_title="samples",
        limits=limits,
        begins=Mark(window.start_s, COUNTED) if window.first else None,
    )


def staleness_chart(records: Records, metrics: Mapping[str, Estimate]) -> Chart:
    """How old the samples of each step's batch were."""
    rows = timeline.staleness(records)
    window = window_of(records)
    mean, p99 = metrics["staleness_steps.mean"].mean, metrics["staleness_steps.p99"].mean
    words = (
        "Optimizer steps between the weights that a sample began under and the step that trained it, for each batch: "
        f"the oldest sample and the mean. Over all of them the mean is {units.number(mean)}, the 99th percentile "
        f"{units.plural(p99, 'step')}."
    )
    return step_chart(
        "staleness",
        "Staleness",
        words,
        [
            StepSeries("oldest of the batch", rows["time_s"], rows["most"]),
            StepSeries("mean of the batch", rows["time_s"], rows["mean"]),
        ],
        x_title="seconds of the run",
        y_title="optimizer steps",
        begins=Mark(window.start_s, COUNTED) if window.first else None,
    )


def waste_chart(metrics: Mapping[str, Estimate]) -> Chart | None:
    """Tokens made in vain for each one that was trained, by cause; None where there are none."""
    causes = [(quantity(name).heading, metrics[name]) for name in WASTE if metrics[name].mean > 0]
    if not causes:
        return None
    causes.sort(key=lambda cause: -cause[1].mean)
    return cause_bars(
        "waste",
        "Waste by cause",
        waste_words(metrics),
        causes,
        x_title="% of the trained tokens",
        how="share",
    )


def waste_words(metrics: Mapping[str, Estimate]) -> str:
    """Tokens generated for each trained one, and whether long samples are lost."""
    made = metrics["tokens_per_trained_token"].mean
    lost, longest = (metrics[f"samples_lost.{of}"] for of in ("all", "longest_tenth"))
    return f"Tokens generated per trained token: {units.number(made)}. {lost_words(lost, longest)}".strip()


def lengths_chart(records: Records) -> Chart | None:
    """Output lengths of the samples sent and of those trained; None where all have the same one."""
    sent, trained = lengths_of(records, window_of(records))
    if len(sent) == 0 or len(trained) == 0 or (sent.min() == sent.max() == trained.min() == trained.max()):
        return None
    cap = longest_length(records.scenario.workload.output_tokens)
    words = (
        f"Output tokens of the samples sent and of those trained after warm-up. Sent: mean {sent.mean():,.0f}, median "
        f"{np.median(sent):,.0f}, 99th percentile {np.quantile(sent, 0.99):,.0f}; trained: mean {trained.mean():,.0f}."
    )
    if cap is not None:
        words += f" {units.share(float((sent >= cap).mean()))} of those sent reach the cap of {cap:,.0f}."
    return histogram_chart(
        "lengths",
        "Length of the responses",
        words,
        {"sent": sent, "trained": trained},
        x_title="output tokens",
        caps=[] if cap is None else [Mark(cap, f"cap {cap:,.0f}")],
    )
