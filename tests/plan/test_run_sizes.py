"""How long runs of a search are, and which counts it takes: by what engines make, not by what is trained."""

from __future__ import annotations

import pytest

import fleetsim as fs
from fleetsim.config.scenario import most_steps, sent_samples, steps_ahead
from fleetsim.job.looks import look_steps
from fleetsim.job.trials import simulated
from fleetsim.search import best
from fleetsim.size.size import decided

HEAVY = {"trainer.batch_samples": 8192, "workload.filter.zero_variance_share": 0.9}


def test_what_is_filtered_is_made_all_the_same() -> None:
    usual, heavy = fs.load("verl-sync").scenario, fs.load("verl-sync", HEAVY).scenario
    assert (sent_samples(usual), sent_samples(heavy)) == (512, pytest.approx(81_920))
    assert (look_steps(usual), look_steps(heavy)) == (16, 4)
    assert (most_steps(usual), most_steps(heavy)) == (400, 19)


def test_a_run_of_many_turns_is_longer_than_what_may_be_ahead() -> None:
    turns = {"trainer.batch_samples": 4096, "workload.turns.count": 100, "admission.max_staleness": 6}
    job = fs.load("areal", turns).scenario
    assert steps_ahead(job) == 6
    assert most_steps(job) == 24  # three times the filling, where 32 are more turns than are worth it


def test_gpus_in_turn_are_laid_out_only_where_they_may_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is shorter than its longest responses, and a fleet costs in proportion: of 512 counts few are left, and
    brute force over them finds the same best one (test_colocated.py)."""
    laid_out: list[int] = []
    own = best.can_be
    monkeypatch.setattr(best, "can_be", lambda job, n: laid_out.append(n) or own(job, n))
    job = fs.load("verl-sync")
    found = decided(job.scenario, frozenset(), simulated)
    assert found.best.instances < max(laid_out) < 128
