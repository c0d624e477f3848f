"""What a simulated run holds in flight and queued and how long it stands idle, counted as a window of history shows it.

Where pauses were seen in the window, `FleetView` leaves them out. A trial that is held against it must do the same:
with a pause of 20 s in every minute, 207 samples are in flight outside pauses and 149 over all.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import G_FILTERED
from fleetsim.sim.records import Records
from fleetsim.sim.window import window_of

# Points of time at which the requests in flight are counted.
_POINTS = 400


def in_flight(records: Records, *, in_pauses: bool = True) -> tuple[float, float]:
    """Mean and 99th percentile of the samples on instances, at even times of the window after warm-up.

    in_pauses: also at times at which a weight sync holds the fleet, and few samples may be in flight.
    """
    window = window_of(records)
    samples = records.samples
    sent = samples[samples["sent_s"] >= 0]
    # one that waits in an engine is in flight as well; one that moved to another has been since it first ran
    began = np.where(sent["start_s"] >= 0, np.minimum(sent["start_s"], sent["sent_s"]), sent["sent_s"])
    group_left = records.groups["left_s"][sent["group"]]
    ended = np.where(sent["finish_s"] >= 0, sent["finish_s"], np.where(group_left >= 0, group_left, np.inf))
    times = np.linspace(window.start_s, window.end_s, _POINTS)
    if not in_pauses and records.scenario.sync.scope == "global":  # no weight sync holds the whole fleet
        begun, ended_ = (np.sort(records.syncs[name]) for name in ("pause_start_s", "end_s"))
        free = np.searchsorted(begun, times, side="right") == np.searchsorted(ended_, times, side="right")
        times = times[free] if free.any() else times
    count = np.searchsorted(np.sort(began), times, side="right") - np.searchsorted(np.sort(ended), times, side="right")
    return float(count.mean()), float(np.percentile(count, 99))


def idle_share(records: Records, *, in_pauses: bool) -> float:
    """Of the time that instances are up (in_pauses: that they are held, too), the part without work."""
    window = window_of(records)
    busy, idle, paused = (window.total(f"{name}_s") for name in ("busy", "idle", "paused"))
    up_s = busy + idle + (paused if in_pauses else 0.0)
    return idle / up_s if up_s > 0 else 0.0


class GroupQueue(Struct, frozen=True):
    """When finished groups came and left, in seconds since zero_s of `of`, and how many samples each holds.

    most: samples that the queue holds; what is finished beyond that stands before it, where no queue's size shows it.
    """

    came: NDArray[np.float64]
    left: NDArray[np.float64]
    need: NDArray[np.float64]
    most: float

    @classmethod
    def of(cls, records: Records, zero_s: float) -> GroupQueue:
        """The trainer's queue of a run; zero_s: second of the run from which it is counted."""
        groups = records.groups[(records.groups["ready_s"] >= 0) & (records.groups["status"] != G_FILTERED)]
        left = np.where(groups["left_s"] < 0, np.inf, groups["left_s"])
        most = float(records.scenario.buffer.capacity_samples or np.inf)
        return cls(groups["ready_s"] - zero_s, left - zero_s, groups["need"].astype(np.float64), most)

    def mean(self, a: float, end: float) -> float:
        """Mean samples in the queue from a to end, which lies later."""
        came, left = np.clip(self.came, a, end), np.clip(self.left, a, end)
        if self.most == np.inf:
            return float(((left - came) * self.need).sum()) / (end - a)
        times = np.concatenate([came, left])
        order = np.argsort(times, kind="stable")
        finished = np.cumsum(np.concatenate([self.need, -self.need])[order])
        return float((np.minimum(finished, self.most)[:-1] * np.diff(times[order])).sum()) / (end - a)
