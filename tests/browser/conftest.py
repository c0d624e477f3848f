"""Finds a Chromium, or skips, loudly: the pages are looked at in a real, headless one.

tests/browser/install.sh installs it. With FLEETSIM_REQUIRE_CHROMIUM=1 a missing one is a failure. Pictures are kept
where FLEETSIM_SCREENSHOTS says.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.browser.seen import PHONE, Browser, Seen

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Look(Protocol):
    """Opens a page, asserts that it is whole, and keeps its picture as NAME[-dark][-phone].png."""

    def __call__(self, path: Path, name: str, dark: bool = False, phone: bool = False) -> Seen: ...


@pytest.fixture(scope="session")
def chromium() -> str:
    """The program, checked to run."""
    for name in (os.environ.get("FLEETSIM_CHROMIUM", ""), *NAMES):
        found = shutil.which(name) if name else None
        # Ubuntu's is a stub that asks for a snap.
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            if importlib.util.find_spec("playwright") is not None:
                return found
            return _missing('no playwright: pip install "fleetsim[test]"')
    return _missing("no Chromium on PATH; tests/browser/install.sh installs Debian's package chromium")


def _missing(why: str) -> str:
    reason = f"PAGES NOT LOOKED AT IN A BROWSER: {why}"
    if os.environ.get("FLEETSIM_REQUIRE_CHROMIUM") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """One browser for a process."""
    with Browser(chromium) as started:
        yield started


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures are kept."""
    wanted = os.environ.get("FLEETSIM_SCREENSHOTS")
    folder = Path(wanted) if wanted else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def look(browser: Browser, screenshots: Path) -> Look:
    """Looks at a page: nothing went wrong, nothing was asked for, every chart is drawn, nothing is cut off."""

    def see(path: Path, name: str, dark: bool = False, phone: bool = False) -> Seen:
        picture = screenshots / f"{name}{'-dark' * dark}{'-phone' * phone}.png"
        seen = browser.see(path, picture, dark, phone)
        assert seen.errors == ()
        assert seen.asked == ()
        assert [chart for chart, marks in seen.marks.items() if marks == 0] == []
        assert all(any(cell for row in rows for cell in row) for rows in seen.tables), "a table has no cells"
        assert seen.cut == (), f"labels stand out of their charts, see {picture}"
        assert seen.over == (), f"labels cover each other, see {picture}"
        if phone:
            assert seen.width_px <= PHONE["width"], f"the page scrolls sideways, see {picture}"
        return seen

    return see
