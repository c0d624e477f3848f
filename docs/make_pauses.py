"""Weight-sync pauses of simulated fleets, found again in what the fleets exported.

python docs/make_pauses.py    simulate them (half a minute) and print a line each, whose ends docs/replay.md tells
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its folder is on the path, not docs
from fleetsim.replay.observe.observe import observe
from fleetsim.sim.run import simulate
from tests.replay.truth import SCRAPE_S, Job, history_of

HEAD = "| fleet | pause | pauses in the window | both ends within a scrape | their seconds, found / true |"
AHEAD = {"admission.law": "version_window", "admission.max_staleness": 4.0, "sync.every_steps": 4}
FLEETS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("async-one-step", AHEAD),
    ("verl-fully-async", {}),
    ("pipelinerl", {}),
    ("prime-rl", {}),
)
PAUSES_S = (12.0, 20.0, 30.0, 45.0)


def row(start: str, changes: Mapping[str, Any], pause_s: float) -> str:
    """A line of the table. Pauses within four scrapes of the window's ends are left out: their ends may lie outside."""
    sync = {"sync.pause_s": pause_s, "sync.trainer_block_s": 0.0, "sync.publish_s": 0.5}
    job = Job(start, start, {**changes, **sync}, None, "")
    history = history_of(job)
    records = simulate(job.scenario)
    shift = history.end_s - float(records.steps["end_s"][-1])
    begin, end = records.syncs["pause_start_s"] + shift, records.syncs["end_s"] + shift
    inside = (begin > history.start_s + 4 * SCRAPE_S) & (end < history.end_s - 4 * SCRAPE_S)
    pauses = observe(history).pauses
    found = () if pauses is None else pauses.each
    near = [
        any(abs(p.start_s - b) <= SCRAPE_S and abs(p.end_s - e) <= SCRAPE_S for p in found)
        for b, e in zip(begin[inside], end[inside], strict=True)
    ]
    in_window = np.clip(end, history.start_s, history.end_s) - np.clip(begin, history.start_s, history.end_s)
    seconds = sum(p.seconds for p in found)
    return (
        f"| `{start}` | {pause_s:g} s | {len(near)} | {100 * np.mean(near):.0f} % | {seconds / in_window.sum():.2f} |"
    )


def section() -> list[str]:
    """The table."""
    rows = [row(start, changes, pause_s) for start, changes in FLEETS for pause_s in PAUSES_S]
    return [HEAD, "| --- | ---: | ---: | ---: | ---: |", *rows]


if __name__ == "__main__":
    print("\n".join(section()))
