"""What `fleetsim alerts -o` says: what stands watch, how often it will be wrong, how soon it will be right."""

from __future__ import annotations

from typing import Any

from fleetsim import units
from fleetsim.alerts.alert_rule import FEWEST, AlertRule, Standing, duration, per_month, short
from fleetsim.alerts.faults import BY_FAULT
from fleetsim.alerts.rules import Writing, alert_expression, record_name
from fleetsim.alerts.signals import BY_STANDING_NAME
from fleetsim.records import replace
from fleetsim.tell.data import head
from fleetsim.tell.document import Document, Listed, Section, Table, Words
from fleetsim.tell.facts import explained, facts


def document(standing: Standing, rule_file: str, test_file: str | None) -> Document:
    """The rules that were written. test_file: None where none was asked for."""
    made = standing.rehearsal
    alerts, instances = units.plural(len(standing.rules), "alert"), units.plural(made.expected.instances, "instance")
    also = tuple((_short(r.signal.alert), ", ".join(map(_short, r.also))) for r in standing.rules if r.also)
    commands = [f"promtool check rules {rule_file}"] + ([f"promtool test rules {test_file}"] if test_file else [])
    return Document(
        "fleetsim alerts",
        facts(f"{rule_file}: {alerts} for {made.scenario.name}, {instances}", explained("behind", _behind(standing))),
        (
            Section("alerts", (_thresholds(standing),)),
            Section("their faults", (_delays(standing),)),
            Section("what else these faults fire", (Listed(also),) if also else ()),
            Section(
                "not seen in this plan",
                tuple(f"{r.signal.alert}: {r.why_not}" for r in standing.rules if r.why_not is not None),
            ),
            Section(
                "left out", tuple(f"{BY_STANDING_NAME[name].alert}: {why}" for name, why in standing.left_out.items())
            ),
            Section("next", tuple(Words(command, strong=True) for command in commands)),
        ),
    )


def _behind(standing: Standing) -> str:
    made = standing.rehearsal
    hours = units.plural(round(made.hours), "simulated healthy hour")
    runs = units.plural(sum(map(len, made.onsets.values())), "run")
    total = per_month(sum(rule.false_per_month for rule in standing.rules))
    own = sum(rule.learned for rule in standing.rules)
    known = f"; {units.plural(own, 'threshold')} from {standing.learned.words()}" if standing.learned and own else ""
    return (
        f"from {hours} and {runs} with a fault{known}; {total} false alarms a month predicted "
        f"(budget {standing.budget_per_month:g})"
    )


def _thresholds(standing: Standing) -> Table:
    """Threshold, window, `for:` and false alarms."""
    rows = tuple(
        (
            _short(rule.signal.alert),
            short(rule.signal, rule.healthy),
            f"{'>' if rule.signal.alerts_when == 'above' else '<'} {short(rule.signal, rule.threshold)}",
            duration(rule.window_s),
            duration(rule.for_s),
            _few(rule.false_per_month),
            _few(rule.false_upper),
        )
        for rule in standing.rules
    )
    table = Table("", ("", "healthy", "alerts", "over", "for", "false a month", "at most"), rows)
    return replace(
        table, narrower=(table.without("at most", note="The 95 % bounds of false alarms are in the rule file."),)
    )


def _delays(standing: Standing) -> Table:
    """How soon each alert finds its fault."""
    rows = tuple(
        (_short(rule.signal.alert), BY_FAULT[rule.signal.fault].title, _delay(rule.delay_s), _delay(rule.delay_p95_s))
        for rule in standing.rules
    )
    return Table("", ("", "fault", "median", "95 %"), rows, left=2, wordy=True)


def _short(alert: str) -> str:
    return alert.removeprefix("Rollout")


def _few(count: float) -> str:
    if count < FEWEST:
        return f"< {FEWEST:g}"
    return f"{count:.1g}" if count < 9.5 else f"{count:,.0f}"


def _delay(seconds: float | None) -> str:
    return "not seen" if seconds is None else duration(seconds)


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
        "learned": None if standing.learned is None else standing.learned.document(),
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
            "healthy_hours": rule.hours,
            "learned": rule.learned,
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
