"""Chrome's trace event format: slices, counters and flows on named tracks, as both viewers read them.

Times are whole microseconds. Both ends of a slice are rounded, never its length, so slices that touch still touch and
one inside another stays inside: on one track of this format slices must nest. A flow binds to whatever slice is there
at its moment; where one slice ends and another begins the viewers do not agree which of them that is, so a
flow goes through a point just behind the begin.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from fleetsim.dataclass import dataclass

Args = Mapping[str, str | int | float | bool]
# In the file, of one moment: who contains comes before who is contained, and a flow after the slices that it binds to.
_SLICE, _COUNTER, _FLOW = range(3)


def microseconds(seconds: float) -> int:
    """The format's unit, whole."""
    return round(seconds * 1e6)


@dataclass(frozen=True, slots=True)
class Track:
    """A row of slices: a thread of a process, in the format's words."""

    process: int
    thread: int


@dataclass(frozen=True, slots=True)
class TrackPoint:
    """A moment on a track, in microseconds, where a slice is."""

    track: Track
    ts: int


@dataclass(slots=True)
class Events:
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
