"""A Grafana dashboard of the standing signals: observed, beside what the plan predicts and where its alert begins.

Fields as in Grafana's dashboard JSON model (dashboards' schema version 39, Grafana 11; later ones migrate it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from fleetsim.alerts.alert_rule import AlertRule, Standing
from fleetsim.alerts.rules import Writing
from fleetsim.alerts.signals import INSTANCE, STANDING, MetricNames
from fleetsim.faces import flag
from fleetsim.history.signals import SIGNALS, Signal
from fleetsim.records import replace

SCHEMA_VERSION = 39
WIDTH, HEIGHT, ROW = 24, 8, 1
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"of its time": "percentunit", "of prompt tokens": "percentunit", "s/step": "s"}


def dashboard(standing: Standing, writing: Writing) -> dict[str, Any]:
    """The dashboard's JSON document: observed values, predictions and thresholds."""
    plan = standing.rehearsal.expected
    # the dashboard's variables as selectors, beside the given ones
    engines, trainer = writing.names.selector, writing.names.trainer_selector
    names = replace(
        writing.names,
        selector=", ".join(filter(None, (engines, 'job=~"$job", instance=~"$instance"'))),
        trainer_selector=", ".join(filter(None, (trainer, 'job=~"$trainer_job"'))),
    )
    panels: list[dict[str, Any]] = []
    y = 0
    for title, kinds in (("Trainer and queue", ("trainer", "both")), ("Rollout engines", ("engines",))):
        panels.append(_row(len(panels) + 1, title, y))
        y += ROW
        wanted = [s for s in STANDING if s.source in kinds]
        for k, signal in enumerate(wanted):
            rule = next((r for r in standing.rules if r.signal is signal), None)
            # presence is a matter of scrapes, not of rates: a minute, as in its rule
            window = "1m" if signal.name == "instances" else "$__rate_interval"
            targets = [(signal.expression(names, window, plan), "observed")]
            if rule is not None:
                targets += [(f"vector({rule.healthy!r})", "predicted"), (f"vector({rule.threshold!r})", "alert")]
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
        "annotations": {"list": [_alerts_shown(writing)]},
        "links": [],
        "panels": panels,
    }


def _gauge(names: MetricNames, signal: str) -> str:
    return " or ".join(names.series(signal))


def _row(number: int, title: str, y: int) -> dict[str, Any]:
    place = {"h": ROW, "w": WIDTH, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(
    number: int, title: str, unit: str, place: dict[str, int], targets: list[tuple[str, str]], rule: AlertRule | None
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


# --- Which metrics a dashboard reads, and which of them are not where they should be.

# What `fleetsim watch` exports and this dashboard shows.
WATCHED = (
    "fleetsim_recommended_instances",
    "fleetsim_current_instances",
    "fleetsim_predicted_trainer_idle_ratio",
    "fleetsim_observed_trainer_idle_ratio",
    "fleetsim_model_error_ratio",
)
# Not there at first, and no fault: Prometheus makes the one when an alert fires, the others come with `watch`.
LATER = frozenset({"ALERTS", *WATCHED})
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_BRACES = re.compile(r"\{[^}]*\}")
_NUMBER = re.compile(r"(?<![\w:])\d[\d.]*(?:e[+-]?\d+)?")
_RANGE = re.compile(r"\[[^\]]*\]")
# Words of PromQL that stand where a metric could.
_PROMQL = {"sum", "min", "max", "avg", "count", "rate", "avg_over_time", "count_over_time", "min_over_time"}
_PROMQL |= {"max_over_time", "quantile", "scalar", "vector", "absent", "and", "or", "unless", "bool", "by", "on"}


MOST_BYTES = 64 * 2**20


def expressions(document: dict[str, Any]) -> Iterator[str]:
    """Every PromQL expression of a dashboard, its variables filled in so that Prometheus can read it."""
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            yield filled_in(target["expr"])
    for annotation in document["annotations"]["list"]:
        yield filled_in(annotation["expr"])


def filled_in(expr: str) -> str:
    """An expression with Grafana's variables replaced by values that select everything."""
    return re.sub(r"\$\w+", ".*", expr.replace("$__rate_interval", "5m"))


def metrics_of(expr: str) -> set[str]:
    """Names of the metrics that a PromQL expression reads."""
    expr = _NUMBER.sub(" ", _STRING.sub("", expr))
    bare = _GROUPING.sub(" ", _RANGE.sub(" ", _BRACES.sub(" ", expr)))
    return {word for word in _WORD.findall(bare) if word not in _PROMQL}


def unknown_metrics(expressions: Iterable[str], known: Iterable[str]) -> list[str]:
    """Metrics that expressions read and that are not among the known ones, sorted."""
    have = set(known)
    return sorted({name for expr in expressions for name in metrics_of(expr)} - have)


def exposed_names(text: str) -> set[str]:
    """Metric names in a /metrics page, or in a list of names, one a line."""
    found = set()
    for line in text.splitlines():
        word = _WORD.match(line)
        if word is not None and not line.startswith("#"):
            found.add(word.group())
    return found


def missing_metrics(expressions: Iterable[str], there: Collection[str]) -> list[str]:
    """Metrics that expressions read and that are not there, sorted. Of the names that a metric has had one is enough;
    what comes later (LATER) is not missed."""
    gone = unknown_metrics(expressions, {*there, *LATER})
    families = [family for signal in SIGNALS for family in exposed(signal)]
    return [name for name in gone if not any(name in family and not family.isdisjoint(there) for family in families)]


def exposed(signal: Signal) -> Iterator[frozenset[str]]:
    """The names that a series of a signal has had: one set, three for a histogram."""
    bare = {name.partition("{")[0] for name in signal.metrics}
    for suffix in ("_bucket", "_sum", "_count") if signal.kind == "histogram" else ("",):
        yield frozenset(f"{name}{suffix}" for name in bare)


def missing_at(place: str) -> Callable[[Iterable[str]], list[str]]:
    """A function that finds the metrics which expressions read and which are not at a place.

    place: a file, a page or a list of names, or the address of a Prometheus, with the credentials of the environment.
    Raises InputError and OutsideError, and so may the function OutsideError.
    """
    from time import time

    from fleetsim.config.data_files import read_text
    from fleetsim.history.access import PrometheusError, access_from
    from fleetsim.history.prometheus import Prometheus

    if "://" not in place:
        names = exposed_names(read_text(place, flag("check_against"), MOST_BYTES))
        return lambda expressions: missing_metrics(expressions, names)
    prometheus = Prometheus(place, access_from())
    try:
        prometheus.query("vector(1)", time())
    except PrometheusError as error:  # a server that is not there is told before the work
        raise PrometheusError(error.kind, replace(error.problem, path=flag("check_against"))) from None

    def missing(expressions: Iterable[str]) -> list[str]:
        expressions = tuple(expressions)
        wanted = "|".join(unknown_metrics(expressions, ()))
        answer = prometheus.query(f'group by (__name__) ({{__name__=~"{wanted}"}})', time())
        return missing_metrics(expressions, {series.labels["__name__"] for series in answer})

    return missing
