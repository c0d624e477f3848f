"""What engines lose inside a job: the table, what is taken of it, and that it reaches the iteration times."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import pytest

import fleetsim as fs
from fleetsim.config import data_files, load_scenario
from fleetsim.config.judges import as_rollout
from fleetsim.engine import slowdown
from fleetsim.engine.slowdown import RUNS, InAJob, off_by, slowdown_of
from fleetsim.records import replace
from fleetsim.sim.engines import engine_of
from fleetsim.sim.judges import judge_engine
from tests.profiles import profile_file, provenance

FRAMEWORKS = sorted({row.framework for row in RUNS})


def without(row: InAJob, case: str) -> tuple[InAJob, ...]:
    """The table without one run."""
    fewer = replace(row, ratios={name: ratio for name, ratio in row.ratios.items() if name != case})
    return tuple(fewer if other is row else other for other in RUNS)


def left_out(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """|ln(run / what the other runs would have told for it)|, of every run."""
    errors = []
    for row in RUNS:
        for case, ratio in row.ratios.items():
            with monkeypatch.context() as patch:
                patch.setattr(slowdown, "RUNS", without(row, case))
                errors.append(abs(math.log(ratio / slowdown_of(row.framework))))
    return errors


def test_runs_tell_each_other_better_than_nothing_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says: off by 16 % in the median, 22 % with no slowdown at all."""
    errors = left_out(monkeypatch)
    alone = [abs(math.log(ratio)) for row in RUNS for ratio in row.ratios.values()]
    assert math.expm1(median(errors)) == pytest.approx(0.16, abs=0.015)
    assert math.expm1(median(alone)) == pytest.approx(0.22, abs=0.005)


def test_a_framework_lies_between_its_runs_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = slowdown_of(None)
    assert everywhere == median(ratio for row in RUNS for ratio in row.ratios.values())
    for framework in FRAMEWORKS:
        own = median(ratio for row in RUNS if row.framework == framework for ratio in row.ratios.values())
        assert min(own, everywhere) <= slowdown_of(framework) <= max(own, everywhere)
    assert slowdown_of("unheard of") == everywhere


def test_a_known_framework_is_less_in_doubt() -> None:
    for low, high in (off_by("verl"), off_by(None)):
        assert low * high == pytest.approx(1.0)
    assert off_by("verl")[1] < off_by("unheard of")[1] == off_by(None)[1]


def test_iterations_take_so_many_times_as_long() -> None:
    alone, inside = (engine_of(fs.load(slowdown=factor).scenario, log_probs=False)[0] for factor in (1.0, 1.3))
    asked, _ = engine_of(fs.load(slowdown=1.3).scenario)
    for held in ((1, 0, 512.0, 0.0), (64, 0, 64e3, 0.0), (32, 2048, 32e3, 3e6)):
        assert inside.seconds(*held) == pytest.approx(1.3 * alone.seconds(*held), rel=1e-12)
        assert asked.seconds(*held) - inside.seconds(*held) == pytest.approx(held[0] * 10e-6, rel=1e-9)


def test_log_probs_are_in_what_was_seen_in_a_job_and_judges_are_not_asked_for_them(tmp_path: Path) -> None:
    """A constant rate, and a profile of a job; a profile of the engine alone pays for them."""
    rate = fs.load(instance_tok_s=4000.0).scenario
    assert engine_of(rate)[0].per_seq_s == engine_of(rate, log_probs=False)[0].per_seq_s
    for source, more in (("vllm", 10e-6), ("job", 0.0), ("job, a window", 0.0), ("jobs", 10e-6)):
        path = profile_file(tmp_path, f"{source}.json", provenance=provenance(source=source))
        job = fs.load(profile=path, slowdown=1.0).scenario
        with_them, without_them = (engine_of(job, log_probs=asked)[0].per_seq_s for asked in (True, False))
        assert with_them - without_them == pytest.approx(more, abs=1e-12)
    judged = fs.load(None, {"stations.judge": {"instances": 1, "engine": {"gpu": "H100"}}}).scenario
    judge = judged.stations.judge
    assert judge is not None
    assert judge_engine(judged, "judge", judge)[0] == engine_of(as_rollout(judged, judge), log_probs=False)[0]


def test_drafts_are_slowed_as_well() -> None:
    changes = {"engine.speculation": {"method": "ngram", "num_speculative_tokens": 3, "acceptance": 0.6}}
    alone, inside = (
        engine_of(fs.load(None, changes, slowdown=factor).scenario, log_probs=False)[0].decode_tok_s(16, 2000.0)
        for factor in (1, 2)
    )
    assert alone == pytest.approx(2 * inside, rel=1e-12)


@pytest.mark.parametrize("preset", sorted(data_files.presets()))
def test_presets_take_what_their_framework_is_known_for(preset: str) -> None:
    job = fs.load(preset)
    named = job.scenario.trainer.recipe.framework
    assert job.scenario.engine.slowdown == slowdown_of(named)
    assert load_scenario(preset).engine.slowdown == 1.0
    known = ("areal", "nemo-rl", "open-instruct", "openrlhf", "prime-rl", "roll-", "skyrl", "slime", "tinker", "trl")
    assert (named is not None) == preset.startswith((*known, "verl"))


def test_what_was_given_stands() -> None:
    assert fs.load(slowdown=1.0).scenario.engine.slowdown == 1.0
    assert fs.load(None, {"engine.slowdown": 1.7}).scenario.engine.slowdown == 1.7
    assert fs.load(instance_tok_s=4000.0).scenario.engine.slowdown == 1.0
    stragglers = fs.load(None, {"fleet.instances": 2, "fleet.speed_factors": [1.0, 2.0]})
    assert stragglers.scenario.engine.slowdown == slowdown_of(None)


@pytest.mark.slow
def test_it_is_told_as_assumed_and_read_again() -> None:
    job = fs.load(batch=256, len=800)
    said = {a.path: a for a in job.size().plan.assumptions}
    assert said["engine.slowdown"].flag == "--slowdown"
    assert "1.22 times as long" in said["engine.slowdown"].text
    again = fs.load(job.scenario.model_dump(mode="json", exclude_unset=True))
    assert again.scenario.engine.slowdown == job.scenario.engine.slowdown
    assert "engine.slowdown" in again.scenario.assumed
