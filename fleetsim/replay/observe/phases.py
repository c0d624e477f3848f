"""`Account`: where the seconds of an observed step go; every one belongs to a phase, or to what no timer explains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from fleetsim import units
from fleetsim.replay.observe.segments import PhaseCourse

Mode = Literal["synchronous", "one step off", "asynchronous", "unknown"]

UNEXPLAINED = "unexplained"
EVALUATES = 1 / 3  # of a step: evaluation or checkpoints that take less are what they should be
CHANGED = 0.05  # of a step: a phase that moved by so much parts the run into before and now
LITTLE, MOST = 0.02, 6  # of a step: phases below it are not told in the first line, nor more than so many


class Phase(Struct, frozen=True):
    """One phase of a step.

    column: of the log; metric: what the framework calls it. seconds: mean of all steps; share: of a step. course: over
    the run's steps. since_step: the step from which it is another than before; over: first and last step at
    which it was. growth: by which share its tokens grew with it; stretch: the longest response.
    """

    name: str
    column: str
    metric: str | None
    seconds: float
    share: float
    course: PhaseCourse
    since_step: int | None = None
    over: tuple[int, int] | None = None
    growth: float = 0.0
    stretch: float = 0.0

    @property
    def beyond_usual(self) -> float:
        """Seconds of a step, on average, that its spikes add to what it usually takes."""
        return max(0.0, self.seconds - self.course.usual)

    @property
    def each(self) -> float:
        """Seconds of a step that it takes now, those that come in some steps alone spread over all."""
        return self.course.usual + (self.beyond_usual if self.course.every or self.course.again else 0.0)


class Account(Struct, frozen=True):
    """The seconds of a step, by phase, the longest first.

    step_s: mean seconds, step_metric: what the framework calls them; steps: how many were seen. mode: how generation
    and training lie to each other. framework: whose log it is; None = exported metrics. estimated: no timer parts the
    step, and what its seconds have to do with its responses' lengths says what generation takes. either:
    synchronous is only likelier than asynchronous. present: means of the log's columns since the last change of a
    phase, of a rise in its last quarter; scatter: deviation / mean of the same rows, from one to the next. token_s:
    seconds that each token of the longest response adds to a generation, and their standard error; None where the log
    does not tell.
    """

    step_s: float
    steps: int
    mode: Mode
    phases: tuple[Phase, ...]
    framework: str | None = None
    estimated: bool = False
    either: bool = False
    present: Mapping[str, float] = field(default_factory=dict)
    scatter: Mapping[str, float] = field(default_factory=dict)
    token_s: tuple[float, float] | None = None
    step_metric: str = "step_s"

    def phase(self, column: str) -> Phase | None:
        """The phase of a column; None where the log has none."""
        return next((p for p in self.phases if p.column == column), None)

    def now(self, column: str) -> float:
        """Seconds that a phase takes now, without its spikes; 0 where the log has none."""
        found = self.phase(column)
        return 0.0 if found is None else found.course.usual

    @property
    def now_s(self) -> float:
        """Seconds of a step now, without spikes."""
        return sum(p.course.usual for p in self.phases)

    @property
    def changed(self) -> tuple[Phase, ...]:
        """The phases that parted the run into before and now."""
        return tuple(p for p in self.phases if abs(p.course.excess) >= CHANGED * self.now_s)

    @property
    def words(self) -> str:
        """The first line of every answer."""
        told = [p for p in self.phases if p.share >= LITTLE][:MOST]
        parts = [f"{plain(p.seconds)} {p.name}{_mark(p, first=n == 0)}" for n, p in enumerate(told)]
        return f"{plain(self.step_s)} a step: {', '.join(parts) if parts else 'in no named timer'}"


def _mark(phase: Phase, *, first: bool) -> str:
    marks = [units.share(phase.share, 0)] if first else []
    if phase.since_step is not None and phase.course.before is not None:
        marks.append(f"{plain(phase.course.before)} until step {phase.since_step}")
    elif phase.over is not None and phase.course.before is not None:
        marks.append(f"{plain(phase.course.before)} from step {phase.over[0]} to {phase.over[1]}")
    elif phase.course.kind == "rising":
        marks.append("rising")
    elif phase.course.every is not None:
        marks.append(f"every {phase.course.every} steps")
    return f" ({', '.join(marks)})" if marks else ""


def plain(seconds: float) -> str:
    """Seconds that are to be compared with each other: in one unit up to a quarter of an hour, "128 s", "4.2 s"."""
    if seconds >= 900:
        return units.seconds(seconds)
    return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
