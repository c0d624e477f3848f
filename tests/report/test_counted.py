"""Which steps a run counts, what its warm-up hides, and what nobody gave: on the terminal, in JSON and on the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fleetsim.api import load
from fleetsim.cli.main import app
from fleetsim.config import default_scenario, load_scenario, with_changes
from fleetsim.export.perfetto.tracks import parse_steps
from fleetsim.sim.run import simulate
from fleetsim.simulate.run_view import counted_words, early_events, unsettled, warmups_of
from tests.report.small_pages import job

pytestmark = pytest.mark.usefixtures("quick")

EVENT = "run.events=[{step: 3, lose_instance: 1}]"
SMALL = ("--set", "trainer.batch_samples=32", "--steps", "12", "--set", "run.warmup_steps=5")


def run(*arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split()), " ".join(result.stderr.split())


def test_the_steps_that_count_are_said_and_an_event_before_them_is_warned_of() -> None:
    shown, told = run("async-one-step", *SMALL, "--replications", "2", "--set", EVENT, "--explain")
    assert "counted: steps 5 to 11 (the rest is warm-up)" in shown
    assert "run.events: step 3 (lose_instance 1) is in the warm-up, so the metrics do not show what it did" in told
    document, _ = run("async-one-step", *SMALL, "--replications", "2", "--set", EVENT, "--json")
    (warning,) = [w for w in json.loads(document)["warnings"] if w.startswith("run.events")]
    assert "run.warmup_steps" in warning
    _, later = run("async-one-step", *SMALL, "--replications", "1", "--set", EVENT.replace("3", "5", 1))
    assert "run.events" not in later


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(0, 20))
def test_of_replications_that_differ_each_is_told(warmups: list[int], step: int) -> None:
    scenario = with_changes(default_scenario(), {"run.steps": 30, "run.events": [{"step": step, "instances": 3}]})
    hidden = sum(step < first for first in warmups) if step else 0
    warned = early_events(scenario, warmups)
    assert len(warned) == (hidden > 0)
    if 0 < hidden < len(warmups):
        assert f"the warm-up of {hidden} of {len(warmups)} replications" in warned[0]
    words = counted_words(warmups, 30)
    assert (f"steps {warmups[0]} to 29" in words) == any(warmups)
    assert ("by replication" in words) == (len(set(warmups)) > 1)


def test_a_trace_of_no_named_steps_begins_before_an_event_that_the_warm_up_hides() -> None:
    changes = {"fleet.instances": 3, "run.steps": 30, "run.warmup_steps": 12}
    events = [{"step": 0, "length_factor": 1.0}, {"step": 6, "lose_instance": 1}]
    hidden = simulate(job(**changes, **{"run.events": events}))
    assert warmups_of([hidden]) == (12,)
    assert parse_steps(None).of(hidden) == (5, 24)
    assert parse_steps("20").of(hidden) == (12, 29)
    assert parse_steps(None).of(simulate(job(**changes))) == (12, 29)


def test_values_that_nobody_gave_are_named_and_those_given_are_not(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
    file, page = tmp_path / "job.yaml", tmp_path / "run.html"
    file.write_text("name: almost empty\nengine: {gpu: H200}\n")
    small = ("--set", "trainer.batch_samples=16", "--steps", "4", "--replications", "1")
    shown, _ = run(str(file), *small, "--html", str(page), "--explain")
    assert "assumed (and the flags that change it)" in shown
    assert all(name in shown for name in ("--model", "--tp", "--trainer-step-s", "--len", "--instances"))
    html = page.read_text(encoding="utf-8")
    estimated = "of compute per step, log-probs included (estimated, FSDP"
    for said in ("Qwen/Qwen2.5-7B", estimated, "8 instances", "per trainer GPU-hour"):
        assert said in html
    for flag in ("--model", "--trainer-step-s", "--len", "--instances"):
        assert f">{flag}<" in html
    for flag in ("--gpu", "--batch"):
        assert f">{flag}<" not in html
    assert "marks no value" not in html


def test_a_run_that_settles_late_says_what_a_shorter_one_shows() -> None:
    """Three instances without a cap begin in step, and all they hold drains in step for hundreds of steps."""
    free = {"trainer.batch_samples": 512, "fleet.instances": 3, "fleet.max_in_flight_samples_per_instance": None}
    run = simulate(load("laminar", {**free, "run.steps": 400}).scenario)
    ((first,), (warning,)) = warmups_of([run]), unsettled([run])
    step_s = np.diff(run.steps["end_s"], prepend=0.0)
    assert first > len(step_s) / 3
    assert step_s[4:first].mean() > 1.02 * step_s[first:].mean()
    assert f"steps 4 to {first - 1} of {len(step_s)}" in warning
    assert f"{step_s[4:first].mean():.1f} s instead of {step_s[first:].mean():.1f} s" in warning
    assert unsettled([simulate(with_changes(load_scenario("presets/verl-fully-async"), {"run.steps": 100}))]) == ()
