"""What instances and trainer did, recorded: exact, complete, and without changing the run.

- recording is free: with and without it, every other record is the same to the byte.
- no gaps: the spans of an instance tile the run from its begin to its end.
- the accounts: their sums at the end of every step are that step's record.
- who has a sample: its instance is up from the moment that it got it until the sample has finished.
- a log of any size says the same: the kernel stops when it is full, and goes on where it was.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, load_scenario, with_changes
from fleetsim.config.data_files import find_preset
from fleetsim.errors import StuckError
from fleetsim.sim import fleet
from fleetsim.sim.fleet import ActivityLog
from fleetsim.sim.records import TRAINER_DOES, Records
from fleetsim.sim.replications import replicate
from fleetsim.sim.run import simulate
from fleetsim.sim.timeline import ACCOUNTS, instance_spans, trainer_spans
from tests.sim.random_scenarios import scenarios
from tests.sim.test_scrape import CASES, PRESETS, SHORT, bytes_of

# What the trainer does -> the column of a step that has its seconds.
COLUMNS = {
    "wait": "wait_s",
    "train": "train_s",
    "switch": "switch_s",
    "checkpoint": "checkpoint_s",
    "sync": "sync_block_s",
}
FAULTS = {
    "run.steps": 12,
    "fleet.failures": {"mtbf_s": 40.0, "restart_s": 9.0},
    "run.events": [{"step": 2, "instances": 6}, {"step": 4, "instances": 2}, {"step": 5, "lose_instance": 1}],
}


def outcome(scenario: Scenario, **how: Any) -> tuple[dict[str, bytes] | str, Records | None]:
    try:
        records = simulate(scenario, **how)
        return bytes_of(records) | {"trainer": records.trainer.tobytes()}, records
    except StuckError as stuck:
        return str(stuck), None


@settings(max_examples=80)
@given(scenarios())
def test_recording_changes_nothing_and_is_complete(scenario: Scenario) -> None:
    plain, _ = outcome(scenario)
    seen, records = outcome(scenario, activity=True)
    assert seen == plain
    if records is not None:
        check(records)


@pytest.mark.parametrize("changes", [*CASES.values(), FAULTS], ids=[*CASES, "faults"])
def test_recording_changes_nothing_in_any_arrangement(changes: dict[str, Any]) -> None:
    scenario = with_changes(default_scenario(), SHORT | {"fleet.instances": 4} | changes)
    seen, records = outcome(scenario, activity=True, scrape_every_s=1.0)
    assert seen == outcome(scenario)[0]
    assert records is not None
    check(records)


@pytest.mark.parametrize("preset", PRESETS)
def test_recording_changes_nothing_in_presets(preset: str) -> None:
    scenario = with_changes(load_scenario(find_preset(preset)), {"run.steps": 3, "run.warmup_steps": 0})
    seen, records = outcome(scenario, activity=True)
    assert seen == outcome(scenario)[0]
    assert records is not None
    check(records)


@settings(max_examples=30)
@given(scenarios(), st.sampled_from([0, 1, 7]))
def test_a_log_of_any_size_says_the_same(scenario: Scenario, rows: int) -> None:
    try:
        at_once = simulate(scenario, activity=True)
    except StuckError:
        return
    with mock.patch.object(fleet, "ActivityLog", lambda world: ActivityLog(world, rows)):
        in_parts = simulate(scenario, activity=True)
    assert in_parts.activity.tobytes() == at_once.activity.tobytes()
    assert bytes_of(in_parts) == bytes_of(at_once)


def test_a_log_that_overflows_is_an_error() -> None:
    scenario = with_changes(default_scenario(), SHORT)

    class Small(ActivityLog):
        def __init__(self, world: Any) -> None:
            super().__init__(world, 4)
            self.room = 5
            world.set(cap_log=self.room, most_log=1 << 40)

    with mock.patch.object(fleet, "ActivityLog", Small), pytest.raises(RuntimeError, match="the log of accounts lost"):
        simulate(scenario, activity=True)


def check(records: Records) -> None:
    """The spans are exact, and the order of the table is that of time."""
    rows, steps = records.activity, records.steps
    end = float(steps["end_s"][-1])
    assert np.all(np.diff(rows["time_s"]) >= 0)
    assert rows["time_s"][0] == 0
    assert rows["time_s"][-1] <= end * (1 + 1e-12)
    spans = instance_spans(records)
    n = int(rows["instance"].max()) + 1
    for i in range(n):
        own = spans[spans["instance"] == i]
        assert own["start_s"][0] == 0
        assert own["end_s"][-1] == end
        assert np.all(own["start_s"][1:] == own["end_s"][:-1])
        assert np.all(own["account"][1:] != own["account"][:-1])
    assert len(np.unique(spans["instance"])) == n
    for step in steps:
        inside = np.clip(spans["end_s"], 0, step["end_s"]) - np.clip(spans["start_s"], 0, step["end_s"])
        spent = np.bincount(spans["account"], inside, len(ACCOUNTS))
        for account in ("busy", "paused", "idle", "down"):
            assert spent[ACCOUNTS.index(account)] == pytest.approx(step[f"{account}_s"], rel=1e-9, abs=1e-9)
    check_trainer(records)
    check_samples(records, spans)


def check_samples(records: Records, spans: Any) -> None:
    """A finished sample was sent to its instance once that was up, and before it was scheduled there, or moved."""
    done = records.samples[records.samples["finish_s"] >= 0]
    submitted = records.groups["submit_s"][done["group"]]
    assert np.all((submitted <= done["sent_s"] + 1e-9) & (done["sent_s"] < done["finish_s"]))
    for span in spans[np.isin(spans["account"], [ACCOUNTS.index("down"), ACCOUNTS.index("off")])]:
        here = done[done["instance"] == span["instance"]]
        overlap = np.minimum(here["finish_s"], span["end_s"]) - np.maximum(here["sent_s"], span["start_s"])
        assert np.all(overlap <= 1e-9), "no sample is on an instance that is down"


def check_trainer(records: Records) -> None:
    """The trainer's spans tile the run, and add up to each step's seconds."""
    spans, steps = trainer_spans(records), records.steps
    assert spans["start_s"][0] == 0
    assert spans["end_s"][-1] == steps["end_s"][-1]
    assert np.all(spans["start_s"][1:] == spans["end_s"][:-1])
    for step in steps:
        own = spans[spans["step"] == step["step"]]
        assert own["start_s"][0] == step["start_s"]
        assert own["end_s"][-1] == step["end_s"]
        spent = np.bincount(own["does"], own["end_s"] - own["start_s"], len(TRAINER_DOES))
        for name, column in COLUMNS.items():
            assert spent[TRAINER_DOES.index(name)] == pytest.approx(step[column], rel=1e-9, abs=1e-9), name


def test_only_the_first_replication_is_recorded() -> None:
    scenario = with_changes(default_scenario(), SHORT)
    recorded = replicate(scenario, 3, activity=True)
    assert [len(run.activity) > 0 for run in recorded.runs] == [True, False, False]
    assert recorded.values == replicate(scenario, 3).values
    assert all(len(run.activity) == 0 for run in replicate(scenario, 2).runs)
