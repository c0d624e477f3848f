"""What a simulated run holds in flight and queued and how long it stands idle, counted as a window of history shows it.

Where pauses were seen in the window, `FleetView` leaves them out, and only there. A trial that is held against it must
do the same: with a pause of 20 s in every minute, 207 samples are in flight outside pauses and 149 over all.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import G_FILTERED
from fleetsim.sim.records import Records
from fleetsim.sim.window import window_of


class Gauged(Struct, frozen=True):
    """mean, peak: mean and 99th percentile of the requests that run or wait in instances. idle_share: of the instances
    that are up, those that run none. queued: mean of the samples that wait for the trainer."""

    mean: float
    peak: float
    idle_share: float
    queued: float


def in_flight(records: Records, *, in_pauses: bool = True) -> Gauged:
    """What the gauges of a scraped run show after warm-up. in_pauses: also at scrapes at which all that is up is held:
    a window shows pauses as such only where one lasts about as long as its scrapes are apart."""
    looks = records.scrapes.reshape(len(records.queue_scrapes), -1)
    after = looks["time_s"][:, 0] >= window_of(records).start_s
    looks, queued = looks[after], float(records.queue_scrapes["samples"][after].mean())
    free = (looks["up"] & ~looks["paused"]).any(axis=1)
    looks = looks[free] if free.any() and not in_pauses else looks
    count = (looks["running"] + looks["waiting"]).sum(axis=1)
    idle = (looks["running"] == 0)[looks["up"]]
    share = float(idle.mean()) if idle.size else 0.0
    return Gauged(float(count.mean()), float(np.percentile(count, 99)), share, queued)


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
