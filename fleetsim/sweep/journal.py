"""The journal of a sweep: finished cells, appended to a file beside the output, so that a killed sweep goes on.

The first line says which sweep it is (`digest_of`); every other line is one cell. A line that is torn, and whatever
stands behind it, is dropped: those cells are run again. A journal without a cell is of no sweep, and goes. The file is
locked as long as a sweep writes to it, by the operating system, so that no kill leaves the lock behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import BinaryIO

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.files import hold
from fleetsim.sweep.cell import SweepRow

SUFFIX = ".journal.jsonl"
_FORMAT = 1
# Seconds between two waits for the disk.
_SYNC_S = 0.3


class Journal:
    """An open, locked journal. rows: the cells that it holds, by cell."""

    def __init__(self, path: Path, stream: BinaryIO, rows: dict[int, SweepRow]) -> None:
        self.path, self.rows, self._stream = path, rows, stream
        self._empty, self._synced_s = not rows, 0.0

    def add(self, row: SweepRow) -> None:
        """Appends a cell: no kill takes it back; where the machine stops, the last moments may be lost. Raises
        OutsideError."""
        try:
            cell = [row.cell, row.status, row.reason, row.binding, row.values]
            self._empty = False
            self._stream.write(json.dumps(cell).encode() + b"\n")
            self._stream.flush()
            if time.monotonic() - self._synced_s > _SYNC_S:
                os.fsync(self._stream.fileno())
                self._synced_s = time.monotonic()
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def discard(self) -> None:
        """The output is complete: the journal goes."""
        self._empty = True
        self.close()

    def close(self) -> None:
        """Lets go of the file; the cells that it holds stay, and without any it goes."""
        if self._empty:
            self.path.unlink(missing_ok=True)
        _close(self._stream)


def journal_path(output: Path) -> Path:
    """Where the journal of an output lies."""
    return output.with_name(output.name + SUFFIX)


def open_journal(output: Path, digest: str, cells: int, restart: bool = False) -> Journal:
    """The journal of an output, begun or taken up again. restart: forget what it holds.

    Raises InputError when it is of another sweep or another process writes to it, OutsideError when it cannot be
    written.
    """
    path = journal_path(output)
    stream = _locked(path)
    try:
        if restart:
            stream.truncate(0)
        head = json.dumps({"journal": _FORMAT, "sweep": digest}).encode() + b"\n"
        stream.seek(0)
        data = stream.read()
        if not data.startswith(head):
            # Else it was killed while it wrote its first line, or before it had a cell.
            if data and not head.startswith(data) and not _bare(data):
                raise _other_sweep(path)
            stream.truncate(0)
            stream.write(head)
            stream.flush()
            return Journal(path, stream, {})
        rows, good = _read(data, len(head), cells)
        stream.truncate(good)
    except OSError as error:
        _close(stream)
        raise _unwritable(path, error) from None
    except InputError:
        _close(stream)
        raise
    return Journal(path, stream, rows)


def _close(stream: BinaryIO) -> None:
    """Closes a file whose bytes that matter were flushed before: on a full disk, closing tries the rest once more."""
    with contextlib.suppress(OSError):
        stream.close()


def _bare(data: bytes) -> bool:
    """Whether this is the first line of a journal and no more."""
    try:
        head = json.loads(data)
    except ValueError:
        return False
    return isinstance(head, dict) and set(head) == {"journal", "sweep"}


def _read(data: bytes, start: int, cells: int) -> tuple[dict[int, SweepRow], int]:
    """The cells from `start` on, and where the last good line ends."""
    rows: dict[int, SweepRow] = {}
    for line in data[start:].splitlines(keepends=True):
        row = _row(line, cells) if line.endswith(b"\n") else None
        if row is None:
            break
        rows[row.cell] = row
        start += len(line)
    return rows, start


def _locked(path: Path) -> BinaryIO:
    while True:
        try:
            stream = path.open("a+b")
        except OSError as error:
            raise _unwritable(path, error) from None
        if not hold(stream.fileno()):
            stream.close()
            rule, remedy = "another sweep is writing to this output", "wait for it, or choose another --out"
            raise InputError([Problem("--out", str(path), rule, remedy)])
        # Whoever held it may have removed the file meanwhile; then this is not the file that others see.
        if path.exists() and path.stat().st_ino == os.fstat(stream.fileno()).st_ino:
            return stream
        stream.close()


def _row(line: bytes, cells: int) -> SweepRow | None:
    try:
        cell, status, reason, binding, values = json.loads(line)
        row = SweepRow(
            cell, status, reason, binding, tuple(tuple(None if x is None else float(x) for x in run) for run in values)
        )
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return row if isinstance(cell, int) and 0 <= cell < cells else None


def _other_sweep(path: Path) -> InputError:
    rule = "holds the cells of another sweep: another scenario, grid, replications or version of fleetsim"
    remedy = "finish that one with its own command, choose another --out, or drop its cells with --restart"
    return InputError([Problem("--out", str(path), rule, remedy)])


def _unwritable(path: Path, error: Exception) -> OutsideError:
    return OutsideError(f"{str(path)!r}: cannot be written: {getattr(error, 'strerror', None) or error}")
