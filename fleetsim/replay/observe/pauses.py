"""Pauses: when the whole fleet stood still, and for how long.

`Edges`: where a pause begins and ends inside the intervals that are only partly silent.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.history.counters import growth
from fleetsim.history.history import Floats, History, Note
from fleetsim.records import replace
from fleetsim.replay.observe.interruptions import Pause, Pauses, dips_of, outside
from fleetsim.replay.observe.intervals import Intervals, mean, percentile
from fleetsim.replay.observe.paces import expected_growth
from fleetsim.replay.observe.segments import Mask, runs_of, widened
from fleetsim.replay.observe.stops import NOTHING, QUANTILES, TokensDue, Turnover, stalls_of

SHORTEST = 0.3  # of an interval: what is left of a silence that a late scrape explains
ONE = 0.1  # of an interval: less between two silences is none
DRAINED = 0.6  # of what an instance held: less before it stops is a batch that runs out


def find_pauses(history: History, intervals: Intervals, *, in_turn: bool = False) -> tuple[Pauses, tuple[Note, ...]]:
    """All pauses of the window, each within one scrape interval of where it was. in_turn: the instances have stops of
    their own (`rolling_of`); a silence while most of them hold no work is one of these beside an
    idle fleet.

    *Silence*: every instance that was read made no token in the same interval. The intervals at both ends are partly
    silent (`Edges`). The grid shows an instance's scrape up to one interval late, so both ends
    of a pause may come late together by less than that.

    *Stalls*: with work in hand, requests that stayed from scrape to scrape and made too little tell a stop, and how
    long it was, whatever came and went meanwhile. They count before silences.

    *Dips*: a pause too short to silence a whole interval shows as one in which all instances made too little for their
    load.

    *Sleep*: engine_sleep_state, to half an interval, or the silence that it overlaps. *Counters*: if engines count
    their weight updates, the sum of seconds is exact and gives share and mean of the pauses with work in hand, unless
    the fleet stood still for longer than that, as it does around an update that waits for something.
    """
    silent, known = _silent(intervals)
    runs = runs_of(silent)
    edges = Edges.of(intervals)
    found = [p for run in runs if (p := _silence(history, intervals, edges, run)) is not None]
    held = _stalls(history, intervals, known, found)
    found = [p for p in found if not any(p.start_s < h.end_s and p.end_s > h.start_s for h in held)]
    found = _apart(sorted([*found, *held], key=lambda p: p.start_s), intervals)
    away = outside(intervals, tuple(held))
    quiet = known & ~widened(silent | ~away, 2)
    found += dips_of(intervals, expected_growth(intervals, quiet), quiet)
    found = sorted(_asleep(history, intervals.work, found), key=lambda p: p.start_s)
    if in_turn:
        own = (p for p in found if not p.empty and p.source == "silence")
        held = {p: history.values["running"][:, (history.times >= p.start_s) & (history.times <= p.end_s)] for p in own}
        few = {p for p, running in held.items() if (running >= 1).sum() <= 0.5 * np.isfinite(running).sum()}
        found = [p for p in found if p not in few]
    return _counted(history, _summary(tuple(found), intervals), intervals)


def _stalls(history: History, intervals: Intervals, known: Mask, silences: list[Pause]) -> list[Pause]:
    """Stops with work in hand; the curve of the second round knows of the stops of the first."""
    turnover = Turnover.of(history)
    if turnover is None:
        return []
    usable = known & outside(intervals, tuple(p for p in silences if p.empty))
    found: list[Pause] = []
    for quantile in QUANTILES:
        among = known & outside(intervals, tuple(found))
        expected = TokensDue.of(intervals, turnover, among, quantile)
        if expected is None:
            return []
        expected = expected.at_own_pace(intervals, intervals.sharp & turnover.calm & among)
        found = stalls_of(history, intervals, turnover, expected, usable)
    return found


def _silent(intervals: Intervals) -> tuple[Mask, Mask]:
    """(T-1,) nobody generated; (T-1,) somebody was read. Instances whose samples are sharp count before others."""
    read = intervals.known
    still = read & (intervals.growth <= NOTHING)
    sharp = np.where(intervals.sharp.any(axis=0), intervals.sharp, read)
    silent = (sharp & read).any(axis=0) & ~(sharp & read & ~still).any(axis=0)
    return np.asarray(silent), np.asarray(read.any(axis=0))


def _silence(history: History, intervals: Intervals, edges: Edges, run: tuple[int, int]) -> Pause | None:
    """The pause around a run of silent intervals; None if a late scrape explains the silence, or all is silent."""
    first, last = run
    times, step = intervals.times, intervals.step_s
    if first == 0 and last == len(times) - 2:
        return None
    ends = float(times[first]), float(times[last + 1])
    empty = _is_empty(history, intervals.work, *ends, inside=last > first)
    late = first == last and len(intervals.growth) == 1
    start = ends[0] - step * edges.before(first, dry=empty and _ran_dry(history, first))
    end = ends[1] + step * edges.after(last, empty=empty, late=late)
    start, end = max(start, float(times[0])), min(end, float(times[-1]))
    return Pause(start, end, "silence", empty) if end - start >= SHORTEST * step else None


def _ran_dry(history: History, first: int) -> bool:
    """Instances held fewer requests when last seen at work than shortly before."""
    running = history.values.get("running")
    if running is None or first < 3:
        return False
    before = running[:, max(first - 6, 0) : first + 1]
    busy = np.isfinite(before) & (before > 0)
    rows = busy.any(axis=1)
    last = before.shape[1] - 1 - busy[rows, ::-1].argmax(axis=1)
    at_last = before[rows][np.arange(int(rows.sum())), last]
    highest = np.where(busy[rows], before[rows], 0.0).max(axis=1)
    return bool(rows.any() and float((at_last / highest).mean()) < DRAINED)


def _apart(pauses: list[Pause], intervals: Intervals) -> list[Pause]:
    """Two pauses with less than one interval between them share it: what was generated there lies in its middle.

    With next to nothing generated there they are one, cut by an interval that nobody read."""
    found: list[Pause] = []
    for pause in pauses:
        if found and found[-1].end_s > pause.start_s:
            overlap = found[-1].end_s - pause.start_s  # = interval - active seconds, as each took all of the loss
            middle = (found[-1].end_s + pause.start_s) / 2
            active = max(intervals.step_s - overlap, 0.0)
            if active < ONE * intervals.step_s:
                found[-1] = replace(found[-1], end_s=pause.end_s)
                continue
            found[-1] = replace(found[-1], end_s=middle - active / 2)
            found.append(replace(pause, start_s=middle + active / 2))
        else:
            found.append(pause)
    return found


def _is_empty(history: History, work: Floats | None, start_s: float, end_s: float, *, inside: bool) -> bool:
    """Nothing ran or waited meanwhile: at most of the grid times inside, or with none inside, at one of the ends.

    work: (T,) requests in hand, None if not exported."""
    if work is None:
        return "asleep" in history.values
    slack = 1e-6 * history.step_s
    within = (history.times > start_s + slack) & (history.times < end_s - slack)
    if not inside or not within.any():
        within = (history.times >= start_s - slack) & (history.times <= end_s + slack)
    seen = work[within & np.isfinite(work)]
    return bool(seen.size and (seen == 0).mean() >= 0.5)


def _asleep(history: History, work: Floats | None, pauses: list[Pause]) -> list[Pause]:
    """Silences during which engines slept say so; sleep that no silence shows becomes a pause."""
    if "asleep" not in history.values:
        return pauses
    half = history.step_s / 2
    found = list(pauses)
    for first, last in runs_of(mean(history.values["asleep"], axis=0) >= 0.5):
        start, end = float(history.times[first]) - half, float(history.times[last]) + half
        over = [n for n, p in enumerate(found) if p.start_s < end and p.end_s > start]
        for n in over:
            found[n] = replace(found[n], source="sleep")
        if not over:
            clipped = max(start, history.start_s), min(end, history.end_s)
            found.append(Pause(*clipped, "sleep", _is_empty(history, work, *clipped, inside=True)))
    return found


def _summary(each: tuple[Pause, ...], intervals: Intervals) -> Pauses:
    start, end = float(intervals.times[0]), float(intervals.times[-1])
    read_s = max(intervals.read_s, intervals.step_s)
    total = sum(p.seconds for p in each)
    whole = [p for p in each if p.start_s > start and p.end_s < end] or list(each)
    starts = [p.start_s for p in each if p.start_s > start]
    period = float(np.median(np.diff(starts))) if len(starts) >= 3 else None
    mean_s = sum(p.seconds for p in whole) / len(whole) if whole else 0.0
    return Pauses(each, total / read_s, mean_s, period)


def _counted(history: History, seen: Pauses, intervals: Intervals) -> tuple[Pauses, tuple[Note, ...]]:
    """The pauses as the engines count them, where they do."""
    counter = history.histograms.get("weight_update_s")
    if counter is None or counter.sums.shape[1] < 2:
        return seen, _unseen(seen, history)
    counted, updates = (float(mean(growth(x))) for x in (counter.sums, counter.counts[..., -1]))
    if np.isnan(counted):
        return seen, _unseen(seen, history)
    held = seen.held
    stood = sum(p.seconds for p in held)
    if counted <= 0 or stood > counted + 0.5 * len(held) * history.step_s:
        if counted <= 0 or not held:
            return seen, ()
        text = (
            f"engines count {counted:.1f} s of weight updates, but the fleet stood still for {stood:.1f} s with work "
            "in hand: the silence counts"
        )
        return seen, (Note("other", text),)
    span = max(intervals.read_s, intervals.step_s)
    rest = seen.share - stood / span
    number = len(held) or updates
    each = tuple(p if p.empty else replace(p, source="counter") for p in seen.each)
    notes: tuple[Note, ...] = ()
    if not held:
        text = (
            f"engines count {number:.0f} weight updates of {counted / number:.2g} s on average, too short to be found "
            f"on a grid of {history.step_s:g} s: their share is exact, their times are not known"
        )
        notes = (Note("other", text),)
    return Pauses(each, rest + counted / span, counted / number, seen.period_s), notes


def _unseen(seen: Pauses, history: History) -> tuple[Note, ...]:
    """What finding nothing means."""
    if seen.held:
        return ()
    text = (
        f"no pause with work in hand was found: on a grid of {history.step_s:g} s stops below {2 * history.step_s:g} s "
        "do not show while load varies, and engines do not count their weight updates"
    )
    return (Note("missing", text),)


REACH = 6  # intervals looked at beside a silence
STRETCH = 2  # of them an instance may be silent in already: scrapes differ by up to one interval


class Edges(Struct, frozen=True):
    """Tokens per interval, and the usual ones, of every instance of a window.

    each: (I, T-1), NaN where an interval has no growth of its own. steady: (I, T-1) those not beside a silent one.
    typical: (I,) of the steady ones.
    """

    intervals: Intervals
    each: Floats
    steady: Floats
    typical: Floats

    @classmethod
    def of(cls, intervals: Intervals) -> Edges:
        """The edges of a window."""
        sharp = np.where(intervals.sharp.any(axis=0), intervals.sharp, intervals.known)
        each = np.where(sharp, intervals.growth, np.nan)
        return cls(intervals, each, *_steady(each))

    def before(self, first: int, *, dry: bool) -> float:
        """Intervals that a pause, silent from interval `first` on, reaches back before it: the median over instances.

        dry: the batch ran out. Then instances fall silent one by one and the pause begins with the last: what the
        fleet's last requests made, against what as many made just before, says when.
        """
        at = np.arange(first - 1, first - 1 - REACH, -1)
        return self._dry(first) if dry else max(self._reach(at, nearest=False), 0.0)

    def after(self, last: int, *, empty: bool, late: bool) -> float:
        """Intervals that a pause, silent up to interval `last`, reaches beyond it; below 0 only if `late`.

        empty: a new batch starts, fastest at first: the nearest rate counts. late: one interval of one instance was
        silent; if the next one shows as much more, nothing stood still, the scrape was late.
        """
        at = np.arange(last + 1, last + 1 + REACH)
        reach = self._reach(at, nearest=empty)
        return reach if late else max(reach, 0.0)

    def _dry(self, first: int) -> float:
        """1 - tokens / (requests at its start x what a request makes in an interval, as in the one before)."""
        if first < 2 or self.intervals.work is None:
            return 0.0
        before, near = self.intervals.fleet_growth()[first - 2 : first].tolist()
        left, held = self.intervals.work[first - 2 : first].tolist()
        if not np.isfinite(near + before + held + left) or before <= NOTHING or held <= 0:
            return 0.5 if near > NOTHING else 0.0
        return float(np.clip(1 - near / (held * before / ((held + left) / 2)), 0, 1))

    def _reach(self, at: NDArray[np.intp], *, nearest: bool) -> float:
        """Of each row: silent intervals at once, and of the next one the share 1 - tokens / usual tokens; their median.

        at: interval indices from the silence outwards. A share below 0 is a late scrape, which shows more than usual.
        """
        inside = (at >= 0) & (at < self.each.shape[1])
        columns = np.clip(at, 0, self.each.shape[1] - 1)
        seen, usable = (np.where(inside, rows[:, columns], np.nan) for rows in (self.each, self.steady))
        still = np.isfinite(seen[:, :STRETCH]) & (seen[:, :STRETCH] <= NOTHING)
        silent = np.cumprod(still, axis=1).sum(axis=1)
        near = seen[np.arange(len(seen)), silent]
        reaches = []
        for n in np.flatnonzero(np.isfinite(near)):
            beside = usable[n, silent[n] + 1 :]
            beside = beside[np.isfinite(beside)]
            usual = (beside[0] if nearest else np.median(beside[:3])) if beside.size else self.typical[n]
            if usual > 0:
                reaches.append(silent[n] + float(np.clip(1 - near[n] / usual, -1, 1)))
        return float(np.median(reaches)) if reaches else 0.0


def _steady(rows: Floats) -> tuple[Floats, Floats]:
    silent = np.isfinite(rows) & (rows <= NOTHING)
    steady = np.where(np.isfinite(rows) & ~widened(silent, 1), rows, np.nan)
    typical = np.full(len(rows), np.nan)
    for n, row in enumerate(rows):
        usual = percentile(steady[n], 75)
        usual = percentile(row[row > NOTHING], 75) if usual is None else usual
        typical[n] = np.nan if usual is None else usual
    return steady, typical
