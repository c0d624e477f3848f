"""What binds in a run of a search: found out when it is read, and the same as of the whole run."""

from __future__ import annotations

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.errors import InputError, StuckError
from fleetsim.job.trials import Trials
from fleetsim.sim import binding
from fleetsim.sim.binding import BindingVerdict
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from tests.analysis.nudges import random_job

SMALL = {"trainer.batch_samples": 64, "workload.group_size": 8, "run.steps": 8}


def test_a_verdict_that_is_read_later_is_that_of_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(12):
        try:
            run = simulate(random_job(seed))
        except (InputError, StuckError):
            continue
        told, window = metrics_of(run)["binding"], window_of(run)
        assert str(BindingVerdict(run, window)) == told
        monkeypatch.setattr(binding, "_MOST_KEPT", 0)
        assert str(BindingVerdict(run, window)) == told
        monkeypatch.undo()


def test_a_search_does_not_ask_what_binds_in_runs_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def asking(records: Records, window: object) -> str:
        asked.append(records.scenario.fleet.instances)
        assert window_of(records).span_s > 0
        return "rollout"

    monkeypatch.setattr(binding, "binding_of", asking)
    # The trainer always waits: else no sample is read, and the answer is known at once.
    trials = Trials(with_changes(default_scenario(), SMALL | {"trainer.fixed_s": 0.1}))
    for instances in (1, 2, 3):
        assert trials.at(instances, 2).mean("step_s") > 0
    assert asked == []
    assert trials.at(2, 2).binding == "rollout"
    assert trials.at(2, 2).binding == "rollout"
    assert asked == [2, 2]
