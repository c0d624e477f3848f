"""Windows of history of `fleetsim compare`: their read and compared."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetsim.cli.compare_call import Question
from fleetsim.cli.compare_flags import Compare
from fleetsim.cli.compare_spans import Span
from fleetsim.compare.inputs import Given
from fleetsim.errors import InputError, Problem
from fleetsim.job.history_fields import Window, mapping_of, step_of

if TYPE_CHECKING:
    from fleetsim.compare.compare import Comparison
    from fleetsim.history.history import History

Tell = Callable[[str], None]


def compare_windows(call: Compare, question: Question, tell: Tell) -> Comparison:
    """Raises InputError (nothing there), OutsideError (the server did not do its part)."""
    spans = question.spans
    if call.prometheus is not None:
        a, b = _of_prometheus(call, spans, tell)
        same = True
    else:
        assert question.a is not None
        assert question.b is not None
        a, b = _of_files(call, question.a, question.b, spans, tell)
        same = os.path.realpath(question.a.text) == os.path.realpath(question.b.text)
    same &= call.selector_a == call.selector_b
    from fleetsim.compare.windows import compare_windows as compared
    from fleetsim.compare.windows import overlap

    return compared(
        a, b, min_change=call.min_change, metrics=question.metrics, notes=overlap(a[1], b[1]) if same else ()
    )


def _of_prometheus(
    call: Compare, spans: Mapping[str, Span | None], tell: Tell
) -> tuple[tuple[str, History], tuple[str, History]]:
    from fleetsim.history.window import parse_time

    now = time.time()
    found = []
    for where, own in (("A", call.selector_a), ("B", call.selector_b)):
        span = spans[where]
        assert span is not None
        start, end = (parse_time(text or "now", now) for text in span)
        source = Window(
            prometheus=call.prometheus,
            start=repr(start),
            end=repr(end),
            step_s=step_of(call.step),
            selector=_both(call.selector, own),
            mapping=mapping_of(call.map_ or (), None),
            access=call.access.access(),
            counts=sys.stderr.isatty(),
        )
        try:
            history = source.read(tell)
        except InputError as error:
            raise InputError([replace(p, path=f"{where}: {p.path}") for p in error.problems]) from None
        found.append((_named("..".join(span), own), history))
    return found[0], found[1]


def _both(selector: str, own: str) -> str:
    """What both sides are picked by, and this one alone."""
    return ",".join(part.strip("{} ") for part in (selector, own) if part)


def _named(text: str, own: str) -> str:
    """A window by its time or its file, and by what it alone is picked by."""
    return " ".join(filter(None, (text, f"{{{own}}}" if own else "")))


def _of_files(
    call: Compare, a: Given, b: Given, spans: Mapping[str, Span | None], tell: Tell
) -> tuple[tuple[str, History], tuple[str, History]]:
    """A file's times are its own: "-2h" is two hours before its last value. What is the same on both sides is read
    once."""
    from fleetsim.history.window import parse_time, window

    problems: list[Problem] = []
    known: dict[tuple[str, str], History] = {}
    found: list[tuple[str, History]] = []
    for given, where, own in ((a, "A", call.selector_a), (b, "B", call.selector_b)):
        try:
            selector = _both(call.selector, own)
            if (given.text, selector) not in known:
                known[given.text, selector] = _read(given.text, selector, call, tell)
            history, span = known[given.text, selector], spans[where]
            if span is None:
                found.append((_named(given.text, own), history))
                continue
            last = history.end_s
            start = parse_time(span[0], last) if span[0] else history.start_s
            end = parse_time(span[1], last) if span[1] else last
            found.append((_named(f"{given.text} {'..'.join(span)}", own), window(history, start, end)))
        except InputError as error:
            problems += [replace(p, path=f"{where}: {p.path}") for p in error.problems]
    if problems:
        raise InputError(problems)
    return found[0], found[1]


def _read(text: str, selector: str, call: Compare, tell: Tell) -> History:
    from fleetsim.history.files import read_file

    tell(f"reading {text}")
    return read_file(Path(text), call.framework, mapping_of(call.map_ or (), text), step_of(call.step), selector)
