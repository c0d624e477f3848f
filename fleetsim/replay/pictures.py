"""What a window shows over time, as charts, and what of it was not observed, in words."""

from __future__ import annotations

from collections.abc import Iterator

from fleetsim.replay.fleet_pictures import activity_chart, fleet_chart, instances_chart
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.over_time import OverTime
from fleetsim.replay.trainer_pictures import pauses_chart, queue_chart, trainer_chart
from fleetsim.replay.words import clock
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.gantt import Clock
from fleetsim.tell.charts.panels import Scene


def time_charts(shown: OverTime, observed: Observed) -> Iterator[Chart]:
    """The charts that the window has data for, in the order in which they are read."""
    scene = Scene(
        Clock.of(shown.start_s, shown.end_s),
        shown.step_s,
        [(p.start_s, p.end_s) for p in shown.pauses],
        [(event.at_s, _letter(k)) for k, event in enumerate(shown.events)],
    )
    if shown.trainer is not None:
        yield trainer_chart(shown.trainer, observed, scene)
    if shown.fleet is not None:
        yield fleet_chart(shown.fleet, observed, scene)
        if len(shown.names) > 1:
            yield instances_chart(shown.fleet, shown.names, observed, scene)
    if shown.queue is not None:
        yield queue_chart(shown.queue, observed, scene)
    if observed.pauses is not None and shown.pauses:
        yield pauses_chart(observed.pauses, scene)
    if shown.activity is not None and shown.activity.strips:
        yield activity_chart(shown.activity, whole_s=shown.end_s - shown.start_s)


def unseen(shown: OverTime, observed: Observed) -> tuple[str, ...]:
    """What no chart shows because nobody exported it, a sentence each."""
    told = []
    if shown.trainer is None:
        told.append(
            "Optimizer steps: neither exported nor to be inferred from the engines, so no step time and no idle."
        )
    elif shown.trainer.idle_fraction is None:
        told.append("The trainer's waiting: not exported, so how long it idles is not known; its steps are.")
    if shown.fleet is None:
        told.append("Engines: no metric of any instance was read; rates, loads and pauses are not known.")
    else:
        for name, what in (("running", "Running requests"), ("waiting", "Waiting requests")):
            if name not in shown.fleet.each:
                told.append(f"{what}: not exported by the engines.")
        if observed.lengths is None:
            told.append("Response lengths: no histogram of them was read.")
        if observed.pauses is None:
            told.append("Fleet-wide pauses: not to be seen in this window.")
    if shown.queue is None:
        told.append("The queue of finished samples: not exported; rl_rollout_queue_samples would show it.")
    elif shown.queue.depth is None:
        told.append("The depth of the queue: not exported; the age of its oldest sample is.")
    elif shown.queue.oldest_age_steps is None:
        told.append("The age of the oldest queued sample: not exported; the depth of the queue is.")
    return tuple(told)


def events_words(shown: OverTime) -> Iterator[str]:
    """The named events, a sentence each."""
    for k, e in enumerate(shown.events):
        until = "" if e.until_s is None else f" to {clock(e.until_s)}"
        yield f"{_letter(k)}, {clock(e.at_s)}{until}: {e.text}"


def _letter(k: int) -> str:
    """The name of the k-th event: A to Z, then A1, B1 ..."""
    return chr(ord("A") + k % 26) + (str(k // 26) if k >= 26 else "")
