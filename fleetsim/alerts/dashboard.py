"""A Grafana dashboard of the standing signals: observed, beside what the plan predicts and where its alert begins.

Fields as in Grafana's dashboard JSON model (dashboards' schema version 39, Grafana 11; later ones migrate it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetsim.alerts.alert_rule import AlertRule, Standing
from fleetsim.alerts.dashboard_metrics import WATCHED
from fleetsim.alerts.metric_names import INSTANCE, MetricNames
from fleetsim.alerts.rules import Writing
from fleetsim.alerts.signal_values import Expected
from fleetsim.alerts.signals import STANDING
from fleetsim.records import replace

SCHEMA_VERSION = 39
WIDTH, HEIGHT, ROW = 24, 8, 1
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"of its time": "percentunit", "of prompt tokens": "percentunit", "s/step": "s"}


def dashboard(standing: Standing | None, writing: Writing, expected: Expected | None = None) -> dict[str, Any]:
    """The dashboard's JSON document. standing: predictions and thresholds, None = observed values alone; then
    `expected` must be given."""
    plan = standing.rehearsal.expected if standing is not None else expected
    assert plan is not None
    names = observed_names(writing.names)
    panels: list[dict[str, Any]] = []
    y = 0
    for title, kinds in (
        ("Trainer and queue", ("trainer", "both")),
        ("Rollout engines", ("engines",)),
    ):
        panels.append(_row(len(panels) + 1, title, y))
        y += ROW
        wanted = [s for s in STANDING if s.source in kinds]
        for k, signal in enumerate(wanted):
            rule = next((r for r in standing.rules if r.signal is signal), None) if standing is not None else None
            # presence is a matter of scrapes, not of rates: a minute, as in its rule
            window = "1m" if signal.name == "instances" else "$__rate_interval"
            targets = [(signal.expression(names, window, plan), "observed"), *_predicted(rule)]
            if signal.name == "trainer_idle":
                targets.append((WATCHED[2], "predicted by watch"))
            if signal.name == "instances":
                targets.append((WATCHED[0], "recommended by watch"))
            place = {"h": HEIGHT, "w": WIDTH // 3, "x": (k % 3) * (WIDTH // 3), "y": y + k // 3 * HEIGHT}
            panels.append(_panel(len(panels) + 1, signal.title, UNITS.get(signal.unit, "short"), place, targets, rule))
        y += -(-len(wanted) // 3) * HEIGHT
    panels.append(_row(len(panels) + 1, "Each instance, and the model", y))
    y += ROW
    rest = (
        ("Generated tok/s", "short", f"sum {INSTANCE} ({names.over('rate', 'generation_tokens', '$__rate_interval')})"),
        ("Running requests", "short", f"sum {INSTANCE} ({_gauge(names, 'running')})"),
        ("Waiting requests", "short", f"sum {INSTANCE} ({_gauge(names, 'waiting')})"),
        ("KV cache in use", "percentunit", f"max {INSTANCE} ({_gauge(names, 'kv_use')})"),
        ("Back-test: largest relative error", "percentunit", WATCHED[4]),
    )
    for k, (title, unit, expr) in enumerate(rest):
        place = {"h": HEIGHT, "w": WIDTH // 3, "x": (k % 3) * (WIDTH // 3), "y": y + k // 3 * HEIGHT}
        legend = "{{pod}} {{instance}} {{engine}}" if INSTANCE in expr else "model error"
        panels.append(_panel(len(panels) + 1, title, unit, place, [(expr, legend)], None))
    return {
        "title": f"fleetsim: {writing.plan}",
        "uid": None,
        "tags": ["fleetsim", "rollout"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables(writing.names))},
        "annotations": {"list": [_alerts_shown(writing)] if standing is not None else []},
        "links": [],
        "panels": panels,
    }


def observed_names(names: MetricNames) -> MetricNames:
    """The metrics with the dashboard's variables as selectors, beside the given ones."""

    def joined(given: str, own: str) -> str:
        return f"{given}, {own}" if given else own

    return replace(
        names,
        selector=joined(names.selector, 'job=~"$job", instance=~"$instance"'),
        trainer_selector=joined(names.trainer_selector, 'job=~"$trainer_job"'),
    )


def _gauge(names: MetricNames, signal: str) -> str:
    series = names.series(signal)
    return series[0] if len(series) == 1 else f"{' or '.join(series)}"


def _predicted(rule: AlertRule | None) -> list[tuple[str, str]]:
    if rule is None:
        return []
    return [(f"vector({rule.healthy!r})", "predicted"), (f"vector({rule.threshold!r})", "alert")]


def _row(number: int, title: str, y: int) -> dict[str, Any]:
    place = {"h": ROW, "w": WIDTH, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(
    number: int,
    title: str,
    unit: str,
    place: dict[str, int],
    targets: list[tuple[str, str]],
    rule: AlertRule | None,
) -> dict[str, Any]:
    """One time series: observed as a line, what is predicted dashed, the alert's threshold in red."""

    def look(name: str, colour: str) -> dict[str, Any]:
        dashed = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}}
        fixed = {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}
        return {"matcher": {"id": "byName", "options": name}, "properties": [dashed, fixed]}

    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "description": "" if rule is None else f"{rule.signal.alert}: {rule.signal.summary}. {rule.signal.advice}",
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": unit, "custom": {"lineWidth": 1, "fillOpacity": 0, "showPoints": "never"}},
            "overrides": [look("predicted", "green"), look("alert", "red")] if rule is not None else [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + k),
                "datasource": DATASOURCE,
                "expr": expr,
                "legendFormat": legend,
                "range": True,
                "instant": False,
                "editorMode": "code",
            }
            for k, (expr, legend) in enumerate(targets)
        ],
    }


def _variables(names: MetricNames) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}
    engines, trainer = names.series("running")[0], names.series("trainer.steps")[0]
    inside = "{" + ", ".join(filter(None, [names.selector, 'job=~"$job"'])) + "}"
    for name, label, query in (
        ("job", "Rollout job", f"label_values({engines}, job)"),
        ("instance", "Instance", f"label_values({engines.partition('{')[0]}{inside}, instance)"),
        ("trainer_job", "Trainer job", f"label_values({trainer}, job)"),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": DATASOURCE,
            "query": {"query": query, "refId": f"{name}-values"},
            "definition": query,
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
            "hide": 0,
            "sort": 1,
        }


def _alerts_shown(writing: Writing) -> dict[str, Any]:
    plan = writing.plan.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": f'ALERTS{{alertstate="firing", plan="{plan}"}}',
        "titleFormat": "{{alertname}}",
        "step": "60s",
    }
