"""The steps of a run that count: those after warm-up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.law_numbers import law_of, sizes_of
from fleetsim.config.scenario import Scenario
from fleetsim.sim.engines import engine_of
from fleetsim.sim.records import Records
from fleetsim.workload.lengths import mean_length
from fleetsim.workload.turns import response_law

_sum = np.add.reduce


class StepWindow(Struct, frozen=True):
    """The steps that count: `steps` from `start_s` to `end_s`; totals are differences over it."""

    first: int
    steps: NDArray[Any]
    before: NDArray[Any] | None  # the step before the window, whose totals are its start
    start_s: float
    end_s: float

    def total(self, column: str) -> float:
        """Growth of a running total over the window."""
        base = 0.0 if self.before is None else float(self.before[column])
        return float(self.steps[column][-1]) - base

    @property
    def span_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s

    @property
    def step_s(self) -> float:
        """Seconds of a step, in the mean."""
        return self.span_s / len(self.steps)


class Growth(Struct):
    """By how much the totals of a station or a judge grew in a window: of its own workers or engines, and of its
    overflow (0 without one)."""

    own: dict[str, float]
    beyond: dict[str, float]

    @property
    def all(self) -> dict[str, float]:
        """Of both together."""
        return {name: of + self.beyond[name] for name, of in self.own.items()}


def grown(rows: NDArray[Any], counts: Sequence[str], window: StepWindow) -> dict[str, float]:
    """By how much these columns grew in the window. rows: the totals of one station, at the end of each step."""
    before = rows[window.first - 1] if window.first else np.zeros((), rows.dtype)
    return {name: float(rows[name][-1]) - float(before[name]) for name in counts}


def window_of(records: Records) -> StepWindow:
    """The window of a run after warm-up (see `warmup_steps`)."""
    steps = records.steps
    first = warmup_steps(records.scenario, steps["end_s"] - steps["start_s"])
    return StepWindow(
        first,
        steps[first:],
        steps[first - 1] if first else None,
        float(steps["start_s"][first]),
        float(steps["end_s"][-1]),
    )


def warmup_steps(scenario: Scenario, step_s: NDArray[np.float64]) -> int:
    """Steps to leave out: `run.warmup_steps` if given, else the larger of a floor and the MSER point, at most half;
    and as many more as leave whole periods of what happens every N steps, where one is left.

    The floor is the pipeline's own depth: 2 steps, plus the versions that samples may lag behind times the steps per
    version (an empty fleet takes that long to fill). MSER (White 1997) then moves on to the truncation d <= n / 2
    that minimises the squared standard error of the remaining step times, sum (x - mean)^2 / (n - d)^2.
    """
    n = len(step_s)
    floor = least_warmup_steps(scenario)
    if scenario.run.warmup_steps is not None:
        return _whole_periods(scenario, min(floor, n - 1), n)
    half = n // 2
    errors = [_squared_error(step_s[d:]) for d in range(half + 1)]
    return _whole_periods(scenario, min(max(floor, int(np.argmin(errors))), half), n)


def _whole_periods(scenario: Scenario, first: int, n: int) -> int:
    """The first step from `first` on from which n steps have whole periods; `first` where no period is left."""
    period = scenario.period_steps
    return first if n - first < period else n - (n - first) // period * period


def _squared_error(x: NDArray[np.float64]) -> float:
    """The squared standard error of the mean. The methods `mean` and `sum` of so few numbers take twice as long."""
    off = x - _sum(x) / len(x)
    return float(_sum(off * off) / len(x) ** 2)


def least_warmup_steps(scenario: Scenario) -> int:
    """The floor of `warmup_steps`, or `run.warmup_steps`: a run that is no longer has nothing but its beginning."""
    if scenario.run.warmup_steps is not None:
        return scenario.run.warmup_steps
    return 2 + math.ceil(law_of(scenario).depth_steps(scenario.admission, sizes_of(scenario)))


def pipeline_steps(scenario: Scenario) -> float:
    """Steps whose samples are in flight together: what a run must be long beside, to be steady.

    As the law says. Where it sets no number of batches or versions, all that the engines hold is in flight: samples of
    one length come out of a full engine together, and feed the trainer for as many steps.
    """
    law, a, fleet = law_of(scenario), scenario.admission, scenario.fleet
    depth = law.depth_steps(a, sizes_of(scenario))
    if law.ahead is not None:
        return depth
    flight = min(law.in_flight(a, sizes_of(scenario)), fleet.max_in_flight_samples or math.inf)
    return max(depth, min(flight, held_samples(scenario)) / scenario.trainer.batch_samples)


def held_samples(scenario: Scenario) -> float:
    """Samples that the engines run together at most, with caches of their mean length."""
    fleet, w, limits = scenario.fleet, scenario.workload, engine_of(scenario)[1]
    held = limits.held_tokens(mean_length(w.prompt_tokens, at_least=1.0) + mean_length(response_law(w), at_least=1.0))
    each = fleet.max_in_flight_samples_per_instance or math.inf
    return (fleet.instances + fleet.pooled) * min(each, limits.max_num_seqs, max(1.0, limits.kv_tokens // held))
