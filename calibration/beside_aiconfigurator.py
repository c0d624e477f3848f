"""Our errors beside those of aiconfigurator on the same runs: a paragraph of docs/accuracy.md, and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from points import Run

from fleetsim.engine.known_error import domain_of

BESIDE = """## Beside aiconfigurator

{what}, asked for the same runs in its aggregate mode
(`calibration/aiconfigurator_points.py`, which says how): those of clients, on GPUs of which it has tables. Its tables
are of newer releases than the runs. An error is of TTFT + (mean output - 1) x TPOT, as above. *ours, left out* saw no
run of the model on the GPU.

"""
ALL = "all that both predict"
# Of one run: ours, ours with the pair left out, theirs.
Ratios = tuple[float, float | None, float | None]


def error_cells(ratios: Sequence[float | None]) -> tuple[str, str]:
    """Median and 90th percentile of the errors, as the tables write them."""
    sizes = [abs(r - 1) for r in ratios if r is not None]
    if not sizes:
        return "-", "-"
    middle, far = np.quantile(sizes, (0.5, 0.9))
    return f"{100 * middle:.1f} %", f"{100 * far:.0f} %"


def beside(rows: Sequence[tuple[Run, Ratios]]) -> Iterator[list[str]]:
    """Rows of all runs that both predict, and of those by engine, GPU and kind of model."""
    groups: dict[str, list[Ratios]] = {ALL: []}
    for run, ratios in rows:
        if ratios[2] is None:
            continue
        p = run.point
        kind = str(domain_of(run.gpu, run.shape, p.dtype, p.engine).model)
        for name in (ALL, f"engine: {p.engine}", f"GPU: {p.gpu}", f"model: {kind}"):
            groups.setdefault(name, []).append(ratios)
    for name, members in sorted(groups.items()):
        cells = [error_cells(column) for column in zip(*members, strict=True)]
        yield [name, f"{len(members)}", *(cell for pair in cells for cell in pair)]
