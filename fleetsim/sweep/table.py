"""The table of a sweep: a row a cell, in the order of the cells, as columns, Parquet or CSV.

The same sweep gives the same bytes: rows are sorted, settings fixed, and nothing in it says when, where or how fast.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fleetsim
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.files import new_file, whole
from fleetsim.job.result import Watch
from fleetsim.quantities import METRICS, RUN_METRICS
from fleetsim.records import as_dict
from fleetsim.sweep.cell import Design, Journal
from fleetsim.sweep.grid import Axis
from fleetsim.sweep.remarks import engine_sources
from fleetsim.sweep.run import SweepRows
from fleetsim.tell.data import estimate, head

FORMATS = (".parquet", ".csv")


def columns_of(result: SweepRows) -> dict[str, list[Any]]:
    """Column -> values, one a cell.

    cell; the keys of the grid; status, reason, pareto (front, tied, dominated), binding, replications; then for every
    metric its mean under its name, and the ends of the interval as METRIC.ci_low and METRIC.ci_high. None where a cell
    could not be simulated. Metrics of stations are there where a cell has them.
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
    for name in (name for name in RUN_METRICS if name in METRICS or any(name in e for e in estimates)):
        found = [e.get(name) for e in estimates]
        columns[name] = [None if e is None else e.mean for e in found]
        columns[f"{name}.ci_low"] = [None if e is None else e.ci_low for e in found]
        columns[f"{name}.ci_high"] = [None if e is None else e.ci_high for e in found]
    return columns


def write_table(result: SweepRows, place: Path, ending: str = "") -> None:
    """Writes the table as the ending says, that of the place if there is none. Raises OSError."""
    if (ending or place.suffix) == ".csv":
        columns = columns_of(result)
        with place.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    else:
        _write_parquet(result, place)


def _write_parquet(result: SweepRows, place: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {name: pa.float64() for metric in RUN_METRICS for name in (metric, f"{metric}.ci_low", f"{metric}.ci_high")}
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


# --- The document of `fleetsim sweep --json`: the grid, a row a cell, the front and the best. Same sweep, same bytes.


def sweep_document(result: SweepRows, warnings: tuple[str, ...]) -> dict[str, Any]:
    """Rows in the order of the cells; `complete` is false when the sweep was interrupted."""
    pareto, design = result.pareto, result.design
    return {
        **head("sweep", result.scenario),
        "seeds": [{"seed": result.scenario.run.seed, "replication": r} for r in range(design.replications)],
        "grid": [{"key": axis.path, "values": list(axis.values)} for axis in design.grid.axes],
        "cells": len(design.grid),
        "complete": result.complete,
        "replications": design.replications,
        "objectives": [{"metric": o.metric, "better": "more" if o.most else "less"} for o in pareto.objectives],
        "front": list(pareto.front),
        "best": [
            {"metric": b.objective.metric, "cell": b.cell, "tied": list(b.tied), "equal": list(b.equal)}
            for b in pareto.best
        ],
        "profiles": [as_dict(source) for source in engine_sources(result)],
        "rows": [
            {
                "cell": row.cell,
                "values": design.grid.values(row.cell),
                "status": row.status,
                "reason": row.reason or None,
                "pareto": pareto.marks.get(row.cell),
                "binding": row.binding or None,
                "metrics": {name: estimate(e) for name, e in row.estimates().items()},
            }
            for row in result.rows
        ],
        "warnings": list(warnings),
    }


# --- `sweep --out FILE`: the table, whole or not at all, and the journal beside it until it is.


class TableOutput:
    """A place for the table, checked before the work. Raises InputError."""

    def __init__(self, output: str) -> None:
        self._journal: Journal | None = None
        ending = os.path.splitext(output)[1]
        if ending not in FORMATS:
            raise InputError(
                [Problem("--out", output, f"must end in {' or '.join(FORMATS)}", "for example sweep.parquet")]
            )
        if ending == ".parquet":
            try:
                import pyarrow.parquet  # noqa: F401 - only whether it is there
            except ImportError:
                remedy = "pip install 'fleetsim[parquet]', or write .csv"
                raise OutsideError(
                    f"--out {output!r}: Parquet needs pyarrow, which is not installed; {remedy}"
                ) from None
        self.place = new_file("--out", output)

    def __enter__(self) -> TableOutput:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets go of the journal; what it holds stays until the table is written."""
        if self._journal is not None:
            self._journal.close()

    def journal(self, restart: bool, watch: Watch) -> Callable[[Design], Journal]:
        """Opens the journal beside the table for a design; that the sweep goes on from it is remarked.

        Raises InputError and OutsideError.
        """

        def opened(design: Design) -> Journal:
            from fleetsim.sweep.cell import digest_of, open_journal

            journal = open_journal(self.place, digest_of(design), len(design.grid), restart)
            self._journal = journal
            if journal.rows:
                watch.remark(f"going on: {len(journal.rows):,} of {len(design.grid):,} cells are in {journal.path}")
            return journal

        return opened

    def write(self, result: SweepRows) -> None:
        """Writes the table beside its place, moves it there, and drops the journal. Raises OutsideError."""
        try:
            with whole(self.place) as beside:
                write_table(result, beside, self.place.suffix)
        except OutsideError as error:
            kept = "" if self._journal is None else f"; the cells are kept in {self._journal.path}"
            raise OutsideError(f"--out {error}{kept}") from None
        if self._journal is not None:
            self._journal.discard()
