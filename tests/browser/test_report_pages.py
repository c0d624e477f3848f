"""The pages of size, simulate and split in a real browser: light, dark and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.simulate.facts import document as simulate_document
from fleetsim.size.facts import Pictured
from fleetsim.size.facts import document as size_document
from fleetsim.split.facts import document as split_document
from fleetsim.tell.page import document_page
from tests.browser.conftest import Look
from tests.report.small_pages import NAME, simulated_run, sized, split

LOOKS = {"light": {}, "dark": {"dark": True}, "phone": {"phone": True, "dark": True}}
CHARTS = {
    "size": {"idle", "step", "cost", "levers", "headroom", "gantt", "seconds", "queue", "staleness", "lengths"},
    "simulate": {"gantt", "seconds", "queue", "staleness", "lengths", "waste"},
    "split": {"step-s", "cost-per-step", "ratio", "levers", "gantt-0", "gantt-1"},
}


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Path:
    """A folder with all three, written once for a process."""
    pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
    folder = tmp_path_factory.mktemp("pages")
    plan, run, advice = sized(), simulated_run(), split()
    texts = {
        "size": document_page(size_document(plan.result, Pictured(plan.around, plan.run))),
        "simulate": document_page(simulate_document(run.view, ("a warning",), run.run)),
        "split": document_page(split_document(advice.result, advice.runs)),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["size", "simulate", "split"])
@pytest.mark.parametrize("as_seen", ["light", "dark", "phone"])
def test_page(look: Look, pages: Path, name: str, as_seen: str) -> None:
    seen = look(pages / f"{name}.html", name, **LOOKS[as_seen])
    assert seen.marks.keys() == {f"{chart}-chart" for chart in CHARTS[name]}
    assert seen.text.startswith(f"fleetsim {name}")
    assert NAME in seen.text
    dark = as_seen != "light"
    assert (seen.paper, seen.ink) == (("rgb(20, 23, 27)", "rgb(230, 234, 238)") if dark
                                      else ("rgb(255, 255, 255)", "rgb(27, 31, 36)"))  # fmt: skip
