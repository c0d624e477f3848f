"""One run over time: who did what when, exactly as recorded. Pure functions of records, for pages and traces alike.

Every function takes a window in seconds of the run, by default all of it; spans are cut at its ends, and what lasts no
time is left out. Instances need a run with `simulate(..., activity=True)`; all else is in every run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import G_FILTERED, G_TRAINED
from fleetsim.sim.records import WAIT, Records

# Names of the accounts ACC_IDLE, ACC_BUSY, ... of `engine/kernel/tables.py`, in their order.
ACCOUNTS = ("idle", "busy", "paused", "down", "off")
# account: index into ACCOUNTS
INSTANCE_SPAN = np.dtype([("instance", "i4"), ("account", "i1"), ("start_s", "f8"), ("end_s", "f8")])
# does: index into TRAINER_DOES of `sim/records.py` (wait, train, switch, checkpoint, sync)
TRAINER_SPAN = np.dtype([("step", "i4"), ("does", "i1"), ("start_s", "f8"), ("end_s", "f8")])
# From time_s on the buffer holds so many samples.
DEPTH = np.dtype([("time_s", "f8"), ("samples", "i8")])
# Of the batch that a step trained, the last part of which was complete at time_s: optimizer steps between its samples'
# weights and the step.
STALENESS = np.dtype([("step", "i4"), ("time_s", "f8"), ("mean", "f8"), ("least", "f8"), ("most", "f8")])


def end_of(records: Records) -> float:
    """When the run ends: the end of its last step, in seconds."""
    return float(records.steps["end_s"][-1])


def steps_window(records: Records, first: int, last: int) -> tuple[float, float]:
    """Seconds from the start of step `first` to the end of step `last`, both counted from 0, `last` included."""
    return float(records.steps["start_s"][first]), float(records.steps["end_s"][last])


def instance_spans(records: Records, start_s: float = 0.0, end_s: float | None = None) -> NDArray[Any]:
    """What each instance did (INSTANCE_SPAN), instance after instance in the order of time, without gaps.

    GPUs that are not the fleet's at the time are "off". Raises ValueError for a run whose activity was not recorded.
    """
    if len(records.activity) == 0:
        raise ValueError("the run's activity was not recorded: simulate(..., activity=True)")
    rows = records.activity[np.argsort(records.activity["instance"], kind="stable")]
    last = np.append(rows["instance"][1:] != rows["instance"][:-1], True)
    ends = np.where(last, end_of(records), np.append(rows["time_s"][1:], 0.0))
    spans = np.zeros(len(rows), INSTANCE_SPAN)
    spans["instance"], spans["account"] = rows["instance"], rows["account"]
    spans["start_s"], spans["end_s"] = rows["time_s"], ends
    return _joined(_inside(spans, start_s, end_of(records) if end_s is None else end_s), "instance", "account")


def trainer_spans(records: Records, start_s: float = 0.0, end_s: float | None = None) -> NDArray[Any]:
    """What the trainer did (TRAINER_SPAN), in the order of time, without gaps.

    It waits for samples also while its GPUs are lent, and while what is in flight must end before its weights can go
    out or before it has its GPUs (a drain)."""
    rows = records.trainer
    spans = np.zeros(len(rows), TRAINER_SPAN)
    spans["step"], spans["does"], spans["start_s"] = rows["step"], rows["does"], rows["time_s"]
    spans["end_s"] = np.append(rows["time_s"][1:], end_of(records))
    return _joined(_inside(spans, start_s, end_of(records) if end_s is None else end_s), "step", "does")


def waits_for_samples(records: Records) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When each wait of the trainer for samples was over, and how many seconds it lasted: both (waits,), in order."""
    spans = trainer_spans(records)
    waits = spans[spans["does"] == WAIT]
    return waits["end_s"], waits["end_s"] - waits["start_s"]


def sync_spans(records: Records, start_s: float = 0.0, end_s: float | None = None) -> NDArray[Any]:
    """Rows of `records.syncs` (trigger_s, pause_start_s, end_s) that reach into the window, uncut."""
    syncs = records.syncs
    end = end_of(records) if end_s is None else end_s
    out: NDArray[Any] = syncs[(syncs["end_s"] >= start_s) & (syncs["trigger_s"] <= end)]
    return out


def queue_depth(records: Records, start_s: float = 0.0, end_s: float | None = None) -> NDArray[Any]:
    """Samples in the buffer over time (DEPTH), those that wait at its door included; first row at `start_s`.

    A group is in it from the moment it is complete until it is trained or thrown away; groups that the reward filter
    removes never are. Its time-weighted mean is the metric `queue_depth`.
    """
    end = end_of(records) if end_s is None else end_s
    groups = records.groups[(records.groups["ready_s"] >= 0) & (records.groups["status"] != G_FILTERED)]
    left = groups[groups["left_s"] >= 0]
    times = np.concatenate([groups["ready_s"], left["left_s"]])
    change = np.concatenate([groups["need"], -left["need"]]).astype(np.int64)
    at, where = np.unique(times, return_inverse=True)
    depth = np.cumsum(np.bincount(where, change, len(at))).astype(np.int64)
    before = int(np.searchsorted(at, start_s, side="right"))
    inside = slice(before, max(before, int(np.searchsorted(at, end, side="right"))))
    out = np.zeros(1 + inside.stop - inside.start, DEPTH)
    out["time_s"][0], out["samples"][0] = start_s, depth[before - 1] if before else 0
    out["time_s"][1:], out["samples"][1:] = at[inside], depth[inside]
    changed: NDArray[Any] = out[np.append(True, out["samples"][1:] != out["samples"][:-1])]
    return changed


def staleness(records: Records, start_s: float = 0.0, end_s: float | None = None) -> NDArray[Any]:
    """Staleness of each step's batch (STALENESS), of the steps whose batch was taken in the window.

    As the metric `staleness_steps` has it: trained step - optimizer steps contained in the weights that the group was
    submitted under; every group of a batch has as many samples.
    """
    steps = records.steps
    end = end_of(records) if end_s is None else end_s
    taken = steps[(steps["ready_s"] >= start_s) & (steps["ready_s"] <= end)]
    groups = records.groups[records.groups["status"] == G_TRAINED]
    groups = groups[np.argsort(groups["trained_step"], kind="stable")]
    age = groups["trained_step"] - records.updates[groups["version"]]
    first = np.searchsorted(groups["trained_step"], taken["step"])
    out = np.zeros(len(taken), STALENESS)
    out["step"], out["time_s"] = taken["step"], taken["ready_s"]
    if len(taken):
        stop = int(np.searchsorted(groups["trained_step"], taken["step"][-1], side="right"))
        counted = np.append(first[1:], stop) - first
        out["mean"] = np.add.reduceat(age[:stop], first) / counted
        out["least"], out["most"] = np.minimum.reduceat(age[:stop], first), np.maximum.reduceat(age[:stop], first)
    return out


def _inside(spans: NDArray[Any], start_s: float, end_s: float) -> NDArray[Any]:
    """The spans cut at the window's ends, without those that last no time in it."""
    spans["start_s"], spans["end_s"] = np.maximum(spans["start_s"], start_s), np.minimum(spans["end_s"], end_s)
    out: NDArray[Any] = spans[spans["end_s"] > spans["start_s"]]
    return out


def _joined(spans: NDArray[Any], *same: str) -> NDArray[Any]:
    """Neighbours that differ in nothing but time become one."""
    if len(spans) == 0:
        return spans
    begins = np.append(True, np.any([spans[name][1:] != spans[name][:-1] for name in same], axis=0))
    out: NDArray[Any] = spans[begins]
    out["end_s"] = spans["end_s"][np.append(np.flatnonzero(begins)[1:] - 1, len(spans) - 1)]
    return out
