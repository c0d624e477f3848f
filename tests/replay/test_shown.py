"""`--run`: what a run showed becomes part of a job, with its interval; what the user says wins, and is told."""

from __future__ import annotations

import bz2
import json
from pathlib import Path
from pprint import pformat
from statistics import fmean

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.config.load import load_scenario, scenario_from_mapping, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.yaml_text import from_yaml
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.errors import InputError
from fleetsim.history.run_log import read_run_log
from fleetsim.history.text import printed_config
from fleetsim.job.derived_values import slower
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.uncertainty import UNCERTAIN
from fleetsim.replay.measured_values import interval_of, measured
from fleetsim.replay.shown import raw_paths, run_file, with_run
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from tests.history.verl_log import VerlJob, console

CONFIG = {
    "actor_rollout_ref": {
        "actor": {"ppo_mini_batch_size": 64},
        "model": {"path": "/models/Qwen2.5-7B"},
        "rollout": {"n": 8, "tensor_model_parallel_size": 1, "max_num_seqs": 256, "name": "vllm"},
    },
    "async_training": {"require_batches": 1, "staleness_threshold": 1, "trigger_parameter_sync_step": 1},
    "data": {"max_prompt_length": 1024, "max_response_length": 4096, "train_batch_size": 0},
    "rollout": {"n_gpus_per_node": 2, "nnodes": 1},
    "trainer": {"n_gpus_per_node": 4, "nnodes": 1},
}
SCENARIO: dict[str, object] = {
    "workload": {"group_size": 8, "prompt_tokens": 300},
    "engine": {"gpu": "H100", "model": "Qwen/Qwen2.5-7B", "tp": 1},
    "fleet": {"instances": 2, "group_placement": "spread", "max_in_flight_samples": 256, "in_flight_unit": "groups"},
    "trainer": {"batch_samples": 512, "fixed_s": 20.0},
    "sync": {"pause_s": 0.0, "publish_s": 1.0, "trainer_block_s": 1.0},
    "admission": {"law": "version_window", "max_staleness": 2},
}


def _printed(log: str, noise: bool = False) -> str:
    """A log with its configuration printed at its head, as a Ray worker prints it."""
    who = "\x1b[36m(FullyAsyncTaskRunner pid=17)\x1b[0m "
    lines = pformat(CONFIG).splitlines()
    if noise:
        lines[3] += "(pid=99) WARNING: another process wrote {here}"
        lines.insert(5, "(raylet) nothing of that mapping")
    head = [line if line.startswith("(raylet)") else who + line for line in lines]
    return "\n".join(["2026-01-01 00:00:00 INFO worker.py -- connected", *head, log])


@pytest.fixture
def verl(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(_printed(console(VerlJob(rate=0.6, window=640, train_s=60.0), 24)))
    return path


def _log(path: Path, scenario: Scenario, steps: int = 40) -> Path:
    """What a trainer would have logged of a simulated run: a row a step, in the columns of docs/run_logs.md."""
    records = simulate(with_changes(scenario, {"run.steps": steps}))
    samples, groups = records.samples, records.groups
    rows = []
    for index, step in enumerate(records.steps):
        trained = groups["trained_step"] == index
        own = np.flatnonzero(np.repeat(trained, scenario.workload.group_size))
        made = samples[own]
        seconds = float(step["end_s"] - step["start_s"])
        rows.append(
            {
                "step": index + 1,
                "step_s": seconds,
                "wait_s": float(step["wait_s"]),
                "train_s": seconds - float(step["wait_s"]) - 1.0,
                "sync_s": 1.0,
                "samples": len(own),
                "groups": int(trained.sum()),
                "length_mean": float(made["made"].mean()),
                "length_max": float(made["made"].max()),
                "clip_share": float((made["made"] >= 4096).mean()),
                "prompt_mean": 300.0,
                "sample_s_mean": float((made["finish_s"] - made["sent_s"]).mean()),
            }
        )
    path.write_text("\n".join(map(json.dumps, rows[window_of(records).first :])))
    return path


def test_a_log_is_a_job(verl: Path) -> None:
    """Configuration from the head of the log, lengths and seconds from its steps."""
    job = fs.load(run=verl, gpu="H100")
    assert (job["fleet.instances"], job["trainer.gpus"], job["workload.group_size"]) == (2, 4, 8)
    assert job["admission.law"] == "per_sync_window"
    assert job["engine.model"] == "Qwen2.5-7B"
    law = job["workload.output_tokens"]
    assert law.max == 4096
    t = job.scenario.trainer
    tokens = 512 * (job["workload.prompt_tokens"].value + 793)
    total = t.fixed_s + t.per_token_s * tokens + sum(p.fixed_s + p.per_token_s * tokens for p in t.phases)
    assert total == pytest.approx(60.0, rel=0.05)
    seen = {record.path: record for record in job["observed"]}
    assert seen["trainer.per_token_s"].value == pytest.approx(60.0, rel=0.01)
    assert seen["trainer.per_token_s"].source.endswith("timing_s/update_actor")
    assert {"workload.output_tokens.mean", "workload.output_tokens.cv", "sync.trainer_block_s"} <= seen.keys()


def test_what_is_observed_is_in_less_doubt(verl: Path) -> None:
    job = fs.load(run=verl, gpu="H100")
    for of in UNCERTAIN:
        if of.what in ("trainer seconds", "spread of lengths", "weight sync seconds"):
            ends = of.interval(job.scenario, job.given)
            assert ends is not None
            assert 0.8 < ends[0] <= 1.0 <= ends[1] < 1.25, of.what
            assert "observed in train.log" in of.why(job.scenario, ends)


def test_a_flag_wins_and_is_told(verl: Path) -> None:
    job = fs.load(run=verl, gpu="H100", trainer_step_s=30.0, len=2000.0)
    assert job["trainer.fixed_s"] == 30
    assert job["trainer.per_token_s"] == 0
    paths = {record.path for record in job["observed"]}
    assert not paths & {"trainer.per_token_s", "trainer.fixed_s", "workload.output_tokens.mean"}
    assert any("--trainer-step-s 30" in note and "trainer seconds of 60" in note for note in job.notes)
    assert any("--len 2000" in note for note in job.notes)


def test_more_trainer_gpus_make_the_observed_seconds_shorter(verl: Path) -> None:
    four, eight = fs.load(run=verl, gpu="H100"), fs.load(run=verl, gpu="H100", trainer_gpus=8)
    assert eight["trainer.per_token_s"] / four["trainer.per_token_s"] == pytest.approx(0.5, abs=0.08)


def test_another_configuration_takes_over_what_both_have_in_common(verl: Path, tmp_path: Path) -> None:
    """The next run: its own policy, fleet and cap; this run's lengths and seconds."""
    now = fs.load(run=verl, gpu="H100")
    other, _, _ = with_run(None, (), {}, verl)
    mine = {key: value for key, value in other.items() if key not in ("observed", "assumed")}
    mine["admission"] = {"law": "version_window", "max_staleness": 4.0}
    mine["fleet"] = {**mine["fleet"], "instances": 6}
    mine["workload"] = {"group_size": 8, "output_tokens": {"kind": "lognormal", "mean": 9.0, "cv": 1.0, "max": 8192.0}}
    job = fs.load(mine, run=verl, gpu="H100")
    assert (job["fleet.instances"], job["admission.max_staleness"]) == (6, 4)
    law, before = job["workload.output_tokens"], now["workload.output_tokens"]
    assert (law.mean, law.cv, law.max) == (before.mean, before.cv, 8192)


def test_the_engines_of_a_simulated_run_are_recognised(tmp_path: Path) -> None:
    """Slowdown and trainer's seconds of a log that was written from a simulated run are those of that run."""
    lengths = {"kind": "lognormal", "mean": 900.0, "cv": 0.9, "max": 4096.0}
    truth = scenario_from_mapping(
        {
            **SCENARIO,
            "workload": {**SCENARIO["workload"], "output_tokens": lengths, "group_correlation": 0.5},  # type: ignore[dict-item]
            "engine": {**SCENARIO["engine"], "slowdown": 1.35},  # type: ignore[dict-item]
        }
    )
    history = read_run_log(_log(tmp_path / "run.jsonl", truth))
    given = raw_paths(SCENARIO)
    found = measured(history, scenario_from_mapping(SCENARIO), given)
    assert found.values["engine.slowdown"] == pytest.approx(1.35, rel=0.05)
    assert found.values["workload.group_correlation"] == pytest.approx(0.5, abs=0.25)
    law = found.values["workload.output_tokens"]
    assert (law["mean"], law["cv"]) == pytest.approx((900, 0.9), rel=0.1)
    after = fs.load(scenario_from_mapping(SCENARIO), found.values).simulate(replications=2).mean["step_s"]
    assert after == pytest.approx(fs.load(truth).simulate(replications=2).mean["step_s"], rel=0.05)


def test_what_is_said_of_a_run_that_does_not_say_it_is_the_run_s(verl: Path) -> None:
    """The log names no GPU: its seconds are those of the GPU that the user names, and no other GPU's."""
    raw, _, _ = with_run(None, (), {"gpu": "A100-80GB"}, verl)
    assert raw["engine"]["gpu"] == "A100-80GB"
    job = fs.load(run=verl, gpu="A100-80GB")
    assert not any("the file says it for" in note for note in job.notes)
    assert mean_step_s(job.scenario) == pytest.approx(60.0, rel=0.05)
    told = fs.replay(verl, given={"engine.gpu": "A100-80GB"}, backtest=False).warnings
    assert not any("the file says it for" in warning for warning in told)


@pytest.mark.parametrize(
    ("other", "engines", "trainer"),
    [
        ({"gpu": "H100-SXM"}, 1.0, 1.0),  # the same by another name
        ({"model": "Qwen2.5-7B"}, 1.0, 1.0),
        ({"gpu": "A100-80GB"}, 0.5, 0.5),
        ({"model": "meta-llama/Llama-3.1-8B"}, 0.5, 1.0),
    ],
)
def test_on_another_gpu_half_of_what_a_run_shows_beyond_its_model_stays(
    tmp_path: Path, other: dict[str, str], engines: float, trainer: float
) -> None:
    """In logarithms, as `fleetsim validate` carries a fit to another arm."""
    own = {**SCENARIO, "trainer": {"batch_samples": 512, "gpus": 8}}
    truth = with_changes(fs.load(own).scenario, {"engine.slowdown": 1.9})
    log = _log(tmp_path / "run.jsonl", with_changes(truth, slower(truth.trainer, 1.5)))
    here, there = fs.load(own, run=log), fs.load(own, run=log, **other)
    usual = slowdown_of(None)
    seen, carried = here["engine.slowdown"] / usual, there["engine.slowdown"] / usual
    assert carried == pytest.approx(seen**engines, rel=0.01)
    lengths = {"workload.output_tokens": here["workload.output_tokens"].model_dump()}
    of_run = mean_step_s(here.scenario) / mean_step_s(fs.load(own, lengths).scenario)
    of_job = mean_step_s(there.scenario) / mean_step_s(fs.load(own, lengths, **other).scenario)
    assert of_job == pytest.approx(of_run**trainer, rel=0.02)
    sure, less = ({r.path: r for r in job["observed"]}["engine.slowdown"].factors[1] for job in (here, there))
    assert less > 1.2 > sure if engines < 1.0 else less == sure


def test_a_log_with_its_configuration_is_replayed_and_changed(verl: Path) -> None:
    """No scenario is given: the log says what ran. Its step is simulated, and that of more instances has its ends."""
    result = fs.replay(verl, given={"engine.gpu": "H100"}, changes={"fleet.instances": 4})
    found = result.replayed.implied
    assert found is not None
    assert found.scenario.admission.law == "per_sync_window"
    assert found.logged is not None
    answer = result.answers.what_if
    assert answer is not None
    assert answer.next is not None
    assert answer.next.low < answer.next.step_s < answer.next.high
    assert answer.next.step_s == pytest.approx(answer.next.observed * answer.effect("step_s").ratio.mean)


def test_the_next_run_of_a_simulated_one_is_predicted(tmp_path: Path) -> None:
    """From the log of a run with two instances to one with three, whose truth is simulated."""
    truth = scenario_from_mapping(
        {
            **SCENARIO,
            "workload": {"group_size": 8, "prompt_tokens": 300, "output_tokens": {"mean": 900, "cv": 0.9, "max": 4096}},
            "engine": {**SCENARIO["engine"], "slowdown": 1.35},  # type: ignore[dict-item]
        }
    )
    path = _log(tmp_path / "run.jsonl", truth)
    result = fs.replay(path, scenario_from_mapping(SCENARIO), changes={"fleet.instances": 3}, backtest=False)
    answer = result.answers.what_if
    assert answer is not None
    assert answer.next is not None
    there = fs.load(truth, {"fleet.instances": 3}).simulate(replications=2).mean["step_s"]
    assert answer.next.low < there < answer.next.high
    assert answer.next.step_s == pytest.approx(there, rel=0.06)


def test_more_trainer_gpus_in_a_what_if_scale_the_observed_seconds(verl: Path) -> None:
    result = fs.replay(verl, given={"engine.gpu": "H100"}, changes={"trainer.gpus": 8}, backtest=False)
    answer = result.answers.what_if
    assert answer is not None
    assert answer.effect("step_s").ratio.mean < 1.0
    assert any("on 8 GPUs" in note for note in answer.notes)


def test_a_run_whose_fleet_nobody_names_shows_no_speed(tmp_path: Path) -> None:
    path = _log(tmp_path / "run.jsonl", scenario_from_mapping(SCENARIO))
    job = fs.load(run=path)
    assert "engine.slowdown" not in {record.path for record in job["observed"]}
    assert any("does not show how fast the engines are" in note and "--gpu" in note for note in job.notes)


def test_a_run_that_shows_no_speed_says_nothing_of_fewer_instances(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"step": n, "time/step": 90.0, "time/wait_for_batch": 0.0, "time/forward_backward": 88.0} for n in range(40)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    plan = fs.load({"fleet": {"instances": 3}}, run=path).size()
    assert "nor whether fewer instances would do" in str(plan)


def test_a_scenario_file_keeps_what_was_observed(verl: Path, tmp_path: Path) -> None:
    job = fs.load(run=verl, gpu="H100")
    again = load_scenario(job.save(tmp_path / "job.yaml"))
    assert again.observed == job.scenario.observed
    assert fs.load(tmp_path / "job.yaml", trainer_step_s=9.0)["observed"] != job["observed"]


@pytest.mark.parametrize("more", [(), ("fleet.instances=4",)])
def test_any_log_is_written_as_a_job(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Nobody says the model: the trainer's seconds are the log's, in the phases of the estimated one."""
    path = tmp_path / "metrics.jsonl"
    row = {"time/total": 90.0, "time/sampling": 40.0, "time/train_step": 36.0, "time/kl_vs_base": 6.0}
    row |= {"env/all/total_episodes": 256, "env/all/total_ac_tokens": 256 * 1100.0}
    path.write_text("\n".join(json.dumps({"step": n, "progress/batch": n, **row}) for n in range(40)))
    found = run_file(None, more, str(path))
    again = scenario_from_mapping(from_yaml(found.text, "scenario"))
    assert again.model_dump(mode="json") == scenario_from_mapping(found.raw).model_dump(mode="json")
    assert again.trainer.phases
    assert json.dumps(found.raw)


def test_a_run_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"run: .no/such\.log"):
        fs.load(run="no/such.log")


@pytest.mark.parametrize("noise", [False, True])
def test_the_printed_configuration_is_read_past_other_processes(tmp_path: Path, noise: bool) -> None:
    path = tmp_path / "train.log"
    path.write_text(_printed("step:1 - timing_s/step:3.0", noise))
    assert printed_config(path) == CONFIG


def test_a_packed_log_shows_its_configuration_too(tmp_path: Path) -> None:
    path = tmp_path / "train.log.bz2"
    path.write_bytes(bz2.compress(_printed("").encode()))
    assert printed_config(path) == CONFIG


@pytest.mark.parametrize("text", ["", "no mapping\n", "{'a': 1}\n", "{'a': (((((\n", "{'a': 1, 'b': 2, 'c': open}\n"])
def test_what_is_no_configuration_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(text)
    assert printed_config(path) is None


@pytest.mark.parametrize("large", [2.0, 8.0, 60.0])
def test_seconds_that_come_now_and_then_have_an_interval_above_nothing(large: float) -> None:
    """What is left of a step for the weights, say: 0 in most, and an interval that began at 0 is that of no law."""
    values = np.zeros(60)
    values[7] = large
    mean, low, high = interval_of(values)
    assert 0.0 < low < mean < high
    values += 10.0
    mean, low, high = interval_of(values)
    assert mean - low == pytest.approx(high - mean)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_eight_intervals_in_ten_hold_the_mean(rho: float) -> None:
    """Against brute force: series of 40 steps whose neighbours resemble each other, about a mean of 10."""
    random, held = np.random.default_rng(3), 0
    for _ in range(600):
        noise = random.normal(0, 1, 60)
        for k in range(1, 60):
            noise[k] = rho * noise[k - 1] + np.sqrt(1 - rho**2) * noise[k]
        _, low, high = interval_of(10 + noise[20:])
        held += low <= 10 <= high
    assert 0.74 <= held / 600 <= 0.86


def test_engines_and_trainer_share_a_step_of_which_the_log_has_no_part(tmp_path: Path) -> None:
    """A trainer's log that has `step_time` alone, of a run whose engines and trainer are slower than their models: the
    step is met, each takes a part of it, and another fleet lies between what it would take with all of it on either."""
    lengths = {"kind": "lognormal", "mean": 900.0, "cv": 0.9, "max": 4096.0}
    job = fs.load(
        {
            "workload": {"group_size": 8, "prompt_tokens": 300, "output_tokens": lengths},
            "engine": {"gpu": "H100", "model": "Qwen/Qwen2.5-7B"},
            "fleet": {"placement": "colocated", "instances": 8},
            "trainer": {"gpus": 8, "batch_samples": 512},
            "admission": {"law": "barrier"},
        }
    )
    modelled = job.scenario
    slow = with_changes(modelled, {"engine.slowdown": 1.8, **slower(modelled.trainer, 2.0)})

    def step_s(scenario: Scenario) -> float:
        runs = (simulate(with_changes(scenario, {"run.steps": 30}), replication=r) for r in range(2))
        return fmean(metrics_of(run)["step_s"] for run in runs)  # as it is: `fs.load` would assume the slowdown anew

    one = {"step_time": step_s(slow), "loss": 0.1, "completions/mean_length": 900.0, "completions/max_length": 4096.0}
    rows = [{"step": n, **one} for n in range(1, 31)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": rows, "global_step": 30}))
    history = read_run_log(path)
    given = {"engine.gpu", "engine.model", "fleet", "workload", "trainer.gpus", "admission"}
    found = measured(history, modelled, given)
    met = fs.load(modelled, found.values).scenario
    assert step_s(met) == pytest.approx(step_s(slow), rel=0.03)
    ends = {record.path: (record.low, record.value, record.high) for record in found.observed}
    for name in ("engine.slowdown", "trainer.fixed_s"):
        low, value, high = ends[name]
        assert low < value < high, name
    trained, plain = mean_step_s(met), mean_step_s(modelled)
    assert plain < trained < ends["trainer.fixed_s"][2]
    twice = {"fleet.instances": 16, "trainer.gpus": 16}
    wanted, told = step_s(with_changes(slow, twice)), step_s(with_changes(met, twice))
    least, _, most = ends["engine.slowdown"]
    on_engines = {"engine.slowdown": most}
    on_trainer = {"engine.slowdown": least, **slower(modelled.trainer, ends["trainer.fixed_s"][2] / plain)}
    alone = [step_s(with_changes(modelled, {**changes, **twice})) for changes in (on_engines, on_trainer)]
    assert min(alone) < wanted < max(alone)
    assert abs(told - wanted) < max(abs(one - wanted) for one in alone)
