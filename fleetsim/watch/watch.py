"""The watcher: looks at the fleet again and again, and says how many instances it should have, or nothing.

`WatchLoop` knows no Prometheus, no simulator and no clock of its own: it is given a function that looks (the real one
is made in `watch/evaluation.py`) and a clock. What it holds is read by the exporter from another thread (`status`).

A recommendation is withheld, never guessed: while there are too few evaluations, when the newest sample is older than
`stale_s`, and when the look itself says that the fleet is not to be resized (a fault to be mended first, no plan, a
model that is off). While the data are fresh the count that holds is kept then: a fleet must not shrink to nothing
because its trainer is sick.

From the counts that single evaluations want to one recommendation that does not flap: `policies/scaling.py`.
Before the first `up_after` evaluations there is no recommendation at all: a restart of the watcher must not move a
fleet. Then it is the present count of instances, or more where all of them wanted more.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from msgspec import Struct, field

from fleetsim import units
from fleetsim.errors import FleetsimError, Problem, Problems
from fleetsim.faces import flag, text
from fleetsim.policies.scaling import Damping, Held, damped
from fleetsim.replay.diagnose.finding import Mend

Withheld = Literal["starting", "stale", "data", "model", "no_plan"] | Mend
# Samples that carry a time ahead of ours by more than this are not fresh: one of the two clocks is wrong.
AHEAD_S = 60.0


class WatchClock(Protocol):
    """Time, so that tests can make it pass."""

    def now(self) -> float:
        """Unix seconds."""

    def wait(self, seconds: float) -> bool:
        """Waits; True as soon as the watch is to end."""


class WallClock:
    """The machine's time. `stop` may be called from a signal handler."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def wait(self, seconds: float) -> bool:
        """Sleeps, or returns True when stopped."""
        return self._stop.wait(seconds)

    def stop(self) -> None:
        """Ends the watch after the look that is under way."""
        self._stop.set()


class Look(Struct, frozen=True):
    """What one evaluation found.

    data_s: unix seconds of the newest sample. current: instances present. wanted: the count that the plan asks for,
    None where there is none, and then `withheld` says why in a word and `why` in a sentence; then: the count once what
    is to be mended first is mended, None = not known. observed_idle,
    predicted_idle: the trainer's idle ratio over the window and as simulated, None = unknown. model_error: of the
    back-test. faults: check of the runbook -> whether it is at fault; unknown ones are left out. starves, headline: of
    the verdict. notes: about the data.
    """

    data_s: float
    current: int
    wanted: int | None
    observed_idle: float | None = None
    predicted_idle: float | None = None
    model_error: float | None = None
    faults: Mapping[str, bool] = field(default_factory=dict)
    starves: str = "unknown"
    headline: str = ""
    withheld: Withheld | None = None
    why: str = ""
    then: int | None = None
    notes: tuple[str, ...] = ()


class Status(Struct, frozen=True):
    """What the watcher says at one moment.

    up: whether the last evaluation succeeded. withheld: why nothing new is recommended, None = something is.
    recommended: instances; while it is withheld by a fresh look, those that hold; None = none was ever, or the data are
    stale. look: the last good one, None before it and when its data are stale. data_age_s: since its newest sample,
    None before the first. last_success_s: unix seconds of the last good evaluation. evaluations: by result (ok |
    failed). changes: how often the recommendation has moved.
    """

    up: bool
    recommended: int | None
    withheld: Withheld | None
    look: Look | None
    data_age_s: float | None
    last_success_s: float | None
    evaluations: Mapping[str, int]
    changes: int


def reason_of(error: Exception) -> str:
    """Why a look failed: in the words of an error that is known, else its kind as well."""
    return str(error) if isinstance(error, FleetsimError) else f"unforeseen, {type(error).__name__}: {error}"


def kind_of(reason: str) -> str:
    """A reason without its numbers: the same failure, told of another window, is not told again."""
    return re.sub(r"\d+", "0", reason)


class WatchLoop(Struct):
    """The loop. look: evaluates at a unix time, raises where it cannot. tell: hears what changes.

    every_s: between two evaluations. stale_s: age of the newest sample after which nothing is recommended. start: a
    recommendation to hold from the beginning (a plan's), None = none. Raises InputError.
    """

    look: Callable[[float], Look]
    clock: WatchClock
    tell: Callable[[str], None]
    every_s: float = 60.0
    stale_s: float = 300.0
    damping: Damping = field(default_factory=Damping)
    start: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _held: Held = field(default_factory=Held)
    _look: Look | None = None
    _success_s: float | None = None
    _counts: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0})
    _error: str = ""
    _changes: int = 0

    def __post_init__(self) -> None:
        problems = Problems()
        if not (math.isfinite(self.every_s) and self.every_s >= 1):
            problems.append(Problem(flag("every"), self.every_s, "is a time of at least a second", "give 60s or so"))
        elif not (math.isfinite(self.stale_s) and self.stale_s >= 2 * self.every_s):
            every = flag("every", f"{self.every_s:g}s")
            rule = text("one missed evaluation of {} must not withdraw the recommendation", every)
            problems.append(Problem(flag("stale_after"), self.stale_s, rule, f"give {2 * self.every_s:g}s or more"))
        problems.stop()

    def run(self) -> None:
        """Evaluates until the clock says to stop; evaluations begin `every_s` apart, or as soon as they can."""
        while True:
            began = self.clock.now()
            self.evaluate()
            spent = self.clock.now() - began
            if self.clock.wait(max(0.0, self.every_s - max(0.0, spent))):
                return

    def evaluate(self) -> Status:
        """One look; a failed one is told and counted, and changes nothing that is held."""
        now = self.clock.now()
        try:
            look = self.look(now)
        except Exception as error:  # noqa: BLE001 - nothing from outside, whatever it is, ends a watch
            reason = reason_of(error)
            with self._lock:
                new = kind_of(reason) != kind_of(self._error)
                self._counts["failed"] += 1
                self._error = reason
            if new:
                self.tell(f"this evaluation failed, the last good one holds until it is stale: {reason}")
        else:
            self._succeeded(look, self.clock.now())
        return self.status()

    def _succeeded(self, look: Look, now: float) -> None:
        with self._lock:
            mended = bool(self._error)
            before = self._held
            if self._look is not None and not self._fresh(self._look.data_s, now):
                # What was wanted before an outage says nothing about what comes after it.
                before = Held(before.instances, (), before.changed_s)
            fresh, good = self._fresh(look.data_s, now), look.wanted is not None and look.withheld is None
            if fresh and good and self.start is not None:
                before, self.start = Held(self.start, (), before.changed_s), None
            if not fresh:
                self._held = Held(before.instances, (), before.changed_s)
            elif look.wanted is not None and good:
                self._held = damped(before, look.wanted, look.current, now, self.damping)
            elif before.instances is not None:
                self._held = Held(before.instances, (), before.changed_s)
            elif look.current > 0:  # what is there is what is to stay
                self._held = damped(before, look.current, look.current, now, self.damping)
            paused = look.withheld if look.withheld != (self._look and self._look.withheld) else None
            self._look, self._success_s, self._error = look, now, ""
            self._counts["ok"] += 1
            after = self._held.instances
            moved = after != before.instances
            self._changes += moved and before.instances is not None
        if paused is not None:
            kept = "" if after is None else f"; kept: {units.plural(after, 'instance')}"
            self.tell(f"nothing is recommended now ({paused}): {look.why}{kept}")
        if mended:
            self.tell("evaluations succeed again")
        if moved:
            was = "nothing" if before.instances is None else before.instances
            word = "recommended" if good else "kept"
            self.tell(f"{word} instances: {after} (was {was}); {look.headline}")

    def _fresh(self, data_s: float, now: float) -> bool:
        return -AHEAD_S <= now - data_s <= self.stale_s

    def status(self, now: float | None = None) -> Status:
        """What holds now. Ages count at this moment, so that a look that hangs withdraws the recommendation too."""
        with self._lock:
            now = self.clock.now() if now is None else now
            look, held = self._look, self._held
            fresh = look is not None and self._fresh(look.data_s, now)
            withheld: Withheld | None = None
            if look is None:
                withheld = "starting"
            elif not fresh:
                withheld = "stale"
            elif look.withheld is not None:
                withheld = look.withheld
            elif look.wanted is None:
                withheld = "no_plan"
            elif held.instances is None:
                withheld = "starting"
            return Status(
                up=self._success_s is not None and not self._error,
                recommended=None if withheld in ("starting", "stale") else held.instances,
                withheld=withheld,
                look=look if fresh else None,
                data_age_s=None if look is None else now - look.data_s,
                last_success_s=self._success_s,
                evaluations=dict(self._counts),
                changes=self._changes,
            )
