"""A run log that grows, begins anew or is not there yet: read again whenever it changed, and what is said of it.

Its last row says where the run is. A step before one that was seen is a trainer that resumed, or another run: what was
found of the steps after it is no longer said of anything.

What is told is what changed: the side that waits, and causes that came, went, or cost half as much again. While a cause
that rose is there, the steps before its rise are judged, too: without them it would look as if it had always been so.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Mapping

import numpy as np
from msgspec import Struct, field

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag
from fleetsim.history.history import History, StepLog
from fleetsim.history.wandb import run_address
from fleetsim.records import replace
from fleetsim.replay.diagnose.checks.reading import FEW_STEPS
from fleetsim.replay.diagnose.cures import Cure, cures_of
from fleetsim.replay.diagnose.finding import Verdict
from fleetsim.replay.diagnose.step_scene import WORTH
from fleetsim.replay.facts import fault_lines
from fleetsim.replay.observe.phases import plain
from fleetsim.tell.document import NextLines
from fleetsim.tell.next_lines import parted
from fleetsim.watch.watch import WatchClock, kind_of, reason_of

Stamp = tuple[object, int, object]
"""Which file it is, its size, and what else changes when it grows."""

# Looks at new steps in a row that must agree before a verdict takes the place of another.
AGREE = 2
# A cause costs other than it did from this ratio on, if that is WORTH of a step as well.
MOVED = 1.5
# Responses that grew by less than this share are as long as they were.
LONGER = 0.1


class LogFinding(Struct, frozen=True):
    """What one look found. step_s: seconds of a step now. longer: by which share responses grew with the last change of
    a phase."""

    verdict: Verdict
    cures: tuple[Cure, ...]
    step_s: float
    longer: float

    def like(self, other: LogFinding) -> bool:
        """Whether nothing is to be told after the other one."""
        mine, theirs = self._costs, other._costs
        least = WORTH * min(self.step_s, other.step_s)
        pairs = [sorted((mine.get(cause, 0.0), theirs.get(cause, 0.0))) for cause in {*mine, *theirs}]
        moved = any(b - a >= least and b >= MOVED * a for a, b in pairs)
        return not moved and self._key == other._key and self._rose == other._rose

    @property
    def since(self) -> float:
        """The first step of a rise that is still there; infinite without one."""
        return min((c.since_step for c in self.cures if c.since_step is not None), default=np.inf)

    @property
    def _key(self) -> tuple[str, str | None]:
        return self.verdict.starves, None if self.cures else self.verdict.binding

    @property
    def _costs(self) -> dict[str, float]:
        return {cure.cause: cure.mean_s for cure in self.cures}

    @property
    def _rose(self) -> set[str]:
        return {cure.cause for cure in self.cures if cure.since_step is not None}

    def lines(self, step: float, before: LogFinding | None) -> tuple[str, ...]:
        """The headline, and of what to change first evidence, price and the one command that follows, as `replay` does;
        then the other causes, and those that are over."""
        first, what = self.verdict.first, "verdict" if before is None else "the verdict changed"
        lines = [f"step {units.count(round(step))}: {what}: {self.verdict.headline}"]
        for label, said in () if first is None else fault_lines(first, self.verdict.headline):
            if isinstance(said, NextLines):
                said = " ".join(parted(said.text)).strip()
            lines += [f"  {label}: {said}"] if said else []
        for cure in self.cures[1:]:
            since = "" if cure.since_step is None else f" since step {cure.since_step}"
            lines.append(f"  also: {cure.cause}: {plain(cure.mean_s)} of a step{since}; {'; '.join(cure.do)}")
        if abs(self.longer) >= LONGER:
            lines.append(
                f"  responses: {units.share(abs(self.longer))} {'longer' if self.longer > 0 else 'shorter'} now"
            )
        over = [] if before is None else [c.cause for c in before.cures if c.cause not in self._costs]
        return (*lines, *([f"  over: {', '.join(over)}"] if over else []))


class LogWatch(Struct):
    """Follows one log. tell: hears the first verdict, every change of it, where the log begins anew, and what cannot be
    read.

    path: of the log, a file or a tracker's folder. window_s: seconds of steps at its end that are judged, and no fewer
    than FEW_STEPS of them. every_s: between two looks. framework, mapping: as for any step log. base, given: what is
    known of the job. Raises InputError.
    """

    path: str
    window_s: float
    every_s: float
    base: Scenario
    clock: WatchClock
    tell: Callable[[str], None]
    given: Collection[str] = ()
    framework: str | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)
    _seen: Stamp | None = None
    _last_step: float = -np.inf
    _told: LogFinding | None = None
    _wish: tuple[LogFinding, int] | None = None
    _since: float = np.inf
    _failed: str = ""
    _waiting: str = ""

    def __post_init__(self) -> None:
        if self.every_s < 1:
            rule = "is a time of at least a second"
            raise InputError([Problem(flag("every"), self.every_s, rule, "give 60s or so")])

    def run(self) -> None:
        """Looks until the clock says to stop."""
        while True:
            self.look()
            if self.clock.wait(self.every_s):
                return

    def look(self) -> None:
        """Reads the log if it changed, and tells what is new in it. A look that fails is told once, and tried again."""
        try:
            stamp = _stamp(self.path)
            if stamp is None:
                self._wait("file", f"{self.path} is not there: waiting for it")
            elif stamp[1] == 0 and self._seen is None and os.path.isfile(self.path):
                self._wait("line", f"{self.path} is empty: waiting for its first step")
            elif stamp != self._seen:
                # another file in the place of the one that was read, or one that was emptied
                if self._seen is not None and (stamp[0] != self._seen[0] or stamp[1] < self._seen[1]):
                    self._begin(f"{self.path} is another file than before: what follows is of that one")
                log = self._read()
                if log is not None:
                    self._judge(self._found(log))
                self._seen = stamp
            self._failed = ""
        except Exception as error:  # noqa: BLE001 - nothing from outside, whatever it is, ends a watch
            reason = reason_of(error)
            if kind_of(reason) != kind_of(self._failed):
                self.tell(f"this look failed: {reason}")
            self._failed = reason

    def _begin(self, text: str) -> None:
        """Forgets what was found, and says why."""
        self._last_step, self._told, self._wish, self._waiting, self._seen = -np.inf, None, None, "", None
        self._since = np.inf
        self.tell(text)

    def _read(self) -> History | None:
        """The end of the log; None where it brings no new step, or has too few."""
        from fleetsim.history.files import read_file

        history = read_file(self.path, self.framework, dict(self.mapping))
        if history.steps is None:
            rule, remedy = "is no step log", "fleetsim replay reads other histories"
            raise InputError([Problem(flag("log"), self.path, rule, remedy)])
        steps = history.steps.columns["step"]
        if steps[-1] < self._last_step:
            before, now = (units.count(round(step)) for step in (self._last_step, float(steps[-1])))
            self._begin(f"the log went back from step {before} to step {now}: the run resumed there, or began anew")
        if len(steps) < FEW_STEPS:
            self._wait("steps", f"{units.plural(len(steps), 'step')} so far: a verdict needs {FEW_STEPS}")
            return None
        if steps[-1] == self._last_step:
            return None
        self._last_step = float(steps[-1])
        risen = 0 if np.isinf(self._since) else FEW_STEPS + int(np.count_nonzero(steps >= self._since))
        return replace(history, steps=last_part(history.steps, self.window_s, max(FEW_STEPS, risen)))

    def _wait(self, what: str, text: str) -> None:
        """Tells what is waited for, once."""
        if self._waiting != what:
            self.tell(text)
        self._waiting = what

    def _found(self, history: History) -> LogFinding:
        from fleetsim.replay.diagnose.diagnosis import diagnose
        from fleetsim.replay.observe.observe import observe

        observed = observe(history, self.base)
        verdict, account = diagnose(observed, self.base, given=self.given), observed.account
        grown = () if account is None else (phase.growth for phase in account.changed)
        step_s, longer = 0.0 if account is None else account.now_s, max(grown, key=abs, default=0.0)
        return LogFinding(verdict, cures_of(observed, verdict), step_s, longer)

    def _judge(self, now: LogFinding) -> None:
        """Tells the first verdict at once, another one when it has come AGREE times in a row."""
        self._since = now.since
        if self._told is not None and now.like(self._told):
            self._wish = None
            return
        count = self._wish[1] + 1 if self._wish is not None and self._wish[0].like(now) else 1
        self._wish = now, count
        if self._told is not None and count < AGREE:
            return
        for line in now.lines(self._last_step, self._told):
            self.tell(line)
        self._told, self._wish = now, None


def last_part(log: StepLog, window_s: float, least: int = FEW_STEPS) -> StepLog:
    """The last steps, whose seconds fit into the window; no fewer than `least`."""
    seconds = log.columns.get("step_s")
    if seconds is None:
        return log
    back = np.cumsum(np.nan_to_num(seconds[::-1]))
    count = max(least, int(np.searchsorted(back, window_s, side="right")))
    return StepLog(log.framework, {name: values[-count:] for name, values in log.columns.items()})


def _stamp(path: str) -> Stamp | None:
    """None while it is not there. A folder is one and the same, and no size of it tells. A run behind an address always
    looks new. Raises InputError: what cannot be read again; OSError."""
    if run_address(path) is not None:
        return path, 0, object()
    try:
        if not os.path.isdir(path):
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                rule = "is a pipe or a device: what was read of it once is gone"
                raise InputError([Problem(flag("log"), path, rule, "write the log to a file, and give that")])
            return (found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns
        files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        return path, 0, tuple(sorted((name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in files))
    except (FileNotFoundError, NotADirectoryError):
        return None
