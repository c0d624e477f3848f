"""`AlertRule` and `Standing`: what was decided for a plan's alerts; and the traces by which it is decided.

A signal's value as people read it: with its unit, in Prometheus's templates and in our own words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.alerts.learned import Learned
from fleetsim.alerts.rate import Floats, lowest_lately
from fleetsim.alerts.rehearsal import Rehearsal
from fleetsim.alerts.signal_values import Scraped, view
from fleetsim.alerts.signals import StandingSignal

# Format of a signal's values, as Go and Python both know it; the others are shares, shown in percent.
FORMATS = {
    "instances": ".0f",
    "sync_seconds": ".2f",
    "output_length": ".0f",
    "queue_depth": ".0f",
    "preemptions": ".3f",
    "oldest_age": ".1f",
    "generated_per_trained": ".2f",
}
# False alarms a month below this are not told apart: no simulation is that good.
FEWEST = 0.001


def template(signal: StandingSignal) -> str:
    """The alert's value with its unit, for an annotation."""
    spec = FORMATS.get(signal.name)
    value = "humanizePercentage" if spec is None else f'printf "%{spec}"'
    return f"{{{{ $value | {value} }}}} {signal.unit}"


def shown(signal: StandingSignal, value: float) -> str:
    """A value with its unit."""
    spec = FORMATS.get(signal.name)
    if spec is None:
        return f"{units.figures_share(value)} {signal.unit}"
    return f"{value:{spec}} {signal.unit}"


def short(signal: StandingSignal, value: float) -> str:
    """A value for a table: shares in percent, the rest with the digits of its kind."""
    spec = FORMATS.get(signal.name)
    if spec is None:
        return units.figures_share(value)
    return f"{value:,{spec}}"


def per_month(count: float) -> str:
    """A number of times a month, rounded to what is known of it."""
    if count < FEWEST:
        return f"fewer than {FEWEST:g}"
    return f"{count:.2g}" if count < 9.95 else f"{count:,.0f}"


def duration(seconds: float) -> str:
    """Seconds as Prometheus writes them: 600 -> 10m, 5400 -> 1h30m."""
    left, text = round(seconds), ""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            text += f"{left // size}{unit}"
            left %= size
    return text or "0s"


Booleans = NDArray[np.bool_]


class AlertRule(Struct, frozen=True):
    """One alert of a plan, and what was found about it.

    threshold: the alert's condition is beyond it for for_s. silenced_by: names of the signals whose own condition keeps
    it silent. healthy, faulty: level of the signal without and with its fault (None: the plan cannot have it).
    false_per_month, false_upper: over all that the plan may be, by extrapolation, with the upper end of its interval.
    seen: false alarms in the healthy hours; seen_upper: the most per month that this is compatible with. hours: healthy
    ones; learned: they are the fleet's own, and not simulated. found: share of the fault's runs in which it fired.
    delay_s, delay_p95_s: from the fault's begin, None unless it is seen. also: other alerts that this fault fires,
    before silencing or after. why_not: why the fault is not seen.
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
    hours: float
    learned: bool
    found: float
    delay_s: float | None
    delay_p95_s: float | None
    also: tuple[str, ...] = ()
    why_not: str | None = None


class Standing(Struct, frozen=True):
    """All alerts of a plan. left_out: signal -> why the plan has no use for its alert. fired: fault -> alert -> share
    of the fault's runs in which it fired. settle_s: how long a condition silences others after it has ended. learned:
    the fleet's own healthy hours, where a run was given."""

    rehearsal: Rehearsal
    budget_per_month: float
    rules: tuple[AlertRule, ...]
    left_out: Mapping[str, str]
    fired: Mapping[str, Mapping[str, float]]
    settle_s: float
    learned: Learned | None = None

    def rule(self, name: str) -> AlertRule:
        """The rule of a signal."""
        return next(r for r in self.rules if r.signal.name == name)


class Tracer:
    """Traces of all signals of a run, computed once: signal and window -> values (E,) that grow toward the alert.

    longest_s: of the windows that are looked through; None = all that are tried. moved: signal -> what is added to it.
    """

    def __init__(
        self,
        rehearsal: Rehearsal,
        scraped: Scraped,
        phase_s: float,
        left_open: bool = True,
        longest_s: float | None = None,
    ) -> None:
        self.rehearsal, self.scraped, self.left_open = rehearsal, scraped, left_open
        self.moved: Mapping[str, float] = {}
        first = float(scraped.times[0]) + (longest_s or rehearsal.windows_s[-1]) + phase_s
        self.at = np.arange(first, float(scraped.times[-1]), rehearsal.interval_s)
        self._known: dict[tuple[str, float], Floats] = {}

    def __call__(self, signal: StandingSignal, window_s: float) -> Floats:
        """The trace of one signal."""
        key = (signal.name, window_s)
        if key not in self._known:
            seen = view(self.scraped, self.at, window_s, self.rehearsal.expected, self.left_open)
            self._known[key] = sign(signal) * signal.trace(seen) + self.moved.get(signal.name, 0.0)
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
