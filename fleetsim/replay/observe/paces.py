"""How fast an instance is at its load: the fleet's own curve, and who is slow beside it.

Instances on which work piles up are slow ones behind a router that looks at no load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.history.history import Floats
from fleetsim.least_squares import non_negative
from fleetsim.replay.observe.intervals import Intervals, made_of, mean, percentile
from fleetsim.replay.observe.observed import InstanceView
from fleetsim.replay.observe.segments import Mask

MOST_POINTS = 20_000  # more say nothing new about three numbers
ROUNDS = 12
HANDFUL = 10.0  # requests: with fewer, when one of them ended is most of the error
FEWEST_POINTS = 10  # points for three numbers


class LoadCurve(Struct, frozen=True):
    """An iteration of the typical instance takes base_s + per_seq_s * running + per_kv_s * KV use seconds, and every
    prompt token that it computes per_prompt_s more."""

    base_s: float
    per_seq_s: float
    per_kv_s: float
    per_prompt_s: float = 0.0

    def iteration_s(self, running: Floats, kv_use: Floats | None) -> Floats:
        """Seconds of an iteration at a load; KV use that is not known counts as none."""
        kv = 0.0 if kv_use is None else np.where(np.isfinite(kv_use), kv_use, 0.0)
        # base 0 and nothing running: nothing is expected anyway
        return np.maximum(self.base_s + self.per_seq_s * running + self.per_kv_s * kv, 1e-9)

    def decode_s(self, prompts: Floats | None, step_s: float) -> Floats:
        """What prompts computed in an interval of `step_s` leave of it; those that are not known take nothing."""
        if prompts is None:
            return np.asarray(step_s)
        return np.maximum(step_s - self.per_prompt_s * np.nan_to_num(prompts), 0.0)

    def growth(self, running: Floats, kv_use: Floats | None, step_s: float, prompts: Floats | None = None) -> Floats:
        """Output tokens in `step_s` at a load: one per request and iteration. NaN where the load is not known."""
        made = running * self.decode_s(prompts, step_s) / self.iteration_s(running, kv_use)
        return np.where(running > 0, made, np.where(np.isnan(running), np.nan, 0.0))


def expected_growth(intervals: Intervals, clean: Mask) -> Floats:
    """(I, T-1) output tokens that the typical instance makes in each interval at that instance's load.

    The curve of the intervals in `clean` (T-1,) at the mean of what ran at both ends. Where `running` is not exported,
    an instance's own 65th percentile stands in, which knows no load. NaN where the load is not known.
    """
    curve = curve_of(intervals, clean & intervals.sharp)
    if curve is None or intervals.running is None:
        usual = [percentile(growth[clean & (growth > 0)], 65) for growth in intervals.growth]
        each = np.array([np.nan if pace is None else pace for pace in usual])
        return np.repeat(each[:, None], intervals.growth.shape[1], axis=1)
    return curve.growth(intervals.running, intervals.kv_use, intervals.step_s)


def curve_of(
    intervals: Intervals,
    among: Mask,
    quantile: float = 0.5,
    running: Floats | None = None,
    prompts: Floats | None = None,
) -> LoadCurve | None:
    """The curve that fits the intervals `among` (I, T-1); None where the load is not exported, or too few are.

    Its numbers, none negative, minimize the sum of |relative errors|: like a median, it is moved neither by slow
    instances nor by short stops as long as they are fewer than half of the points. quantile: above 0.5, that share of
    the points is slower than the curve, for points that stops which are not yet known have slowed. running: (I, T-1)
    mean loads, where more is known of them than the mean of both ends. prompts: (I, T-1) prompt tokens computed.
    """
    if running is None:
        running = intervals.running
    if running is None:
        return None
    kv_use = np.zeros_like(running) if intervals.kv_use is None else np.nan_to_num(intervals.kv_use)
    columns = [np.ones_like(running), running, kv_use]
    if prompts is not None:  # seconds of an interval / its iterations
        columns.append(np.nan_to_num(prompts) * running / np.where(intervals.growth > 0, intervals.growth, np.nan))
    usable = among & (np.nan_to_num(running) >= 1) & (np.nan_to_num(intervals.growth) > 0)
    even = usable & intervals.steady
    if quantile == 0.5 and even.sum() >= max(FEWEST_POINTS, usable.sum() / 4):
        usable = even
    elif usable.sum() < FEWEST_POINTS:
        return None
    load = np.stack([column[usable] for column in columns], axis=1)
    seconds = running[usable] * intervals.step_s / intervals.growth[usable]
    every = max(1, len(seconds) // MOST_POINTS)
    trust = running[usable] / (running[usable] + HANDFUL)
    found = _least_absolute(load[::every] / seconds[::every, None], trust[::every], quantile)
    return LoadCurve(*(float(x) for x in found))


def _least_absolute(rows: Floats, trust: Floats, quantile: float) -> Floats:
    """x >= 0 that minimizes sum trust |rows x - 1|, by reweighting least squares. An error above 0 counts `quantile`
    times, one below 0 the rest of 1 times."""
    scale = np.where(rows.max(axis=0) > 0, rows.max(axis=0), 1.0)
    scale = scale * (1 + 1e-9 * np.arange(rows.shape[1]))  # of columns that say the same, the first one counts
    scaled = rows / scale
    weights = np.sqrt(trust)
    x: Floats = np.zeros(rows.shape[1])
    for _ in range(ROUNDS):
        x = non_negative(scaled * weights[:, None], weights)
        over = scaled @ x - 1
        weights = np.sqrt(trust * np.where(over > 0, quantile, 1 - quantile) / np.maximum(np.abs(over), 1e-3))
    return np.asarray(x / scale)


SLOW = 0.9  # below: a tenth of an instance is lost, more than healthy ones of one kind differ by
SURE = 4.0  # standard errors: one false alarm in 500 fleets of 64
APART = 3.0  # robust standard deviations of the fleet's own spread
BLOCKS = 8
FEWEST = 8  # intervals under load, to judge an instance at all


class Paces(Struct, frozen=True):
    """pace: (I,) output tokens / those of the median instance at that load, 1 where nobody can say. straggler: (I,).
    judged: (I,) there was enough to judge."""

    pace: Floats
    straggler: Mask
    judged: Mask


def paces_of(intervals: Intervals, expected: Floats, clean: Mask) -> Paces:
    """The pace of every instance over the intervals in `clean` (T-1,), those outside pauses.

    expected: (I, T-1) from `expected_growth`. In each interval an instance's growth / expected is divided by the
    fleet's median of it, which takes out what befalls all (prompts, longer contexts); its pace is the median over time,
    or, where load never stands still between two scrapes, the mean by what was expected: the others are without work
    for a part of such an interval more often than the slow one, most of all where it is short. Two instances have no
    median one: there the faster is the measure.

    A straggler's pace is (1) below 0.9, (2) below 1 by over 4 standard errors, from the scatter between 8 blocks of
    time (of the instance, and of the fleet if that is larger), since load moves and scrapes come early or late, (3)
    with five instances or more, below 1 by over 3 robust standard deviations (1.4826 x the median deviation) of all
    paces: in a fleet that differs widely as a whole, the slower half is not a fault of single instances, and (4) below
    1 by half as much as a straggler's over all that was read, pauses included: where they come as often as scrapes,
    some are not seen, and fall into the intervals of one instance more than into another's.
    """
    size = len(intervals.growth)
    loaded = clean & intervals.sharp & np.isfinite(expected) & (np.nan_to_num(expected) > 0)
    steady = True
    if intervals.running is not None:
        loaded &= np.nan_to_num(intervals.running) >= 1
        even = loaded & intervals.steady
        steady = bool((_compared(even).sum(axis=1) >= FEWEST).all())
        loaded = even if steady else loaded
    usable = _compared(loaded)
    ratio = np.where(usable, intervals.growth / np.where(usable, expected, 1.0), np.nan)
    common = _medians(ratio.T) if size >= 3 else mean(ratio, axis=0)
    usable &= np.nan_to_num(common) > 0
    judged = usable.sum(axis=1) >= FEWEST
    of_each = zip(intervals.growth, expected * common, usable, strict=True)
    series = [(made[of], fair[of]) for made, fair, of in of_each]
    paces = np.array([_pace(*one, steady) if known else np.nan for one, known in zip(series, judged, strict=True)])
    errors = np.array([_standard_error(*one, steady) for one in series])
    if size < 2 or judged.sum() < 2:
        return Paces(np.ones(size), np.zeros(size, dtype=bool), judged)
    typical = float(np.median(paces[judged]) if judged.sum() >= 3 else paces[judged].max())
    if typical <= 0:
        return Paces(np.ones(size), np.zeros(size, dtype=bool), np.zeros(size, dtype=bool))
    paces = np.where(judged, paces / typical, 1.0)
    error = np.maximum(errors, np.median(errors[judged]))
    spread = 1.4826 * float(np.median(np.abs(paces[judged] - 1))) if judged.sum() >= 5 else 0.0
    short = 1 - paces
    slow = judged & (paces < SLOW) & (short > SURE * error) & (short > APART * spread)
    slow &= _overall(intervals, expected) < 1 - (1 - SLOW) / 2
    return Paces(paces, slow, judged)


def _overall(intervals: Intervals, expected: Floats) -> Floats:
    """(I,): all tokens / those expected at the same loads, against the median instance's; 1 where nobody can say."""
    read = intervals.sharp & np.isfinite(expected) & np.isfinite(intervals.growth)
    ratio = made_of(intervals.growth, expected, read, axis=1)
    typical = float(np.nanmedian(ratio)) if np.isfinite(ratio).any() else 0.0
    return np.asarray(np.nan_to_num(ratio / typical, nan=1.0)) if typical > 0 else np.ones(len(ratio))


def _compared(loaded: Mask) -> Mask:
    """Only intervals in which half of the instances were under load, so that there is a fleet to compare with."""
    return np.asarray(loaded & (loaded.sum(axis=0) >= max(len(loaded) / 2, min(len(loaded), 2))))


def _medians(rows: Floats) -> Floats:
    """Median of each row's finite values, NaN where there are none."""
    ordered = np.sort(rows, axis=1)  # NaN last
    count = np.isfinite(rows).sum(axis=1)
    at: NDArray[np.intp] = np.maximum(count - 1, 0)
    each = np.arange(len(rows))
    middle = (ordered[each, at // 2] + ordered[each, (at + 1) // 2]) / 2
    return np.where(count > 0, middle, np.nan)


def _pace(made: Floats, fair: Floats, steady: bool) -> float:
    """Of what an instance made beside the fair share of the same intervals: see `paces_of`."""
    return float(np.median(made / fair) if steady else made.sum() / fair.sum())


def _standard_error(made: Floats, fair: Floats, steady: bool) -> float:
    """Of the pace of a series that is not independent from one value to the next: from blocks of time."""
    if made.size < FEWEST:
        return math.inf
    n = min(BLOCKS, made.size // 2)
    parts = zip(np.array_split(made, n), np.array_split(fair, n), strict=True)
    blocks = [_pace(*part, steady) for part in parts]
    return float(np.std(blocks, ddof=1)) / math.sqrt(len(blocks))


# Fewer instances have no median to be slower than.
PEERS = 3
# Such a router piles work up on a slow instance until its larger batch yields what the others' yield: then rates are
# equal and loads are not. Healthy loads under round robin differ by a fifth, and yield more.
PILED = 1.4
# Equal shares of the requests make equal rates, but for the lengths that each happened to get.
EQUAL = 1.03


def piled(instances: Sequence[InstanceView]) -> list[InstanceView]:
    """Instances that hold PILED times the median's requests and make no more tokens of them."""
    known = [i for i in instances if i.running is not None]
    if len(known) < PEERS:
        return []
    load, rate = usual_load(instances), median(i.active_tok_s for i in known)
    found = [i for i in known if load > 0 and (i.running or 0.0) > PILED * load and i.active_tok_s <= EQUAL * rate]
    return found if len(found) * PEERS <= len(known) else []  # more than a third is how work is spread


def usual_load(instances: Sequence[InstanceView]) -> float:
    """The median instance's requests."""
    return median(i.running for i in instances if i.running is not None)


# The instances run the same number of requests to within this, when it is a limit and not their load that sets it.
SAME = 0.05
# Of the times at which requests wait: with a limit, as many run as the limit allows, but for slots being refilled.
AT_THE_TOP = 0.7


def ceiling_of(instances: Sequence[InstanceView]) -> int | None:
    """What every instance runs at the most (max_num_seqs), where those that have requests waiting mostly run as many;
    None where they do not."""
    peaks = [i.running_peak for i in instances if i.running_peak is not None]
    full = [i.full_share for i in instances if i.full_share is not None]
    if not peaks or not full or max(peaks) - min(peaks) > SAME * max(peaks) or fmean(full) < AT_THE_TOP:
        return None
    return round(max(peaks))
