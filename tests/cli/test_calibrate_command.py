"""`fleetsim calibrate`, with a child that measures an engine of virtual time: nothing measured is ever lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fleetsim.calibrate.loads import Load
from fleetsim.calibrate.order import loads_in_order
from fleetsim.calibrate.raw import RawWriter, read_raw, records_of
from fleetsim.calibrate.session import ended, measure
from fleetsim.calibrate.vllm import parent
from fleetsim.calibrate.vllm.parent import MeasurementOutcome, Spec
from fleetsim.cli.main import app
from fleetsim.config.engine_profile import load_profile
from fleetsim.errors import OutsideError
from tests.calibrate.fake_engine import SMALL, FakeEngine

OUT = ("-o", "small.profile.json")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["calibrate", *arguments])


def wanted() -> list[Load]:
    return [load for load in loads_in_order(SMALL, quick=True) if not load.optional]


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """A folder to work in, and a child that measures the fake engine; what it was asked for."""
    monkeypatch.chdir(tmp_path)
    asked: list[Spec] = []

    def child(spec: Spec, *, tell: Callable[[str], None]) -> MeasurementOutcome:
        asked.append(spec)
        return play(spec, tell)

    monkeypatch.setattr(parent, "run_child", child)
    return asked


def play(spec: Spec, tell: Callable[[str], None], most: int | None = None) -> MeasurementOutcome:
    writer = RawWriter(spec.raw)
    done = ended(Path(spec.raw)) if spec.resume else frozenset[str]()
    loads = [load for load in wanted() if load.key not in done][:most]
    went = measure(FakeEngine(writer), loads, writer, budget_s=1e6, tell=tell)
    writer.close()
    return MeasurementOutcome(loads=went.ran, left_out=went.left_out)


def test_from_a_model_to_a_profile(specs: list[Spec]) -> None:
    result = run(
        "--model", "fake/Fake-7B", "--tp", "1", "--max-num-seqs", "64", "--engine-arg", "x=[1]", "--quick", *OUT
    )
    assert result.exit_code == 0, result.output
    (spec,) = specs
    assert spec.engine_args == {
        "model": "fake/Fake-7B", "tensor_parallel_size": 1, "max_num_seqs": 64, "load_format": "dummy", "x": [1],
    }  # fmt: skip
    assert (spec.quick, spec.budget_s, spec.resume) == (True, 120.0, False)
    profile = load_profile("small.profile.json")
    assert profile.raw == "small.raw.jsonl.gz"
    assert len(read_raw("small.raw.jsonl.gz").segments) == len(wanted())
    assert not Path("small.raw.jsonl").exists()
    assert "wrote small.profile.json" in result.stderr
    assert f"1 of {len(wanted())}: " in result.stderr
    assert "per KV token read" in result.stdout
    meta = records_of("small.raw.jsonl.gz")[0][0]
    assert (meta["t"], meta["source"], meta["model"]) == ("meta", "vllm", "fake/Fake-7B")


def test_the_json_document(specs: list[Spec]) -> None:
    result = run("--model", "fake/Fake-7B", "--quick", "--json", *OUT)
    document = json.loads(result.stdout)
    assert document["command"] == "calibrate"
    assert document["path"] == "small.profile.json"
    assert document["raw"] == "small.raw.jsonl.gz"
    assert document["profile"]["checks"][0]["name"] == "rl_on"


def test_the_same_measurements_fitted_again(specs: list[Spec]) -> None:
    run("--model", "fake/Fake-7B", "--quick", *OUT)
    Path("other").mkdir()
    again = run("--from", "small.raw.jsonl.gz", "-o", "other/again.profile.json")
    assert again.exit_code == 0, again.output
    first, second = load_profile("small.profile.json"), load_profile("other/again.profile.json")
    assert second.coefficients == first.coefficients
    assert second.checks == first.checks
    assert second.raw == "../small.raw.jsonl.gz"
    assert run("--from", "small.raw.jsonl.gz", "-o", "other/again.profile.json").exit_code == 2
    assert run("--from", "small.raw.jsonl.gz", "-o", "other/again.profile.json", "--force").exit_code == 0
    both = run("--from", "small.raw.jsonl.gz", "--from", "small.raw.jsonl.gz", "-o", "b.json")
    assert both.exit_code == 2
    assert "fitted alone" in both.stderr


def test_an_engine_that_dies_loses_nothing(specs: list[Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(spec: Spec, *, tell: Callable[[str], None]) -> MeasurementOutcome:
        play(spec, tell, most=5)
        raise OutsideError("vLLM died in the middle: out of memory; lower --max-num-seqs")

    whole = parent.run_child
    monkeypatch.setattr(parent, "run_child", dies)
    result = run("--model", "fake/Fake-7B", "--quick", *OUT)
    assert result.exit_code == 3
    assert "out of memory" in result.stderr
    assert "5 loads were measured and are kept in small.raw.jsonl" in result.stderr
    assert "--resume" in result.stderr
    assert not Path("small.profile.json").exists()
    refused = run("--model", "fake/Fake-7B", "--quick", *OUT)
    assert refused.exit_code == 2
    assert "--resume" in refused.stderr
    monkeypatch.setattr(parent, "run_child", whole)
    resumed = run("--model", "fake/Fake-7B", "--quick", "--resume", *OUT)
    assert resumed.exit_code == 0, resumed.output
    raw = read_raw("small.raw.jsonl.gz")
    assert len(raw.segments) == len(wanted())
    assert len({(s.phase, json.dumps(s.label, sort_keys=True)) for s in raw.segments}) == len(wanted())
    assert len(raw.starts) == 2
    # a run that is whole goes on with nothing, and the fit is the same
    before = load_profile("small.profile.json").coefficients
    assert run("--model", "fake/Fake-7B", "--quick", "--resume", *OUT).exit_code == 0
    assert load_profile("small.profile.json").coefficients == before


def test_an_interrupted_run_says_what_is_kept(specs: list[Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(spec: Spec, *, tell: Callable[[str], None]) -> MeasurementOutcome:
        play(spec, tell, most=3)
        raise KeyboardInterrupt

    monkeypatch.setattr(parent, "run_child", interrupted)
    result = run("--model", "fake/Fake-7B", "--quick", *OUT)
    assert result.exit_code == 130
    assert "3 loads were measured" in result.stderr
    assert len(ended(Path("small.raw.jsonl"))) == 3
    fit = run("--from", "small.raw.jsonl", "-o", "part.profile.json")
    assert fit.exit_code in (0, 2)  # three loads of a shuffled pass may or may not tell enough
    if fit.exit_code == 2:
        assert "needs" in fit.stderr


def test_an_engine_that_never_came_up_leaves_nothing(specs: list[Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(spec: Spec, *, tell: Callable[[str], None]) -> MeasurementOutcome:
        RawWriter(spec.raw).put("error", ph="start", err="ModuleNotFoundError: No module named 'vllm'")
        Path(spec.log).touch()
        raise OutsideError("vLLM did not start: vLLM is not installed")

    monkeypatch.setattr(parent, "run_child", absent)
    result = run("--model", "fake/Fake-7B", *OUT)
    assert result.exit_code == 3
    assert "not installed" in result.stderr
    assert list(Path().iterdir()) == []


def test_measuring_only(specs: list[Spec]) -> None:
    result = run("--model", "fake/Fake-7B", "--quick", "--measure-only", *OUT)
    assert result.exit_code == 0
    assert "fleetsim calibrate --from small.raw.jsonl.gz" in result.stderr
    assert not Path("small.profile.json").exists()
    assert Path("small.raw.jsonl.gz").exists()


def test_measuring_only_needs_nothing_that_vllm_does_not_bring() -> None:
    """Not numba, scipy or simpy: a GPU box may have vLLM alone."""
    import subprocess
    import sys

    code = (
        "import sys; sys.modules.update(dict.fromkeys(('numba', 'llvmlite', 'scipy', 'simpy', 'pandas')))\n"
        "import fleetsim.cli.main, fleetsim.calibrate.ask, fleetsim.calibrate.run, fleetsim.calibrate.server\n"
        "import fleetsim.calibrate.vllm.parent, fleetsim.calibrate.vllm.child\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ([], 2, "one of --model"),
        (["--model", "m", "--resume"], 2, "no measurements to go on with"),
        (["--url", "http://127.0.0.1:9"], 3, "no connection"),
        (["--url", "file:///etc/passwd"], 2, "only http and https"),
        (["--from", "none.json"], 2, "no such file"),
        (["--model", "m", "-o", "x.txt"], 2, "no name for a profile"),
        (["--model", "m", "--modle", "n"], 2, "No such option"),
    ],
)
def test_wrong_commands(specs: list[Any], given: list[str], code: int, said: str) -> None:
    result = run(*given)
    assert result.exit_code == code
    assert said in result.stderr
    assert list(Path().iterdir()) == []


def test_a_resumed_run_is_of_the_same_engine(specs: list[Spec]) -> None:
    run("--model", "fake/Fake-7B", "--quick", "--max-num-seqs", "32", *OUT)
    before = Path("small.raw.jsonl.gz").read_bytes()
    other = run("--model", "fake/Fake-7B", "--quick", "--max-num-seqs", "8", "--resume", *OUT)
    assert other.exit_code == 2
    assert "--resume: max_num_seqs: 8: was 32" in other.stderr
    assert Path("small.raw.jsonl.gz").read_bytes() == before
    assert len(specs) == 1


def test_two_calibrations_into_one_file(specs: list[Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    second: list[Result] = []

    def meanwhile(spec: Spec, *, tell: Callable[[str], None]) -> MeasurementOutcome:
        second.extend(run("--model", "fake/Fake-7B", flag, *OUT) for flag in ("--force", "--resume"))
        return play(spec, tell)

    monkeypatch.setattr(parent, "run_child", meanwhile)
    assert run("--model", "fake/Fake-7B", "--quick", *OUT).exit_code == 0
    assert [r.exit_code for r in second] == [2, 2]
    assert all("another calibration is writing it" in r.stderr for r in second)
    assert len(read_raw("small.raw.jsonl.gz").segments) == len(wanted())


def test_flags_that_the_measurements_contradict(specs: list[Spec]) -> None:
    run("--model", "fake/Fake-7B", "--quick", *OUT)
    result = run("small.raw.jsonl.gz", "--tp", "4", "--gpu", "H100", "-o", "b.profile.json")
    assert result.exit_code == 2
    assert result.stderr.count("say it themselves") == 2


def test_damaged_measurements_are_fitted_and_named(specs: list[Spec]) -> None:
    run("--model", "fake/Fake-7B", "--quick", *OUT)
    packed = Path("small.raw.jsonl.gz").read_bytes()
    Path("cut.raw.jsonl.gz").write_bytes(packed[: len(packed) * 9 // 10])
    result = run("--from", "cut.raw.jsonl.gz", "-o", "cut.profile.json")
    assert result.exit_code == 0, result.output
    assert "damaged or cut short" in result.stderr


def test_a_budget_in_which_nothing_ran(specs: list[Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(spec: Spec, *, tell: Callable[[str], None]) -> MeasurementOutcome:
        return play(spec, tell, most=0)

    monkeypatch.setattr(parent, "run_child", nothing)
    result = run("--model", "fake/Fake-7B", "--budget-s", "16", *OUT)
    assert result.exit_code == 3
    assert "larger --budget-s" in result.stderr
    assert list(Path().iterdir()) == []
