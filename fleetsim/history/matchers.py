"""A selector's label matchers, for series that no Prometheus picks: `job="rollout",namespace=~"rl-.*"`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fleetsim.errors import InputError, Problem
from fleetsim.history.catalogue import REPLICA_LABELS, Catalogue
from fleetsim.history.history import Note, RawSeries
from fleetsim.history.option_names import SELECTOR

_ONE = re.compile(r"""\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|`([^`]*)`)\s*,?""")


def bare(selector: str) -> str:
    """A selector's matchers without the braces that a user may write around them."""
    text = selector.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    return text.rstrip(", ")


_MATCHER = r"""\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)\s*"""
_MATCHERS = re.compile(rf"{_MATCHER}(?:,{_MATCHER})*")


def wrong(selector: str) -> list[Problem]:
    """What is wrong with a bare selector."""
    if not selector or _MATCHERS.fullmatch(selector):
        return []
    unquoted = re.fullmatch(r"\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*([\w./:-]+)\s*", selector)
    remedy = f'{unquoted[1]}{unquoted[2]}"{unquoted[3]}"' if unquoted else 'job="rollout",namespace=~"rl-.*"'
    rule = "must be label matchers, with their values in quotes"
    return [Problem(SELECTOR, selector, rule, f"write '{remedy}'")]


def picked(series: Sequence[RawSeries], catalogue: Catalogue, selector: str) -> tuple[list[RawSeries], list[Note]]:
    """The series that a selector matches. The trainer's, where it matches none of them: the only trainer that there is.

    Raises InputError for a selector that is none."""
    matchers = [(m[1], m[2], m[3] or m[4] or m[5] or "") for m in _ONE.finditer(_checked(selector))]
    if not matchers:
        return list(series), []
    engines: list[RawSeries] = []
    trainers: list[RawSeries] = []
    for one in series:
        found = catalogue.match(one.name, one.labels)
        (trainers if found and all(m.signal.scope == "fleet" for m in found) else engines).append(one)
    mine = [one for one in trainers if _meets(one.labels, matchers)]
    notes = []
    if trainers and not mine:
        who = {tuple(sorted((k, v) for k, v in t.labels.items() if k not in REPLICA_LABELS)) for t in trainers}
        mine = trainers if len(who) == 1 else []
        what = "the only one there is was read" if mine else f"there are {len(who)} others, and none was read"
        notes.append(Note("other" if mine else "missing", f"The selector matches no trainer metric; {what}."))
    return [one for one in engines if _meets(one.labels, matchers)] + mine, notes


def _checked(selector: str) -> str:
    text = bare(selector)
    if problems := wrong(text):
        raise InputError(problems)
    return text


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
