"""Any file of history, told by what is in it: a saved window, a long table, OpenMetrics text, a framework's log; or
what a tracker kept of a run, in SQLite files (MLflow, trackio) and MLflow's folders: read, never written.

mlflow/mlflow 3.17: store/tracking/file_store.py (metrics/NAME: a line `milliseconds value step` each);
store/tracking/dbmodels/models.py (table `metrics`). gradio-app/trackio 0.43: sqlite_storage.py (table `metrics`, a JSON
object a row).
"""

from __future__ import annotations

import csv
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.faces import Text, text
from fleetsim.history import tensorboard, wandb
from fleetsim.history.faults import bounded
from fleetsim.history.history import History, Note
from fleetsim.history.long_table import COLUMNS, form_of_parquet, is_parquet, load_long
from fleetsim.history.openmetrics import LineError, parse_series, read_openmetrics
from fleetsim.history.option_names import SAVED, SELECTOR
from fleetsim.history.run_log import KNOWN, framework_of, read_run_log, run_log, wanted
from fleetsim.history.saved_window import load_history
from fleetsim.history.step_logs.console import shape_of
from fleetsim.history.step_logs.packed import RunLogTable, Scalars
from fleetsim.history.step_logs.rows import flat, is_cut_jsonl
from fleetsim.history.text import delimiter_of, number
from fleetsim.history.wrapped import BROKEN, open_text
from fleetsim.json_text import from_loose_json

MAGIC = b"SQLite format 3\x00"
# Names of runs that a refusal tells.
_SHOWN = 6


def rows_of(path: Path, query: str, values: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, as they come. Raises InputError."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            base.text_factory = lambda text: text.decode("utf-8", "replace")
            yield from base.execute(query, tuple(values))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        rule = f"the database does not read ({error})"
        raise InputError([Problem("history", str(path), rule, "give a copy that nobody writes to")]) from None


def run_of(path: Path, query: str, run: str) -> str:
    """The run that is asked for, or the only one. query: gives (id, name) of each. Raises InputError."""
    runs = {str(name): str(key) for key, name in rows_of(path, query, ())}
    if run in runs:
        return runs[run]
    if run:
        problem = Problem("history", f"{path}#{run}", "has no such run", f"its runs: {_shown(runs)}")
        raise InputError([problem])
    return runs[the_only(path, runs, f"say which: {path.name}#RUN, of")]


def the_only(path: Path, runs: Collection[str], remedy: str) -> str:
    """The one run of a place. remedy: what to do where there is another number of them; their names stand behind it.

    Raises InputError.
    """
    if len(runs) != 1:
        rule = f"holds {len(runs)} runs, and one is read at a time" if runs else "holds no run"
        raise InputError([Problem("history", str(path), rule, f"{remedy} {_shown(runs)}")])
    return next(iter(runs))


def _shown(runs: Collection[str]) -> str:
    return ", ".join(sorted(runs)[:_SHOWN]) or "none"


_MLFLOW_RUN = "SELECT DISTINCT run_uuid, run_uuid FROM metrics"
_MLFLOW_ROWS = "SELECT key, value, timestamp, step FROM metrics WHERE run_uuid = ? AND NOT is_nan ORDER BY timestamp"


def is_run(folder: Path) -> bool:
    """Whether it is a run of a file store."""
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir()


def read_run(folder: Path, wanted: Callable[[str], bool] | None) -> tuple[RunLogTable, list[Note]]:
    """The metrics of a run's folder. Raises InputError: none, or a line that is none."""
    scalars, notes = Scalars(wanted), []
    root = folder / "metrics"
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        column = scalars.of(path.relative_to(root).as_posix())
        if column is None:
            continue
        wrong = 0
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                parts = line.split()
                try:
                    time_ms, value, step = float(parts[0]), float(parts[1]), int(parts[2])
                except (ValueError, IndexError):
                    wrong += bool(parts)
                    continue
                column[0].append(step)
                column[1].append(value)
                column[2].append(time_ms / 1000.0)
        if wrong:
            text = f"{path.name}: {units.plural(wrong, 'line')} left out: not `milliseconds value step`."
            notes.append(Note("partial", text))
    if not scalars.names:
        rule, remedy = "the run has no metrics", "give the folder of a run that logged"
        raise InputError([Problem("history", str(folder), rule, remedy)])
    return scalars.table(), notes


def read_database(path: Path, run: str, wanted: Callable[[str], bool] | None) -> tuple[RunLogTable, list[Note]]:
    """The metrics of one run of an MLflow database. run: "" = the only one. Raises InputError."""
    scalars = Scalars(wanted)
    for key, value, time_ms, step in rows_of(path, _MLFLOW_ROWS, (run_of(path, _MLFLOW_RUN, run),)):
        column = scalars.of(str(key))
        if column is not None and all(isinstance(x, int | float) for x in (value, time_ms)) and isinstance(step, int):
            column[0].append(step)
            column[1].append(float(value))
            column[2].append(time_ms / 1000.0)
    return scalars.table(), []


_TRACKIO_RUN = "SELECT DISTINCT run_name, run_name FROM metrics"
_TRACKIO_ROWS = "SELECT step, timestamp, metrics FROM metrics WHERE run_name = ? ORDER BY id"


def read_project(path: Path, run: str, wanted: Callable[[str], bool] | None) -> tuple[RunLogTable, list[Note]]:
    """The metrics of one run of a project. run: "" = the only one. Raises InputError."""
    table = RunLogTable(wanted)
    wrong = 0
    for step, moment, said in rows_of(path, _TRACKIO_ROWS, (run_of(path, _TRACKIO_RUN, run),)):
        try:
            metrics = from_loose_json(said)
            row = {"step": float(step), "_timestamp": number(moment), **dict(flat(metrics))}
        except (ValueError, TypeError, AttributeError):
            wrong += 1
            continue
        table.add({name: value for name, value in row.items() if value is not None})
    notes = [Note("partial", f"{units.plural(wrong, 'row')} of the project left out: no JSON object.")] if wrong else []
    return table, notes


_SCALAR, _SAVED = b"Wall time,Step,Value", re.compile(r"run-(.+?)-tag-(.+?)(?: \(\d+\))?\.csv")
_NO_FILE = re.compile(r'[\\/:*?"<>|]')  # signs that no file's name has


def read_scalars(paths: Sequence[Path], wanted: Callable[[str], bool] | None) -> tuple[RunLogTable, list[Note]]:
    """What TensorBoard's page saves as CSV, a scalar a file (`run-RUN-tag-TAG.csv`). The browser writes signs of the
    tag that no file's name has as "_": it is the metric of a framework that would be written so."""
    scalars, metrics = Scalars(wanted), {_NO_FILE.sub("_", metric): metric for metric in sorted(KNOWN)}
    for path in sorted(paths):
        found = _SAVED.fullmatch(path.name)
        tag = found[2] if found is not None else path.stem
        if (column := scalars.of(metrics.get(tag, tag))) is None:
            continue
        with open_text(path, "") as file:
            for cells in csv.reader(file):
                time_s, step, value = (number(cell) for cell in (*cells, "", "", "")[:3])
                if time_s is not None and step is not None and value is not None:  # neither the header nor cut off
                    column[0].append(int(step))
                    column[1].append(value)
                    column[2].append(time_s)
    return scalars.table(), []


Reader = Callable[[Callable[[str], bool] | None], tuple[RunLogTable, list[Note]]]

_FIRST = 512
_EVENTS = "*tfevents*"


def tracker_of(given: Path) -> Reader | None:
    """What reads the run; None where no tracker wrote it. `DATABASE#RUN` names one run of several; a run of wandb has
    an address. Raises InputError: several runs and none is named."""
    if (address := wandb.run_address(str(given))) is not None:
        return partial(wandb.read_wandb_api, str(given), *address)
    name, _, run = str(given).rpartition("#") if "#" in str(given) else (str(given), "", "")
    path = given if given.exists() or not run else Path(name)
    if path.is_dir():
        return _of_folder(path)
    if not path.is_file():
        return None
    start = _start_of(path)
    if start.startswith(wandb.MAGIC):
        return partial(wandb.read_wandb, path)
    if start.startswith(MAGIC):
        return _of_database(path, run)
    if start.startswith(_SCALAR):
        return partial(read_scalars, [path])
    return partial(tensorboard.read_events, [path]) if tensorboard.is_events(start) else None


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_FIRST)


def _of_database(path: Path, run: str) -> Reader:
    columns = {str(row[1]) for row in rows_of(path, "PRAGMA table_info(metrics)", ())}
    if {"run_uuid", "key", "is_nan"} <= columns:
        return partial(read_database, path, run)
    if {"run_name", "step", "metrics"} <= columns:
        return partial(read_project, path, run)
    rule = "is a database of neither MLflow nor trackio"
    raise InputError([Problem("history", str(path), rule, "export the run as CSV or JSONL")])


def _of_folder(path: Path) -> Reader | None:
    """A folder of one run, or one that holds the folder of one run alone."""
    if is_run(path):
        return partial(read_run, path)
    events = [p for p in path.rglob(_EVENTS) if p.is_file()]
    if events:
        return partial(tensorboard.read_events, [p for p in events if p.parent == _one_folder(path, events)])
    files = list({p.resolve() for p in path.rglob("*.wandb") if p.is_file()})
    if files:
        return partial(wandb.read_wandb, _only(path, files))
    if saved := [p for p in path.glob("*.csv") if _start_of(p).startswith(_SCALAR)]:
        names = {found[1] for p in saved if (found := _SAVED.fullmatch(p.name)) is not None}
        if len(names) > 1:
            the_only(path, names, "leave the files of one of them:")
        return partial(read_scalars, saved)
    runs = [p.parent for p in path.rglob("meta.yaml") if is_run(p.parent)]
    return partial(read_run, _only(path, runs)) if runs else None


def _one_folder(path: Path, events: Sequence[Path]) -> Path:
    """The folder with event files that stands above all others with some: sub-runs (hyperparameters, groups of curves)
    are beside the run."""
    folders = sorted({p.parent for p in events}, key=lambda p: len(p.parts))
    if all(f.is_relative_to(folders[0]) for f in folders):
        return folders[0]
    return _only(path, folders)


def _only(path: Path, runs: Sequence[Path]) -> Path:
    return Path(the_only(path, [str(r) for r in runs], "give one of them:"))


_START = 1 << 16
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
        form = "step log" if path.is_dir() else form_of(path)
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InputError([Problem("history", str(path), rule, "check the path and its permissions")]) from None
    if form != "openmetrics":
        _no_selector(selector)
    if framework is not None and form in ("step log", "unknown"):
        return read_run_log(path, framework, mapping)
    if form == "table":
        saved = is_parquet(path) and form_of_parquet(path) == "saved window"
        return load_history(path) if saved else load_long(path, step_s, mapping)
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
    (unpacked)."""
    if is_parquet(path):
        return "step log" if form_of_parquet(path) == "step log" else "table"
    try:
        with open_text(path) as unpacked:
            text = unpacked.read(_START)
    except BROKEN:
        return "unknown"
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
    if first[0] in "{[" or is_cut_jsonl(first, *lines[1:2] or [""]) or shape_of(lines) is not None:
        return "step log"
    cells = [c.strip() for c in next(csv.reader([first], delimiter=delimiter_of(first)), [])]
    if set(COLUMNS) <= set(cells):
        return "table"
    if "\x00" in text or "\ufffd" in text[: _START // 2]:
        return "unknown"
    return "step log" if len(cells) > 1 or (len(text) >= _START and _later(path)) else "unknown"


def _later(path: Path) -> bool:
    """Whether a step of a framework's console comes after the first 64 KiB, below what a job prints at its start."""
    try:
        with open_text(path) as file:
            return shape_of(file) is not None
    except BROKEN:
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
