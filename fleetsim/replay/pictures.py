"""A window over time, drawn: the engines, the trainer's steps, its queue, and the pauses of the whole fleet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fleetsim import units
from fleetsim.history.history import Floats
from fleetsim.quantities import quantity
from fleetsim.replay.observe.interruptions import Pauses
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.over_time import DOING, Activity, Doing
from fleetsim.replay.observe.series import Bins, FleetSeries, QueueSeries, TrainerSeries
from fleetsim.replay.words import span_of_time
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.gantt import Clock, known, stepped
from fleetsim.tell.charts.panels import Band, Line, Panel, Scene, legend_px
from fleetsim.tell.charts.steps import StateLook, short, strip

# Instances with a line each: more of them are a band, and stragglers by name.
_FEW, _MOST_NAMED = 3, 3
# A band of up to so many instances is from the lowest to the highest, of more from the 10th to the 90th percentile.
_ALL_OF = 10
_DASHES = ("solid", "dash", "dot")
_COLOURS = ("accent", "second", "third")

LOOKS: dict[str, StateLook] = {
    "working": StateLook("makes tokens", "accent", 0.8),
    "paused": StateLook("whole fleet paused", "second", 0.8, "/"),
    "idle": StateLook("no request", "third", 0.22),
    "still": StateLook("no token", "second", 0.45, "x"),
    "unread": StateLook("not read", "quiet", 0.8, "."),
}
_TOLD: dict[Doing, str] = {
    "working": "thick: it makes tokens",
    "paused": "hatched: the whole fleet is paused",
    "idle": "thin: it holds no request",
    "still": "crossed: it makes no token, not in such a pause",
    "unread": "dotted: it is there and was not read",
}
_EACH = {
    "tok_s": ("output tok/s of an instance", 170),
    "running": ("requests running on an instance", 130),
    "waiting": ("requests waiting in an instance", 100),
}


def fleet_chart(fleet: FleetSeries, observed: Observed, scene: Scene) -> Chart:
    """Rate, requests and number of all instances together."""
    bins = fleet.bins
    each = [Panel("output tok/s, all instances", (_binned("output tokens", scene.clock, bins, fleet.tok_s),))]
    loads = []
    if fleet.running is not None:
        loads.append(_binned("running", scene.clock, bins, fleet.running))
    if fleet.waiting is not None:
        loads.append(_binned("waiting", scene.clock, bins, fleet.waiting, "second", "dash"))
    if loads:
        each.append(Panel("requests in the engines", tuple(loads), height_px=120))
    there = _binned("instances", scene.clock, bins, fleet.instances, "third")
    each.append(Panel("instances", (there,), height_px=70))
    f, words = observed.fleet, ""
    if f is not None:
        words = f"The fleet makes {units.number(f.tok_s)} output tokens per second on average"
        words += f", with {units.number(f.running)} requests running." if f.running is not None else "."
    return scene.panels("fleet", "Fleet: rate and load", words + _bins_words(bins, scene), each)


def instances_chart(fleet: FleetSeries, names: Sequence[str], observed: Observed, scene: Scene) -> Chart:
    """What an instance makes and holds: few of them by name, many as a band with the stragglers by name."""
    slow = [str(view.id) for view in observed.instances if view.straggler]
    named = [row for row, name in enumerate(names) if name in set(slow)][:_MOST_NAMED]
    each, quiet = [], ""
    for signal, rows in fleet.each.items():
        title, height = _EACH[signal]
        if signal == "waiting" and not np.nansum(rows) > 0:
            quiet = " No request waited in any of them, at any reading."
        elif len(names) <= _FEW:
            lines = [
                _binned(short(name), scene.clock, fleet.bins, rows[k], _COLOURS[k], _DASHES[k])
                for k, name in enumerate(names)
            ]
            each.append(Panel(title, tuple(lines), height_px=height))
        else:
            low, middle, high = spread_of(rows)
            x = scene.clock.places(_middles(fleet.bins))
            lines = [Line("median instance", x, known(middle))]
            for k, row in enumerate(named):
                name = f"{short(names[row])} (slow)"
                lines.append(_binned(name, scene.clock, fleet.bins, rows[row], "second", ("dash", "dot", "dashdot")[k]))
            each.append(Panel(title, tuple(lines), (Band(_how(rows), x, known(low), known(high)),), height_px=height))
    if slow:
        more = f" and {len(slow) - _MOST_NAMED} more" if len(slow) > _MOST_NAMED else ""
        words = f"{units.plural(len(slow), 'straggler')}: {', '.join(slow[:_MOST_NAMED])}{more}."
    else:
        words = f"None of the {len(names):,} instances is a straggler."
    if len(names) > _FEW:
        words += f" The band is {_how(fleet.each['tok_s'])}, the line the median."
    return scene.panels("instances", "Instances: how far apart", words + quiet + _bins_words(fleet.bins, scene), each)


def spread_of(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """(I, N) -> low, median and high by bin, NaN where nothing was read."""
    at = (0.0, 50.0, 100.0) if len(rows) <= _ALL_OF else (10.0, 50.0, 90.0)
    found = np.full((3, rows.shape[1]), np.nan)
    there = np.isfinite(rows).any(axis=0)
    if there.any():
        found[:, there] = np.nanpercentile(rows[:, there], at, axis=0)
    return found[0], found[1], found[2]


def _how(rows: Floats) -> str:
    return "lowest to highest" if len(rows) <= _ALL_OF else "10th to 90th percentile"


def activity_chart(activity: Activity, whole_s: float) -> Chart:
    """A strip for each instance. whole_s: of the window, of which this may be the end."""
    rows = sorted(((str(one.id), one.spans) for one in activity.strips), key=lambda row: _natural(row[0]))
    used = {doing for one in activity.strips for doing, _, _ in one.spans}
    part = activity.until_s - activity.from_s < 0.999 * whole_s
    words = f"Each row is an instance, from {span_of_time(activity.from_s, activity.until_s)}"
    words += ", the end of the window." if part else "."
    if len(rows) < activity.of:
        words += f" {len(rows)} of {activity.of:,} instances: those that stand out, and others evenly."
    told = "; ".join(_TOLD[doing] for doing in DOING if doing in used)
    words += (
        f" {units.capital(told)}; nothing: it is not there. What is shorter than the time between two readings "
        f"({units.seconds(activity.resolution_s)}) is not told apart."
    )
    clock = Clock.of(activity.from_s, activity.until_s)
    looks: dict[str, StateLook] = {doing: LOOKS[doing] for doing in DOING if doing in used}
    return strip("activity", "What each instance did", words, rows, looks, clock)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """rollout-2 before rollout-10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.findall(r"[0-9]+|[^0-9]+", name)]


def _binned(
    name: str, clock: Clock, bins: Bins, values: Floats, colour: str = "accent", dash: str = "solid"
) -> Line:  # fmt: skip
    return Line(name, clock.places(_middles(bins)), known(values), colour, dash)


def _middles(bins: Bins) -> Floats:
    return np.asarray((bins.edges[:-1] + bins.edges[1:]) / 2)


def _bins_words(bins: Bins, scene: Scene) -> str:
    if bins.per_bin == 1:
        return ""
    return f" Every point is the mean of {units.seconds(bins.per_bin * scene.step_s)}, to keep the page small."


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
