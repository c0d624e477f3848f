"""TensorBoard event files: records of a length, its checksum, an `Event` and its checksum.

tensorflow/tensorboard 2.21: compat/proto/event.proto, summary.proto, tensor.proto. Its own reader takes 5 MB/s, because
it computes checksums in Python; records whose length cannot be say as well that a file is broken. Nine of ten events of
a log are one scalar, laid out alike but for the length of its tag and step: those of one length are read as one array.
"""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Floats, Note
from fleetsim.history.step_logs.packed import RunLogTable, Scalars
from fleetsim.history.wandb import BYTES, FIXED32, FIXED64, VARINT, WireError, fields

Column = tuple["array[int]", "array[float]", "array[float]"]
Kept = dict[bytes, Column | None]
Places, Bytes = NDArray[np.int64], NDArray[np.uint8]

_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_LENGTH = struct.Struct("<Q")
_HEAD, _TAIL = 12, 4  # bytes around an event
_AROUND = _HEAD + _TAIL
_PIECE = 1 << 24
_MOST = 1 << 30  # bytes of one event; more is a length that cannot be
_MARK = b"brain.Event:"
_SHORTEST, _LONGEST = 24, 150  # bytes of a scalar whose tag has one letter, and whose lengths have one byte
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
    done, rest, length_at = 0, b"", _LENGTH.unpack_from
    with path.open("rb") as file:
        while True:
            piece = file.read(_PIECE)
            data, at, cut = rest + piece, 0, False
            starts, last = [], len(data) - _HEAD
            while at <= last:
                (length,) = length_at(data, at)
                if at + length > last - _TAIL:
                    cut = length > _MOST
                    break
                starts.append(at)
                at += length + _AROUND
            broken = _events(data, np.array([*starts, at]) + _HEAD, scalars, kept)
            if cut or broken is not None:
                return done + (at if broken is None else broken - _HEAD)
            rest = data[at:]
            done += at
            if not piece:
                return done if rest else None


def _events(data: bytes, starts: Places, scalars: Scalars, kept: Kept) -> int | None:
    """Reads events that begin at `starts`, of which the last is none; where the first broken one begins, beyond which
    none is read."""
    lengths, alone = np.diff(starts) - _AROUND, np.ones(len(starts) - 1, dtype=bool)
    plain: dict[bytes, list[tuple[Places, Bytes]]] = defaultdict(list)
    for length in np.unique(lengths).tolist():
        mine = np.flatnonzero(lengths == length)
        for rows, tag, events in _plain(data, starts[mine], length):
            plain[tag].append((starts[mine[rows]], events))
            alone[mine[rows]] = False
    broken = len(data)
    for start, length in zip(starts[:-1][alone].tolist(), lengths[alone].tolist(), strict=True):
        try:
            _event(data, start, start + length, scalars, kept)
        except (WireError, struct.error):
            broken = start
            break
    for tag, parts in plain.items():
        if (column := _column(tag, scalars, kept)) is not None:
            at = np.concatenate([at for at, _ in parts])
            order = np.argsort(at, kind="stable")[: int((at < broken).sum())]  # of equal steps the last one counts
            for into, numbers in zip(column, zip(*(_numbers(events) for _, events in parts), strict=True), strict=True):
                into.frombytes(np.concatenate(numbers)[order].tobytes())
    return broken if broken < len(data) else None


def _plain(data: bytes, at: Places, length: int) -> Iterator[tuple[Places, bytes, Bytes]]:
    """Of the events `at`, all of one length, those that are as every writer of scalars lays them out (time, step, one
    value with a tag and a float): by tag their rows and their bytes, without the tag."""
    if not _SHORTEST <= length <= _LONGEST:
        return
    events = np.frombuffer(data, np.uint8)[at[:, None] + np.arange(length)]
    ends = 11 + np.argmax(events[:, 10:19] < 0x80, axis=1)  # 7 bits of a step a byte
    for step_end in filter(lambda end: end + 12 <= length, set(ends.tolist())):
        # summary, value and tag, each with a length of one byte; then a float up to the end
        rest, mine = length - step_end, np.flatnonzero(ends == step_end)
        layout = dict(enumerate((0x2A, rest - 2, 0x0A, rest - 4, 0x0A, rest - 11), step_end))
        layout |= {0: 0x09, 9: 0x10, length - 5: 0x15}
        rows = mine[np.logical_and.reduce([events[mine, place] == byte for place, byte in layout.items()])]
        if not len(rows):
            continue
        tags = np.ascontiguousarray(events[rows, step_end + 6 : length - 5]).view(f"S{rest - 11}")[:, 0]
        order = np.argsort(tags, kind="stable") if (tags != tags[0]).any() else slice(None)
        for same in np.split(rows[order], np.flatnonzero(tags[order][1:] != tags[order][:-1]) + 1):
            tag = events[same[0], step_end + 6 : length - 5].tobytes()
            yield same, tag, events[same][:, [*range(step_end), *range(length - 4, length)]]


def _numbers(events: Bytes) -> tuple[Places, Floats, Floats]:
    """Steps, values and unix seconds of plain events."""
    steps = np.zeros(len(events), dtype=np.int64)
    for place, byte in enumerate(events[:, 10:-4].T):
        steps |= (byte & 0x7F).astype(np.int64) << 7 * place
    values, times = events[:, -4:].copy().view("<f4"), events[:, 1:9].copy().view("<f8")
    return steps, values[:, 0].astype(np.float64), times[:, 0].astype(np.float64)


def _column(tag: bytes, scalars: Scalars, kept: Kept) -> Column | None:
    if tag not in kept:
        kept[tag] = scalars.of(tag.decode("utf-8", "replace"))
    return kept[tag]


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
    if (column := _column(tag, scalars, kept)) is not None:
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
