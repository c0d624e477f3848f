"""Failures of the trainer over a run: it begins again from its last checkpoint, and steps are made twice.

Theory (exponential times between failures, of mean M): a stretch of w seconds between two checkpoints, begun again
after each failure and a restart of R seconds, which may fail as well, takes M e^(R/M) (e^(w/M) - 1) seconds on average.
The interval that is best is near sqrt(2 C M) for a checkpoint of C seconds (J. W. Young, Communications of the ACM 17,
1974); with two further terms by J. T. Daly (Future Generation Computer Systems 22, 2006). Both are for a run without an
end: of one that has few stretches, or none that is worth a checkpoint, theory says the sum (`expected_run_s`). Beside
it stands the walk: the run's own steps, failure by failure.
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
_WALKS = 200
# A run that theory makes so many times as long is not walked: it would not end.
_NEVER = 50.0
# Intervals that are tried: so far to both sides of Daly's, by which ratio apart; and those that divide a run into so
# many equal parts. One that saves less than this share of the run is no better.
_FARTHEST, _APART, _PARTS, _ALIKE = 4.0, 2**0.25, 16, 0.001


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
    """What failures make of a run. every: steps between checkpoints, None = none. seconds: the mean, by theory. The
    rest by walks; low, high: eight of ten runs lie between."""

    every: int | None
    seconds: float
    low_s: float
    high_s: float
    failures: float
    lost_steps: float


class SaveInterval(Struct, frozen=True):
    """now: as the scenario has it. best: of the intervals that were tried. theory: steps by Daly. calm_s: seconds
    without failures."""

    recovery: Recovery
    now: Losses
    best: Losses
    theory: int
    calm_s: float


def recovery_of(scenario: Scenario) -> Recovery | None:
    """How the trainer comes back; None where it never fails. Raises InputError for bytes that nobody knows."""
    failures, saving = scenario.trainer.failures, scenario.trainer.checkpoint
    if failures.mtbf_s is None:
        return None
    write_s = write_seconds(scenario)
    held, late = (saving.stall_s, write_s) if saving.background else (saving.stall_s + write_s, 0.0)
    return Recovery(failures.mtbf_s, failures.restart_s, held, late)


def _timeline(recovery: Recovery, step_s: Floats, every: int | None) -> tuple[Floats, Floats, Floats]:
    """Without failures: when each step ends, its checkpoint among it; the ends from which a run begins again, 0 first;
    and when each of these checkpoints is there."""
    n = len(step_s)
    held = np.zeros(n) if every is None else recovery.held_s * ((np.arange(n) + 1) % every == 0)
    ends = np.cumsum(step_s + held)
    saved = np.zeros(1) if every is None else np.concatenate([[0.0], ends[every - 1 :: every]])
    there = saved + recovery.late_s
    there[0] = 0.0
    return ends, saved, there


def expected_run_s(recovery: Recovery, step_s: Floats, every: int | None) -> float:
    """Mean seconds of the whole run by theory. From when a checkpoint is there until the next one is, the first try may
    be shorter than the others, which begin at the checkpoint."""
    ends, saved, there = _timeline(recovery, step_s, every)
    there = there[there < ends[-1]]
    until = np.append(there[1:], ends[-1])
    again = until - saved[: len(there)]
    if not math.isfinite(recovery.expected_s(float(again.max()))):
        return math.inf
    m = recovery.mtbf_s
    restarted = m * math.exp(recovery.restart_s / m)
    return restarted * float((-np.expm1((there - until) / m) * np.exp(again / m)).sum())


def walk(recovery: Recovery, step_s: Floats, every: int | None, random: np.random.Generator) -> tuple[float, int, int]:
    """One run, failure by failure: its seconds, failures, and steps that were made again."""
    ends, saved, there = _timeline(recovery, step_s, every)
    at = wall = 0.0
    failures = lost = k = 0
    while True:
        after = float(random.exponential(recovery.mtbf_s))
        if at + after >= ends[-1]:
            return wall + float(ends[-1]) - at, failures, lost
        wall, failures = wall + after, failures + 1
        k = max(k, int(np.searchsorted(there, at + after, side="right")) - 1)  # what it began from is there
        # steps that were begun: what is lost of the one at hand counts as one
        lost += int(np.searchsorted(ends, at + after, side="right")) + 1 - k * (every or 0)
        at = float(saved[k])
        while (again := float(random.exponential(recovery.mtbf_s))) < recovery.restart_s:
            wall, failures = wall + again, failures + 1
        wall += recovery.restart_s


def losses_of(recovery: Recovery, step_s: Floats, every: int | None, seed: int) -> Losses:
    """What failures make of a run; infinite seconds for one that never comes to its end."""
    seconds = expected_run_s(recovery, step_s, every)
    if seconds > _NEVER * step_s.sum():
        return Losses(every, math.inf, math.inf, math.inf, math.inf, math.inf)
    found = np.array([walk(recovery, step_s, every, stream(seed, r, "trainer failures")) for r in range(_WALKS)])
    low, high = np.quantile(found[:, 0], (0.1, 0.9))
    _, failures, lost = (float(x) for x in found.mean(axis=0))
    return Losses(every, seconds, float(low), float(high), failures, lost)


def interval_of(recovery: Recovery, step_s: Floats, every: int | None, seed: int) -> SaveInterval:
    """The run with its own interval, and the one that is best by theory, which may be none. step_s: of every step,
    without checkpoints."""
    n = len(step_s)
    theory = min(n, max(1, round(recovery.daly_s / float(step_s.mean()))))
    ratios = np.arange(-math.log(_FARTHEST, _APART), math.log(_FARTHEST, _APART) + 1e-9)
    tried = {min(n, max(1, round(theory * _APART**k))) for k in ratios} | {n // k + 1 for k in range(2, _PARTS + 1)}
    expected = {k: expected_run_s(recovery, step_s, k) for k in (every, None, *sorted(tried))}
    least = min(expected, key=expected.__getitem__)
    now = losses_of(recovery, step_s, every, seed)
    alike = expected[every] <= (1.0 + _ALIKE) * expected[least]
    best = now if alike else losses_of(recovery, step_s, least, seed)
    calm = float(step_s.sum()) + (recovery.held_s * (n // every) if every else 0.0)
    return SaveInterval(recovery, now, best, theory, calm)
