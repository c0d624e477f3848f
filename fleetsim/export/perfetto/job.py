"""Trainer, weight syncs and the queue between trainer and fleet, as tracks and counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.dataclass import dataclass
from fleetsim.export.perfetto.events import Events, TrackPoint, microseconds
from fleetsim.export.perfetto.window import looks_in
from fleetsim.sim import timeline
from fleetsim.sim.records import TRAIN, TRAINER_DOES, Records

# What the trainer does (TRAINER_DOES), as its slices are called.
DOES = {
    "wait": "wait for samples",
    "train": "train",
    "switch": "GPUs change hands",
    "checkpoint": "checkpoint",
    "sync": "held by weight sync",
}


@dataclass(frozen=True, slots=True)
class TrainingStarts:
    """Where each step's training begins, part by part: seconds, and the point for flows."""

    begins: Mapping[int, Sequence[tuple[float, TrackPoint]]]

    def trains(self, step: int, taken_s: float) -> TrackPoint | None:
        """Where the part of a batch that was taken at this moment is trained; None where that is not shown."""
        at = (point for begin, point in self.begins.get(step, ()) if microseconds(begin) >= microseconds(taken_s))
        return next(at, None)


def draw_trainer(events: Events, records: Records, window: tuple[float, float]) -> TrainingStarts:
    """A slice a step, with what the trainer does inside."""
    track = events.track(events.process("trainer"), "steps")
    for row in _steps_in(records, window):
        args = {
            "step": int(row["step"]),
            "samples": int(row["samples"]),
            "trained tokens": int(row["tokens"]),
            "weight version": int(row["version"]),
            "wait_s": float(row["wait_s"]),
            "train_s": float(row["train_s"]),
            "held_by_sync_s": float(row["sync_block_s"]),
        }
        start, end = max(row["start_s"], window[0]), min(row["end_s"], window[1])
        events.slice(track, f"step {row['step']}", start, end, args)
    trains: dict[int, list[tuple[float, TrackPoint]]] = {}
    for span in timeline.trainer_spans(records, *window):
        args = {"step": int(span["step"])}
        drawn = events.slice(track, DOES[TRAINER_DOES[span["does"]]], span["start_s"], span["end_s"], args)
        if drawn is not None and span["does"] == TRAIN:
            trains.setdefault(int(span["step"]), []).append((float(span["start_s"]), drawn))
    return TrainingStarts(trains)


def draw_syncs(events: Events, records: Records, window: tuple[float, float]) -> None:
    """A slice a publication, from its trigger to its end, and the pause inside. Overlapping ones lie in lanes."""
    process = events.process("weight sync")
    syncs = timeline.sync_spans(records, *window)
    syncs = syncs[np.argsort(syncs["trigger_s"], kind="stable")]
    starts, ends = np.maximum(syncs["trigger_s"], window[0]), np.minimum(syncs["end_s"], window[1])
    tracks = events.tracks(process, "publications", zip(starts, ends, strict=True), first="publications")
    for row, start, end, track in zip(syncs, starts, ends, tracks, strict=True):
        args = {
            "weight version": int(row["version"]),
            "after step": int(row["step"]),
            "optimizer steps contained": float(row["updates"]),
            "samples in flight": int(row["in_flight"]),
            "groups discarded": int(row["discarded_groups"]),
        }
        events.slice(track, f"version {row['version']}", start, end, args)
        events.slice(track, "pause", max(row["pause_start_s"], start), end, {"weight version": int(row["version"])})


def draw_queue(events: Events, records: Records, window: tuple[float, float]) -> None:
    """Counters: samples in the buffer and on all instances, and each batch's staleness when it was complete."""
    process = events.process("queue")
    for row in timeline.queue_depth(records, *window):
        events.counter(process, "queue depth", row["time_s"], {"samples": int(row["samples"])})
    for row in timeline.staleness(records, *window):
        for name in ("mean", "most"):  # counters of their own: a viewer stacks the values of one
            events.counter(process, f"staleness ({name})", row["time_s"], {"steps": float(row[name])})
    looks = looks_in(records, window)
    times, where = np.unique(looks["time_s"], return_inverse=True)
    held = np.bincount(where, looks["running"] + looks["waiting"], len(times))
    for at_s, samples in zip(times, held, strict=True):
        events.counter(process, "on the instances", at_s, {"samples": int(samples)})


def _steps_in(records: Records, window: tuple[float, float]) -> NDArray[Any]:
    steps = records.steps
    out: NDArray[Any] = steps[(steps["end_s"] > window[0]) & (steps["start_s"] < window[1])]
    return out
