"""Which metrics a dashboard reads, and which of them are not where they should be."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from fleetsim.alerts.metric_names import MetricNames
from fleetsim.faces import flag
from fleetsim.history.signals import SIGNALS, Signal

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


def catalogue(names: MetricNames) -> frozenset[str]:
    """Every metric that fleetsim knows to exist: of engines, trainer, `watch`, and those that the user named."""
    known = {name for signal in SIGNALS for family in _exposed(signal) for name in family}
    return frozenset(known | LATER | set(names.mapping.values()))


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
    families = [family for signal in SIGNALS for family in _exposed(signal)]
    return [name for name in gone if not any(name in family and not family.isdisjoint(there) for family in families)]


def _exposed(signal: Signal) -> Iterator[frozenset[str]]:
    """The names that a series of a signal has had: one set, three for a histogram."""
    bare = {name.partition("{")[0] for name in signal.metrics}
    for suffix in ("_bucket", "_sum", "_count") if signal.kind == "histogram" else ("",):
        yield frozenset(f"{name}{suffix}" for name in bare)


def missing_at(place: str) -> Callable[[Iterable[str]], list[str]]:
    """A function that finds the metrics which expressions read and which are not at a place.

    place: a file, a page or a list of names, or the address of a Prometheus, with the credentials of the environment.
    Raises InputError and OutsideError, and so may the function OutsideError.
    """
    return _in_prometheus(place) if "://" in place else _on_page(place)


def _on_page(place: str) -> Callable[[Iterable[str]], list[str]]:
    from fleetsim.config.data_files import read_text

    names = exposed_names(read_text(place, flag("check_against"), MOST_BYTES))
    return lambda expressions: missing_metrics(expressions, names)


def _in_prometheus(url: str) -> Callable[[Iterable[str]], list[str]]:
    from time import time

    from fleetsim.history.access import PrometheusError, access_from
    from fleetsim.history.prometheus import Prometheus
    from fleetsim.records import replace

    prometheus = Prometheus(url, access_from())
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
