"""A run in characters, for a terminal, which has no pictures: the seconds of each step, the queue, the waste."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.job.words import lost_words
from fleetsim.quantities import WASTE, quantity
from fleetsim.tell.characters import bar, sparkline
from fleetsim.tell.document import Block, Table, estimated, present

_BAR_WIDTH, _SPARK_WIDTH = 40, 24
_MOST_STEPS = 12
# Column of the steps -> the character that its seconds are drawn with.
_DRAWN: Mapping[str, str] = {
    "wait_s": "·",
    "train_s": "█",
    "sync_block_s": "▒",
    "checkpoint_s": "c",
    "switch_s": "s",
}


def time_legend(steps: NDArray[Any]) -> str:
    """Which character is what: "wait ·  train █  sync ▒", and what only some runs spend time on."""
    always = (("wait", "wait_s"), ("train", "train_s"), ("sync", "sync_block_s"))
    rare = (("checkpoint", "checkpoint_s"), ("switch", "switch_s"))
    return "  ".join(f"{name} {_DRAWN[column]}" for name, column in (*always, *(r for r in rare if steps[r[1]].any())))


def time_split(steps: NDArray[Any]) -> Table:
    """The trainer's cycle, step by step: waiting for samples, training, held by the sync."""
    half = _MOST_STEPS // 2
    shown = range(len(steps)) if len(steps) <= _MOST_STEPS else [*range(half), *range(len(steps) - half, len(steps))]
    longest = max((float(s["end_s"] - s["start_s"]) for s in steps), default=0.0)
    rows: list[tuple[str, ...]] = []
    last = -1
    for i in shown:
        if i != last + 1:
            rows.append(("...", "", "", "", "", ""))
        last = i
        rows.append((str(int(steps[i]["step"])), *_seconds(steps[i], longest)))
    return Table("", ("step", "", "seconds", "wait", "train", "sync"), tuple(rows), left=2, numbered=True)


def _seconds(step: Any, longest: float) -> tuple[str, ...]:
    """The bar of one step, and its figures. longest: seconds of the longest one, whose bar has the whole width."""
    total = float(step["end_s"] - step["start_s"])
    width = max(1, round(_BAR_WIDTH * total / longest)) if longest > 0 else 0
    parts = [(float(step[column]), character) for column, character in _DRAWN.items()]
    seconds = (total, step["wait_s"], step["train_s"], step["sync_block_s"])
    return bar(parts, width), *(f"{x:.1f}" for x in seconds)


def queue(steps: NDArray[Any], staleness_steps: NDArray[Any], metrics: Mapping[str, Estimate]) -> Table:
    """Samples in the buffer over the run, and how old the trained samples were.

    staleness_steps: of every trained group."""
    depth = [float(d) for d in steps["queue_depth"]]
    age = [float(d) for d in steps["oldest_age_steps"]]
    counts = np.bincount(staleness_steps.astype(np.int64)) if len(staleness_steps) else np.zeros(1)
    mean, p99 = (units.number(metrics[f"staleness_steps.{of}"].mean) for of in ("mean", "p99"))
    rows = (
        ("queue depth", sparkline(depth, _SPARK_WIDTH), f"0 to {units.number(max(depth, default=0.0))} samples"),
        ("oldest sample", sparkline(age, _SPARK_WIDTH), f"0 to {units.number(max(age, default=0.0))} steps"),
        (
            "staleness",
            sparkline([float(c) for c in counts], _SPARK_WIDTH),
            f"0 to {len(counts) - 1} steps; mean {mean}, p99 {p99}",
        ),
    )
    return Table("", ("", "", ""), rows, left=3)


def waste(metrics: Mapping[str, Estimate]) -> tuple[Block, ...]:
    """Tokens generated for each one that was trained, where the others went, and how many long samples were lost."""
    rows = [("all", estimated(metrics["tokens_per_trained_token"], "number"))]
    rows += [
        (quantity(name).heading, estimated(metrics[name], "number"))
        for name in WASTE
        if name in metrics and metrics[name].mean > 0
    ]
    lost, longest = (metrics[f"samples_lost.{of}"] for of in ("all", "longest_tenth"))
    return present(Table("", ("", ""), tuple(rows), left=2), lost_words(lost, longest))
