"""A window in a file and back, to the bit: one Parquet file, a row per series, whose metadata hold all the rest.

    signal, instance, engine   whose series it is; of the whole job, instance and engine are empty
    le                         of a histogram: the bucket's upper bound, or `sum`; else empty
    values                     the numbers at the times that the header has for this signal

The header (grid, instances, histograms' bounds, step log, notes, source) is JSON, in the schema's metadata. What
earlier versions saved is read as well: a JSON file, a long table with a header, or a folder of tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.files import unwritten, whole
from fleetsim.history.history import Buckets, Floats, History, InstanceId, Note, StepLog
from fleetsim.history.long_table import META, damaged, floats, groups_of, need_pyarrow, parquet_of, read_table
from fleetsim.history.option_names import SAVED
from fleetsim.json_text import from_json
from fleetsim.records import replace

KIND = "fleetsim-history"
VERSION = 2
OLD = 1  # the header was the same, with the numbers in other forms
HEADER = "history.json"  # of a folder
_NOTE = "This window was saved by an earlier version, in a form that is no longer written: --save it anew."

_KEYS = ("signal", "instance", "engine", "le")
Key = tuple[str, str, str, str]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class HistogramPart(_Part):
    """Bounds (the last one inf) and times of one histogram; its counts and sums stand in the table."""

    le: list[float] = Field(min_length=1)
    times: list[float]


class StepsPart(_Part):
    """The `StepLog`, all of it: it has one row per step and stays small."""

    framework: str
    columns: dict[str, list[float]]


class Header(_Part):
    """All of a `History` but the values of its signals."""

    kind: Literal["fleetsim-history"]
    schema_version: Literal[1, 2]
    source: str
    step_s: float
    times: list[float] = Field(min_length=1)
    instances: list[InstanceId]
    configs: list[dict[str, str]]
    values: list[str]
    fleet: list[str]
    histograms: dict[str, HistogramPart]
    steps: StepsPart | None
    notes: list[Note]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Signal -> shape of its numbers: (I, T); of the whole job (T,); of a histogram (I, E + 1, H), sums last."""
        i, t = len(self.instances), len(self.times)
        return {
            **dict.fromkeys(self.values, (i, t)),
            **dict.fromkeys(self.fleet, (t,)),
            **{k: (i, len(h.le) + 1, len(h.times)) for k, h in self.histograms.items()},
        }

    def keys(self) -> Iterator[Key]:
        """Of each row of the table, in its order."""
        for signal, shape in self.shapes().items():
            if len(shape) == 1:
                yield signal, "", "", ""
                continue
            lines = ("",) if len(shape) == 2 else (*map(str, self.histograms[signal].le), "sum")
            yield from ((signal, i.name, i.engine, le) for i in self.instances for le in lines)


def save_history(history: History, path: Path | str) -> None:
    """Write it, all or nothing: what stood there stays until the new file is complete. Raises OutsideError."""
    path = Path(path)
    need_pyarrow(path, "save")
    import pyarrow as pa
    import pyarrow.parquet as pq

    header = _header_of(history)
    texts = [(name, pa.string()) for name in _KEYS]
    parts = [pa.schema([*texts, ("values", pa.list_(pa.float64()))]).empty_table()]
    keys = header.keys()
    for block in _blocks(history):
        rows, width = _rows_of(block.shape), block.shape[-1]
        mine = list(islice(keys, rows))
        columns = {name: pa.array([key[k] for key in mine], kind) for k, (name, kind) in enumerate(texts)}
        ends = np.arange(rows + 1, dtype=np.int32) * width
        parts.append(pa.table({**columns, "values": pa.ListArray.from_arrays(ends, block.ravel())}))
    table = pa.concat_tables(parts).replace_schema_metadata({META: header.model_dump_json().encode()})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(path, error) from None
    split = ["values.list.element"]  # numbers that change little pack better byte by byte, and sooner
    with whole(path) as beside:
        pq.write_table(table, beside, compression="zstd", use_dictionary=list(_KEYS), use_byte_stream_split=split)


def load_history(path: Path) -> History:
    """What `save_history` wrote. Raises InputError: damaged, of a later version."""
    with parquet_of(path):
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        header = _header_of_text((table.schema.metadata or {})[META], str(path))
        found = zip(*(table.column(name).to_pylist() for name in _KEYS), strict=True)
        values = table.column("values").combine_chunks()
        ends, numbers = values.offsets.to_numpy(), values.flatten().to_numpy(zero_copy_only=False)
    sizes = [shape[-1] for shape in header.shapes().values() for _ in range(_rows_of(shape))]
    if list(found) != list(header.keys()) or np.diff(ends).tolist() != sizes or len(numbers) != sum(sizes):
        raise damaged(str(path), "its rows are not those of its header: cut, sorted or of another window")
    blocks, at = {}, 0
    for signal, shape in header.shapes().items():
        size = _rows_of(shape) * shape[-1]
        blocks[signal] = numbers[at : at + size].astype(float, copy=False).reshape(shape)
        at += size
    return _history_of(header, blocks, str(path))


def _header_of_text(text: str | bytes, where: str) -> Header:
    """Raises InputError: broken JSON, another kind of file, another version, fields that are missing or wrong."""
    try:
        return _checked(from_json(text), where)
    except ValueError as error:
        raise damaged(where, f"its JSON does not parse ({error})") from None


def _checked(document: object, where: str) -> Header:
    """A JSON document as a header. Raises InputError."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        shown = document.get("kind") if isinstance(document, dict) else type(document).__name__
        rule = "this is no history that fleetsim saved"
        raise InputError([Problem(where, shown, rule, "give what `fleetsim replay --save` wrote")])
    if document.get("schema_version") not in (OLD, VERSION):
        rule = f"this version reads schema_version {OLD} and {VERSION}"
        remedy = "use the fleetsim that wrote it, or save the window anew"
        raise InputError([Problem(f"{where}: schema_version", document.get("schema_version"), rule, remedy)])
    try:
        header = Header.model_validate(document)
    except ValidationError as error:
        remedy = "the file is damaged or was edited by hand; save the window anew"
        places = ((f"{where}: {'.'.join(map(str, e['loc']))}", e) for e in error.errors())
        raise InputError([Problem(place, e.get("input"), e["msg"], remedy) for place, e in places]) from None
    columns = header.steps.columns.values() if header.steps else ()
    if len(header.configs) != len(header.instances):
        raise damaged(where, f"{len(header.instances)} instances but {len(header.configs)} configs")
    if len({len(c) for c in columns}) > 1:
        raise damaged(where, "the columns of its step log have different lengths")
    return header


def _history_of(header: Header, blocks: Mapping[str, Floats], where: str) -> History:
    """Header and numbers together. blocks: signal -> what `Header.shapes` says. Raises InputError for other shapes."""
    for signal, shape in header.shapes().items():
        if blocks[signal].shape != shape:
            raise damaged(where, f"{signal} has the shape {blocks[signal].shape} where {shape} belongs")
    histograms = {}
    for name, part in header.histograms.items():
        counts = np.ascontiguousarray(blocks[name][:, :-1].transpose(0, 2, 1))
        histograms[name] = Buckets(np.array(part.le), np.array(part.times), counts, blocks[name][:, -1].copy())
    log = header.steps
    columns = {} if log is None else {name: np.array(values, dtype=float) for name, values in log.columns.items()}
    return History(
        times=np.array(header.times),
        step_s=header.step_s,
        instances=tuple(header.instances),
        values={name: blocks[name] for name in header.values},
        fleet={name: blocks[name] for name in header.fleet},
        histograms=histograms,
        configs=tuple(header.configs),
        steps=None if log is None else StepLog(log.framework, columns),
        notes=tuple(header.notes),
        source=header.source,
    )


def _header_of(history: History) -> Header:
    log = history.steps
    return Header(
        kind=KIND,
        schema_version=VERSION,
        source=history.source,
        step_s=history.step_s,
        times=history.times.tolist(),
        instances=list(history.instances),
        configs=[dict(c) for c in history.configs],
        values=list(history.values),
        fleet=list(history.fleet),
        histograms={k: HistogramPart(le=b.le.tolist(), times=b.times.tolist()) for k, b in history.histograms.items()},
        steps=None
        if log is None
        else StepsPart(framework=log.framework, columns={k: v.tolist() for k, v in log.columns.items()}),
        notes=list(history.notes),
    )


def _rows_of(shape: tuple[int, ...]) -> int:
    return math.prod(shape[:-1])


def _blocks(history: History) -> Iterator[Floats]:
    """The numbers in the order and the shapes of `Header.shapes`."""
    yield from history.values.values()
    yield from history.fleet.values()
    for b in history.histograms.values():
        yield np.concatenate([b.counts.transpose(0, 2, 1), b.sums[:, None]], axis=1)


# ----------------------------------------------- as earlier versions saved them: JSON, a long table, a folder of tables


def load_old(path: Path) -> History:
    """Raises InputError: damaged, foreign, and, for a folder that holds no window, what it holds."""
    where = str(path)
    try:
        if path.is_dir():
            header, blocks = _of_folder(path)
        elif _is_json(path):
            header, blocks = _of_json(path)
        else:
            columns, meta = read_table(path)
            header = _header_of_text(meta or "", where)
            blocks = _of_rows(header, groups_of(columns, path), path)
        history = _history_of(header, blocks, where)
    except KeyError as error:
        raise damaged(where, f"{error.args[0]!r} is missing, or the header does not have it") from None
    except (ValueError, TypeError, OverflowError, OSError, EOFError) as error:
        raise damaged(where, f"it does not read ({error})") from None
    return replace(history, notes=(*history.notes, Note("other", _NOTE)))


def _is_json(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def _of_json(path: Path) -> tuple[Header, dict[str, Floats]]:
    document: Any = from_json(path.read_text(encoding="utf-8-sig"))
    data = document.pop("data", {})
    header = _checked(document, str(path))
    blocks = {}
    for signal, shape in header.shapes().items():
        if signal in header.histograms:
            counts, sums = (np.array(data["histograms"][signal][k], dtype=float) for k in ("counts", "sums"))
            i, lines, h = shape
            counts, sums = counts.reshape(i, h, lines - 1), sums.reshape(i, 1, h)
            blocks[signal] = np.concatenate([counts.transpose(0, 2, 1), sums], axis=1)
        else:
            found = np.array(data["values" if len(shape) == 2 else "fleet"][signal], dtype=float)
            blocks[signal] = found if found.size else found.reshape(shape)
    return header, blocks


def _of_folder(path: Path) -> tuple[Header, dict[str, Floats]]:
    try:
        header = _header_of_text((path / HEADER).read_bytes(), str(path / HEADER))
    except FileNotFoundError:
        found = ", ".join(sorted(p.name for p in path.iterdir())[:5]) or "nothing"
        rule = f"is no saved history: it has no {HEADER}, it has {found}"
        raise InputError([Problem("history", str(path), rule, text("give {}", SAVED))]) from None
    i = len(header.instances)

    def columns(table: str, names: list[str], times: list[float], rows: int) -> list[Floats]:
        """Numbers of a table, whose rows must be those of the header, in its order."""
        file = next((f for s in (".parquet", ".csv") if (f := path / f"{table}{s}").is_file()), None)
        found = {} if file is None else read_table(file)[0]
        clock, *out = (floats(found[name], f"{path}: {table}: {name}") for name in ("time", *names))
        if clock.tolist() != times * rows:
            rule = f"the rows of the table {table} are not those of {HEADER}: cut, sorted or of another dump"
            raise damaged(str(path), rule)
        return [column.reshape(rows, len(times)) for column in out]

    blocks = {}
    if header.values:
        blocks |= zip(header.values, columns("values", header.values, header.times, i), strict=True)
    if header.fleet:
        found = columns("fleet", header.fleet, header.times, 1)
        blocks |= {name: column[0] for name, column in zip(header.fleet, found, strict=True)}
    for name, part in header.histograms.items():
        lines = columns(f"histogram.{name}", [*(f"le={le}" for le in part.le), "sum"], part.times, i)
        blocks[name] = np.stack(lines, axis=1)
    return header, blocks


def _of_rows(header: Header, groups: list[tuple[Any, Floats, Floats]], path: Path) -> dict[str, Floats]:
    """A row per value that is there; every one must have its place in the header's grid."""
    blocks = {signal: np.full(shape, np.nan) for signal, shape in header.shapes().items()}
    row = {(i.name, i.engine): k for k, i in enumerate(header.instances)}
    grid = np.array(header.times)
    for (instance, engine, signal, le), times, values in groups:
        block = blocks[signal]
        if signal in header.histograms:
            part = header.histograms[signal]
            line = {**{str(bound): e for e, bound in enumerate(part.le)}, "sum": len(part.le)}[le]
            block[row[instance, engine], line, _places(np.array(part.times), times, path)] = values
        elif signal in header.fleet:
            block[_places(grid, times, path)] = values
        else:
            block[row[instance, engine], _places(grid, times, path)] = values
    return blocks


def _places(grid: Floats, times: Floats, path: Path) -> NDArray[np.int64]:
    """Where each time stands in the grid, to the bit. Raises InputError."""
    order = np.argsort(grid, kind="stable")
    at: NDArray[np.int64] = order[np.minimum(np.searchsorted(grid[order], times), len(grid) - 1)]
    if (grid[at] != times).any():
        wrong = float(times[grid[at] != times][0])
        raise damaged(str(path), f"a row stands at {wrong}, which is no time of the header")
    return at
