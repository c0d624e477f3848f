"""What the trainer loses by itself is told as the trainer's: waits beside a batch that is ready, time in no counter."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetsim.config.load import scenario_from_mapping
from fleetsim.config.scenario import Scenario
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.diagnose.finding import Verdict
from fleetsim.replay.observe.observe import observe
from tests.replay.independent import Job, run
from tests.replay.windows import HEALTHY, exported, window


def judged(job: Job, hours: float = 1.5) -> Verdict:
    return diagnose(observe(run(job, hours).history()), Scenario())


@pytest.mark.parametrize(
    ("job", "title"),
    [
        (Job(late_s=20.0, staleness=2.0), "waits beside samples that are ready"),
        (Job(late_s=20.0, staleness=1.0, instances=2), "waits beside samples that are ready"),
        (Job(lost_s=20.0), "a part of its step is in no counter"),
    ],
)
def test_the_trainers_own_time_binds(job: Job, title: str) -> None:
    """Neither more staleness nor another fleet would give it back: removed, a step is 20 s shorter."""
    verdict = judged(job)
    assert verdict.binding == "trainer", verdict.headline
    assert verdict.starves != "trainer"
    found = {f.check: f for f in verdict.findings}
    assert found["trainer"].title == title
    assert any("20." in said and "of a step" in said for said in found["trainer"].evidence)
    assert found["trainer"].gpu_h_per_day is not None
    assert found["trainer"].gpu_h_per_day > 24 * 8 * 0.25  # of eight trainer GPUs, a quarter of the time or more
    assert found["rollout"].state == "ok"
    assert found["backlog"].state == "ok"


@pytest.mark.parametrize("job", [Job(), Job(staleness=0.0, instances=3), Job(instances=1, staleness=2.0)])
def test_a_trainer_that_waits_for_rollout_or_for_nothing_is_healthy(job: Job) -> None:
    found = {f.check: f for f in judged(job).findings}
    assert found["trainer"].state == "ok"


@settings(max_examples=5, deadline=None)
@given(
    late_s=st.floats(0, 40),
    staleness=st.sampled_from([0.0, 1.0, 3.0]),
    instances=st.integers(2, 4),
    scrape_s=st.sampled_from([5.0, 15.0, 30.0]),
)
@example(late_s=1.0, staleness=3.0, instances=2, scrape_s=5.0)
def test_waiting_beside_a_batch_is_never_overstated(
    late_s: float, staleness: float, instances: int, scrape_s: float
) -> None:
    """Whatever the trainer waits for, and however often one looks: the share is at most what it truly is.

    Steps of whole multiples of the scrape interval would be seen at the same few of their moments for ever. The first
    step, which waits for the first samples of all, is over before the counters show one.
    """
    ran = run(Job(late_s=late_s, staleness=staleness, instances=instances, train_s=25.7), 1.0, scrape_s)
    found = observe(ran.history()).trainer.ready_share
    waits = [wait for _, wait, *_ in ran.steps[1:]]
    true = late_s * len(waits) / sum(waits) if sum(waits) else 0.0
    assert (found or 0.0) <= true + 0.1
    if staleness == 3.0 and late_s > 5.0:  # the queue always holds a batch
        assert found is not None
        assert found > 0.9


def test_a_trainer_that_waits_for_certain_samples_says_so() -> None:
    waits = window(HEALTHY, **{
        "trainer.wait_s": exported(10.0), "trainer.step_s": exported(34.0), "trainer.idle_fraction": exported(10 / 34),
        "trainer.ready_share": 1.0,
    })  # fmt: skip
    asked = scenario_from_mapping({}, "test", ("buffer.wait_for_oldest=true",))
    named = diagnose(waits, asked, given=("buffer.wait_for_oldest",))
    assert next(f for f in named.findings if f.check == "trainer").state == "ok"
    assert named.starves == "trainer"
    assert diagnose(waits, Scenario()).binding == "trainer"


def test_checkpoints_of_the_scenario_are_accounted_for() -> None:
    stalls = window(HEALTHY, **{"trainer.step_s": exported(30.0)})
    saved = ("trainer.checkpoint.every_steps=10", "trainer.checkpoint.stall_s=60")
    asked = scenario_from_mapping({}, "test", saved)
    given_ = tuple(s.partition("=")[0] for s in saved)
    assert diagnose(stalls, Scenario()).binding == "trainer"
    trainer = next(f for f in diagnose(stalls, asked, given=given_).findings if f.check == "trainer")
    assert trainer.state == "ok"
