"""What is advised, typed: drawn jobs, each asked again with the flags of its change."""

from __future__ import annotations

import random
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.job.trials import Trials
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_change_that_is_typed_gives_what_was_said(seed: int) -> None:
    job = fs.load(None, {"run.steps": 10}, replications=2, **drawn(seed))
    now = job.size()
    change = now.plan.change
    if change is None:
        return
    changes, options = typed(change.flag)
    after = job.with_(changes, **options)
    assert after["engine.tp"] == job["engine.tp"]
    asked = after.size()
    assert asked.instances == change.instances or change.instances == now.instances
    # The fleet that is named; asked for another one, where the count was to stay, `size` says so itself.
    there = Trials(asked.plan.scenario).at(change.instances, 2)
    saves = [now.mean[name] - there.mean(name) for name in ("cost_per_step", "step_s")]
    assert saves == pytest.approx([change.saves_usd, change.saves_s], rel=1e-9, abs=1e-9)
