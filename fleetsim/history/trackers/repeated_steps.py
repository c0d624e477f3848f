"""Event files whose steps repeat: the same tags in the same order, so that only the numbers differ from step to step.

The events of one step are a pattern: bytes that stay, and the places of times, steps, values and checksums. As many
steps as have the pattern are compared and read as one array.
"""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = tuple["array[int]", "array[float]", "array[float]"]
Kept = dict[bytes, Column | None]

_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_MOST = 1 << 20  # bytes of a pattern
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
        if end - self._begin > _MOST:
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
