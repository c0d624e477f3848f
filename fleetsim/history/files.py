"""Any file of history, told by what is in it: a saved window, a long table, OpenMetrics text or a framework's log."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from fleetsim.errors import InputError, Problem
from fleetsim.faces import Text, text
from fleetsim.history.faults import bounded
from fleetsim.history.history import History
from fleetsim.history.long_table import COLUMNS, is_saved, load_long
from fleetsim.history.openmetrics import LineError, parse_series, read_openmetrics
from fleetsim.history.option_names import SAVED, SELECTOR
from fleetsim.history.run_log import framework_of, read_run_log, run_log, wanted
from fleetsim.history.saved_window import load_history
from fleetsim.history.step_logs.console import shape_of
from fleetsim.history.text import open_text
from fleetsim.history.trackers import tracker_of

_START = 1 << 16
_PARQUET = b"PAR1"
_SAMPLE = re.compile(r"[ \t]+[-+0-9.eE]*(?:Inf|NaN|[0-9])\S*(?:[ \t]+[-+0-9.eE]+)?(?:[ \t]+#.*)?[ \t]*$", re.IGNORECASE)
_FORMS = text("{}, OpenMetrics text with timestamps, or a step log (JSONL, JSON, CSV, a tracker's run)", SAVED)

_GIVE = text("give {}; docs/run_logs.md shows each", _FORMS)
_SCENARIO = text("a scenario goes to {}; a history is {}", Text("--scenario", "job"), _FORMS)


def read_file(
    path: Path | str,
    framework: str | None = None,
    mapping: Mapping[str, str] | None = None,
    step_s: float | None = None,
    selector: str = "",
) -> History:
    """Read it as what it is.

    framework: of a step log, where its columns do not tell. mapping: signal (or a step log's column) -> metric. step_s:
    the grid, where the file leaves it open. selector: label matchers, for OpenMetrics text. Raises InputError: no such
    file (with the nearest name), a form that is not known, a selector for a form without labels, the engines of several
    jobs, and all that the readers raise.
    """
    if framework is not None:
        framework_of(framework)  # a wrong name is told of every form, also of one that needs none
    return bounded(_read(Path(path), framework, mapping, step_s, selector))


def _read(
    path: Path, framework: str | None, mapping: Mapping[str, str] | None, step_s: float | None, selector: str
) -> History:
    try:
        if (reader := tracker_of(path)) is not None:
            _no_selector(selector)
            table, notes = reader(wanted(mapping or {}))
            return run_log(table, path, framework, mapping or {}, notes)
        if not path.exists():
            raise InputError([_not_there(path)])
        if path.is_dir():
            found = ", ".join(sorted(p.name for p in path.iterdir())[:5]) or "nothing"
            raise InputError([Problem("history", str(path), f"holds no run of a tracker, it has {found}", _GIVE)])
        form = form_of(path)
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InputError([Problem("history", str(path), rule, "check the path and its permissions")]) from None
    if form != "openmetrics":
        _no_selector(selector)
    if framework is not None and form in ("step log", "unknown"):
        return read_run_log(path, framework, mapping)
    if form == "table":
        return load_history(path) if is_saved(path) else load_long(path, step_s, mapping)
    if form == "openmetrics":
        return read_openmetrics(path, step_s, mapping, selector)
    if form == "step log":
        return read_run_log(path, framework, mapping)
    if path.suffix in (".yaml", ".yml"):
        raise InputError([Problem("history", str(path), "YAML is no history", _SCENARIO)])
    rule = "the file is empty" if path.stat().st_size == 0 else "the file is none of the forms that fleetsim reads"
    raise InputError([Problem("history", str(path), rule, _GIVE)])


def _no_selector(selector: str) -> None:
    if selector:
        rule = "picks series by their labels, which OpenMetrics text and a Prometheus have"
        raise InputError([Problem(SELECTOR, selector, rule, "read the history again with it, and save that")])


def form_of(path: Path) -> str:
    """table (a saved window, or a long table from elsewhere) | openmetrics | step log | unknown, from the first 64 KiB
    (unpacked, when it is gzip)."""
    with path.open("rb") as file:
        start = file.read(_START)
    if start[:2] == b"\x1f\x8b":
        try:
            with gzip.open(path) as packed:
                start = packed.read(_START)
        except (OSError, EOFError):
            return "unknown"
    if start[:4] == _PARQUET:
        return "table"
    text = start.decode("utf-8-sig", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "unknown"
    first = lines[0]
    plain = [line for line in lines[:200] if not line.startswith("#")]
    # A line or two of any text look like a sample: a YAML file's `steps: 4` does.
    if plain and 2 * sum(map(_is_sample, plain)) >= len(plain):
        return "openmetrics"
    if re.match(r"# (HELP|TYPE|UNIT|EOF)\b", first):
        return "openmetrics"
    if first[0] in "{[" or shape_of(lines) is not None:
        return "step log"
    cells = [c.strip() for c in next(csv.reader([first]), [])]
    if set(COLUMNS) <= set(cells):
        return "table"
    if "\x00" in text or "\ufffd" in text[: _START // 2]:
        return "unknown"
    return "step log" if len(cells) > 1 or (len(start) >= _START and _later(path)) else "unknown"


def _later(path: Path) -> bool:
    """Whether a step of a framework's console comes after the first 64 KiB, below what a job prints at its start."""
    try:
        with open_text(path) as file:
            return shape_of(file) is not None
    except (OSError, EOFError, UnicodeDecodeError):
        return False


def _is_sample(line: str) -> bool:
    """A line of OpenMetrics or Prometheus text."""
    try:
        _, _, at = parse_series(line)
    except LineError:
        return False
    return _SAMPLE.fullmatch(line, at) is not None


def _not_there(path: Path) -> Problem:
    """The nearest name in the same directory, or the nearest directory that is there."""
    room = path.parent
    if not room.is_dir():
        there = next((p for p in room.parents if p.is_dir()), Path())
        return Problem("history", str(path), f"there is no directory {room}", f"look in {there}")
    names = [p.name for p in room.iterdir()]
    near = get_close_matches(path.name, names, n=1, cutoff=0.6)
    remedy = f"did you mean {room / near[0]}?" if near else text("give {}", _FORMS)
    if path.suffix in (".yaml", ".yml"):
        remedy = _SCENARIO
    return Problem("history", str(path), "no such file or directory", remedy)
