"""Ctrl-C, typed into a real terminal: what is known goes to stdout, what is missing to stderr, 130, and soon."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event

import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.config.load import dump_scenario
from fleetsim.errors import Interrupted
from fleetsim.records import replace
from fleetsim.sim.replications import replicate
from fleetsim.sim.run import simulate
from fleetsim.sim.stop import STOP, stopping
from fleetsim.sim.threads import side_by_side
from tests.cli.terminal import Ended, in_terminal
from tests.sweep.jobs import job


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(dump_scenario(job()))
    return str(file)


def drawn(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.search(pattern, text) is not None


def interrupted(tmp_path: Path, pattern: str, *arguments: str) -> Ended:
    ended = in_terminal(list(arguments), tmp_path / "stdout", drawn(pattern))
    assert ended.code == 130, ended.drawn[-2000:]
    assert "interrupted: " in ended.drawn
    assert "Traceback" not in ended.drawn
    # Far less than the work that was left, on the busiest machine.
    assert ended.after_s < 60
    return ended


def test_a_long_run_shows_its_steps_and_what_they_came_to(scenario: str, tmp_path: Path) -> None:
    ended = interrupted(
        tmp_path,
        r"\d of 1,000,000 .* left step .* so far",
        "simulate",
        scenario,
        "--steps",
        "1000000",
        "--replications",
        "1",
    )
    assert re.search(r"left step \d.* s so far", ended.drawn)
    assert re.match(r"Interrupted: [\d,]+ of 1,000,000 steps were simulated", ended.stdout)
    assert "trainer idle" in ended.stdout


def test_of_several_replications_the_finished_ones_are_shown(scenario: str, tmp_path: Path) -> None:
    ended = interrupted(
        tmp_path, r"\d{4} of [\d,]+ step|\d,\d{3} of", "simulate", scenario, "--steps", "300",
        "--replications", "4000", "--json",
    )  # fmt: skip
    document = json.loads(ended.stdout)
    assert 1 <= document["replications"] < 4000
    assert f"{document['replications']} of 4,000 replications were simulated" in ended.drawn
    assert any(text.startswith("interrupted: ") for text in document["warnings"])


def test_a_sweep_shows_the_best_so_far_keeps_its_cells_and_goes_on(scenario: str, tmp_path: Path) -> None:
    output = tmp_path / "t.csv"
    arguments = ["sweep", scenario, "--grid", "trainer.fixed_s=2:5:0.01", "--out", str(output), "--workers", "2"]
    ended = interrupted(tmp_path, r"[1-9]\d* of 301", *arguments)
    assert re.search(r"best cost per step \$[\d.]+ at trainer\.fixed_s=", ended.drawn)
    count = re.search(r"small: (\d+) of 301 cells", ended.stdout)
    assert count is not None
    assert f"interrupted: {count[1]} of 301 cells are finished; the same command goes on from there" in ended.drawn
    kept = (tmp_path / "t.csv.journal.jsonl").read_text().splitlines()
    assert len(kept) == int(count[1]) + 1
    assert not output.exists()


def test_size_shows_the_fleets_that_were_tried(tmp_path: Path) -> None:
    ended = interrupted(
        tmp_path, r"simulating \d+ instances[^\r]*\r.*simulating (\d+) instances", "size", "--batch", "4096", "--len",
        "3000", "--set", "run.steps=100",
    )  # fmt: skip
    assert "none is recommended yet" in ended.drawn


def test_other_threads_stop_after_their_step() -> None:
    """Ctrl-C reaches the main thread alone; what runs elsewhere looks at STOP."""
    stop = Event()
    began = Barrier(min(2, os.cpu_count() or 1), action=stop.set)  # all threads are at work: now comes Ctrl-C

    def long(_: int) -> int:
        def on_step(done: int, now_s: float) -> None:
            if done == 1:
                began.wait()

        run = simulate(job(steps=1_000_000), on_step=on_step)
        assert stopping()
        return len(run.steps)

    assert all(0 < n < 1_000_000 for n in side_by_side(long, [0, 1], stop))
    assert STOP.get() is None


def test_an_interrupted_replicate_knows_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = job(steps=5, replications=6)
    whole = replicate(scenario)

    def progress(done: int, of: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as cut:
        replicate(scenario, progress=progress)
    known = cut.value.known
    assert 2 <= len(known.runs) <= 6
    assert list(known.values) == [v for v, r in zip(whole.values, whole.runs, strict=True) if r.replication in
                                  {run.replication for run in known.runs}]  # fmt: skip
    assert f"{len(known.runs)} of 6 replications" in cut.value.missing


def test_split_shows_the_ways_that_were_simulated(tmp_path: Path) -> None:
    ended = interrupted(
        tmp_path, r"the best [\d,]+: [1-9]\d+ of \d+", "split", "--gpus", "128", "--batch", "1024", "--len", "2000",
        "--set", "run.steps=160",
    )  # fmt: skip
    assert re.search(r"[1-9]\d* of \d+ ways were looked at, none is advised yet", ended.drawn)
    assert "ways that were simulated (rollout + trainer GPUs), best first so far" in ended.stdout
    assert re.search(r"colocated async|\d \+ \d", ended.stdout)


def test_plan_shows_the_best_of_the_plans_that_were_simulated(tmp_path: Path) -> None:
    ended = interrupted(
        tmp_path, r"plans: [\d,]+ left, [1-9]", "plan", "--gpus", "512", "--batch", "1024", "--len", "8000", "--model",
        "Qwen/Qwen3-32B", "--set", "run.steps=40",
    )  # fmt: skip
    assert re.search(r"interrupted: [1-9]\d* of [\d,]+ plans were simulated, not all others are ruled out", ended.drawn)
    best, *others = re.findall(r"^  H100-SXM .*x TP.* ([\d.,]+) +[\d.,]+$", ended.stdout, re.MULTILINE)
    assert len(others) < 7
    assert all(float(best) < float(step) for step in others)


def test_compare_shows_the_pairs_that_were_simulated(scenario: str, tmp_path: Path) -> None:
    ended = interrupted(
        tmp_path, r"\s[4-9]\d* of 8,000", "compare", scenario, "--set-b", "trainer.fixed_s=4", "--steps", "500",
        "--replications", "4000", "--json",
    )  # fmt: skip
    document = json.loads(ended.stdout)
    pairs = document["replications"]
    assert 2 <= pairs < 4000
    assert f"interrupted: {pairs} of 4,000 pairs of runs were simulated" in ended.drawn
    step = next(change for change in document["changes"] if change["metric"] == "step_s")
    assert step["ratio"]["mean"] > 1


def test_validate_shows_the_cases_that_were_simulated(tmp_path: Path) -> None:
    ended = interrupted(tmp_path, r"\s[1-9]\d* of \d+", "validate")
    told = re.search(r"Interrupted: (\d+) of \d+ cases were simulated", ended.stdout)
    assert told is not None
    assert f"{told[1]} published case" in ended.stdout


@pytest.mark.parametrize(("steps", "steady"), [(2, False), (6, True)])
def test_a_run_that_was_cut_off_in_its_warm_up_says_no_more(
    monkeypatch: pytest.MonkeyPatch, scenario: str, steps: int, steady: bool
) -> None:
    known = replicate(job(steps=steps, replications=1))
    known = replace(known, scenario=job(steps=1000, replications=1), runs=[replace(r, cut=True) for r in known.runs])

    def cut(*_: object, **__: object) -> None:
        raise Interrupted(known, f"{steps} of 1,000 steps were simulated")

    monkeypatch.setattr("fleetsim.sim.replications.replicate", cut)
    told = CliRunner().invoke(app, ["simulate", scenario, "--explain"])
    assert told.exit_code == 130
    assert ("warm-up only, no steady value yet" in told.stdout) is not steady
    assert ("What binds" in told.stdout) is steady
    assert ("trainer idle" in told.stdout) is steady
    document = json.loads(CliRunner().invoke(app, ["simulate", scenario, "--json"]).stdout)
    assert bool(document["metrics"]) is steady
    assert any("warm-up only" in text for text in document["warnings"]) is not steady
