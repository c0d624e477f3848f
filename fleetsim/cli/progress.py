"""Progress on stderr: what is being done, how far it is, the best so far and the time left.

On a terminal a line that is drawn again and again and leaves nothing behind; anywhere else silence or, for work of
minutes, a line now and then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import Progress, SpinnerColumn, Task
from rich.progress import Progress as Bar
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fleetsim import units
from fleetsim.cli.interrupts import loaded
from fleetsim.cli.terminal import say
from fleetsim.job.result import Watch
from fleetsim.tell.console import console as literal

# --- The line that a terminal shows while work goes on: always one line, however narrow.
# What it has room for, first things first: how far it is, the time left, what is being done, a bar, what is known.

# Columns of the bar: no more than that, so that there is room for what is known; with less it says nothing.
_BAR, _WIDE_BAR, _LEAST_BAR, _WIDE = 12, 24, 6, 100
# A shorter piece of what is known says nothing.
_LEAST_BEST = 12


class OneLine:
    """One task as one line. Fields of the task: best and left, texts."""

    def __init__(self, task: Task, spinner: RenderableType) -> None:
        self._task, self._spinner = task, spinner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        task, room = self._task, options.max_width - 2  # the spinner and its space
        counted = task.total is not None
        count = Text(f"{task.completed:,.0f} of {task.total:,.0f}" if counted else "")
        left, best, what = Text(task.fields["left"]), Text(task.fields["best"]), Text(task.description)
        parts: dict[str, RenderableType] = {}

        def fit(name: str, text: Text, least: int) -> None:
            """Takes the text, or as much as there is room for if that is no less than that."""
            nonlocal room
            if text.cell_len and room >= min(least, text.cell_len):
                text.truncate(room, overflow="ellipsis")
                parts[name] = text
                room -= text.cell_len + 1

        fit("count", count, 1)
        fit("left", left, 6)
        fit("what", what, 6)
        if counted and room >= _LEAST_BAR:
            width = min(room, _WIDE_BAR if options.max_width >= _WIDE else _BAR)
            parts["bar"] = ProgressBar(total=task.total, completed=task.completed, width=width)
            room -= width + 1
        fit("best", best, _LEAST_BEST)
        line = Table.grid(padding=(0, 1, 0, 0))
        order = [name for name in ("what", "bar", "count", "left", "best") if name in parts]
        for _ in range(len(order) + 1):
            line.add_column(no_wrap=True)
        line.add_row(self._spinner, *(parts[name] for name in order))
        yield line


class _LineProgress(Progress):
    """A rich progress whose tasks are drawn as one line each."""

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """The lines, one below the other."""
        spinner = self.columns[0]
        lines = Table.grid()
        for task in tasks:
            if task.visible:
                lines.add_row(OneLine(task, spinner(task) if not isinstance(spinner, str) else spinner))
        return lines


def live_line(console: Console | None = None) -> Progress:
    """A rich progress on stderr that leaves nothing behind; its tasks have the fields `best` and `left`."""
    shown = literal(stderr=True) if console is None else console
    return _LineProgress(SpinnerColumn(), console=shown, transient=True)


COMPILING = "compiling the simulation kernel (first run on this machine, a few seconds)"

# Seconds between two looks at the terminal, and between two lines elsewhere.
_REDRAW_S, _LINE_S = 0.1, 30.0
# Seconds after which whoever waits for a file or a pipe is told that work goes on.
_LONG_S = 15.0


class TimeLeft:
    """Seconds left, from the pace of the later half of what is done.

    What was done when it was first told has no pace, and the next that is done after it bears the start of everything.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._told: deque[tuple[float, float]] = deque(maxlen=4096)

    def __call__(self, now_s: float, done: float, of: float) -> float | None:
        """At this time so much of so much is done; None before there is a pace."""
        if self._first is None or done <= self._first:
            self._first = done
            return None
        self._told.append((now_s, done))
        while len(self._told) > 2 and self._told[1][1] <= self._first + (done - self._first) / 2:
            self._told.popleft()
        since_s, since = self._told[0]
        return (now_s - since_s) / (done - since) * (of - done) if done > since else None


class _Counted(Watch):
    """Shows `at` every so many seconds, and at the end."""

    counts = True
    every_s: float

    def __init__(self) -> None:
        self._left = TimeLeft()
        self._next_s = 0.0

    def loaded(self) -> None:
        loaded()

    def remark(self, text: str) -> None:
        say(text, err=True)

    def due(self) -> bool:
        return time.monotonic() >= self._next_s

    def at(self, done: float, of: float, best: Callable[[], str] | None = None) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s and done < of:
            return
        self._next_s = now_s + self.every_s
        left = self._left(now_s, done, of)
        known = best() if best is not None else ""
        self.show(done, of, known, "" if left is None else f"{units.seconds(left)} left")

    def show(self, done: float, of: float, best: str, left: str) -> None:
        """Shows how far it is, what is known by now and the time left, in words."""
        raise NotImplementedError


class _PrintedLines(_Counted):
    every_s = _LINE_S

    def __init__(self) -> None:
        super().__init__()
        self._last = ""
        self._next_s = time.monotonic() + self.every_s

    def __call__(self, text: str) -> None:
        if text != self._last:
            self._last = text
            say(text, err=True)

    def show(self, done: float, of: float, best: str, left: str) -> None:
        say(_how_far(done, of, best, left), err=True)


def _how_far(done: float, of: float, best: str, left: str) -> str:
    return ", ".join(filter(None, (f"{done:,.0f} of {of:,.0f}", best, left)))


class _Quiet(_PrintedLines):
    """Says nothing, but that it is still working and how far it is, once that takes longer than anyone expects."""

    every_s = _REDRAW_S

    def __init__(self, first: str) -> None:
        super().__init__()
        self._last, self._far = first, ""
        self.ended = threading.Event()
        threading.Thread(target=self._tell, daemon=True).start()

    def __call__(self, text: str) -> None:
        self._last, self._far = text, ""

    def show(self, done: float, of: float, best: str, left: str) -> None:
        self._far = _how_far(done, of, best, left)

    def _tell(self) -> None:
        """After a while, and again every so often, until it has ended."""
        while not self.ended.wait(_LONG_S):
            say(f"still working: {': '.join(filter(None, (self._last, self._far)))}", err=True)


class _Terminal(_Counted):
    every_s = _REDRAW_S

    def __init__(self, bar: Bar, first: str, simulates: bool) -> None:
        super().__init__()
        from fleetsim.engine.compiled import is_compiled

        self._is_compiled, self._compiled, self._bar = is_compiled, not simulates or is_compiled(), bar
        self._task = bar.add_task(first if self._compiled else COMPILING, total=None, best="", left="")

    def __call__(self, text: str) -> None:
        # The first simulation compiles the kernel; only what is told after it is worth showing.
        self._compiled = self._compiled or self._is_compiled()
        self._bar.update(self._task, description=text if self._compiled else COMPILING)

    def show(self, done: float, of: float, best: str, left: str) -> None:
        self._bar.update(self._task, completed=done, total=of, best=best, left=left)


@contextmanager
def progress(first: str, aloud: bool = False, simulates: bool = True, searches: bool = False) -> Iterator[Watch]:
    """Shows `first`, then whatever it is told, until the block ends.

    aloud: elsewhere than on a terminal, a line on stderr for every new text, and for how far it is now and then.
    simulates: whether the work needs the kernel; where that has not been compiled yet, a terminal says so first.
    searches: whether it makes dozens of runs or more.
    """
    if searches:
        from fleetsim.sim.processes import begin

        begin()  # while this is the only thread
    if not sys.stderr.isatty():
        if aloud:
            yield _PrintedLines()
            return
        quiet = _Quiet(first)
        try:
            yield quiet
        finally:
            quiet.ended.set()
        return
    with live_line() as bar:
        yield _Terminal(bar, first, simulates)
