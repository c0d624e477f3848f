"""The page of a profile in a real browser; and that the harness would notice what it is there to notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.calibrate.facts import document
from fleetsim.tell.page import document_page
from tests import profiles
from tests.browser.conftest import Look
from tests.browser.seen import Browser, Seen

CHARTS = {"batches-chart", "decodes-chart", "prompts-chart", "errors-chart"}
PHONE = "<meta name='viewport' content='width=device-width'>"
FRAME = "<!doctype html><html data-drawn='yes'>" + PHONE + "<body>{}</body></html>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
    place = tmp_path_factory.mktemp("profile") / "profile.html"
    place.write_text(document_page(document(profiles.profile(), "mine.profile.json")), encoding="utf-8")
    return place


@pytest.mark.parametrize(("dark", "phone"), [(False, False), (True, False), (True, True)])
def test_profile(look: Look, page: Path, dark: bool, phone: bool) -> None:
    seen = look(page, "profile", dark=dark, phone=phone)
    assert seen.marks.keys() == CHARTS
    assert "Batches kept out of the fit" in seen.text
    light, deep = "rgb(255, 255, 255)", "rgb(20, 23, 27)"
    assert seen.paper == (deep if dark else light)


def seen_of(browser: Browser, tmp_path: Path, body: str, phone: bool = False) -> Seen:
    place = tmp_path / "page.html"
    place.write_text(FRAME.format(body), encoding="utf-8")
    return browser.see(place, tmp_path / "page.png", phone=phone)


def test_requests_and_script_errors_are_noticed(browser: Browser, tmp_path: Path) -> None:
    seen = seen_of(browser, tmp_path, "<img src='http://127.0.0.1:9/x.png'><script>null.x</script>")
    assert seen.asked == ("http://127.0.0.1:9/x.png",)
    assert any("null" in error for error in seen.errors)


def test_an_empty_chart_is_noticed(browser: Browser, tmp_path: Path) -> None:
    grid = "<svg class='plot' width='90' height='90'><path class='grid' d='M0 0H9'/></svg>"
    empty = f"<div class='chart' id='none-chart'>{grid}"
    assert seen_of(browser, tmp_path, f"{empty}</div>").marks == {"none-chart": 0}


def test_a_cut_label_labels_over_each_other_and_a_wide_body_are_noticed(browser: Browser, tmp_path: Path) -> None:
    chart = (
        "<div class='chart' id='cut-chart' style='width: 300px'><svg class='plot' width='300' height='90' "
        "style='overflow: visible'><text x='280' y='20'>a label that is far too long</text>"
        "<text x='10' y='20'>below</text><text x='20' y='24'>above</text></svg></div>"
        "<p style='width: 700px'>wide</p>"
    )
    seen = seen_of(browser, tmp_path, chart, phone=True)
    assert seen.cut == ("cut-chart: a label that is far too long",)
    assert seen.over == ("cut-chart: below and above",)
    assert seen.width_px > 390
