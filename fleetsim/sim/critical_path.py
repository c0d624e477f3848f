"""The critical path of a run: what each second of its steps was waited for, from the last step back to the first.

At every moment one thing is waited for. While the trainer computes, or a sync stops it, that thing is the trainer or
the sync. While the trainer waits for samples, it is the group that ended the wait: the life of the group's last sample,
back to the moment at which it was sent. From there the path goes on to what made the sending possible: the trainer,
where it had taken a batch or published; another sample's life, where that sample ended and freed its place under a cap.
So the seconds on the path add up to the window, and what is not on the path can become faster without making a step
shorter.

Source of the idea: perturbation analysis of discrete event systems (Ho and Cao, 1991).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cached_property

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import G_FILTERED
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.sim.load import ended_s, given_up_s
from fleetsim.sim.records import CHECKPOINT, EVALUATION, SYNC_HELD, TRAINER_DOES, WAIT, Records

# Two events of one moment differ by rounding alone.
SAME_S = 1e-6


class Life(Struct):
    """The time of one sample on the path, in seconds of the run: sent_s to end_s.

    ready: index into `CriticalPath.ready_s` of the group with which it ended a wait; -1: it ended a drain, or the next
    sample was sent for it. freed: whether it could be sent because another sample ended and freed its place; else
    because of the trainer or the filter. whole: its group had ended as a whole, where places are held by groups.
    replaced: its own group was filtered, and the next one sent for it. scored_s: seconds of the reward that was waited
    for after its end. loop_s: seconds of trainer and sync that follow on the path, back to the wait before; they belong
    to the same loop as this life.
    """

    sent_s: float
    end_s: float
    sample: int
    ready: int
    freed: bool
    scored_s: float
    whole: bool = False
    replaced: bool = False
    loop_s: float = 0.0


class CriticalPath(Struct):
    """Seconds on the path. train_s: the trainer computes or hands GPUs over. held_s: checkpoints, evaluations. sync_s:
    publications. scoring_s: rewards. lives: of samples, the last first. ready_s: when groups were complete, ascending;
    groups: which.
    """

    ready_s: NDArray[np.float64]
    groups: NDArray[np.int64]
    train_s: float = 0.0
    held_s: dict[str, float] = field(default_factory=dict)
    sync_s: float = 0.0
    scoring_s: float = 0.0
    lives: list[Life] = field(default_factory=list)


def critical_path(records: Records, start_s: float, end_s: float) -> CriticalPath:
    """The path from end_s back to start_s, both seconds of the run."""
    return _Walk(records, start_s).back_from(end_s)


def sent_s(records: Records) -> NDArray[np.float64]:
    """When each sample was sent by the client. Where requests move between instances, when its group was."""
    fleet, samples = records.scenario.fleet, records.samples
    if fleet.repack.every_s is None and fleet.placement != "colocated_lending":
        return np.asarray(samples["sent_s"])
    return np.where(samples["sent_s"] < 0, -1.0, records.groups["submit_s"][samples["group"]])


def places_of_groups(scenario: Scenario) -> bool:
    """Whether what the client keeps in flight are groups: a place is free when a whole group has its rewards."""
    fleet = scenario.fleet
    caps = (fleet.max_in_flight_samples, fleet.max_in_flight_samples_per_instance)
    cap = law_of(scenario).cap
    return (cap is not None and cap.frees == "groups") or (fleet.in_flight_unit == "groups" and caps != (None, None))


def _without_drains_of_syncs(records: Records) -> tuple[list[float], list[int]]:
    """When the trainer began what; a wait for a sync's drain is part of that sync, whose rows say how long it drained.

    The trainer has trained between its wait for a batch and a sync: a wait right before a sync holds it is for a drain.
    """
    does = records.trainer["does"]
    drain = np.append((does[:-1] == WAIT) & (does[1:] == SYNC_HELD), False)
    kept = records.trainer[~(drain | np.append(False, drain[:-1]))]
    return kept["time_s"].tolist(), kept["does"].tolist()


class _Walk:
    """One walk back. `loop`: the life whose loop the trainer's seconds belong to, None after a batch without a wait."""

    def __init__(self, records: Records, start_s: float) -> None:
        groups, syncs = records.groups, records.syncs
        used = np.flatnonzero((groups["ready_s"] >= 0) & (groups["status"] != G_FILTERED))
        order = used[np.argsort(groups["ready_s"][used], kind="stable")]
        self.groups, self.records, self.start = groups, records, start_s
        self.path = CriticalPath(groups["ready_s"][order], order)
        self.times, self.does = _without_drains_of_syncs(records)
        self.order: NDArray[np.int64] | None = None
        self.in_groups = places_of_groups(records.scenario)
        self.holds_slot = records.scenario.stations.reward.holds_slot
        self.published, self.trigger = syncs["end_s"].tolist(), syncs["trigger_s"].tolist()
        self.paused = syncs["pause_start_s"].tolist()
        sync = records.scenario.sync
        self.waited_for = sync.scope == "global"  # nobody waits for a rolling one, which sends anew what it throws away
        self.thrown = [] if self.waited_for else sorted(records.discards["time_s"].tolist())
        # Whether the end of a publication lets samples be sent: the fleet stood still, or admission counts versions.
        self.lets_in = self.waited_for or law_of(records.scenario).counts_versions
        law, self.filtered = law_of(records.scenario), groups["status"] == G_FILTERED
        self.replaces = not (law.counts_open or law.counts_started) and bool(self.filtered.any())
        self.drains = IN_FLIGHT[sync.in_flight].drains and sync.scope == "global"
        self.refills = IN_FLIGHT[sync.in_flight].discards and self.waited_for
        self.shared = records.scenario.fleet.placement == "colocated"
        self.loop: Life | None = None

    @cached_property
    def sent(self) -> NDArray[np.float64]:
        return sent_s(self.records)

    @cached_property
    def finish(self) -> NDArray[np.float64]:
        return ended_s(self.records, self.sent)

    @cached_property
    def came(self) -> NDArray[np.float64]:
        """When samples were sent, ascending."""
        return np.sort(self.sent[self.sent >= 0])

    @cached_property
    def left(self) -> NDArray[np.float64]:
        """When samples had left the engines, done or given up, ascending."""
        left = np.maximum(self.records.samples["finish_s"], given_up_s(self.records))
        return np.sort(left[left >= 0])

    @cached_property
    def places(self) -> float:
        """Samples that the client keeps in flight at most."""
        fleet, cap = self.records.scenario.fleet, law_of(self.records.scenario).cap
        each = fleet.max_in_flight_samples_per_instance
        caps = (
            fleet.max_in_flight_samples,
            None if each is None else each * (fleet.instances + fleet.pooled),
            None if cap is None else cap.samples(self.records.scenario.admission),
        )
        return min((cap for cap in caps if cap is not None), default=math.inf)

    @cached_property
    def over(self) -> NDArray[np.int64]:
        """The groups that had all their rewards, in order; the filtered ones, too."""
        ready = self.groups["ready_s"]
        over = np.flatnonzero(ready >= 0)
        return over[np.argsort(ready[over], kind="stable")]

    @cached_property
    def over_s(self) -> NDArray[np.float64]:
        return np.asarray(self.groups["ready_s"][self.over])

    def back_from(self, t: float) -> CriticalPath:
        while t > self.start + SAME_S:
            t = self._trainer(t)
        return self.path

    def _trainer(self, t: float) -> float:
        """Back from t through what the trainer did, and through the wait before it; returns where that leads."""
        i = bisect_right(self.times, t - SAME_S) - 1
        while i >= 0 and t > self.start:
            begin, does = max(self.times[i], self.start), self.does[i]
            if does == WAIT:
                if self.shared and i > 0 and self.does[i - 1] == WAIT and t - begin > SAME_S:
                    return self._drained(t, max(self.times[i - 1], self.start))
                if t - begin > SAME_S:
                    return self._group(t, begin)
                self.loop = None
            elif does == SYNC_HELD:
                p = bisect_right(self.published, t + SAME_S) - 1
                if self.waited_for and p >= 0 and self.published[p] > begin + SAME_S and self.trigger[p] < t - SAME_S:
                    self._synced(t - min(t, self.published[p]))
                    if self.trigger[p] < begin - SAME_S:
                        self.loop = None  # an earlier one had to be over: no sample is waited for in that
                    return self._publication(p, self.start)
                self._synced(t - begin)
            else:
                if does in (CHECKPOINT, EVALUATION):
                    name = TRAINER_DOES[does]
                    self.path.held_s[name] = self.path.held_s.get(name, 0.0) + t - begin
                else:
                    self.path.train_s += t - begin
                self._in_loop(t - begin)
            t, i = begin, i - 1
        return self.start

    def _synced(self, seconds: float) -> None:
        self.path.sync_s += seconds
        self._in_loop(seconds)

    def _in_loop(self, seconds: float) -> None:
        if self.loop is not None:
            self.loop.loop_s += seconds

    def _group(self, t: float, wait_began: float) -> float:
        """Back from a wait's end t through the group that ended it. On shared GPUs nothing was made before the wait."""
        k = int(np.searchsorted(self.path.ready_s, t + SAME_S, side="right")) - 1
        if k < 0:
            return wait_began
        floor, sample = wait_began if self.shared else self.start, self._last_of(int(self.path.groups[k]))
        end = max(floor, min(t, float(self.finish[sample])))
        self.path.scoring_s += t - end
        return self._life(sample, end, floor, k, t - end)

    def _drained(self, t: float, wait_began: float) -> float:
        """On shared GPUs, back from a drain's end t through the sample that was the last in flight. The drain belongs
        to the wait for the batch before it: both wait for what the engines make."""
        sample, ended = self._ended(t)
        return wait_began if sample < 0 else self._life(sample, max(wait_began, ended), wait_began, -1)

    def _last_of(self, group: int) -> int:
        """The sample of a group that ended last."""
        first = int(self.groups["first"][group])
        return first + int(np.argmax(self.finish[first : first + int(self.groups["size"][group])]))

    def _life(self, sample: int, end: float, floor: float, ready: int, scored_s: float = 0.0) -> float:
        """Back through samples, each of which let the next be sent, to what the trainer did."""
        replaced = False
        while True:
            sent = float(self.sent[sample])
            life = Life(max(sent, floor), end, sample, ready, False, scored_s, replaced=replaced)
            if life.end_s > life.sent_s:
                self.path.lives.append(life)
            self.loop = life
            p = bisect_right(self.published, sent + SAME_S) - 1
            let_in = p >= 0 and self.lets_in and (sent - self.published[p] <= SAME_S or self._refills(p, sent))
            if let_in and sent > floor:
                made = self._made(p, floor)
                if isinstance(made, float):
                    return made
                (sample, end, scored_s), ready, replaced = made, -1, False
                continue  # not a call: where each sync drains the fleet, the path has as many of these as steps
            k = bisect_right(self.thrown, sent + SAME_S) - 1
            if k >= 0 and sent - self.thrown[k] <= SAME_S and sent > floor:
                p = bisect_right(self.trigger, sent + SAME_S) - 1
                offered = max(floor, self.trigger[p] if p >= 0 else floor)
                self._synced(sent - offered)
                return min(offered, end - SAME_S)
            i = bisect_right(self.times, sent + SAME_S) - 1
            replaced = self._replaces(sent)
            before, ended = self._group_ended(sent) if self.in_groups or replaced else (-1, 0.0)
            whole = before >= 0
            if not whole:
                before, ended = self._ended(sent)
            by_trainer = let_in or (i >= 0 and sent - self.times[i] <= SAME_S)
            if by_trainer or before < 0 or self.sent[before] > sent - SAME_S:
                return max(floor, min(sent, end - SAME_S))
            life.freed, life.whole = not replaced, whole
            if sent <= floor:
                self.loop = None
                return floor
            # its place was free once it, or its group, was scored; else what is next waited for an instance
            waits_s = 0.0 if whole or self.holds_slot else sent - ended
            scored_s = sent - ended - waits_s
            self.path.scoring_s += scored_s
            sample, end, ready = before, max(ended + waits_s, floor), -1

    def _refills(self, p: int, sent: float) -> bool:
        """Whether a sample was sent where a publication threw others away, of which none had ended since then."""
        return self.refills and self._ended(sent)[1] <= self.published[p] + SAME_S

    def _ended(self, t: float) -> tuple[int, float]:
        """The last sample that ended by t, and when; -1 if there is none."""
        if self.order is None:
            self.order = np.argsort(self.finish, kind="stable")
            self.ends = self.finish[self.order]
        k = int(np.searchsorted(self.ends, t + SAME_S, side="right")) - 1
        if k < 0 or self.ends[k] < 0:
            return -1, 0.0
        return int(self.order[k]), min(t, float(self.ends[k]))

    def _group_ended(self, t: float) -> tuple[int, float]:
        """The last sample of the group that had all its rewards at t, and when that sample ended; -1 without one."""
        group = self._over_by(t)
        if group < 0 or t - self.groups["ready_s"][group] > SAME_S:
            return -1, 0.0
        sample = self._last_of(group)
        return sample, min(t, float(self.finish[sample]))

    def _over_by(self, t: float) -> int:
        """The last group that had all its rewards by t; -1 if there is none."""
        k = int(np.searchsorted(self.over_s, t + SAME_S, side="right")) - 1
        return -1 if k < 0 else int(self.over[k])

    def _replaces(self, t: float) -> bool:
        """Whether what was sent at t could be sent because a group was filtered: places were free all the time."""
        if not self.replaces:
            return False
        group = self._over_by(t)
        if group < 0 or not self.filtered[group] or t - self.groups["ready_s"][group] > SAME_S:
            return False
        held = np.searchsorted(self.came, t - SAME_S) - np.searchsorted(self.left, t - SAME_S)
        return bool(held + self.groups["size"][group] <= self.places)

    def _publication(self, p: int, floor: float) -> float:
        """Back from the end of a publication to its making, through the drain if there is one."""
        made = self._made(p, floor)
        if isinstance(made, float):
            return made
        sample, ended, scored_s = made
        return self._life(sample, ended, floor, -1, scored_s)

    def _made(self, p: int, floor: float) -> tuple[int, float, float] | float:
        """The sample that a publication's drain waited for, its end, and seconds of its reward; without a drain, the
        trigger."""
        end, paused, trigger = self.published[p], max(self.paused[p], floor), max(self.trigger[p], floor)
        if self.drains and paused - trigger > SAME_S:
            (sample, ended), over = self._ended(paused), paused
            if paused - ended > SAME_S and (group := self._over_by(paused)) >= 0:
                # nothing ended then: the last in flight were given up, as their group had all that it needs
                sample, over = self._last_of(group), min(paused, float(self.groups["ready_s"][group]))
                ended = min(over, float(self.finish[sample]))
            if sample >= 0 and over > trigger and self.sent[sample] < ended - SAME_S:
                self._synced(end - over)
                self.path.scoring_s += over - ended
                return sample, ended, over - ended
        self._synced(end - trigger)
        return float(min(trigger, end - SAME_S))
