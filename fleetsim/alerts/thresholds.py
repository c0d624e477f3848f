"""Window, threshold and `for:` of every alert, and what they cost: false alarms per month against detection delay.

For each window and `for:` the threshold is put where the healthy plan would cross it as rarely as the budget says.
Among those, the pair that finds the alert's own fault soonest wins. What is left of the distance to the fault is then
given to the threshold, as far as that costs no time: a real fleet is not quite the simulated one.
"""

from __future__ import annotations

import math

import numpy as np

from fleetsim.alerts.alert_rule import AlertRule, Standing, Tracer, fires, sign, worth
from fleetsim.alerts.inhibition import Begun, judged, silenced
from fleetsim.alerts.rate import MONTH_H, Floats, Tail, lowest_lately, most_per_month, tail_of
from fleetsim.alerts.rehearsal import Rehearsal
from fleetsim.alerts.signals import STANDING, StandingSignal

# Each run with a fault is evaluated so many times, at other moments.
PHASES = 3
# `for:` as shares of the shortest window.
HOLDS = (0.2, 0.4, 1.0)
# Evaluations by which the delay may grow for a safer threshold; it goes at most halfway to the fault, and at most so
# many times as far from the healthy level as the budget asks for.
SPARE, HALFWAY, ROOM = 2, 0.5, 8.0
# Of its level: a scatter below this is none.
STILL = 1e-3
# Presence needs a window of so many scrapes, and a minute.
PRESENCE_SCRAPES, PRESENCE_S = 4, 60.0
# A share of hits below this is no cache that could fail.
FEW_HITS = 0.05


def choose(rehearsal: Rehearsal, budget_per_month: float = 1.0) -> Standing:
    """The alerts of a plan: at most `budget_per_month` false alarms, over all of them, by the healthy runs' tails.

    Left out is an alert whose level nobody measured or gave, and one that no longer finds its fault where no healthy
    fleet that the plan may turn out to be fires it.
    """
    # Evaluations fall anywhere between two scrapes, and a fault anywhere between two evaluations.
    healthy = [
        Tracer(rehearsal, run, rehearsal.scrape_s * (i + 0.5) / len(rehearsal.healthy))
        for i, run in enumerate(rehearsal.healthy)
    ]
    faulty = {
        fault: [
            (Tracer(rehearsal, o.scraped, rehearsal.interval_s * (k + (i + 1) / (len(onsets) + 1)) / PHASES), o.onset_s)
            for i, o in enumerate(onsets)
            for k in range(PHASES)
        ]
        for fault, onsets in rehearsal.onsets.items()
    }
    other = [Tracer(rehearsal, run, rehearsal.scrape_s / 2) for run in rehearsal.other]
    share = budget_per_month / len(STANDING)
    rules: list[AlertRule] = []
    left_out: dict[str, str] = {}
    for signal in STANDING:
        reason = rehearsal.doubt.unmeasured.get(signal.name) or _no_use(signal, rehearsal, healthy)
        if reason is not None:
            left_out[signal.name] = reason
        else:
            mine = faulty[signal.fault]
            rule = _chosen(signal, rehearsal, healthy, other, mine, share)
            if impossible(rule):
                left_out[signal.name] = "its healthy values scatter so widely that no value could alarm"
            elif _missed(rule, mine) and not _missed(_chosen(signal, rehearsal, healthy, [], mine, share), mine):
                left_out[signal.name] = _too_unsure(rehearsal)
            else:
                rules.append(rule)
    settle_s = max(rule.window_s for rule in rules)
    rules = silenced(rules, faulty)
    return judged(Standing(rehearsal, budget_per_month, tuple(rules), left_out, {}, settle_s), faulty)


def _no_use(signal: StandingSignal, rehearsal: Rehearsal, healthy: list[Tracer]) -> str | None:
    values = np.concatenate([t(signal, rehearsal.windows_s[-1]) for t in healthy])
    if np.isnan(values).mean() > 0.5:
        return "the plan gives it no values"
    if signal.name == "prefix_hits" and -float(np.nanmean(values)) < FEW_HITS:
        return "the plan has next to no prefix-cache hits that could drop"
    if signal.name == "straggler_pace" and rehearsal.expected.instances < 3:
        return "fewer than three instances have no odd one out"
    if signal.name == "sync_seconds" and float(np.nanmax(values)) <= 0:
        return "weight sync does not hold the trainer in this plan"
    return None


def _chosen(
    signal: StandingSignal,
    rehearsal: Rehearsal,
    healthy: list[Tracer],
    other: list[Tracer],
    faulty: Begun,
    share: float,
) -> AlertRule:
    """Window, threshold and `for:` by the rule of this module."""
    best: tuple[tuple[float, ...], float, float, float] | None = None
    for window_s in windows_of(signal, rehearsal):
        for for_s in holds_of(signal, rehearsal):
            points = round(for_s / rehearsal.interval_s) + 1
            level = _safe_level(signal, rehearsal, healthy, other, window_s, points, share)
            delays = [_delay(t(signal, window_s), level, points, t, onset) for t, onset in faulty]
            false = _episodes(signal, healthy, window_s, level, points)
            missed, p95, median = worth(delays)
            # what never finds its fault is put where it comes nearest to it
            short = level - _center(signal, healthy, window_s) if missed == 1.0 else 0.0
            key = (float(false > 0 and signal.name == "instances"), missed, p95, median, short, window_s + for_s)
            if best is None or key < best[0]:
                best = (key, window_s, for_s, level)
    assert best is not None
    _, window_s, for_s, level = best
    points = round(for_s / rehearsal.interval_s) + 1
    center = _center(signal, healthy, window_s)
    late = [t(signal, window_s)[t.at > 0.5 * (onset + t.at[-1])] for t, onset in faulty]
    fault_level = (
        float(np.nanmedian(np.concatenate(late))) if late and not np.isnan(np.concatenate(late)).all() else None
    )
    if signal.name != "instances" and fault_level is not None:
        most = center + min(HALFWAY * (fault_level - center), ROOM * (level - center))
        level = _with_room(signal, rehearsal, faulty, window_s, points, level, most)
    if signal.name != "instances":
        level = sign(signal) * rounded(sign(signal) * level, signal.alerts_when == "above")
    tail = _tail(signal, rehearsal, healthy, window_s, points)
    seen = _episodes(signal, healthy, window_s, level, points)
    counted = signal.name == "instances"
    hours = rehearsal.hours
    return AlertRule(
        signal=signal,
        window_s=window_s,
        threshold=sign(signal) * level,
        for_s=for_s,
        silenced_by=(),
        healthy=sign(signal) * center,
        faulty=None if fault_level is None else sign(signal) * fault_level,
        false_per_month=seen / hours * MONTH_H if counted else tail.per_month(level),
        false_upper=most_per_month(seen, hours) if counted else tail.per_month_upper(level),
        seen=seen,
        seen_upper=most_per_month(seen, hours),
        found=0.0,
        delay_s=None,
        delay_p95_s=None,
    )


def impossible(rule: AlertRule) -> bool:
    """Whether no value could be beyond the threshold: all signals are positive, and a share of time is at most 1."""
    if rule.signal.alerts_when == "below":
        return rule.threshold <= 0.0
    return rule.signal.name == "trainer_idle" and rule.threshold >= 1.0


def _missed(rule: AlertRule, faulty: Begun) -> bool:
    """Whether its own fault does not fire it, silenced by nothing."""
    return bool(faulty) and not any(_fires(rule, tracer, onset) for tracer, onset in faulty)


def _fires(rule: AlertRule, tracer: Tracer, from_s: float) -> bool:
    values = tracer(rule.signal, rule.window_s)
    points = round(rule.for_s / tracer.rehearsal.interval_s) + 1
    return bool((fires(values > sign(rule.signal) * rule.threshold, points) & (tracer.at >= from_s)).any())


def _too_unsure(rehearsal: Rehearsal) -> str:
    what = ", ".join(rehearsal.doubt.inputs) or "how one run differs from its repetition"
    return (
        f"the plan is not sure of {what}, and a healthy fleet that is off by that would fire it as its fault does; a "
        "plan whose back-test held is surer: `fleetsim replay --from WINDOW --plan-out PLAN.json` writes one, "
        "`fleetsim alerts --plan PLAN.json` takes it"
    )


def windows_of(signal: StandingSignal, rehearsal: Rehearsal) -> tuple[float, ...]:
    """Windows to try; presence needs only a few scrapes."""
    if signal.name == "instances":
        return (max(PRESENCE_S, PRESENCE_SCRAPES * rehearsal.scrape_s),)
    return rehearsal.windows_s


def holds_of(signal: StandingSignal, rehearsal: Rehearsal) -> tuple[float, ...]:
    """`for:` durations to try, whole evaluations; lost instances may get the time that a restart takes."""
    base = [share * rehearsal.windows_s[0] for share in HOLDS]
    if signal.name == "instances":
        base = [60.0, 120.0, 300.0]
        failures = rehearsal.scenario.fleet.failures
        if failures.mtbf_s is not None:
            base.append(failures.restart_s + PRESENCE_S)
    step = rehearsal.interval_s
    return tuple(sorted({math.ceil(s / step) * step for s in base}))


def _center(signal: StandingSignal, healthy: list[Tracer], window_s: float) -> float:
    return float(np.nanmean(np.concatenate([t(signal, window_s) for t in healthy])))


def _tail(signal: StandingSignal, rehearsal: Rehearsal, healthy: list[Tracer], window_s: float, points: int) -> Tail:
    block_s = max(3600.0, 2.0 * (window_s + points * rehearsal.interval_s))
    lows = [lowest_lately(t(signal, window_s), points) for t in healthy]
    return tail_of(lows, round(block_s / rehearsal.interval_s), block_s / 3600.0)


def _safe_level(
    signal: StandingSignal,
    rehearsal: Rehearsal,
    healthy: list[Tracer],
    other: list[Tracer],
    window_s: float,
    points: int,
    share: float,
) -> float:
    """The level that a healthy fleet exceeds for so long `share` times a month, whichever it turns out to be: one that
    is off scatters about its own level as the plan does about its."""
    if signal.name == "instances":
        return -float(rehearsal.expected.instances)
    level = _tail(signal, rehearsal, healthy, window_s, points).level(share)
    highest = max(float(np.nanmax(t(signal, window_s))) for t in healthy) if math.isnan(level) else level
    center = _center(signal, healthy, window_s)
    level = max(highest, center + signal.least)
    spread = float(np.nanstd(np.concatenate([t(signal, window_s) for t in healthy])))
    for values in (t(signal, window_s) for t in other):
        if not np.isnan(values).all():
            # as many of its own standard deviations; a level that hardly moves has none
            wider = max(1.0, float(np.nanstd(values)) / spread) if spread > STILL * abs(center) else 1.0
            lows = lowest_lately(values, points)
            seen = float(np.nanmax(lows)) if not np.isnan(lows).all() else -math.inf
            level = max(level, seen, float(np.nanmean(values)) + wider * (highest - center))
    # What the plan's own target allows is no fault, however much calmer the simulated fleet is.
    return max(level, rehearsal.scenario.targets.idle_limit) if signal.name == "trainer_idle" else level


def _with_room(
    signal: StandingSignal, rehearsal: Rehearsal, faulty: Begun, window_s: float, points: int, level: float, most: float
) -> float:
    """The highest level up to `most` that finds the fault hardly later."""
    if not most > level:
        return level
    before = worth([_delay(t(signal, window_s), level, points, t, onset) for t, onset in faulty])
    for part in (1.0, 0.8, 0.6, 0.4, 0.2):
        higher = level + part * (most - level)
        now = worth([_delay(t(signal, window_s), higher, points, t, onset) for t, onset in faulty])
        if now[0] <= before[0] and now[1] <= before[1] + SPARE * rehearsal.interval_s:
            return higher
    return level


def _delay(values: Floats, level: float, points: int, tracer: Tracer, onset_s: float) -> float:
    """Seconds from the fault's begin to the first evaluation that fires; inf = never."""
    firing = fires(values > level, points) & (tracer.at >= onset_s)
    return float(tracer.at[np.argmax(firing)] - onset_s) if firing.any() else math.inf


def _episodes(signal: StandingSignal, healthy: list[Tracer], window_s: float, level: float, points: int) -> int:
    """How often the alert begins to fire in the healthy runs."""
    total = 0
    for t in healthy:
        firing = fires(t(signal, window_s) > level, points)
        total += int(np.count_nonzero(firing[1:] & ~firing[:-1]) + (len(firing) > 0 and bool(firing[0])))
    return total


def rounded(level: float, up: bool) -> float:
    """Three significant figures, away from the healthy side."""
    if level == 0 or not math.isfinite(level):
        return level
    unit = 10.0 ** (math.floor(math.log10(abs(level))) - 2)
    return round((math.ceil if up else math.floor)(level / unit - (1e-9 if up else -1e-9)) * unit, 12)
