"""What the user picks: series by their labels (`--selector`), and metrics for signals (`--map signal=PromQL`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.catalogue import Catalogue, base_key, unknown_signals, unreplicated
from fleetsim.history.history import Note, RawSeries, SeriesData
from fleetsim.history.option_names import MAP, SELECTOR
from fleetsim.history.signals import BY_NAME

_ONE = r"""\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|`([^`]*)`)\s*"""
_MATCHERS = re.compile(rf"{_ONE}(?:,{_ONE})*")


def bare(selector: str) -> str:
    """A selector's matchers without the braces that a user may write around them."""
    text = selector.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    return text.rstrip(", ")


def matchers_of(selector: str) -> list[tuple[str, str, str]]:
    """(label, how, value) of each matcher of a bare selector."""
    return [(m[1], m[2], m[3] or m[4] or m[5] or "") for m in re.finditer(_ONE, selector)]


def wrong(selector: str, path: str = SELECTOR) -> list[Problem]:
    """What is wrong with a bare selector. path: the option that it was given by."""
    if not selector or _MATCHERS.fullmatch(selector):
        return []
    unquoted = re.fullmatch(r"\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*([\w./:-]+)\s*", selector)
    remedy = f'{unquoted[1]}{unquoted[2]}"{unquoted[3]}"' if unquoted else 'job="rollout",namespace=~"rl-.*"'
    rule = "must be label matchers, with their values in quotes"
    return [Problem(path, selector, rule, f"write '{remedy}'")]


def picked(series: Sequence[RawSeries], catalogue: Catalogue, selector: str) -> tuple[list[RawSeries], list[Note]]:
    """The series that a selector matches. The trainer's, where it matches none of them: the only trainer that there is.

    Raises InputError for a selector that is none."""
    selector = bare(selector)
    if problems := wrong(selector):
        raise InputError(problems)
    if not (matchers := matchers_of(selector)):
        return list(series), []
    engines: list[RawSeries] = []
    trainers: list[RawSeries] = []
    for one in series:
        found = catalogue.match(one.name, one.labels)
        (trainers if found and all(m.signal.scope == "fleet" for m in found) else engines).append(one)
    mine = [one for one in trainers if _meets(one.labels, matchers)]
    notes = []
    if trainers and not mine:
        who = {unreplicated(t.labels) for t in trainers}
        mine = trainers if len(who) == 1 else []
        what = "the only one there is was read" if mine else f"there are {len(who)} others, and none was read"
        notes.append(Note("other" if mine else "missing", f"The selector matches no trainer metric; {what}."))
    return [one for one in engines if _meets(one.labels, matchers)] + mine, notes


def _meets(labels: Mapping[str, str], matchers: Sequence[tuple[str, str, str]]) -> bool:
    for label, how, value in matchers:
        found = labels.get(label, "")
        try:
            equal = found == value if how in ("=", "!=") else re.fullmatch(value, found) is not None
        except re.error:
            return False
        if equal == how.startswith("!"):
            return False
    return True


_OF_LOG = "read SIGNAL=METRIC", "trainer.train_s=my_metric"
MAPPED = "mapped:"  # of the names under which mapped series go on
METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^{}]*\})?")
"""A metric alone, with or without matchers: what can be read sample by sample, unlike an expression."""


def parse_map(pairs: Iterable[str], *, known: bool = True) -> dict[str, str]:
    """`signal=PromQL` pairs as a mapping. known: nothing but signals is mapped; a run log's columns have names of their
    own, which its reader checks. Raises InputError, all problems at once."""
    mapping: dict[str, str] = {}
    problems: list[Problem] = []
    for pair in pairs:
        name, equals, expr = pair.partition("=")
        name, expr = name.strip(), expr.strip()
        if not equals or not name or not expr:
            rule, example = ("be signal=PromQL", "trainer.step_s=max(my_step_s)") if known else _OF_LOG
            problems.append(Problem(MAP, pair, f"must {rule}", f"for example {example}"))
        elif name in mapping:
            problems.append(Problem(MAP, pair, f"{name} is mapped twice", "give it once; `a or b` joins two metrics"))
        else:
            mapping[name] = expr
    problems += unknown_signals(mapping) if known else []
    if problems:
        raise InputError(problems)
    return mapping


def wrong_answer(name: str, expr: str, series: list[SeriesData]) -> list[Problem]:
    """What is wrong with the answer to a mapped expression: it must say something, and of one thing."""
    path = text("{} {}", MAP, name)
    if not series:
        return [Problem(path, expr, "gives no series in this window", "try the expression in Prometheus")]
    if BY_NAME[name].scope == "instance":
        if all(base_key(one.labels)[0] for one in series):
            return []
        remedy = "keep the label instance or pod, for example sum by (instance) (...)"
        return [Problem(path, expr, "does not say which instance a series is of", remedy)]
    distinct = {unreplicated(one.labels) for one in series}
    if len(distinct) == 1:
        return []
    listed = sorted("{" + ",".join(f'{k}="{v}"' for k, v in labels) + "}" for labels in distinct)
    rule = f"gives {len(listed)} series, but the job has one value: {units.few(listed, 5)}"
    return [Problem(path, expr, rule, f"narrow it to one, or write max({expr}) or sum({expr})")]
