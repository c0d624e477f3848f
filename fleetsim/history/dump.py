"""A `History` in a file and back: a directory of tables, one JSON file, or one long table.

    DIR/history.json       the header: grid, instances, histograms' bounds, step log, notes, source
    DIR/values.parquet     time, instance, engine, one column per signal (.csv without pyarrow)
    DIR/fleet.parquet      time, one column per signal of the job
    DIR/histogram.NAME...  time, instance, engine, sum, one column per bound

What is read is what was saved, bit for bit. `long_table.py` has the one-table form (.parquet, .csv).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.faces import text
from fleetsim.history import dump_header as head
from fleetsim.history.dump_header import Header, damaged
from fleetsim.history.dump_tables import Columns, Texts, floats, has_parquet, need_pyarrow, read_table, write_table
from fleetsim.history.history import Buckets, Floats, History
from fleetsim.history.long_table import load_long, save_long
from fleetsim.history.option_names import SAVED
from fleetsim.json_text import from_json

HEADER = "history.json"


def save_history(history: History, path: Path | str) -> None:
    """Write it: .json, .parquet and .csv are one file, anything else is a directory. All or nothing: what stood there
    stays until the new one is complete. Raises InputError (what stands there is something else), OutsideError."""
    path = Path(path)
    if path.suffix == ".parquet":
        need_pyarrow(path, "save")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".json", ".parquet", ".csv"):
            if path.is_dir():
                rule = f"a directory stands there, and {path.suffix} is one file"
                raise InputError([Problem("save", str(path), rule, "give another name")])
            write = _save_json if path.suffix == ".json" else save_long
            _replace_file(path, lambda p: write(history, p))
        else:
            _replace_directory(path, lambda p: _save_directory(history, p))
    except OSError as error:
        raise OutsideError(f"{path}: the history cannot be saved: {error}") from error


def load_history(path: Path | str) -> History:
    """What `save_history` wrote, or a long table from elsewhere. Raises InputError: missing, damaged, foreign."""
    path = Path(path)
    if path.is_dir():
        return _load_directory(path)
    if not path.is_file():
        raise InputError([Problem("history", str(path), "no such file or directory", text("give {}", SAVED))])
    with path.open("rb") as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    return _load_json(path) if start.startswith(b"{") else load_long(path)


# ------------------------------------------------------------------------------------------------------- one JSON file


def _save_json(history: History, path: Path) -> None:
    document = head.header_of(history)
    document["data"] = {
        "values": {k: [head.numbers(row) for row in v] for k, v in history.values.items()},
        "fleet": {k: head.numbers(v) for k, v in history.fleet.items()},
        "histograms": {
            k: {"counts": [[head.numbers(t) for t in i] for i in b.counts], "sums": [head.numbers(i) for i in b.sums]}
            for k, b in history.histograms.items()
        },
    }
    path.write_text(json.dumps(document, allow_nan=False))


def _load_json(path: Path) -> History:
    where = str(path)
    try:
        document: Any = from_json(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError) as error:
        raise damaged(where, f"its JSON does not parse ({error})") from None
    data = document.pop("data", None) if isinstance(document, dict) else None
    header = head.check_header(document, where)

    def part(*keys: str) -> Any:
        found: Any = data
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            raise damaged(where, f"data.{'.'.join(keys)} is missing")
        return found

    i, t = len(header.instances), len(header.times)
    return _history(
        header,
        lambda k: head.arrays(part("values", k), f"{where}: {k}", (i, t)),
        lambda k: head.arrays(part("fleet", k), f"{where}: {k}", (t,)),
        lambda k, h, e: (
            head.arrays(part("histograms", k, "counts"), f"{where}: {k}", (i, h, e)),
            head.arrays(part("histograms", k, "sums"), f"{where}: {k}", (i, h)),
        ),
    )


# --------------------------------------------------------------------------------------------------------- a directory


def _save_directory(history: History, path: Path) -> None:
    suffix = ".parquet" if has_parquet() else ".csv"
    if history.values:
        keys = _keys(history, history.times)
        write_table(path / f"values{suffix}", {**keys, **{k: v.ravel() for k, v in history.values.items()}})
    if history.fleet:
        write_table(path / f"fleet{suffix}", {"time": history.times, **history.fleet})
    for name, b in history.histograms.items():
        columns = {f"le={le}": b.counts[:, :, e].ravel() for e, le in enumerate(b.le.tolist())}
        write_table(path / f"histogram.{name}{suffix}", {**_keys(history, b.times), "sum": b.sums.ravel(), **columns})
    (path / HEADER).write_text(json.dumps(head.header_of(history), allow_nan=False))


def _keys(history: History, times: Floats) -> Columns:
    n = len(times)
    return {
        "time": np.tile(times, len(history.instances)),
        "instance": Texts.of(i.name for i in history.instances for _ in range(n)),
        "engine": Texts.of(i.engine for i in history.instances for _ in range(n)),
    }


def _load_directory(path: Path) -> History:
    try:
        written = (path / HEADER).read_text(encoding="utf-8")
    except FileNotFoundError:
        found = ", ".join(sorted(p.name for p in path.iterdir())[:5]) or "nothing"
        rule = f"is no saved history: it has no {HEADER}, it has {found}"
        raise InputError([Problem("history", str(path), rule, text("give {}", SAVED))]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(str(path / HEADER), f"cannot be read: {error}") from None
    header = head.parse_header(written, str(path / HEADER))
    i, t = len(header.instances), len(header.times)
    tables: dict[str, dict[str, Any]] = {}

    def column(table: str, name: str, rows: int) -> Floats:
        if table not in tables:
            file = next((f for s in (".parquet", ".csv") if (f := path / f"{table}{s}").is_file()), None)
            if file is None:
                raise damaged(str(path), f"the table {table} is missing")
            tables[table] = read_table(file)[0]
            _check_keys(header, table, tables[table], path)
        if name not in tables[table]:
            raise damaged(str(path), f"the table {table} has no column {name}")
        out = floats(tables[table][name], f"{path}: {table}: {name}")
        if len(out) != rows:
            raise damaged(str(path), f"the table {table} has {len(out)} rows where {rows} belong")
        return out

    def histogram(name: str, h: int, e: int) -> tuple[Floats, Floats]:
        table = f"histogram.{name}"
        counts = np.empty((i, h, e))
        for k, le in enumerate(header.histograms[name].le):
            counts[:, :, k] = column(table, f"le={le}", i * h).reshape(i, h)
        return counts, column(table, "sum", i * h).reshape(i, h)

    return _history(
        header, lambda k: column("values", k, i * t).reshape(i, t), lambda k: column("fleet", k, t), histogram
    )


def _check_keys(header: Header, table: str, columns: Mapping[str, Any], path: Path) -> None:
    """Raises InputError when the rows of a table are not those of the header, in its order."""
    one = header.histograms[table.removeprefix("histogram.")].times if table.startswith("histogram.") else header.times
    n = 1 if table == "fleet" else len(header.instances)
    times = floats(columns.get("time", np.array([])), f"{path}: {table}: time")
    ok = len(times) == n * len(one) and (times.reshape(n, len(one)) == np.array(one)).all()
    if ok and table != "fleet":
        ok = list(columns.get("instance", ())) == [i.name for i in header.instances for _ in one]
        ok = ok and list(columns.get("engine", ())) == [i.engine for i in header.instances for _ in one]
    if not ok:
        raise damaged(
            str(path), f"the rows of the table {table} are not those of {HEADER}: cut, sorted or of another dump"
        )


def _history(
    header: Header,
    values: Callable[[str], Floats],
    fleet: Callable[[str], Floats],
    histogram: Callable[[str, int, int], tuple[Floats, Floats]],
) -> History:
    histograms = {}
    for name, part in header.histograms.items():
        counts, sums = histogram(name, len(part.times), len(part.le))
        histograms[name] = Buckets(np.array(part.le), np.array(part.times), counts, sums)
    return History(
        times=np.array(header.times),
        step_s=header.step_s,
        instances=head.instances_of(header),
        values={k: values(k) for k in header.values},
        fleet={k: fleet(k) for k in header.fleet},
        histograms=histograms,
        configs=tuple(dict(c) for c in header.configs),
        steps=head.steps_of(header),
        notes=head.notes_of(header),
        source=header.source,
    )


# ------------------------------------------------------------------------------------------------------ all or nothing


def _replace_file(path: Path, write: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}-") as room:
        new = Path(room) / path.name
        write(new)
        os.replace(new, path)


def _replace_directory(path: Path, write: Callable[[Path], None]) -> None:
    if path.exists() and not (path / HEADER).is_file() and not (path.is_dir() and not any(path.iterdir())):
        rule = "something else stands there"
        raise InputError([Problem("save", str(path), rule, "give another name; only an earlier dump is replaced")])
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as room:
        new, old = Path(room) / "new", Path(room) / "old"
        new.mkdir()
        write(new)
        if path.exists():
            os.replace(path, old)
        try:
            os.replace(new, path)
        except OSError:
            if old.exists():
                os.replace(old, path)
            raise
        shutil.rmtree(old, ignore_errors=True)
