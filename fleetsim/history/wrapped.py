"""Text files as their processes wrote them: unpacked, and out of what carried their lines.

Container runtimes, journals and log stores keep a line as the text of an object (Docker's json-file: `log`; journald:
`MESSAGE`; CloudWatch, Loki, Google Cloud: `message`, `line`, `textPayload`), or behind a mark that says whether it goes
on (CRI: `P` and `F`). Long lines are cut there, as one step of verl is. All of them are read alike.
"""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Note
from fleetsim.json_text import from_loose_json

_TEXTS = ("log", "MESSAGE", "message", "msg", "line", "textPayload", "@message")
_LISTS = ("events", "entries", "logs", "results")
_CRI = re.compile(r"\S+ std(?:out|err) ([PF]) (.*)", re.DOTALL)
_SHOWN = 6  # names of a folder that a refusal tells
_DAY = 6  # digits: a number with fewer counts backwards from the newest file, one with as many is a day
_LOOKED = 50  # lines at a file's beginning that tell what carried them
_NUMBERS = 4  # numbers of an object that carries a line: its times, its process; an object of metrics has more
_NAMED = re.compile(rf'"({"|".join(_TEXTS)})"\s*:')


def _zstd(path: Path) -> IO[bytes]:
    try:
        import pyarrow
    except ImportError:
        rule, remedy = "is packed with zstd, which pyarrow unpacks", "pip install 'fleetsim[parquet]', or zstd -d it"
        raise InputError([Problem("history", str(path), rule, remedy)]) from None
    return pyarrow.input_stream(str(path), compression="zstd")


_PACKED: Mapping[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zX": lzma.open,
    b"BZh": bz2.open,
    b"\x28\xb5\x2f\xfd": _zstd,
}
BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""What reading a packed file raises where it is broken."""
CUT_ROW = Note("truncated", "The file ends in the middle of a line: it was cut short; that row is left out.")


class TextLines:
    """The lines of a text, each with its end. notes: once they are read, that a packed file was cut off."""

    def __init__(self, lines: Iterable[str], notes: list[Note]) -> None:
        self._lines, self.notes = iter(lines), notes

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def read(self, size: float = math.inf) -> str:
        """All lines that are left, or as many as have `size` characters together."""
        found: list[str] = []
        while size > 0 and (line := next(self._lines, "")):
            found.append(line)
            size -= len(line)
        return "".join(found)


@contextmanager
def open_text(path: Path, newline: str | None = None, parts: Sequence[Path] = ()) -> Iterator[TextLines]:
    """The file as UTF-8 text (a byte order mark is passed over), unpacked and without what carried its lines. Bytes
    that are no text, as where two processes write at once or a file was cut, are replaced: they spoil their own line.

    Of a folder: of the one log that was rotated there, oldest file first. parts: files of a log that are read in place
    of it. What is packed ends with its last whole line where it was cut off. Raises InputError: nothing unpacks it, or
    the folder has not one log; OSError."""
    notes: list[Note] = []
    if parts or path.is_dir():
        yield TextLines(_chained(parts or _only(path), newline, notes), notes)
        return
    with path.open("rb") as file:
        start = file.read(4)
    unpack = next((unpack for magic, unpack in _PACKED.items() if start.startswith(magic)), None)
    data = path.open("rb") if unpack is None else unpack(path)
    with io.TextIOWrapper(data, encoding="utf-8-sig", errors="replace", newline=newline) as text:
        yield TextLines(_carried(_whole(text, path, notes), newline), notes)


def _whole(text: Iterable[str], path: Path, notes: list[Note]) -> Iterator[str]:
    try:
        yield from text
    except EOFError:
        said = f"{path.name} is packed and was cut short: read up to its last whole line."
        notes.append(Note("truncated", said))


def _chained(parts: Iterable[Path], newline: str | None, notes: list[Note]) -> Iterator[str]:
    """The lines of several files; one that goes on in the next file is one."""
    held = ""
    for path in parts:
        with open_text(path, newline) as file:
            for line in file:
                held += line
                if held.endswith("\n"):
                    yield held
                    held = ""
            notes += file.notes
    if held:
        yield held


_ROTATED = re.compile(
    r"(?P<log>.+?\.(?:jsonl|ndjson|json|csv|log|out|err|txt))(?P<turn>(?:[.-]\d[\d_T:-]*)?)(?:\.\w+)?"
)


def logs_of(folder: Path) -> dict[Path, list[Path]]:
    """Each log that lies in a folder, and its files, the oldest first: NAME.2, NAME.1, NAME, or with days behind the
    name, packed or not."""
    logs: dict[Path, list[tuple[str, Path]]] = {}
    for path in folder.rglob("*"):
        found = _ROTATED.fullmatch(path.name)
        if found is not None and path.is_file() and path.stat().st_size:
            logs.setdefault(path.parent / found["log"], []).append((found["turn"][1:], path))

    def age(part: tuple[str, Path]) -> tuple[bool, int, str]:
        turn = part[0]
        return not turn, -int(turn) if turn.isdigit() and len(turn) < _DAY else 0, turn

    return {log: [path for _, path in sorted(parts, key=age)] for log, parts in sorted(logs.items())}


def _only(folder: Path) -> list[Path]:
    """The files of the one log of a folder. Raises InputError: there is none, or several."""
    logs = logs_of(folder)
    if len(logs) != 1:
        names = sorted(str(p.relative_to(folder)) for p in logs or folder.iterdir())
        rule = f"has no run of a tracker and {len(logs) or 'no'} logs in it: {', '.join(names[:_SHOWN]) or 'nothing'}"
        remedy = "give one of them" if logs else "give a log, or a tracker's run; docs/run_logs.md shows each"
        raise InputError([Problem("history", str(folder), rule, remedy)])
    return next(iter(logs.values()))


def _carried(lines: Iterator[str], newline: str | None) -> Iterator[str]:
    """The lines that were carried; the file's own where none were."""
    first = list(itertools.islice(lines, _LOOKED))
    filled = [line for line in first if line.strip()]
    parts = [_part(line) for line in filled]
    if 2 * sum(part is not None for part in parts) > len(parts):
        return _joined(list(filter(None, parts)), map(_part, lines))
    if filled and filled[0][0] in "{[" and any(map(_NAMED.search, filled)):  # one document
        text = "".join([*first, *lines])
        lines, first = io.StringIO(text, newline), []
        try:
            document = from_loose_json(text)
        except ValueError:
            return lines
        if isinstance(document, dict):
            document = next((document[name] for name in _LISTS if name in document), None)
        parts = [_text(record) for record in document] if isinstance(document, list) else []
        if 2 * sum(part is not None for part in parts) > len(parts):
            return _joined(list(filter(None, parts)), ())
    return itertools.chain(first, lines)


def _part(line: str) -> str | None:
    """What a line carries: a text with its end, or a part of one without; None of another line."""
    if line.startswith("{"):
        if _NAMED.search(line) is None:  # a row of metrics, which is parsed where it is read
            return None
        try:
            return _text(from_loose_json(line))
        except ValueError:
            return None
    found = _CRI.match(line)
    if found is None:
        return None
    return found[2] if found[1] == "F" else found[2].rstrip("\r\n")


def _text(record: Any) -> str | None:
    if not isinstance(record, dict) or sum(isinstance(v, int | float) for v in record.values()) > _NUMBERS:
        return None
    value = next((record[name] for name in _TEXTS if name in record), None)
    if isinstance(value, list):  # journald's, of bytes that are no plain text
        try:
            value = bytes(value).decode("utf-8", "replace")
        except (TypeError, ValueError):
            return None
    return value if isinstance(value, str) else None


def _joined(first: list[str], rest: Iterable[str | None]) -> Iterator[str]:
    """Whole lines. first: the first parts; where some of them have their ends, one without goes on in the next."""
    goes_on = any(part.endswith("\n") for part in first)
    held = ""
    for part in itertools.chain(first, rest):
        held += part or ""
        if part is not None and (part.endswith("\n") or not goes_on):
            lines = re.split("\r\n|\r|\n", held)
            yield from (f"{line}\n" for line in (lines if lines[-1] else lines[:-1]))
            held = ""
    if held:
        yield held
