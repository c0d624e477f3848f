"""`fleetsim plan` as a command: what it prints, refuses and writes; its rows can be simulated again exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim.cli.main import app
from fleetsim.search.permissions import allowed
from tests.once import forget

pytestmark = pytest.mark.usefixtures("quick")

JOB = ("--batch", "32", "--len", "150", "--model", "Qwen/Qwen2.5-1.5B", "--replications", "2")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def test_every_row_can_be_simulated_again_to_the_last_digit() -> None:
    result = run("--gpus", "4", *JOB, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["feasible"] is True
    assert 1 < len(document["plans"]) <= 7
    assert document["plans"][0] == document["recommendation"]
    forget()
    for row, advised in zip(document["plans"], document["advice"], strict=False):
        assert advised["what"] == row["plan"]
        again = json.loads(CliRunner().invoke(app, [*advised["command"][1:], "--json"]).stdout)["metrics"]
        assert again["step_s"]["mean"] == row["step_s"]["mean"], row["plan"]
        assert again["cost_per_step"]["mean"] == row["cost_per_step"]["mean"], row["plan"]
        assert row["ranges"]["step_s"][0] <= row["step_s"]["mean"] <= row["ranges"]["step_s"][1]


def test_python_gives_the_command_s_document() -> None:
    printed = run("--gpus", "1", *JOB, "--allow", "fp8", "--objective", "cost", "--json").stdout
    options: dict[str, Any] = {"batch": 32, "len": 150, "model": "Qwen/Qwen2.5-1.5B", "replications": 2}
    found = fs.plan(gpus=1, allow=["fp8"], objective="cost", **options)
    assert found.to_json() + "\n" == printed
    assert fs.load(**options).plan(gpus=1, allow="fp8", objective="cost").to_json() + "\n" == printed
    assert len(found.to_pandas()) == len(found.found.rows)
    assert found.job.simulate().mean["step_s"] == found.mean["step_s"]


def test_the_job_of_an_answer_takes_what_was_promised_of_an_engine_that_is_a_rate_alone() -> None:
    """Nobody named its model, so no sync is worked out, neither for the answer nor for its job."""
    job = fs.load(batch=32, len=150, instance_tok_s=1500, trainer_step_s=2, replications=2)
    for found in (job.plan(gpus=3), job.split(gpus=3)):
        assert found.job.simulate().mean["step_s"] == found.mean["step_s"]


def test_the_answer_and_its_front_fit_a_terminal_and_the_rest_is_explained() -> None:
    found = fs.plan(gpus=4, batch=32, len=150, model="Qwen/Qwen2.5-1.5B", replications=2)
    brief, explained = str(found).splitlines(), found.explained
    assert len(brief) <= 24
    assert max(map(len, brief)) <= 80
    assert "$/M tok  $/h  idle t/r" in explained
    labels = [line.split(" ")[0] for line in brief[: brief.index("")]]
    assert [label for label in labels if label in ("step", "cost", "binds", "allow", "assumed", "measure")] == [
        "step", "cost", "binds", "allow", "assumed", "measure"
    ]  # fmt: skip
    assert sum(" x TP" in line for line in brief[brief.index("") :]) > 1
    assert "were looked at" not in "".join(brief)
    assert "were looked at" in explained
    assert "to repeat a plan" in explained


def test_nothing_that_changes_training_is_taken_unless_it_is_allowed() -> None:
    document = json.loads(run("--gpus", "4", *JOB, "--max-staleness", "1", "--json").stdout)
    for row in document["plans"]:
        assert row["needs"] == []
        assert row["staleness_steps_at_most"] <= 1
        assert row["scenario"]["engine"]["dtype"] == row["scenario"]["engine"]["kv_dtype"] == "auto"
        assert row["scenario"]["engine"]["speculation"] is None
    told = [line["allow"] for line in document["forbidden"]]
    assert told == ["fp8", "speculation", "staleness<=2"]
    bought = [line["plan"]["step_s"]["mean"] for line in document["forbidden"] if line["plan"]]
    assert all(step_s < document["recommendation"]["step_s"]["mean"] for step_s in bought)


def test_what_is_allowed_is_no_longer_forbidden_and_makes_nothing_worse() -> None:
    plain = json.loads(run("--gpus", "1", *JOB, "--max-staleness", "1", "--json").stdout)
    allow = ("--allow", "fp8, speculation ,staleness<=3")
    more = json.loads(run("--gpus", "1", *JOB, "--max-staleness", "1", *allow, "--json").stdout)
    assert [line["allow"] for line in more["forbidden"]] == ["staleness<=4"]
    best, before = (d["recommendation"]["step_s"]["mean"] for d in (more, plain))
    assert best <= 1.01 * before


def test_an_on_policy_recipe_stays_on_policy() -> None:
    document = json.loads(run("--gpus", "4", *JOB, "--set", "admission.law=barrier", "--json").stdout)
    assert {row["kind"] for row in document["plans"]} == {"colocated_sync"}
    assert "staleness<=1" in [line["allow"] for line in document["forbidden"]]


def test_a_step_to_make_gives_the_cheapest_plan_that_makes_it() -> None:
    fast = json.loads(run("--gpus", "4", *JOB, "--json").stdout)
    limit = 2 * fast["recommendation"]["step_s"]["mean"]
    found = json.loads(run("--gpus", "4", "--step-s", f"{limit:.3f}", *JOB, "--json").stdout)
    assert found["recommendation"]["step_s"]["mean"] <= limit
    assert found["recommendation"]["cost_per_step"]["mean"] < fast["recommendation"]["cost_per_step"]["mean"]


def test_a_step_that_nothing_makes_is_told_first_and_exits_11() -> None:
    result = run("--gpus", "1", "--step-s", "0.01", "--allow", "staleness<=16", *JOB)
    assert result.exit_code == 11, result.output
    assert result.stdout.startswith("No plan makes a step of")
    assert "no plan makes a step of 0.01 s" in result.stderr
    assert "needs    on up to 1,024 GPUs a step takes at least" in result.stdout


def test_what_a_step_would_take_that_no_plan_makes_is_told_and_is_no_less_than_that() -> None:
    """The GPUs are a bound: a plan on as many as the step was taken from makes it."""
    fast, faster = (json.loads(run("--gpus", n, *JOB, "--json").stdout)["recommendation"] for n in ("2", "8"))
    wanted = 1.01 * faster["step_s"]["mean"]
    assert fast["step_s"]["mean"] > wanted
    found = json.loads(run("--gpus", "2", "--step-s", f"{wanted:.3f}", *JOB, "--json").stdout)
    assert not found["feasible"]
    assert 2 < found["reach"]["gpus"] <= 8
    assert found["recommendation"]["step_s"]["mean"] == pytest.approx(fast["step_s"]["mean"], rel=0.01)


def test_dollars_per_hour_bound_the_gpus_of_each_type() -> None:
    found = run("--max-price-per-hour", "10", "--gpu-types", "H100,H200", *JOB, "--json")
    document = json.loads(found.stdout)
    assert all(row["usd_per_hour"] <= 10 for row in document["plans"])
    assert {row["gpu"] for row in document["plans"]} <= {"H100", "H200"}


def test_dollars_per_hour_bound_what_is_paid_by_use() -> None:
    """Nobody limits the sandboxes, so that only a run says what their calls cost in an hour."""
    agents = ("--turns", "geometric:3", "--tool-s", "10", "--sandbox-price", "2", "--max-staleness", "1", *JOB)
    one = ("engine.pp=1", "engine.dp=1", "engine.max_num_seqs=64", "engine.max_num_batched_tokens=8192")
    few = ("--tp", "1", "--dtype", "bfloat16", "--kv-dtype", "bfloat16", *(w for key in one for w in ("--set", key)))
    found = json.loads(run("--max-price-per-hour", "30", *agents, *few, "--json").stdout)
    hourly = [3600 * row["cost_per_step"]["mean"] / row["step_s"]["mean"] for row in found["plans"]]
    assert max(hourly) <= 30
    assert max(row["usd_per_hour"] for row in found["plans"]) < max(hourly) / 2
    least = run("--max-price-per-hour", "5", *agents, *few)
    assert least.exit_code == 2
    assert "the cheapest takes $" in least.stderr


def test_a_condition_on_the_plan_trips() -> None:
    result = run("--gpus", "2", *JOB, "--fail-if", "gpus>1", "--json")
    assert result.exit_code == 10
    assert "--fail-if gpus>1 tripped" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), ("--gpus", "needs a budget", "--max-price-per-hour")),
        (("--gpus", "0"), ("--gpus 0", "between 1 and 100,000")),
        (("--gpus", "4", "--step-s", "-1"), ("--step-s", "must be above 0")),
        (("--gpus", "4", "--max-price-per-hour", "nan"), ("--max-price-per-hour", "must be above 0")),
        (("--gpus", "4", "--objective", "speed"), ("--objective speed", "is no objective")),
        (("--gpus", "4", "--gpu-types", "H100,H1000"), ("--gpu-types H1000",)),
        (("--gpus", "4", "--allow", "fp9,staleness<=x"), ("fp9", "did you mean", "staleness<=x", "is no permission")),
        (("--gpus", "1", "--model", "Qwen/Qwen2.5-72B"), ("--gpus 1", "holds no plan")),
        (("--gpus", "2", "--model", "Qwen/Qwen3-8B"), ("--gpus 2", "holds no plan")),
        (("--max-price-per-hour", "3"), ("--max-price-per-hour 3.0", "an engine 1, $3.64 for a GPU-hour")),
        (
            ("--gpus", "8", "--max-staleness", "0", "--set", "fleet.placement=disaggregated"),
            ("fleet.placement", "on shared GPUs alone", "--allow staleness<=1"),
        ),
    ],
)
def test_what_cannot_be_is_refused_with_rule_and_remedy(arguments: tuple[str, ...], said: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    told = " ".join(result.stderr.replace(":", "").replace("'", "").split())
    for words in said:
        assert words.replace(":", "") in told


def test_permissions_are_read_as_they_are_written() -> None:
    found = allowed(" FP8, staleness <= 2,staleness<=1 ,speculation,")
    assert found.texts == ("fp8", "speculation", "staleness<=2")
    assert found.covers(["fp8"])
    assert not found.covers(["nvfp4"])
    assert (found.oldest(1.0), found.oldest(4.0), found.oldest(None)) == (2.0, 4.0, 2.0)
    assert (allowed("").oldest(4.0), allowed("").oldest(None)) == (4.0, None)
    assert found.also("staleness<=5").staleness == 5
