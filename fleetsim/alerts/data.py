"""The document of `fleetsim alerts --json`."""

from __future__ import annotations

from typing import Any

from fleetsim.alerts.alert_rule import AlertRule, Standing
from fleetsim.alerts.faults import BY_FAULT
from fleetsim.alerts.rules import Writing, alert_expression, record_name
from fleetsim.alerts.signals import BY_STANDING_NAME
from fleetsim.tell.data import head


def alerts_document(standing: Standing, writing: Writing, rules: dict[str, Any]) -> dict[str, Any]:
    """Every alert with what was found about it, what each fault fires, and the rule file itself."""
    made = standing.rehearsal
    return {
        **head("alerts", made.scenario),
        "plan": writing.plan,
        "simulated": {
            "healthy_hours": made.hours,
            "runs_per_fault": {fault: len(onsets) for fault, onsets in made.onsets.items()},
            "step_s": made.step_s,
            "scrape_interval_s": made.scrape_s,
            "evaluation_interval_s": made.interval_s,
        },
        "false_alarm_budget_per_month": standing.budget_per_month,
        "false_alarms_per_month": sum(rule.false_per_month for rule in standing.rules),
        "alerts": [_alert(standing, rule, writing) for rule in standing.rules],
        "left_out": {BY_STANDING_NAME[name].alert: why for name, why in standing.left_out.items()},
        "fired_by_fault": {fault: dict(shares) for fault, shares in standing.fired.items()},
        "rules": rules,
    }


def _alert(standing: Standing, rule: AlertRule, writing: Writing) -> dict[str, Any]:
    return {
        "alert": rule.signal.alert,
        "signal": rule.signal.name,
        "record": record_name(rule),
        "expr": alert_expression(standing, rule, writing),
        "severity": rule.signal.severity,
        "alerts_when": rule.signal.alerts_when,
        "threshold": rule.threshold,
        "window_s": rule.window_s,
        "for_s": rule.for_s,
        "silenced_by": [BY_STANDING_NAME[name].alert for name in rule.silenced_by],
        "healthy": rule.healthy,
        "faulty": rule.faulty,
        "false_alarms": {
            "per_month": rule.false_per_month,
            "per_month_upper_95": rule.false_upper,
            "seen": rule.seen,
            "compatible_with_per_month": rule.seen_upper,
        },
        "fault": {
            "name": rule.signal.fault,
            "title": BY_FAULT[rule.signal.fault].title,
            "found_share": rule.found,
            "delay_s": rule.delay_s,
            "delay_p95_s": rule.delay_p95_s,
            "not_seen_because": rule.why_not,
            "also_fires": list(rule.also),
        },
    }
