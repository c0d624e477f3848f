"""The two sides of `fleetsim.compare`, told by what they are: to be simulated, a result, or a window of history."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import History
from fleetsim.job.job_face import Job, Start, Tell, load
from fleetsim.replay.ask import read_history
from fleetsim.replay.result import ReplayResult
from fleetsim.simulate.ask import SimulateResult
from fleetsim.size.ask import SizeResult

if TYPE_CHECKING:
    from fleetsim.compare.runs import ToRun
    from fleetsim.compare.saved_result import Result as Written

Comparable = Start | SimulateResult | SizeResult | ReplayResult | History
Windows = tuple[str | None, str | None]
_FORM = '"START..END", for example windows=("-6h..-3h", "-3h..now")'


def is_history(it: Comparable, where: str) -> bool:
    """Whether it is a window of history: an object, the address of a Prometheus, or a file told by its content."""
    from fleetsim.compare.inputs import given_of

    if isinstance(it, (History, ReplayResult)):
        return True
    if not isinstance(it, (str, os.PathLike)):
        return False
    text = os.fspath(it)
    return text.startswith(("http://", "https://")) or given_of(where, text).what == "history"


def same_history(a: Comparable, b: Comparable) -> bool:
    """Whether both windows are of one history. b: None = it is."""
    if isinstance(a, (str, os.PathLike)) and isinstance(b, (str, os.PathLike)):
        return os.path.realpath(a) == os.path.realpath(b)
    return b is None or a is b


def side_of(it: Comparable, label: str, where: str) -> tuple[ToRun | Written, list[str]]:
    """A side that is no history, as the comparison takes it, and what is odd about it. Raises InputError."""
    from fleetsim.compare.inputs import given_of
    from fleetsim.compare.runs import ToRun
    from fleetsim.compare.saved_result import result_of

    if isinstance(it, (SimulateResult, SizeResult)):
        return result_of(it.to_dict(), label, where), []
    if isinstance(it, (str, os.PathLike)):
        document = given_of(where, os.fspath(it)).document
        if document is not None:
            return result_of(document, label, where), []
    assert not isinstance(it, (History, ReplayResult))
    job = it if isinstance(it, Job) else load(it)
    return ToRun(label, job.scenario, job.given), [f"{where}: {note}" for note in job.notes]


def windows_of(
    a: Comparable, b: Comparable, windows: Windows, tell: Tell
) -> tuple[tuple[str, History], tuple[str, History]]:
    """Both windows with their labels. b: None = of the same history as a. Raises InputError with the problems of both,
    OutsideError."""
    spans = _spans(windows)
    if b is None and None in spans.values():
        rule = "one history has two windows that can be compared"
        raise InputError([Problem("windows", windows, rule, f"say which, each {_FORM}")])
    problems: list[Problem] = []
    found = []
    for where, it in (("A", a), ("B", a if b is None else b)):
        source = it.history if isinstance(it, ReplayResult) else it
        assert isinstance(source, (str, os.PathLike, History))
        name = source.source if isinstance(source, History) else os.fspath(source)
        start, end = spans[where] or (None, None)
        try:
            history = read_history(source, start, end, tell)
        except InputError as error:
            problems += [Problem(f"{where}: {p.path}", p.value, p.rule, p.remedy) for p in error.problems]
            continue
        found.append((" ".join((name, f"{start or ''}..{end or ''}")) if spans[where] else name, history))
    if problems:
        raise InputError(problems)
    return found[0], found[1]


def _spans(windows: Windows) -> Mapping[str, tuple[str | None, str | None] | None]:
    """Start and end of A and of B, None for an open end; None for all that there is."""
    if not isinstance(windows, tuple) or len(windows) != 2:
        raise InputError([Problem("windows", windows, "must be a pair, of A and of B", f"each {_FORM}")])
    spans: dict[str, tuple[str | None, str | None] | None] = {}
    problems = []
    for where, text in zip("AB", windows, strict=True):
        if text is None:
            spans[where] = None
            continue
        start, dots, end = (part.strip() for part in str(text).partition(".."))
        if not dots or not (start or end):
            problems.append(Problem(f"windows {where}", text, "is no window", f"write {_FORM}"))
        spans[where] = (start or None, end or None)
    if problems:
        raise InputError(problems)
    return spans
