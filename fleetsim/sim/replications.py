"""Independent runs of one scenario, with common random numbers across scenarios.

Replication r of every scenario with the same seed draws the same groups, latencies and failures. So two scenarios
differ because of what is different in them, and not by luck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Any

from msgspec import Struct

from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.errors import Interrupted
from fleetsim.estimates import Estimate, estimate
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.threads import side_by_side

__all__ = ["Estimate", "Replicated", "replicate"]


class Replicated(Struct, frozen=True):
    """metrics: as `metrics_of`, every number an Estimate, `binding` the most frequent one. values: per run."""

    scenario: Scenario
    metrics: dict[str, Any]
    values: tuple[dict[str, Any], ...]
    runs: tuple[Records, ...]


def replicate(
    scenario: Scenario,
    replications: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    scrape_every_s: float | None = None,
    activity: bool = False,
    on_step: Callable[[Mapping[int, tuple[int, float]]], None] | None = None,
) -> Replicated:
    """Runs replications 0..n-1 (default `run.replications`); progress(done, of) is called after each.

    scrape_every_s, activity: as for `simulate`, whose errors it raises, of the first replication.
    on_step: told after each step, on the thread that ran it, replication -> (steps done, simulated seconds).

    Raises Interrupted on Ctrl-C: with the Replicated of the finished replications or, before there is one, of the steps
    so far; with None before the first step.
    """
    n = scenario.run.replications if replications is None else replications
    reached: dict[int, tuple[int, float]] = dict.fromkeys(range(n), (0, 0.0))
    ended: dict[int, Records] = {}

    def one(r: int) -> Records:
        def told(steps: int, now_s: float) -> None:
            reached[r] = (steps, now_s)
            if on_step is not None:
                on_step(reached)

        every_s = None if r else scrape_every_s
        ended[r] = simulate(
            scenario,
            replication=r,
            scrape_every_s=every_s,
            activity=activity and r == 0,
            on_step=None if on_step is None else told,
        )
        return ended[r]

    try:
        runs = side_by_side(
            one, range(n), stop=Event(), each=None if progress is None else lambda i, _: progress(i + 1, n)
        )
    except KeyboardInterrupt:
        raise _interrupted(scenario, [ended[r] for r in sorted(ended)], n) from None
    return _replicated(scenario, runs)


def _replicated(scenario: Scenario, runs: Sequence[Records]) -> Replicated:
    values = tuple(metrics_of(run) for run in runs)
    return Replicated(scenario, combine(values), values, tuple(runs))


def _interrupted(scenario: Scenario, ended: Sequence[Records], n: int) -> Interrupted:
    """What is known of runs of which the last ones were cut short."""
    whole = [run for run in ended if not run.cut]
    if whole:
        missing = f"{len(whole)} of {n:,} replications were simulated"
        return Interrupted(_replicated(scenario, whole), missing)
    begun = [run for run in ended if len(run.steps)]
    steps = max((len(run.steps) for run in begun), default=0)
    missing = f"{steps:,} of {most_steps(scenario):,} steps were simulated, of {len(begun)} of {n:,} replications"
    return Interrupted(_replicated(scenario, begun) if begun else None, missing)


def combine(values: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Leaf by leaf: numbers to Estimates, words to the most frequent one (the first of equals)."""
    out: dict[str, Any] = {}
    for name, first in values[0].items():
        column = [value[name] for value in values]
        if isinstance(first, dict):
            out[name] = combine(tuple(column))
        elif isinstance(first, str):
            out[name] = Counter(column).most_common(1)[0][0]
        else:
            out[name] = estimate(column)
    return out
