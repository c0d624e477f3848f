"""The trainer's side of a window over time: steps and idle, the queue, and the pauses of the whole fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.replay.observe.interruptions import Pauses
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.series import QueueSeries, TrainerSeries
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.gantt import Clock, known, stepped
from fleetsim.tell.charts.panels import Band, Line, Panel, Scene, legend_px

_MOST_PAUSES = 720
_FROM = {"exported": "as exported", "log": "as the run log has it", "inferred": "inferred from the engines"}


def trainer_chart(trainer: TrainerSeries, observed: Observed, scene: Scene) -> Chart:
    """Seconds of a step and of its parts, and the share of the time that the trainer waits."""
    clock, t = scene.clock, observed.trainer
    lines = []
    for name, values, colour, dash in (
        ("the whole step", trainer.step_s, "accent", "solid"),
        ("waiting for samples", trainer.wait_s, "second", "dash"),
        ("held by weight sync", trainer.sync_s, "third", "dot"),
    ):
        if values is not None:
            x, y = stepped(clock, trainer.start_s, trainer.end_s, values)
            lines.append(Line(name, x, y, colour, dash, steps=True))
    each = [Panel("seconds of an optimizer step", tuple(lines), height_px=190)] if lines else []
    words = "Seconds of a step are not known."
    if t.step_s is not None:
        words = f"A step takes {units.seconds(t.step_s.value)} on average, {_FROM[t.step_s.source]}."
    if trainer.idle_fraction is not None:
        x, y = stepped(clock, trainer.start_s, trainer.end_s, 100.0 * trainer.idle_fraction)
        idle = Line(quantity("trainer_idle_fraction").title, x, y, "second", steps=True, fill=True)
        level = None
        if t.idle_fraction is not None:
            mean = units.share(t.idle_fraction.value)
            level = (100.0 * t.idle_fraction.value, f"mean {mean}")
            words += f" The trainer waits for samples {mean} of its time."
        each.append(Panel(quantity("trainer_idle_fraction").title, (idle,), (), " %", level, 110, 100.0))
    if trainer.merged:
        words += f" Every level is the mean of about {np.median(trainer.steps):,.0f} steps, to keep the page small."
    elif t.step_s is not None and t.step_s.source == "exported":
        words += f" Readings are {units.seconds(scene.step_s)} apart: a single step is known to within that."
    return scene.panels("trainer", "Trainer: step and idle", words, each)


def queue_chart(queue: QueueSeries, observed: Observed, scene: Scene) -> Chart:
    """Depth, beside one batch, and the age of the oldest sample."""
    clock, q, batch = scene.clock, observed.queue, observed.trainer.batch_samples
    each, words = [], ""
    if queue.depth is not None:
        lines, bands = _depth(queue, clock)
        most = max((v for line in lines for v in line.y if v is not None), default=0.0)
        level = None
        if batch is not None and 0.2 * batch.value <= most:
            level = (round(batch.value, 1), "one batch")
        each.append(Panel("samples that wait", lines, bands, level=level))
        if q.depth is not None and q.depth_max is not None:
            words = f"{units.number(q.depth)} samples wait on average, {units.number(q.depth_max)} at most."
    if queue.oldest_age_steps is not None:
        x = clock.places((queue.start_s + queue.end_s) / 2)
        age = Line("oldest sample", x, known(queue.oldest_age_steps), "third")
        each.append(Panel(quantity("oldest_sample_age_steps").title, (age,), height_px=90))
        if q.oldest_age_max_steps is not None:
            words += f" The oldest is up to {units.number(q.oldest_age_max_steps)} steps old."
    if q.growth_per_h is not None and abs(q.growth_per_h) >= 0.5:
        words += f" The queue moves by {q.growth_per_h:+,.0f} samples an hour."
    if queue.highest is not None:
        span = units.seconds(float(queue.end_s[0] - queue.start_s[0]))
        words += f" Every point is the mean of {span}, to keep the page small."
    return scene.panels("queue", "Queue of finished samples", words.strip(), each, shaded=False)


def _depth(queue: QueueSeries, clock: Clock) -> tuple[tuple[Line, ...], tuple[Band, ...]]:
    """As read, held from one reading to the next; where readings are taken together, their mean and their highest."""
    assert queue.depth is not None
    if queue.highest is None:
        x, y = stepped(clock, queue.start_s, queue.end_s, queue.depth)
        return (Line(quantity("queue_depth").title, x, y, steps=True, fill=True),), ()
    x = clock.places((queue.start_s + queue.end_s) / 2)
    band = Band("up to the highest reading", x, known(queue.depth), known(queue.highest))
    return (Line("mean", x, known(queue.depth)),), (band,)


def pauses_chart(pauses: Pauses, scene: Scene) -> Chart:
    """A symbol a pause: one for those with work in hand, another for engines that stood empty."""
    count = len(pauses.each)
    chosen = pauses.each
    if count > _MOST_PAUSES:
        chosen = tuple(pauses.each[k * (count - 1) // (_MOST_PAUSES - 1)] for k in range(_MOST_PAUSES))
    every = "" if pauses.period_s is None else f", every {units.seconds(pauses.period_s)}"
    words = (
        f"{units.plural(count, 'pause')} of {units.seconds(pauses.mean_s)} on average{every}: the fleet stands still "
        f"{units.share(pauses.share)} of the time. Each is known to within one reading "
        f"({units.seconds(scene.step_s)})."
    )
    if len(chosen) < count:
        words += f" {len(chosen):,} of {count:,} are drawn, evenly."
    panel = Panel("seconds of each pause", top=1.15 * max(p.seconds for p in chosen))
    chart = scene.panels("pauses", "Pauses of the whole fleet", words, [panel], shaded=False)
    kinds = ((False, "with work in hand", "accent", "circle"), (True, "engines empty", "second", "square-open"))
    data: list[dict[str, Any]] = []
    for empty, name, colour, symbol in kinds:
        some = [p for p in chosen if p.empty is empty]
        if some:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": scene.clock.places(p.start_s for p in some),
                    "y": known(p.seconds for p in some),
                    "meta": {"colour": colour},
                    "marker": {"symbol": symbol, "size": 7, "line": {"width": 1.2}},
                    "showlegend": True,
                }
            )
    room = legend_px([str(trace["name"]) for trace in data])
    margin = {**chart.layout["margin"], "t": chart.layout["margin"]["t"] + room}
    layout = {**chart.layout, "margin": margin, "showlegend": True}
    return replace(chart, data=tuple(data), layout=layout, height_px=chart.height_px + room)
