"""Results as tables and pages, and what a user sees who lacks pandas."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.quantities import METRICS

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def run() -> fs.SimulateResult:
    return fs.load("async-one-step", steps=8, replications=3).simulate()


def test_metrics_are_the_catalogues(run: fs.SimulateResult) -> None:
    assert set(run.metrics) == set(METRICS)
    table = run.metrics.to_pandas()
    assert table.loc["step_s", "mean"] == run.mean["step_s"] == run.metrics["step_s"].mean
    assert table.loc["step_s", "better"] == "less"


def test_a_row_a_replication(run: fs.SimulateResult) -> None:
    table = run.to_pandas()
    assert list(table.index) == [0, 1, 2]
    assert table["step_s"].mean() == pytest.approx(run.mean["step_s"], rel=1e-12)
    half = 4.3027 * table["step_s"].std(ddof=1) / np.sqrt(3)
    assert run.metrics["step_s"].ci_high - run.mean["step_s"] == pytest.approx(half, rel=1e-9)


def test_records_as_tables(run: fs.SimulateResult) -> None:
    steps = run.table("steps")
    assert len(steps) == 3 * 8
    first = steps[steps["replication"] == 0]
    assert first["end_s"].is_monotonic_increasing
    assert run.table("samples").groupby("replication").size().tolist() == [len(r.samples) for r in run.runs]
    with pytest.raises(fs.InputError, match="one of steps, samples, groups, syncs, failures"):
        run.table("step")


def test_candidates_and_ways() -> None:
    job = fs.load(batch=64, len=400, replications=2)
    sized = job.size()
    table = sized.to_pandas()
    assert table["recommended"].sum() == 1
    assert table.loc[sized.instances, "step_s"] == sized.mean["step_s"]
    assert (table["step_s.ci_low"] <= table["step_s"]).all()
    advised = job.split(6)
    ways = advised.to_pandas()
    assert advised.way in set(ways["way"])
    assert (ways["kind"] == "split").sum() == (ways["rollout_gpus"] + ways["trainer_gpus"] == 6).sum()
    assert advised.job["trainer.gpus"] == ways.set_index("way").loc[advised.way, "trainer_gpus"]


def test_a_notebook_shows_what_the_terminal_shows(run: fs.SimulateResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    shown = html.unescape(re.sub(r"<[^>]+>", "", run._repr_html_()))
    assert [line.rstrip() for line in shown.splitlines()] == str(run).splitlines()
    evil = run.job.with_({"name": "<script>alert(1)</script>"}).simulate(steps=2, replications=1)
    assert "<script>" not in evil._repr_html_()
    assert "&lt;script&gt;" in evil._repr_html_()


def test_without_pandas_the_error_names_the_extra(run: fs.SimulateResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for ask in (run.to_pandas, run.table, run.metrics.to_pandas):
        with pytest.raises(fs.OutsideError, match=r"fleetsim\[pandas\]"):
            ask()


def test_a_run_that_was_not_scraped_has_no_history(run: fs.SimulateResult, tmp_path: Path) -> None:
    with pytest.raises(fs.InputError, match="scrape_interval_s"):
        run.to_openmetrics(tmp_path / "x.om")
    assert not (tmp_path / "x.om").exists()


def test_progress_is_told() -> None:
    heard: list[str] = []
    fs.load("async-one-step", steps=2, replications=2).simulate(tell=heard.append)
    assert heard == ["simulating: 1 of 2 replications", "simulating: 2 of 2 replications"]


def test_records_as_parquet_files_are_the_tables(run: fs.SimulateResult, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    files = run.to_parquet(tmp_path / "new" / "records")
    assert {file.stem for file in files} == {"steps", "samples", "groups", "syncs", "failures"}
    assert files == run.to_parquet(tmp_path / "new" / "records")  # existing files are replaced
    for file in files:
        kept, table = pd.read_parquet(file), run.table(file.stem)
        assert list(kept.columns) == list(table.columns)
        assert len(kept) == len(table)
    steps = pd.read_parquet(tmp_path / "new" / "records" / "steps.parquet")
    assert (steps["end_s"] == run.table("steps")["end_s"]).all()
    with pytest.raises(fs.InputError, match=r"to_parquet: .* is no folder"):
        run.to_parquet(files[0])


def test_what_judges_did_is_a_parquet_file_of_its_own(tmp_path: Path) -> None:
    """A row a step; the last one's answers are those of all samples that were trained, and of those on their way."""
    pd = pytest.importorskip("pandas")
    judge = {"engine": {"kind": "constant", "instance_tok_s": 5000.0}, "output_tokens": 20}
    job = fs.load({}, {"stations.judge": judge}, batch=64, len=200, instance_tok_s=2000, trainer_step_s=5, steps=6)
    run = job.simulate(replications=1)
    (kept,) = (pd.read_parquet(f) for f in run.to_parquet(tmp_path / "records") if f.stem == "judges")
    assert list(kept["step"]) == list(range(6))
    assert kept["answered"].is_monotonic_increasing
    assert 6 * 64 <= kept["answered"].iloc[-1] <= kept["asked"].iloc[-1]


def test_a_notebook_shows_what_a_job_was_told_and_what_it_assumes() -> None:
    job = fs.load({"name": "<b>", "trainer": {"fixed_s": 33}, "assumed": ["sync.pause_s"]}, {"fleet.instances": 5})
    shown = html.unescape(re.sub(r"<[^>]+>", "", job._repr_html_()))
    said, _, assumed = shown.partition("assumed")
    assert shown.startswith("<b>: 5 instances, 8 trainer GPUs")
    assert re.search(r"trainer.fixed_s +33\b", said)
    assert re.search(r"fleet.instances +5\b", said)
    assert "len_cv" in assumed
    assert "trainer_step_s" not in assumed
    assert "--" not in shown
