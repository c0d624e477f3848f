"""The steps of a run that count: those after warm-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fleetsim.sim.records import Records
from fleetsim.sim.warmup import warmup_steps


@dataclass(frozen=True, slots=True)
class Window:
    """The steps that count: `steps` from `start_s` to `end_s`; totals are differences over it."""

    first: int
    steps: NDArray[Any]
    before: NDArray[Any] | None  # the step before the window, whose totals are its start
    start_s: float
    end_s: float

    def total(self, column: str) -> float:
        """Growth of a running total over the window."""
        base = 0.0 if self.before is None else float(self.before[column])
        return float(self.steps[column][-1]) - base

    @property
    def span_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s


def window_of(records: Records) -> Window:
    """The window of a run after warm-up (see `warmup_steps`)."""
    steps = records.steps
    first = warmup_steps(records.scenario, steps["end_s"] - steps["start_s"])
    return Window(
        first,
        steps[first:],
        steps[first - 1] if first else None,
        float(steps["start_s"][first]),
        float(steps["end_s"][-1]),
    )
