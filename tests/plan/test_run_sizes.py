"""How long runs of a search are, and which counts it takes: by what engines make, not by what is trained."""

from __future__ import annotations

import pytest

import fleetsim as fs
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import most_steps, sent_samples, steps_ahead, work
from fleetsim.errors import InputError
from fleetsim.job.looks import look_steps, looked
from fleetsim.job.trials import planned, simulated
from fleetsim.search import best
from fleetsim.size.size import decided

HEAVY = {"trainer.batch_samples": 8192, "workload.filter.zero_variance_share": 0.9}


def test_what_is_filtered_is_made_all_the_same() -> None:
    usual, heavy = fs.load("verl-sync").scenario, fs.load("verl-sync", HEAVY).scenario
    assert (sent_samples(usual), sent_samples(heavy)) == (512, pytest.approx(81_920))
    assert (look_steps(usual), look_steps(heavy)) == (16, 3)
    assert (most_steps(usual), most_steps(heavy)) == (400, 12)


def test_a_run_of_many_turns_is_longer_than_what_may_be_ahead() -> None:
    turns = {"trainer.batch_samples": 4096, "workload.turns.count": 100, "admission.max_staleness": 6}
    job = fs.load("areal", turns).scenario
    assert steps_ahead(job) == 6
    assert most_steps(job) == 16  # twice the filling, where 16 are more work than is worth it
    fewer = fs.load("areal", turns | {"trainer.batch_samples": 512}).scenario
    assert most_steps(fewer) == 29  # where 32 are: three times the filling at least


def test_what_judges_are_asked_and_calls_that_are_made_again_are_work() -> None:
    """A vote for each sample makes a step as long as another sample does; one for a group of eight, an eighth of it."""
    judge = {"stations.judge.output_tokens": 100}
    plain, twice = (fs.load(None, {"trainer.batch_samples": n}).scenario for n in (1024, 2048))
    votes, groups = (fs.load(None, {"trainer.batch_samples": 1024, **judge, **per}).scenario
                     for per in ({}, {"stations.judge.per": "group", "stations.judge.votes": 8}))  # fmt: skip
    assert work(votes) == work(groups) == work(twice) == 2 * work(plain)
    assert most_steps(votes) == most_steps(groups) == most_steps(twice) < most_steps(plain)
    tools = {"workload.turns.count": 11, "stations.tools.failure_share": 0.99, "stations.tools.tries": 1000}
    often, once = (fs.load(None, tools | {"stations.tools.tries": n}).scenario for n in (1000, 1))
    assert work(often) > 10 * work(once)


def test_gpus_in_turn_are_laid_out_only_where_they_may_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is shorter than its longest responses, and a fleet costs in proportion: of 512 counts few are left, and
    brute force over them finds the same best one (test_colocated.py)."""
    laid_out: list[int] = []
    own = best.can_be
    monkeypatch.setattr(best, "can_be", lambda job, n: laid_out.append(n) or own(job, n))
    job = fs.load("verl-sync")
    found = decided(job.scenario, frozenset(), simulated)
    assert found.best.instances < max(laid_out) < 128


def test_a_job_that_no_search_ends_of_is_refused() -> None:
    """A step of a million samples, and one of half a million turns; a fifth of these is searched."""
    for changes, path in (
        ({"trainer.batch_samples": 1_000_000}, "trainer.batch_samples"),
        ({"workload.turns.count": 1000}, "workload.turns.count"),
    ):
        with pytest.raises(InputError, match=f"^{path}: .* times what a search has time for"):
            planned(fs.load(None, changes).scenario, ())
    assert planned(fs.load(None, {"workload.turns.count": 200}).scenario, ()).run.replications == 3


def test_a_batch_that_waits_for_its_engines_needs_a_short_look() -> None:
    """100,000 samples beside 1,000 places of one engine: a look of six steps has the step of one of fifteen."""
    job = planned(fs.load(None, {"trainer.batch_samples": 20_000, "fleet.instances": 1}).scenario, ())
    short, long = (float(simulated(s, 0)["step_s"]) for s in (looked(job), with_changes(job, {"run.steps": 15})))
    assert look_steps(job) == 6
    assert short == pytest.approx(long, rel=0.02)
