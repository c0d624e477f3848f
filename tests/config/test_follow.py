"""Values in multiples of a batch or a group follow another one, unless they are given beside it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.config import load_scenario, scenario_from_mapping, with_changes
from fleetsim.config.data_files import find_preset
from fleetsim.errors import InputError
from fleetsim.job.assumptions import run_assumptions
from fleetsim.job.job import job_from_flags

QUEUE, CAP, EACH, POOL = (
    "buffer.capacity_samples",
    "fleet.max_in_flight_samples",
    "fleet.max_in_flight_samples_per_instance",
    "admission.pool_samples",
)


@given(batch=st.integers(1, 400), group=st.integers(1, 32), parts=st.integers(1, 9), new=st.integers(1, 400))
def test_a_value_in_batches_keeps_its_ratio_in_whole_groups(batch: int, group: int, parts: int, new: int) -> None:
    raw = {
        "follow": {"batch": [QUEUE, CAP], "group": [EACH], "at_least_batch": [POOL]},
        "workload": {"group_size": group},
        "trainer": {"batch_samples": batch * group},
        "fleet": {"max_in_flight_samples": parts * batch * group, "max_in_flight_samples_per_instance": parts * group},
        "admission": {"pool_samples": batch * group},
        "buffer": {"capacity_samples": parts * group},
    }
    s = scenario_from_mapping(raw, overrides=[f"trainer.batch_samples={new * group}"])
    assert s.fleet.max_in_flight_samples == parts * new * group
    assert s.buffer.capacity_samples is not None
    assert s.buffer.capacity_samples % group == 0
    assert 0 <= s.buffer.capacity_samples - parts * group * new / batch < group
    assert s.fleet.max_in_flight_samples_per_instance == parts * group
    assert s.admission.pool_samples == max(batch, new) * group
    assert with_changes(scenario_from_mapping(raw), {"trainer.batch_samples": new * group}) == s


def test_a_value_in_groups_follows_the_group_size_and_not_the_batch() -> None:
    job = job_from_flags("verl-fully-async", (), {"group_size": 16})
    assert job.scenario.fleet.max_in_flight_samples_per_instance == 16 * 16  # 16 prompts a replica, whatever n is
    assert job.scenario.buffer.capacity_samples == 560
    job = job_from_flags("verl-fully-async", (), {"batch": 1024})
    assert job.scenario.fleet.max_in_flight_samples_per_instance == 128
    assert job.scenario.buffer.capacity_samples == 1120


def test_what_is_given_stays_and_what_followed_is_among_the_assumptions() -> None:
    job = job_from_flags("nemo-rl-sc-in-order", [f"{QUEUE}=1536"], {"batch": 1024})
    s = job.scenario
    assert (s.buffer.capacity_samples, s.fleet.max_in_flight_samples) == (1536, 1024)
    assert [path for path in s.assumed if path.split(".")[0] in ("buffer", "fleet")] == [CAP]
    told = {a.path: a for a in run_assumptions(s, job.given)}
    assert told[CAP].value == 1024
    assert QUEUE not in told
    # as in the file: nothing followed, nothing is assumed
    assert load_scenario(find_preset("nemo-rl-sc-in-order"), ["run.steps=3"]).assumed == ()


@pytest.mark.parametrize("section", [{"batch": ["trainer.fixed_s"]}, {"batch": 3}, {"of": []}, 3, {"batch": [[1]]}])
def test_what_cannot_follow_is_refused(section: Any) -> None:
    with pytest.raises(InputError) as error:
        scenario_from_mapping({"follow": section}, overrides=["trainer.batch_samples=64"])
    assert all(p.path.startswith("follow") for p in error.value.problems)


@pytest.mark.parametrize(
    ("preset", "batches"),
    [
        ("nemo-rl-async-grpo", 6),  # prompts x age x 2
        ("nemo-rl-sc-in-order", 4),  # prompts x (window + 1)
        ("nemo-rl-sc-ready-first", 4),
        ("nemo-rl-sc-weight-fifo", 4),
    ],
)
def test_a_queue_follows_the_age_it_was_made_for(preset: str, batches: int) -> None:
    from fleetsim.sim.run import simulate

    s = job_from_flags(preset, (), {"max_staleness": 3, "batch": 256}).scenario
    assert s.buffer.capacity_samples == batches * 256
    assert QUEUE in s.assumed
    simulate(with_changes(s, {"run.steps": 4}))  # it got stuck: the oldest batch had no room
    assert load_scenario(find_preset(preset)).buffer.capacity_samples == 1024
