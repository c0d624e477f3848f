from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetsim.cli.main import app
from fleetsim.config import default_scenario, load_scenario, shipped_scenarios


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["scenario", *arguments])


def test_init_writes_the_defaults_out(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    result = run("init", "-o", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "wrote" in result.stderr
    assert load_scenario(file) == default_scenario()
    assert file.read_text() == run("init").stdout
    assert [p.name for p in tmp_path.iterdir()] == ["job.yaml"]


def test_init_never_overwrites_unless_told(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("mine")
    result = run("init", "-o", str(file))
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert file.read_text() == "mine"
    assert run("init", "-o", str(file), "--force").exit_code == 0
    assert load_scenario(file) == default_scenario()


@pytest.mark.parametrize("output", ["", "no/such/folder/job.yaml", ".", "a\0b"])
def test_an_output_that_cannot_be_is_refused(output: str) -> None:
    result = run("init", "-o", output)
    assert result.exit_code == 2
    assert "--output" in result.stderr


def test_init_of_an_unknown_name() -> None:
    result = run("init", "publishd/nothing")
    assert result.exit_code == 2
    assert "no shipped scenario of this name" in result.stderr


def test_every_shipped_scenario_is_listed_and_a_start() -> None:
    listed = json.loads(run("ls", "--json").stdout)["scenarios"]
    assert [s["name"] for s in listed] == list(shipped_scenarios())
    text = run("ls").stdout
    assert all(len(line) <= 80 for line in text.splitlines())
    for name, path in shipped_scenarios().items():
        assert f"  {name.rpartition('/')[2]} " in text
        assert run("init", name).stdout == path.read_text()


def test_ls_groups_what_it_lists() -> None:
    lines = run("ls").stdout.splitlines()
    heads = [line for line in lines if line and not line.startswith("  ")]
    assert [h.split(",")[0].split(":")[0] for h in heads] == [
        "Presets",
        "Examples to start from",
        "Published runs",
        "Read one with its sources",
    ]
    areal = next(line for line in lines if line.startswith("  areal "))
    assert areal.split("  ")[-1].strip() == "split; 2 versions ahead; age unbounded"
    listed = {s["name"]: s for s in json.loads(run("ls", "--json").stdout)["scenarios"]}
    assert listed["presets/areal"]["folder"] == "presets"
    assert listed["presets/areal"]["kind"] == "split; 2 versions ahead; age unbounded"


def test_init_of_a_preset_keeps_its_comments(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    assert run("init", "verl-fully-async", "-o", str(file)).exit_code == 0
    assert "staleness_threshold, 0.1" in file.read_text()
    assert load_scenario(file) == load_scenario("verl-fully-async")


def test_check_tells_all_problems_of_all_files(tmp_path: Path) -> None:
    good, bad, gone = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "gone.yaml"
    good.write_text("fleet: {instances: 3}\n")
    bad.write_text("fleet: {instances: -3}\ntrainer: {gpu: 3}\n")
    result = run("check", str(good), str(bad), str(gone))
    assert result.exit_code == 2
    assert result.stdout == f"{good}: ok\n"
    assert "fleet.instances" in result.stderr
    assert 'did you mean "gpus"?' in result.stderr
    assert "no such file" in result.stderr
    document = json.loads(run("check", "--json", str(good), str(bad)).stdout)
    assert [(f["ok"], len(f["problems"])) for f in document["files"]] == [(True, 0), (False, 2)]
    assert run("check", str(good)).exit_code == 0


def test_schema_is_a_json_schema() -> None:
    schema = json.loads(run("schema").stdout)
    assert schema["$schema"].endswith("2020-12/schema")
    assert "workload" in schema["properties"]
