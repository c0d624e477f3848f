"""A window over time, drawn: the engines, the trainer's steps and its queue, with the fleet's pauses as shades."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.history.history import Floats
from fleetsim.quantities import quantity
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.over_time import DOING, Activity, Doing, WindowSeries
from fleetsim.replay.words import short, span_of_time
from fleetsim.tell.charts.axes import Clock, from_zero
from fleetsim.tell.charts.bounded import known, stepped, together, wide_enough
from fleetsim.tell.charts.chart import Chart, ChartSeries, Mark, MarkLook, Panel, Plot, Span, Spans, look

# Instances with a line each: more of them are a band, and stragglers by name.
_FEW, _MOST_NAMED = 3, 3
# A band of up to so many instances is from the lowest to the highest, of more from the 10th to the 90th percentile.
_ALL_OF = 10
# What an instance does: its name in the legend, the colour, which parts of its row are filled, and how that is told.
_DOES: dict[Doing, tuple[str, str, tuple[tuple[float, float], ...], str]] = {
    "working": ("makes tokens", "accent", ((0.0, 1.0),), "thick: it makes tokens"),
    "paused": ("whole fleet paused", "second", ((0.0, 0.38), (0.62, 1.0)), "two stripes: the whole fleet is paused"),
    "idle": ("no request", "third", ((0.42, 0.58),), "thin: it holds no request"),
    "still": ("no token", "second", ((0.25, 0.75),), "half as thick: it makes no token, not in such a pause"),
    "unread": ("not read", "quiet", ((0.0, 0.16), (0.84, 1.0)), "two hair lines: it is there and was not read"),
}
LOOKS = {doing: (name, MarkLook(colour, lanes=lanes)) for doing, (name, colour, lanes, _) in _DOES.items()}
_EACH = {
    "tok_s": ("output tok/s of an instance", 140),
    "running": ("requests running on an instance", 110),
    "waiting": ("requests waiting in an instance", 80),
}


class Scene(Struct, frozen=True):
    """What all charts of a window have in common. step_s: between two readings. shades: spans in seconds behind all
    panels; letters: events by time, in the order of time."""

    clock: Clock
    step_s: float
    shades: Sequence[tuple[float, float]] = ()
    letters: Sequence[tuple[float, str]] = ()

    def chart(self, id: str, title: str, words: str, panels: Sequence[Panel], shaded: bool = True) -> Chart:  # noqa: A002
        """A chart in it; what is shaded is said. Shades too short to be seen are left out."""
        seen = wide_enough(self.shades, self.clock) if shaded else []
        if seen:
            of = f"{len(seen):,} of {len(self.shades):,}"
            some = "" if len(seen) == len(self.shades) else f", those long enough to be seen ({of})"
            words += f" Shaded: pauses of the whole fleet{some}."
        at, letters = self.clock.at, [(self.clock.at(t), x) for t, x in together(self.letters, self.clock)]
        lines, shades = tuple(Mark(x) for x, _ in letters), [(at(a), at(b)) for a, b in seen]
        return Chart(id, title, words, Plot(self.clock.axis(), tuple(panels), lines, shades, letters))


def panel(
    title: str,
    series: Sequence[ChartSeries],
    height_px: int = 150,
    after: str = "",
    level: tuple[float, str] | None = None,
    top: float | None = None,
) -> Panel:
    """A panel from 0 to a little above the highest value. level: a line across, and what it is. top: the highest."""
    found = [v for one in series for v in one.y if v is not None] + ([level[0]] if level else [])
    axis = from_zero(title, found if top is None else [top], 0.06 if top is None else 0.0, after=after)
    return Panel(axis, tuple(series), () if level is None else (Mark(*level),), height_px=height_px)


def fleet_chart(fleet: WindowSeries, observed: Observed, scene: Scene) -> Chart:
    """Rate, requests and number of all instances together."""
    each = [panel("output tok/s, all instances", [_line("output tokens", scene, fleet, fleet.of["tok_s"])])]
    loads = [(name, look(k)) for k, name in enumerate(("running", "waiting")) if name in fleet.of]
    if loads:
        lines = [_line(name, scene, fleet, fleet.of[name], style) for name, style in loads]
        each.append(panel("requests in the engines", lines, 120))
    each.append(panel("instances", [_line("instances", scene, fleet, fleet.of["instances"], MarkLook("third"))], 70))
    f, words = observed.fleet, ""
    if f is not None:
        words = f"The fleet makes {units.number(f.tok_s)} output tokens per second on average"
        words += f", with {units.number(f.running)} requests running." if f.running is not None else "."
    return scene.chart("fleet", "Fleet: rate and load", words + _mean_words(fleet, scene), each)


def instances_chart(fleet: WindowSeries, names: Sequence[str], observed: Observed, scene: Scene) -> Chart:
    """What an instance makes and holds: few of them by name, many as a band with the stragglers by name."""
    slow = [str(view.id) for view in observed.instances if view.straggler]
    named = [row for row, name in enumerate(names) if name in set(slow)][:_MOST_NAMED]
    each, quiet = [], ""
    for signal, rows in fleet.each.items():
        title, height = _EACH[signal]
        if signal == "waiting" and not np.nansum(rows) > 0:
            quiet = " No request waited in any of them, at any reading."
        elif len(names) <= _FEW:
            lines = [_line(short(n), scene, fleet, rows[k], look(k)) for k, n in enumerate(names)]
            each.append(panel(title, lines, height))
        else:
            low, middle, high = spread_of(rows)
            x = scene.clock.places(fleet.middle_s)
            lines = [
                ChartSeries(_how(rows), "band", x, known(high), low=known(low)),
                ChartSeries("median instance", "line", x, known(middle)),
            ]
            for k, row in enumerate(named):
                style = MarkLook("second", ("dash", "dot", "dashdot")[k])
                lines.append(_line(f"{short(names[row])} (slow)", scene, fleet, rows[row], style))
            each.append(panel(title, lines, height))
    if slow:
        words = f"{units.plural(len(slow), 'straggler')}: {units.few(slow, _MOST_NAMED)}."
    else:
        words = f"None of the {len(names):,} instances is a straggler."
    if len(names) > _FEW:
        words += f" The band is {_how(fleet.each['tok_s'])}, the line the median."
    return scene.chart("instances", "Instances: how far apart", words + quiet + _mean_words(fleet, scene), each)


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
    clock = Clock.of(activity.from_s, activity.until_s)
    strips = sorted(((str(one), spans) for one, spans in activity.strips), key=lambda strip: _natural(strip[0]))
    rows = tuple(
        (short(name), [Span(doing, clock.at(start_s), clock.at(end_s)) for doing, start_s, end_s in spans])
        for name, spans in strips
    )
    used = {doing for _, spans in strips for doing, _, _ in spans}
    part = activity.until_s - activity.from_s < 0.999 * whole_s
    words = f"Each row is an instance, from {span_of_time(activity.from_s, activity.until_s)}"
    words += ", the end of the window." if part else "."
    if len(rows) < activity.of:
        words += f" {len(rows)} of {activity.of:,} instances: those that stand out, and others evenly."
    told = "; ".join(_DOES[doing][3] for doing in DOING if doing in used)
    words += (
        f" {units.capital(told)}; nothing: it is not there. What is shorter than the time between two readings "
        f"({units.seconds(activity.resolution_s)}) is not told apart."
    )
    return Chart("activity", "What each instance did", words, Spans(clock.axis(), rows, {**LOOKS}))


def _natural(name: str) -> list[tuple[int, int, str]]:
    """rollout-2 before rollout-10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.findall(r"[0-9]+|[^0-9]+", name)]


def _line(name: str, scene: Scene, of: WindowSeries, values: Floats, style: MarkLook = look(0)) -> ChartSeries:  # noqa: B008
    return ChartSeries(name, "line", scene.clock.places(of.middle_s), known(values), style)


def _mean_words(of: WindowSeries, scene: Scene) -> str:
    if not of.merged:
        return ""
    return f" Every point is the mean of {units.seconds(of.per_point * scene.step_s)}, to keep the page small."


_FROM = {"exported": "as exported", "log": "as the run log has it", "inferred": "inferred from the engines"}


def trainer_chart(trainer: WindowSeries, observed: Observed, scene: Scene) -> Chart:
    """Seconds of a step and of its parts, and the share of the time that the trainer waits."""
    clock, t = scene.clock, observed.trainer
    names = {"step_s": "the whole step", "wait_s": "waiting for samples", "sync_s": "held by weight sync"}
    lines = [
        ChartSeries(title, "steps", *stepped(clock, trainer.start_s, trainer.end_s, trainer.of[name]), look(k))
        for k, (name, title) in enumerate(names.items())
        if name in trainer.of
    ]
    each = [panel("seconds of an optimizer step", lines, 160)] if lines else []
    words = "Seconds of a step are not known."
    if t.step_s is not None:
        words = f"A step takes {units.seconds(t.step_s.value)} on average, {_FROM[t.step_s.source]}."
    if "idle" in trainer.of:
        x, y = stepped(clock, trainer.start_s, trainer.end_s, 100.0 * trainer.of["idle"])
        title, level = quantity("trainer_idle_fraction").title, None
        if t.idle_fraction is not None:
            mean = units.share(t.idle_fraction.value)
            level = (100.0 * t.idle_fraction.value, f"mean {mean}")
            words += f" The trainer waits for samples {mean} of its time."
        idle = ChartSeries(title, "steps", x, y, MarkLook("second"), fill=True)
        each.append(panel(title, [idle], 100, " %", level, 100.0))
    if trainer.merged:
        words += f" Every level is the mean of about {trainer.per_point:,.0f} steps, to keep the page small."
    elif t.step_s is not None and t.step_s.source == "exported":
        words += f" Readings are {units.seconds(scene.step_s)} apart: a single step is known to within that."
    return scene.chart("trainer", "Trainer: step and idle", words, each)


def queue_chart(queue: WindowSeries, observed: Observed, scene: Scene) -> Chart:
    """Depth, beside one batch, and the age of the oldest sample."""
    q, batch = observed.queue, observed.trainer.batch_samples
    each, words = [], ""
    if "depth" in queue.of:
        lines = _depth(queue, scene.clock)
        most = max((v for line in lines if line.kind != "band" for v in line.y if v is not None), default=0.0)
        level = None
        if batch is not None and 0.2 * batch.value <= most:
            level = (round(batch.value, 1), "one batch")
        each.append(panel("samples that wait", lines, level=level))
        if q.depth is not None and q.depth_max is not None:
            words = f"{units.number(q.depth)} samples wait on average, {units.number(q.depth_max)} at most."
    if "age" in queue.of:
        age = _line("oldest sample", scene, queue, queue.of["age"], MarkLook("third"))
        each.append(panel(quantity("oldest_sample_age_steps").title, [age], 90))
        if q.oldest_age_max_steps is not None:
            words += f" The oldest is up to {units.number(q.oldest_age_max_steps)} steps old."
    if q.growth_per_h is not None and abs(q.growth_per_h) >= 0.5:
        words += f" The queue moves by {q.growth_per_h:+,.0f} samples an hour."
    if "highest" in queue.of:
        span = units.seconds(float(queue.end_s[0] - queue.start_s[0]))
        words += f" Every point is the mean of {span}, to keep the page small."
    return scene.chart("queue", "Queue of finished samples", words.strip(), each, shaded=False)


def _depth(queue: WindowSeries, clock: Clock) -> list[ChartSeries]:
    """As read, held from one reading to the next; where readings are taken together, their mean and their highest."""
    if "highest" not in queue.of:
        x, y = stepped(clock, queue.start_s, queue.end_s, queue.of["depth"])
        return [ChartSeries(quantity("queue_depth").title, "steps", x, y, fill=True)]
    at, mean = clock.places(queue.middle_s), known(queue.of["depth"])
    band = ChartSeries("up to the highest reading", "band", at, known(queue.of["highest"]), low=mean)
    return [band, ChartSeries("mean", "line", at, mean)]
