"""What a user of the Python interface writes: pyrefly checks it with the package, and a test runs it.

A `type: ignore` here is a mistake that the types must find: one that they do not find is an error of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fleetsim as fs


def decide(folder: Path) -> fs.Job:
    """From a scenario to a decision, without a single `if ... is None`."""
    job = fs.load("async-one-step", {"admission.batches_ahead": 2}, replications=2)
    run = job.simulate(hours=0.5, scrape_interval_s=15)
    step: fs.Estimate = run.metrics["step_s"]
    files: tuple[Path, ...] = run.to_parquet(folder)
    print(step.mean, run.mean["trainer_idle_fraction"], run.binding, len(files))
    short = job.with_(steps=6)
    sized: fs.SizeResult = short.size(target_idle=0.3)
    swept = fs.sweep(short, {"fleet.instances": [4, 6]}, objectives=["step_s"], workers=1)
    best: fs.Job = swept.best
    found = fs.compare(short, best.with_({"fleet.instances": sized.instances}), replications=2)
    print(found["step_s"].verdict, found.headline)
    history: Path = run.to_openmetrics(folder / "history.om")
    seen = fs.replay(history, job)
    print(seen.metrics["step_s"].mean, seen.scenario.fleet.instances, len(seen.backtest.overall))
    windows: fs.CompareResult = fs.compare(history, windows=("..-15m", "-15m..now"), metrics=["step_s"])
    print(windows.headline, job.save(folder / "job.yaml"))
    instances: int = best["fleet.instances"]
    return best.with_({"fleet.instances": instances + 1})


def _unasked(seen: fs.ReplayResult) -> int:
    return seen.recommendation.instances  # an int, or an error that says why there is none


MISTAKES: tuple[Callable[[], object], ...] = (
    lambda: fs.load(bach=3),  # type: ignore[call-arg]
    lambda: fs.load(batch="many"),  # type: ignore[arg-type]
    lambda: fs.load("async-one-step", "fleet.instances=3"),  # type: ignore[arg-type]
    lambda: fs.load().split(8, by="speed"),  # type: ignore[arg-type]
    lambda: fs.compare(fs.load(), fs.load(), windows=3),  # type: ignore[arg-type]
)
