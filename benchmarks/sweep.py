"""What a sweep costs: `python benchmarks/sweep.py [--most CELLS]` prints one JSON object.

cost: milliseconds of a core per cell in this process, by number of cells, journal, front and table included; and the
peak memory of the process after each. speed_up: the same cells on one worker and on two, in turn, whole calls with the
start of the processes; the median of the ratios. Anything else that runs on the machine lowers the ratio; core_seconds
is robust to that: seconds of a core that two workers need, over those that one needs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fleetsim.config import scenario_from_mapping
from fleetsim.config.scenario import Scenario
from fleetsim.sweep.cell import digest_of, open_journal
from fleetsim.sweep.grid import Axis, Grid
from fleetsim.sweep.run import sweep
from fleetsim.sweep.table import write_table

SIZES = (10, 100, 1_000, 10_000)


def scenario(steps: int, replications: int) -> Scenario:
    """A small job: a cell of it takes milliseconds to tenths of a second."""
    return scenario_from_mapping(
        {
            "workload": {"output_tokens": {"mean": 200, "cv": 0.8, "max": 800}, "prompt_tokens": 64, "group_size": 4},
            "fleet": {"instances": 2},
            "trainer": {"batch_samples": 32, "fixed_s": 2.0},
            "run": {"steps": steps, "replications": replications, "warmup_steps": 0},
        }
    )


def grid(cells: int) -> Grid:
    """Prices: every cell costs the simulator the same."""
    return Grid((Axis("cost.instance_price_usd_per_gpu_h", tuple(1.0 + k / 1000 for k in range(cells))),))


def cost_per_cell(cells: int) -> float:
    """Seconds of a core per cell of a whole sweep with a journal and a table, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "t.parquet"
        start = time.process_time()
        result = sweep(
            scenario(3, 1),
            grid(cells),
            workers=1,
            journal=lambda design: open_journal(output, digest_of(design), cells),
        )
        write_table(result, output)
        return (time.process_time() - start) / cells


def cpu_s() -> float:
    """Seconds of a core that this process and its ended children used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def seconds(cells: int, workers: int) -> tuple[float, float]:
    """Seconds, and seconds of a core, of a sweep of cells of about a tenth of a second, processes started anew."""
    from joblib.externals.loky import get_reusable_executor

    start, start_cpu = time.perf_counter(), cpu_s()
    sweep(scenario(30, 4), grid(cells), workers=workers)
    spent = time.perf_counter() - start
    if workers > 1:
        get_reusable_executor().shutdown(wait=True)
    return spent, cpu_s() - start_cpu


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="largest number of cells")
    parser.add_argument("--cells", type=int, default=240, help="cells for the speed-up")
    parser.add_argument("--pairs", type=int, default=3, help="how often one and two workers are compared")
    arguments = parser.parse_args()
    cost_per_cell(10)  # reads the compiled kernel
    cost: dict[str, Any] = {}
    for cells in (n for n in SIZES if n <= arguments.most):
        per_cell = cost_per_cell(cells)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024)
        cost[f"{cells}"] = {
            "ms_per_cell": 1e3 * per_cell,
            "peak_mib": peak / (2**20 if sys.platform == "darwin" else 1),
        }
    pairs = [(seconds(arguments.cells, 1), seconds(arguments.cells, 2)) for _ in range(arguments.pairs)]
    ratio = statistics.median(one[0] / two[0] for one, two in pairs)
    work = statistics.median(two[1] / one[1] for one, two in pairs)
    load = os.getloadavg()[0]
    print(json.dumps({"cost": cost, "speed_up": ratio, "core_seconds": work, "pairs_s": pairs, "load": load}, indent=2))


if __name__ == "__main__":
    main()
