"""Siblings of one prompt that resemble each other in length: what that moves, in published runs and in presets.

python benchmarks/siblings.py [--correlation 0.6]    two minutes on two cores

Public logs show 0.25 to 0.6 (`GROUP_CORRELATION` of `fleetsim/config/workload.py`, the default). What this prints
stands in docs/not_modelled.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import fmean, median

import fleetsim as fs
from fleetsim.config.data_files import presets
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import GROUP_CORRELATION
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.validate.case import PublishedCase, load_cases
from fleetsim.validate.run import run_cases
from fleetsim.validate.verdict import summary

PATH = "workload.group_correlation"
SEEDS = range(3)


def of_published(correlation: float) -> str:
    """The gates of `fleetsim validate`, every case's own scalar fitted anew."""
    found = summary(run_cases([_alike(case, correlation) for case in load_cases()]))
    median_, worst, absolute = found.ratio_median or 0.0, found.ratio_worst or 0.0, found.absolute_worst or 0.0
    blind = found.blind.ratio_median if found.blind is not None and found.blind.ratio_median is not None else 0.0
    return (
        f"correlation {correlation:g}: ratio median {median_:.1%}, worst {worst:.1%}; absolute worst {absolute:.1%}; "
        f"bottlenecks {found.bottlenecks_right} of {found.bottlenecks}; orders wrong {found.orders_wrong}; "
        f"arms that miss {', '.join(found.missed) or 'none'}; blind median {blind:.1%}"
    )


def _alike(case: PublishedCase, correlation: float) -> PublishedCase:
    workload = {"group_correlation": correlation, **case.scenario.get("workload", {})}
    return case.model_copy(update={"scenario": {**case.scenario, "workload": workload}})


def of_presets(correlation: float) -> Iterator[tuple[str, float, float, float]]:
    """Name; relative change of the step; trainer idle by default, and what is added to it."""
    for name in sorted(presets()):
        scenario = fs.load(name).scenario
        (step, idle), (then, more) = (
            _figures(with_changes(scenario, {PATH: rho})) for rho in (GROUP_CORRELATION, correlation)
        )
        yield name, then / step - 1, idle, more - idle


def _figures(scenario: Scenario) -> tuple[float, float]:
    runs = [metrics_of(simulate(with_changes(scenario, {"run.seed": seed, "run.replications": 1}))) for seed in SEEDS]
    return fmean(run["step_s"] for run in runs), fmean(run["trainer_idle_fraction"] for run in runs)


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--correlation", type=float, default=0.6, help="of the siblings' log-lengths; 0.6 if not given")
    correlation = parser.parse_args().correlation
    for rho in (GROUP_CORRELATION, correlation):
        print(of_published(rho), flush=True)
    rows = []
    for row in of_presets(correlation):
        rows.append(row)
        print(f"{row[0]:32s} step {row[1]:+6.1%}   trainer idle {row[2]:6.1%} {100 * row[3]:+6.1f} points", flush=True)
    moved, idle = [abs(row[1]) for row in rows], [100 * abs(row[3]) for row in rows]
    print(
        f"{len(rows)} presets: step by {median(moved):.1%} in the median, at most {max(moved):.1%}, "
        f"{fmean(row[1] for row in rows):+.1%} on average; trainer idle by {median(idle):.1f} points, "
        f"at most {max(idle):.1f}"
    )


if __name__ == "__main__":
    main()
