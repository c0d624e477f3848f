"""The table of a sweep: a row a cell, in the order of the cells, as columns, Parquet or CSV.

The same sweep gives the same bytes: rows are sorted, settings fixed, and nothing in it says when, where or how fast.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import fleetsim
from fleetsim.quantities import METRICS
from fleetsim.sweep.grid import Axis
from fleetsim.sweep.run import SweepRows

FORMATS = (".parquet", ".csv")


def columns_of(result: SweepRows) -> dict[str, list[Any]]:
    """Column -> values, one a cell.

    cell; the keys of the grid; status, reason, pareto (front, tied, dominated), binding, replications; then for every
    metric its mean under its name, and the ends of the interval as METRIC.ci_low and METRIC.ci_high. None where a cell
    could not be simulated.
    """
    grid, marks = result.design.grid, result.pareto.marks
    cells = [grid.values(row.cell) for row in result.rows]
    columns: dict[str, list[Any]] = {"cell": [row.cell for row in result.rows]}
    for axis in grid.axes:
        written = _writer(axis)
        columns[axis.path] = [written(values[axis.path]) for values in cells]
    columns["status"] = [row.status for row in result.rows]
    columns["reason"] = [row.reason or None for row in result.rows]
    columns["pareto"] = [marks.get(row.cell) for row in result.rows]
    columns["binding"] = [row.binding or None for row in result.rows]
    columns["replications"] = [len(row.values) for row in result.rows]
    estimates = [row.estimates() for row in result.rows]
    for name in METRICS:
        found = [e.get(name) for e in estimates]
        columns[name] = [None if e is None else e.mean for e in found]
        columns[f"{name}.ci_low"] = [None if e is None else e.ci_low for e in found]
        columns[f"{name}.ci_high"] = [None if e is None else e.ci_high for e in found]
    return columns


def write_table(result: SweepRows, place: Path) -> None:
    """Writes the table as the ending of the place says. Raises OSError."""
    if place.suffix == ".csv":
        place.write_text(_csv(result), encoding="utf-8", newline="")
    else:
        _write_parquet(result, place)


def _csv(result: SweepRows) -> str:
    columns = columns_of(result)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _write_parquet(result: SweepRows, place: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {name: pa.float64() for metric in METRICS for name in (metric, f"{metric}.ci_low", f"{metric}.ci_high")}
    types |= {"cell": pa.int32(), "replications": pa.int32()}
    types |= {name: pa.string() for name in ("status", "reason", "pareto", "binding")}
    kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    types |= {axis.path: kinds[_kind(axis)] for axis in result.design.grid.axes}
    columns = columns_of(result)
    schema = pa.schema(
        [(name, types[name]) for name in columns],
        metadata={
            "fleetsim_version": fleetsim.__version__,
            "scenario": json.dumps(result.scenario.model_dump(mode="json"), sort_keys=True),
            "grid": json.dumps({axis.path: list(axis.values) for axis in result.design.grid.axes}, default=str),
            "objectives": json.dumps([o.text for o in result.pareto.objectives]),
        },
    )
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()}, schema=schema)
    pq.write_table(table, place, compression="zstd", version="2.6", row_group_size=1 << 20)


def _kind(axis: Axis) -> type:
    """The one type that all values of an axis have; text (JSON) where they have no common one."""
    kinds = {type(value) for value in axis.values if value is not None}
    if kinds == {int, float}:
        return float
    kind = kinds.pop() if len(kinds) == 1 else str
    return kind if kind in (int, float, bool) else str


def _writer(axis: Axis) -> Any:
    """A function that turns a value of an axis into a value of its column."""
    kind = _kind(axis)
    words = kind is str and all(value is None or isinstance(value, str) for value in axis.values)

    def written(value: Any) -> Any:
        if value is None or words:
            return value
        return kind(value) if kind is not str else json.dumps(value, sort_keys=True, default=str)

    return written
