"""Engines and trainers of several jobs are told apart or refused, never merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.errors import InputError
from fleetsim.history.files import read_file
from fleetsim.history.history import History
from fleetsim.history.merge import same
from fleetsim.records import replace
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.run import possible
from tests.replay.independent import Job, Ran, run, write

MINE = Job(instances=3)
EVALS = Job(instances=2, name="eval", model="Qwen/Qwen3-32B", namespace="evals", trainer=False, seed=3)
OTHER = Job(instances=4, name="other", model="meta-llama/Llama-3.1-8B", namespace="rl-b", seed=4)


@cache
def ran(job: Job) -> Ran:
    return run(job, 1.0)


def refused(history: Callable[[], History]) -> str:
    with pytest.raises(InputError) as caught:
        seen(history())
    return str(caught.value)


def seen(history: History) -> Observed:
    """As a replay takes it."""
    return possible(observe(history), history)


def labelled(job: Job, label: str, instance: str = "gateway:9090") -> Ran:
    """The same engines behind one target, told apart by another label than pod or instance."""
    series = {}
    for (sample, target), values in ran(job).series.items():
        labels = dict(target)
        if pod := labels.pop("pod", ""):
            labels |= {"instance": instance, label: f"x{pod[-1]}"}
        series[sample, tuple(labels.items())] = values
    return replace(ran(job), series=series)


@pytest.mark.parametrize("others", [(EVALS,), (OTHER,), (EVALS, OTHER)])
def test_several_jobs_on_one_prometheus_ask_for_a_selector(others: tuple[Job, ...]) -> None:
    said = refused(lambda: ran(MINE).history(*(ran(job) for job in others)))
    assert "--selector" in said
    if EVALS in others:
        for words in ('model_name="Qwen/Qwen3-32B"', "eval-0", "rollout-0", "namespace", "job"):
            assert words in said


def test_the_selector_that_is_asked_for_picks_the_job(tmp_path: Path) -> None:
    path = write(tmp_path / "all.om", ran(MINE), ran(EVALS), ran(OTHER))
    result = CliRunner().invoke(app, ["replay", "--from", str(path), "--no-backtest"])
    assert result.exit_code == 2
    assert "several jobs at once" in result.stderr
    read = read_file(path, selector='job=~"rollout.*"')
    alone = ran(MINE).history()
    assert [str(i) for i in read.instances] == ["rollout-0", "rollout-1", "rollout-2"]
    assert read.fleet["trainer.steps"][-1] == alone.fleet["trainer.steps"][-1]
    engines = read_file(path, selector='namespace="rl"')  # matches neither of the two trainers
    assert "trainer.steps" not in engines.fleet
    assert any("none was read" in note.text for note in engines.notes)
    mine = ("--selector", 'job=~"rollout(-trainer)?"')
    picked = CliRunner().invoke(app, ["replay", "--from", str(path), "--no-backtest", "--json", *mine])
    assert picked.exit_code == 0, picked.stderr
    assert len(json.loads(picked.stdout)["observed"]["instances"]) == 3
    for both in (mine, ("--selector-a", mine[1], "--selector-b", mine[1])):
        pair = CliRunner().invoke(app, ["compare", str(path), "--a", "..-30m", "--b", "-30m..", *both, "--json"])
        assert pair.exit_code == 0, pair.stderr
    pools = ("--selector-a", 'job="rollout"', "--selector-b", 'job="eval"')
    pair = CliRunner().invoke(app, ["compare", str(path), "--a", "-30m..", *pools, "--explain"])  # one time, other ones
    assert pair.exit_code == 0, pair.stderr
    assert '{job="eval"}' in pair.stdout
    refused_ = CliRunner().invoke(app, ["compare", str(path), str(path)])
    assert refused_.exit_code == 2
    assert "A: --selector" in refused_.stderr
    wrong = CliRunner().invoke(app, ["replay", "--from", str(path), "--selector", 'job="nobody"'])
    assert wrong.exit_code == 2
    assert "matches none of the series" in wrong.stderr


def test_a_selector_that_names_the_label_says_that_all_are_of_one_job(tmp_path: Path) -> None:
    second = Job(instances=2, name="rollout-b", trainer=False, seed=5)
    path = write(tmp_path / "two_pools.om", ran(MINE), ran(second))
    with pytest.raises(InputError, match="several jobs"):
        read_file(path)
    read = read_file(path, selector='job=~"rollout.*"')
    assert len(read.instances) == 5


@pytest.mark.parametrize(("leaves_s", "comes_s", "one"), [(1800, 1800, True), (1800, 1700, True), (3000, 600, False)])
def test_a_fleet_that_moves_to_another_namespace_is_one_job(leaves_s: float, comes_s: float, one: bool) -> None:
    """What leaves as the other comes is not there beside it for long."""
    before = between(ran(MINE), 0.0, leaves_s)
    after = between(ran(replace(EVALS, model=MINE.model, name="rollout-b")), comes_s, 3600.0)
    if one:
        assert len(before.history(after).instances) == 5
    else:
        with pytest.raises(InputError, match="several jobs"):
            before.history(after)


def between(of: Ran, start_s: float, end_s: float) -> Ran:
    """What was scraped of a run from start_s to end_s."""
    series = {}
    for key, (stamps, values) in of.series.items():
        kept = [(t, v) for t, v in zip(stamps, values, strict=True) if start_s <= t < end_s]
        series[key] = ([t for t, _ in kept], [v for _, v in kept])
    return replace(of, series=series)


@pytest.mark.parametrize("label", ["exported_instance", "replica", "worker"])
def test_engines_under_another_label_stay_engines(label: str) -> None:
    alone, behind = observe(ran(MINE).history()), observe(labelled(MINE, label).history())
    assert len(behind.instances) == 3
    assert behind.fleet is not None
    assert alone.fleet is not None
    assert behind.fleet.tok_s == pytest.approx(alone.fleet.tok_s)
    assert any(label in note.text for note in behind.notes)


def test_two_models_on_one_server_are_two() -> None:
    assert 'model_name="x0"' in refused(labelled(Job(instances=2), "model_name").history)


def test_two_trainers_are_refused_and_ranks_of_one_are_not() -> None:
    second = ran(Job(instances=3, seed=9, train_s=50.0))
    renamed = replace(second, series={
        (sample, tuple({**dict(target), "instance": "second:9200"}.items())): values
        for (sample, target), values in second.series.items() if "pod" not in dict(target)
    })  # fmt: skip
    assert "2 trainers" in refused(lambda: ran(MINE).history(renamed))
    rank = replace(ran(MINE), series={
        (sample, tuple({**dict(target), "instance": "rank-1:9200"}.items())): values
        for (sample, target), values in ran(MINE).series.items() if "pod" not in dict(target)
    })  # fmt: skip
    step = observe(ran(MINE).history(rank)).trainer.step_s
    assert step is not None
    assert step.value == pytest.approx(41.5, rel=0.02)


def test_fewer_tokens_than_are_trained_are_refused() -> None:
    """Two of three engines are not scraped."""
    part = {k: v for k, v in ran(MINE).series.items() if dict(k[1]).get("pod") not in ("rollout-0", "rollout-1")}
    said = refused(replace(ran(MINE), series=part).history)
    assert "tokens generated per token trained" in said
    assert "--selector" in said


def test_a_trainer_that_counts_prompts_as_well_is_understood() -> None:
    job = Job(instances=3, prompt_tokens=600)
    history = ran(job).history()
    with_prompts = history.fleet["trainer.trained_tokens"] + 600.0 * history.fleet["trainer.trained_samples"]
    observed = seen(replace(history, fleet={**history.fleet, "trainer.trained_tokens": with_prompts}))
    assert observed.queue.generated_per_trained is None
    assert any("counts prompts as well" in note.text for note in observed.notes)


def test_a_step_that_outlasts_itself_is_refused() -> None:
    history = ran(MINE).history()
    twice = {**history.fleet, "trainer.train_s_total": 1.5 * history.fleet["trainer.train_s_total"]}
    assert "outlast the step" in refused(lambda: replace(history, fleet=twice))


def test_copies_are_one_counter_read_at_other_moments() -> None:
    rng = np.random.default_rng(0)
    knots = np.cumsum(rng.exponential(100.0, 400) * (rng.random(400) < 0.7))
    at = np.arange(400.0)
    for late in (0.0, 0.3, 0.9):
        assert same(knots, np.interp(at - late, at, knots))
    other = np.cumsum(rng.exponential(100.0, 400) * (rng.random(400) < 0.7))
    assert not same(knots, other)
    assert same(knots, np.full(400, np.nan))
    assert same(knots, np.where(at % 2 == 0, knots, np.nan))
