"""Tables of a dump: columns of equal length, as Parquet where pyarrow is installed, else as CSV."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.history.dump_header import damaged
from fleetsim.history.history import Floats
from fleetsim.history.text_file import open_text


@dataclass(frozen=True, slots=True)
class Texts:
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
Columns = Mapping[str, Column]
"""Column name -> numbers, or texts."""

_META = b"fleetsim"
_COMMENT = "# fleetsim-history: "


def has_parquet() -> bool:
    """Whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def write_table(path: Path, columns: Columns, meta: str | None = None) -> None:
    """Parquet or CSV, by the path's ending. meta: one line of JSON that goes along."""
    if path.suffix == ".parquet":
        _write_parquet(path, columns, meta)
    else:
        path.write_bytes(csv_text(columns, meta).encode())


def _write_parquet(path: Path, columns: Columns, meta: str | None) -> None:
    need_pyarrow(path, "save")
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            k: pa.DictionaryArray.from_arrays(v.codes, pa.array(v.names, pa.string())) if isinstance(v, Texts) else v
            for k, v in columns.items()
        }
    )
    if meta is not None:
        table = table.replace_schema_metadata({_META: meta.encode()})
    pq.write_table(table, path, compression="zstd")


def csv_text(columns: Columns, meta: str | None = None) -> str:
    """CSV: numbers as Python writes them (they read back exactly), an empty cell for NaN."""
    out = io.StringIO()
    if meta is not None:
        out.write(f"{_COMMENT}{meta}\n")
    writer = csv.writer(out, lineterminator="\r\n")  # so that both characters are quoted inside a cell
    writer.writerow(columns)
    cells = [v if isinstance(v, Texts) else _cells(v) for v in columns.values()]
    writer.writerows(zip(*cells, strict=True))
    return out.getvalue()


def _cells(values: Floats) -> Iterable[float | str]:
    return ("" if x != x else x for x in values.tolist())


def read_table(path: Path) -> tuple[dict[str, Column], str | None]:
    """Columns and meta. Of CSV every column is texts; of Parquet numbers are arrays. Raises InputError."""
    try:
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        return _read_parquet(path) if parquet else read_csv(path)
    except OSError as error:
        raise damaged(str(path), f"cannot be read: {error}") from None


def _read_parquet(path: Path) -> tuple[dict[str, Column], str | None]:
    need_pyarrow(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
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
        meta = (table.schema.metadata or {}).get(_META)
        return columns, meta.decode() if meta is not None else None
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError) as error:
        raise damaged(str(path), f"its Parquet does not read ({str(error).splitlines()[0][:200]})") from None


def read_csv(path: Path) -> tuple[dict[str, Column], str | None]:
    """A CSV with one header row; the columns as texts. Raises InputError."""
    meta: str | None = None
    try:
        with open_text(path, newline="") as file:
            first = file.readline()
            if first.startswith(_COMMENT):
                meta = first.removeprefix(_COMMENT).strip()
                first = file.readline()
            names = next(csv.reader([first]), [])
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, EOFError, csv.Error) as error:
        raise damaged(str(path), f"its CSV does not read ({error})") from None
    short = next((i for i, row in enumerate(rows) if len(row) != len(names)), None)
    if short is not None:
        rule = f"a row has {len(rows[short])} cells where the header has {len(names)}"
        remedy = "mend the row, or write the file again"
        raise InputError([Problem(f"{path}: row {short + 2}", ",".join(rows[short]), rule, remedy)])
    return {name: Texts.of(row[i] for row in rows) for i, name in enumerate(names)}, meta


def floats(cells: Column, where: str) -> Floats:
    """A column as numbers; an empty cell is NaN. Raises InputError."""
    if isinstance(cells, np.ndarray):
        return cells
    try:
        numbers = np.array([float(x) if x else np.nan for x in cells.names], dtype=float)
    except ValueError:
        bad = next(x for x in cells.names if x and not _is_number(x))
        raise InputError([Problem(where, bad, "must be a number", "mend the cell; leave it empty for none")]) from None
    return numbers[cells.codes] if len(cells) else np.array([], dtype=float)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def need_pyarrow(path: Path, where: str = "") -> None:
    """Raises OutsideError that names the extra.

    where: the flag that asks for a file to be written; of a file to be read it is the file itself, which another ending
    would not make readable.
    """
    if has_parquet():
        return
    other = f", or save as {path.with_suffix('.csv')}" if where else ""
    remedy = f"pip install 'fleetsim[parquet]'{other}"
    problem = Problem(where or "history", str(path), "Parquet needs pyarrow, which is not installed", remedy)
    raise OutsideError(str(problem))
