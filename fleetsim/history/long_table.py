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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.history import dump_header as head
from fleetsim.history.catalogue import Catalogue, Exposed, Wanted, wanted
from fleetsim.history.dump_header import Header, damaged
from fleetsim.history.dump_tables import floats, read_table, write_table
from fleetsim.history.grid import Raw, history_of
from fleetsim.history.history import Buckets, Floats, History, Note
from fleetsim.history.signals import BY_NAME, SIGNALS

COLUMNS = ("time", "instance", "signal", "value")
Key = tuple[str, str, str, str]  # instance, engine, signal, le


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
            parts += [
                ((i.name, i.engine, signal, str(le)), b.times, b.counts[k, :, e]) for e, le in enumerate(b.le.tolist())
            ]
            parts.append(((i.name, i.engine, signal, "sum"), b.times, b.sums[k]))
    there = [~np.isnan(values) for _, _, values in parts]
    counts = [int(t.sum()) for t in there]

    def texts(index: int) -> list[str]:
        return [key[index] for (key, _, _), n in zip(parts, counts, strict=True) for _ in range(n)]

    empty: list[Floats] = [np.array([], dtype=float)]
    write_table(
        path,
        {
            "time": np.concatenate([t[k] for (_, t, _), k in zip(parts, there, strict=True)] or empty),
            "instance": texts(0),
            "engine": texts(1),
            "signal": texts(2),
            "le": texts(3),
            "value": np.concatenate([v[k] for (_, _, v), k in zip(parts, there, strict=True)] or empty),
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
    n = len(values)
    keys = list(
        zip(
            _texts(columns["instance"]),
            _texts(columns.get("engine", [""] * n)),
            _texts(columns["signal"]),
            _texts(columns.get("le", [""] * n)),
            strict=True,
        )
    )
    if meta is not None:
        return _exact(head.parse_header(meta, str(path)), keys, times, values, path)
    series = _series(keys, times, values)
    catalogue = Catalogue(_also_by_name(wanted(mapping)))
    notes = _unknown(series, catalogue, path)
    return history_of(series, catalogue, step_s=step_s, source=path.name, notes=notes)


def _times(cells: Sequence[str] | Floats, where: str) -> Floats:
    if isinstance(cells, np.ndarray):
        out = cells
    else:
        try:
            out = floats(cells, where)
        except InputError:
            out = np.array([_moment(c, where) for c in cells], dtype=float)
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


def _texts(cells: Sequence[str] | Floats) -> list[str]:
    """Cells as texts: a column of bounds or ranks may have come as numbers."""
    if not isinstance(cells, np.ndarray):
        return list(cells)
    return ["" if math.isnan(x) else f"{x:g}" if x != int(x or 0) else str(int(x)) for x in cells.tolist()]


def _exact(header: Header, keys: Sequence[Key], times: Floats, values: Floats, path: Path) -> History:
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
    places: dict[str | None, dict[float, int]] = {None: {x: k for k, x in enumerate(header.times)}}
    bounds: dict[str, dict[str, int]] = {}
    for name, h in header.histograms.items():
        places[name] = {x: k for k, x in enumerate(h.times)}
        bounds[name] = {str(le): k for k, le in enumerate(h.le)}
    try:
        for (instance, engine, signal, le), time, value in zip(keys, times.tolist(), values.tolist(), strict=True):
            if signal in out:
                out[signal][row[instance, engine], places[None][time]] = value
            elif signal in fleet:
                fleet[signal][places[None][time]] = value
            elif le == "sum":
                histograms[signal].sums[row[instance, engine], places[signal][time]] = value
            else:
                histograms[signal].counts[row[instance, engine], places[signal][time], bounds[signal][le]] = value
    except KeyError as error:
        raise damaged(str(path), f"a row speaks of {error.args[0]!r}, which the header does not have") from None
    return History(
        times=np.array(header.times),
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


def _series(keys: Sequence[Key], times: Floats, values: Floats) -> list[Raw]:
    """Rows of one instance, signal and bound as one series."""
    rows: dict[Key, list[int]] = defaultdict(list)
    for k, key in enumerate(keys):
        rows[key].append(k)
    out = []
    for (instance, engine, signal, le), mine in rows.items():
        labels = {"instance": instance} if instance else {}
        if engine:
            labels["engine"] = engine
        name = signal
        if le:
            by_name = signal in BY_NAME
            name = f"{signal}_{'sum' if le == 'sum' else 'bucket'}" if by_name else signal
            labels["le"] = le
        out.append(Raw(name, labels, times[mine], values[mine]))
    return out


def _also_by_name(asked: Sequence[Wanted]) -> list[Wanted]:
    """Every signal under its own name too, also those that no known metric carries."""
    metrics = {w.signal.name: w.metrics for w in asked}
    return [Wanted(s, (*metrics.get(s.name, ()), Exposed(s.name))) for s in SIGNALS]


def _unknown(series: Sequence[Raw], catalogue: Catalogue, path: Path) -> list[Note]:
    names = sorted({s.name for s in series if s.name not in catalogue})
    if not names:
        return []
    if all(s.name not in catalogue for s in series):
        near = [m for n in names for m in get_close_matches(n, BY_NAME, n=1, cutoff=0.5)][:3]
        remedy = f"did you mean {', '.join(near)}?" if near else f"signals: {', '.join(list(BY_NAME)[:12])}, ..."
        raise InputError([Problem(f"{path}: signal", ", ".join(names[:5]), "no signal has these names", remedy)])
    return [Note("other", f"Not read, because no signal has these names: {', '.join(names[:8])}.")]
