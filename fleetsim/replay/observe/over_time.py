"""`OverTime`: all that a window shows over time, for whoever draws it."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.history.history import History
from fleetsim.replay.observe.activity import Activity, activity_of
from fleetsim.replay.observe.events import Event, events_of
from fleetsim.replay.observe.interruptions import Pause
from fleetsim.replay.observe.intervals import intervals_of
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.series import (
    FleetSeries,
    QueueSeries,
    TrainerSeries,
    fleet_over_time,
    queue_over_time,
    trainer_over_time,
)
from fleetsim.replay.observe.steps import steps_of


@dataclass(frozen=True, slots=True)
class OverTime:
    """A window over time; None is what was not observed. names: of the instances, row by row of `fleet`."""

    start_s: float
    end_s: float
    step_s: float
    names: tuple[str, ...]
    fleet: FleetSeries | None
    trainer: TrainerSeries | None
    queue: QueueSeries | None
    activity: Activity | None
    pauses: tuple[Pause, ...]
    events: tuple[Event, ...]


def over_time(history: History, observed: Observed) -> OverTime:
    """The window that `observed` was read off, over time."""
    intervals = intervals_of(history) if observed.fleet is not None else None
    pauses = () if observed.pauses is None else observed.pauses.each
    steps = steps_of(history, pauses, observed.placement if intervals is not None else None)
    return OverTime(
        observed.start_s,
        observed.end_s,
        observed.step_s,
        tuple(str(one) for one in history.instances),
        None if intervals is None else fleet_over_time(history, intervals),
        trainer_over_time(steps),
        queue_over_time(history, steps),
        None if intervals is None else activity_of(history, intervals, observed),
        pauses,
        events_of(history, intervals, observed),
    )
