"""Where a calibration's files lie: the profile, its raw measurements beside it, the engine's log."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetsim.calibrate.raw import records_of
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.files import new_file, reason, unwritten

SUFFIX = ".profile.json"


@dataclass(frozen=True, slots=True)
class OutputPaths:
    """The files of one calibration. raw: while it runs; packed: when it is done; log: what the engine printed."""

    profile: Path
    raw: Path
    packed: Path
    log: Path


def places_of(output: str) -> OutputPaths:
    """The files that go with the profile file `output`. Raises InputError for a name that cannot be one."""
    if "\0" in output or not output.endswith(".json") or Path(output).name in (".json", SUFFIX):
        remedy = f"let it end in {SUFFIX}, for example h200-7b{SUFFIX}"
        raise InputError([Problem("--output", output, "is no name for a profile", remedy)])
    profile = new_file("--output", output, overwrite=True)
    stem = profile.name.removesuffix(SUFFIX).removesuffix(".json")
    raw = profile.with_name(f"{stem}.raw.jsonl")
    return OutputPaths(profile, raw, raw.with_name(f"{raw.name}.gz"), profile.with_name(f"{stem}.log"))


def slug(text: str) -> str:
    """A model's or server's name as a file name: Qwen/Qwen2.5-7B -> qwen2.5-7b."""
    last = text.rstrip("/").rsplit("/", 1)[-1] or text
    return re.sub(r"[^a-z0-9.]+", "-", last.lower()).strip("-.") or "engine"


def prepare(places: OutputPaths, *, resume: bool, force: bool) -> frozenset[str]:
    """Makes the places ready for measuring. Returns what ended in earlier sessions, if this one resumes them.

    resume: go on with the raw measurements that are there (packed ones are unpacked again). force: throw them away.
    Raises InputError where files are in the way, or where there is nothing to resume; OutsideError if the disk refuses.
    """
    old = [p for p in (places.raw, places.packed) if os.path.lexists(p)]
    if resume and not old:
        rule = "there are no measurements to go on with"
        raise InputError([Problem("--resume", str(places.raw), rule, "leave --resume out, or give the same --output")])
    if not resume and not force:
        problems = [
            Problem("--output", str(p), "exists already", remedy)
            for p, remedy in (
                *((p, "go on with it with --resume, or throw it away with --force") for p in old),
                *([(places.profile, "choose another name, or overwrite it with --force")] * places.profile.exists()),
            )
        ]
        if problems:
            raise InputError(problems)
    try:
        if force and not resume:
            for p in old:
                p.unlink()
            return frozenset()
        if places.packed in old and places.raw not in old:
            places.raw.write_bytes(gzip.decompress(places.packed.read_bytes()))
    except (OSError, EOFError, zlib.error) as error:
        raise OutsideError(f"{str(places.packed)!r}: cannot be unpacked: {reason(error)}") from None
    return ended(places.raw) if resume else frozenset()


@contextmanager
def locked(places: OutputPaths) -> Iterator[None]:
    """Nobody else measures into these places meanwhile. Raises InputError where somebody does."""
    lock = places.raw.with_name(f".{places.raw.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutsideError(f"{unwritten(lock, error)}; choose a folder of yours with -o") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        remedy = "wait for it, stop it, or choose another name"
        problem = Problem("--output", str(places.raw), "another calibration is writing it now", remedy)
        raise InputError([problem]) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def same_engine(places: OutputPaths, asked: dict[str, Any]) -> None:
    """Raises InputError where what is to be resumed was asked of another engine."""
    file = places.raw if places.raw.exists() else places.packed
    if not file.exists():
        return
    records, _ = records_of(file)
    before = next((r["asked"] for r in records if r.get("t") == "meta" and isinstance(r.get("asked"), dict)), None)
    if before is None:
        return
    now = json.loads(json.dumps(asked, default=str))
    problems = [
        Problem(
            f"--resume: {name}",
            now.get(name),
            f"was {before.get(name)!r} when {file} was begun, and a profile holds for one engine",
            "ask for the same, or give another --output",
        )
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if problems:
        raise InputError(problems)


def ended(raw: Path) -> frozenset[str]:
    """What earlier sessions ended: the keys of their loads, as `fleetsim.calibrate.loads.key_of` makes them."""
    from fleetsim.calibrate.loads import key_of

    records, _ = records_of(raw)
    return frozenset(
        key_of(str(r.get("ph")), dict(r.get("lab") or {})) for r in records if r.get("t") == "seg" and not r.get("cut")
    )
