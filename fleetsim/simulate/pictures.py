"""Pictures of one simulated run: where its seconds go, its queue, its staleness, its waste, its lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.config.workload import longest_length
from fleetsim.estimates import Estimate
from fleetsim.job.words import lost_words
from fleetsim.quantities import WASTE, quantity
from fleetsim.sim import timeline
from fleetsim.sim.metrics import lengths_of
from fleetsim.sim.records import TRAINER_DOES, Records
from fleetsim.sim.window import window_of
from fleetsim.tell.charts.axes import ChartAxis
from fleetsim.tell.charts.bounded import MERGED, PARTS, clipped, merged, spread
from fleetsim.tell.charts.chart import Chart, Mark, MarkLook, Span, Spans
from fleetsim.tell.charts.kinds import Layer, StepSeries, cause_bars, histogram_chart, stacked_bars, step_chart
from fleetsim.tell.document import Section, pair, present

# --- Trainer, weight sync and instances over a few steps of a run, as a Gantt chart.

STEPS = 4
WORK, IDLE, HELD, PUBLISH = "work", "idle", "held", "publish"
SWITCH, CHECKPOINT, EVALUATION, LENT, DOWN = "switch", "checkpoint", "evaluation", "lent", "down"
# Kinds differ in what they fill of a row, too.
KINDS = {
    WORK: ("training, generating", MarkLook("accent")),
    IDLE: ("idle (trainer: waits for samples)", MarkLook("quiet", lanes=((0.42, 0.58),))),
    HELD: ("held by weight sync", MarkLook("second", lanes=((0.0, 0.38), (0.62, 1.0)))),
    PUBLISH: ("weights under way", MarkLook("third", lanes=((0.0, 0.5),))),
    SWITCH: ("GPUs change hands", MarkLook("quiet", lanes=((0.5, 1.0),))),
    CHECKPOINT: ("checkpoint", MarkLook("shade-6", lanes=((0.0, 0.2), (0.4, 0.6), (0.8, 1.0)))),
    EVALUATION: ("evaluation", MarkLook("shade-4", lanes=((0.25, 0.75),))),
    LENT: ("their GPUs are the trainer's", MarkLook("quiet", lanes=((0.0, 0.16),))),
    DOWN: ("down", MarkLook("bad", lanes=((0.0, 0.16), (0.84, 1.0)))),
}
_TRAINER = {
    "wait": IDLE,
    "train": WORK,
    "switch": SWITCH,
    "checkpoint": CHECKPOINT,
    "evaluation": EVALUATION,
    "sync": HELD,
}
# "off" is not drawn: those GPUs are not the fleet's then.
_INSTANCE = {"idle": IDLE, "busy": WORK, "down": DOWN}


class ShownSteps(Struct, frozen=True):
    """first, last: the steps that are shown, both included. instances: those with a row, of `of`."""

    first: int
    last: int
    start_s: float
    end_s: float
    instances: tuple[int, ...]
    of: int
    trainer: tuple[Span, ...]
    sync: tuple[Span, ...]
    rows: tuple[tuple[Span, ...], ...]


def shown_of(records: Records) -> ShownSteps:
    """STEPS steps after warm-up, or what there is of them, and at most `MOST_ROWS` instances.

    Raises ValueError for a run whose activity was not recorded.
    """
    first = min(window_of(records).first, len(records.steps) - 1)
    last = min(first + STEPS, len(records.steps)) - 1
    start, end = timeline.steps_window(records, first, last)
    spans = timeline.instance_spans(records, start, end)
    every = sorted({int(i) for i in spans["instance"]})
    picked = tuple(every[k] for k in spread(len(every)))
    trainer = tuple(
        Span(_TRAINER[TRAINER_DOES[row["does"]]], float(row["start_s"]), float(row["end_s"]))
        for row in timeline.trainer_spans(records, start, end)
    )
    # colocated, an instance rests while its GPUs train
    kinds = {**_INSTANCE, "paused": LENT if records.scenario.fleet.placement == "colocated" else HELD}
    drawn: dict[int, list[Span]] = {i: [] for i in picked}
    for row in spans:
        kind = kinds.get(timeline.ACCOUNTS[row["account"]])
        if kind is not None and int(row["instance"]) in drawn:
            drawn[int(row["instance"])].append(Span(kind, float(row["start_s"]), float(row["end_s"])))
    rows = tuple(map(tuple, drawn.values()))
    return ShownSteps(first, last, start, end, picked, len(every), trainer, tuple(_sync(records, start, end)), rows)


def gantt(records: Records, id: str = "gantt", name: str = "Who does what when") -> Chart:  # noqa: A002
    """The chart. Raises ValueError for a run whose activity was not recorded."""
    shown = shown_of(records)
    rows = [("trainer", shown.trainer), *([("sync", shown.sync)] if shown.sync else [])]
    rows += [(f"inst. {i}", spans) for i, spans in zip(shown.instances, shown.rows, strict=True)]
    ends = tuple(float(records.steps["end_s"][i]) for i in range(shown.first, shown.last))
    start, end = shown.start_s, shown.end_s
    drawn = tuple((label, merged(clipped(spans, start, end), (end - start) / PARTS)) for label, spans in rows)
    axis = ChartAxis("seconds of the run", start, end, grid=False)
    return Chart(id, name, gantt_words(shown), Spans(axis, drawn, KINDS, ends))


def gantt_words(shown: ShownSteps) -> str:
    """What the picture shows, with its figures."""
    length = shown.end_s - shown.start_s
    which = f"Step {shown.first}" if shown.first == shown.last else f"Steps {shown.first} to {shown.last}"
    said = [f"{which} of the first replication, {units.seconds(length)} (dotted lines: where a step ends)."]
    parts = [
        f"{verb} {units.share(share)}"
        for kind, verb in ((WORK, "trains"), (IDLE, "waits for samples"), (HELD, "is held by weight sync"))
        if (share := _share([shown.trainer], kind)) >= 0.0005
    ]
    work = units.share(_share(shown.rows, WORK)) if shown.rows else units.plural(0, "instance")
    said.append(f"Of that time the trainer {', '.join(parts)}; the instances shown work {work} of it.")
    if len(shown.instances) < shown.of:
        numbers = ", ".join(map(str, shown.instances[:3]))
        said.append(
            f"Shown are {len(shown.instances)} of {shown.of:,} instances, spread evenly over the fleet "
            f"({numbers}, ... {shown.instances[-1]})."
        )
    if any(sum(s.end - s.start for s in row) < length - 1e-6 for row in shown.rows):
        said.append("Where the row of an instance is empty, its GPUs are not the fleet's.")
    shortest = length / PARTS
    if any(len(merged(row, shortest)) < len(row) for row in (shown.trainer, shown.sync, *shown.rows)):
        said.append(MERGED)
    return " ".join(said)


def _share(rows: Sequence[Sequence[Span]], kind: str) -> float:
    """Share of a kind in the time that the rows cover."""
    spent = [(span.end - span.start, span.kind == kind) for row in rows for span in row]
    covered = sum(seconds for seconds, _ in spent)
    return sum(seconds for seconds, mine in spent if mine) / covered if covered > 0 else 0.0


def _sync(records: Records, start: float, end: float) -> list[Span]:
    """Publishing and pausing of each sync; where one begins before the last has ended, its begin is not drawn.

    A rolling sync holds one instance after the other: as a whole its weights are under way.
    """
    held = HELD if records.scenario.sync.scope == "global" else PUBLISH
    out: list[Span] = []
    until = start
    for row in timeline.sync_spans(records, start, end):
        for kind, a, b in ((PUBLISH, "trigger_s", "pause_start_s"), (held, "pause_start_s", "end_s")):
            begin, stop = max(float(row[a]), until), min(float(row[b]), end)
            if stop > begin:
                out.append(Span(kind, begin, stop))
                until = stop
    return out


# --- The other pictures of a run.

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
    limit = records.scenario.buffer.capacity_samples if cap is None else cap
    limits = [] if limit is None else [Mark(limit, f"{'capacity' if cap is None else 'advised cap'} {limit:,}")]
    if limit != batch:
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
        "waste", "Waste by cause", waste_words(metrics), causes, x_title="% of the trained tokens", how="share"
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
