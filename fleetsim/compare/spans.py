"""The windows of `compare`: START..END, and the other options that say how history is read, checked."""

from __future__ import annotations

from fleetsim.compare.question import Compare
from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import Text
from fleetsim.replay.history_fields import mapping_of, step_of

Span = tuple[str, str]
IN_PYTHON = '"START..END", for example windows=("-6h..-3h", "-3h..now")'
FORM = Text("write START..END, for example -6h..-3h", f"write {IN_PYTHON}")


def spans_of(asked: Compare, one_history: bool) -> dict[str, Span | None]:
    """Start and end of A and of B as they were written, "" for an open end; None where all of it is meant.

    one_history: both are windows of it. Raises InputError for what is no span, no step and no --map, all problems at
    once.
    """
    from fleetsim.history.prometheus import Prometheus

    wrong = Problems()
    spans: dict[str, Span | None] = {"A": None, "B": None}
    for where, flag, text in (
        ("A", Text("--a", "windows A"), asked.window_a),
        ("B", Text("--b", "windows B"), asked.window_b),
    ):
        with wrong.check():
            spans[where] = None if text is None else _span(flag, text)
        if asked.prometheus is not None and text is not None and text.startswith(".."):
            wrong.append(Problem(flag, text, "begins when?", FORM))
    if one_history and spans["B"] is None:
        spans["B"] = spans["A"]  # the same time, other instances
    url = asked.prometheus
    with wrong.check():
        step_of(asked.step)
    with wrong.check():
        mapping_of(asked.map_ or (), None if url is not None else "file")
    with wrong.check():
        if url is not None:
            Prometheus(url, asked.access.access()).close()
    if url is not None and asked.framework:
        wrong.append(Problem("--framework", asked.framework, "means something for run logs only", "drop it"))
    wrong.stop()
    return spans


def _span(flag: str, text: str) -> Span:
    from fleetsim.history.window import parse_time

    start, dots, end = (part.strip() for part in text.partition(".."))
    if not dots or not (start or end):
        raise InputError([Problem(flag, text, "is no window", FORM)])
    wrong = Problems()
    at: list[float] = []
    for part in (start, end):
        with wrong.check():
            at += [parse_time(part, 0.0, flag)] if part else []
    wrong.stop()
    # Relative ends count from the same now; a relative end beside an absolute one is judged when there is a now.
    if len(at) == 2 and at[0] >= at[1] and _relative(start) == _relative(end):
        raise InputError([Problem(flag, text, "ends before it starts", "swap the two")])
    return start, end


def _relative(text: str) -> bool:
    return text.startswith(("-", "now"))
