"""Weights & Biases: the local file of a run (`run-ID.wandb`), and its history by the API.

The file is LevelDB's log format (blocks of 32 KiB, chunks with a header of checksum, length and kind) behind a header
of 7 bytes; each record is a `Record` of wandb 0.31, wandb/proto/wandb_internal.proto. The library reads it no longer
itself (0.31 has no datastore for Python), and is needed for the API alone.

Protocol buffers are read as far as a message of numbers and names needs them: the encoding is published and stable
(protobuf.dev, "Encoding"), and trackers' own libraries read such files at a few megabytes a second, or no longer.
"""

from __future__ import annotations

import netrc
import os
import re
import struct
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Note
from fleetsim.history.step_logs.packed import RunLogTable
from fleetsim.history.step_logs.rows import flat
from fleetsim.history.text import number
from fleetsim.json_text import from_loose_json

MAGIC = b":W&B"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # kinds of fields
PREFIX, SERVER, TIMEOUT_S = "wandb:", "https://api.wandb.ai", 30
# A path keeps one of two slashes.
_PAGE = re.compile(r"https?:/{1,2}([^/@]+)/([^/]+)/([^/]+)/runs/([^/?#]+)")
_HEADER, _BLOCK = 7, 32 * 1024
_CHUNK = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def read_wandb(path: Path, wanted: Callable[[str], bool] | None) -> tuple[RunLogTable, list[Note]]:
    """The history of a run's local file; a run that still writes ends in the middle of a record."""
    table, notes = RunLogTable(wanted), []
    try:
        for record in _records(path):
            for field, kind, start, end in fields(record):
                if field == 2 and kind == BYTES:
                    table.add(_history(record, start, end))
    except WireError as error:
        notes.append(Note("truncated", f"{path.name} is broken or cut short ({error}): read up to there."))
    if not len(table):
        rule = "the run has no history: nothing was logged, or the file is broken at its beginning"
        raise InputError([Problem("history", str(path), rule, "give the .wandb file of a run that logged")])
    return table, notes


def _records(path: Path) -> Iterator[bytes]:
    """The records of the file, each put together of its chunks. Raises WireError where it breaks off."""
    parts: list[bytes] = []
    with path.open("rb") as file:
        block = file.read(_BLOCK)
        at = _HEADER
        while block:
            while len(block) - at >= _CHUNK.size:
                _, length, kind = _CHUNK.unpack_from(block, at)
                if kind == 0 and length == 0:
                    break  # padding
                data = block[at + _CHUNK.size : at + _CHUNK.size + length]
                if kind > _LAST or len(data) < length:
                    raise WireError("a record without its end")
                at += _CHUNK.size + length
                if kind in (_FULL, _FIRST):
                    parts = []
                parts.append(data)
                if kind in (_FULL, _LAST):
                    yield b"".join(parts)
            block, at = file.read(_BLOCK), 0


def _history(data: bytes, at: int, end: int) -> dict[str, float]:
    """The row of a HistoryRecord; its step counts where the items do not say `_step`."""
    found: dict[str, float] = {}
    for field, kind, start, stop in fields(data, at, end):
        if kind != BYTES:
            continue
        if field == 1:
            name, value = _item(data, start, stop)
            if value is not None:
                found[name] = value
        elif field == 2:
            for inner, form, step, _ in fields(data, start, stop):
                if inner == 1 and form == VARINT:
                    found.setdefault("_step", float(step))
    return found


def _item(data: bytes, at: int, end: int) -> tuple[str, float | None]:
    names: list[str] = []
    value: Any = None
    for field, kind, start, stop in fields(data, at, end):
        if kind == BYTES and field in (1, 2):
            names.append(data[start:stop].decode("utf-8", "replace"))
        elif kind == BYTES and field == 16:
            try:
                value = from_loose_json(data[start:stop])
            except ValueError:
                value = None
    return "/".join(n for n in names if n), number(value)


def run_address(given: str) -> tuple[str, str] | None:
    """(ENTITY/PROJECT/RUN, its server) of `wandb:ENTITY/PROJECT/RUN` or of a run's page; None of anything else."""
    if given.startswith(PREFIX):
        return given.removeprefix(PREFIX), SERVER
    found = _PAGE.match(given)
    if found is None:
        return None
    return f"{found[2]}/{found[3]}/{found[4]}", SERVER if found[1] == "wandb.ai" else f"https://{found[1]}"


def read_wandb_api(
    given: str, run: str, server: str, wanted: Callable[[str], bool] | None
) -> tuple[RunLogTable, list[Note]]:
    """The history of a run by the public API, with the key that the user's wandb has. given: as it was written.

    Raises InputError."""

    def refused(rule: str, remedy: str) -> InputError:
        return InputError([Problem("history", given, rule, remedy)])

    try:
        library = import_module("wandb")
    except ImportError:
        raise refused(
            "its API needs wandb, which is not installed", "pip install 'fleetsim[wandb]', or export the run as CSV"
        ) from None
    if not _has_key(server):  # the library would ask for it, and wait
        raise refused("its API wants a key, and there is none", "set WANDB_API_KEY, or export the run as CSV")
    table = RunLogTable(wanted)
    try:
        for row in library.Api(overrides={"base_url": server}, timeout=TIMEOUT_S).run(run).scan_history():
            table.add(dict(flat(row)))
    except Exception as error:  # the library's errors have no common base: a wrong path, no access, no network
        remedy = "give wandb:ENTITY/PROJECT/RUN or the address of its page, and the key of someone who may read it"
        raise refused(f"wandb says: {error}", remedy) from error
    if not len(table):
        raise refused("the run has no history", "give a run that logged")
    return table, []


def _has_key(server: str) -> bool:
    """Whether the environment or ~/.netrc, where `wandb login` writes it, has a key."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(urlsplit(server).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False


# ------------------------------------------------------------------------------------ protocol buffers on the wire


class WireError(ValueError):
    """Bytes that are no such message, or end in the middle of one."""


def fields(data: bytes, at: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int]]:
    """(number, kind, start, end) of each field between at and end; of a varint start is its value, and end where it
    ended. Raises WireError."""
    end = len(data) if end is None else end
    while at < end:
        key, at = varint(data, at, end)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at, end)
            yield key >> 3, kind, value, at
            continue
        if kind == BYTES:
            size, at = varint(data, at, end)
        elif kind == FIXED32:
            size = 4
        elif kind == FIXED64:
            size = 8
        else:
            raise WireError(f"a field of kind {kind}")
        if at + size > end:
            raise WireError("a field that ends beyond its message")
        yield key >> 3, kind, at, at + size
        at += size


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError("a number without an end")
