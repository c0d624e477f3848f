"""The windows of `fleetsim compare`: START..END, and the other flags that say how history is read, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetsim.errors import InputError, Problem
from fleetsim.job.history_fields import mapping_of, step_of

if TYPE_CHECKING:
    from fleetsim.cli.compare_flags import Compare

Span = tuple[str, str]
FORM = "write START..END, for example -6h..-3h"


def spans_of(call: Compare) -> dict[str, Span | None]:
    """Start and end of A and of B as they were written, "" for an open end; None where all of a file is meant.

    Raises InputError for what is no span, no step and no --map, all problems at once.
    """
    from fleetsim.history.prometheus import Prometheus

    problems: list[Problem] = []
    spans: dict[str, Span | None] = {}
    for where, flag, text in (("A", "--a", call.window_a), ("B", "--b", call.window_b)):
        try:
            spans[where] = None if text is None else _span(flag, text)
        except InputError as error:
            problems += error.problems
        if call.prometheus is not None and text is not None and text.startswith(".."):
            problems.append(Problem(flag, text, "begins when?", FORM))
    if call.b is None and spans.get("B") is None:
        spans["B"] = spans.get("A")  # the same time, other instances
    for check in (
        lambda: step_of(call.step),
        lambda: mapping_of(call.map_ or (), None if call.prometheus is not None else "file"),
        lambda: None if call.prometheus is None else Prometheus(call.prometheus, call.access.access()).close(),
    ):
        try:
            check()
        except InputError as error:
            problems += error.problems
    if call.prometheus is not None and call.framework:
        problems.append(Problem("--framework", call.framework, "means something for run logs only", "drop it"))
    if problems:
        raise InputError(problems)
    return spans


def _span(flag: str, text: str) -> Span:
    from fleetsim.history.window import parse_time

    start, dots, end = (part.strip() for part in text.partition(".."))
    if not dots or not (start or end):
        raise InputError([Problem(flag, text, "is no window", FORM)])
    problems: list[Problem] = []
    at: list[float] = []
    for part in (start, end):
        try:
            at += [parse_time(part, 0.0, flag)] if part else []
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    # Relative ends count from the same now; a relative end beside an absolute one is judged when there is a now.
    if len(at) == 2 and at[0] >= at[1] and _relative(start) == _relative(end):
        raise InputError([Problem(flag, text, "ends before it starts", "swap the two")])
    return start, end


def _relative(text: str) -> bool:
    return text.startswith(("-", "now"))
