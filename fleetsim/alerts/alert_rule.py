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
from fleetsim.alerts.faults import BY_FAULT
from fleetsim.alerts.learned import Learned
from fleetsim.alerts.rehearsal import Rehearsal
from fleetsim.alerts.signal_values import Floats, Scraped, any_lately, lowest_lately, view
from fleetsim.alerts.signals import BY_STANDING_NAME, StandingSignal
from fleetsim.records import replace

# False alarms a month below this are not told apart: no simulation is that good.
FEWEST = 0.001


def template(signal: StandingSignal) -> str:
    """The alert's value with its unit, for an annotation."""
    value = f'printf "%{signal.figure}"' if signal.figure else "humanizePercentage"
    return f"{{{{ $value | {value} }}}} {signal.unit}"


def shown(signal: StandingSignal, value: float) -> str:
    """A value with its unit."""
    return f"{f'{value:{signal.figure}}' if signal.figure else units.figures_share(value)} {signal.unit}"


def short(signal: StandingSignal, value: float) -> str:
    """A value for a table: shares in percent, the rest with the digits of its kind."""
    return f"{value:,{signal.figure}}" if signal.figure else units.figures_share(value)


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
            with np.errstate(divide="ignore", invalid="ignore"):
                values: Floats = signal.formula(seen)
            self._known[key] = sign(signal) * values + self.moved.get(signal.name, 0.0)
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


# --- One fault, one alert: which alerts are silent for which others, and what fires when all rules act together.

# A fault counts as seen if the alert finds it in so many of its runs.
SEEN = 0.9
# An alert that another one's fault moves for this share of its `for:` is silent for it.
NEARLY = 0.5

# Runs of one fault, and when it begins in each.
Begun = list[tuple[Tracer, float]]


def condition(rule: AlertRule, tracer: Tracer) -> Booleans:
    """When the signal is beyond its threshold: (E,)."""
    values = tracer(rule.signal, rule.window_s)
    beyond: Booleans = values > sign(rule.signal) * rule.threshold
    return beyond


def silenced(rules: list[AlertRule], faulty: Mapping[str, Begun]) -> list[AlertRule]:
    """Each rule with the earlier signals that keep it silent: those whose fault would make it fire, too, or nearly."""
    out: list[AlertRule] = []
    for rule in rules:
        by = []
        for earlier in out:
            for t, onset in faulty.get(earlier.signal.fault, []):
                if (active(rule, t) & (t.at >= onset)).any():
                    by.append(earlier.signal.name)
                    break
        out.append(replace(rule, silenced_by=tuple(by)))
    return out


def active(rule: AlertRule, tracer: Tracer) -> Booleans:
    """When the signal has been beyond its threshold for half of the rule's `for:`; this is what silences others."""
    return fires(condition(rule, tracer), active_evaluations(rule, tracer.rehearsal.interval_s) + 1)


def active_evaluations(rule: AlertRule, interval_s: float) -> int:
    """Evaluations from the first to the last one of the stretch after which a condition silences others."""
    return int(NEARLY * rule.for_s / interval_s + 1e-9)


def alarms(standing: Standing, tracer: Tracer) -> dict[str, Booleans]:
    """Alert -> when it fires, silencing included."""
    raw = {rule.signal.name: condition(rule, tracer) for rule in standing.rules}
    lately = {
        rule.signal.name: any_lately(active(rule, tracer), round(standing.settle_s / standing.rehearsal.interval_s) + 1)
        for rule in standing.rules
    }
    out = {}
    for rule in standing.rules:
        true = raw[rule.signal.name]
        for name in rule.silenced_by:
            true = true & ~lately[name]
        out[rule.signal.alert] = fires(true, round(rule.for_s / standing.rehearsal.interval_s) + 1)
    return out


def judged(standing: Standing, faulty: Mapping[str, Begun]) -> Standing:
    """The alerts with their delays and with what fires for each fault when all rules act together."""
    seen = {fault: [(alarms(standing, t), t.at, onset) for t, onset in runs] for fault, runs in faulty.items() if runs}
    fired: dict[str, dict[str, float]] = {}
    for fault, runs in seen.items():
        shares = {
            rule.signal.alert: sum(bool((fire[rule.signal.alert] & (at >= onset)).any()) for fire, at, onset in runs)
            / len(runs)
            for rule in standing.rules
        }
        fired[fault] = {alert: share for alert, share in shares.items() if share > 0}
    rules = []
    for rule in standing.rules:
        delays = []
        for fire, at, onset in seen.get(rule.signal.fault, []):
            firing = fire[rule.signal.alert] & (at >= onset)
            delays.append(float(at[np.argmax(firing)] - onset) if firing.any() else math.inf)
        missed, p95, median = worth(delays)
        # when evaluations and steps happen is not ours to choose
        p95 += standing.rehearsal.interval_s + (standing.rehearsal.step_s if rule.signal.per_step else 0.0)
        found = 1.0 - missed if delays else 0.0
        enough = found >= SEEN
        others = tuple(a for a in fired.get(rule.signal.fault, {}) if a != rule.signal.alert)
        rules.append(
            replace(
                rule,
                found=found,
                delay_s=median if enough else None,
                delay_p95_s=p95 if enough else None,
                also=others,
                why_not=None if enough else _why_not(rule, fired.get(rule.signal.fault, {}), len(delays), found),
            )
        )
    return replace(standing, rules=tuple(rules), fired=fired)


def _why_not(rule: AlertRule, fired: Mapping[str, float], runs: int, found: float) -> str:
    fault = BY_FAULT[rule.signal.fault].title
    if runs == 0:
        return f'this plan cannot be simulated with "{fault}"'
    first = [BY_STANDING_NAME[n].alert for n in rule.silenced_by if fired.get(BY_STANDING_NAME[n].alert, 0.0) >= SEEN]
    if first:
        return f'in this plan "{fault}" fires {first[0]}, which speaks first'
    if rule.faulty is None:
        return f'"{fault}" gives it no values'
    now, was, limit = (shown(rule.signal, value) for value in (rule.faulty, rule.healthy, rule.threshold))
    often = units.share(found, 0)
    return f'"{fault}" moves it from {was} to {now}, the alert begins at {limit} (found in {often} of the runs)'
