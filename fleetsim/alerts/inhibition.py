"""One fault, one alert: which alerts are silent for which others, and what fires when all rules act together."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fleetsim import units
from fleetsim.alerts.alert_rule import AlertRule, Booleans, Standing, Tracer, fires, shown, sign, worth
from fleetsim.alerts.faults import BY_FAULT
from fleetsim.alerts.rate import any_lately
from fleetsim.alerts.signals import BY_STANDING_NAME
from fleetsim.records import replace

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
