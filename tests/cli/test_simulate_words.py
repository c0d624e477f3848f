"""The command that simulates a scenario again: the real command line loads exactly that scenario from it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import fleetsim as fs
import fleetsim.cli.simulate
from fleetsim.api.job import Job
from fleetsim.cli.main import app
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, reader_of
from fleetsim.config.tree import put
from fleetsim.errors import InputError
from fleetsim.job.base_job import made
from fleetsim.job.command import _in_full, simulate_command
from fleetsim.job.trials import one_more, planned, unit_of, with_instances
from fleetsim.search import arrangements
from fleetsim.search.levers import levers_of
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.simulate.ask import Simulate
from tests.history.verl_log import VerlJob, console

pytestmark = pytest.mark.usefixtures("quick")

FILE = """
workload: {output_tokens: {mean: 900, cv: 0.7, max: 4096}, prompt_tokens: 200, group_size: 4}
engine: {model: Qwen/Qwen2.5-1.5B, max_num_seqs: 128}
fleet: {instances: 3, max_in_flight_samples: 256}
trainer: {batch_samples: 64, gpus: 4, fixed_s: 5, per_token_s: 1.0e-5}
run: {steps: 12, replications: 2}
"""


class AskedError(Exception):
    """What the command line made of the words."""


def heard(words: tuple[str, ...]) -> Scenario:
    """The scenario that the command would simulate, up to the first step."""
    assert words[:2] == ("fleetsim", "simulate")
    found: list[Scenario] = []

    def ask(asked: Simulate, watch: object) -> None:
        found.append(asked.scenario())
        raise AskedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleetsim.cli.simulate, "ask", ask)
        done = CliRunner().invoke(app, list(words[1:]))
    assert found, done.output
    return found[0]


def simulated_part(scenario: Scenario, beside: Scenario) -> dict[str, Any]:
    """All that is equal where two scenarios are simulated alike. beside: the wanted one, whose policies say what is
    read."""
    told = {"name", "description", "source", "published", "assumed", "observed", "targets"}
    raw = scenario.model_dump(mode="json", exclude=told)
    raw["run"] = {key: raw["run"][key] for key in ("warmup_steps", "events")}
    for section, values in raw.items():
        for key in values if isinstance(values, dict) else ():
            if reader_of(beside, f"{section}.{key}"):
                put(raw, f"{section}.{key}", "unread")
    return raw


def assert_same(job: Job, wanted: Scenario) -> tuple[str, ...]:
    words = simulate_command(job, wanted)
    assert simulated_part(heard(words), wanted) == simulated_part(wanted, wanted), shlex.join(words)
    return words


STARTS: list[Any] = [
    *(None, "presets/verl-fully-async", "presets/verl-sync", "presets/trl-grpo", "presets/areal"),
    *("async-one-step", "file", {"trainer": {"batch_samples": 128}, "engine": {"gpu": "H200"}}),
]
FLAGS: dict[str, st.SearchStrategy[Any]] = {
    "batch": st.sampled_from([64, 96, 256]),
    "len": st.sampled_from([300.0, 1536.0]),
    "len_cv": st.sampled_from([0.0, 0.6]),
    "max_len": st.sampled_from([4096.0, 9000.0]),
    "group_size": st.sampled_from([4, 16]),
    "prompt_len": st.just(100),
    "gpu": st.sampled_from(["H200", "A100"]),
    "model": st.sampled_from(["Qwen/Qwen2.5-1.5B", "Qwen/Qwen3-32B"]),
    "tp": st.sampled_from([1, 2]),
    "dtype": st.just("fp8"),
    "instance_tok_s": st.just(3000.0),
    "slowdown": st.just(1.1),
    "trainer_step_s": st.sampled_from([7.0, 20.5]),
    "trainer_gpus": st.sampled_from([8, 16]),
    "trainer_point": st.just([[8, 20.0], [16, 11.5]]),
    "max_staleness": st.sampled_from([0.0, 1.0, 2.0]),
    "sync_pause_s": st.just(2.5),
    "instances": st.sampled_from([2, 6]),
    "instance_price": st.just(2.0),
    "target_idle": st.just(0.1),
    "worth": st.just(2.0),
    "seed": st.just(3),
}
SETS: dict[str, Any] = {
    "sync.every_steps": 2,
    "engine.max_num_seqs": 64,
    "fleet.max_in_flight_samples": 512,
    "workload.reward.latency_s": 2,
    "trainer.gpus": 16,
    "engine.prefix_caching": False,
    "workload.output_tokens.cv": 0.4,
    "run.events": [{"step": 5, "trainer_slowdown": 1.5}],
}
CHANGES: dict[str, Any] = {
    "trainer.gpus": 32,
    "admission.max_staleness": 3.0,
    "sync.every_steps": 4,
    "fleet.max_in_flight_samples": 96,
    "fleet.speed_factors": [1.0, 1.5],
    "engine.tp": 4,
    "engine.kv_dtype": "fp8",
    "engine.gpu": "B200",
    "workload.prompt_tokens": 700,
    "workload.output_tokens": {"kind": "lognormal", "mean": 777.7, "cv": 0.33, "max": 6000.0},
    "trainer.fixed_s": 3.25,
    "trainer.phases": [],
    "sync.pause_s": 0.5,
    "run.events": [],
    "run.warmup_steps": 3,
}


def variants(job: Job) -> Iterator[Scenario]:
    """What planning makes of a job: the fleets that `size` runs, its levers, and the ways of `split`."""
    yield job.scenario
    plan = planned(job.scenario, job.given)
    here = with_instances(plan, 3 * unit_of(plan))
    yield here
    yield from (lever.scenario for lever in levers_of(here, with_instances(here, 4 * unit_of(here)), "more", job.given))
    gpus = 16 * arrangements.gpus_per_engine(plan)
    for way in (
        lambda: arrangements.split(plan, 2 * unit_of(plan), gpus),
        lambda: arrangements.colocated_sync(plan, gpus),
        lambda: arrangements.colocated_async(plan, gpus),
    ):
        try:
            yield way().scenario
        except InputError:
            continue


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(data=st.data())
def test_the_words_make_the_scenario(data: st.DataObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a job starts from, and whatever of it is said by flags and --set, and whatever a plan makes of it."""
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(FILE)
    start = data.draw(st.sampled_from(STARTS), label="start")
    flags = {n: data.draw(FLAGS[n], label=n) for n in data.draw(st.sets(st.sampled_from(sorted(FLAGS)), max_size=4))}
    sets = {path: SETS[path] for path in data.draw(st.sets(st.sampled_from(sorted(SETS)), max_size=2))}
    try:
        job = fs.load("job.yaml" if start == "file" else start, sets, **flags)
    except InputError:
        assume(False)
    wanted = data.draw(st.sampled_from(list(variants(job))), label="variant")
    changes = {path: CHANGES[path] for path in data.draw(st.sets(st.sampled_from(sorted(CHANGES)), max_size=3))}
    try:
        wanted = with_changes(wanted, changes)
    except InputError:
        assume(False)
    assert_same(job, wanted)


@pytest.mark.parametrize(
    ("start", "options", "changes", "line"),
    [
        (None, {"batch": 512, "len": 1536.0}, {"fleet.instances": 7}, "--batch 512 --len 1536 --instances 7"),
        (None, {}, {}, "--instances 8"),
        ("presets/trl-grpo", {"model": "Qwen/Qwen3-32B"}, {}, "--preset trl-grpo --model Qwen/Qwen3-32B"),
        ("async-one-step", {}, {"sync.every_steps": 2}, "async-one-step --set sync.every_steps=2"),
        (None, {"max_staleness": 2.0}, {"admission.max_staleness": 3.0}, "--max-staleness 3"),
        (None, {"trainer_step_s": 9.0}, {"engine.gpu": "H200"}, "--gpu H200 --trainer-step-s 9"),
        ({"trainer": {"batch_samples": 64}, "name": "x"}, {"tp": 2}, {}, "--batch 64 --tp 2"),
        (None, {"steps": 9, "seed": 4, "tp": 1}, {}, "--tp 1 --seed 4 --steps 9"),
    ],
)
def test_words_are_the_users_own_and_no_more_than_are_needed(
    start: Any, options: Mapping[str, Any], changes: Mapping[str, Any], line: str
) -> None:
    job = made(start, (), options)
    assert shlex.join(assert_same(job, with_changes(job.scenario, changes))) == f"fleetsim simulate {line}"


def test_what_follows_from_the_words_is_not_typed() -> None:
    """Seconds of a shorter response, and of a trainer of another size, are the model's: no word says them."""
    job = fs.load(batch=512, len=1536)
    other = fs.load(batch=512, len=1536, trainer_gpus=16)
    assert other["trainer.per_token_s"] != job["trainer.per_token_s"]
    words = assert_same(job, other.scenario)
    assert shlex.join(words) == "fleetsim simulate --batch 512 --len 1536 --trainer-gpus 16"
    plan = with_instances(planned(job.scenario, job.given), 4)
    cut = next(x for x in levers_of(plan, plan, one_more(plan), job.given) if x.name == "length_cap")
    assert assert_same(job, cut.scenario)[2:] == (*shlex.split(f"--batch 512 {cut.flag.own}"), "--instances", "4")


def test_seconds_that_nothing_makes_are_typed() -> None:
    job = fs.load(batch=512, len=1536)
    words = assert_same(job, with_changes(job.scenario, {"trainer.fixed_s": 9.5}))
    assert "trainer.fixed_s=9.5" in words
    stated = fs.load(batch=512, trainer_step_s=20)
    words = assert_same(stated, with_changes(stated.scenario, {"trainer.fixed_s": 9.5, "trainer.gpus": 16}))
    assert shlex.join(words) == "fleetsim simulate --batch 512 --trainer-step-s 9.5 --trainer-gpus 16"


def test_a_law_of_another_budget_takes_the_flag_back() -> None:
    job = fs.load(batch=512, max_staleness=2)
    barrier = {"admission.law": "barrier", "buffer.batch_rule": "fifo"}
    words = assert_same(job, with_changes(job.scenario, barrier))
    assert "--max-staleness" not in words
    assert "admission.law=barrier" in words


def test_the_environment_is_heard_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETSIM_SYNC__EVERY_STEPS", "3")
    job = fs.load(batch=256)
    assert job["sync.every_steps"] == 3
    assert shlex.join(assert_same(job, job.scenario)) == "fleetsim simulate --batch 256"
    words = assert_same(job, with_changes(job.scenario, {"sync.every_steps": 2}))
    assert words[-2:] == ("--set", "sync.every_steps=2")


def test_values_with_spaces_and_quotes_are_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my job's.yaml").write_text(FILE)
    job = made("my job's.yaml", ["run.events=[{step: 4, length_factor: 1.5}]"], {})
    words = assert_same(job, with_changes(job.scenario, {"engine.gpu": "H200"}))
    assert words[2:] == ("my job's.yaml", "--gpu", "H200", "--set", "run.events=[{step: 4, length_factor: 1.5}]")
    assert tuple(shlex.split(shlex.join(words))) == words


def test_the_last_word_of_several_counts() -> None:
    law = "workload.output_tokens"
    sets = (f"{law}.cv=0.5", f"{law}={{mean: 500, cv: 1}}", f"{law}.cv=0.7")
    job = made(None, sets, {})
    assert job["workload.output_tokens"].cv == 0.7
    assert_same(job, with_instances(job.scenario, 3))


def test_a_run_stays_a_run(tmp_path: Path) -> None:
    """Its history is read once, and what another trainer makes of it follows."""
    log = tmp_path / "train.log"
    log.write_text(console(VerlJob(rate=0.6, window=640, train_s=60.0), 24))
    job = fs.load("presets/verl-fully-async", run=log, gpu="H100")
    words = assert_same(job, with_instances(job.scenario, 5))
    assert words[2:6] == ("--preset", "verl-fully-async", "--run", str(log))
    assert words[6:] == ("--gpu", "H100", "--instances", "5")
    log.write_text("another run")
    later = job.with_(trainer_gpus=16)
    assert simulate_command(later, later.scenario)[:6] == words[:6]
    assert simulate_command(job, job.scenario) == words[:8]


def test_every_value_typed_is_the_scenario() -> None:
    """The last resort, where words of the user do not go with what became of the job."""
    for name in ("presets/nemo-rl-sync", "presets/areal", "presets/verl-sync"):
        scenario = fs.load(name).scenario
        words = _in_full(scenario).words()
        assert simulated_part(heard(words), scenario) == simulated_part(scenario, scenario)


def test_the_same_draws_and_metrics_to_the_bit() -> None:
    job = fs.load("presets/verl-sync", batch=64, len=300, replications=1)
    plan = planned(job.scenario, job.given)
    way = arrangements.split(plan, 2, 16 * plan.engine.gpus).scenario
    again = heard(assert_same(job, way))
    length = {"run.steps": 6, "run.seed": 0}
    first, second = (metrics_of(simulate(with_changes(s, length))) for s in (way, again))
    assert first == second
