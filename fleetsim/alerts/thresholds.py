"""Window, threshold and `for:` of every alert, and what they cost: false alarms per month against detection delay.

For each window and `for:` the threshold is put where a healthy fleet crosses it as rarely as the budget says, over all
fleets that the plan may turn out to be (`healthy.py`). Among those, the pair that finds the alert's own fault soonest
wins. What is left of the distance to the fault is then given to the threshold, as far as that costs no time: a real
fleet is not quite the simulated one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from fleetsim.alerts.alert_rule import AlertRule, Begun, Standing, Tracer, fires, judged, sign, silenced, worth
from fleetsim.alerts.healthy import MONTH_H, Healthy, healthy_of, levels_of, most_per_month, tail_of
from fleetsim.alerts.learned import Learned
from fleetsim.alerts.rehearsal import Rehearsal
from fleetsim.alerts.signal_values import Floats, lowest_lately
from fleetsim.alerts.signals import STANDING, StandingSignal
from fleetsim.config.law_numbers import law_of, sizes_of
from fleetsim.config.scenario import Scenario
from fleetsim.records import replace

# Each run with a fault is evaluated so many times, at other moments.
PHASES = 3
# `for:` as shares of the shortest window, and at least so many steps.
HOLDS, WAIT = (0.2, 0.4, 1.0), 1.2
# Evaluations by which the delay may grow for a safer threshold; it goes at most halfway to the fault, and at most so
# many times as far from the healthy level as the budget asks for.
SPARE, HALFWAY, ROOM = 2, 0.5, 8.0
# Of its level: a scatter below this is none. That of ages is so many times the plan's at most: they are whole versions,
# and a plan that never shows the next one scatters by next to nothing.
STILL, WIDEST = 1e-3, 3.0
# Presence needs a window of so many scrapes, and a minute.
PRESENCE_SCRAPES, PRESENCE_S = 4, 60.0
NO_VALUES = "the plan gives it no values"
TOO_UNSURE = (
    "the plan is not sure of {}, and a healthy fleet that is off by that would fire it as its fault does; a plan whose "
    "back-test held is surer: `fleetsim replay --from WINDOW --plan-out PLAN.json` writes one, `fleetsim alerts --plan "
    "PLAN.json` takes it"
)
# A signal without values for more than this share of the time is none.
FEW_VALUES = 0.5
# Standard error of a Gumbel law's scale, by L-moments, is 0.8 of it over the root of the blocks (Hosking 1990): 95 % to
# one side.
SCALE_OFF = 1.3
# A healthy stretch of a history holds a window so many times.
STRETCH = 8.0
# A share of hits below this is no cache that could fail.
FEW_HITS = 0.05


class Fleets(Struct, frozen=True):
    """Traces of the healthy fleet, and of those that the plan may turn out to be.

    windows_s: through which they are looked at. learned: the fleet is the real one, which is in no doubt: only as many
    hours of it are known.
    """

    rehearsal: Rehearsal
    own: Sequence[Tracer]
    other: Sequence[Tracer]
    windows_s: tuple[float, ...]
    learned: bool = False

    def sure(self) -> Fleets:
        """The same of a plan that is in no doubt."""
        return replace(self, other=())

    def windows_of(self, signal: StandingSignal) -> tuple[float, ...]:
        """Windows to try, in which there is enough of a signal; presence needs only a few scrapes."""
        if signal.name == "instances":
            return (max(PRESENCE_S, PRESENCE_SCRAPES * self.rehearsal.scrape_s),)
        values = ((w, np.concatenate([t(signal, w) for t in self.own])) for w in self.windows_s)
        return tuple(w for w, found in values if len(found) and np.isnan(found).mean() <= FEW_VALUES)

    def center(self, signal: StandingSignal, window_s: float) -> float:
        """The mean level."""
        return float(np.nanmean(np.concatenate([t(signal, window_s) for t in self.own])))

    def healthy(self, signal: StandingSignal, window_s: float, points: int) -> Healthy | None:
        """What an alert that needs so many evaluations in a row would have to exceed; None without so many."""
        interval_s = self.rehearsal.interval_s
        least_s = 2.0 * (window_s + points * interval_s)
        block_s = max(0.0 if self.learned else 3600.0, least_s)
        lows = [lowest_lately(t(signal, window_s), points) for t in self.own]
        own = np.concatenate(lows)
        # the windows of a shorter run are nearly the same one, which does not scatter about its own mean
        short = [len(values) * interval_s < least_s for values in lows]
        if np.isnan(own).all() or (all(short) and window_s > self.windows_s[0]):
            return None
        level, spread, same = float(np.nanmean(own)), float(np.nanstd(own)), math.nan
        off = _error(lows, round(3600.0 / interval_s))
        fleets: list[tuple[float, float]] = []
        for tracer in self.other:
            values = lowest_lately(tracer(signal, window_s), points)
            if not np.isnan(values).all():
                mean = float(np.nanmean(values))
                # all of them generate the same requests, which are not those of the long runs
                same = mean if math.isnan(same) else same
                # a level that hardly moves has no scatter to compare with
                wider = float(np.nanstd(values)) / spread if spread > STILL * abs(level) else 1.0
                wider = max(1.0, min(wider, WIDEST if signal.name == "oldest_age" else math.inf))
                fleets.append((mean - same, wider))
                if len(values) * interval_s >= least_s:
                    lows.append(level + (values - mean) / wider)
        tail = tail_of(lows, round(block_s / interval_s), block_s / 3600.0)
        if self.learned:  # a few hours know the scatter as they have blocks
            wider = 1.0 + SCALE_OFF / math.sqrt(max(len(tail.maxima), 1))
            tail = replace(tail, scale=wider * tail.scale, wider=wider)
        return healthy_of(lows, tail, interval_s, levels_of(level, fleets, off), self.center(signal, window_s))

    @property
    def hours(self) -> float:
        """Healthy hours of the fleet itself."""
        return sum(len(t.at) for t in self.own) * self.rehearsal.interval_s / 3600.0


def _error(runs: Sequence[Floats], hour: int) -> float:
    """Standard error of the mean level, from how hours of so many values differ."""
    parts = [part for run in runs for part in np.split(run, range(hour, len(run), hour))]
    means = [float(np.nanmean(part)) for part in parts if not np.isnan(part).all()]
    return float(np.std(means, ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else 0.0


def choose(rehearsal: Rehearsal, budget_per_month: float = 1.0, learned: Learned | None = None) -> Standing:
    """The alerts of a plan: at most `budget_per_month` false alarms, over all of them and over what the plan may be.

    learned: healthy hours of the fleet itself; what they show is not taken from simulated ones. Left out is an alert
    whose level nobody measured or gave, and one that no longer finds its fault where no healthy fleet that the plan may
    turn out to be fires it.
    """
    planned = simulated(rehearsal)
    real = None if learned is None else _real(rehearsal, learned)
    faulty = _faulty(rehearsal)
    share = budget_per_month / len(STANDING)
    rules: list[AlertRule] = []
    left_out: dict[str, str] = {}
    for signal in STANDING:
        mine, fleets = faulty[signal.fault], planned
        if real is not None and signal.name != "instances" and real.windows_of(signal):
            fleets = real
            _move(signal, real, planned, faulty)
        unmeasured = None if fleets.learned else rehearsal.doubt.unmeasured.get(signal.name)
        reason = unmeasured or _no_use(signal, fleets)
        if reason is not None:
            left_out[signal.name] = reason
            continue
        rule = _chosen(signal, fleets, mine, share)
        if rule is None:
            left_out[signal.name] = NO_VALUES
        elif impossible(rule):
            left_out[signal.name] = "its healthy values scatter so widely that no value could alarm"
        elif _missed(rule, mine) and not _missed(_chosen(signal, fleets.sure(), mine, share), mine):
            what = ", ".join(rehearsal.doubt.inputs) or "how one run differs from its repetition"
            left_out[signal.name] = TOO_UNSURE.format(what)
        else:
            rules.append(rule)
    settle_s = max(rule.window_s for rule in rules)
    rules = silenced(rules, faulty)
    return judged(Standing(rehearsal, budget_per_month, tuple(rules), left_out, {}, settle_s, learned), faulty)


def simulated(rehearsal: Rehearsal) -> Fleets:
    """The simulated fleets; evaluations fall anywhere between two scrapes."""
    own = [
        Tracer(rehearsal, run, rehearsal.scrape_s * (i + 0.5) / len(rehearsal.healthy))
        for i, run in enumerate(rehearsal.healthy)
    ]
    other = [Tracer(rehearsal, run, rehearsal.scrape_s / 2) for run in rehearsal.other]
    return Fleets(rehearsal, own, other, rehearsal.windows_s)


def _real(rehearsal: Rehearsal, learned: Learned) -> Fleets | None:
    """None where no window fits into the healthy stretches several times."""
    windows_s = tuple(w for w in rehearsal.windows_s if STRETCH * w <= learned.longest_s)
    if not windows_s:
        return None
    long = [run for run in learned.stretches if run.hours * 3600.0 > 2.0 * windows_s[-1]]
    own = [Tracer(rehearsal, run, rehearsal.scrape_s / 2, longest_s=windows_s[-1]) for run in long]
    return Fleets(rehearsal, own, (), windows_s, learned=True)


def _faulty(rehearsal: Rehearsal) -> dict[str, Begun]:
    """Faults begin anywhere between two evaluations."""
    return {
        fault: [
            (Tracer(rehearsal, o.scraped, rehearsal.interval_s * (k + (i + 1) / (len(onsets) + 1)) / PHASES), o.onset_s)
            for i, o in enumerate(onsets)
            for k in range(PHASES)
        ]
        for fault, onsets in rehearsal.onsets.items()
    }


def _move(signal: StandingSignal, real: Fleets, simulated: Fleets, faulty: Mapping[str, Begun]) -> None:
    """What a simulated fault adds to the simulated level, it adds to the real one."""
    window_s = real.windows_of(signal)[-1]
    by = real.center(signal, window_s) - (
        simulated.center(signal, window_s) if window_s in simulated.windows_of(signal) else math.nan
    )
    for tracer, _ in (run for runs in faulty.values() for run in runs):
        tracer.moved = {**tracer.moved, signal.name: by if math.isfinite(by) else 0.0}


def _no_use(signal: StandingSignal, fleets: Fleets) -> str | None:
    if not fleets.windows_of(signal):
        return NO_VALUES
    values = np.concatenate([t(signal, fleets.windows_of(signal)[-1]) for t in fleets.own])
    if signal.name == "prefix_hits" and -float(np.nanmean(values)) < FEW_HITS:
        return "the plan has next to no prefix-cache hits that could drop"
    if signal.name == "straggler_pace" and fleets.rehearsal.expected.instances < 3:
        return "fewer than three instances have no odd one out"
    if signal.name == "sync_seconds" and float(np.nanmax(values)) <= 0:
        return "weight sync does not hold the trainer in this plan"
    return None


def _chosen(signal: StandingSignal, fleets: Fleets, faulty: Begun, share: float) -> AlertRule | None:
    """Window, threshold and `for:` by the rule of this module; None where no alert would ever have its values."""
    rehearsal = fleets.rehearsal
    every = -float(rehearsal.expected.instances) if signal.name == "instances" else math.nan
    best: tuple[tuple[float, ...], float, float, float, Healthy] | None = None
    for window_s in fleets.windows_of(signal):
        for for_s in holds_of(signal, rehearsal):
            points = round(for_s / rehearsal.interval_s) + 1
            healthy = fleets.healthy(signal, window_s, points)
            if healthy is None:
                continue
            # a fleet that is complete for so long may alarm when it is not; on spot machines it seldom is
            complete = signal.name == "instances" and not _episodes(signal, fleets.own, window_s, every, points)
            # what a healthy fleet exceeds for so long `share` times a month, whichever it turns out to be
            least = max(healthy.mean + signal.least, float(healthy.values[-1]))
            level = every if complete else max(healthy.level(share, least), _permitted(signal, rehearsal.scenario))
            delays = [_delay(t(signal, window_s), level, points, t, onset) for t, onset in faulty]
            missed, p95, median = worth(delays)
            # what never finds its fault is put where it comes nearest to it
            short = level - healthy.mean if missed == 1.0 else 0.0
            key = (missed, p95, median, short, window_s + for_s)
            if best is None or key < best[0]:
                best = (key, window_s, for_s, level, healthy)
    if best is None:
        return None
    _, window_s, for_s, level, healthy = best
    points, center = round(for_s / rehearsal.interval_s) + 1, healthy.mean
    # where the fault has put the signal once it has settled
    late = [t(signal, window_s)[t.at > 0.5 * (onset + t.at[-1])] for t, onset in faulty]
    values = np.concatenate(late) if late else np.zeros(0)
    fault_level = None if np.isnan(values).all() else float(np.nanmedian(values))
    counted = level == every
    if not counted:
        if fault_level is not None:
            most = center + min(HALFWAY * (fault_level - center), ROOM * (level - center))
            level = _with_room(signal, rehearsal, faulty, window_s, points, level, most)
        if signal.name == "oldest_age":  # whole versions: what is taken just after a sync is one older than just before
            level = max(level, center + 1.0)
        level = sign(signal) * rounded(sign(signal) * level, signal.alerts_when == "above")
    seen, hours = _episodes(signal, fleets.own, window_s, level, points), fleets.hours
    return AlertRule(
        signal=signal,
        window_s=window_s,
        threshold=sign(signal) * level,
        for_s=for_s,
        silenced_by=(),
        healthy=sign(signal) * center,
        faulty=None if fault_level is None else sign(signal) * fault_level,
        false_per_month=seen / hours * MONTH_H if counted else healthy.per_month(level),
        false_upper=most_per_month(seen, hours) if counted else healthy.upper(level),
        seen=seen,
        seen_upper=most_per_month(seen, hours),
        hours=hours,
        learned=fleets.learned,
        found=0.0,
        delay_s=None,
        delay_p95_s=None,
    )


def impossible(rule: AlertRule) -> bool:
    """Whether no value could be beyond the threshold: all signals are positive, and a share of time is at most 1."""
    if rule.signal.alerts_when == "below":
        return rule.threshold <= 0.0
    return rule.signal.name == "trainer_idle" and rule.threshold >= 1.0


def _missed(rule: AlertRule | None, faulty: Begun) -> bool:
    """Whether its own fault does not fire it, silenced by nothing."""
    if rule is None or not faulty:
        return rule is None
    level, of = sign(rule.signal) * rule.threshold, (rule.signal, rule.window_s)
    points = round(rule.for_s / faulty[0][0].rehearsal.interval_s) + 1
    return all(math.isinf(_delay(t(*of), level, points, t, onset)) for t, onset in faulty)


def holds_of(signal: StandingSignal, rehearsal: Rehearsal) -> tuple[float, ...]:
    """`for:` durations to try, whole evaluations; lost instances may get the time that a restart takes.

    What a step repeats is too high and too low by turns: an alert waits for a step of the slowest healthy fleet, or for
    all rounds of its tail batching."""
    base = [max(WAIT * rehearsal.slowest_cycle_s, share * rehearsal.windows_s[0]) for share in HOLDS]
    if signal.name == "instances":
        base = [60.0, 120.0, 300.0]
        failures = rehearsal.scenario.fleet.failures
        if failures.mtbf_s is not None:
            base.append(failures.restart_s + PRESENCE_S)
    step = rehearsal.interval_s
    return tuple(sorted({math.ceil(s / step) * step for s in base}))


def _permitted(signal: StandingSignal, scenario: Scenario) -> float:
    """What the plan's own settings allow is no fault, however much calmer the simulated fleet is. A fleet that turns
    out to be the faster side fills its queue up to the admission law's bound; few of the simulated ones may be it."""
    if signal.name == "trainer_idle":
        return scenario.targets.idle_limit
    if signal.name != "queue_depth":
        return -math.inf
    groups = law_of(scenario).groups_ahead(scenario.admission, sizes_of(scenario))
    bounds = (scenario.buffer.capacity_samples, None if groups is None else groups * scenario.workload.group_size)
    return min((float(bound) for bound in bounds if bound is not None), default=-math.inf)


def _with_room(
    signal: StandingSignal, rehearsal: Rehearsal, faulty: Begun, window_s: float, points: int, level: float, most: float
) -> float:
    """The highest level up to `most` that finds the fault hardly later."""
    if not most > level:
        return level
    before = worth([_delay(t(signal, window_s), level, points, t, onset) for t, onset in faulty])
    for part in (1.0, 0.8, 0.6, 0.4, 0.2):
        higher = level + part * (most - level)
        now = worth([_delay(t(signal, window_s), higher, points, t, onset) for t, onset in faulty])
        if now[0] <= before[0] and now[1] <= before[1] + SPARE * rehearsal.interval_s:
            return higher
    return level


def _delay(values: Floats, level: float, points: int, tracer: Tracer, onset_s: float) -> float:
    """Seconds from the fault's begin to the first evaluation that fires; inf = never."""
    firing = fires(values > level, points) & (tracer.at >= onset_s)
    return float(tracer.at[np.argmax(firing)] - onset_s) if firing.any() else math.inf


def _episodes(signal: StandingSignal, healthy: Sequence[Tracer], window_s: float, level: float, points: int) -> int:
    """How often the alert begins to fire in the healthy runs."""
    total = 0
    for t in healthy:
        firing = fires(t(signal, window_s) > level, points)
        total += int(np.count_nonzero(firing[1:] & ~firing[:-1]) + (len(firing) > 0 and bool(firing[0])))
    return total


def rounded(level: float, up: bool) -> float:
    """Three significant figures, away from the healthy side."""
    if level == 0 or not math.isfinite(level):
        return level
    unit = 10.0 ** (math.floor(math.log10(abs(level))) - 2)
    return round((math.ceil if up else math.floor)(level / unit - (1e-9 if up else -1e-9)) * unit, 12)
