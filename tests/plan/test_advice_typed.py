"""What is advised, typed: drawn jobs, each asked again with the flags of its change."""

from __future__ import annotations

import random
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.job.trials import Trials, planned
from fleetsim.search.alternative import Anew
from fleetsim.search.levers import LARGER_TRAINER, SMALLER_TRAINER
from tests.plan.typed import typed


def drawn(seed: int) -> dict[str, Any]:
    """Options of a job that leave much to be chosen: the TP, the trainer's GPUs and its seconds."""
    draw = random.Random(seed)
    options: dict[str, Any] = {
        "model": draw.choice(["Qwen/Qwen2.5-7B", "Qwen/Qwen3-14B", "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B"]),
        "gpu": draw.choice(["H100-SXM", "B200", "A100"]),
        "batch": draw.choice([128, 256, 512]),
        "len": float(draw.choice([600, 1500, 3000])),
        "max_staleness": float(draw.choice([0, 1, 2, 4])),
    }
    return options | draw.choice([{}, {"len_cv": 1.5}, {"trainer_step_s": 30.0}, {"max_len": 6000}])


def _typed_it_gives(job: fs.Job, flag: str, said: Anew) -> None:
    """What was said is what so many runs of the typed job with that count come to, to the last digit."""
    changes, options = typed(flag)
    after = job.with_(changes, **options)
    there = Trials(planned(after.scenario, after.given)).at(said.instances, said.trial.replications)
    names = ("step_s", "cost_per_step")
    assert [there.mean(name) for name in names] == pytest.approx([said.trial.mean(name) for name in names], rel=1e-9)


# Of the first twenty: what takes least to simulate, with every kind of change that there is among them (a smaller and a
# larger trainer, staleness, a sync every second step, a cap on the responses).
CHEAP = (1, 2, 3, 14, 18)


@pytest.mark.parametrize("changes", [{"trainer.fixed_s": 30.0}, {"fleet.placement": "colocated"}])
def test_nothing_is_said_of_another_trainer_whose_seconds_nobody_knows_or_whose_gpus_are_shared(
    changes: dict[str, Any],
) -> None:
    job = fs.load(None, {"run.steps": 6, **changes}, replications=1, batch=64, len=300.0)
    assert not {LARGER_TRAINER, SMALLER_TRAINER} & {a.name for a in job.size().plan.alternatives.tried}


@pytest.mark.parts
@pytest.mark.slow
@pytest.mark.parametrize("seed", CHEAP)
def test_a_change_that_is_typed_gives_what_was_said(seed: int) -> None:
    job = fs.load(None, {"run.steps": 10}, replications=2, **drawn(seed))
    now = job.size()
    for other in now.plan.alternatives.tried:
        if other.anew is not None and other.anew.saves:
            _typed_it_gives(job, other.flag.own, other.anew)
    change = now.plan.change
    if change is None:
        return
    changes, options = typed(change.flag)
    after = job.with_(changes, **options)
    assert after["engine.tp"] == job["engine.tp"] or "--tp" in change.flag
    asked = after.size()
    assert asked.instances == change.instances or change.instances == now.instances
    # The fleet that is named; asked for another one, where the count was to stay, `size` says so itself.
    there = Trials(asked.plan.scenario).at(change.instances, 2)
    saves = [now.mean[name] - there.mean(name) for name in ("cost_per_step", "step_s")]
    assert saves == pytest.approx([change.saves_usd, change.saves_s], rel=1e-9, abs=1e-9)


def test_the_size_of_an_engine_that_is_advised_is_the_best_of_all() -> None:
    """On-policy, a step is its longest response: engines of more GPUs end it sooner. Each size is asked for alone."""
    options = {"model": "Qwen/Qwen2.5-7B", "batch": 64, "len": 3000.0, "max_len": 12_000, "max_staleness": 0.0}
    job = fs.load(None, {"run.steps": 10}, replications=2, trainer_gpus=8, tp=1, **options)
    now = job.size()
    of = {a.text: a.anew for a in now.plan.alternatives.moves() if a.text.startswith("engines of TP") and a.anew}
    asked = {tp: job.with_({}, tp=tp).size() for tp in (1, 2, 4)}  # eight do not divide its heads
    worth = {tp: answer.mean["step_s"] * answer.mean["cost_per_step"] for tp, answer in asked.items()}
    best = min(worth, key=worth.__getitem__)
    assert best > 1
    said = of[f"engines of TP{best} instead of TP1"]
    assert 1.0 - said.gain == pytest.approx(worth[best] / worth[1], rel=1e-9)
    assert said.gain == max(found.gain for found in of.values())
