"""`fleetsim examples`: what it writes, and that its log is what another program than fleetsim makes."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetsim.cli import examples
from fleetsim.cli.main import app
from tests.history.verl_log import VerlJob, console
from tests.replay.test_shown import _printed


def ran(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_log_is_what_another_program_made() -> None:
    made = _printed(console(VerlJob(rate=0.6, window=640, train_s=60.0), 40))
    assert gzip.decompress(examples._LOG.read_bytes()).decode() == made


@pytest.mark.usefixtures("quick")
def test_every_file_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        examples.SAMPLES, "history.om", ("", "simulate async-one-step --steps 8 --openmetrics history.om")
    )
    Path("samples").mkdir()
    Path("samples/job.yaml").write_text("mine: 1\n")
    with pytest.raises(AssertionError, match="mine"):
        ran("examples", "samples")  # a job of another's is not replaced, and is told
    Path("samples/job.yaml").unlink()
    ran("examples", "samples")
    assert {file.name for file in Path("samples").iterdir()} == set(examples.SAMPLES)
    assert "was there already" in ran("examples", "samples")


@pytest.mark.usefixtures("quick")
def test_rows_and_markdown_of_an_answer() -> None:
    words = ("size", "--batch", "64", "--len", "200", "--replications", "2")
    rows = list(csv.DictReader(io.StringIO(ran(*words, "-o", "csv"))))
    assert sum(row["recommended"] == "true" for row in rows) == 1
    assert all(float(row["step_s.ci_low"]) <= float(row["step_s"]) <= float(row["step_s.ci_high"]) for row in rows)
    page = ran(*words, "-o", "md")
    (count,) = (row["instances"] for row in rows if row["recommended"] == "true")
    assert page.startswith(f"# {count} rollout instance")
    assert "- **binds**: " in page
    assert ".svg" not in page
    assert ran(*words, "-o", "json") == ran(*words, "--json")
