"""Evaluations and checkpoints every N steps: timelines by hand, what theory says of them, and runs that end by
themselves."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from fleetsim.config import load_scenario, with_changes
from fleetsim.config.scenario import most_steps
from fleetsim.engine.model.names import model_shape
from fleetsim.errors import InputError
from fleetsim.job.facts import checkpoint_line, evaluation_line
from fleetsim.job.input_moves import in_doubt
from fleetsim.job.trials import flat
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.periodic import write_seconds
from fleetsim.sim.records import Records
from fleetsim.sim.replications import replicate
from fleetsim.sim.run import PRECISION, off_by, simulate
from fleetsim.sim.window import window_of
from tests.sim.timelines import FREE, limited, play, sends, whole

# Two samples of 2 s a batch, one at a time: 4 s; training 4 s; an evaluation of three samples of 2 s after every second
# step: 6 s on the one rollout instance, 2 s on instances that take all three at once.
# at, blocking -> ends of the steps, seconds that the trainer is held in each
EVALUATIONS: dict[tuple[str, bool], tuple[tuple[int, ...], tuple[int, ...]]] = {
    # 0-4 wait, 4-8 train | 8-16 | 16-22 evaluation | 22-30 | 30-38 | 38-44
    ("rollout", True): ((8, 22, 30, 44), (0, 6, 0, 6)),
    # 16-22 the instance answers, 22-26 it makes the batch, 26-30 train | 30-38
    ("rollout", False): ((8, 16, 30, 38), (0, 0, 0, 0)),
    ("own", True): ((8, 18, 26, 36), (0, 2, 0, 2)),
    ("own", False): ((8, 16, 24, 32), (0, 0, 0, 0)),
    ("trainer", True): ((8, 18, 26, 36), (0, 2, 0, 2)),
    ("trainer", False): ((8, 18, 26, 36), (0, 2, 0, 2)),  # its GPUs cannot do both
}
EVALUATED: dict[str, Any] = {
    "evaluation__every_steps": 2, "evaluation__samples": 3, "evaluation__output_tokens": 300,
    "evaluation__prompt_tokens": 1, "fleet__max_in_flight_samples_per_instance": 1, "admission__law": "barrier",
}  # fmt: skip


@pytest.mark.parametrize(("at", "blocking"), EVALUATIONS)
def test_evaluations_by_hand(at: str, blocking: bool) -> None:
    records = play((2,), evaluation__at=at, evaluation__blocking=blocking, **EVALUATED)
    assert (whole(records.steps["end_s"]), whole(records.steps["evaluation_s"])) == EVALUATIONS[at, blocking]


def test_requests_of_an_evaluation_are_in_no_table_and_in_no_trained_token() -> None:
    records = play((2,), **EVALUATED)
    assert len(records.samples) == len(records.groups) == 8
    assert list(records.samples["group"]) == list(records.groups["first"]) == list(range(8))
    assert list(records.steps["evaluation_tokens"]) == [0, 600, 600, 1200]
    of = metrics_of(records)
    assert (of["tokens_per_trained_token"], of["evaluation_s"], of["step_s"]) == pytest.approx((1.0, 6.0, 11.0))
    assert of["evaluation_fraction"] == pytest.approx(12 / 44)


def test_an_evaluation_that_is_due_waits_for_the_one_before() -> None:
    """Each takes 20 s beside steps of 8 s, after every second of them: 16-36, and the next is due at 32."""
    records = play((2,), evaluation__seconds=20.0, evaluation__blocking=False, **EVALUATED)
    assert whole(records.steps["end_s"]) == (8, 16, 24, 36)
    assert whole(records.steps["evaluation_s"]) == (0, 0, 0, 4)


@pytest.mark.parametrize("law", ["version_window", "per_sync_window", "target_step", "fixed_pool", "unbounded"])
def test_credits_of_no_law_are_spent_on_evaluations(law: str) -> None:
    """With engines that hold everything at once and one speed, requests beside them change no group's time."""
    changes = dict(EVALUATED, evaluation__blocking=False, admission__law=law, admission__pool_samples=6)
    del changes["fleet__max_in_flight_samples_per_instance"]
    changes |= {"buffer__capacity_samples": 8} if law == "unbounded" else {}
    changes |= {"buffer__batch_rule": "exact_target_step"} if law == "target_step" else {}
    with_it, without = (
        play((2, 3, 1), engine=limited(FREE), **dict(changes, evaluation__every_steps=n)) for n in (2, None)
    )
    assert sends(with_it, 8) == sends(without, 8)
    assert whole(with_it.steps["end_s"]) == whole(without.steps["end_s"])


def test_a_killed_instance_answers_again() -> None:
    """At 16 the evaluation begins; at 18 its instance of the two dies. The other answers what was lost."""
    events = [{"step": 2, "lose_instance": 1}]
    records = play((2,), fleet__instances=2, run__events=events, **dict(EVALUATED, evaluation__blocking=False))
    assert len(records.evaluations) >= 1
    assert records.steps["evaluation_tokens"][-1] >= 600


def saved(**changes: Any) -> Records:
    return play((2,), trainer__checkpoint__every_steps=2, run__steps=6, **changes)


def test_checkpoints_by_hand() -> None:
    """4 s of training bind; samples are there from the second step on."""
    plain = {"trainer__checkpoint__stall_s": 1.0, "trainer__checkpoint__write_bytes_s": 1e9}
    written = {**plain, "trainer__checkpoint__state_bytes": 3e9}
    assert whole(saved(trainer__checkpoint__stall_s=1.0).steps["checkpoint_s"]) == (0, 1, 0, 1, 0, 1)
    assert whole(saved(**written).steps["checkpoint_s"]) == (0, 4, 0, 4, 0, 4)
    assert whole(saved(**written, trainer__checkpoint__background=True).steps["checkpoint_s"]) == (0, 1, 0, 1, 0, 1)
    # 12 s of writing, and the next is due 8 s later: it waits 4 s, then stands still for 1
    slow = {**plain, "trainer__checkpoint__state_bytes": 12e9, "trainer__checkpoint__background": True}
    assert whole(saved(**slow).steps["checkpoint_s"]) == (0, 1, 0, 5, 0, 5)


def test_bytes_of_a_checkpoint_follow_from_the_model() -> None:
    job = with_changes(load_scenario("async-one-step"), {"trainer.checkpoint": {"write_bytes_s": 2e9}})
    assert write_seconds(job) == 14.0 * model_shape(job.engine.model).params / 2e9
    with pytest.raises(InputError, match=r"trainer\.checkpoint\.state_bytes"):
        write_seconds(with_changes(job, {"trainer.recipe.model": "nobody/knows"}))


BOUND = {"run.seed": 3, "fleet.instances": 8, "trainer.batch_samples": 64, "trainer.fixed_s": 60.0}


@pytest.mark.parametrize("every", [1, 7, 10])
def test_a_step_of_a_trainer_that_binds_takes_its_share_longer(every: int) -> None:
    """Theory: step + seconds / N, for evaluations and checkpoints together, and to the last bit of the mean."""
    plain = with_changes(load_scenario("async-one-step"), BOUND)
    held = {"evaluation": {"every_steps": every, "seconds": 33.0}, "trainer.checkpoint": {"every_steps": 5}}
    more = with_changes(plain, {**held, "trainer.checkpoint.stall_s": 9.0})
    without, with_them = (metrics_of(simulate(job))["step_s"] for job in (plain, more))
    assert with_them == pytest.approx(without + 33.0 / every + 9.0 / 5, rel=1e-9)


@pytest.mark.parametrize("every", [10, 150])
def test_a_run_ends_with_a_whole_period_and_counts_whole_ones(every: int) -> None:
    job = with_changes(load_scenario("async-one-step"), {"evaluation": {"every_steps": every, "samples": 64}})
    records = simulate(job)
    window = window_of(records)
    assert len(window.steps) % every == 0
    assert len(window.steps) >= every * (2 if every > 50 else 8)
    assert len(records.steps) <= most_steps(job)
    assert len(window.steps) // every == sum(row["step"] >= window.first for row in records.evaluations)


def test_a_promise_is_the_mean_of_a_long_run() -> None:
    changes = {"evaluation": {"every_steps": 10, "samples": 512}, "trainer.batch_samples": 128}
    job = with_changes(load_scenario("async-one-step"), changes)
    short, long = (metrics_of(simulate(one)) for one in (job, with_changes(job, {"run.steps": 400})))
    assert short["step_s"] == pytest.approx(long["step_s"], rel=2 * PRECISION)
    assert short["evaluation_fraction"] == pytest.approx(long["evaluation_fraction"], rel=0.1)


def test_the_interval_of_periodic_steps_is_that_of_whole_periods() -> None:
    steps = list(itertools.islice(itertools.cycle([10.0] * 9 + [60.0]), 84))
    assert off_by(np.array(steps), 10) == 0.0
    assert off_by(np.array(steps[:-15])) > 0.1
    assert off_by(np.array(steps[:19]), 10) == float("inf")


def test_the_lines_say_what_it_costs() -> None:
    changes = {
        "evaluation": {"every_steps": 10, "seconds": 30.0},
        "trainer.checkpoint": {"every_steps": 20, "write_bytes_s": 1e10},
        "run.replications": 1,
    }
    job = with_changes(load_scenario("async-one-step"), {**BOUND, **changes})
    of = flat(replicate(job).metrics)
    assert evaluation_line(of, job) == "every 10 steps, as measured: 30.0 s each, holds the trainer 3.0 s a step"
    assert checkpoint_line(of, job).startswith("every 20 steps: 10.7 s each, holds the trainer 533 ms a step")
    doubt = {u.what: ends for u, ends in in_doubt(job, ())}
    assert doubt["checkpoint seconds"] == (0.5, 3.0)
    given = with_changes(job, {"trainer.checkpoint.state_bytes": 1e11})
    assert "checkpoint seconds" not in {u.what for u, _ in in_doubt(given, ("trainer.checkpoint.write_bytes_s",))}


def test_evaluations_need_engines() -> None:
    with pytest.raises(InputError, match=r"evaluation\.instances.*make 0 instances"):
        with_changes(
            load_scenario("async-one-step"),
            {"trainer.gpus": 1, "engine.tp": 2, "evaluation": {"every_steps": 5, "at": "trainer"}},
        )
