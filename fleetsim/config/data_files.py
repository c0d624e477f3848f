"""Scenarios and calibration data that come with fleetsim, in a wheel or in a source checkout."""

from __future__ import annotations

import difflib
import json
import os
import stat
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from fleetsim.errors import InputError, Problem
from fleetsim.json_text import from_json

T = TypeVar("T")

KINDS = ("scenarios", "calibration")
# Tables of published figures, the ledger of sealed cases and what the page says of them, beside the scenarios that are
# checked against them.
TABLES = ("published/sealed", "published/weight_sync", "published/page")
# Published cases are no scenarios: each holds one for every arm (fleetsim/validate/case.py).
CASE = ".case"
PRESETS = "presets"
_PACKAGE = Path(__file__).resolve().parents[1]


def data_folder(kind: str) -> Path:
    """The folder of a kind of shipped data: inside the package when installed, beside it in a checkout."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
    inside = _PACKAGE / "_data" / kind
    return inside if inside.is_dir() else _PACKAGE.parent / kind


def data_path(kind: str, name: str) -> Path:
    """The path of one shipped file. `kind` is "scenarios" or "calibration", `name` relative to it, with its ending.

    Raises InputError when fleetsim ships no such file.
    """
    path = data_folder(kind) / name
    if not name or ".." in Path(name).parts or Path(name).is_absolute() or not os.path.isfile(path):
        known = sorted(p.relative_to(data_folder(kind)).as_posix() for p in data_folder(kind).rglob("*") if p.is_file())
        close = difflib.get_close_matches(name, known, n=1)
        remedy = f'did you mean "{close[0]}"?' if close else f"shipped: {', '.join(known[:40]) or 'nothing'}"
        raise InputError([Problem(kind, name, f"fleetsim ships no such file under {kind}/", remedy)])
    return path


# Numbers of what a program of calibration/ writes.
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


def fitted(kind: type[T], source: Path | str, name: str, program: str) -> T:
    """Records of a kind, as a program wrote them: in a file, or a JSON text. name: of the file, in errors.

    Raises InputError for anything else.
    """
    try:
        return msgspec.json.decode(source if isinstance(source, str) else source.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        rule = f"the JSON that {program} writes ({error})"
        raise InputError([Problem(name, str(source)[:100], rule, f"run {program} again")]) from error


def shipped_scenarios() -> dict[str, Path]:
    """Names (`published/trl-async-grpo`) and paths of all shipped scenarios, sorted by name."""
    folder = data_folder("scenarios")
    found = {p.relative_to(folder).with_suffix("").as_posix(): p for e in ("*.yaml", "*.yml") for p in folder.rglob(e)}
    return {name: found[name] for name in sorted(found) if name not in TABLES and not name.endswith(CASE)}


def find_scenario(argument: str | os.PathLike[str]) -> Path:
    """The file that a SCENARIO argument means: a path, or the name of a shipped scenario, with or without its folder.

    Raises InputError when it is neither.
    """
    text = os.fspath(argument)
    path = Path(text)
    if "\0" not in text and text and os.path.lexists(path):
        return path
    shipped = shipped_scenarios()
    matches = [p for name, p in shipped.items() if text in (name, name.rpartition("/")[2])]
    if len(matches) == 1:
        return matches[0]
    by_word = {word: name for name in shipped for word in (name.rpartition("/")[2], name)}
    close = difflib.get_close_matches(text[:100], by_word, n=1, cutoff=0.7)
    if close:
        remedy = f'did you mean the shipped "{by_word[close[0]]}"?'
    else:
        remedy = "give a path, or the name of a shipped one: see `fleetsim scenario ls`"
    raise InputError([Problem("SCENARIO", text, "no such file, and no shipped scenario of this name", remedy)])


def presets() -> dict[str, Path]:
    """Names (`verl-fully-async`) and paths of the presets, one per RL framework and mode, sorted by name."""
    return {p.stem: p for name, p in shipped_scenarios().items() if name.startswith(f"{PRESETS}/")}


def is_preset(argument: object) -> bool:
    """Whether a SCENARIO argument means the file of a preset."""
    if not isinstance(argument, (str, os.PathLike)):
        return False
    return find_scenario(argument).parent.resolve() == (data_folder("scenarios") / PRESETS).resolve()


def find_preset(name: str) -> Path:
    """The file of a preset: its name in any case, with or without its folder, with underscores for hyphens, or the only
    one that begins so.

    Raises InputError for a name that means none, or several.
    """
    known = presets()
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-").removeprefix(f"{PRESETS}/")
    if wanted in known:
        return known[wanted]
    begun = [n for n in known if wanted and n.startswith(wanted)]
    if len(begun) == 1:
        return known[begun[0]]
    if begun:
        rule, remedy = "is short for several presets", f"use one of {', '.join(begun)}"
    else:
        close = difflib.get_close_matches(wanted[:100], known, n=3) or [n for n in known if wanted and wanted in n][:3]
        rule = "no preset of this name"
        remedy = f"did you mean {' or '.join(close)}?" if close else "see `fleetsim scenario ls`"
    raise InputError([Problem("--preset", name, rule, remedy)])


# --- Reading an input file without trusting it: what it is and how big it is, before it is opened.

_SECTION = "write at least one section, or start from a preset"


def changed_ns(path: str) -> int:
    """When a file was written, for caches that read an edited one again; 0 where there is none, which reading says."""
    return os.stat(path).st_mtime_ns if os.path.isfile(path) else 0


def read_text(path: str | os.PathLike[str], what: str, max_bytes: int) -> str:
    """The UTF-8 text of a regular file of at most `max_bytes`. `what` names it in errors.

    Raises InputError for a missing file, a folder, a pipe or device, an unreadable, too big or binary file.
    """
    shown = os.fspath(path)

    def refuse(rule: str, remedy: str) -> InputError:
        return InputError([Problem(what, shown, rule, remedy)])

    try:
        info = os.stat(path)
        if stat.S_ISDIR(info.st_mode):
            raise refuse("is a directory", "give a file")
        if not stat.S_ISREG(info.st_mode):
            raise refuse("is no regular file", "write it to a file first")
        if info.st_size > max_bytes:
            raise refuse(f"is too big: {info.st_size:,} bytes, at most {max_bytes:,} are read", "give the right file")
        with Path(path).open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except FileNotFoundError:
        raise refuse("no such file", "check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refuse(f"cannot be read: {reason}", "check the path and its permissions") from None
    if len(data) > max_bytes:
        raise refuse(f"is too big: more than {max_bytes:,} bytes", "give the right file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(f"is not UTF-8 text (byte {error.start})", "save it as UTF-8, or give the right file") from None
    if "\0" in text:
        raise refuse("is binary, not text", "give the right file")
    if not text.strip():
        raise refuse("is empty", _SECTION if what == "SCENARIO" else "give the right file")
    return text


def read_json(path: str | os.PathLike[str], what: str, max_bytes: int, remedy: str) -> object:
    """What a JSON file of at most `max_bytes` holds. `what` names it in errors, with this remedy where it is no JSON.

    Raises InputError as `read_text` does, and for a key that is given twice.
    """
    where, text = os.fspath(path), read_text(path, what, max_bytes)

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
        if twice:
            raise InputError([Problem(where, key, "this key is given twice", "keep one of them") for key in twice])
        return dict(pairs)

    try:
        value: object = from_json(text, pairs=once)
    except json.JSONDecodeError as error:
        rule = f"is not valid JSON: {error.msg}"
        raise InputError([Problem(f"{where}:{error.lineno}", None, rule, remedy)]) from None
    except ValueError as error:
        raise InputError([Problem(where, None, str(error)[:160], remedy)]) from None
    return value
