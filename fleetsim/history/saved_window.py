"""A window in a file and back, to the bit: one Parquet file, a row per series, whose metadata hold all the rest.

    signal, instance, engine   whose series it is; of the whole job, instance and engine are empty
    le                         of a histogram: the bucket's upper bound, or `sum`; else empty
    values                     the numbers at the times that the header has for this signal

The header (grid, instances, histograms' bounds, step log, notes, source) is JSON, in the schema's metadata.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetsim.errors import InputError, Problem
from fleetsim.files import unwritten, whole
from fleetsim.history.history import Buckets, Floats, History, InstanceId, Note, StepLog
from fleetsim.history.long_table import META, damaged, need_pyarrow, parquet_of
from fleetsim.json_text import from_json

KIND = "fleetsim-history"
VERSION = 2
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
    schema_version: Literal[2]
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
        header = _checked((table.schema.metadata or {})[META], str(path))
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
    return _history_of(header, blocks)


def _checked(text: str | bytes, where: str) -> Header:
    """Raises InputError: broken JSON, another kind of file, another version, fields that are missing or wrong."""
    try:
        document = from_json(text)
    except ValueError as error:
        raise damaged(where, f"its JSON does not parse ({error})") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        shown = document.get("kind") if isinstance(document, dict) else type(document).__name__
        rule = "this is no history that fleetsim saved"
        raise InputError([Problem(where, shown, rule, "give what `fleetsim replay --save` wrote")])
    if document.get("schema_version") != VERSION:
        rule = f"this version reads schema_version {VERSION}"
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
    if len({tuple(h.times) for h in header.histograms.values()}) > 1:
        raise damaged(where, "its histograms have different times")
    if len({len(c) for c in columns}) > 1:
        raise damaged(where, "the columns of its step log have different lengths")
    return header


def _history_of(header: Header, blocks: Mapping[str, Floats]) -> History:
    """Header and numbers together. blocks: signal -> what `Header.shapes` says."""
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
