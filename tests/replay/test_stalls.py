"""Stops with work in hand, whatever their length, phase and load: found where they were, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.history.history import History
from fleetsim.replay.implied.implied_scenario import implied
from fleetsim.replay.observe.interruptions import Pause
from fleetsim.replay.observe.observe import observe
from tests.replay.histories import START, history_of
from tests.replay.preset_trainer import PRESET_TRAINER
from tests.replay.test_end_to_end import exported

SCRAPE_S, TICK_S, SPAN_S = 15.0, 0.5, 3600.0
PRESETS = (
    "areal", "laminar", "llamarl", "nemo-rl-async-grpo", "open-instruct", "openrlhf-async", "openrlhf-async-partial",
    "pipelinerl", "prime-rl", "roll-rlvr-async", "skyrl-fully-async", "slime-async", "slime-fully-async", "streamrl",
    "trl-async-grpo", "verl-fully-async", "verl-one-step-off",
)  # fmt: skip


def worked(
    instances: int, starts: list[float], long_s: float, *, batches: bool, seed: int, offset_s: float = 0.0
) -> History:
    """Engines that decode 64 requests at (6 + 0.06 n) ms an iteration, scraped every 15 s, and stand still from each of
    `starts` for long_s. batches: a new batch of 64 each comes offset_s after each start; else one comes for one."""
    rng = np.random.default_rng(seed)
    ticks = int(SPAN_S / TICK_S)
    left = np.zeros((instances, 256))  # tokens that each slot has to make
    if not batches:
        left[:, :64] = lengths(rng, (instances, 64)) * rng.random((instances, 64))
    made, finished = np.zeros(instances), np.zeros(instances)
    rows: list[list[np.ndarray]] = [[], [], []]
    arrivals = {int((s + offset_s) / TICK_S) for s in starts}
    still = np.zeros(ticks + 1, dtype=bool)
    for s in starts:
        still[int(s / TICK_S) : int((s + long_s) / TICK_S)] = True
    for tick in range(ticks + 1):
        if tick % int(SCRAPE_S / TICK_S) == 0:
            for row, values in zip(rows, (made, (left > 0).sum(axis=1), finished), strict=True):
                row.append(np.array(values, dtype=float))
        if batches and (tick in arrivals or tick == 0):
            for i in range(instances):
                free = np.flatnonzero(left[i] <= 0)[:64]
                left[i, free] = lengths(rng, len(free))
        if still[tick]:
            continue
        running = left > 0
        step = TICK_S / (0.006 + 0.00006 * running.sum(axis=1))
        work = np.where(running, np.minimum(left, step[:, None]), 0.0)
        made = made + work.sum(axis=1)
        left = left - work
        ended = running & (left <= 1e-9)
        left[ended] = 0.0
        finished = finished + ended.sum(axis=1)
        if not batches:
            left[ended] = lengths(rng, int(ended.sum()))
    names = ("generation_tokens", "running", "finished")
    values = {name: np.array(row).T for name, row in zip(names, rows, strict=True)}
    values["generation_tokens"] = np.floor(values["generation_tokens"])
    values["waiting"] = np.zeros_like(values["running"])
    return history_of(START + SCRAPE_S * np.arange(len(rows[0])), SCRAPE_S, values)


def lengths(rng: np.random.Generator, size: object) -> np.ndarray:
    return np.minimum(rng.lognormal(np.log(4000), 0.7, size), 16000.0)  # type: ignore[arg-type]


def compared(each: tuple[Pause, ...], starts: list[float], long_s: float) -> tuple[np.ndarray, int]:
    """Distance of each pause, away from the window's ends, to the nearest that was found; found ones that were none."""
    truth = [(START + s, START + s + long_s) for s in starts]
    inside = [(a, b) for a, b in truth if a > START + 60 and b < START + SPAN_S - 60]
    off = [min((max(abs(p.start_s - a), abs(p.end_s - b)) for p in each), default=np.inf) for a, b in inside]
    alien = [p for p in each if not any(p.start_s < b + SCRAPE_S and p.end_s > a - SCRAPE_S for a, b in truth)]
    return np.array(off), len(alien)


@pytest.mark.parts
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    ("instances", "first", "long_s", "every"),
    [
        (1, 70, 20, 97.3),
        (3, 80, 20, 91.0),
        (6, 90, 16, 120.0),
        (2, 66, 30, 131.0),
        (12, 75, 45, 111.1),
        (5, 70, 58, 95.0),
    ],
)
def test_longer_than_a_scrape_all_are_found(
    instances: int, first: float, long_s: float, every: float, batches: bool
) -> None:
    starts = list(np.arange(first, SPAN_S, every))
    history = worked(instances, starts, long_s, batches=batches, seed=instances, offset_s=long_s)
    pauses = observe(history).pauses
    assert pauses is not None
    off, alien = compared(pauses.each, starts, long_s)
    assert (off <= SCRAPE_S).mean() >= 0.95, sorted(off)[-5:]
    assert alien <= 0.02 * len(starts)
    assert pauses.mean_s == pytest.approx(long_s, abs=3.0)
    assert pauses.period_s == pytest.approx(every, abs=2.0)


@pytest.mark.parts
@pytest.mark.parametrize("instances", [1, 3, 12])
@pytest.mark.parametrize("long_s", [8.0, 12.0])
@pytest.mark.parametrize("batches", [False, True])
def test_shorter_than_a_scrape_what_is_found_is_right(instances: int, long_s: float, batches: bool) -> None:
    """With a batch that comes in mid-work, so that what stands still is seen to."""
    starts = list(np.arange(70.0, SPAN_S, 131.0))
    history = worked(instances, starts, long_s, batches=batches, seed=instances, offset_s=-40.0)
    pauses = observe(history).pauses
    assert pauses is not None
    off, alien = compared(pauses.each, starts, long_s)
    assert (off <= SCRAPE_S).mean() >= 0.8
    assert alien <= 0.1 * len(starts)  # a single engine with its last few requests
    assert pauses.mean_s == pytest.approx(long_s, abs=3.0)


@pytest.mark.parts
@pytest.mark.parametrize("instances", [1, 3, 12])
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_batches_that_come_and_go_are_no_pauses(instances: int, batches: bool, seed: int) -> None:
    starts = list(np.arange(70.0, SPAN_S, 97.0 + seed))
    pauses = observe(worked(instances, starts, 0.0, batches=batches, seed=seed)).pauses
    assert pauses is not None
    assert [p for p in pauses.each if not p.empty] == []


@pytest.mark.parts
@pytest.mark.parametrize("preset", PRESETS)
def test_a_sync_of_seconds_is_not_made_longer(preset: str, tmp_path: Path) -> None:
    """Their fleets stand still for 3.5 s a step at the most: hardly one is seen, none as long as counts for certain."""
    pauses = observe(exported(f"presets/{preset}", tmp_path, steps=60, **PRESET_TRAINER)).pauses
    assert pauses is not None
    held = [p for p in pauses.each if not p.empty]
    assert len(held) <= 3, held  # of 60
    assert all(p.seconds < 0.75 * SCRAPE_S for p in held), held


def test_the_shipped_scenario_has_none(tmp_path: Path) -> None:
    pauses = observe(exported("scenarios/async-one-step.yaml", tmp_path)).pauses
    assert pauses is not None
    assert pauses.each == ()


@pytest.mark.parametrize(("instances", "fixed_s", "batch"), [(12, 30.0, 128), (8, 15.0, 256)])
def test_batches_that_run_out_beside_their_last_few_are_no_pauses(
    instances: int, fixed_s: float, batch: int, tmp_path: Path
) -> None:
    """Lengths that are much alike end together, and one response goes on to the next scrape. Syncs take 2 s: the few
    silences that are left are not theirs."""
    job = {
        "workload.output_tokens": {"kind": "lognormal", "mean": 1500, "cv": 0.4, "max": 7500},
        "workload.group_size": 8,
        "trainer.batch_samples": batch,
        "trainer.fixed_s": fixed_s,
        "fleet.instances": instances,
        "sync.pause_s": 2.0,
    }
    history = exported("async-one-step", tmp_path, steps=140, **job)
    base = with_changes(load_scenario("async-one-step"), job)
    observed = observe(history, base)
    assert observed.pauses is not None
    assert len(observed.pauses.held) <= 4
    assert implied(observed, history, base).scenario.sync.pause_s == 2.0
