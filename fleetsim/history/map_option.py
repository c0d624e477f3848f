"""`--map signal=PromQL`: signals from metrics that fleetsim does not know by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.catalogue import REPLICA_LABELS, base_key
from fleetsim.history.option_names import MAP
from fleetsim.history.prometheus import SeriesData
from fleetsim.history.signals import BY_NAME

PREFIX = "mapped:"  # of the names under which mapped series go on
METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^{}]*\})?")
"""A metric alone, with or without matchers: what can be read sample by sample, unlike an expression."""


def parse_map(pairs: Iterable[str]) -> dict[str, str]:
    """`signal=PromQL` pairs as a mapping. Raises InputError, all problems at once."""
    mapping: dict[str, str] = {}
    problems: list[Problem] = []
    for pair in pairs:
        name, equals, expr = pair.partition("=")
        name, expr = name.strip(), expr.strip()
        if not equals or not name or not expr:
            problems.append(Problem(MAP, pair, "must be signal=PromQL", "for example trainer.step_s=max(my_step_s)"))
        elif name in mapping:
            problems.append(Problem(MAP, pair, f"{name} is mapped twice", "give it once; `a or b` joins two metrics"))
        else:
            mapping[name] = expr
    problems += unknown(mapping)
    if problems:
        raise InputError(problems)
    return mapping


def unknown(mapping: Mapping[str, str]) -> list[Problem]:
    """Names that are no signal."""
    return [
        Problem(MAP, name, "no signal has this name", did_you_mean(name, BY_NAME))
        for name in mapping
        if name not in BY_NAME
    ]


def check(name: str, expr: str, series: list[SeriesData]) -> list[Problem]:
    """What is wrong with the answer to a mapped expression: it must say something, and of one thing."""
    path = text("{} {}", MAP, name)
    if not series:
        return [Problem(path, expr, "gives no series in this window", "try the expression in Prometheus")]
    if BY_NAME[name].scope == "instance":
        if all(base_key(one.labels)[0] for one in series):
            return []
        remedy = "keep the label instance or pod, for example sum by (instance) (...)"
        return [Problem(path, expr, "does not say which instance a series is of", remedy)]
    distinct = {tuple(sorted((k, v) for k, v in one.labels.items() if k not in REPLICA_LABELS)) for one in series}
    if len(distinct) == 1:
        return []
    listed = sorted(_words(labels) for labels in distinct)
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    rule = f"gives {len(listed)} series, but the job has one value: {', '.join(listed[:5])}{more}"
    return [Problem(path, expr, rule, f"narrow it to one, or write max({expr}) or sum({expr})")]


def _words(labels: tuple[tuple[str, str], ...]) -> str:
    inside = ",".join(f'{k}="{v}"' for k, v in labels)
    return f"{{{inside}}}"
