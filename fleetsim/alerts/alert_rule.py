"""`AlertRule` and `Standing`: what was decided for a plan's alerts; and the traces by which it is decided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetsim.alerts.rate import Floats, lowest_lately
from fleetsim.alerts.rehearsal import Rehearsal
from fleetsim.alerts.signal_values import Scraped, view
from fleetsim.alerts.signals import StandingSignal

Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One alert of a plan, and what was found about it.

    threshold: the alert's condition is beyond it for for_s. silenced_by: names of the signals whose own condition keeps
    it silent. healthy, faulty: level of the signal without and with its fault (None: the plan cannot have it).
    false_per_month, false_upper: by extrapolation, with the upper end of its interval; seen: false alarms in the
    simulated healthy hours; seen_upper: the most per month that this is compatible with. found: share of the fault's
    runs in which it fired; delay_s, delay_p95_s: from the fault's begin, None unless it is seen. also: other alerts
    that this fault fires, before silencing or after. why_not: why the fault is not seen.
    """

    signal: StandingSignal
    window_s: float
    threshold: float
    for_s: float
    silenced_by: tuple[str, ...]
    healthy: float
    faulty: float | None
    false_per_month: float
    false_upper: float
    seen: int
    seen_upper: float
    found: float
    delay_s: float | None
    delay_p95_s: float | None
    also: tuple[str, ...] = ()
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """All alerts of a plan. left_out: signal -> why the plan has no use for its alert. fired: fault -> alert -> share
    of the fault's runs in which it fired. settle_s: how long a condition silences others after it has ended."""

    rehearsal: Rehearsal
    budget_per_month: float
    rules: tuple[AlertRule, ...]
    left_out: Mapping[str, str]
    fired: Mapping[str, Mapping[str, float]]
    settle_s: float

    def rule(self, name: str) -> AlertRule:
        """The rule of a signal."""
        return next(r for r in self.rules if r.signal.name == name)


class Tracer:
    """Traces of all signals of a run, computed once: signal and window -> values (E,) that grow toward the alert."""

    def __init__(self, rehearsal: Rehearsal, scraped: Scraped, phase_s: float, left_open: bool = True) -> None:
        self.rehearsal, self.scraped, self.left_open = rehearsal, scraped, left_open
        first = float(scraped.times[0]) + rehearsal.windows_s[-1] + phase_s
        self.at = np.arange(first, float(scraped.times[-1]), rehearsal.interval_s)
        self._known: dict[tuple[str, float], Floats] = {}

    def __call__(self, signal: StandingSignal, window_s: float) -> Floats:
        """The trace of one signal."""
        key = (signal.name, window_s)
        if key not in self._known:
            seen = view(self.scraped, self.at, window_s, self.rehearsal.expected, self.left_open)
            self._known[key] = sign(signal) * signal.trace(seen)
        return self._known[key]


def sign(signal: StandingSignal) -> float:
    """1 if the alert is for values above, -1 for values below."""
    return 1.0 if signal.alerts_when == "above" else -1.0


def fires(true: Booleans, points: int) -> Booleans:
    """When an alert fires whose condition must hold for `points` evaluations in a row."""
    firing: Booleans = lowest_lately(true.astype(float), points) == 1.0
    return firing


def worth(delays: list[float]) -> tuple[float, float, float]:
    """Smaller is better: runs in which the fault is missed, then the delay's 95th percentile, then its median."""
    if not delays:
        return (0.0, 0.0, 0.0)
    missed = sum(math.isinf(d) for d in delays) / len(delays)
    seen = [d for d in delays if not math.isinf(d)]
    if not seen:
        return (1.0, math.inf, math.inf)
    return (missed, float(np.quantile(seen, 0.95)), float(np.median(seen)))
