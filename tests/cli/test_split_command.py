from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import fleetsim as fs
from fleetsim.cli.main import app
from fleetsim.compare.saved_result import CANDIDATE_METRICS
from fleetsim.config import load_scenario

SMALL = (
    "--gpus", "4", "--batch", "64", "--len", "300", "--trainer-step-s", "3", "--set", "run.steps=8",
    "--replications", "2", "--trainer-min-gpus", "1", "--trainer-unit", "1",
)  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["split", *arguments])


def test_the_document_has_every_way_and_the_same_bytes_every_time() -> None:
    first, second = run(*SMALL, "--json"), run(*SMALL, "--json")
    assert first.exit_code == 0, first.output
    assert first.stdout_bytes == second.stdout_bytes
    document = json.loads(first.stdout)
    ways = document["arrangements"]
    assert {w["arrangement"] for w in ways} == {"1 + 3", "2 + 2", "3 + 1", "colocated sync", "colocated async"}
    assert [w["step_s"]["mean"] for w in ways] == sorted(w["step_s"]["mean"] for w in ways)
    for way in ways:
        assert sorted(way["ranks"]) == ["cost_per_step", "goodput", "step_s"]
        for metric in CANDIDATE_METRICS:
            assert way[metric].keys() == {"mean", "ci_low", "ci_high"}
    advice = document["recommendation"]
    assert advice["verdict"] in {"split", "do_not_split", "no_difference"}
    assert advice["arrangement"] in {advice["best_split"], advice["best_colocated"]}
    assert advice["best_split_over_best_colocated"].keys() == {"mean", "ci_low", "ci_high"}
    names = [a["name"] for a in document["alternatives"]["tried"]]
    assert names == ["one_more_instance", "staleness_budget", "sync_cadence", "length_cap"]
    for lever in document["alternatives"]["tried"]:
        assert lever["step_ratio"]["ci_low"] <= lever["step_ratio"]["mean"] <= lever["step_ratio"]["ci_high"]
    assert document["explanation"].startswith("What binds: ")
    assert any("divided" in a["text"] or "law" in a["text"] for a in document["assumptions"])


@pytest.mark.parametrize("columns", [80, 120])
def test_the_view_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = run(*SMALL, "--explain")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(("Split ", "Do not split"))
    assert all(len(line) <= columns for line in lines)
    rows = [line for line in lines if line.strip(" >=").startswith(("1 + 3", "2 + 2", "3 + 1", "colocated "))]
    text = " ".join(result.stdout.split())
    columns_left_out = "the terminal is too narrow: tok/GPU-s." in text
    ranked = [line for line in rows if line.count(" %") == 2 and line.endswith("%")]
    assert len(ranked) == 5, "no row wraps"
    assert columns_left_out == (columns == 80)
    for told in ("What binds:", "trainer's seconds", "5 s to hand the GPUs over", "engine speed"):
        assert told in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "--gpus"),
        (("--gpus", "x"), "--gpus"),
        (("--gpus", "1"), "cannot be split"),
        (("--gpus", "0"), "between 1 and 100,000"),
        (("--gpus", "16", "--tp", "3", "--instance-tok-s", "4000"), "use 15 or 18"),
        (("--gpus", "16", "--tp", "3"), "--tp: 3"),
        (("--gpus", "16", "--by", "sped"), "is no measure"),
        (("--gpus", "16", "--trainer-point", "8"), "GPUS:SECONDS"),
        (("--gpus", "16", "--trainer-point", "8:20", "--trainer-point", "8:21"), "--trainer-point: "),
        (("--gpus", "16", "--trainer-point", "8:nan"), "--trainer-point"),
        (("--gpus", "16", "--trainer-unit", "0"), "--trainer-unit: 0"),
        (("--gpus", "16", "--trainer-min-gpus", "-1"), "--trainer-min-gpus: -1"),
        (("--gpus", "16", "--parallel-share", "2"), "--parallel-share: 2"),
        (("--gpus", "16", "--fail-if", "speed>1"), "unknown metric"),
        (("--gpus", "16", "--save", "/nowhere/at/all.yaml"), "its folder does not exist"),
    ],
)
def test_bad_input_is_told_by_its_flag(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""


def test_all_problems_at_once() -> None:
    result = run("--gpus", "16", "--by", "x", "--trainer-unit", "0", "--trainer-point", "y", "--batch", "0")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 4


def test_points_replace_the_law_and_the_assumed_seconds() -> None:
    document = json.loads(
        run(*SMALL[:6], *SMALL[8:], "--trainer-point", "1:8", "--trainer-point", "4:2", "--json").stdout
    )
    seconds = {w["arrangement"]: w["trainer_fixed_s"] for w in document["arrangements"]}
    assert seconds["3 + 1"] == pytest.approx(8.0)
    assert seconds["1 + 3"] == pytest.approx(8.0 / 3)  # in proportion between two points
    assert seconds["colocated sync"] == pytest.approx(2.0)
    assert not any(a["path"].startswith("trainer.") for a in document["assumptions"])


def test_gates_and_the_saved_scenario(tmp_path: Path) -> None:
    place = tmp_path / "advised.yaml"
    result = run(*SMALL, "--json", "--save", str(place), "--fail-if", "trainer_gpus>=1", "--fail-if", "step_s<0")
    assert result.exit_code == 10
    assert result.stderr.splitlines() == [line for line in result.stderr.splitlines() if "step_s" not in line], (
        "only the true condition trips"
    )
    advice = json.loads(result.stdout)["recommendation"]
    saved = load_scenario(place)
    assert saved.fleet.instances == advice["instances"]
    assert saved.trainer.gpus == advice["trainer_gpus"]
    assert run(*SMALL, "--strict").exit_code == 12


def test_a_saved_way_keeps_its_trainer(tmp_path: Path) -> None:
    """Where nobody gave the trainer's GPUs, a reader of the file would choose them anew: 8 where the way has 4."""
    place = tmp_path / "advised.yaml"
    result = run("--gpus", "6", "--batch", "64", "--len", "400", "--replications", "2", "--json", "--save", str(place))
    advice = json.loads(result.stdout)["recommendation"]
    assert advice["arrangement"] in ("2 + 4", "4 + 2"), "of two pools"
    assert fs.load(place)["trainer.gpus"] == advice["trainer_gpus"]


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "--gpus",
                    "--tp",
                    "--trainer-point",
                    "--trainer-unit",
                    "--trainer-min-gpus",
                    "--parallel-share",
                    "--by",
                ]
            ),
            st.one_of(st.integers(-2, 6).map(str), st.text(max_size=4), st.sampled_from(["2:1", "goodput", "1:nan"])),
        ),
        max_size=3,
    )
)
def test_whatever_is_typed_there_is_no_traceback(parts: list[tuple[str, str]]) -> None:
    fast = ("--instance-tok-s", "4000", "--len-cv", "0", "--batch", "8", "--set", "run.steps=3", "--replications", "1")
    result = run("--gpus", "4", *(word for part in parts for word in part), *fast)
    assert result.exit_code in {0, 2}, result.output
    assert "Traceback" not in result.output
    if result.exit_code == 2:
        assert result.stderr
        assert result.stdout == ""
