"""The long table: one row per value, in Parquet or CSV, written by --save or by anyone else.

    time      unix seconds, or ISO 8601 (without an offset: UTC)
    instance  pod or scrape target; empty for a signal of the whole job
    engine    data-parallel rank; may be missing (0)
    signal    fleetsim's name of it, or the name of a metric as the engine exposes it (with _bucket or _sum)
    le        only for histograms: the bucket's upper bound, or `sum`; may be missing
    value     the number

A table that --save wrote carries the header along (CSV: as a first comment line) and reads back bit for bit. One from
elsewhere is put on a grid, as OpenMetrics text is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.history import dump_header as head
from fleetsim.history.catalogue import Catalogue, Exposed, SignalMetrics, wanted
from fleetsim.history.dump_header import Header, damaged
from fleetsim.history.dump_tables import Column, Texts, floats, read_table, write_table
from fleetsim.history.grid import history_of
from fleetsim.history.history import Buckets, Floats, History, Note
from fleetsim.history.raw import RawSeries
from fleetsim.history.signals import BY_NAME, SIGNALS

COLUMNS = ("time", "instance", "signal", "value")
Key = tuple[str, str, str, str]  # instance, engine, signal, le
Group = tuple[Key, Floats, Floats]  # its times and values


def save_long(history: History, path: Path) -> None:
    """One row per value that is there; NaN is left out."""
    parts: list[tuple[Key, Floats, Floats]] = []
    for signal, rows in history.values.items():
        parts += [
            ((i.name, i.engine, signal, ""), history.times, r) for i, r in zip(history.instances, rows, strict=True)
        ]
    parts += [(("", "", signal, ""), history.times, row) for signal, row in history.fleet.items()]
    for signal, b in history.histograms.items():
        for k, i in enumerate(history.instances):
            key = (i.name, i.engine, signal)
            parts += [((*key, str(le)), b.times, b.counts[k, :, e]) for e, le in enumerate(b.le.tolist())]
            parts.append(((*key, "sum"), b.times, b.sums[k]))
    there = [~np.isnan(values) for _, _, values in parts]
    counts = np.array([int(t.sum()) for t in there], dtype=np.int64)

    def texts(index: int) -> Texts:
        coded = Texts.of(key[index] for key, _, _ in parts)
        return Texts(np.repeat(coded.codes, counts), coded.names)

    def numbers(arrays: Sequence[Floats]) -> Floats:
        out: Floats = np.concatenate([a[k] for a, k in zip(arrays, there, strict=True)] or [np.array([])])
        return out

    write_table(
        path,
        {
            "time": numbers([t for _, t, _ in parts]),
            "instance": texts(0),
            "engine": texts(1),
            "signal": texts(2),
            "le": texts(3),
            "value": numbers([v for _, _, v in parts]),
        },
        meta=json.dumps(head.header_of(history), allow_nan=False),
    )


def load_long(path: Path, step_s: float | None = None, mapping: Mapping[str, str] | None = None) -> History:
    """Raises InputError: columns missing, cells that are no numbers or times, nothing that fleetsim knows."""
    columns, meta = read_table(path)
    missing = [c for c in COLUMNS if c not in columns]
    if missing:
        rule = f"a long table has the columns {', '.join(COLUMNS)}; {', '.join(missing)} missing"
        raise InputError([Problem(str(path), ", ".join(columns)[:80], rule, "name the columns so (docs/run_logs.md)")])
    values = floats(columns["value"], f"{path}: value")
    times = _times(columns["time"], f"{path}: time")
    none = Texts(np.zeros(len(values), dtype=np.int64), [""])
    keys = [_texts(columns.get(name, none)) for name in ("instance", "engine", "signal", "le")]
    groups = _groups(keys, times, values)
    if meta is not None:
        return _exact(head.parse_header(meta, str(path)), groups, path)
    series = [_series(*group) for group in groups]
    catalogue = Catalogue(_also_by_name(wanted(mapping)))
    notes = _unknown(series, catalogue, path)
    return history_of(series, catalogue, step_s=step_s, source=path.name, notes=notes)


def _times(cells: Column, where: str) -> Floats:
    try:
        out = floats(cells, where)
    except InputError:
        assert isinstance(cells, Texts), "numbers need no parsing"
        out = np.array([_moment(c, where) if c else np.nan for c in cells.names])[cells.codes]
    if not np.isfinite(out).all():
        rule = "every row needs a time"
        raise InputError([Problem(where, "empty or not finite", rule, "unix seconds or ISO 8601 in every row")])
    return out


def _moment(text: str, where: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        rule = "must be unix seconds or ISO 8601"
        raise InputError([Problem(where, text, rule, "for instance 1763683200 or 2025-11-21T00:00:00Z")]) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _texts(cells: Column) -> Texts:
    """Cells as texts: a column of bounds or ranks may have come as numbers."""
    if isinstance(cells, Texts):
        return cells
    numbers, codes = np.unique(cells, return_inverse=True)
    return Texts(codes, ["" if math.isnan(x) else str(int(x)) if x.is_integer() else str(x) for x in numbers.tolist()])


def _groups(keys: Sequence[Texts], times: Floats, values: Floats) -> list[Group]:
    """Rows of one instance, engine, signal and bound together, in the order of the rows."""
    whole = np.zeros(len(times), dtype=np.int64)
    for one in keys:
        whole = whole * max(1, len(one.names)) + one.codes
    if not len(times):
        return []
    order = np.argsort(whole, kind="stable")
    groups: list[Group] = []
    for rows in np.split(order, np.flatnonzero(np.diff(whole[order])) + 1):
        instance, engine, signal, le = (one.names[one.codes[rows[0]]] for one in keys)
        groups.append(((instance, engine, signal, le), times[rows], values[rows]))
    return groups


def _exact(header: Header, groups: Sequence[Group], path: Path) -> History:
    """The saved History: every row must have its place in the header's grid."""
    row = {(i.name, i.engine): k for k, i in enumerate(header.instances)}
    i, t = len(row), len(header.times)
    if i != len(header.instances):
        raise damaged(str(path), "an instance stands twice in the header")
    out = {k: np.full((i, t), np.nan) for k in header.values}
    fleet = {k: np.full(t, np.nan) for k in header.fleet}
    histograms = {
        k: Buckets(
            np.array(h.le),
            np.array(h.times),
            np.full((i, len(h.times), len(h.le)), np.nan),
            np.full((i, len(h.times)), np.nan),
        )
        for k, h in header.histograms.items()
    }
    grid = np.array(header.times)
    bounds = {name: {str(le): k for k, le in enumerate(h.le)} for name, h in header.histograms.items()}
    try:
        for (instance, engine, signal, le), times, values in groups:
            if signal in out:
                out[signal][row[instance, engine], _places(grid, times, path)] = values
            elif signal in fleet:
                fleet[signal][_places(grid, times, path)] = values
            else:
                one = histograms[signal]
                at = _places(one.times, times, path)
                if le == "sum":
                    one.sums[row[instance, engine], at] = values
                else:
                    one.counts[row[instance, engine], at, bounds[signal][le]] = values
    except KeyError as error:
        raise damaged(str(path), f"a row speaks of {error.args[0]!r}, which the header does not have") from None
    return History(
        times=grid,
        step_s=header.step_s,
        instances=head.instances_of(header),
        values=out,
        fleet=fleet,
        histograms=histograms,
        configs=tuple(dict(c) for c in header.configs),
        steps=head.steps_of(header),
        notes=head.notes_of(header),
        source=header.source,
    )


def _places(grid: Floats, times: Floats, path: Path) -> NDArray[np.int64]:
    """Where each time stands in the grid, to the bit. Raises InputError."""
    if not len(grid):
        raise damaged(str(path), "a histogram has rows but no times")
    order = np.argsort(grid, kind="stable")
    found = np.minimum(np.searchsorted(grid[order], times), len(grid) - 1)
    at: NDArray[np.int64] = order[found]
    if (grid[at] != times).any():
        wrong = float(times[grid[at] != times][0])
        raise damaged(str(path), f"a row stands at {wrong}, which is no time of the header")
    return at


def _series(key: Key, times: Floats, values: Floats) -> RawSeries:
    instance, engine, signal, le = key
    labels = {"instance": instance} if instance else {}
    if engine:
        labels["engine"] = engine
    name = signal
    if le:
        name = f"{signal}_{'sum' if le == 'sum' else 'bucket'}" if signal in BY_NAME else signal
        labels["le"] = le
    return RawSeries(name, labels, times, values)


def _also_by_name(asked: Sequence[SignalMetrics]) -> list[SignalMetrics]:
    """Every signal under its own name too, also those that no known metric carries."""
    metrics = {w.signal.name: w.metrics for w in asked}
    return [SignalMetrics(s, (*metrics.get(s.name, ()), Exposed(s.name))) for s in SIGNALS]


def _unknown(series: Sequence[RawSeries], catalogue: Catalogue, path: Path) -> list[Note]:
    names = sorted({s.name for s in series if s.name not in catalogue})
    if not names:
        return []
    if all(s.name not in catalogue for s in series):
        near = [m for n in names for m in get_close_matches(n, BY_NAME, n=1, cutoff=0.5)][:3]
        remedy = f"did you mean {', '.join(near)}?" if near else f"signals: {', '.join(list(BY_NAME)[:12])}, ..."
        raise InputError([Problem(f"{path}: signal", ", ".join(names[:5]), "no signal has these names", remedy)])
    return [Note("other", f"Not read, because no signal has these names: {', '.join(names[:8])}.")]
