"""Tracks of a trace, in Chrome's trace event format: the steps shown; trainer, syncs and queue drawn on them."""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.faces import Text
from fleetsim.sim import timeline
from fleetsim.sim.records import TRAIN, TRAINER_DOES, Records
from fleetsim.sim.window import warmup_steps

# --- Chrome's trace event format: slices, counters and flows on named tracks, as both viewers read them.
# Times are whole microseconds. Both ends of a slice are rounded, never its length, so slices that touch still touch and
# one inside another stays inside: on one track of this format slices must nest. A flow binds to whatever slice is there
# at its moment; where one slice ends and another begins the viewers do not agree which of them that is, so a
# flow goes through a point just behind the begin.

Args = Mapping[str, str | int | float | bool]
# In the file, of one moment: who contains comes before who is contained, and a flow after the slices that it binds to.
_SLICE, _COUNTER, _FLOW = range(3)


def microseconds(seconds: float) -> int:
    """The format's unit, whole."""
    return round(seconds * 1e6)


class Track(Struct, frozen=True):
    """A row of slices: a thread of a process, in the format's words."""

    process: int
    thread: int


class TrackPoint(Struct, frozen=True):
    """A moment on a track, in microseconds, where a slice is."""

    track: Track
    ts: int


class Events(Struct):
    """The events of a trace in the making. names: of processes and threads, in the order in which they are shown."""

    names: list[dict[str, Any]] = field(default_factory=list)
    rows: list[tuple[tuple[int, int, int], dict[str, Any]]] = field(default_factory=list)
    threads: dict[int, int] = field(default_factory=dict)

    def process(self, name: str) -> int:
        """A group of tracks, shown after those before it."""
        pid = len(self.threads) + 1
        self.threads[pid] = 0
        self._name("process_name", pid, 0, {"name": name})
        self._name("process_sort_index", pid, 0, {"sort_index": pid})
        return pid

    def track(self, process: int, name: str) -> Track:
        """A row of slices in a process, shown below those before it."""
        self.threads[process] += 1
        thread = process * 1000 + self.threads[process]  # a thread's number is its own in the whole trace
        self._name("thread_name", process, thread, {"name": name})
        self._name("thread_sort_index", process, thread, {"sort_index": self.threads[process]})
        return Track(process, thread)

    def tracks(self, process: int, name: str, spans: Iterable[tuple[float, float]], first: str = "") -> Iterator[Track]:
        """A track for each span, in the order of their starts: what overlaps stands on `NAME 1`, `NAME 2` (first: what
        the first one is called instead)."""
        made: list[Track] = []
        for lane in lanes(spans):
            if lane == len(made):
                made.append(self.track(process, first if first and lane == 0 else f"{name} {lane + 1}"))
            yield made[lane]

    def slice(self, track: Track, name: str, start_s: float, end_s: float, args: Args) -> TrackPoint | None:
        """Something that lasted from start to end; None, and nothing, where that is no microsecond.

        Returns the point through which a flow goes to bind to it.
        """
        start, length = microseconds(start_s), microseconds(end_s) - microseconds(start_s)
        if length <= 0:
            return None
        self._add(start, _SLICE, -length, {"ph": "X", "name": name, "dur": length, **_at(track), "args": dict(args)})
        return TrackPoint(track, start + (length > 1))

    def counter(self, process: int, name: str, at_s: float, values: Args) -> None:
        """From this moment on the counter has these values, one line each."""
        at = microseconds(at_s)
        self._add(at, _COUNTER, 0, {"ph": "C", "name": name, "pid": process, "tid": 0, "args": dict(values)})

    def flow(self, category: str, name: str, number: int, points: Iterable[TrackPoint]) -> bool:
        """An arrow through the slices at these points; False, and nothing, for fewer than two of them."""
        through = list(points)
        if len(through) < 2:
            return False
        for k, point in enumerate(through):
            phase = "s" if k == 0 else "f" if k == len(through) - 1 else "t"
            event = {"ph": phase, "cat": category, "name": name, "id": number, **_at(point.track)}
            if phase == "f":
                event["bp"] = "e"  # it ends in the slice around this moment, not in the next one
            self._add(point.ts, _FLOW, k, event)
        return True

    def lines(self) -> Iterator[str]:
        """All events as JSON, names first, then in the order of time."""
        for event in self.names:
            yield _text(event)
        for (ts, _, _), event in sorted(self.rows, key=lambda row: row[0]):
            yield _text({"ts": ts, **event})

    def __len__(self) -> int:
        return len(self.names) + len(self.rows)

    def _name(self, what: str, process: int, thread: int, args: Args) -> None:
        self.names.append({"ph": "M", "name": what, "pid": process, "tid": thread, "args": dict(args)})

    def _add(self, ts: int, kind: int, order: int, event: dict[str, Any]) -> None:
        self.rows.append(((ts, kind, order), event))


def _at(track: Track) -> dict[str, int]:
    return {"pid": track.process, "tid": track.thread}


def _text(event: Mapping[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def lanes(spans: Iterable[tuple[float, float]]) -> list[int]:
    """A lane for each span, in the order of their starts, so that no two of a lane overlap; as few as can be.

    Raises ValueError for spans that are not in the order of their starts.
    """
    free: list[int] = []  # lanes that are free again, lowest first
    taken: list[tuple[int, int]] = []  # end, lane
    out, most, last = [], 0, None
    for start_s, end_s in spans:
        start, end = microseconds(start_s), microseconds(end_s)
        if last is not None and start < last:
            raise ValueError("spans must come in the order of their starts")
        last = start
        while taken and taken[0][0] <= start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        lane = heapq.heappop(free) if free else most
        most = max(most, lane + 1)
        heapq.heappush(taken, (end, lane))
        out.append(lane)
    return out


# --- Which steps of a run a trace shows: so many after warm-up, some that were named, or all.

STEPS = Text("--perfetto-steps", "steps")
DEFAULT_STEPS = 20


class StepChoice(Struct, frozen=True):
    """count: so many steps, from `first` on, or after warm-up where that is None; None: all there are.

    events: begin before an event of the warm-up, if there is one: what it does is what the trace is for.
    """

    first: int | None = None
    count: int | None = DEFAULT_STEPS
    events: bool = False

    def check(self, n: int) -> None:
        """Raises InputError where a run of n steps has none of them."""
        if self.first is not None and self.first >= n:
            rule = f"the run has {n} steps, 0 to {n - 1}"
            raise InputError([Problem(STEPS, self.first, rule, "name steps that it has")])

    def of(self, records: Records) -> tuple[int, int]:
        """First and last step of the run that are meant, counted from 0. Raises InputError where it has none such."""
        n = len(records.steps)
        self.check(n)
        first = self.first
        if first is None:
            lasts = records.steps["end_s"] - records.steps["start_s"]
            first = 0 if self.count is None else warmup_steps(records.scenario, lasts)
            if self.events:
                # The last of them that the warm-up hides; one at step 0 is how the run begins.
                early = [e.step for e in records.scenario.run.events if 0 < e.step < first]
                first = max(early) - 1 if early else first
        last = n - 1 if self.count is None else min(n - 1, first + self.count - 1)
        return first, last


def parse_steps(text: str | None) -> StepChoice:
    """What --perfetto-steps says: "20" (after warm-up), "0:9" (both included) or "all". Raises InputError."""
    if text is None:
        return StepChoice(events=True)
    if text == "all":
        return StepChoice(None, None)
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text)
    if found and found[2] is None and int(found[1]) > 0:
        return StepChoice(None, int(found[1]))
    if found and found[2] is not None and int(found[1]) <= int(found[2]):
        return StepChoice(int(found[1]), int(found[2]) - int(found[1]) + 1)
    rule = "must be a number of steps, FIRST:LAST or all"
    raise InputError([Problem(STEPS, text, rule, "for example 20, or 0:9 for the first ten")])


def looks_in(records: Records, window: tuple[float, float]) -> NDArray[Any]:
    """What the scrapes in the window saw, an instance a row (SCRAPE)."""
    rows = records.scrapes
    out: NDArray[Any] = rows[(rows["time_s"] >= window[0]) & (rows["time_s"] <= window[1])]
    return out


# --- Trainer, weight syncs and the queue between trainer and fleet, as tracks and counters.

# What the trainer does (TRAINER_DOES), as its slices are called.
DOES = {
    "wait": "wait for samples",
    "train": "train",
    "switch": "GPUs change hands",
    "checkpoint": "checkpoint",
    "sync": "held by weight sync",
}


class TrainingStarts(Struct, frozen=True):
    """Where each step's training begins, part by part: seconds, and the point for flows."""

    begins: Mapping[int, Sequence[tuple[float, TrackPoint]]]

    def trains(self, step: int, taken_s: float) -> TrackPoint | None:
        """Where the part of a batch that was taken at this moment is trained; None where that is not shown."""
        at = (point for begin, point in self.begins.get(step, ()) if microseconds(begin) >= microseconds(taken_s))
        return next(at, None)


def draw_trainer(events: Events, records: Records, window: tuple[float, float]) -> TrainingStarts:
    """A slice a step, with what the trainer does inside."""
    track = events.track(events.process("trainer"), "steps")
    steps = records.steps
    for row in steps[(steps["end_s"] > window[0]) & (steps["start_s"] < window[1])]:
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
