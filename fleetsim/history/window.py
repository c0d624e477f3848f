"""Windows of time: how a user writes their ends, and the slice of a `History` between two ends."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import Buckets, History, StepLog
from fleetsim.history.option_names import END, START
from fleetsim.history.text import lasts, unix_of
from fleetsim.records import replace
from fleetsim.units import seconds

_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
_MILLISECONDS = 1e11  # as seconds that is the year 5138
_FORMS = "write now, -6h, -1d12h, 2026-11-21T08:00 (UTC unless it names a zone), or unix seconds"


def parse_span(text: str) -> float | None:
    """Seconds of "90m", "1d12h" or "15s"; None if it is no such thing."""
    return lasts(text) if _SPAN.fullmatch(text) else None


CALENDAR_S = 1e8  # 1973: no fleet is that old, and no run log is that long
_YEAR_10_000_S = 253_402_300_800.0


def parse_time(text: str, now_s: float, flag: str = START) -> float:
    """Unix seconds of "now", "-6h", "now-90m", an ISO 8601 time (UTC unless it names a zone) or unix seconds.

    Raises InputError, under `flag`'s name, for anything else.
    """

    def refuse(rule: str, remedy: str) -> InputError:
        return InputError([Problem(flag, text, rule, remedy)])

    given = text.strip()
    if given == "now":
        return now_s
    back = parse_span(given.removeprefix("now").removeprefix("-")) if given.startswith(("-", "now-")) else None
    if back is not None:
        return now_s - back
    if parse_span(given) is not None:
        raise refuse("a span of time, but not which way it goes", f"write -{given} for {given} before now")
    if re.fullmatch(r"\d+(\.\d+)?", given):
        number = float(given)
        if number >= _MILLISECONDS:
            raise refuse("too large for unix seconds", f"in milliseconds? then {number / 1000:.0f}")
        if len(given) == 8:
            raise refuse("may be a date or unix seconds", f"for the date write {given[:4]}-{given[4:6]}-{given[6:]}")
        return number
    if re.fullmatch(r"-\d+(\.\d+)?", given):
        raise refuse("a span of time without its unit", f"write {given}s, {given}m or {given}h")
    if not re.match(r"\d{4}-", given):
        raise refuse("is no time", _FORMS)
    try:
        return unix_of(given)
    except ValueError as error:
        raise refuse(f"is no time: {error}", _FORMS) from None


def has_clock(at_s: float) -> bool:
    """Whether a time is of a calendar. What has no clock (a run log without times) counts its seconds from 0."""
    return CALENDAR_S < abs(at_s) < _YEAR_10_000_S


def shown(at_s: float) -> str:
    """A time as people read it: "2026-11-21 08:00:00 UTC"; of what has no clock, "120 s"."""
    if not has_clock(at_s):
        return f"{at_s:.0f} s"
    try:
        return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # years that the calendar does not have
        return f"{at_s:.0f} s"


def window(history: History, start_s: float, end_s: float) -> History:
    """The part of a history from start_s to end_s, both ends included.

    Instances without a sample in it are left out. A histogram also keeps its last reading before start_s, from which
    its growth counts. A log without a clock is cut by the seconds of its steps. Raises InputError if nothing of the
    history lies in the window.
    """
    keep = (history.times >= start_s - 1e-6) & (history.times <= end_s + 1e-6)
    steps = _rows(history.steps, start_s, end_s)
    if steps is not None and "time_s" not in steps.columns and not (history.instances or keep.all()):
        if steps.ends is None:
            rule = f"{history.source} has no clock, so no part of it can be picked by time"
            remedy = text("leave out {} and {}", START, END)
            raise InputError([Problem("window", f"{shown(start_s)} to {shown(end_s)}", rule, remedy)])
        if len(steps):
            times = np.clip([start_s, end_s], history.start_s, history.end_s)
            return replace(history, times=times, steps=steps)
    if not keep.any():
        raise InputError([_outside(history, start_s, end_s)])
    values = {name: at[:, keep] for name, at in history.values.items()}
    seen = [np.isfinite(at).any(axis=1) for at in values.values()]
    present = np.any(seen, axis=0) if seen else np.ones(len(history.instances), dtype=np.bool_)
    return replace(
        history,
        times=history.times[keep],
        instances=tuple(i for i, there in zip(history.instances, present, strict=True) if there),
        values={name: at[present] for name, at in values.items()},
        fleet={name: at[keep] for name, at in history.fleet.items()},
        histograms={name: _buckets(b, start_s, end_s, present) for name, b in history.histograms.items()},
        configs=tuple(c for c, there in zip(history.configs, present, strict=True) if there),
        steps=steps,
    )


def _buckets(b: Buckets, start_s: float, end_s: float, present: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Buckets:
    first = max(int(np.searchsorted(b.times, start_s + 1e-6, side="right")) - 1, 0)
    last = int(np.searchsorted(b.times, end_s + 1e-6, side="right"))
    return Buckets(b.le, b.times[first:last], b.counts[present, first:last], b.sums[present, first:last])


def _rows(steps: StepLog | None, start_s: float, end_s: float) -> StepLog | None:
    at = None if steps is None else steps.ends
    if steps is None or at is None:
        return steps
    return steps.where((at > start_s - 1e-6) & (at <= end_s + 1e-6))


def _outside(history: History, start_s: float, end_s: float) -> Problem:
    what = f"{shown(start_s)} to {shown(end_s)}"
    has = f"{shown(history.start_s)} to {shown(history.end_s)}"
    if end_s < start_s:
        return Problem("window", what, "ends before it starts", text("swap {} and {}", START, END))
    rule = f"holds no reading: the history has {has}, every {seconds(history.step_s)}"
    return Problem("window", what, rule, "give a window inside that")
