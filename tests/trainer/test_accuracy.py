"""The claims of docs/accuracy.md about the trainer, predicted again with the committed fit."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.tell.page import same
from fleetsim.trainer.seconds import shipped_fit

CALIBRATION = Path(__file__).resolve().parents[2] / "calibration"


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    sys.path.insert(0, str(CALIBRATION))
    try:
        names = ("accuracy_parts", "trainer_points", "trainer_page", "fit_trainer")
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(CALIBRATION))


def test_the_page_is_what_the_committed_fit_gives(scripts: Any) -> None:
    steps = scripts["trainer_points"].read_steps()
    ratios = json.loads((CALIBRATION / "trainer_left_out.json").read_text(encoding="utf-8"))
    page, parts = scripts["trainer_page"], scripts["accuracy_parts"]
    written = parts.PAGE.read_text(encoding="utf-8")
    assert same(written, parts.with_trainer(page.render(steps, shipped_fit())))
    assert all(heading in page.tables(steps, shipped_fit(), ratios) for heading in ("## By model", "## Memory"))
    errors = scripts["fit_trainer"].errors_of(steps, ratios)
    assert {name: e.median for name, e in errors.items()} == {
        name: pytest.approx(e.median) for name, e in shipped_fit().errors.items()
    }


def test_published_steps_are_predicted_within_the_targets(scripts: Any) -> None:
    steps = scripts["trainer_points"].read_steps()
    found = np.array([abs(s.predicted(shipped_fit()) / s.seconds - 1) for s in steps if s.fitted])
    assert len(found) > 150
    assert np.median(found) < 0.15
    assert shipped_fit().errors[""].median < 0.3


def test_every_row_has_a_source_and_stands_once_and_says_why_it_is_not_fitted(scripts: Any) -> None:
    points = scripts["trainer_points"]
    rows, sources = points.rows(), points.sources()
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["from"] for row in rows} == set(sources)
    assert all(row.get("why") for row in rows if not row.get("fitted", True))


def test_doubling_the_gpus_gains_what_was_published(scripts: Any) -> None:
    """verl's 7B on 8, 16 and 32 GPUs, its 32B on 32 and 64: neither 1 / N, nor one constant of Amdahl."""
    page, points = scripts["trainer_page"], scripts["trainer_points"]
    pairs = page.speed_ups(points.read_steps(), shipped_fit())
    ratios = [predicted / published for *_, published, predicted, _ in pairs]
    assert len(ratios) == len(page.PAIRS)
    assert all(0.75 < ratio < 1.35 for ratio in ratios), ratios
