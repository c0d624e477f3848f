"""docs/frameworks.md is what the importers do now."""

from __future__ import annotations

from docs import make_frameworks
from fleetsim.frameworks.convert import FRAMEWORKS


def test_the_page_is_current() -> None:
    assert make_frameworks.PAGE.read_text(encoding="utf-8") == make_frameworks.page()


def test_every_framework_has_its_row_and_its_keys() -> None:
    assert list(FRAMEWORKS) == list(make_frameworks.FORMS)
    assert all(f"\n| {name} | " in make_frameworks.page() for name in FRAMEWORKS)
    headings = [line[3:] for line in make_frameworks.keys().splitlines() if line.startswith("## ")]
    assert headings == list(FRAMEWORKS)
