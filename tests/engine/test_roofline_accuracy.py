"""The claims of docs/accuracy.md, predicted again with the committed curves."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fleetsim.engine.operators.curves import Curves, shipped_curves

CALIBRATION = Path(__file__).resolve().parents[2] / "calibration"


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    sys.path.insert(0, str(CALIBRATION))
    try:
        names = ("points", "published_latencies", "fit_engine", "factors", "accuracy_page")
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(CALIBRATION))


@pytest.fixture(scope="module")
def ready(scripts: dict[str, ModuleType]) -> Any:
    return scripts["points"].ready(scripts["points"].read_points())


def sizes(runs: Any, curves: Curves) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([abs(r.predict(curves).time - 1) for r in runs])


def test_the_page_and_the_errors_are_what_the_committed_curves_give(scripts: dict[str, ModuleType], ready: Any) -> None:
    page = scripts["accuracy_page"]
    fit = scripts["fit_engine"]
    assert fit.ERRORS.read_text(encoding="utf-8") == page.errors_text(ready[0])
    assert fit.PAGE.read_text(encoding="utf-8") == fit.with_engines(page.render(*ready))


def test_published_runs_are_predicted_within_the_targets(ready: Any) -> None:
    runs, refused = ready
    found = sizes(runs, shipped_curves())
    assert len(runs) > 800
    assert len(refused) <= 0.03 * (len(runs) + len(refused))
    assert np.median(found) <= 0.08
    assert np.quantile(found, 0.9) <= 0.25
    drafted = found[[r.point.mtp > 0 for r in runs]]
    assert len(drafted) > 60
    assert np.median(drafted) <= 0.15


def test_runs_that_no_fit_saw_are_predicted_within_the_target(scripts: dict[str, ModuleType], ready: Any) -> None:
    page = scripts["accuracy_page"]
    left = [pair for *_, pair, _ in page.plain(page.rows_of(ready[0])) if pair is not None]
    assert len(left) > 780
    assert np.median(np.abs(np.array(left) - 1)) <= 0.10
    points, engines = page.held(page.plain(page.rows_of(ready[0])))
    assert 0.75 <= engines <= points <= 0.86


def test_what_was_accepted_of_drafts_is_what_these_runs_say(ready: Any, scripts: dict[str, ModuleType]) -> None:
    drafted = [r for r in ready[0] if r.point.mtp]
    shares = np.array([[r.with_drafts(shipped_curves(), s).time for s in (0.52, 0.6, 0.68)] for r in drafted])
    assert scripts["points"].ACCEPTED == 0.6
    assert np.argmin(np.abs(np.log(shares)).mean(axis=0)) == 1


def test_aiconfigurator_is_further_off_on_the_same_runs(scripts: dict[str, ModuleType], ready: Any) -> None:
    page = scripts["accuracy_page"]
    theirs = json.loads(page.BESIDE_US.read_text(encoding="utf-8"))["runs"]
    both = [(pair, theirs[r.point.id]) for r, _, pair, _ in page.plain(page.rows_of(ready[0])) if r.point.id in theirs]
    assert len(both) > 500
    ours, others = (np.median(np.abs(np.array(column) - 1)) for column in zip(*both, strict=True))
    assert ours < others


def test_first_tokens_are_predicted_within_the_target(ready: Any) -> None:
    ratios = np.array([r.first(shipped_curves()) for r in ready[0] if r.has_first])
    assert len(ratios) > 700
    assert np.median(np.abs(ratios - 1)) <= 0.25
    assert 0.9 < np.median(ratios) < 1.1


def test_every_run_has_a_source_and_stands_once(scripts: dict[str, ModuleType]) -> None:
    points = scripts["points"].read_points()
    assert len({p.id for p in points}) == len(points)
    assert all(p.source for p in points)


def test_h100_stages_are_no_worse_than_before_the_operators(scripts: dict[str, ModuleType]) -> None:
    """The eight global factors had a median of 0.9 % fitted and 4.0 % on models never fitted, at most 8.5 %."""
    published = scripts["published_latencies"]
    errors = {
        use: [abs(p.e2e_s / s.e2e_s - 1) for s, p in published.evaluate(shipped_curves(), use) if not s.overloaded]
        for use in ("fit", "held out")
    }
    assert np.median(errors["fit"]) <= 0.03
    assert np.median(errors["held out"]) <= 0.05


def test_overloaded_runs_overload_the_simulated_engine_too(scripts: dict[str, ModuleType]) -> None:
    published = scripts["published_latencies"]
    pairs = [pair for use in ("fit", "held out") for pair in published.evaluate(shipped_curves(), use)]
    overloaded = [predicted for stage, predicted in pairs if stage.overloaded]
    assert len(overloaded) == 4
    assert all(predicted.ttft_s > 10 for predicted in overloaded)
    assert all(predicted.ttft_s < 0.2 for stage, predicted in pairs if not stage.overloaded)


@pytest.mark.parts
@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm"])
def test_committed_curves_are_near_the_bottom_of_the_fit(
    engine: str, scripts: dict[str, ModuleType], ready: Any
) -> None:
    """Moved half a prior sigma either way, no number of a host that moves beside the factors fits better."""
    fit = scripts["fit_engine"]
    wanted = fit.parameters(fit.start())
    committed = json.loads(fit.CURVES.read_text(encoding="utf-8"))
    x = np.array([committed["sigmas"][p.name] for p in wanted])
    residuals = fit.residuals_of(ready[0], stages=True)
    near = np.array([1.0 if p.name.startswith(fit.STAYS) else scripts["factors"].NEARER for p in wanted])

    def cost(at: Any) -> float:
        found = residuals(fit.curves_of(fit.moved(committed, wanted, at)))
        return float(found @ found + (near * at) @ (near * at))

    best = cost(x)
    hosts = [i for i, p in enumerate(wanted) if p.path[:2] == ("hosts", engine) and p.path[2].endswith("r_s")]
    assert hosts
    for i in hosts:
        for step in (-0.5, 0.5):
            moved = x.copy()
            moved[i] += step
            assert cost(moved) > 0.995 * best


def test_numbers_of_default_jobs_stay_beside_the_factors(scripts: dict[str, ModuleType]) -> None:
    """A model without a factor in 16 bits under vLLM on an H100 takes what the first fit says: all of its numbers."""
    fit = scripts["fit_engine"]
    stays = {p.name for p in fit.parameters(fit.start()) if p.name.startswith(fit.STAYS)}
    assert {f"hosts.vllm.{name}" for name in fit.HOST} < stays
    assert {n.split(".")[2] for n in stays if n.startswith("families")} == {
        "gemm", "experts", "decode", "prefill", "allreduce",
    }  # fmt: skip
    assert not any(
        name.endswith(("fp8", "fp4")) or "sglang" in name for name in stays - {"families.hopper.decode.bandwidth_fp8"}
    )
