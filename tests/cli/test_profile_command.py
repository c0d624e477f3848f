from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fleetsim.calibrate.build import build_profile
from fleetsim.calibrate.order import loads_in_order
from fleetsim.calibrate.raw import compress
from fleetsim.cli.main import app
from fleetsim.config import default_scenario
from fleetsim.config.engine_profile import load_profile, profile_text, shipped_profiles
from fleetsim.sim.engines import engine_of, step_time_of
from tests import profiles
from tests.calibrate.fake_engine import SMALL, measured


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["profile", *arguments])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile with its raw measurements beside it, of an engine with virtual time."""
    folder = tmp_path_factory.mktemp("calibrated")
    raw = measured(folder / "small.raw.jsonl", list(loads_in_order(SMALL, quick=True)))
    packed = compress(folder / "small.raw.jsonl")
    profile = build_profile(raw, name="small", raw_file=packed.name)
    (folder / "small.profile.json").write_text(profile_text(profile))
    return folder


# ------------------------------------------------------------------------------------------------------------------ ls


def test_ls_lists_what_ships_and_what_lies_here(here: Path) -> None:
    profiles.profile_file(here)
    profiles.profile_file(here, "guess.profile.json", **profiles.estimate())
    profiles.profile_file(here, "not-one-of-them.json")
    result = run("ls", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    found = {p["profile"]: p for p in document["profiles"]}
    assert found.keys() == {*shipped_profiles(), "h200-7b.profile.json", "guess.profile.json"}
    mine = found["h200-7b.profile.json"]
    assert (mine["gpu"], mine["model"], mine["tp"], mine["engine_version"]) == (
        "NVIDIA H200", "Qwen/Qwen2.5-7B", 1, "0.26.0",
    )  # fmt: skip
    assert (mine["kind"], mine["error"]["median"]) == ("measured", 0.017)
    assert "h200-7b.profile.json" in run("ls").stdout


def test_ls_tells_of_a_broken_file_and_goes_on(here: Path) -> None:
    profiles.profile_file(here)
    (here / "cut.profile.json").write_text('{"name": "cut", ')
    result = run("ls")
    assert result.exit_code == 0
    assert "h200-7b.profile.json" in result.stdout
    assert "warning: cut.profile.json cannot be used" in result.stderr
    assert [p["profile"] for p in json.loads(run("ls", "--json").stdout)["unreadable"]] == ["cut.profile.json"]


def test_ls_where_there_is_nothing_says_what_to_do(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetsim.config.engine_profile.shipped_profiles", dict)
    result = run("ls")
    assert result.exit_code == 0
    assert "fleetsim calibrate" in result.stdout


# ---------------------------------------------------------------------------------------------------------------- show


def test_show_prints_the_view_without_trailing_spaces(tmp_path: Path) -> None:
    result = run("show", profiles.profile_file(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.startswith("h200-qwen2.5-7b-tp1-vllm-0.26.0\nMeasured on 2026-11-20")
    assert result.stderr == ""
    assert all(line == line.rstrip() and len(line) <= 80 for line in result.stdout.splitlines())


def test_show_as_json_is_the_file_and_its_predictions(tmp_path: Path) -> None:
    file = profiles.profile_file(tmp_path)
    document = json.loads(run("show", file, "--json").stdout)
    assert document["profile"] == load_profile(file).model_dump(mode="json")
    assert len(document["predictions"]) == len(document["profile"]["points"])


def test_show_writes_a_page(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    file, place = profiles.profile_file(tmp_path), tmp_path / "out.html"
    result = run("show", file, "--html", str(place))
    assert result.exit_code == 0
    assert place.read_text().startswith("<!doctype html>")
    assert result.stdout.startswith("h200-qwen2.5-7b")
    assert "wrote" in result.stderr
    again = run("show", file, "--html", str(place))
    assert (again.exit_code, again.stdout) == (2, "")
    assert "exists already" in again.stderr


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "x"}', '{"schema_version": 2}', "\x00"])
def test_show_refuses_what_is_no_profile(tmp_path: Path, content: str) -> None:
    file = tmp_path / "bad.profile.json"
    file.write_text(content)
    result = run("show", str(file))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert run("show", str(tmp_path / "nowhere.json")).exit_code == 2
    assert run("show", str(tmp_path)).exit_code == 2


def test_show_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom fleetsim.cli.main import app\n"
        "try:\n    app(['profile', 'show', sys.argv[1]])\nexcept SystemExit as end:\n    code = end.code\n"
        "heavy = ('numpy', 'scipy', 'numba', 'pandas', 'simpy', 'fleetsim.config.scenario')\n"
        "print('LOADED', code, *(m for m in heavy if m in sys.modules))"
    )
    file = profiles.profile_file(tmp_path)
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED 0"


# --------------------------------------------------------------------------------------------------------------- check


@pytest.mark.slow
def test_check_passes_on_the_measurements_that_made_the_profile(calibrated: Path) -> None:
    result = run("check", str(calibrated / "small.profile.json"))
    assert result.exit_code == 0, result.output
    assert "kept-out batches predicted within 5.0 %" in result.stdout
    assert "The simulator predicts what it predicted when the profile was written." in " ".join(result.stdout.split())
    assert result.stderr == ""


def test_check_fails_above_the_limit_and_names_the_batches(calibrated: Path, tmp_path: Path) -> None:
    slower = json.loads((calibrated / "small.profile.json").read_text())
    slower["coefficients"]["knots_s"] = [
        k | {"value": 1.2 * k["value"], "ci_high": None} for k in slower["coefficients"]["knots_s"]
    ]
    del slower["seal"]
    file = tmp_path / "slower.profile.json"
    file.write_text(json.dumps(slower))
    raw = str(calibrated / "small.raw.jsonl.gz")
    result = run("check", str(file), "--raw", raw, "--json")
    assert result.exit_code == 10
    document = json.loads(result.stdout)
    assert document["passed"] is False
    assert document["drift"]["changed"] is True
    failed = [b["now"]["name"] for b in document["batches"] if not b["passed"]]
    assert failed
    assert all(name in result.stderr for name in failed)
    assert all(b["now"]["makespan_error"] > 0.05 for b in document["batches"] if not b["passed"])
    lenient = run("check", str(file), "--raw", raw, "--limit", "0.5")
    assert lenient.exit_code == 0, lenient.output
    assert "The simulator has changed" in lenient.stdout


def test_check_finds_shipped_measurements_in_their_own_folder(calibrated: Path, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "raw").mkdir()
    for name, folder in (("small.profile.json", "profiles"), ("small.raw.jsonl.gz", "raw")):
        (tmp_path / folder / name).write_bytes((calibrated / name).read_bytes())
    assert run("check", str(tmp_path / "profiles" / "small.profile.json")).exit_code == 0


def test_check_tells_when_the_measurements_are_of_something_else(calibrated: Path, tmp_path: Path) -> None:
    file = profiles.profile_file(tmp_path)
    result = run("check", file, "--raw", str(calibrated / "small.raw.jsonl.gz"))
    assert "of the profile NVIDIA H200" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("changes", "arguments", "told"),
    [
        ({}, (), "is not beside"),
        ({"raw": None}, (), "names no raw measurements"),
        (profiles.estimate(), (), "nothing was measured for it"),
        ({}, ("--raw", "nowhere.jsonl"), "--raw: 'nowhere.jsonl': no such file"),
        ({}, ("--limit", "0"), "a share above 0"),
        ({}, ("--limit", "nan"), "a share above 0"),
        ({}, ("--limit", "10"), "a share above 0, at most 1; for 10 % give --limit 0.1"),
    ],
)
def test_check_says_what_is_missing(here: Path, changes: dict[str, Any], arguments: tuple[str, ...], told: str) -> None:
    result = run("check", profiles.profile_file(here, **changes), *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""


def test_check_refuses_measurements_without_a_batch(tmp_path: Path) -> None:
    sweeps = [load for load in loads_in_order(SMALL, quick=True) if load.phase == "decode"][:2]
    measured(tmp_path / "sweeps.raw.jsonl", sweeps)
    result = run("check", profiles.profile_file(tmp_path), "--raw", str(tmp_path / "sweeps.raw.jsonl"))
    assert result.exit_code == 2
    assert "holds no batch that was kept out of the fit" in result.stderr
    (tmp_path / "none.raw.jsonl").write_text("nothing\n")
    assert run("check", profiles.profile_file(tmp_path), "--raw", str(tmp_path / "none.raw.jsonl")).exit_code == 2


def test_a_profile_and_its_measurements_show_what_was_kept_out(calibrated: Path) -> None:
    text = run("show", str(calibrated / "small.profile.json")).stdout
    assert "batches kept out of the fit (█ measured, ▒ predicted)" in text
    assert "rl_on" in text


# ------------------------------------------------------------------------------------------------------------ estimate


def test_an_estimate_is_the_roofline_as_a_profile(here: Path) -> None:
    result = run("estimate", "--gpu", "H100", "--model", "Qwen/Qwen2.5-7B", "-o", "h100.profile.json")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "An estimate, not a measurement: Qwen/Qwen2.5-7B bfloat16 on H100-SXM x 1" in text
    assert re.search(r"Its error: \d\.\d % in the median", text)
    assert "95 % interval" not in text
    assert "wrote h100.profile.json" in result.stderr
    step_time, limits = engine_of(default_scenario(), log_probs=False)
    saved = load_profile("h100.profile.json")
    for b in (1, 7, 300, 1024):
        assert step_time_of(saved).seconds(b, kv_tokens=900.0 * b) == step_time.seconds(b, kv_tokens=900.0 * b)
    assert saved.limits.kv_blocks == limits.kv_blocks
    again = run("estimate", "--gpu", "H100", "--model", "Qwen/Qwen2.5-7B", "-o", "h100.profile.json")
    assert (again.exit_code, again.stdout) == (2, "")
    assert "--force" in again.stderr


def test_an_estimate_names_the_flag_that_is_wrong() -> None:
    result = run("estimate", "--gpu", "H99", "--model", "Qwen/Qwen2.5-7B")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --gpu: 'H99'")
    assert run("estimate", "--gpu", "H100", "--model", "Qwen/Qwen2.5-7B", "--tp", "3").stderr.startswith(
        "error: --tp: 3"
    )


# ------------------------------------------------------------------------------------------ answers that use a profile

SHORT = ("--batch", "64", "--len", "300", "--set", "run.steps=8", "--replications", "2", "--trainer-step-s", "3")


def answer(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def job_file(folder: Path, profile: str, **engine: Any) -> str:
    file = folder / "job.yaml"
    file.write_text(
        json.dumps(
            {
                "workload": {
                    "output_tokens": {"mean": 200, "cv": 0.8, "max": 800},
                    "prompt_tokens": 128,
                    "group_size": 4,
                },
                "engine": {"kind": "measured", "profile": profile, "slowdown": 1.0, **engine},
                "admission": {"max_staleness": 1},
                "fleet": {"instances": 2},
                "trainer": {"batch_samples": 32, "fixed_s": 2.0},
                "run": {"steps": 6, "replications": 1},
            }
        )
    )
    return str(file)


def test_size_prints_the_profile_s_error_and_takes_its_gpus(tmp_path: Path) -> None:
    file = profiles.profile_file(tmp_path, provenance=profiles.provenance(tp=2))
    result = answer("size", *SHORT, "--profile", file, "--strict", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["scenario"]["engine"]["tp"] == 2
    assert document["scenario"]["engine"]["gpu"] == "NVIDIA H200"
    assert "engine.tp" not in [a["path"] for a in document["assumptions"]]
    profile = document["profile"]
    assert (profile["kind"], profile["error_median"], profile["error_worst"]) == ("measured", 0.017, 0.028)
    one = profiles.profile_file(tmp_path, "one.json", provenance=profiles.provenance(tp=1))
    cheap = json.loads(answer("size", *SHORT, "--profile", one, "--json").stdout)
    cost = [d["candidates"][0]["cost_per_step"]["mean"] for d in (document, cheap)]
    assert cost[0] > cost[1], "two GPUs an instance cost more than one"
    text = " ".join(answer("size", *SHORT, "--profile", file, "--explain").stdout.split())
    assert "NVIDIA H200 x 2" in text
    assert "error: median 1.7 %, worst 2.8 % (makespan of 3 batches kept out of the fit)" in text


def test_another_tp_than_the_profile_s_is_refused(tmp_path: Path) -> None:
    file = profiles.profile_file(tmp_path)
    result = answer("size", *SHORT, "--profile", file, "--tp", "2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: --tp: 2: profile h200-qwen2.5-7b")
    assert answer("size", *SHORT, "--profile", file, "--tp", "1").exit_code == 0
    wrong = answer("simulate", job_file(tmp_path, file, tp=4))
    assert wrong.exit_code == 2
    assert "engine.tp: 4" in wrong.stderr


def test_caching_off_in_the_engine_is_caching_off_in_the_answer(tmp_path: Path) -> None:
    off = {"enabled": False, "hit_tokens": 0, "expected_tokens": 0}
    file = profiles.profile_file(tmp_path, prefix_cache=off)
    document = json.loads(answer("size", *SHORT, "--profile", file, "--json").stdout)
    assert document["scenario"]["engine"]["prefix_caching"] is False
    (told,) = [a for a in document["assumptions"] if a["path"] == "engine.prefix_caching"]
    assert told["text"] == "prefix caching off, as in the engine that was measured"
    assert told["flag"] == "--set engine.prefix_caching=true"


def test_simulate_prints_the_error_and_refuses_extrapolation_under_strict(tmp_path: Path) -> None:
    inside = answer("simulate", job_file(tmp_path, profiles.profile_file(tmp_path)), "--strict", "--explain")
    assert inside.exit_code == 0, inside.output
    assert "error: median 1.7 %, worst 2.8 %" in " ".join(inside.stdout.split())
    assert inside.stderr == ""
    narrow = profiles.profile_file(tmp_path, "narrow.json", ranges={"decodes": [1, 6]})
    outside = answer("simulate", job_file(tmp_path, narrow), "--strict", "--json")
    assert outside.exit_code == 12
    assert "of the time that they work, instances hold decodes outside 1 to 6" in " ".join(outside.stderr.split())
    document = json.loads(outside.stdout)
    assert document["profile"]["kind"] == "measured"
    assert len(document["warnings"]) == 1
    assert answer("simulate", job_file(tmp_path, narrow)).exit_code == 0
    roofline = answer("simulate", job_file(tmp_path, narrow), "--set", "engine.kind=roofline", "--strict")
    assert roofline.exit_code == 12
    assert "roofline estimate" in roofline.stderr


def test_a_derived_profile_is_told_apart_and_strict_inside_its_ranges(tmp_path: Path) -> None:
    provenance = profiles.provenance(source="bench.json")
    derived = profiles.profile_file(tmp_path, kind="derived", provenance=provenance, checks=None)
    result = answer("simulate", job_file(tmp_path, derived), "--strict", "--explain")
    assert result.exit_code == 0, result.output
    assert "derived from bench.json" in " ".join(result.stdout.split())
    estimate = profiles.profile_file(tmp_path, "estimate.json", **profiles.estimate())
    refused = answer("simulate", job_file(tmp_path, estimate), "--strict")
    assert refused.exit_code == 12
    assert "no measured ranges" in refused.stderr
