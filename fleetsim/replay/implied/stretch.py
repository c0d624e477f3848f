"""A stretch of a window: its engines' load, scrape by scrape, its steady intervals, and the level of its iterations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from fleetsim.engine.step_time import StepTime
from fleetsim.history.history import Floats, History
from fleetsim.records import replace
from fleetsim.replay.observe.interruptions import Pause, Stop
from fleetsim.replay.observe.observed import InstanceView, Observed
from fleetsim.replay.observe.segments import Mask, inside, overlap_s

# Where a gauge that was read so often shows so much fewer running than the requests' seconds in the engine, they are
# not those in which requests ran: the rest of them waited, uncounted, or a tool had them. A mean of fewer scrapes is
# less sure, by the root of their number.
_MANY_SCRAPES, _WAITED = 200, 0.25
# Finished requests below which their seconds and tokens are no level.
_FEWEST_REQUESTS = 30


class SteadyIntervals(Struct, frozen=True):
    """Steady intervals, arrays of equal length n. time_s: middle, unix. dt_s: length x pace. running: mean of the ends.
    generated, prefilled: tokens. kv_tokens: K, 0 where unknown. doubt: relative, in the number of iterations."""

    time_s: Floats
    dt_s: Floats
    running: Floats
    generated: Floats
    prefilled: Floats
    kv_tokens: Floats
    doubt: Floats

    def __len__(self) -> int:
        return len(self.time_s)

    def some(self, mask: Mask) -> SteadyIntervals:
        """The selected rows."""
        return SteadyIntervals(*(getattr(self, name)[mask] for name in self.__struct_fields__))


class LoadLevel(Struct, frozen=True):
    """seconds: of an iteration, the mean over tokens. running, kv_tokens: at the scrapes it belongs to, (n,) each.
    prefill_per_iteration: prompt tokens computed per iteration. counted: from counted seconds, else a sampled gauge."""

    seconds: float
    running: Floats
    kv_tokens: Floats
    prefill_per_iteration: float
    counted: bool

    def mean(self, step_time: StepTime) -> float:
        """Mean iteration over tokens, by a step time."""
        each = step_time.each_s(self.running, kv_tokens=self.kv_tokens)
        return float(self.running.sum() / (self.running / each).sum())

    def load(self, step_time: StepTime) -> tuple[float, float]:
        """The mean load over tokens: requests running, tokens in the KV cache."""
        weights = self.running / step_time.each_s(self.running, kv_tokens=self.kv_tokens)
        return float(np.average(self.running, weights=weights)), float(np.average(self.kv_tokens, weights=weights))


class Stretch(Struct, frozen=True):
    """A stretch of a window.

    times: (T,) of the scrapes. running: (I, T), NaN in pauses. kv_tokens: (I, T), 0 where unknown. generated,
    prefilled: (I, T - 1) growth; unseen: request-seconds in pauses that no scrape showed. rows: steady intervals. pace:
    (I,). request_s, request_tokens, requests: (I, H - 1) growth of seconds in the engine, output tokens and number of
    the requests that finished, with their times (H,); H = 1 where they are not exported. preempting: intervals that are
    no rows because requests were preempted in them.
    """

    times: Floats
    running: Floats
    kv_tokens: Floats
    generated: Floats
    prefilled: Floats
    unseen: Floats
    rows: SteadyIntervals
    pace: Floats
    request_times: Floats
    request_s: Floats
    request_tokens: Floats
    requests: Floats
    preempting: int = 0

    def part(self, start_s: float, end_s: float) -> Stretch:
        """The stretch from start to end."""
        scrapes = (self.times >= start_s) & (self.times < end_s)
        spans = (self.times[:-1] >= start_s) & (self.times[1:] <= end_s)
        rows = self.rows.some((self.rows.time_s >= start_s) & (self.rows.time_s < end_s))
        ended = (self.request_times[:-1] >= start_s - 1.0) & (self.request_times[1:] <= end_s + 1.0)
        parts = (
            *((name, scrapes) for name in ("running", "kv_tokens")),
            *((name, spans) for name in ("generated", "prefilled", "unseen")),
            *((name, ended) for name in ("request_s", "request_tokens", "requests")),
        )
        cut = {name: getattr(self, name)[:, kept] for name, kept in parts}
        return replace(self, times=self.times[scrapes], rows=rows, **cut)

    def level(self, of: Mask | None = None) -> LoadLevel | None:
        """The level of all instances or of some; None where nothing ran."""
        some = np.ones(len(self.pace), np.bool_) if of is None else of
        running, kv = self.running[some], self.kv_tokens[some]
        work = np.isfinite(running) & (running > 0)
        tokens = float(np.nansum(self.generated[some]))
        if work.sum() < 8 or tokens <= 0:
            return None
        pace = self.pace[some][:, None]
        counted = self._counted(some)
        step = float(np.median(np.diff(self.times))) if len(self.times) > 1 else 0.0
        sampled = float((np.where(work, running, 0.0) * pace).sum()) * step - float(self.unseen[some].sum())
        doubt = _WAITED * math.sqrt(max(1.0, _MANY_SCRAPES / work.sum()))
        if counted is not None and counted * tokens > (1.0 + doubt) * sampled:
            counted = None
        seconds = counted or sampled / tokens
        if seconds <= 0:
            return None
        mean = float(np.average(running[work], weights=running[work]))
        prefilled = float(np.nansum(self.prefilled[some]))
        return LoadLevel(seconds, running[work], kv[work], prefilled * mean / tokens, counted is not None)

    def _counted(self, some: Mask) -> float | None:
        if float(np.nansum(self.requests[some])) < _FEWEST_REQUESTS:
            return None
        tokens = float(np.nansum(self.request_tokens[some]))
        seconds = float(np.nansum(self.request_s[some] * self.pace[some][:, None]))
        return seconds / tokens if tokens > 0 and seconds > 0 else None

    def errors(self, predict: Callable[[LoadLevel], float]) -> Floats | None:
        """predict(level) / seconds - 1 of each instance; None where no instance has a level."""
        found = []
        for i in range(len(self.pace)):
            level = self.level(np.arange(len(self.pace)) == i)
            if level is not None:
                found.append(predict(level) / level.seconds - 1.0)
        return np.array(found) if found else None


# Within this of the median an instance is as fast as the others; the difference is noise. So it is within three robust
# standard deviations of all instances' paces, as of fleets with a handful of requests each, up to the second number.
SAME_PACE, OFF_PACE = 0.03, 0.15
_SCATTER = 3.0 * 1.4826
# Relative doubt in the iterations of an interval: at least this, and more by how far its load moved.
_LEAST_DOUBT, _MOVED = 0.01, 0.6
# An interval counts while the load moved by less than this share of its mean.
_MOST_MOVED = 0.7
# Preemptions per finished request above which a request's seconds in the engine are not those in which it ran: it waits
# again after each, and engines count only its first wait.
_PREEMPTED = 0.01
# Scrapes inside pauses from which their mean is taken.
_FEWEST_INSIDE = 12
# Scrape intervals that a silence must last to be a pause for certain.
_SURE_SCRAPES = 0.75


def seen_of(
    history: History,
    observed: Observed,
    kv_tokens: float | None,
    unseen_pause_s: float | None,
    reads: tuple[float, float],
) -> Stretch | None:
    """The load of a window; None where running or generated tokens were not read.

    kv_tokens: an instance's KV capacity. unseen_pause_s: seconds of a weight sync's pause where none was long enough to
    be seen: it is taken off the requests' seconds wherever the trainer's counters say that a sync was. reads: mean of
    a sample's first prompt, and of all that a decode reads (inf: of no say). kv_use counts a prompt once
    where it is shared, decodes read it once each: they share what of their reads is not in use, and no more than they
    found in the cache.
    """
    values = history.values
    if "generation_tokens" not in values or "running" not in values or len(history.times) < 3:
        return None
    pauses, size = found_pauses(observed), len(history.instances)
    paused = inside(history.times, pauses)
    broken = overlap_s(history.times[:-1], history.times[1:], pauses) > 0
    if observed.rolling is not None:
        paused = paused | observed.rolling.standing(history.times, size)
        broken = broken | observed.rolling.overlapping(history.times, size)
    unseen = np.zeros(values["generation_tokens"][:, 1:].shape)
    if unseen_pause_s and observed.rolling is None and all(p.empty for p in pauses):
        synced = _synced(history)
        broken |= synced
        lower = np.minimum(values["running"][:, :-1], values["running"][:, 1:])
        unseen = np.where(synced, np.nan_to_num(lower) * unseen_pause_s, 0.0)
    running, generated = np.where(paused, np.nan, values["running"]), _growth(values["generation_tokens"])
    kv = np.full(running.shape, np.nan)
    if kv_tokens is not None and "kv_use" in values:
        hit = observed.fleet.prefix_hit if observed.fleet is not None else None
        kv = values["kv_use"] * kv_tokens
        shared = min((hit or 0.0) * reads[0], max(0.0, reads[1] - _held_each(kv, running, generated)))
        kv = kv + values["running"] * shared
    nothing = np.zeros(generated.shape)
    prompts = np.nan_to_num(_growth(values["prompt_tokens"])) if "prompt_tokens" in values else nothing
    hits = np.nan_to_num(_growth(values["prefix_hits"])) if "prefix_hits" in values else nothing
    prefilled = np.maximum(0.0, prompts - hits)
    # a slow instance's seconds are shortened by its pace, so that all are of one kind
    known = own_paces(observed.instances)
    pace = np.array([known.get(str(i), 1.0) for i in history.instances])
    thrown = np.nan_to_num(_growth(values["preemptions"])) if "preemptions" in values else nothing
    broken = broken | (thrown > 0)  # what it had is computed again, which no counter of prompts shows
    rows = _steady(history.times, values["running"], kv, generated, prefilled, broken, pace)
    times, seconds, tokens, count = _requests(history, observed, unseen)
    if float(thrown.sum()) > _PREEMPTED * float(np.nansum(count)):
        seconds = np.full(count.shape, np.nan)
    return Stretch(
        history.times, running, np.nan_to_num(kv), generated, prefilled, unseen, rows, pace,
        times, seconds, tokens, count, int((thrown > 0).sum()),
    )  # fmt: skip


def _held_each(kv: Floats, running: Floats, generated: Floats) -> float:
    """Tokens in the cache of a decode: mean over iterations."""
    with np.errstate(invalid="ignore", divide="ignore"):
        held = generated * (kv[:, 1:] + kv[:, :-1]) / (running[:, 1:] + running[:, :-1])
    known = np.isfinite(held)
    return float(held[known].sum() / max(1.0, generated[known].sum()))


def _synced(history: History) -> Mask:
    """(T - 1,) whether a weight sync ended in the interval, by the trainer's counters."""
    for name in ("trainer.sync_s_total", "trainer.steps"):
        if name in history.fleet:
            with np.errstate(invalid="ignore"):
                return np.asarray(np.diff(history.fleet[name]) > 0)
    return np.zeros(len(history.times) - 1, np.bool_)


def found_pauses(observed: Observed) -> tuple[Pause, ...]:
    """The pauses that were seen for certain: counted or slept through, empty, or most of a scrape long.

    A shorter silence may as well be a lull: few long responses that all ended or waited.
    """
    each = observed.pauses.each if observed.pauses is not None else ()
    return tuple(p for p in each if p.source != "silence" or p.empty or p.seconds >= _SURE_SCRAPES * observed.step_s)


def _steady(
    times: Floats, running: Floats, kv: Floats, generated: Floats, prefilled: Floats, broken: Mask, pace: Floats
) -> SteadyIntervals:
    shape = generated.shape
    a, b = running[:, :-1], running[:, 1:]
    mean = 0.5 * (a + b)
    dt = np.broadcast_to(np.diff(times), shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = np.abs(b - a) / mean
        good = (np.minimum(a, b) > 0) & (generated > 0) & (moved <= _MOST_MOVED) & ~broken & np.isfinite(dt)
        doubt = _LEAST_DOUBT + _MOVED * moved
    middle = np.broadcast_to(0.5 * (times[:-1] + times[1:]), shape)
    held = np.nan_to_num(0.5 * (kv[:, :-1] + kv[:, 1:]))
    columns = (middle, dt * pace[:, None], mean, generated, prefilled, held, doubt)
    return SteadyIntervals(*(np.asarray(column)[good] for column in columns))


def _growth(values: Floats) -> Floats:
    """Growth of a counter per interval; NaN where it was reset."""
    growth = np.diff(values, axis=1)
    with np.errstate(invalid="ignore"):
        growth[growth < 0] = np.nan
    return growth


def _requests(history: History, observed: Observed, unseen: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Times, seconds in the engine, output tokens and number of the requests that finished, by instance."""
    found = history.histograms
    e2e, out = found.get("e2e_s"), found.get("output_tokens")
    if e2e is None or out is None:
        nothing = np.zeros((len(history.instances), 0))
        return np.zeros(1), nothing, nothing, nothing
    read = np.isfinite(e2e.sums) & np.isfinite(out.sums)
    seconds, tokens, count = (_growth(_held_on(x, read)) for x in (e2e.sums, out.sums, out.counts[:, :, -1]))
    if "queue_s" in found:
        seconds = seconds - np.nan_to_num(_growth(_held_on(found["queue_s"].sums, read)))
    known = np.isfinite(seconds) & np.isfinite(tokens) & np.isfinite(count)
    seconds, tokens, count = (np.where(known, x, np.nan) for x in (seconds, tokens, count))
    held = _held(history, observed, out.times)
    span = np.searchsorted(out.times, 0.5 * (history.times[:-1] + history.times[1:]), side="right") - 1
    for k in np.flatnonzero((span >= 0) & (span < held.shape[1]) & (unseen > 0).any(axis=0)):
        held[:, span[k]] += unseen[:, k]
    return out.times, seconds - held, tokens, count


def _held_on(values: Floats, read: Mask) -> Floats:
    """The last total read, where none was: the growth over a hole falls into the interval that ends it."""
    at = np.maximum.accumulate(np.where(read, np.arange(values.shape[1]), -1), axis=1)
    return np.where(at >= 0, np.take_along_axis(values, np.maximum(at, 0), axis=1), np.nan)


def _held(history: History, observed: Observed, times: Floats) -> Floats:
    """Request-seconds that stood still in pauses, (I, H - 1): requests running in a pause x its seconds.

    Running is the mean over the scrapes that fell into pauses. Where too few did, it is the smaller of the scrapes
    before and after the pause: between them requests ended, and others came.
    """
    out = np.zeros((len(history.instances), len(times) - 1))
    running = np.nan_to_num(history.values["running"])
    pauses = [p for p in found_pauses(observed) if not p.empty]
    held = inside(history.times, pauses)
    mean = running[:, held].mean(axis=1) if held.sum() >= _FEWEST_INSIDE else None
    stops: list[tuple[slice, Pause | Stop]] = [(slice(None), p) for p in pauses]
    stops += [] if observed.rolling is None else [(slice(s.row, s.row + 1), s) for s in observed.rolling.stops]
    for rows, stop in stops:
        span = int(np.searchsorted(times, stop.start_s, side="right")) - 1
        if 0 <= span < len(times) - 1:
            after = min(len(history.times) - 1, int(np.searchsorted(history.times, stop.end_s)))
            before = max(0, int(np.searchsorted(history.times, stop.start_s)) - 1)
            here = np.minimum(running[:, before], running[:, after]) if mean is None else mean
            out[rows, span] += here[rows] * stop.seconds
    return out


def own_paces(views: Sequence[InstanceView]) -> dict[str, float]:
    """Each instance's pace by its name, 1 where it differs by no more than chance."""
    paces = np.array([v.pace for v in views], np.float64)
    known = np.isfinite(paces) & (paces > 0)
    scatter = 0.0
    if known.any():
        scatter = _SCATTER * float(np.median(np.abs(paces[known] - np.median(paces[known]))))
    limit = min(OFF_PACE, max(SAME_PACE, scatter))
    flagged = np.array([v.straggler for v in views], np.bool_)
    off = known & ((np.abs(paces - 1.0) > limit) | flagged)
    return {str(v.id): float(pace) for v, pace in zip(views, np.where(off, paces, 1.0), strict=True)}
