"""Frozen predictions: sealed, simulated anew, and opened against results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.errors import InputError
from fleetsim.validate.predictions import Prediction, foretell, opened, read_prediction, seal_of, text_of

SHIPPED = Path(__file__).resolve().parents[2] / "docs" / "predictions"
SMALL = {
    "written": "2026-11-22",
    "fleetsim": "a test",
    "title": "small",
    "unknown": "nobody ran it",
    "sources": ["none"],
    "scenario": {
        "workload": {"group_size": 4, "output_tokens": 100},
        "engine": {"instance_tok_s": 100.0},
        "fleet": {"placement": "colocated", "instances": 1},
        "trainer": {"gpus": 1, "batch_samples": 8, "fixed_s": 10.0},
        "sync": {"pause_s": 0.0, "trainer_block_s": 0.0},
        "admission": {"law": "barrier"},
        "run": {"steps": 6},
    },
    "arms": [{"name": "one"}, {"name": "two", "set": {"trainer.fixed_s": 20.0}}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "2026-11-22-small.yaml").write_text(text_of(foretell(Prediction.model_validate(SMALL))))
    return tmp_path


def test_a_prediction_is_read_as_it_was_written(folder: Path) -> None:
    (file,) = opened(folder)
    assert file.intact
    assert file.outcome is None
    steps = {f.arm: f for f in file.figures if f.metric == "step_s"}
    assert steps["one"].foretold.value == pytest.approx(17.92)  # 8 x 99 tokens at 100 a second, the first is the
    assert steps["two"].foretold.value == pytest.approx(27.92)  # prompt's and free; and 10 or 20 s of training
    assert steps["one"].foretold.low < 17.92 < steps["one"].foretold.high
    assert not any(f.moved for f in file.figures)
    assert all(f.held is None for f in file.figures)


def test_a_changed_file_is_no_longer_intact(folder: Path) -> None:
    path = folder / "2026-11-22-small.yaml"
    path.write_text(path.read_text().replace("title: small", "title: large"))
    (file,) = opened(folder)
    assert not file.intact
    answer = CliRunner().invoke(app, ["validate", "--predictions", str(folder)])
    assert answer.exit_code == 10
    assert "2026-11-22-small" in answer.output


def test_another_model_is_told(folder: Path) -> None:
    path = folder / "2026-11-22-small.yaml"
    other = read_prediction(path)
    scenario = {**other.scenario, "trainer": {**other.scenario["trainer"], "fixed_s": 11.0}}
    moved = other.model_copy(update={"scenario": scenario})
    path.write_text(text_of(moved.model_copy(update={"seal": seal_of(moved)})))
    (file,) = opened(folder)
    assert {(f.arm, f.metric) for f in file.figures if f.moved} >= {("one", "step_s")}
    assert ("two", "step_s") not in {(f.arm, f.metric) for f in file.figures if f.moved}


def test_results_open_it(folder: Path) -> None:
    text = "source: a page\npublished: 2027-01-15\narms:\n  one: {step_s: 18.5}\n  two: {step_s: 60}\n"
    (folder / "2026-11-22-small.results.yaml").write_text(text)
    (file,) = opened(folder)
    held = {f.arm: f.held for f in file.figures if f.metric == "step_s"}
    assert held == {"one": True, "two": False}
    answer = CliRunner().invoke(app, ["validate", "--predictions", str(folder), "--json"])
    assert answer.exit_code == 0, answer.output
    figures = json.loads(answer.stdout)["predictions"][0]["figures"]
    assert [f["held"] for f in figures if f["metric"] == "step_s"] == [True, False]


def test_a_folder_without_any_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no prediction"):
        opened(tmp_path)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_ones_are_as_they_were_sealed(path: Path) -> None:
    prediction = read_prediction(path)
    assert prediction.seal == seal_of(prediction)
    assert path.name.startswith(prediction.written)
    assert all(arm.predicted for arm in prediction.arms)
