"""Tables of columns, as CSV or Parquet; and the long table, one row per value, that anyone may write.

    time      unix seconds, or ISO 8601 (without an offset: UTC)
    instance  pod or scrape target; empty for a signal of the whole job
    engine    data-parallel rank; may be missing (0)
    signal    fleetsim's name of it, or the name of a metric as the engine exposes it (with _bucket or _sum)
    le        only for histograms: the bucket's upper bound, or `sum`; may be missing
    value     the number

It is put on a grid, as OpenMetrics text is.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.history.catalogue import Catalogue, Exposed, SignalMetrics, wanted
from fleetsim.history.grid import history_of
from fleetsim.history.history import Floats, History, Note, RawSeries
from fleetsim.history.signals import BY_NAME, SIGNALS
from fleetsim.history.text import unix_of
from fleetsim.history.wrapped import CUT_ROW, open_text

COLUMNS = ("time", "instance", "signal", "value")
META = b"fleetsim"  # key of the header in the metadata of a saved window
Key = tuple[str, str, str, str]  # instance, engine, signal, le


class Texts(Struct, frozen=True):
    """A column of texts of which most come again. codes: (n,) places in names, which are distinct."""

    codes: NDArray[np.int64]
    names: Sequence[str]

    @classmethod
    def of(cls, cells: Iterable[str]) -> Texts:
        """Coded in the order in which they come."""
        places: dict[str, int] = {}
        codes = np.array([places.setdefault(cell, len(places)) for cell in cells], dtype=np.int64)
        return cls(codes, list(places))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return (self.names[k] for k in self.codes.tolist())


Column = Floats | Texts
"""Numbers, or texts."""


# ------------------------------------------------------------------------------------------------------------- tables


def read_table(path: Path) -> tuple[dict[str, Column], list[Note]]:
    """Columns by name. Of CSV every column is texts; of Parquet numbers are arrays. Raises InputError."""
    try:
        return (read_parquet(path), []) if is_parquet(path) else _read_csv(path)
    except OSError as error:
        raise damaged(str(path), f"cannot be read: {error}") from None


@contextlib.contextmanager
def parquet_of(path: Path) -> Iterator[None]:
    """What goes wrong inside is the file's fault. Raises InputError, OutsideError without pyarrow."""
    need_pyarrow(path)
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, KeyError, ValueError, AttributeError) as error:
        text = (str(error).splitlines() or [""])[0][:200]
        raise damaged(str(path), f"its Parquet does not read ({text})") from None


def is_parquet(path: Path) -> bool:
    """By its first bytes; a folder is none."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def form_of_parquet(path: Path) -> Literal["saved window", "long table", "step log"]:
    """By its schema: whatever is neither of the first two has a row a step. Raises InputError."""
    with parquet_of(path):
        import pyarrow.parquet as pq

        schema = pq.read_schema(path)
    if META in (schema.metadata or {}):
        return "saved window"
    return "long table" if {"signal", "value"} & set(schema.names) else "step log"


def read_parquet(path: Path) -> dict[str, Column]:
    """Columns by name, as of `read_table`. Raises InputError."""
    with parquet_of(path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        columns: dict[str, Column] = {}
        for name in table.column_names:
            column = table.column(name)
            if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
                columns[name] = column.to_numpy().astype(float)
            elif pa.types.is_timestamp(column.type):
                columns[name] = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy() / 1e6
            else:
                coded = column.cast(pa.string()).fill_null("").combine_chunks().dictionary_encode()
                if isinstance(coded, pa.ChunkedArray):
                    coded = coded.combine_chunks() if coded.num_chunks != 1 else coded.chunk(0)
                columns[name] = Texts(coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist())
        return columns


def _read_csv(path: Path) -> tuple[dict[str, Column], list[Note]]:
    """A last row with fewer cells was cut off: it is left out."""
    try:
        with open_text(path, newline="") as file:
            names, *rows = [row for row in csv.reader(file) if row] or [[]]
            cut = file.notes
    except csv.Error as error:
        raise damaged(str(path), f"its CSV does not read ({error})") from None
    if len(rows) > 1 and len(rows[-1]) < len(names):
        rows.pop()
        cut = [CUT_ROW]
    short = next((i for i, row in enumerate(rows) if len(row) != len(names)), None)
    if short is not None:
        rule = f"a row has {len(rows[short])} cells where the header has {len(names)}"
        remedy = "mend the row, or write the file again"
        raise InputError([Problem(f"{path}: row {short + 2}", ",".join(rows[short]), rule, remedy)])
    return {name: Texts.of(row[i] for row in rows) for i, name in enumerate(names)}, cut


def floats(cells: Column, where: str) -> Floats:
    """A column as numbers; an empty cell is NaN. Raises InputError."""
    if isinstance(cells, np.ndarray):
        return cells
    numbers = np.full(len(cells.names), np.nan)
    for k, cell in enumerate(cells.names):
        try:
            numbers[k] = float(cell) if cell else np.nan
        except ValueError:
            remedy = "mend the cell; leave it empty for none"
            raise InputError([Problem(where, cell, "must be a number", remedy)]) from None
    return numbers[cells.codes]


def damaged(where: str, what: str) -> InputError:
    """The error of a dump that cannot be what was saved."""
    return InputError([Problem(where, what, "the dump is damaged", "save the window anew, or copy the dump again")])


def need_pyarrow(path: Path, where: str = "history") -> None:
    """Raises OutsideError that names the extra. where: the flag that asks for the file."""
    if importlib.util.find_spec("pyarrow") is None:
        rule = "Parquet needs pyarrow, which is not installed"
        raise OutsideError(str(Problem(where, str(path), rule, "pip install 'fleetsim[parquet]'")))


# --------------------------------------------------------------------------------------------------- the long table


def load_long(path: Path, step_s: float | None = None, mapping: Mapping[str, str] | None = None) -> History:
    """Raises InputError: columns missing, cells that are no numbers or times, nothing that fleetsim knows."""
    columns, notes = read_table(path)
    series = [_series(*group) for group in groups_of(columns, path)]
    # every signal under its own name too, also those that no known metric carries
    metrics = {w.signal.name: w.metrics for w in wanted(mapping)}
    catalogue = Catalogue([SignalMetrics(s, (*metrics.get(s.name, ()), Exposed(s.name))) for s in SIGNALS])
    notes += _unknown(series, catalogue, path)
    return history_of(series, catalogue, step_s=step_s, source=path.name, notes=notes)


def groups_of(columns: Mapping[str, Column], path: Path) -> list[tuple[Key, Floats, Floats]]:
    """Times and values of each instance, engine, signal and bound, in the order of the rows. Raises InputError."""
    missing = [c for c in COLUMNS if c not in columns]
    if missing:
        rule = f"a long table has the columns {', '.join(COLUMNS)}; {', '.join(missing)} missing"
        raise InputError([Problem(str(path), ", ".join(columns)[:80], rule, "name the columns so (docs/run_logs.md)")])
    values = floats(columns["value"], f"{path}: value")
    times = _times(columns["time"], f"{path}: time")
    none = Texts(np.zeros(len(values), dtype=np.int64), [""])
    keys = [_texts(columns.get(name, none)) for name in ("instance", "engine", "signal", "le")]
    if not len(times):
        return []
    whole = np.zeros(len(times), dtype=np.int64)
    for one in keys:
        whole = whole * max(1, len(one.names)) + one.codes
    order = np.argsort(whole, kind="stable")
    groups: list[tuple[Key, Floats, Floats]] = []
    for rows in np.split(order, np.flatnonzero(np.diff(whole[order])) + 1):
        instance, engine, signal, le = (one.names[one.codes[rows[0]]] for one in keys)
        groups.append(((instance, engine, signal, le), times[rows], values[rows]))
    return groups


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
        return unix_of(text)
    except (ValueError, OverflowError):
        rule = "must be unix seconds or ISO 8601"
        raise InputError([Problem(where, text, rule, "for instance 1763683200 or 2025-11-21T00:00:00Z")]) from None


def _texts(cells: Column) -> Texts:
    """Cells as texts: a column of bounds or ranks may have come as numbers."""
    if isinstance(cells, Texts):
        return cells
    numbers, codes = np.unique(cells, return_inverse=True)
    return Texts(codes, ["" if math.isnan(x) else str(int(x)) if x.is_integer() else str(x) for x in numbers.tolist()])


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


def _unknown(series: Sequence[RawSeries], catalogue: Catalogue, path: Path) -> list[Note]:
    names = sorted({s.name for s in series if s.name not in catalogue})
    if not names:
        return []
    if all(s.name not in catalogue for s in series):
        remedy = did_you_mean(names[0], BY_NAME)
        raise InputError([Problem(f"{path}: signal", ", ".join(names[:5]), "no signal has these names", remedy)])
    return [Note("other", f"Not read, because no signal has these names: {', '.join(names[:8])}.")]
