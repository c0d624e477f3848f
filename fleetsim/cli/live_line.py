"""The line that a terminal shows while work goes on: always one line, however narrow.

What it has room for, first things first: how far it is, the time left, what is being done, a bar, what is known by now.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import Progress, SpinnerColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fleetsim.tell.console import console as literal

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
