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
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
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
_PIECE = 1 << 16


class _Unpacked(io.RawIOBase):
    """A packed file's whole lines. Where it was cut off (`cut`), they end with the last one before."""

    def __init__(self, file: Any) -> None:
        self._file, self.cut = file, False
        self._held, self._ready, self._over = bytearray(), 0, False

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """The next bytes of lines that are whole."""
        while not self._ready and not self._over:
            try:
                piece = self._file.read1(_PIECE)
            except EOFError:
                self.cut, piece = True, b""
                self._held.clear()
            self._over, before = not piece, len(self._held)
            self._held += piece
            last = piece.rfind(b"\n")
            self._ready = len(self._held) if self._over else before + last + 1 if last >= 0 else 0
        part = self._held[: min(self._ready, len(buffer))]
        del self._held[: len(part)]
        self._ready -= len(part)
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Closes the packed file."""
        self._file.close()
        super().close()


def cut_notes(file: IO[str], path: Path) -> list[Note]:
    """That a packed file which `open_text` gave, read to its end, was cut off."""
    text = file.text if isinstance(file, _Lines) else file
    raw = getattr(getattr(text, "buffer", None), "raw", None)
    if not isinstance(raw, _Unpacked) or not raw.cut:
        return []
    return [Note("truncated", f"{path.name} is packed and was cut short: read up to its last whole line.")]


CUT_ROW = Note("truncated", "The file ends in the middle of a line: it was cut short; that row is left out.")


class _Lines(io.TextIOBase):
    """Lines as a file. text: the file that they came from, of several the newest."""

    def __init__(self, lines: Iterable[str], file: IO[str]) -> None:
        self._lines, self.text = iter(lines), file

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """The next line, whole."""
        return next(self._lines, "")

    def read(self, size: int | None = -1, /) -> str:
        """All lines that are left, or as many as have `size` characters together."""
        found: list[str] = []
        length = 0
        while (size is None or size < 0 or length < size) and (line := self.readline()):
            found.append(line)
            length += len(line)
        return "".join(found)

    def close(self) -> None:
        """Closes the file that they came from."""
        self.text.close()
        super().close()


def open_text(path: Path, newline: str | None = None) -> IO[str]:
    """The file as UTF-8 text (a byte order mark is passed over), unpacked and without what carried its lines. Bytes
    that are no text, as where two processes write at once or a file was cut, are replaced: they spoil their own line.

    Of a folder: of the one log that was rotated there, oldest file first. What is packed ends where it was cut off
    (`cut_notes`). Raises InputError: nothing unpacks it, or the folder has not one log; OSError."""
    if path.is_dir():
        *older, newest = parts_of(path)
        last = open_text(newest, newline)
        return _Lines(_chained([*(partial(open_text, part, newline) for part in older), lambda: last]), last)  # type: ignore[return-value]
    with path.open("rb") as file:
        start = file.read(4)
    unpack = next((unpack for magic, unpack in _PACKED.items() if start.startswith(magic)), None)

    def opened() -> IO[str]:
        data = path.open("rb") if unpack is None else io.BufferedReader(_Unpacked(unpack(path)))
        return io.TextIOWrapper(data, encoding="utf-8-sig", errors="replace", newline=newline)

    text = opened()
    carried = _carried(list(itertools.islice(text, _LOOKED)), text)
    if carried is not None:
        return _Lines(carried, text)  # type: ignore[return-value]
    text.close()
    return opened()


def _chained(files: Iterable[Callable[[], IO[str]]]) -> Iterator[str]:
    """Their lines; one that goes on in the next file is one."""
    held = ""
    for opened in files:
        with opened() as file:
            for line in file:
                held += line
                if held.endswith("\n"):
                    yield held
                    held = ""
    if held:
        yield held


_ROTATED = re.compile(
    r"(?P<log>.+?\.(?:jsonl|ndjson|json|csv|log|out|err|txt))(?P<turn>(?:[.-]\d[\d_T:-]*)?)(?:\.\w+)?"
)


def parts_of(folder: Path) -> list[Path]:
    """The files of the one log that lies in a folder, the oldest first: NAME.2, NAME.1, NAME, or with days behind the
    name, packed or not. Raises InputError: there is none, or several."""
    logs: dict[Path, list[tuple[str, Path]]] = {}
    for path in folder.rglob("*"):
        found = _ROTATED.fullmatch(path.name)
        if found is not None and path.is_file() and path.stat().st_size:
            logs.setdefault(path.parent / found["log"], []).append((found["turn"][1:], path))
    if len(logs) != 1:
        names = sorted(str(p.relative_to(folder)) for p in logs or folder.iterdir())
        rule = f"has no run of a tracker and {len(logs) or 'no'} logs in it: {', '.join(names[:_SHOWN]) or 'nothing'}"
        remedy = "give one of them" if logs else "give a log, or a tracker's run; docs/run_logs.md shows each"
        raise InputError([Problem("history", str(folder), rule, remedy)])

    def age(part: tuple[str, Path]) -> tuple[bool, int, str]:
        turn = part[0]
        return not turn, -int(turn) if turn.isdigit() and len(turn) < _DAY else 0, turn

    return [path for _, path in sorted(*logs.values(), key=age)]


def _carried(first: list[str], rest: IO[str]) -> Iterator[str] | None:
    """The lines that were carried; None where the file has its own. first: of the lines."""
    lines = [line for line in first if line.strip()]
    parts = [_part(line) for line in lines]
    if 2 * sum(part is not None for part in parts) > len(parts):
        return _joined(list(filter(None, parts)), map(_part, rest))
    if lines and lines[0][0] in "{[" and any(map(_NAMED.search, lines)):  # one document
        try:
            document = from_loose_json("".join(lines) + rest.read())
        except ValueError:
            return None
        if isinstance(document, dict):
            document = next((document[name] for name in _LISTS if name in document), None)
        parts = [_text(record) for record in document] if isinstance(document, list) else []
        if 2 * sum(part is not None for part in parts) > len(parts):
            return _joined(list(filter(None, parts)), ())
    return None


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
