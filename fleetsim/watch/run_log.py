"""A run log that grows: read again whenever it did, and what is said when its verdict changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from fleetsim import units
from fleetsim.dataclass import dataclass
from fleetsim.errors import FleetsimError, InputError, Problem
from fleetsim.faces import flag
from fleetsim.history.history import History, StepLog
from fleetsim.replay.brief import fault_lines, worst_fault
from fleetsim.replay.diagnose.checks.data import FEW_STEPS
from fleetsim.tell.document import NextLines
from fleetsim.tell.next_lines import parted

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.replay.diagnose.finding import Verdict
    from fleetsim.watch.watch import WatchClock

# Looks at new steps in a row that must agree before a verdict takes the place of another.
AGREE = 2


@dataclass(frozen=True, slots=True)
class LogOptions:
    """path: of the log, a file or a tracker's folder. window_s: seconds of steps at its end that are judged, and no
    fewer than FEW_STEPS of them. every_s: between two looks. framework, mapping: as for any step log. base, given: what
    is known of the job."""

    path: str
    window_s: float
    every_s: float
    base: Scenario
    given: Collection[str] = ()
    framework: str | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not os.path.exists(self.path):
            rule = "no such file or directory"
            raise InputError([Problem(flag("log"), self.path, rule, "give the log that the trainer writes")])
        if self.every_s < 1:
            rule = "is a time of at least a second"
            raise InputError([Problem(flag("every"), self.every_s, rule, "give 60s or so")])


class LogWatch:
    """Follows one log. tell: hears the first verdict, every change of it, and what cannot be read."""

    def __init__(self, options: LogOptions, clock: WatchClock, tell: Callable[[str], None]) -> None:
        self._options, self._clock, self._tell = options, clock, tell
        self._seen: object = None
        self._last_step = -np.inf
        self._told: tuple[str, str | None] | None = None
        self._wish: tuple[tuple[str, str | None], int] | None = None
        self._failed = self._waiting = ""

    def run(self) -> None:
        """Looks until the clock says to stop."""
        while True:
            self.look()
            if self._clock.wait(self._options.every_s):
                return

    def look(self) -> None:
        """Reads the log if it grew, and tells what is new in it."""
        stamp = _stamp(self._options.path)
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            log = self._read()
            if log is None:
                return
            verdict = self._verdict(log)
        except FleetsimError as error:
            if str(error) != self._failed:
                self._failed = str(error)
                self._tell(f"this look failed: {error}")
            return
        self._failed = ""
        self._judge(verdict, log)

    def _read(self) -> History | None:
        """The end of the log; None where it brings no new step, or has too few."""
        from fleetsim.history.files import read_file

        history = read_file(self._options.path, self._options.framework, dict(self._options.mapping))
        if history.steps is None:
            rule, remedy = "is no step log", "fleetsim replay reads other histories"
            raise InputError([Problem(flag("log"), self._options.path, rule, remedy)])
        steps = history.steps.columns["step"]
        if len(steps) < FEW_STEPS:
            self._wait(f"{len(steps)} steps so far: a verdict needs {FEW_STEPS}")
            return None
        if steps[-1] <= self._last_step:
            return None
        self._last_step = float(steps[-1])
        return replace(history, steps=last_part(history.steps, self._options.window_s))

    def _wait(self, text: str) -> None:
        if not self._waiting:
            self._tell(text)
        self._waiting = text

    def _verdict(self, history: History) -> Verdict:
        from fleetsim.replay.diagnose.diagnosis import diagnose
        from fleetsim.replay.observe.observe import observe

        return diagnose(observe(history, self._options.base), self._options.base, given=self._options.given)

    def _judge(self, verdict: Verdict, history: History) -> None:
        """Tells the first verdict at once, another one when it has come AGREE times in a row."""
        now = verdict.starves, verdict.binding
        if now == self._told:
            self._wish = None
            return
        count = self._wish[1] + 1 if self._wish is not None and self._wish[0] == now else 1
        self._wish = now, count
        if self._told is not None and count < AGREE:
            return
        assert history.steps is not None
        for line in verdict_lines(verdict, float(history.steps.columns["step"][-1]), first=self._told is None):
            self._tell(line)
        self._told, self._wish = now, None


def verdict_lines(verdict: Verdict, step: float, *, first: bool) -> tuple[str, ...]:
    """The headline, and of what to change first evidence, price and the one command that follows, as `replay` does."""
    what = "verdict" if first else "the verdict changed"
    found = worst_fault(verdict)
    lines = [f"step {units.count(round(step))}: {what}: {verdict.headline}"]
    for label, said in () if found is None else fault_lines(found, verdict.headline):
        if isinstance(said, NextLines):
            said = " ".join(parted(said.text)).strip()
        lines += [f"  {label}: {said}"] if said else []
    return tuple(lines)


def last_part(log: StepLog, window_s: float) -> StepLog:
    """The last steps, whose seconds fit into the window; no fewer than FEW_STEPS."""
    seconds = log.columns.get("step_s")
    if seconds is None:
        return log
    back = np.cumsum(np.nan_to_num(seconds[::-1]))
    count = max(FEW_STEPS, int(np.searchsorted(back, window_s, side="right")))
    return StepLog(log.framework, {name: values[-count:] for name, values in log.columns.items()})


def _stamp(path: str) -> object:
    """What changes when the log grows: sizes and times of its files; None while it is not there."""
    try:
        if not os.path.isdir(path):
            found = os.stat(path)
            return found.st_size, found.st_mtime_ns
        files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        return tuple(sorted((name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in files))
    except OSError:
        return None
