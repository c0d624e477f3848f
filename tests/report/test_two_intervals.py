"""Beside a figure stands the answer's own range; what seeds alone do has that name, or is not said."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.compare.compare import Comparison, MetricChange, headline_of
from fleetsim.compare.facts import compare_facts
from fleetsim.estimates import Estimate
from fleetsim.job.facts import run_facts
from fleetsim.job.trials import trial_of
from fleetsim.tell.document import Document
from fleetsim.tell.facts import facts, measured
from tests.plan.fakes import metrics

pytestmark = pytest.mark.usefixtures("quick")

SMALL: dict[str, Any] = {"batch": 64, "len": 300, "model": "Qwen/Qwen2.5-1.5B", "replications": 3}
IDLE, STEP = Estimate(0.1, 0.099, 0.101), Estimate(30.0, 29.8, 30.2)


@pytest.mark.parametrize(
    ("name", "value", "spans", "note"),
    [
        ("step_s", STEP, {"step_s": (25.0, 44.4)}, "likely 25.0 s to 44.4 s"),
        ("step_s", STEP, {"step_s": (29.99, 30.01)}, "±0.2 of seeds"),  # all read "30.0 s"
        ("step_s", STEP, None, "±0.2 of seeds"),
        ("step_s", Estimate(30.0, 30.0, 30.0), None, ""),
        ("trainer_idle_fraction", IDLE, {"step_s": (25.0, 44.4)}, "±0.1 of seeds"),
        ("trainer_idle_fraction", IDLE, {"trainer_idle_fraction": (0.0, 0.18)}, "likely 0.0 % to 18.0 %"),
        ("cost_per_step", Estimate(0.5, 0.49, 0.51), None, "±0.01 of seeds"),
    ],
)
def test_a_tile_has_the_range_of_the_answer(name: str, value: Estimate, spans: Any, note: str) -> None:
    assert measured(name, value, spans).beside == note


@cache
def told_of(command: str) -> Any:
    if command == "simulate":
        return fs.load(**SMALL).simulate()
    if command == "size":
        return fs.load(**SMALL).size()
    return fs.load(**SMALL).split(gpus=8) if command == "split" else fs.plan(gpus=4, **SMALL)


@pytest.mark.parts
@pytest.mark.parametrize("command", ["simulate", "size", "split", "plan"])
def test_tiles_say_what_the_first_lines_say(command: str) -> None:
    found = told_of(command)
    document: Document = found.told()
    tiles = {tile.title: tile for tile in document.facts.tiles}
    first = " ".join([document.facts.answer, *(str(said) for _, said in document.facts.lines)])
    for label in ("optimizer step", "cost per step"):
        tile = tiles[label]
        low, high = re.fullmatch(r"likely (.+) to (.+)", tile.beside).groups()  # type: ignore[union-attr]
        assert f"{tile.figure} ({low} to {high})" in first
    assert all(not tile.beside or "[" not in tile.beside for tile in document.facts.tiles)
    assert all("of seeds" in tile.beside for tile in document.facts.tiles if "±" in tile.beside)


def test_losses_and_age_are_facts_of_every_fleet() -> None:
    of = trial_of(1, [metrics(10.0, 0.2, samples_lost={"all": 0.56, "longest_tenth": 0.95})]).estimates
    lines = dict(facts("", run_facts(of, fs.load().scenario)).lines)
    assert lines["age"] == (
        "99 % of the trained samples are at most 1 step old: near on-policy, a clipped importance ratio bears it"
    )
    assert lines["lost"] == "56 % of all samples, 95 % of the longest tenth: stale at the queue"


def test_a_headline_of_a_comparison_has_no_interval_of_seeds() -> None:
    job = fs.load(**SMALL)
    found = fs.compare(job, job.with_({"sync.every_steps": 4}))
    document: Document = found.told()
    assert "shorter" in document.facts.answer
    assert "(" not in document.facts.answer
    lines = " ".join(str(said) for _, said in document.facts.lines)
    assert any("verdicts are by seeds alone" in str(said) for said in document.facts.explained)
    step = found.comparison.changes[0].ratio
    assert step is not None
    low, high = found.comparison.changes[0].likely or (0.0, 0.0)
    assert 0.0 < low < high
    assert f"{step.mean:.3f} (likely {low:.3f} to {high:.3f})" in lines


@pytest.mark.parametrize(
    ("verdict", "kind", "told"),
    [
        ("better", "scenarios", "B's step is 3.2 % shorter; 1 of 1 metric changed"),
        ("better", "windows", "B's step is 3.2 % shorter (2.9 to 3.6 %); 1 of 1 metric changed"),
        ("no significant change", "results", "B's step did not change significantly (-3.6 to -2.9 % by seeds alone); "),
        ("no significant change", "windows", "B's step did not change significantly (-3.6 to -2.9 %); "),
    ],
)
def test_only_what_is_measured_has_its_interval_in_the_headline(verdict: Any, kind: Any, told: str) -> None:
    """Of windows of history the blocks are all the doubt that there is; a simulation rests on inputs in doubt."""
    ratio, apart = Estimate(0.968, 0.964, 0.971), Estimate(-1.0, -1.1, -0.9)
    change = MetricChange("step_s", STEP, STEP, ratio, apart, verdict, "", 0.5)
    found = Comparison("a", "b", kind, True, 10, (change,), (), "", (), 0.01)
    assert headline_of(found).startswith(told)
    said = " ".join(map(str, compare_facts(found).explained))
    assert ("of seeds alone" in said) == (kind != "windows")
