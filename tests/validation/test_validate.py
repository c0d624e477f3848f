"""Fitting and judging: on small cases whose answers are known by arithmetic, then on the published ones."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.config.load import with_changes
from fleetsim.config.paths import given_paths
from fleetsim.engine.slowdown import RUNS, off_by
from fleetsim.job.uncertain import RERUN
from fleetsim.tell.same_page import same
from fleetsim.validate.arms import scenario_of
from fleetsim.validate.case import Case, load_cases
from fleetsim.validate.docs_files import docs_files
from fleetsim.validate.fit import fit
from fleetsim.validate.ranges import HELD_LEAST, HELD_MOST, RangedArm, held_share, ranged, ranged_arms
from fleetsim.validate.run import run_case
from fleetsim.validate.verdict import ABSOLUTE, RATIO_MEDIAN, RATIO_WORST, CaseResult, summary
from tests.once import once

ROOT = Path(__file__).resolve().parents[2]


def small(**changes: Any) -> Case:
    """A colocated barrier: 8 samples on one engine of 100 tokens/s, 10 s of training."""
    case: dict[str, Any] = {
        "id": "C99",
        "title": "small",
        "trust": "primary",
        "sources": ["none"],
        "gates": ["order", "ratio", "abs"],
        "measure": "step_s",
        "scenario": {
            "workload": {"group_size": 4},
            "engine": {"instance_tok_s": 100.0},
            "fleet": {"placement": "colocated", "instances": 1},
            "trainer": {"gpus": 1, "batch_samples": 8, "fixed_s": 10.0},
            "sync": {"pause_s": 0.0, "trainer_block_s": 0.0},
            "admission": {"law": "barrier"},
        },
        "lengths": {"mean": 100.0, "cap": 400.0},
        "baseline": "one",
        "steps": 12,
        "arms": [
            {"name": "one", "published": 100.0},
            {"name": "two", "published": 60.0, "set": {"trainer.fixed_s": 20.0}, "bottleneck": "generation"},
        ],
    }
    return Case.model_validate({**case, **changes})


def test_the_fitted_scalar_meets_the_figure_and_nothing_else_moves() -> None:
    case = small(
        fit={"scalar": "decode_slowdown", "arm": "one", "figure": "step_s", "value": 40.0, "low": 0.5, "high": 50}
    )
    result = run_case(case)
    assert result.fitted is not None
    assert result.fitted.met
    assert result.fitted.figure == pytest.approx(40.0, rel=0.002)
    one, two = (arm.figures for arm in result.arms)
    assert two.step_s - one.step_s == pytest.approx(10.0)  # ten more seconds of training, the same generation
    assert one.wait_s == pytest.approx(two.wait_s)


@pytest.mark.parametrize("scalar", ["decode_slowdown", "mean_tokens", "trainer_seconds"])
def test_every_scalar_can_be_fitted(scalar: str) -> None:
    bounds = {"decode_slowdown": (0.1, 50), "mean_tokens": (5, 350), "trainer_seconds": (0.1, 50)}[scalar]
    task = {"scalar": scalar, "arm": "one", "figure": "step_s", "value": 35.0, "low": bounds[0], "high": bounds[1]}
    fitted = fit(small(fit=task))
    assert fitted is not None
    assert fitted.figure == pytest.approx(35.0, rel=0.02)


def test_a_figure_out_of_reach_is_not_met() -> None:
    fitted = fit(
        small(fit={"scalar": "trainer_seconds", "arm": "one", "figure": "step_s", "value": 1.0, "low": 0.5, "high": 2})
    )
    assert fitted is not None
    assert not fitted.met
    assert fitted.value == 0.5


def test_errors_order_and_bottleneck_are_judged() -> None:
    result = run_case(small())
    one, two = result.arms
    assert one.error == pytest.approx(one.figures.step_s / 100 - 1)
    assert one.ratio_error is None
    assert two.ratio_error == pytest.approx((two.figures.step_s / one.figures.step_s) / 0.6 - 1)
    assert two.bottleneck is True
    assert result.wrong_order == (("one", "two"),)  # published 100 and 60, but twenty seconds of training are more
    assert two in result.misses
    total = summary([result])
    assert total.orders_wrong == 1
    assert not total.holds


def test_an_arm_that_is_not_gated_counts_for_nothing() -> None:
    arms = [
        {"name": "one", "published": 100.0},
        {"name": "two", "published": 1.0, "gated": False, "reading": "why not", "bottleneck": "trainer"},
    ]
    result = run_case(small(arms=arms, gates=["order", "ratio"]))
    assert result.misses == ()
    assert result.wrong_order == ()
    assert summary([result]).bottlenecks == 0


@cache
def published() -> list[CaseResult]:
    return once("published cases", lambda: [run_case(case) for case in load_cases()])


@cache
def told() -> tuple[RangedArm, ...]:
    return once("ranges of published arms", lambda: tuple(ranged_arms(published())))


def test_ranges_hold_what_was_published_about_as_often_as_they_say() -> None:
    assert len(told()) >= 75
    assert HELD_LEAST <= held_share(told()) <= HELD_MOST
    assert HELD_LEAST <= sum(a.held for a in told()) / len(told()) <= HELD_MOST
    assert {a.case for a in told()}.isdisjoint({"C11", "C12", "C15", "C18", "D14"})  # stand-ins, and relative figures


def test_an_input_in_doubt_moves_the_figure_by_its_ends() -> None:
    """A colocated barrier whose engine alone is in doubt: generation grows with it, 10 s of training do not."""
    scenario = scenario_of(small(), small().arms[0], None)
    found = ranged(scenario, given_paths(scenario), lambda s: 10.0 + 30.0 * s.engine.slowdown)
    assert (found.low, found.high) == pytest.approx((found.value * (1 - RERUN), found.value * (1 + RERUN)))
    modelled = with_changes(scenario, {"engine.kind": "roofline", "engine.instance_tok_s": None})
    modelled = modelled.model_copy(update={"assumed": ("engine.slowdown",)})
    moved = ranged(modelled, given_paths(modelled), lambda s: 10.0 + 30.0 * s.engine.slowdown)
    _, high = off_by(None)
    value = 10.0 + 30.0 * scenario.engine.slowdown
    assert moved.value == pytest.approx(value)
    wanted = math.hypot(RERUN * value, (high - 1.0) * 30.0 * scenario.engine.slowdown)
    assert moved.high - value == pytest.approx(wanted)


def test_what_engines_lose_in_a_job_is_what_the_baselines_come_to() -> None:
    fitted = {r.case.id: r.fitted for r in published() if r.case.fit and r.case.fit.scalar == "decode_slowdown"}
    ratios = {case: ratio for row in RUNS for case, ratio in row.ratios.items()}
    assert ratios.keys() == fitted.keys() - {"C18", "D14"}  # an NPU without a data sheet; seconds of another run
    for case, ratio in ratios.items():
        found = fitted[case]
        assert found is not None
        assert found.value == pytest.approx(ratio, rel=0.02), case


def test_published_bottlenecks() -> None:
    wrong = [f"{r.case.id} {a.arm.name}" for r in published() for a in r.arms if a.bottleneck is False and a.arm.gated]
    # misses that their readings explain: in-flight prompts keep the engines busy
    assert wrong == ["C03 async-32-32", "C03 async-64-64"]


def test_published_absolutes() -> None:
    for result in published():
        if "abs" in result.case.gates:
            for arm in result.arms:
                assert arm.error is None or abs(arm.error) <= ABSOLUTE, (result.case.id, arm.arm.name)


def test_every_arm_that_misses_says_why() -> None:
    for result in published():
        for arm in result.misses:
            assert len(arm.arm.reading) > 200, (result.case.id, arm.arm.name)


def test_few_arms_miss_and_none_by_far() -> None:
    """The page says how far each arm is off; this fails when something breaks that used to be right.

    C07 areal-1.5B is off by more than the others: the rollouts that it kept in flight are not published.
    """
    errors = [e for result in published() if "ratio" in result.case.gates for e in result.ratio_errors]
    assert len(errors) >= 45
    assert sorted(errors)[-2] < 0.4
    assert {f"{r.case.id} {a.arm.name}" for r in published() for a in r.misses} == {
        "C03 async-32-32", "C03 async-64-64", "C07 areal-1.5B", "C18 fully-async-48-16", "D10 on_policy-256",
        "D10 on_policy-512",
    }  # fmt: skip
    assert sum(error > RATIO_WORST for error in errors) <= 4
    assert summary(published()).ratio_median == sorted(errors)[len(errors) // 2] or len(errors) % 2 == 0
    assert sorted(errors)[len(errors) // 2] <= RATIO_MEDIAN


def test_the_page_is_what_the_command_writes() -> None:
    written = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert same(written, docs_files(published(), told())["validation.md"], relative=0.02, absolute=0.6)


def test_the_plot_shows_every_arm_that_has_a_figure() -> None:
    plot = docs_files(published(), told())["validation.svg"]
    shown = [a for r in published() for a in r.arms if a.error is not None]
    symbols = [s for s in ElementTree.fromstring(plot).iter() if s.tag.endswith(("circle", "path"))]
    kinds = {s.get("stroke") for s in symbols}
    assert len(symbols) == len(shown) + len(kinds)  # and one of each kind in the legend
    assert all(a.arm.name in plot for a in shown)


def test_the_command(tmp_path: Path) -> None:
    runner = CliRunner()
    answer = runner.invoke(app, ["validate", "--case", "C11", "--json"])
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.stdout)
    assert [case["id"] for case in document["cases"]] == ["C11"]
    assert {arm["role"] for arm in document["cases"][0]["arms"]} == {"fitted", "predicted"}
    shown = runner.invoke(app, ["validate", "--case", "C11"])
    assert "decode slowdown" in shown.stdout
    both = runner.invoke(app, ["validate", "--case", "C11", "--write", str(tmp_path)])
    assert both.exit_code == 2
    assert "leave --case out" in both.output
