"""Answers that hold several types of GPU against each other: what each engine's speed rests on, and who priced them."""

from __future__ import annotations

from pathlib import Path

import pytest

import fleetsim as fs
from fleetsim.job.prices import PRICE, price_notes

SMALL = {"steps": 8, "replications": 2}
SAME = "taken at the same $3 per GPU-hour"


@pytest.mark.parametrize(
    ("unpriced", "told"),
    [([("H100", 3.0), ("B200", 3.0)], True), ([("H100", 3.0), ("H100-SXM", 3.0)], False),
     ([("H100", 3.0)], False), ([], False), ([("H100", 3.0), ("B200", 5.0)], False),
     ([("mine", 3.0), ("H100", 3.0)], True)],
)  # fmt: skip
def test_prices_are_missed_where_types_differ(unpriced: list[tuple[str, float]], told: bool) -> None:
    assert bool(list(price_notes(unpriced, "remedy"))) is told


def test_a_sweep_over_gpus_tells_of_prices_and_of_each_speed(tmp_path: Path) -> None:
    found = fs.sweep("async-one-step", {"engine.gpu": ["H100", "B200", "H200"]}, **SMALL)
    assert sum(SAME in text for text in found.warnings) == 1
    document = found.to_dict()
    assert [p["gpu"] for p in document["profiles"]] == ["H100", "B200", "H200"]
    errors = [p["error_p90"] for p in document["profiles"]]
    assert len(set(errors)) == 3, "each GPU has an error of its own"
    page, text = found.to_html(tmp_path / "page.html").read_text(encoding="utf-8"), str(found)
    for words in ("on B200-SXM kept out of the fit", "on GPUs that were kept out of the fit, as none of this one"):
        assert words in " ".join(page.split())
        assert words in " ".join(text.split())


@pytest.mark.parametrize(
    "grid",
    [{"engine.gpu": ["H100", "B200"], PRICE: [3.0]}, {"engine.gpu": ["H100", "H100-SXM"]}, {"fleet.instances": [2, 3]}],
)
def test_a_sweep_with_prices_or_one_type_warns_of_nothing(grid: dict[str, list[object]]) -> None:
    assert not any(SAME in text for text in fs.sweep("async-one-step", grid, **SMALL).warnings)


def test_a_comparison_of_gpus_tells_both() -> None:
    job = fs.load("async-one-step", steps=8)
    found = fs.compare(job, job.with_({"engine.gpu": "B200"}), replications=2).comparison
    assert sum(SAME in note for note in found.notes) == 1
    assert [note[:16] for note in found.notes if "engine speed" in note] == ["A: engine speed:", "B: engine speed:"]
    priced = fs.compare(job, job.with_({"engine.gpu": "B200", PRICE: 5.0}), replications=2).comparison
    assert not any(SAME in note for note in priced.notes)
    same = fs.compare(job, job.with_({"fleet.instances": 3}), replications=2).comparison
    assert [note[:14] for note in same.notes if "engine speed" in note] == ["A and B: engin"]


def test_results_of_runs_are_compared_as_their_jobs() -> None:
    job = fs.load("async-one-step", **SMALL)
    a, b = job.simulate(), job.with_({"engine.gpu": "B200"}).simulate()
    found = fs.compare(a, b).comparison
    assert sum(SAME in note for note in found.notes) == 1
    assert any(note.startswith("B: engine speed") and "B200" in note for note in found.notes)


@pytest.mark.parametrize("door", ["size", "split", "simulate"])
def test_every_door_tells_the_error_of_its_own_engine(door: str, tmp_path: Path) -> None:
    job = fs.load(batch=64, len=500, gpu="B200", **SMALL)
    found = {"size": job.size, "split": lambda: job.split(4), "simulate": job.simulate}[door]()
    page = found.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    for shown in (str(found), page):
        assert "on B200-SXM kept out of the fit" in " ".join(shown.split())
    profile = found.to_dict()["profile"]
    assert 0 < profile["error_median"] < profile["error_p90"]
    assert "dense models on B200-SXM" in profile["error_what"]
