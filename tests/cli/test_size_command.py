from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import fleetsim.job.trials
import fleetsim.size.size
from fleetsim.cli.main import app
from fleetsim.compare.saved_result import CANDIDATE_METRICS
from fleetsim.config import default_scenario, load_scenario
from fleetsim.quantities import METRICS
from tests.once import forget
from tests.plan.fakes import fluid

pytestmark = pytest.mark.usefixtures("quick")

SMALL = ("--batch", "64", "--len", "300", "--set", "run.steps=8", "--replications", "2", "--trainer-step-s", "3")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["size", *arguments])


@pytest.fixture
def fake_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes with exact rates instead of a simulation."""
    monkeypatch.setattr(fleetsim.job.trials, "simulated", fluid())


def test_the_runbook_s_worked_example_to_the_digit() -> None:
    arguments = ("--batch", "512", "--len", "1536", "--instance-tok-s", "4000", "--trainer-step-s", "20")
    result = run(*arguments, "--headroom", "0.8", "--set", "run.steps=8", "--replications", "1", "--explain")
    assert result.exit_code == 0
    assert "39,321.6 tok/s consumed / (4,000 tok/s per instance x headroom 0.8) = 13" in " ".join(result.stdout.split())
    rows = {line.split()[0]: line for line in result.stdout.replace(">", " ").splitlines() if line.split()}
    assert "18.6 %" in rows["8"]
    assert "+20,678.4 tok/s" in rows["15"]
    assert "12.4 M tokens" in rows["15"]
    document = json.loads(run(*arguments, "--json", "--set", "run.steps=8", "--replications", "1").stdout)
    matching = document["rate_matching"]
    assert (matching["instances"], matching["consume_tok_s"], matching["instance_tok_s"]) == (13, 39_321.6, 4000.0)
    row = {r["instances"]: r for r in matching["rows"]}
    assert row[8]["trainer_idle_fraction"] == pytest.approx(1 - 20 / 24.576, abs=1e-12)
    assert row[15]["backlog_tokens"] == pytest.approx(600 * 20_678.4, abs=1e-3)


def test_the_document_has_what_it_promises_and_the_same_bytes_every_time() -> None:
    first = run(*SMALL, "--json")
    forget()
    second = run(*SMALL, "--json")
    assert first.exit_code == 0
    assert first.stdout_bytes == second.stdout_bytes
    document = json.loads(first.stdout)
    assert document["schema_version"] == 2
    assert {"instances", "queue_cap_samples", "queue_cap_steps", "binding"} <= document["recommendation"].keys()
    assert {"instances", "consume_tok_s", "instance_tok_s", "headroom"} <= document["rate_matching"].keys()
    assert {"computed", "parts"} <= document["headroom"].keys()
    counts = [c["instances"] for c in document["candidates"]]
    chosen = document["recommendation"]["instances"]
    assert {chosen, chosen + 1, document["rate_matching"]["instances"]} <= set(counts)
    assert counts == sorted(counts)
    assert min(counts) <= max(1, 0.75 * chosen), "a notably smaller fleet is shown"
    for candidate in document["candidates"]:
        for metric in CANDIDATE_METRICS:
            assert candidate[metric].keys() == {"mean", "ci_low", "ci_high"}
            assert candidate[metric]["ci_low"] <= candidate[metric]["mean"] <= candidate[metric]["ci_high"]
    levers = document["alternatives"]["tried"]
    assert [a["name"] for a in levers] == ["one_more_instance", "staleness_budget", "sync_cadence", "length_cap"]
    for lever in levers:
        assert lever["step_ratio"]["ci_low"] <= lever["step_ratio"]["mean"] <= lever["step_ratio"]["ci_high"]
    assert document["explanation"].startswith("What binds: ")
    assert document["candidates"][0]["long_samples_lost"]["mean"] == 0.0
    assert document["assumptions"]
    assert isinstance(document["warnings"], list)
    assert document["profile"]["kind"] == "roofline"
    assert document["scenario"]["trainer"]["batch_samples"] == 64
    assert document["seeds"] == [{"seed": 0, "replication": 0}, {"seed": 0, "replication": 1}]


def test_another_seed_gives_other_numbers_of_the_same_shape() -> None:
    first, other = (json.loads(run(*SMALL, "--seed", s, "--json").stdout) for s in "01")
    assert first != other
    assert first.keys() == other.keys()


@pytest.mark.usefixtures("fake_fleet")
def test_result_on_stdout_warnings_on_stderr() -> None:
    result = run("--batch", "512", "--len", "1536", "--gpu", "H100", "--instance-tok-s", "4000")
    assert result.exit_code == 0
    assert result.stdout.startswith("10 rollout instances")
    assert "\x1b" not in result.stdout
    assert "warning: --gpu only name the instance" in result.stderr
    assert "warning" not in result.stdout
    assert all(line == line.rstrip() and len(line) <= 80 for line in result.stdout.splitlines())


@pytest.mark.usefixtures("fake_fleet")
@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (("--fail-if", "trainer_idle_fraction>0.5"), 0, ""),
        (("--fail-if", "instances>9"), 10, "--fail-if instances>9 tripped: instances is 10"),
        (("--fail-if", "step_s>0", "--fail-if", "staleness_steps.p99>=1"), 10, "staleness_steps.p99>=1 tripped"),
        (("--fail-if", "trainer_idel_fraction>0.5"), 2, 'did you mean "trainer_idle_fraction"?'),
        (("--fail-if", "step_s>abc"), 2, "must be a finite number"),
        (("--fail-if", "step_s"), 2, "must read METRIC OPERATOR NUMBER"),
        (("--strict",), 0, ""),
        (("--set", "targets.step_s=1"), 11, "no fleet holds a step of at most 1.0 s"),
        (("--target-idle", "0.05"), 0, ""),
        (("--batch", "x"), 2, "--batch"),
        (("--batc", "8"), 2, "--batch"),
        (("--scenario", "nowhere.yaml"), 2, "no such file"),
        (("--set", "fleet.instnces=3"), 2, 'did you mean "instances"?'),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], exit_code: int, told: str) -> None:
    base = ("--len", "1536", "--instance-tok-s", "4000")
    result = run(*base, *arguments)
    assert result.exit_code == exit_code, result.output
    assert told in result.stderr
    if exit_code in (10, 11):
        first = "10 rollout" if exit_code == 10 else "No fleet holds a step of at most 1.0 s. The best: "
        assert result.stdout.startswith(first), "the result is printed all the same"
    if exit_code == 2:
        assert result.stdout == ""


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(step_s=st.floats(15.0, 60.0), cost=st.floats(0.05, 0.5), staleness=st.sampled_from([0.5, 1.0, 2.0]))
@pytest.mark.usefixtures("fake_fleet")
def test_the_headline_the_exit_code_and_the_document_agree(step_s: float, cost: float, staleness: float) -> None:
    limits = {"step_s": step_s, "cost_per_step": cost, "staleness_p99_steps": staleness}
    sets = [word for name, limit in limits.items() for word in ("--set", f"targets.{name}={limit!r}")]
    base = ("--len", "1536", "--instance-tok-s", "4000", "--replications", "1", *sets)
    shown, document = run(*base), json.loads(run(*base, "--json").stdout)
    found = document["recommendation"]
    missed = [name for name in found["missed_targets"] if name in limits]
    assert found["feasible"] == (not missed)
    assert shown.exit_code == (0 if found["feasible"] else 11)
    assert shown.stdout.startswith("No fleet holds ") == (not found["feasible"])
    assert ("no fleet holds" in shown.stderr) == (not found["feasible"])
    # the fake fleet is as old as it is, whatever its size, so feasible is what arithmetic says of step and cost
    steps = {n: max(20.0, 512 * 1536 / (n * 4000.0)) for n in range(1, 200)}
    held = [n for n, s in steps.items() if s <= step_s and s / 3600.0 * 3.0 * (n + 8) <= cost and staleness >= 1.0]
    if len(held) != 1:  # a single count may be passed over
        assert found["feasible"] == bool(held)


def test_ranks_that_share_their_experts_are_sized_in_whole_engines() -> None:
    result = run(*SMALL, "--set", "engine.dp=8", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    counts = [document["recommendation"]["instances"], *(c["instances"] for c in document["candidates"])]
    assert all(n % 8 == 0 for n in counts)
    assert document["alternatives"]["tried"][0]["text"] == "one more engine of 8 instances"
    # an assumed count of 8 is no wish, so that there is nothing to say; one that was given is rounded up
    for sets, notes in ((("engine.dp=3",), 0), (("engine.dp=8", "fleet.instances=12"), 1)):
        words = [word for text in sets for word in ("--set", text)]
        rounded = json.loads(run(*SMALL, *words, "--json").stdout)
        assert sum("come and go together" in w for w in rounded["warnings"]) == notes


@pytest.mark.usefixtures("fake_fleet")
def test_strict_refuses_an_engine_that_nobody_measured() -> None:
    result = run("--len", "1536", "--strict")
    assert result.exit_code == 12
    assert "--strict" in result.stderr


def profile_file(folder: Path, most_decodes: int) -> str:
    file = folder / "mine.json"
    profile: dict[str, Any] = {
        "name": "mine",
        "coefficients": {"knots_tokens": [1, 2048], "knots_s": [0.008, 0.03], "per_kv_token_s": 2e-8},
        "ranges": {"decodes": [1, most_decodes]},
        "limits": {"max_num_seqs": 512, "max_num_batched_tokens": 8192, "kv_blocks": 30000},
        "error": {"median": 0.031, "worst": 0.09, "what": "mean latency"},
    }
    file.write_text(json.dumps(profile))
    return str(file)


@pytest.mark.usefixtures("fake_fleet")
def test_a_profile_shows_its_error_and_its_range(tmp_path: Path) -> None:
    inside = run("--profile", profile_file(tmp_path, 500), "--strict", "--explain")
    assert inside.exit_code == 0
    assert "error: median 3.1 %, worst 9.0 % (mean latency)" in " ".join(inside.stdout.split())
    outside = run("--profile", profile_file(tmp_path, 2), "--strict")
    assert outside.exit_code == 12
    assert "outside the range that the profile measured" in outside.stderr


def test_an_internal_error_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **more: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(fleetsim.size.size, "size", broken)
    monkeypatch.delenv("FLEETSIM_DEBUG", raising=False)
    result = run("--len", "100")
    assert result.exit_code == 1
    assert "internal error: ZeroDivisionError: oops" in result.stderr
    assert "Traceback" not in result.stderr
    monkeypatch.setenv("FLEETSIM_DEBUG", "1")
    assert "Traceback" in run("--len", "100").stderr


def test_an_interruption_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fleetsim.size.size, "size", interrupted)
    result = run("--len", "100")
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr


FLAGS = (
    "--batch", "--len", "--max-len", "--len-cv", "--group-size", "--prompt-len", "--trainer-step-s", "--trainer-gpus",
    "--gpu", "--model", "--tp", "--profile", "--instance-tok-s", "--headroom", "--max-staleness", "--sync-pause-s",
    "--dtype", "--kv-dtype", "--worth",
    "--target-idle", "--instance-price", "--trainer-price", "--scenario", "--set", "--replications", "--seed",
    "--fail-if", "--json", "--strict",
)  # fmt: skip
arguments = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(FLAGS), st.text(max_size=6)),
        st.tuples(st.sampled_from(FLAGS), st.integers(-3, 3000).map(str)),
        st.tuples(st.sampled_from(FLAGS), st.floats(allow_nan=True).map(str)),
        st.tuples(st.just("--fail-if"), st.sampled_from([f"{m}>1" for m in METRICS])),
        st.tuples(st.text(max_size=4)),
    ),
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(parts=arguments)
def test_whatever_is_typed_there_is_no_traceback(parts: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fleetsim.job.trials, "simulated", fluid())
        result = run(*(word for part in parts for word in part), "--replications", "1")
    assert result.exit_code in {0, 2, 10, 11, 12}, result.output
    assert "Traceback" not in result.output
    if result.exit_code == 2:
        assert result.stderr
        assert result.stdout == ""


@pytest.mark.usefixtures("fake_fleet")
def test_save_writes_the_sized_job_and_never_overwrites(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    asked = ("--batch", "256", "--len", "1536", "--instance-tok-s", "4000", "--trainer-step-s", "10")
    first = run(*asked, "--json", "--save", str(file))
    assert first.exit_code == 0, first.output
    saved = load_scenario(file)
    assert saved.fleet.instances == json.loads(first.stdout)["recommendation"]["instances"] == 10
    assert (saved.trainer.batch_samples, saved.run.steps) == (256, default_scenario().run.steps)
    again = json.loads(run("--scenario", str(file), "--json").stdout)
    assert again["candidates"] == json.loads(first.stdout)["candidates"]
    refused = run(*asked, "--save", str(file))
    assert refused.exit_code == 2
    assert "exists already" in refused.stderr
