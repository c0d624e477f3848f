"""A fleet that nothing bounds: the right count, and a backlog that grows is named with its rate and its remedy.

Theory: I instances of r tok/s write I r / L samples per second of mean length L; the trainer takes B samples in a step
of T seconds. What is more piles up, B samples a step are enough for I >= B L / (r T).
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Any

import pytest

from fleetsim.api import load
from fleetsim.config.load import scenario_from_mapping, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.job.grounds import backlog_line, backlog_of, backlog_warnings
from fleetsim.job.job import job_from_flags
from fleetsim.job.looks import looked
from fleetsim.job.trials import Trial, Trials, with_instances
from fleetsim.search.best import best_of
from fleetsim.search.objective import price_per_s
from fleetsim.search.rate_matching import matched
from fleetsim.sim.window import pipeline_steps

BATCH, TOKENS, RATE, TRAINER_S = 128, 400, 1000.0, 20.0


def unbounded(**changes: Any) -> Scenario:
    """A constant rate, no sync, and a client that nothing holds back: full engines hold 512 samples, four batches."""
    job = scenario_from_mapping(
        {
            "engine": {"kind": "constant", "instance_tok_s": RATE, "max_num_seqs": 512},
            "trainer": {"batch_samples": BATCH, "fixed_s": TRAINER_S, "gpus": 8},
            "workload": {"output_tokens": TOKENS, "prompt_tokens": 1},
            "sync": {"pause_s": 0.0, "publish_s": 0.0, "trainer_block_s": 0.0},
            "admission": {"law": "unbounded"},
            "buffer": {"batch_rule": "fifo"},
        }
    )
    return with_changes(job, {path.replace("__", "."): value for path, value in changes.items()})


def long_run(scenario: Scenario, instances: int) -> Trial:
    return Trials(scenario).at(instances, 1)


LENGTHS: dict[str, Any] = {
    "of one length": TOKENS,
    "of many lengths": {"kind": "lognormal", "mean": float(TOKENS), "cv": 0.6},
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_a_constant_rate_without_a_bound_gets_the_count_that_covers_the_trainer(lengths: Any) -> None:
    """Full engines give their samples in bursts of four batches each: a look at a few steps sees either a burst or the
    wait for it. By theory the step of n instances is the longer of T and B L / (n r)."""
    job = unbounded(workload__output_tokens=lengths)
    work_s = BATCH * TOKENS / RATE
    theory = min(range(1, 12), key=lambda n: max(TRAINER_S, work_s / n) ** 2 * price_per_s(job, n))
    assert theory == math.ceil(work_s / TRAINER_S) == 3
    assert best_of(Trials(job), matched(job)[1], (), 1).instances == theory
    for n in (1, 2, 3, 5):
        expected = max(TRAINER_S, work_s / n)
        assert long_run(job, n).mean("step_s") == pytest.approx(expected, rel=0.05)


def test_what_is_in_flight_makes_a_pipeline_deep() -> None:
    for n in (1, 3, 7):
        here = with_instances(unbounded(), n)
        assert pipeline_steps(here) == n * 512 / BATCH
        waves = 2 * 3 * n * 4  # an empty fleet fills in waves: twice three fillings
        assert looked(here).run.steps == min(400, max(4_096 // BATCH, waves))
    assert pipeline_steps(unbounded(fleet__max_in_flight_samples=256)) == 2.0
    assert pipeline_steps(unbounded(fleet__instances=5, fleet__max_in_flight_samples_per_instance=256)) == 10.0
    window = {"admission.law": "version_window", "admission.max_staleness": 6.0}
    assert pipeline_steps(with_changes(unbounded(), window)) == 6.0


@pytest.mark.parametrize("instances", [4, 6, 12])
def test_the_rate_of_a_backlog_is_that_of_theory(instances: int) -> None:
    job = with_instances(unbounded(), instances)
    found = backlog_of(job, long_run(job, instances).estimates)
    assert found is not None
    per_s = instances * RATE / TOKENS - BATCH / TRAINER_S
    assert found.per_minute == pytest.approx(60 * per_s, rel=0.02)
    assert found.per_step == pytest.approx(TRAINER_S * per_s, rel=0.02)


def test_a_fleet_that_the_trainer_keeps_up_with_has_no_backlog() -> None:
    """Of two instances the trainer waits, although a burst of theirs fills the queue."""
    for n in (1, 2):
        assert backlog_line(with_instances(unbounded(), n), long_run(unbounded(), n).estimates) is None


def test_the_remedies_of_a_backlog_stop_it() -> None:
    """Each remedy as it is printed, typed after the job's own flags."""
    flags = {"batch": BATCH, "len": float(TOKENS), "len_cv": 0.3, "instance_tok_s": RATE, "trainer_step_s": TRAINER_S}
    sets = ["admission.law=unbounded", "engine.max_num_seqs=512"]
    job = with_changes(job_from_flags(None, sets, {**flags, "instances": 6}).scenario, {"run.steps": None})
    line = backlog_line(job, long_run(job, 6).estimates)
    assert line is not None
    window, capacity = (part.split(";")[0].split(",")[0] for part in line.split(" with ")[1:])
    words = [shlex.split(capacity), shlex.split(window)]
    assert words == [
        ["--set", "buffer.capacity_samples=256"],
        ["--set", "admission.law=version_window", "--max-staleness", "4"],
    ]
    typed = [(words[0][1], {}), (words[1][1], {"max_staleness": float(words[1][3])})]
    for setting, more in typed:
        mended = job_from_flags(None, [*sets, setting], {**flags, "instances": 6, **more}).scenario
        held = long_run(with_changes(mended, {"run.steps": None}), 6)
        assert abs(held.mean("queue_growth")) < 0.02 * BATCH
        assert held.mean("queue_depth") < 6 * 512 + 256
        assert backlog_warnings(mended, held.estimates) == ()


def test_caches_that_syncs_make_engines_compute_again_are_no_samples_that_are_lost() -> None:
    """Five tokens are computed again for each that is trained, and none of them is a sample less."""
    keep = with_instances(unbounded(workload__prompt_tokens=1000), 6)
    redo = with_changes(keep, {"sync.in_flight": "abort_resume", "sync.reset_prefix_cache": True})
    runs = [long_run(job, 6).estimates for job in (keep, redo)]
    assert runs[1]["waste.recomputed"].mean > 2.0
    found = [backlog_of(job, run) for job, run in zip((keep, redo), runs, strict=True)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[1].per_step == pytest.approx(found[0].per_step, rel=0.05)


def test_a_buffer_of_many_batches_makes_samples_as_much_older_as_is_told() -> None:
    job = with_instances(unbounded(buffer__capacity_samples=60 * BATCH), 4)
    now = long_run(job, 4).estimates
    (warning,) = backlog_warnings(job, now)
    found = backlog_of(job, now)
    assert found is not None
    assert found.until == 60 * BATCH
    assert f"until it holds {60 * BATCH:,} samples" in warning
    assert f"{round(found.older)} steps older" in warning
    full = Trials(with_changes(job, {"run.steps": 500, "run.warmup_steps": 420})).at(4, 1).estimates
    older = full["staleness_steps.p99"].mean - now["staleness_steps.p99"].mean
    assert older == pytest.approx(found.older, rel=0.1)
    assert backlog_of(job, full) is None


@pytest.mark.parts
def test_an_answer_says_one_count_of_fewer_instances() -> None:
    """What the change proposes is what the supply asks for; the backlog and its warning name no other."""
    flags = {"batch": BATCH, "len": float(TOKENS), "len_cv": 0.3, "instance_tok_s": RATE, "trainer_step_s": TRAINER_S}
    sets = {"admission.law": "unbounded", "engine.max_num_seqs": 512}
    result = load(None, sets, **flags, instances=6).simulate()
    said = {fact["name"]: fact["said"] for fact in result.document()["facts"] if "said" in fact}
    enough = result.alternatives.enough if result.alternatives is not None else None
    assert said["supply"] == f"more than the trainer takes, for good: reduce engines to {enough}"
    assert said["change"].startswith(f"--instances {enough} instead of 6")
    for text in (said["backlog"], *result.warnings):
        assert not re.search(r"\d+ (rollout )?instances?", text), text
