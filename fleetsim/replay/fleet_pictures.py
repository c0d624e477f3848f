"""The engines' side of a window over time: all instances, how far they are apart, and what each of them did."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fleetsim import units
from fleetsim.history.history import Floats
from fleetsim.replay.observe.activity import DOING, Activity, Doing
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.series import Bins, FleetSeries
from fleetsim.replay.words import span_of_time
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.gantt import Clock, known
from fleetsim.tell.charts.panels import Band, Line, Panel, Scene
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
