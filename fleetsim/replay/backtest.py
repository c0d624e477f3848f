"""The back-test: the scenario that a window implies, simulated, beside what the window shows.

Throughput, step time and the instance's rate are compared as ratios; the trainer's idle share as a difference in
points of the step, because a ratio of two small shares says nothing; the queue in batches while it is shorter than
one. A fleet that was resized in the window is resized in the simulation at the same times, and each slice of the window
(`Observed.hours`) is held against its own part of the run; a fleet that kept its size is one steady run, and a slice
against it shows how the window drifted. Resizes happen at steps of the simulation: where no step was observed, how many
of them a time holds is taken from a short simulation of each fleet size. What nobody observed is not compared.

Engines that serve users have no trainer whose loop could be simulated: what was sent to each of them is sent again
(`replay/arrivals.py`), and tokens, requests in flight and the seconds of a request are compared.

The running totals of a simulated run, and the quantities of the back-test between any two of its moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.estimates import estimate
from fleetsim.replay.arrivals import PlayedRequests, Sent, play
from fleetsim.replay.compared_quantities import MEASURES, Compared, ComparedRow, look_at
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.observe.observed import Hour, Observed, value_of
from fleetsim.replay.observe.trainer import grows
from fleetsim.replay.window_view import GroupQueue
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.threads import side_by_side
from fleetsim.sim.window import warmup_steps


class RunTotals(Struct, frozen=True):
    """Running totals over the time since warm-up: tokens, instance-seconds, wait; and the queue."""

    time: NDArray[np.float64]
    tokens: NDArray[np.float64]
    instance_s: NDArray[np.float64]
    wait: NDArray[np.float64]
    queue: GroupQueue

    @classmethod
    def of(cls, records: Records) -> RunTotals:
        """The totals at the end of each step after warm-up."""
        steps = records.steps
        first = warmup_steps(records.scenario, steps["end_s"] - steps["start_s"])
        zero = float(steps["start_s"][first])
        before = steps[first - 1 : first] if first else np.zeros(1, steps.dtype)
        rows = np.concatenate([before, steps[first:]])
        time = np.append(zero, steps["end_s"][first:]) - zero
        wait = np.append(0.0, np.cumsum(steps["wait_s"][first:]))
        up = rows["busy_s"] + rows["paused_s"] + rows["idle_s"]
        return cls(
            time,
            rows["generated_tokens"] - float(rows["generated_tokens"][0]),
            np.asarray(up - up[0], dtype=np.float64),
            wait,
            GroupQueue.of(records, zero),
        )

    def between(self, a: float, b: float | None) -> dict[Compared, float]:
        """The quantities from a to b seconds after warm-up; b None or beyond the run = to its end."""
        end = float(self.time[-1]) if b is None else min(b, float(self.time[-1]))
        a = min(a, 0.999 * end)
        span = end - a

        def growth(total: NDArray[np.float64]) -> float:
            low, high = np.interp([a, end], self.time, total)
            return float(high - low)

        steps = growth(np.arange(len(self.time), dtype=np.float64))
        instance_s = growth(self.instance_s)
        return {
            "tok_s": growth(self.tokens) / span,
            "instance_tok_s": growth(self.tokens) / instance_s if instance_s > 0 else 0.0,
            "step_s": span / max(steps, 1e-9),
            "trainer_idle": growth(self.wait) / span,
            "queue": self.queue.mean(a, end),
        }


# Error beyond which the model is wrong somewhere.
LIMIT = 0.10
# Steps that a run with resizes may have; beyond them the window is simulated as if it were steady.
MOST_STEPS = 2_000
_SLACK = 1.25
# Steps of the short simulation that says how long a step of a fleet size takes, where nobody observed it.
_PILOT_STEPS = 24


class Slice(Struct, frozen=True):
    """The rows of one slice of the window. held_out: the engine's speed was fitted without it; None = not fitted."""

    start_s: float
    end_s: float
    held_out: bool | None
    rows: tuple[ComparedRow, ...]


class Backtest(Struct, frozen=True):
    """overall: the window; hours: its slices. verdict: ok | wrong (a row of `overall` is beyond the limit) | unknown
    (nothing could be compared). where: where to look, most likely first; empty while ok. steps, replications:
    simulated.
    """

    overall: tuple[ComparedRow, ...]
    hours: tuple[Slice, ...]
    verdict: Literal["ok", "wrong", "unknown"]
    limit: float
    where: tuple[str, ...]
    steps: int
    replications: int

    @property
    def worst(self) -> ComparedRow | None:
        """The row with the largest error."""
        return max(self.overall, key=lambda row: abs(row.error), default=None)

    def row(self, quantity: Compared) -> ComparedRow | None:
        """The overall row of a quantity, None where it was not compared."""
        return next((row for row in self.overall if row.quantity == quantity), None)


def backtest(
    observed: Observed,
    implied: Implied,
    *,
    replications: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Backtest:
    """Simulates the implied scenario and compares.

    progress(done, of) is called after each replication. Raises StuckError and InputError as `simulate` does.
    """
    n = replications if replications is not None else implied.scenario.run.replications
    scenario, moves = _played(observed, implied)
    runs = side_by_side(
        lambda r: simulate(scenario, replication=r, engine=implied.engine),
        range(n),
        each=None if progress is None else lambda i, _: progress(i + 1, n),
    )
    spans = [RunTotals.of(run) for run in runs]
    batch = scenario.trainer.batch_samples

    def rows_of(hour: Hour, a: float, b: float) -> tuple[ComparedRow, ...]:
        seen: dict[Compared, float | None] = {
            "tok_s": hour.tok_s or None,
            "instance_tok_s": hour.instance_tok_s or None,
            "step_s": hour.step_s,
            "trainer_idle": hour.idle_fraction,
            "queue": hour.queue,
        }
        return _compared(seen, [s.between(a, b) if moves else s.between(0.0, None) for s in spans], batch)

    overall = rows_of(_whole(observed, batch), 0.0, observed.span_s)

    unplayed = not moves and len(implied.resizes) > 1
    return _judged(observed, implied, overall, rows_of, most_steps(scenario), n, unplayed=unplayed)


def _whole(observed: Observed, batch: int) -> Hour:
    """The window as one slice. A queue that grows has no level that a run of another length could have."""
    fleet, trainer = observed.fleet, observed.trainer
    return Hour(
        start_s=observed.start_s,
        end_s=observed.end_s,
        instances=None if fleet is None else fleet.instances,
        tok_s=None if fleet is None else fleet.tok_s,
        instance_tok_s=None if fleet is None else fleet.instance_tok_s,
        step_s=value_of(trainer.step_s),
        idle_fraction=value_of(trainer.idle_fraction),
        queue=None if grows(observed, batch) is not None else observed.queue.depth,
    )


def backtest_of_arrivals(
    observed: Observed, implied: Implied, sent: Sent, *, progress: Callable[[int, int], None] | None = None
) -> Backtest | None:
    """Engines that serve users: what was sent to each is sent again. None where the window implies no engine.

    Raises InputError for a request that no instance can hold.
    """
    n = implied.scenario.run.replications
    runs: list[PlayedRequests] = []
    for replication in range(n):
        run = play(sent, implied, replication)
        if run is None:
            return None
        runs.append(run)
        if progress is not None:
            progress(len(runs), n)
    fleet, span = observed.fleet, observed.span_s
    assert fleet is not None  # `serves` has looked
    seen: dict[Compared, float | None] = {
        "tok_s": fleet.tok_s or None,
        "instance_tok_s": fleet.instance_tok_s or None,
        "in_flight": fleet.in_flight_mean or None,
        "request_s": sent.request_s or None,
    }
    overall = _compared(seen, [_served(run, 0.0, span, fleet.instances) for run in runs], 1)

    def rows_of(hour: Hour, a: float, b: float) -> tuple[ComparedRow, ...]:
        return _compared({"tok_s": hour.tok_s or None}, [_served(run, a, b, hour.instances) for run in runs], 1)

    return _judged(observed, implied, overall, rows_of, 0, n)


def _judged(
    observed: Observed,
    implied: Implied,
    overall: tuple[ComparedRow, ...],
    rows_of: Callable[[Hour, float, float], tuple[ComparedRow, ...]],
    steps: int,
    replications: int,
    *,
    unplayed: bool = False,
) -> Backtest:
    """rows_of: of an hour, with its begin and end in seconds from the window's start."""
    slices, middle, speed = [], 0.5 * (observed.start_s + observed.end_s), implied.speed
    for hour in observed.hours:
        rows = rows_of(hour, hour.start_s - observed.start_s, hour.end_s - observed.start_s)
        held_out = None if speed is None else speed.held_out is not None and hour.start_s >= middle - 1.0
        slices.append(Slice(hour.start_s, hour.end_s, held_out, rows))
    verdict: Literal["ok", "wrong", "unknown"] = "unknown"
    if overall:
        verdict = "ok" if all(row.within for row in overall) else "wrong"
    where = look_at(overall, implied, LIMIT, unplayed=unplayed) if verdict == "wrong" else ()
    return Backtest(overall, tuple(slices), verdict, LIMIT, where, steps, replications)


def _served(run: PlayedRequests, a: float, b: float, instances: float | None) -> dict[Compared, float]:
    """What the requests that were sent again made of the engines from a to b seconds."""
    tok_s = run.tokens_between(a, b) / (b - a)
    values: dict[Compared, float] = {"tok_s": tok_s, "in_flight": run.in_flight(a, b)}
    if instances:
        values["instance_tok_s"] = tok_s / instances
    lasted = run.request_s(b)
    return values if lasted is None else {**values, "request_s": lasted}


def _played(observed: Observed, implied: Implied) -> tuple[Scenario, bool]:
    """The scenario to simulate, and whether it is resized as the window was."""
    scenario, seen = implied.scenario, observed.trainer.step_s
    if len(implied.resizes) < 2 or (seen is not None and seen.value <= 0):
        return scenario, False

    @cache
    def step_s(instances: int) -> float:
        """As observed; else of one short run with so many instances, after warm-up."""
        if seen is not None:
            return seen.value
        few = min(_PILOT_STEPS, most_steps(implied.scenario))
        changes = {"fleet.instances": instances, "run.steps": few, "run.events": []}
        pilot = simulate(with_changes(implied.scenario, changes), engine=implied.engine)
        return RunTotals.of(pilot).between(0.0, None)["step_s"]

    warm = max(4, warmup_steps(scenario, np.ones(64)))
    at = [observed.start_s, *(at for at, _ in implied.resizes[1:]), observed.end_s]
    done = [0.0]
    for (start_s, end_s), (_, count) in zip(pairwise(at), implied.resizes, strict=True):
        done.append(done[-1] + (end_s - start_s) / step_s(count))
    steps = warm + int(_SLACK * done[-1]) + 2
    if steps > MOST_STEPS:
        return scenario, False
    events = [
        {"step": warm + round(before), "instances": count}
        for before, (_, count) in zip(done[1:], implied.resizes[1:], strict=False)
    ]
    changes: dict[str, Any] = {
        "fleet.instances": implied.resizes[0][1],
        "run.steps": steps,
        "run.warmup_steps": warm,
        "run.events": events,
    }
    return with_changes(scenario, changes), True


def _compared(
    values: Mapping[Compared, float | None], predicted: Sequence[dict[Compared, float]], batch: int
) -> tuple[ComparedRow, ...]:
    rows = []
    for name, measure in MEASURES.items():
        value = values.get(name)
        if value is None or not np.isfinite(value) or any(name not in p for p in predicted):
            continue
        interval = estimate([p[name] for p in predicted])
        scale = {"ratio": value, "points": 1.0, "batches": max(value, float(batch))}[measure]
        error = (interval.mean - value) / scale
        rows.append(ComparedRow(name, value, interval.mean, interval, error, measure, abs(error) <= LIMIT))
    return tuple(rows)
