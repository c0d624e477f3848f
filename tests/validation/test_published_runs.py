"""Real published runs, predicted. The bands are wide enough for what is known to be left out (docs/published.md says
what, and the true errors), and narrow enough to catch a broken engine, trainer loop or admission law."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from docs import make_published
from docs.make_published import (
    LADDER,
    LADDER_WARMUP,
    ON_POLICY,
    ONE_OFF,
    RUNS,
    TRL,
    published_of,
    run_arm,
    staleness_versions,
    step_s,
)
from fleetsim.analysis.replicate import Replicated, replicate
from fleetsim.config import load_scenario

ROOT = Path(__file__).resolve().parents[2]

# Relative error of the step time that is let through: (lowest, highest).
BANDS = {TRL: (-0.05, 0.05), ON_POLICY: (-0.40, 0.10), ONE_OFF: (-0.20, 0.20)}


@cache
def predicted(name: str) -> Replicated:
    return replicate(load_scenario(name))


@pytest.mark.parametrize("name", RUNS)
def test_step_time(name: str, record_property: pytest.RecordProperty) -> None:
    run = predicted(name)
    published, _ = published_of(run.scenario)
    error = step_s(run) / published - 1
    line = f"{name:36} published {published:6.2f} s   predicted {step_s(run):6.2f} s   error {error:+6.1%}"
    record_property("published", line)
    low, high = BANDS[name]
    assert low <= error <= high, line


def test_trl_is_bound_by_its_trainer_behind_a_full_queue() -> None:
    """Published: the trainer waits 0.02 s, 476 of 512 samples are queued, mean staleness 1.5 versions."""
    run = predicted(TRL)
    assert run.metrics["binding"] == "trainer"
    assert run.metrics["trainer_idle_fraction"].mean < 0.005
    depth = run.runs[0].steps["queue_depth"][10:]
    assert depth.min() >= 384
    assert depth.max() <= 512
    assert 1.0 <= staleness_versions(run, 10) <= 2.0
    assert run.metrics["waste"]["stale"].mean < 0.01


def test_trl_ladder() -> None:
    """Published: each run of the ladder is faster than the one before; run 5 takes 6.36 s a step at staleness 2.0."""
    steps = []
    for arm in LADDER:
        run = run_arm(arm)
        steps.append(step_s(run))
        if arm.step_s is not None:
            assert step_s(run) == pytest.approx(arm.step_s, rel=0.15), arm.name
        if arm.staleness is not None:
            assert staleness_versions(run, LADDER_WARMUP) == pytest.approx(arm.staleness, abs=0.5), arm.name
    assert steps[:4] == sorted(steps[:4], reverse=True)
    assert steps[4] == pytest.approx(6.36, rel=0.05)


def test_nemo_generation_is_bound_by_the_longest_response() -> None:
    """2,048 samples on 16 engines, some at the cap of 3,969 tokens: those take 3,969 iterations, 7 to 12 ms each."""
    steps = predicted(ON_POLICY).runs[0].steps[2:]
    assert steps["wait_s"].min() > 3969 * 0.007
    assert steps["wait_s"].max() < 3969 * 0.012
    assert predicted(ON_POLICY).metrics["binding"] == "longest_response"


def test_nemo_one_step_off_trains_on_samples_one_step_old() -> None:
    """Published: average trajectory age 1.00 steps (pull request 1052)."""
    run = predicted(ONE_OFF)
    assert run.metrics["staleness_steps"]["mean"].mean == pytest.approx(1.0)
    assert predicted(ON_POLICY).metrics["staleness_steps"]["max"].mean == 0.0
    assert step_s(run) < step_s(predicted(ON_POLICY))


def test_the_page_is_what_the_script_writes() -> None:
    written, page = (ROOT / "docs" / "published.md").read_text(encoding="utf-8"), make_published.page()
    assert make_published.same(written, page), page


def test_a_page_that_drifted_is_told_from_one_that_did_not() -> None:
    assert make_published.same("5,681 tok/s, 1.3 s", "5,690 tok/s, 1.4 s")
    assert not make_published.same("5,681 tok/s", "5,900 tok/s")
    assert not make_published.same("bound by sync 1", "bound by trainer 1")
