"""The page of `fleetsim sweep` in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

import fleetsim as fs
from tests.browser.conftest import Look

BAD = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
    job = fs.load("async-one-step", {"name": BAD, "admission.law": "unbounded"}, steps=8, replications=2)
    grid = {"fleet.instances": [2, 4, 6], "buffer.capacity_samples": [16, 512, 1024, 2048]}
    return fs.sweep(job, grid, workers=1).to_html(tmp_path_factory.mktemp("sweep") / "sweep.html")


@pytest.mark.parametrize(("dark", "phone"), [(False, False), (True, True)])
def test_sweep(look: Look, page: Path, dark: bool, phone: bool) -> None:
    seen = look(page, "sweep", dark=dark, phone=phone)
    assert seen.marks.keys() == {"front-chart"}
    for told in ("Lowest cost per step", "What each key does", "Cells that could not be simulated", "Next", BAD):
        assert told in seen.text
    cells, by_count, by_capacity = seen.tables
    assert len(cells) >= 6
    assert {row[1] for row in cells} == {"2", "4", "6"}
    assert all(float(row[3]) > 0 for row in cells)
    assert [row[0] for row in by_count] == ["2", "4", "6"]
    assert [row[0] for row in by_capacity] == ["16", "512", "1024", "2048"]
