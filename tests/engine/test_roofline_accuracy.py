"""The claims of docs/accuracy.md, simulated again with the committed factors."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fleetsim.engine.factors import RooflineFactors, shipped_factors

CALIBRATION = Path(__file__).resolve().parents[2] / "calibration"


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[ModuleType, ModuleType]]:
    sys.path.insert(0, str(CALIBRATION))
    try:
        yield importlib.import_module("fit_roofline"), importlib.import_module("accuracy_page")
    finally:
        sys.path.remove(str(CALIBRATION))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(json.loads((CALIBRATION / "roofline_factors.json").read_text()))


def test_fitted_stages_are_within_target(scripts: tuple[ModuleType, ModuleType]) -> None:
    _, page = scripts
    errors = page.e2e_errors(page.evaluate(shipped_factors(), "fit"))
    assert len(errors) == 10
    assert median(map(abs, errors)) <= page.TARGET_FIT
    assert max(map(abs, errors)) <= 0.05


def test_each_model_left_out_is_within_target(scripts: tuple[ModuleType, ModuleType], document: dict[str, Any]) -> None:
    _, page = scripts
    models = page.fitted_models()
    assert len(models) == 2
    assert set(models) == set(document["leave_one_model_out"])
    for model in models:
        factors = RooflineFactors(**document["leave_one_model_out"][model])
        errors = page.e2e_errors(page.evaluate(factors, "fit", model))
        assert median(map(abs, errors)) <= page.TARGET_LEFT_OUT


def test_models_that_were_never_fitted_are_predicted(scripts: tuple[ModuleType, ModuleType]) -> None:
    _, page = scripts
    pairs = page.evaluate(shipped_factors(), "held out")
    assert {stage.model.rpartition("/")[2] for stage, _ in pairs} == {"Llama-2-70b-hf", "Mixtral-8x7B-v0.1"}
    assert max(map(abs, page.e2e_errors(pairs))) <= 0.10


def test_overloaded_runs_overload_the_simulated_engine_too(scripts: tuple[ModuleType, ModuleType]) -> None:
    _, page = scripts
    factors = shipped_factors()
    pairs = [pair for use in ("fit", "held out") for pair in page.evaluate(factors, use)]
    overloaded = [predicted for stage, predicted in pairs if stage.overloaded]
    assert len(overloaded) == 4
    assert all(predicted.ttft_s > 10 for predicted in overloaded)
    assert all(predicted.ttft_s < 0.2 for stage, predicted in pairs if not stage.overloaded)


def test_committed_factors_are_the_bottom_of_the_fit(scripts: tuple[ModuleType, ModuleType]) -> None:
    fit, _ = scripts
    best = fit.from_factors(shipped_factors())
    cost = float(np.sum(fit.residuals(best) ** 2))
    for step in 0.3 * np.eye(len(best)):
        for moved in (best - step, best + step):
            assert float(np.sum(fit.residuals(moved) ** 2)) > cost


def test_left_out_factors_saw_nothing_of_their_model(
    scripts: tuple[ModuleType, ModuleType], document: dict[str, Any]
) -> None:
    fit, _ = scripts
    # without the only model with TP and grouped heads no data speak of these: they must be the priors
    alone = document["leave_one_model_out"]["codellama/CodeLlama-34b-Instruct-hf"]
    for name in ("allreduce_s", "link_efficiency", "grouped_cache_efficiency"):
        assert alone[name] == pytest.approx(fit.PRIORS[name].value, rel=1e-3)


def test_factors_are_inside_their_physical_bounds(
    scripts: tuple[ModuleType, ModuleType], document: dict[str, Any]
) -> None:
    fit, _ = scripts
    for values in (document["factors"], *document["leave_one_model_out"].values()):
        for name, prior in fit.PRIORS.items():
            assert prior.low < values[name] < prior.high


def test_the_page_is_what_the_script_writes(scripts: tuple[ModuleType, ModuleType], document: dict[str, Any]) -> None:
    _, page = scripts
    assert page.PAGE.read_text(encoding="utf-8") == page.render(document)
