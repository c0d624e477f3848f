"""What happened, one row per happening; every metric is a pure function of these tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import LEVELS
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime

STEP = np.dtype(
    [
        ("step", "i4"),
        ("start_s", "f8"),  # the trainer is free to take a batch
        ("ready_s", "f8"),  # the batch is complete
        ("train_start_s", "f8"),
        ("train_end_s", "f8"),
        ("end_s", "f8"),  # the trainer is free again: the next step's start
        ("wait_s", "f8"),  # sample-wait: start to ready, and while a drain holds the trainer up
        ("train_s", "f8"),  # compute, phases included
        ("switch_s", "f8"),  # colocated: handing the GPUs over
        ("checkpoint_s", "f8"),
        ("sync_block_s", "f8"),  # trainer held by weight sync, without the drain
        ("evaluation_s", "f8"),  # trainer held by an evaluation
        ("tokens", "i8"),  # trained: prompt + output
        ("output_tokens", "i8"),
        ("samples", "i4"),
        ("version", "i4"),  # published weight version when the batch was taken
        ("queue_depth", "i8"),  # samples in the buffer when the batch was taken, itself included
        ("blocked", "i8"),  # samples that found the buffer full, then
        ("oldest_age_steps", "f8"),  # of the buffered samples, then
        ("in_flight", "i8"),  # when the batch became complete
        ("running", "i8"),
        ("waiting", "i8"),
        ("kv_tokens", "i8"),
        ("kv_use", "f8"),
        ("credits", "i8"),
        # totals since the start of the run, at end_s
        ("instances", "i4"),
        ("busy_s", "f8"),  # instance-seconds
        ("paused_s", "f8"),
        ("idle_s", "f8"),
        ("down_s", "f8"),
        ("lent_s", "f8"),  # of them, on the trainer's GPUs
        ("spot_s", "f8"),  # of them, on spot machines
        ("pools_s", "f8"),  # paid for in the other pools: instance-seconds,
        ("pools_gpu_s", "f8"),  # GPU-seconds,
        ("pools_usd", "f8"),  # US dollars
        ("block_s", "f8"),  # KV blocks in use, integrated over busy time
        ("generated_tokens", "i8"),
        ("evaluation_tokens", "i8"),  # of them, of evaluations that are over
        ("prefilled_tokens", "i8"),
        ("hit_tokens", "i8"),
        ("host_tokens", "i8"),  # of them, from the host
        ("prefill_busy_s", "f8"),  # of the prefill engines, engine-seconds
        ("aborted_tokens", "i8"),
        ("lost_tokens", "i8"),
        ("recomputed_tokens", "i8"),
        ("preemptions", "i8"),
    ]
)
# The seconds of a step that the trainer does not compute, by column: with train_s they add up to the step.
NOT_TRAINING = ("wait_s", "sync_block_s", "switch_s", "checkpoint_s", "evaluation_s")
SYNC = np.dtype(
    [
        ("version", "i4"),  # that this sync publishes
        ("step", "i4"),  # after which it was triggered
        ("updates", "f8"),  # optimizer steps that it contains
        ("trigger_s", "f8"),
        ("pause_start_s", "f8"),
        ("end_s", "f8"),
        ("in_flight", "i8"),
        ("discarded_groups", "i8"),
    ]
)
# What a station counted since the start of the run, one row per step and station, at the step's end: seconds in which
# calls waited, were served, and workers were taken; calls made, and ended in each way; rollouts lost.
STATION_COUNTS = ("waited_s", "served_s", "used_s", "calls", "served", "failed", "late", "lost")
# And in the step alone, by `level_of` (`engine/kernel/stations.py`): seconds by how many workers were taken, calls by
# the milliseconds of their wait.
STATION_LEVELS = tuple((name, "f4", (int(LEVELS),)) for name in ("used", "waits"))
STATION_STEP = np.dtype(
    [("step", "i4"), ("station", "i4"), *((name, "f8") for name in STATION_COUNTS), *STATION_LEVELS]
)
# What a judge counted since the start of the run, one row per step and judge, at the step's end: seconds in which its
# requests waited and ran, and in which its engines computed; requests, and those that were answered; prompt tokens of
# the former, output tokens of the latter.
JUDGE_COUNTS = ("waited_s", "served_s", "busy_s", "asked", "answered", "prompt_tokens", "output_tokens")
JUDGE_STEP = np.dtype([("step", "i4"), ("judge", "i4"), *((name, "f8") for name in JUDGE_COUNTS)])
EVALUATION_ROW = np.dtype([("step", "i4"), ("begin_s", "f8"), ("end_s", "f8")])  # after which step, from, to
FAILURE = np.dtype([("instance", "i4"), ("down_s", "f8"), ("up_s", "f8")])  # infinite: not back by the end
# What an instance does, if that is recorded: from time_s on its GPU-seconds go to this account (ACC_IDLE, ACC_BUSY,
# ACC_PAUSED, ACC_DOWN or ACC_OFF of `engine/kernel/tables.py`) until its next row.
ACTIVITY = np.dtype([("time_s", "f8"), ("instance", "i4"), ("account", "i1")])
# What the trainer does, an index into TRAINER_DOES, from time_s on until the next row.
TRAINER = np.dtype([("time_s", "f8"), ("step", "i4"), ("does", "i1")])
TRAINER_DOES = ("wait", "train", "switch", "checkpoint", "sync", "evaluation")
WAIT, TRAIN, SWITCH, CHECKPOINT, SYNC_HELD, EVALUATION = range(len(TRAINER_DOES))
# What `sim/scrape.py` reads, if it is asked to: one row per instance and time, counters since the instance's process
# began.
SCRAPE = np.dtype(
    [
        ("time_s", "f8"),
        ("instance", "i4"),
        ("up", "?"),  # it answers: neither failed nor given back
        ("paused", "?"),  # held by a weight sync, or its GPUs are the trainer's
        ("incarnation", "i4"),  # processes before this one
        ("born_s", "f8"),  # when this one began
        ("running", "i8"),
        ("waiting", "i8"),
        ("kv_use", "f8"),
        ("generated", "i8"),  # output tokens
        ("decode_s", "f8"),  # seconds between two tokens of a request, summed over them
        ("prefilled", "i8"),  # prompt tokens computed, again after a preemption too
        ("hit_tokens", "i8"),  # prompt tokens found in the prefix cache
        ("preemptions", "i8"),
    ]
)
QUEUE_SCRAPE = np.dtype(
    [
        ("time_s", "f8"),
        ("samples", "i8"),  # in the buffer
        ("blocked", "i8"),  # finished, before a full buffer
        ("oldest_age_steps", "f8"),  # of the buffered samples
    ]
)
DISCARD = np.dtype([("time_s", "f8"), ("group", "i8")])  # unfinished groups thrown away


class Records(Struct):
    """Tables of one run, in the order of time.

    steps, syncs, failures: dtypes above. samples: one row per sample of a sent group (SAMPLE of
    `engine/kernel/tables.py`): prompt, target, made, group, instance, preemptions, status, sent_s, start_s,
    first_token_s, finish_s. groups: one row per group that was sent (GROUP there): version, status, trained_step,
    submit_s, ready_s, left_s. engine: iteration times and limits that the instances ran with. updates[v]: optimizer
    steps contained in weight version v. discards: dtype above. scrapes, queue_scrapes: likewise, empty unless it was
    scraped.
    trainer: dtype above, what the trainer did from the first step on; the last row lasts until the last step's end.
    activity: dtype above, every instance with a row at its start; empty unless it was recorded. stations: dtype above,
    of `stations_of` the scenario (`stations.py`). judges: dtype above, of `judges_of` it. evaluations: dtype above,
    those that are over. cut: ended by Ctrl-C.
    """

    scenario: Scenario
    seed: int
    replication: int
    steps: NDArray[Any]
    samples: NDArray[Any]
    groups: NDArray[Any]
    syncs: NDArray[Any]
    failures: NDArray[Any]
    engine: tuple[StepTime, EngineLimits]
    updates: NDArray[np.float64]
    trainer: NDArray[Any] = field(default_factory=lambda: np.zeros(0, TRAINER))
    scrapes: NDArray[Any] = field(default_factory=lambda: np.zeros(0, SCRAPE))
    queue_scrapes: NDArray[Any] = field(default_factory=lambda: np.zeros(0, QUEUE_SCRAPE))
    discards: NDArray[Any] = field(default_factory=lambda: np.zeros(0, DISCARD))
    activity: NDArray[Any] = field(default_factory=lambda: np.zeros(0, ACTIVITY))
    stations: NDArray[Any] = field(default_factory=lambda: np.zeros(0, STATION_STEP))
    judges: NDArray[Any] = field(default_factory=lambda: np.zeros(0, JUDGE_STEP))
    evaluations: NDArray[Any] = field(default_factory=lambda: np.zeros(0, EVALUATION_ROW))
    cut: bool = False

    def tables(self) -> dict[str, NDArray[Any]]:
        """Table name -> structured array; stations and judges where there are any, the former without their levels."""
        found = {name: getattr(self, name) for name in ("steps", "samples", "groups", "syncs", "failures")}
        if len(self.stations):
            found["stations"] = self.stations[["step", "station", *STATION_COUNTS]]
        if len(self.judges):
            found["judges"] = self.judges
        return found
