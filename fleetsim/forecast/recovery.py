"""Failures of the trainer over a run: it begins again from its last checkpoint, and steps are made twice.

Theory (exponential times between failures, of mean M): a stretch of w seconds between two checkpoints, begun again
after each failure and a restart of R seconds, which may fail as well, takes M e^(R/M) (e^(w/M) - 1) seconds on average.
The interval that is best is near sqrt(2 C M) for a checkpoint of C seconds (J. W. Young, Communications of the ACM 17,
1974); with two further terms by J. T. Daly (Future Generation Computer Systems 22, 2006). Beside both stands the walk:
the run's own steps, failure by failure.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.sim.periodic import write_seconds
from fleetsim.workload.streams import stream

Floats = NDArray[np.float64]
_WALKS, _LOOKS = 200, 60
# A run that theory makes so many times as long is not walked: it would not end.
_NEVER = 50.0
# Intervals that are tried: so far to both sides of theory's, and by which ratio apart.
_FARTHEST, _APART = 4.0, 2**0.5


class Recovery(Struct, frozen=True):
    """mtbf_s: mean seconds between failures. restart_s: until it trains again. held_s: that a checkpoint holds it.
    late_s: after which a checkpoint that is written in the background is there."""

    mtbf_s: float
    restart_s: float
    held_s: float
    late_s: float = 0.0

    def expected_s(self, work_s: float) -> float:
        """Mean seconds of a stretch of so many between two checkpoints, its own checkpoint among them."""
        m = self.mtbf_s
        if max(work_s, self.restart_s) / m > math.log(1e12):
            return math.inf
        return m * math.exp(self.restart_s / m) * math.expm1(work_s / m)

    @property
    def young_s(self) -> float:
        """Seconds of work between two checkpoints, by Young."""
        return math.sqrt(2.0 * self.held_s * self.mtbf_s)

    @property
    def daly_s(self) -> float:
        """The same by Daly: with two more terms, and a failure's mean where checkpoints take longer than two."""
        c, m = self.held_s, self.mtbf_s
        if c >= 2.0 * m:
            return m
        root = math.sqrt(c / (2.0 * m))
        return self.young_s * (1.0 + root / 3.0 + root**2 / 9.0) - c


class Losses(Struct, frozen=True):
    """What failures make of a run, means over walks; low, high: eight of ten runs lie between. every: steps between
    checkpoints, None = none."""

    every: int | None
    seconds: float
    low_s: float
    high_s: float
    failures: float
    lost_steps: float


class SaveInterval(Struct, frozen=True):
    """now: as the scenario has it. best: of the intervals that were walked. theory: steps by Daly; expected_s: seconds
    of the run as it is, by theory. calm_s: without failures."""

    recovery: Recovery
    now: Losses
    best: Losses
    theory: int
    expected_s: float
    calm_s: float


def recovery_of(scenario: Scenario) -> Recovery | None:
    """How the trainer comes back; None where it never fails. Raises InputError for bytes that nobody knows."""
    failures, saving = scenario.trainer.failures, scenario.trainer.checkpoint
    if failures.mtbf_s is None:
        return None
    write_s = write_seconds(scenario)
    held, late = (saving.stall_s, write_s) if saving.background else (saving.stall_s + write_s, 0.0)
    return Recovery(failures.mtbf_s, failures.restart_s, held, late)


def expected_run_s(recovery: Recovery, step_s: Floats, every: int | None) -> float:
    """Mean seconds of the whole run by theory, for checkpoints that are there at once."""
    each = every or len(step_s)
    bounds = range(0, len(step_s), each)
    held = [recovery.held_s if every and first + each <= len(step_s) else 0.0 for first in bounds]
    work = np.add.reduceat(step_s, list(bounds)) + held
    return float(sum(recovery.expected_s(float(w)) for w in work))


def walk(recovery: Recovery, step_s: Floats, every: int | None, random: np.random.Generator) -> tuple[float, int, int]:
    """One run, failure by failure: its seconds, failures, and steps that were made again."""
    n = len(step_s)
    held = np.zeros(n) if every is None else recovery.held_s * ((np.arange(n) + 1) % every == 0)
    ends = np.cumsum(step_s + held)
    saved = np.zeros(1) if every is None else np.concatenate([[0.0], ends[every - 1 :: every]])
    there = saved + recovery.late_s
    there[0] = 0.0
    at = wall = 0.0
    failures = lost = 0
    while True:
        after = float(random.exponential(recovery.mtbf_s))
        if at + after >= ends[-1]:
            return wall + float(ends[-1]) - at, failures, lost
        wall, failures = wall + after, failures + 1
        k = int(np.searchsorted(there, at + after, side="right")) - 1
        # steps that were begun: what is lost of the one at hand counts as one
        lost += int(np.searchsorted(ends, at + after, side="right")) + 1 - k * (every or 0)
        at = float(saved[k])
        while (again := float(random.exponential(recovery.mtbf_s))) < recovery.restart_s:
            wall, failures = wall + again, failures + 1
        wall += recovery.restart_s


def losses_of(recovery: Recovery, step_s: Floats, every: int | None, seed: int, walks: int = _WALKS) -> Losses:
    """What failures make of a run; infinite seconds for one that never comes to its end."""
    if expected_run_s(recovery, step_s, every) > _NEVER * step_s.sum():
        return Losses(every, math.inf, math.inf, math.inf, math.inf, math.inf)
    found = np.array([walk(recovery, step_s, every, stream(seed, r, "trainer failures")) for r in range(walks)])
    low, high = np.quantile(found[:, 0], (0.1, 0.9))
    seconds, failures, lost = (float(x) for x in found.mean(axis=0))
    return Losses(every, seconds, float(low), float(high), failures, lost)


def interval_of(recovery: Recovery, step_s: Floats, every: int | None, seed: int) -> SaveInterval:
    """The run with its own interval, and the one that is best. step_s: of every step, without checkpoints.

    All intervals see failures of the same streams, so that chance does not choose between them.
    """
    mean = float(step_s.mean())
    theory = min(len(step_s), max(1, round(recovery.daly_s / mean)))
    ratios = np.arange(-math.log(_FARTHEST, _APART), math.log(_FARTHEST, _APART) + 1e-9)
    tried = {min(len(step_s), max(1, round(theory * _APART**k))) for k in ratios} | ({every} if every else set())
    looks = [losses_of(recovery, step_s, n, seed, _LOOKS) for n in sorted(tried)]
    best = losses_of(recovery, step_s, min(looks, key=lambda one: one.seconds).every, seed)
    now = best if best.every == every else losses_of(recovery, step_s, every, seed)
    expected = expected_run_s(recovery, step_s, every)
    calm = float(step_s.sum()) + (recovery.held_s * (len(step_s) // every) if every else 0.0)
    return SaveInterval(recovery, now, best, theory, expected, calm)
