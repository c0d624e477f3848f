"""The built site, where FLEETSIM_SITE says it is: nothing is asked of another host, and it reads on a phone.

sphinx-build -W --keep-going -n docs docs/_build/html && FLEETSIM_SITE=docs/_build/html pytest tests/browser
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.browser.seen import PHONE, WIDE

# Attributes by which a browser fetches something by itself; links that a reader may follow are not among them.
FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}
IN_CSS = re.compile(r"""(?:@import\s+|url\(\s*)["']?(?:https?:)?//""")
# The pages of the model, which have its formulas.
MODEL = ("model", "engine", "layouts", "trainer", "advice")
PAGES = ("index", "tutorial", "engine", "advice", "howto/trainer_waits", "reference/cli", "notebook")


class Fetches(HTMLParser):
    """Collects what a page asks of other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [v for k, v in attrs if (tag, k) in FETCHED and v and re.match(r"(?:https?:)?//", v)]


@pytest.fixture(scope="module")
def site() -> Path:
    place = os.environ.get("FLEETSIM_SITE")
    if not place:
        pytest.skip("THE SITE WAS NOT LOOKED AT: build it, and say where it is with FLEETSIM_SITE")
    return Path(place).resolve()


def test_nothing_is_asked_of_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for path in pages:
        fetches = Fetches()
        fetches.feed(path.read_text(encoding="utf-8"))
        assert fetches.found == [], path
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert not IN_CSS.search(path.read_text(encoding="utf-8")), path


def test_equations_are_drawn_by_the_browser_itself(site: Path) -> None:
    pages = [(site / f"{name}.html").read_text(encoding="utf-8") for name in MODEL]
    assert sum(page.count("<math") for page in pages) > 100
    assert not [name for name, page in zip(MODEL, pages, strict=True) if "$$" in page or "merror" in page]


def _looked_at(site: Path, chromium: str, pictures: Path) -> dict[str, tuple[list[str], int]]:
    """Of every page, look and size: what it asked of others or complained about, and pixels that it is too wide."""
    from playwright.sync_api import sync_playwright

    found = {}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--disable-dev-shm-usage"])
        for look in ("", "-dark", "-phone"):
            scheme, size = ("dark" if look == "-dark" else "light"), (PHONE if look == "-phone" else WIDE)
            context = browser.new_context(viewport=size, color_scheme=scheme)
            for name in PAGES:
                tab, wrong = context.new_page(), []
                tab.set_default_timeout(120_000)
                tab.on("request", lambda r, w=wrong: None if r.url.startswith(("file:", "data:")) else w.append(r.url))
                tab.on("console", lambda m, w=wrong: w.append(m.text) if m.type == "error" else None)
                tab.on("pageerror", lambda e, w=wrong: w.append(str(e)))
                tab.goto((site / f"{name}.html").as_uri())
                tab.wait_for_load_state("load")
                page = "document.documentElement"
                wide = tab.evaluate(f"{page}.scrollWidth - {page}.clientWidth")
                tab.screenshot(path=pictures / f"docs-{name.replace('/', '-')}{look}.png")
                found[name + look] = (wrong, wide)
                tab.close()
        browser.close()
    return found


def test_pages_are_whole_in_light_in_dark_and_on_a_phone(site: Path, chromium: str, screenshots: Path) -> None:
    # In a thread of its own: playwright leaves an event loop in the one that it runs in.
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(_looked_at, site, chromium, screenshots).result()
    assert len(found) == 3 * len(PAGES)
    assert {name: what for name, what in found.items() if what != ([], 0)} == {}
