"""The rules of a plan as Prometheus reads them: recording rules for the signals, alerts on those.

One group, evaluated in order: signals, then conditions, then alerts, so that all of them speak of the same moment.
Rules and dashboard as objects of a cluster: a PrometheusRule of the Prometheus operator, and a ConfigMap that Grafana's
sidecar looks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.alerts.alert_rule import AlertRule, Standing, active_evaluations, duration, per_month, shown, template
from fleetsim.alerts.faults import BY_FAULT
from fleetsim.alerts.learned import Learned
from fleetsim.alerts.signals import BY_STANDING_NAME, MetricNames
from fleetsim.records import replace

MISSING = "RolloutTrainerMetricsMissing"
MISSING_FOR = "10m"
RUNBOOK = "docs/alerts.md"


class Writing(Struct, frozen=True):
    """How rules are written. names: metrics and selectors. plan: the label that keeps plans apart. runbook_url: of the
    page that the alerts point to; each alert's name is appended as an anchor."""

    names: MetricNames
    plan: str
    runbook_url: str = RUNBOOK


def record_name(rule: AlertRule) -> str:
    """level:metric:operations of a rule's signal, the window with the last operation."""
    return f"{rule.signal.record}{duration(rule.window_s)}"


def active_name(rule: AlertRule) -> str:
    """The recording rule that is 1 while a signal is beyond its threshold, and silences others."""
    level, metric, _ = rule.signal.record.split(":")
    return f"{level}:{metric}:active"


def quoted(text: str) -> str:
    """A label value in PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def literal(text: str) -> str:
    """Text in a label or an annotation of an alert, where Prometheus would expand templates."""
    return text.replace("{{", '{{ "{{" }}')


def rules_document(standing: Standing, writing: Writing) -> dict[str, Any]:
    """The rule file: groups, as `promtool check rules` reads it."""
    interval_s, expected = standing.rehearsal.interval_s, standing.rehearsal.expected
    labels = {"plan": writing.plan}
    rules: list[dict[str, Any]] = []
    for rule in standing.rules:
        expr = rule.signal.expression(writing.names, duration(rule.window_s), expected)
        rules.append({"record": record_name(rule), "expr": expr, "labels": labels})
    silencing = {name for rule in standing.rules for name in rule.silenced_by}
    for rule in (rule for rule in standing.rules if rule.signal.name in silencing):
        # the condition that silences others: beyond the threshold for half of the `for:`, as 1 or 0
        reach = duration((active_evaluations(rule, interval_s) + 0.5) * interval_s)
        function = "min_over_time" if rule.signal.alerts_when == "above" else "max_over_time"
        expr = f"{function}({_recorded(rule, writing)}[{reach}]) {_sign(rule)} bool {rule.threshold!r}"
        rules.append({"record": active_name(rule), "expr": expr, "labels": labels})
    rules += [_alert(standing, rule, writing) for rule in standing.rules]
    if any(rule.signal.source != "engines" for rule in standing.rules):
        rules.append(_missing(writing))
    return {"groups": [{"name": f"fleetsim {writing.plan}", "interval": duration(interval_s), "rules": rules}]}


def alert_expression(standing: Standing, rule: AlertRule, writing: Writing) -> str:
    """PromQL of an alert, from recorded series."""
    parts = [f"{_recorded(rule, writing)} {_sign(rule)} {rule.threshold!r}"]
    # half an interval more: whether a window holds its own start differs between Prometheus 2 and 3
    reach = duration(standing.settle_s + standing.rehearsal.interval_s / 2)
    for name in rule.silenced_by:
        series = f"{active_name(standing.rule(name))}{{plan={quoted(writing.plan)}}}"
        parts.append(f"unless on (plan) max_over_time({series}[{reach}]) == 1")
    return "\n".join(parts)


def _recorded(rule: AlertRule, writing: Writing) -> str:
    return f"{record_name(rule)}{{plan={quoted(writing.plan)}}}"


def _sign(rule: AlertRule) -> str:
    return ">" if rule.signal.alerts_when == "above" else "<"


def _alert(standing: Standing, rule: AlertRule, writing: Writing) -> dict[str, Any]:
    return {
        "alert": rule.signal.alert,
        "expr": alert_expression(standing, rule, writing),
        "for": duration(rule.for_s),
        "labels": {"severity": rule.signal.severity, "plan": literal(writing.plan)},
        "annotations": {
            "summary": rule.signal.summary,
            "description": description(standing, rule),
            "runbook_url": f"{writing.runbook_url}#{rule.signal.alert.lower()}",
        },
    }


def description(standing: Standing, rule: AlertRule) -> str:
    """What the alert means, what to do first, and what is known of its threshold."""
    signal, made = rule.signal, standing.rehearsal
    lines = [
        f"{signal.title}: {template(signal)}; the plan has {shown(signal, rule.healthy)}.",
        signal.advice,
        f"Fires {signal.alerts_when} {shown(signal, rule.threshold)}, over {duration(rule.window_s)}, for "
        f"{duration(rule.for_s)}. The plan has {units.plural(made.expected.instances, 'instance')}.",
        false_alarms(rule, standing.learned),
        detection(rule, len(made.onsets.get(signal.fault, ()))),
    ]
    if rule.silenced_by:
        quiet = ", ".join(BY_STANDING_NAME[name].alert for name in rule.silenced_by)
        lines.append(f"Silent while the condition of one of these explains it: {quiet}.")
    return "\n".join(lines)


def false_alarms(rule: AlertRule, learned: Learned | None) -> str:
    """The false alarms to expect, in words. learned: the fleet's own healthy hours."""
    of = f"healthy hours of {learned.source}" if rule.learned and learned is not None else "simulated healthy hours"
    had = f"{rule.seen or 'none'} in {rule.hours:,.{0 if rule.hours >= 10 else 1}f} {of}"
    alone = f"{had}, which alone would allow up to {per_month(rule.seen_upper)} a month"
    if rule.signal.name == "instances":
        return f"False alarms: {alone}."
    return (
        f"False alarms: {per_month(rule.false_per_month)} a month predicted (95 % bound: "
        f"{per_month(rule.false_upper)}; the tail taken as exponential); {alone}."
    )


def detection(rule: AlertRule, runs: int) -> str:
    """How soon the alert finds its fault, in words."""
    if rule.delay_s is None or rule.delay_p95_s is None:
        return f"Detection: {rule.why_not}."
    return (
        f'Detection of "{BY_FAULT[rule.signal.fault].title}": after {duration(rule.delay_s)} (median of {runs} '
        f"simulated runs), 95 % within {duration(rule.delay_p95_s)}."
    )


def _missing(writing: Writing) -> dict[str, Any]:
    """The alert on missing metrics of the trainer: without them most alerts see nothing, which looks like calm."""
    steps = " or ".join(writing.names.series("trainer.steps"))
    return {
        "alert": MISSING,
        "expr": f"absent({steps})",
        "for": MISSING_FOR,
        "labels": {"severity": "warning", "plan": literal(writing.plan)},
        "annotations": {
            "summary": "No trainer metrics: most alerts of the plan are blind",
            "description": "Prometheus has no step counter of the trainer. Check its target and the rules' selector.",
            "runbook_url": f"{writing.runbook_url}#{MISSING.lower()}",
        },
    }


def only(standing: Standing, *, engines_only: bool) -> Standing:
    """The rules without alerts that need missing metrics. engines_only: the trainer exports nothing."""
    if not engines_only:
        return standing
    kept = [r for r in standing.rules if r.signal.source == "engines"]
    names = {r.signal.name for r in kept}
    dropped = {r.signal.name: "it needs the trainer's metrics" for r in standing.rules if r.signal.name not in names}
    return replace(
        standing,
        rules=tuple(replace(r, silenced_by=tuple(n for n in r.silenced_by if n in names)) for r in kept),
        left_out={**standing.left_out, **dropped},
    )


# Of an object's name: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ (RFC 1123).
_MOST = 253


def object_name(plan: str, what: str) -> str:
    """ "fleetsim-PLAN-WHAT" in the letters that a name may have."""
    plain = re.sub(r"[^a-z0-9]+", "-", plan.lower()).strip("-")
    room = _MOST - len(f"fleetsim--{what}")
    return "-".join(part for part in ("fleetsim", plain[:room].strip("-"), what) if part)


def prometheus_rule(rules: Mapping[str, Any], plan: str) -> dict[str, Any]:
    """The rules of a file as one object: https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PrometheusRule."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": object_name(plan, "rules"), "labels": {"app.kubernetes.io/name": "fleetsim"}},
        "spec": dict(rules),
    }


def dashboard_map(dashboard: str, plan: str) -> dict[str, Any]:
    """The text of a dashboard in a ConfigMap, with the label that Grafana's charts look for by default."""
    name = object_name(plan, "dashboard")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "fleetsim", "grafana_dashboard": "1"}},
        "data": {f"{name}.json": dashboard},
    }
