"""The simulator of other people's histories is right where theory says what must come out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fleetsim.history.files import read_file
from tests.replay.independent import Job, Ran, run

TRAINER_BOUND = Job()
ROLLOUT_BOUND = Job(instances=1, in_flight=128, staleness=50.0, cv=0.05, sync="none")


def last(ran: Ran, name: str, target: str) -> float:
    return next(v[-1] for (sample, where), (_, v) in ran.series.items() if sample == name and target in str(where))


def test_a_trainer_that_never_waits_takes_its_own_seconds() -> None:
    ran = run(TRAINER_BOUND, 1.0)
    assert ran.step_s == pytest.approx(40.0 + 1.5, abs=1e-6)


def test_a_full_engine_makes_a_batch_in_its_tokens_over_its_rate() -> None:
    """128 requests in flight: one iteration gives each a token, and stands for the prompts in between."""
    ran, job = run(ROLLOUT_BOUND, 2.0), ROLLOUT_BOUND
    rate = 128 / (job.fixed_s + 128 * job.each_s)
    prompts = job.batch // job.group * job.prompt_tokens * job.prefill_s
    assert ran.step_s == pytest.approx(job.batch * 600.5 / rate + prompts, rel=0.02)


def test_tokens_are_kept() -> None:
    ran = run(TRAINER_BOUND, 1.0)
    trained = last(ran, "rl_trainer_trained_tokens_total", "trainer")
    made = sum(last(ran, "vllm:generation_tokens_total", f"rollout-{i}") for i in range(4))
    assert 0 < made - trained < 2.1 * 256 * 700  # at most two batches are under way


def test_the_text_reads_as_the_series_do(tmp_path: Path) -> None:
    ran = run(TRAINER_BOUND, 0.25)
    read, direct = read_file(ran.write(tmp_path / "history.om"), step_s=15.0), ran.history()
    assert read.instances == direct.instances
    for name, values in direct.values.items():
        assert read.values[name] == pytest.approx(values, nan_ok=True, rel=1e-9)
    assert not math.isnan(float(direct.fleet["trainer.steps"][-1]))
