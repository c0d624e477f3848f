"""Two windows of history as the two sides of a comparison: what was observed, and what is known to differ."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.compare.compare import Comparison, Side
from fleetsim.compare.question import Compare, GivenSide, Span
from fleetsim.compare.verdicts import compare
from fleetsim.errors import InputError, Problems
from fleetsim.estimates import t_quantile
from fleetsim.faces import text
from fleetsim.history.history import History
from fleetsim.history.option_names import HISTORY
from fleetsim.history.selection import parse_map
from fleetsim.history.window import parse_time, shown
from fleetsim.job.result import Watch
from fleetsim.quantities import WINDOW_METRICS
from fleetsim.records import replace
from fleetsim.replay.history_fields import LAST_HOURS, HistoryWindow, step_of
from fleetsim.replay.observe.window_metrics import Window, window_means, window_of
from fleetsim.units import seconds, share

# --- Which the two windows are, and their read.


class HistoryPart(Struct, frozen=True):
    """A window of history as a side. label: what it is called."""

    label: str
    window: HistoryWindow


def parts_of(
    asked: Compare, given: tuple[GivenSide, ...], spans: Mapping[str, Span | None]
) -> tuple[HistoryPart, HistoryPart]:
    """Both windows. given: none of a Prometheus, one where both are of one history. Raises InputError."""
    sides = (given[0], given[-1]) if given else (None, None)
    a, b = (
        _part(asked, one, where, own, spans[where])
        for one, where, own in zip(sides, "AB", (asked.selector_a, asked.selector_b), strict=True)
    )
    return a, b


def _part(asked: Compare, given: GivenSide | None, where: str, own: str, span: Span | None) -> HistoryPart:
    """own: the labels that this side alone is picked by."""
    start, end = span or ("", "")
    window = HistoryWindow(
        start=start or None,
        end=end or None,
        step_s=step_of(asked.step),
        selector=",".join(part.strip("{} ") for part in (asked.selector, own) if part),
        framework=asked.framework,
        counts=asked.counts,
    )
    if given is None:
        mapping, access = parse_map(asked.map_ or ()), asked.access.access()
        window = replace(window, prometheus=asked.prometheus, mapping=mapping, access=access)
    elif isinstance(given.held, History):
        window = replace(window, history=given.held)
    elif given.is_address:
        window = replace(window, prometheus=given.text)
    else:
        window = replace(window, file=given.text, mapping=parse_map(asked.map_ or (), known=False))
    of, at, only = "" if given is None else given.text, "..".join(span) if span else "", f"{{{own}}}" if own else ""
    return HistoryPart(asked.label(where) or " ".join(filter(None, (of, at, only))), window)


def read(parts: tuple[HistoryPart, HistoryPart], tell: Watch) -> tuple[History, History]:
    """Both windows; what is the same on both sides is read once. Times of a server count from one now.

    Raises InputError (nothing there) with the problems of both, OutsideError (the server did not do its part).
    """
    now, whole = time.time(), dict[tuple[str, str], History]()
    problems = Problems()
    found = []
    for where, part in zip("AB", parts, strict=True):
        try:
            found.append(_read(part.window, now, whole, tell))
        except InputError as error:
            named = ((p, "history" if p.path == HISTORY else p.path) for p in error.problems)
            problems += [replace(p, path=text("{}: {}", where, name)) for p, name in named]
    problems.stop()
    return found[0], found[1]


def _read(window: HistoryWindow, now: float, whole: dict[tuple[str, str], History], tell: Watch) -> History:
    """whole: files that were read, by name and selector."""
    if window.prometheus is not None:
        start, end = (parse_time(text, now) for text in (window.start or LAST_HOURS, window.end or "now"))
        return replace(window, start=repr(start), end=repr(end)).read(tell)
    if window.history is None:
        assert window.file is not None
        key = (os.fspath(window.file), window.selector)
        if key not in whole:
            whole[key] = replace(window, start=None, end=None).read(tell)
        window = replace(window, history=whole[key])
    return window.read(tell)


def same_history(a: HistoryWindow, b: HistoryWindow) -> bool:
    """Whether both are of the same instances of one server, file or history that was read."""
    places = {w.prometheus if w.file is None else os.path.realpath(w.file) for w in (a, b)}
    return a.selector == b.selector and a.history is b.history and len(places) == 1


# Labels that name one instance, or one scrape target, and say nothing of what it is.
_POD = ("pod", "pod_ip", "pod_uid", "uid", "container_id", "ip")
_HOST = ("instance", "endpoint", "node", "nodename", "host", "hostname")
IDENTITY = frozenset((*_POD, *_HOST, "engine", "le", "__name__"))
MOST_VALUES = 5
GAPS = 0.05
SEVERAL = 1.5  # steps between two readings


def compare_windows(
    a: tuple[str, History],
    b: tuple[str, History],
    *,
    min_change: float = 0.01,
    metrics: Sequence[str] = WINDOW_METRICS,
    notes: Sequence[str] = (),
) -> Comparison:
    """(label, history) of both. Raises InputError for a window without anything that was observed."""
    left, right = window_of(a[1]), window_of(b[1])
    inputs = window_inputs(left), window_inputs(right)
    sides = []
    for (label, _), window, own, other in zip((a, b), (left, right), inputs, inputs[::-1], strict=True):
        means, missing = window_means(window)
        known = _known(own, other)
        sides.append(Side(label, means=means, missing=missing, replications=window.blocks, inputs=known))
    said = [*notes, *_blocks_note(left, right)]
    for told in (_rounding, _cautions):
        said += [f"{where}: {text}" for where, w in (("A", left), ("B", right)) for text in told(w)]
    found = compare(sides[0], sides[1], "windows", metrics, pair=False, min_change=min_change, notes=said)
    work = [c for c in found.significant if c.metric in ("response_tokens.mean", "trained_samples")]
    if work:
        what = " and ".join("responses" if c.metric == "response_tokens.mean" else "batches" for c in work)
        text = f"the {what} changed between the windows: part of what changed is the work, not the fleet"
        found = replace(found, notes=(text, *found.notes))
    return found


def overlap(a: History, b: History) -> tuple[str, ...]:
    """What to say of two windows of one history that share time; nothing where they do not."""
    shared = min(a.end_s, b.end_s) - max(a.start_s, b.start_s)
    if shared <= 0:
        return ()
    return (
        f"A and B share {seconds(shared)}: what they share is on both sides, and the change looks smaller than it is",
    )


def window_inputs(window: Window) -> dict[str, Any]:
    """What is known of the fleet itself; labels that all instances, or a few kinds of them, share."""
    seen, history = window.observed, window.history
    fleet: dict[str, Any] = {"placement": seen.placement}
    if seen.fleet is not None:
        f = seen.fleet
        few, many = f.instances_min, f.instances_max
        fleet["instances"] = few if few == many else f"{few} to {many}, {f.instances:.1f} on average"
    group = None if seen.lengths is None else seen.lengths.group_size
    return {
        "fleet": fleet,
        "engine": {
            "name": seen.engine,
            "model": seen.model,
            "kv_blocks": seen.kv_blocks,
            "block_size": seen.block_size,
            "prefix_caching": seen.prefix_caching,
        },
        "workload": {"group_size": None if group is None else round(group.value)},
        "labels": _shared([i.labels for i in history.instances]),
        "cache_config": _shared(history.configs),
    }


def _known(inputs: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out what one of the windows does not tell: that is no difference."""
    return {
        section: {k: v for k, v in values.items() if v is not None and others[section].get(k, v) is not None}
        for section, values in inputs.items()
    }


def _shared(labels: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Each label's values, where they are few and not one for every instance."""
    found = {}
    for key in sorted({k for one in labels for k in one} - IDENTITY):
        values = sorted({one[key] for one in labels if one.get(key)})
        if values and len(values) <= MOST_VALUES and (len(values) < len(labels) or len(labels) == 1):
            found[key] = ", ".join(values)
    return found


def _blocks_note(a: Window, b: Window) -> Iterator[str]:
    """What the intervals rest on, where there are any."""
    if not (a.blocks and b.blocks):
        return

    def words(w: Window) -> str:
        if w.steps is None:
            return f"{units.plural(w.blocks, 'block')} of equal time"
        steps = w.steps.count[w.steps.count == w.steps.count].sum()
        return f"{w.blocks} blocks of about {steps / w.blocks:.0f} steps"

    blocks = f"{words(a)} in A, {words(b)} in B"
    yield f"intervals by batch means: {blocks}, widened by what neighbouring blocks have in common"


def _rounding(w: Window) -> Iterator[str]:
    """Why what is per step is uncertain where steps are counted at readings that are further apart than they are.

    A block's count is wrong by where in a step it begins and where it ends: two uniform parts of a step, whose
    difference has the variance 1/6. The ends of neighbouring blocks are the same, but intervals take no credit for it.
    """
    if w.steps is None or w.steps.source != "exported" or not w.blocks:
        return
    count = w.steps.count[np.isfinite(w.steps.count)]
    if not count.size or count.mean() < SEVERAL or not np.allclose(count, np.round(count)):
        return
    apart = float(np.median(w.steps.elapsed_s))
    alone = t_quantile(w.blocks - 1) * math.sqrt(w.blocks / 6.0) / float(count.sum())
    yield (
        f"{count.mean():.1f} steps end between two readings, {seconds(apart)} apart, so a block's steps are known to "
        f"one: that alone makes what is per step uncertain by {share(alone)}; scrape more often, or take longer windows"
    )


def _cautions(w: Window) -> list[str]:
    """What weakens a window: unread time, a fleet that changed inside it, restarts, trends."""
    seen = w.observed
    found = [f"{shown(seen.start_s)} to {shown(seen.end_s)} of {seen.source}"]
    if seen.gap_share > GAPS:
        found.append(f"{share(seen.gap_share)} of the instances' time was not read")
    if seen.fleet is not None and seen.fleet.instances_min != seen.fleet.instances_max:
        few, many = seen.fleet.instances_min, seen.fleet.instances_max
        found.append(f"the fleet changed inside the window: {few} to {many} instances")
    restarts = sum(i.restarts for i in seen.instances)
    if restarts:
        found.append(f"{units.plural(restarts, 'restart')} of instances")
    for trend in seen.trends:
        what = "the mean response length" if trend.what == "response_tokens" else "the step"
        moved = units.change(trend.growth, 0)
        found.append(f"{what} moves by {moved} over the window: a mean over it is of no one time")
    return found
