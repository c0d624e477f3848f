"""What is exported where a dashboard is to be used: a /metrics page, or a Prometheus of its last minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fleetsim.alerts.dashboard_metrics import exposed_names, missing_metrics, unknown_metrics
from fleetsim.faces import flag

MOST_BYTES = 64 * 2**20


def missing_at(place: str) -> Callable[[Iterable[str]], list[str]]:
    """A function that finds the metrics which expressions read and which are not at a place.

    place: a file, a page or a list of names, or the address of a Prometheus, with the credentials of the environment.
    Raises InputError, and the function OutsideError.
    """
    return _in_prometheus(place) if "://" in place else _on_page(place)


def _on_page(place: str) -> Callable[[Iterable[str]], list[str]]:
    from fleetsim.config.files import read_text

    names = exposed_names(read_text(place, flag("check_against"), MOST_BYTES))
    return lambda expressions: missing_metrics(expressions, names)


def _in_prometheus(url: str) -> Callable[[Iterable[str]], list[str]]:
    from time import time

    from fleetsim.history.access import access_from
    from fleetsim.history.prometheus import Prometheus

    prometheus = Prometheus(url, access_from())

    def missing(expressions: Iterable[str]) -> list[str]:
        expressions = tuple(expressions)
        wanted = "|".join(unknown_metrics(expressions, ()))
        answer = prometheus.query(f'group by (__name__) ({{__name__=~"{wanted}"}})', time())
        return missing_metrics(expressions, {series.labels["__name__"] for series in answer})

    return missing
