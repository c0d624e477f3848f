"""TensorBoard event files: records of a length, its checksum, an `Event` and its checksum.

tensorflow/tensorboard 2.21: compat/proto/event.proto, summary.proto, tensor.proto. Its own reader takes 5 MB/s, because
it computes checksums in Python; records whose length cannot be say as well that a file is broken. A trainer writes the
same tags in the same order at every step, so that only the numbers differ: the events of one step are a pattern, bytes
that stay and the places of times, steps, values and checksums. As many steps as have it are read as one array.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Note
from fleetsim.history.step_logs.packed import RunLogTable, Scalars
from fleetsim.history.wandb import BYTES, FIXED32, FIXED64, VARINT, WireError, fields

Column = tuple["array[int]", "array[float]", "array[float]"]
Kept = dict[bytes, Column | None]

_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_LONGEST_PATTERN = 1 << 20  # bytes of a pattern
_CHECKSUM = 4
_FEW = 4  # steps that are compared first


class Plain(NamedTuple):
    """An event of one scalar. Where its time stands, its step (a number of 7 bits a byte, up to `step_end`), its
    value."""

    tag: bytes
    time: int
    step: int
    step_end: int
    value: int


class Repeated:
    """Reads plain events, many steps at once where they repeat. kept: tag -> its steps, values and unix seconds; None
    where it is not wanted."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._patterns: dict[bytes, _Pattern] = {}  # by the tag that a step begins with
        self._events: list[tuple[Plain, int]] = []  # of the step that is being read, each with its end
        self._begin = 0

    def forget(self) -> None:
        """Something else came between: the next event begins a step."""
        self._events.clear()

    def read(self, data: bytes, event: Plain, at: int, end: int) -> int:
        """Reads the event that lies between at and end; or, where it begins steps like one before, all of these. Where
        the next event begins."""
        if self._events and event.tag == self._events[0][0].tag:
            self._patterns[event.tag] = _Pattern(data[self._begin : at], self._begin, self._events)
            self._events.clear()
        if (pattern := self._patterns.get(event.tag)) is not None:
            steps = pattern.steps(data, at)
            if len(steps):
                self._events.clear()
                for tag, events in pattern.by_tag.items():
                    column = self._kept[tag]
                    if column is not None:
                        _many(column, events, steps)
                return at + steps.size
        if not self._events:
            self._begin = at
        self._events.append((event, end))
        column = self._kept[event.tag]
        if column is not None:
            _one(column, event, data)
        if end - self._begin > _LONGEST_PATTERN:
            self._events.clear()
        return end


class _Pattern:
    """The events of a step, from its first byte on: last, its bytes; bits, those of them that stay."""

    def __init__(self, text: bytes, begin: int, events: list[tuple[Plain, int]]) -> None:
        self.by_tag: dict[bytes, list[Plain]] = {}
        self._last = np.frombuffer(text, np.uint8)
        # none of a number's bits, and of the bytes of a step's number whether another follows
        self._bits = np.full(len(text), 0xFF, dtype=np.uint8)
        for e, _ in events:
            event = Plain(e.tag, e.time - begin, e.step - begin, e.step_end - begin, e.value - begin)
            self.by_tag.setdefault(e.tag, []).append(event)
            self._bits[event.time : event.time + 8] = 0
            self._bits[event.step : event.step_end] = 0x80
            self._bits[event.value : event.value + 4 + _CHECKSUM] = 0

    def steps(self, data: bytes, at: int) -> NDArray[np.uint8]:
        """(steps, bytes of one) of the steps from `at` on that have the pattern."""
        size = len(self._last)
        count = (len(data) - at) // size
        steps = np.frombuffer(data, np.uint8, count * size, at).reshape(count, size)
        # ever more at once: a pattern may end after a few steps, or hold for the whole file
        same, more = 0, _FEW
        while same < count:
            part = steps[same : same + more]
            alike = ((part ^ self._last) & self._bits == 0).all(axis=1)
            found = len(part) if alike.all() else int(np.argmin(alike))
            same += found
            if found < len(part):
                break
            more *= 2
        return steps[:same]


def _one(column: Column, event: Plain, data: bytes) -> None:
    step = 0
    for place, byte in enumerate(data[event.step : event.step_end]):
        step |= (byte & 0x7F) << 7 * place
    column[0].append(step)
    column[1].append(_FLOAT.unpack_from(data, event.value)[0])
    column[2].append(_DOUBLE.unpack_from(data, event.time)[0])


def _many(column: Column, events: list[Plain], steps: NDArray[np.uint8]) -> None:
    """In the file's order: a tag may come several times in a step, and the last counts."""
    numbers = [np.zeros(len(steps), dtype=np.int64) for _ in events]
    for number, event in zip(numbers, events, strict=True):
        for place, at in enumerate(range(event.step, event.step_end)):
            number |= (steps[:, at] & 0x7F).astype(np.int64) << 7 * place
    values = [steps[:, e.value : e.value + 4].copy().view("<f4")[:, 0].astype(np.float64) for e in events]
    times = [steps[:, e.time : e.time + 8].copy().view("<f8")[:, 0].astype(np.float64) for e in events]
    column[0].frombytes(np.stack(numbers, axis=1).tobytes())
    column[1].frombytes(np.stack(values, axis=1).tobytes())
    column[2].frombytes(np.stack(times, axis=1).tobytes())


_LENGTH = struct.Struct("<Q")
_HEAD, _TAIL = 12, 4  # bytes around an event
_PIECE = 1 << 24
_MOST = 1 << 30  # bytes of one event; more is a length that cannot be
_MARK = b"brain.Event:"
_DTYPES = {1: "f", 2: "d", 3: "i", 9: "q"}  # of a tensor: float, double, int32, int64


def is_events(start: bytes) -> bool:
    """Whether a file that begins so is an event file."""
    return len(start) > _HEAD + 16 and start[_HEAD] == 0x09 and _MARK in start[:200]


def read_events(paths: Sequence[Path], wanted: Callable[[str], bool] | None) -> tuple[RunLogTable, list[Note]]:
    """The scalars of a run's files, in the order of their names (which begin with their time). Raises InputError."""
    scalars, notes = Scalars(wanted), []
    kept: Kept = {}
    for path in sorted(paths, key=lambda p: p.name):
        cut = _read(path, scalars, kept)
        if cut is not None:
            notes.append(Note("truncated", f"{path.name} is broken or cut short at byte {cut:,}: read up to there."))
    if not scalars.names:
        rule = "its event files hold no scalars"
        raise InputError([Problem("history", str(paths[0]), rule, "give the folder that the trainer logs to")])
    return scalars.table(), notes


def _read(path: Path, scalars: Scalars, kept: Kept) -> int | None:
    """One file; the byte at which it breaks off, None where it is whole."""
    done = 0
    rest = b""
    steps = Repeated(kept)
    with path.open("rb") as file:
        while True:
            piece = file.read(_PIECE)
            data, at = rest + piece if rest else piece, 0
            size = len(data)
            steps.forget()
            while at + _HEAD <= size:
                (length,) = _LENGTH.unpack_from(data, at)
                if length > _MOST:
                    return done + at
                end = at + _HEAD + length
                if end + _TAIL > size:
                    break
                plain = _plain(data, at + _HEAD, end)
                if plain is not None and plain.tag in kept:
                    at = steps.read(data, plain, at, end + _TAIL)
                    continue
                steps.forget()
                try:
                    _event(data, at + _HEAD, end, scalars, kept)
                except (WireError, struct.error):
                    return done + at
                at = end + _TAIL
            rest = data[at:]
            done += at
            if not piece:
                return done if rest else None


def _plain(data: bytes, at: int, end: int) -> Plain | None:
    """Where the numbers of an event stand that is as every writer of scalars lays it out (time, step, one value with
    a tag); None of any other, which `_event` reads. Nine of ten events of a log are like this."""
    if end - at < 20 or data[at] != 0x09 or data[at + 9] != 0x10:
        return None
    to = at + 10
    while data[to] >= 0x80 and to < at + 18:
        to += 1
    # summary, value and tag, each with a length of one byte; then a float up to the end
    if end - to < 12 or data[to + 1] != 0x2A or data[to + 3] != 0x0A or data[to + 5] != 0x0A:
        return None
    value = to + 7 + data[to + 6]
    if data[to + 2] != end - to - 3 or data[to + 4] != end - to - 5 or value + 5 != end or data[value] != 0x15:
        return None
    return Plain(data[to + 7 : value], at + 1, at + 10, to + 1, value + 1)


def _event(data: bytes, at: int, end: int, scalars: Scalars, kept: Kept) -> None:
    time_s, step = 0.0, 0
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == FIXED64:
            (time_s,) = _DOUBLE.unpack_from(data, start)
        elif number == 2 and kind == VARINT:
            step = start if start < 1 << 63 else start - (1 << 64)
        elif number == 5 and kind == BYTES:
            for inner, form, first, last in fields(data, start, stop):
                if inner == 1 and form == BYTES:
                    _value(data, first, last, time_s, step, scalars, kept)


def _value(data: bytes, at: int, end: int, time_s: float, step: int, scalars: Scalars, kept: Kept) -> None:
    tag, value = b"", None
    tensor = None
    for number, kind, start, stop in fields(data, at, end):
        if number == 1:
            tag = data[start:stop]
        elif number == 2 and kind == FIXED32:
            (value,) = _FLOAT.unpack_from(data, start)
        elif number == 8:
            tensor = start, stop
        elif number > 2:
            return  # a picture, a histogram, sound
    if value is None and tensor is not None:
        value = _scalar(data, *tensor)
    if value is None:
        return
    if tag not in kept:
        kept[tag] = scalars.of(tag.decode("utf-8", "replace"))
    column = kept[tag]
    if column is not None:
        column[0].append(step)
        column[1].append(value)
        column[2].append(time_s)


def _scalar(data: bytes, at: int, end: int) -> float | None:
    """The number of a tensor without dimensions; None of any other."""
    form = ""
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == VARINT:
            form = _DTYPES.get(start, "")
        elif number == 2 and stop > start:
            return None  # a shape
        elif number == 4 and form and stop - start == struct.calcsize(form):
            return float(struct.unpack_from(f"<{form}", data, start)[0])
        elif number in (5, 6) and kind in (FIXED32, FIXED64, BYTES) and stop - start in (4, 8):
            return float(struct.unpack_from("<f" if stop - start == 4 else "<d", data, start)[0])
        elif number in (7, 10) and kind == VARINT:
            return float(start)
    return None
