"""What the scenario says happens during a run: each event does what it says, and nothing before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine.kernel import tables as t
from fleetsim.errors import InputError, StuckError
from fleetsim.job.trials import planned
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate

AT = 8
JOB: dict[str, Any] = {
    "workload.output_tokens": {"mean": 300.0, "cv": 0.8, "max": 800.0},
    "workload.group_size": 4,
    "trainer.batch_samples": 64,
    "trainer.fixed_s": 3.0,
    "sync.publish_s": 0.5,
    "sync.pause_s": 1.0,
    "sync.trainer_block_s": 0.7,
    "fleet.instances": 3,
    "run.steps": 24,
    "run.warmup_steps": 0,
}


def run(event: dict[str, Any] | None = None, more: tuple[dict[str, Any], ...] = (), **changes: Any) -> Records:
    events = [] if event is None else [{"step": AT, **event}, *more]
    extra = {k.replace("__", "."): v for k, v in changes.items()}
    return simulate(with_changes(default_scenario(), JOB | extra | {"run.events": events}), scrape_every_s=0.5)


EVENTS: list[dict[str, Any]] = [
    {"sync_slowdown": 2.0},
    {"length_factor": 1.5},
    {"lose_instance": 1},
    {"trainer_slowdown": 1.2},
    {"instances": 5},
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: next(iter(event)))
@pytest.mark.parametrize("changes", [{}, {"fleet__failures__mtbf_s": 100.0}], ids=["healthy", "failing"])
def test_nothing_changes_before_it_happens(event: dict[str, Any], changes: dict[str, Any]) -> None:
    plain, changed = run(**changes), run(event, **changes)
    assert plain.steps[:AT].tobytes() == changed.steps[:AT].tobytes()
    now = plain.steps["start_s"][AT]
    for name in ("scrapes", "queue_scrapes"):
        before, after = getattr(plain, name), getattr(changed, name)
        if "instance" in before.dtype.names:  # an instance of later is there, and down
            before, after = before[before["instance"] < 3], after[after["instance"] < 3]
        assert before[before["time_s"] <= now].tobytes() == after[after["time_s"] <= now].tobytes()
    ended = (plain.samples["finish_s"] >= 0) & (plain.samples["finish_s"] <= now)
    rows = np.flatnonzero(ended)
    assert len(rows) >= AT * 64
    for column in ("target", "instance", "start_s", "first_token_s", "finish_s"):
        assert np.array_equal(plain.samples[column][rows], changed.samples[column][rows])
    assert plain.steps.tobytes() != changed.steps.tobytes()


def test_a_slower_sync_takes_longer_in_all_its_parts() -> None:
    records = run({"sync_slowdown": 2.0}, ({"step": 16, "sync_slowdown": 1.0},))
    block, syncs = records.steps["sync_block_s"], records.syncs
    assert block == pytest.approx([0.7] * AT + [1.4] * 8 + [0.7] * 8)
    pause, publish = syncs["end_s"] - syncs["pause_start_s"], syncs["pause_start_s"] - syncs["trigger_s"]
    slow = (syncs["step"] >= AT) & (syncs["step"] < 16)
    assert pause == pytest.approx(np.where(slow, 2.0, 1.0))
    assert publish == pytest.approx(np.where(slow, 1.0, 0.5))


def test_responses_sent_from_then_on_are_longer() -> None:
    plain, longer = run(), run({"length_factor": 1.5}, ({"step": 16, "length_factor": 1.0},))
    n = min(len(plain.samples), len(longer.samples))
    drawn, made = plain.samples["target"][:n], longer.samples["target"][:n]
    sent = longer.groups["submit_s"][longer.samples["group"][:n]]
    first, last = longer.steps["start_s"][[AT, 16]]
    stretched = (sent >= first) & (sent < last)
    expected = np.where(stretched, np.clip(np.rint(drawn * 1.5), 1, 800), drawn)
    assert made.tolist() == expected.tolist()
    assert stretched.any()
    assert (made == 800).sum() > (drawn == 800).sum()


def test_a_lost_instance_stays_away_and_its_work_is_done_elsewhere() -> None:
    records = run({"lose_instance": 1})
    now = records.steps["start_s"][AT]
    column = records.scrapes.reshape(-1, 3)[:, 1]
    assert column["up"][column["time_s"] < now].all()
    assert not column["up"][column["time_s"] > now + 0.5].any()
    late = records.samples[(records.samples["finish_s"] > now + 0.5)]
    assert set(late["instance"].tolist()) == {0, 2}
    assert np.count_nonzero(records.groups["status"] == t.G_TRAINED) == 24 * 16
    assert records.steps["down_s"][-1] == pytest.approx(records.steps["end_s"][-1] - now, abs=0.5)


def test_a_lost_instance_that_was_restarting_does_not_come_back() -> None:
    always = {"fleet__failures__mtbf_s": 5.0, "fleet__failures__restart_s": 30.0, "run__steps": 30}
    records = run({"lose_instance": 1}, **always)
    now = records.steps["start_s"][AT]
    column = records.scrapes.reshape(-1, 3)[:, 1]
    assert not column["up"][column["time_s"] > now + 0.5].any()


def test_a_fleet_that_grows_again_has_a_new_instance_in_its_place() -> None:
    records = run({"lose_instance": 2}, ({"step": 12, "instances": 2}, {"step": 16, "instances": 3}))
    column = records.scrapes.reshape(-1, 3)[:, 2]
    back = column[column["time_s"] > records.steps["start_s"][16]]
    assert back["up"].all()
    assert back["incarnation"].tolist() == [1] * len(back)


def test_a_fleet_without_instances_is_stuck() -> None:
    with pytest.raises(StuckError):
        run({"lose_instance": 0}, ({"step": AT, "lose_instance": 1}, {"step": AT, "lose_instance": 2}))


def test_an_instance_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match=r"run\.events\[0\]\.lose_instance"):
        run({"lose_instance": 3})
    run({"lose_instance": 3}, ({"step": AT + 1, "instances": 4},))  # not there yet: nothing to lose


def test_a_response_that_no_longer_fits_is_refused() -> None:
    with pytest.raises(InputError, match=r"engine\.kv_blocks"):
        run({"length_factor": 3.0}, workload__output_tokens=400, engine__kv_blocks=70)


def test_a_plan_keeps_what_has_nothing_to_do_with_the_count() -> None:
    events = [
        {"step": 2, "instances": 5, "sync_slowdown": 2.0},
        {"step": 3, "lose_instance": 1},
        {"step": 4, "length_factor": 1.1},
    ]
    scenario = planned(with_changes(default_scenario(), JOB | {"run.events": events}), set())
    kept = [e.model_dump(exclude_none=True) for e in scenario.run.events]
    assert kept == [{"step": 2, "sync_slowdown": 2.0}, {"step": 4, "length_factor": 1.1}]
