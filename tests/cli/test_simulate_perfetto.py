"""`fleetsim simulate --perfetto`: refused before any work is done, or written whole, and the result stays the same."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner, Result

from fleetsim import files
from fleetsim.cli.main import app
from fleetsim.errors import OutsideError
from fleetsim.sim import replications

pytestmark = pytest.mark.usefixtures("quick")

JOB = """
name: small
workload: {output_tokens: {mean: 200, cv: 0.8, max: 800}, prompt_tokens: 64, group_size: 4}
fleet: {instances: 2}
admission: {max_staleness: 1}
trainer: {batch_samples: 32, fixed_s: 2.0}
run: {steps: 30, replications: 2}
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_the_result_stays_and_the_file_is_told_of(job: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    plain = run(job, "--json")
    result = run(job, "--json", "--perfetto", str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout == plain.stdout
    document = json.loads(file.read_text())
    about = document["otherData"]
    assert (about["scenario"], about["seed"], about["replication"]) == ("small", 0, 0)
    assert about["last_step"] - about["first_step"] + 1 == 20
    said = " ".join(result.stderr.split())
    assert f"{len(document['traceEvents']):,} events" in said
    assert f"steps {about['first_step']} to {about['last_step']} of 0 to 29" in said
    assert f"{about['groups_sampled']} of {about['groups_submitted']} groups" in said
    assert "ui.perfetto.dev" in said
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_gz_is_the_same_trace_compressed(job: str, tmp_path: Path) -> None:
    plain, packed, again = tmp_path / "a.json", tmp_path / "b.json.gz", tmp_path / "c.json.gz"
    for file in (plain, packed, again):
        assert run(job, "--perfetto", str(file)).exit_code == 0
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert packed.read_bytes() == again.read_bytes()
    assert len(packed.read_bytes()) < len(plain.read_bytes()) / 4


@pytest.mark.parametrize(("steps", "first", "last"), [("0:4", 0, 4), ("all", 0, 29), ("25:99", 25, 29)])
def test_steps(job: str, tmp_path: Path, steps: str, first: int, last: int) -> None:
    file = tmp_path / "trace.json"
    assert run(job, "--perfetto", str(file), "--perfetto-steps", steps).exit_code == 0
    about = json.loads(file.read_text())["otherData"]
    assert (about["first_step"], about["last_step"]) == (first, last)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--perfetto", "{}/job.yaml"], "exists already"),
        (["--perfetto", "{}"], "is a directory"),
        (["--perfetto", "{}/no/trace.json"], "folder does not exist"),
        (["--perfetto", ""], "is no file name"),
        (["--perfetto", "{}/trace.json", "--perfetto-steps", "9:3"], "FIRST:LAST"),
        (["--perfetto", "{}/trace.json", "--perfetto-steps", "30:31"], "0 to 29"),
        (["--perfetto-steps", "all"], "give --perfetto FILE"),
    ],
)
def test_refused_before_any_work(job: str, tmp_path: Path, flags: list[str], said: str) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the work has begun")

    with mock.patch.object(replications, "simulate", never):
        result = run(job, *(flag.format(tmp_path) for flag in flags))
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())
    assert [p.name for p in tmp_path.iterdir()] == ["job.yaml"]


def test_a_disk_that_fails_leaves_nothing(job: str, tmp_path: Path) -> None:
    with mock.patch.object(Path, "write_bytes", side_effect=OSError(28, "No space left on device")):
        result = run(job, "--perfetto", str(tmp_path / "trace.json"))
    assert result.exit_code == 3
    assert "No space left on device" in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["job.yaml"]


def test_text_that_is_no_text_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="cannot be written"):
        files.write_text(tmp_path / "a.txt", "\ud800")
    assert list(tmp_path.iterdir()) == []
