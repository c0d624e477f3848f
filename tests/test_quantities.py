"""The catalogue of metrics against what a run has."""

from __future__ import annotations

from fleetsim.config import load_scenario
from fleetsim.job.trials import flat
from fleetsim.quantities import BY_NAME, CATALOGUE, METRICS, OF_JUDGES, STATIONS
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate


def test_the_catalogue_names_what_a_run_has() -> None:
    records = simulate(load_scenario("async-one-step", ["run.steps=4", "run.warmup_steps=1"]))
    found = flat(metrics_of(records))
    assert set(METRICS) == set(found) - {"binding"}
    assert len(METRICS) == len(set(METRICS)) == len(BY_NAME)


def test_the_catalogue_names_what_stations_have() -> None:
    limited = ["workload.turns.count=2", "stations.tools.workers=64", "workload.reward.workers=64"]
    records = simulate(load_scenario("async-one-step", ["run.steps=4", "run.warmup_steps=1", *limited]))
    assert {m.name for m in STATIONS} == set(flat(metrics_of(records))) - set(METRICS) - {"binding"}


def test_the_catalogue_names_what_judges_have() -> None:
    judges = [f"stations.{name}.reads_share=0.5" for name in ("judge", "teacher", "reference")]
    records = simulate(load_scenario("async-one-step", ["run.steps=4", "run.warmup_steps=1", *judges]))
    assert {m.name for m in OF_JUDGES} == set(flat(metrics_of(records))) - set(METRICS) - {"binding"}


def test_every_metric_says_what_it_is() -> None:
    for metric in (*CATALOGUE, *STATIONS, *OF_JUDGES):
        assert metric.title
        assert metric.formula
        assert not metric.formula.endswith(".")
