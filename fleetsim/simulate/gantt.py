"""Trainer, weight sync and instances over a few steps of a run, as a Gantt chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.sim import timeline
from fleetsim.sim.records import TRAINER_DOES, Records
from fleetsim.sim.window import window_of
from fleetsim.tell.charts.axes import ChartAxis
from fleetsim.tell.charts.bounded import MERGED, PARTS, clipped, merged, spread
from fleetsim.tell.charts.chart import Chart, MarkLook, Span, Spans

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
    paused = LENT if records.scenario.fleet.placement == "colocated" else HELD
    rows = tuple(tuple(_instance(spans[spans["instance"] == i], paused)) for i in picked)
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


def _instance(spans: NDArray[Any], paused: str) -> list[Span]:
    """paused: the kind of a pause; colocated, an instance rests while its GPUs train."""
    kinds = {**_INSTANCE, "paused": paused}
    names = [timeline.ACCOUNTS[a] for a in spans["account"]]
    return [
        Span(kinds[name], float(row["start_s"]), float(row["end_s"]))
        for name, row in zip(names, spans, strict=True)
        if name in kinds
    ]


def _sync(records: Records, start: float, end: float) -> list[Span]:
    """Publishing and pausing of each sync; where one begins before the last has ended, its begin is not drawn.

    A rolling sync holds one instance after the other: as a whole its weights are under way.
    """
    held = HELD if records.scenario.sync.scope == "global" else PUBLISH
    out: list[Span] = []
    until = start
    for row in timeline.sync_spans(records, start, end):
        for kind, a, b in (
            (PUBLISH, float(row["trigger_s"]), float(row["pause_start_s"])),
            (held, float(row["pause_start_s"]), float(row["end_s"])),
        ):
            begin, stop = max(a, until), min(b, end)
            if stop > begin:
                out.append(Span(kind, begin, stop))
                until = stop
    return out
