"""Times at which a fleet or an instance stood still, and of which nothing was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Pause:
    """The fleet stood still: every present instance stopped generating together (unix seconds).

    source: silence (the fleet fell silent with work in hand, or empty between batches) | sleep (engine_sleep_state) |
    counter (the engine counts weight updates). empty: nothing was running meanwhile (a barrier, or engines that the
    trainer's batch has drained), else work was held.
    """

    start_s: float
    end_s: float
    source: Literal["silence", "sleep", "counter"]
    empty: bool

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Hole:
    """A time, longer than growth can be spread over, of which nothing was read (unix seconds): it is part of no elapsed
    time, as what happened in it is part of no count. of: whose metrics are missing."""

    start_s: float
    end_s: float
    of: Literal["engines", "trainer"]

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Pauses:
    """All pauses of a window. share: of the window, holes left out. period_s: median distance of their starts, None
    below three."""

    each: tuple[Pause, ...]
    share: float
    mean_s: float
    period_s: float | None


@dataclass(frozen=True, slots=True)
class Stop:
    """One instance stood with work in hand while others went on (unix seconds). row: of the history's instances."""

    row: int
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Rolling:
    """A weight sync that takes one instance after the other. share: of instance-time that was read, in stops. mean_s:
    of a stop. period_s: median distance of the stops of the instance that has most:
    one without work in hand does not show its stop."""

    stops: tuple[Stop, ...]
    share: float
    mean_s: float
    period_s: float
