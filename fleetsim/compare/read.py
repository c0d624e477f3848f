"""The two windows of history of a comparison: which they are, and their read."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetsim.compare.inputs import GivenSide
from fleetsim.compare.question import Compare
from fleetsim.compare.spans import Span
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import History
from fleetsim.history.option_names import HISTORY
from fleetsim.history.window import parse_time
from fleetsim.job.result import Watch
from fleetsim.replay.history_fields import LAST_HOURS, HistoryWindow, mapping_of, step_of


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """A window of history as a side. label: what it is called."""

    label: str
    window: HistoryWindow


def parts_of(
    asked: Compare, given: tuple[GivenSide, ...], spans: Mapping[str, Span | None]
) -> tuple[HistoryPart, HistoryPart]:
    """Both windows. given: none of a Prometheus, one where both are of one history. Raises InputError."""
    sides = (given[0], given[-1]) if given else (None, None)
    a, b = (
        _part(asked, one, where, own, spans[where])
        for one, where, own in zip(sides, "AB", (asked.selector_a, asked.selector_b), strict=True)
    )
    return a, b


def _part(asked: Compare, given: GivenSide | None, where: str, own: str, span: Span | None) -> HistoryPart:
    """own: the labels that this side alone is picked by."""
    start, end = span or ("", "")
    window = HistoryWindow(
        start=start or None,
        end=end or None,
        step_s=step_of(asked.step),
        selector=",".join(part.strip("{} ") for part in (asked.selector, own) if part),
        framework=asked.framework,
        counts=asked.counts,
    )
    if given is None:
        mapping, access = mapping_of(asked.map_ or (), None), asked.access.access()
        window = replace(window, prometheus=asked.prometheus, mapping=mapping, access=access)
    elif isinstance(given.held, History):
        window = replace(window, history=given.held)
    elif given.is_address:
        window = replace(window, prometheus=given.text)
    else:
        window = replace(window, file=given.text, mapping=mapping_of(asked.map_ or (), given.text))
    of, at, only = "" if given is None else given.text, "..".join(span) if span else "", f"{{{own}}}" if own else ""
    return HistoryPart(asked.label(where) or " ".join(filter(None, (of, at, only))), window)


def read(parts: tuple[HistoryPart, HistoryPart], tell: Watch) -> tuple[History, History]:
    """Both windows; what is the same on both sides is read once. Times of a server count from one now.

    Raises InputError (nothing there) with the problems of both, OutsideError (the server did not do its part).
    """
    now, whole = time.time(), dict[tuple[str, str], History]()
    problems: list[Problem] = []
    found = []
    for where, part in zip("AB", parts, strict=True):
        try:
            found.append(_read(part.window, now, whole, tell))
        except InputError as error:
            named = ((p, "history" if p.path == HISTORY else p.path) for p in error.problems)
            problems += [replace(p, path=text("{}: {}", where, name)) for p, name in named]
    if problems:
        raise InputError(problems)
    return found[0], found[1]


def _read(window: HistoryWindow, now: float, whole: dict[tuple[str, str], History], tell: Watch) -> History:
    """whole: files that were read, by name and selector."""
    if window.prometheus is not None:
        start, end = (parse_time(text, now) for text in (window.start or LAST_HOURS, window.end or "now"))
        return replace(window, start=repr(start), end=repr(end)).read(tell)
    if window.history is None:
        assert window.file is not None
        key = (os.fspath(window.file), window.selector)
        if key not in whole:
            whole[key] = replace(window, start=None, end=None).read(tell)
        window = replace(window, history=whole[key])
    return window.read(tell)


def same_history(a: HistoryWindow, b: HistoryWindow) -> bool:
    """Whether both are of the same instances of one server, file or history that was read."""
    return a.selector == b.selector and a.history is b.history and _place(a) == _place(b)


def _place(window: HistoryWindow) -> str | None:
    return window.prometheus if window.file is None else os.path.realpath(window.file)
