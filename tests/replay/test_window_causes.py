"""What a window of engines and trainer says is wrong: the cause in `diagnosis`, of histories not made by fleetsim."""

from __future__ import annotations

import numpy as np
import pytest

from fleetsim.config.scenario import Scenario
from fleetsim.records import replace
from fleetsim.replay.diagnose.checks.case import Gains
from fleetsim.replay.diagnose.cures import CAUSES_OF, Cure, cures_of
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from tests.replay.independent import Job, run
from tests.replay.windows import STARVED, exported, window


def causes(observed: Observed, **more: object) -> tuple[Cure, ...]:
    return cures_of(observed, diagnose(observed, Scenario(), **more))


def seen(job: Job) -> Observed:
    return observe(run(job, 1.5).history())


STRAGGLER = Job(
    instances=5, slow={1: 3.5}, in_turn=True, each_s=4e-5, max_num_seqs=1024, mean_tokens=1500, cv=0.8,
    max_tokens=16384, batch=512, staleness=2.0,
)  # fmt: skip


@pytest.mark.parts
@pytest.mark.parametrize("instances", [3, 5])
def test_work_that_piles_up_on_a_slow_instance_is_no_weight_sync(instances: int) -> None:
    """Its requests make less than those of the others, all the time: that is its pace, and no stop of the fleet."""
    ran = run(replace(STRAGGLER, instances=instances), 1.5)
    observed = observe(ran.history())
    assert sum(p.seconds for p in observed.held) <= sum(step[4] for step in ran.steps)
    assert "weight sync slow" not in [cure.cause for cure in causes(observed)]


@pytest.mark.parametrize(("lost_s", "state"), [(100.0, "ok"), (250.0, "fault")])
def test_an_evaluation_that_nothing_counts_is_no_fault_and_a_third_of_the_time_is(lost_s: float, state: str) -> None:
    found = observe(run(Job(lost_s=lost_s, lost_every=8), 4.0).history())
    trainer = next(f for f in diagnose(found, Scenario()).findings if f.check == "trainer")
    assert trainer.state == state


@pytest.mark.parametrize(
    ("phases", "cause", "seconds"),
    [
        ({"ref_s": 28.0}, "reference log-probs slow", 25.0),  # a quarter of the update's 12 s is what a pass takes
        ({"logp_s": 28.0}, "log-probs slow", 25.0),
        ({"ref_s": 8.0, "logp_s": 8.0}, None, 0.0),
        ({"reward_s": 20.0}, "reward slow", 20.0),
    ],
)
def test_phases_that_a_trainer_exports_are_judged_as_a_log_s(
    phases: dict[str, float], cause: str | None, seconds: float
) -> None:
    """Gauges of the last step, as verl's own monitor has them; the 40 s of training hold log-probs, and no rewards."""
    history = run(Job(lost_s=phases.get("reward_s", 0.0)), 1.5).history()
    gauges = {f"trainer.{name}": np.full(len(history.times), value) for name, value in phases.items()}
    found = causes(observe(replace(history, fleet={**history.fleet, **gauges})))
    mine = [c for c in found if c.cause in CAUSES_OF["trainer"] and c.mean_s > 0]
    assert [c.cause for c in mine] == ([] if cause is None else [cause])
    assert sum(c.mean_s for c in mine) == pytest.approx(seconds, rel=0.03)


def test_samples_of_older_weights_are_of_pools_apart() -> None:
    """A slow judge lets the engines run dry in every step, as those do that take turns with the trainer."""
    judged = Job(judge_s=60.0, staleness=1.0, mean_tokens=600, batch=512, train_s=25.0)
    observed = seen(judged)
    assert observed.queue.oldest_age_max_steps is not None
    assert observed.queue.oldest_age_max_steps > 1
    assert observed.placement != "colocated"
    assert [c.phase for c in causes(observed)] == ["waiting for samples"]


@pytest.mark.parametrize(
    "judged", [Job(judge_s=60.0), Job(judge_s=120.0, train_s=20.0), Job(judge_s=60.0, staleness=0.0)], ids=str
)
def test_a_judge_that_nobody_scrapes_is_named_with_what_a_step_loses_by_it(judged: Job) -> None:
    """No engine has a request, and the trainer waits: the same job without the judge says what that costs."""
    first = causes(seen(judged))[0]
    lost = run(judged, 1.5).step_s - run(replace(judged, judge_s=0.0), 1.5).step_s
    assert first.cause == "judge or tool slow"
    assert first.mean_s == pytest.approx(lost, rel=0.06)
    assert first.low_s <= lost <= first.high_s * 1.03


@pytest.mark.parts
@pytest.mark.parametrize("judge_s", [20.0, 30.0])
def test_samples_that_come_while_no_engine_has_a_request_are_a_judge_s(judge_s: float) -> None:
    """Beside a trainer that is hardly ever alone with empty engines, how much it costs is known roughly."""
    judged = Job(judge_s=judge_s, train_s=20.0)
    first = causes(seen(judged))[0]
    lost = run(judged, 1.5).step_s - run(replace(judged, judge_s=0.0), 1.5).step_s
    assert first.cause == "judge or tool slow"
    assert first.low_s <= lost <= first.high_s


@pytest.mark.parametrize(
    "job",
    [
        Job(staleness=0.0), Job(cv=2.0, max_tokens=20_000, staleness=0.0), Job(instances=1, staleness=0.0),
        Job(instances=2, train_s=20.0), Job(cv=2.0, max_tokens=20_000, train_s=10.0), Job(late_s=30.0),
        Job(drop=0.5, instances=2, staleness=0.0), Job(in_flight=64, train_s=10.0),
    ],
    ids=str,
)  # fmt: skip
def test_a_wait_that_engines_explain_is_no_judge_s(job: Job) -> None:
    assert "judge or tool slow" not in [cure.cause for cure in causes(seen(job))]


def test_a_trainer_that_waits_beside_samples_thrown_away_for_their_age_is_told_so() -> None:
    waits = Job(staleness=4.0, instances=1, train_s=20.0, max_num_seqs=2048)
    old = seen(replace(waits, max_age=1))
    (cure,) = causes(old)
    assert cure.cause == "stale samples dropped"
    assert old.trainer.wait_s is not None
    assert cure.mean_s == pytest.approx(old.trainer.wait_s.value, rel=0.01)
    # a filter throws them away as they end, and one in twenty is no cause
    assert [c.cause for c in causes(seen(replace(waits, drop=0.4)))] == ["rollout slow"]
    few = {"queue.dropped_share": 0.05, "queue.dropped_at_steps": 1.0}
    assert [c.cause for c in causes(window(**STARVED, **few))] == ["rollout slow"]


def test_a_tail_is_named_where_more_instances_are_simulated_to_be_no_help() -> None:
    assert [c.cause for c in causes(window(**STARVED), gains=Gains({"rollout": 0.01}, was=8))] == ["long tail"]
    assert [c.cause for c in causes(window(**STARVED), gains=Gains({"rollout": 0.15}, was=8))] == ["rollout slow"]


def test_the_largest_of_two_comes_first() -> None:
    slow_sync = {"trainer.sync_s": exported(5.0), "trainer.train_s": exported(18.5)}
    found = causes(window(**STARVED, **slow_sync))
    assert [c.cause for c in found] == ["rollout slow", "weight sync slow"]
    assert [c.mean_s for c in found] == sorted((c.mean_s for c in found), reverse=True)
