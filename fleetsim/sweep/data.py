"""The document of `fleetsim sweep --json`: the grid, a row a cell, the front and the best. Same sweep, same bytes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fleetsim.sweep.cell import SweepRow
from fleetsim.sweep.engines import engine_sources
from fleetsim.sweep.run import SweepRows
from fleetsim.tell.data import estimate, head


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
        "profiles": [asdict(source) for source in engine_sources(result)],
        "rows": [_row(result, row) for row in result.rows],
        "warnings": list(warnings),
    }


def _row(result: SweepRows, row: SweepRow) -> dict[str, Any]:
    return {
        "cell": row.cell,
        "values": result.design.grid.values(row.cell),
        "status": row.status,
        "reason": row.reason or None,
        "pareto": result.pareto.marks.get(row.cell),
        "binding": row.binding or None,
        "metrics": {name: estimate(e) for name, e in row.estimates().items()},
    }
