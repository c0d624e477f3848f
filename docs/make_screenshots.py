"""Writes docs/img/*.png, the pictures of docs/report.md: pages that the command line writes, in a headless Chromium.

    python docs/make_screenshots.py

Needs `pip install 'fleetsim[test]'` and a Chromium (tests/browser/install.sh), or FLEETSIM_CHROMIUM=/path/to/one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOST_BYTES = 200_000
COMMANDS = {
    "size": "size --batch 512 --len 1536",
    "simulate": "simulate verl-fully-async",
    "split": "split --gpus 16 --batch 512 --len 1536",
}


@dataclass(frozen=True)
class Picture:
    """section: which part of the page it begins with, 0 = the top. width_px below 500 is a phone."""

    name: str
    page: str
    section: int = 0
    dark: bool = False
    width_px: int = 920
    height_px: int = 1060


PICTURES = (
    Picture("size", "size"),
    Picture("size-counts", "size", section=2),
    Picture("size-dark-phone", "size", section=2, dark=True, width_px=390, height_px=1250),
    Picture("simulate", "simulate", section=1),
    Picture("split", "split", section=2),
)


def main() -> None:
    """Every picture, or a reason why not."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("FLEETSIM_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("no Chromium on PATH; see tests/browser/install.sh")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = {name: write(name, Path(folder)) for name in COMMANDS}
        browser = playwright.chromium.launch(executable_path=chromium)
        for picture in PICTURES:
            phone = picture.width_px < 500
            context = browser.new_context(
                viewport={"width": picture.width_px, "height": picture.height_px},
                color_scheme="dark" if picture.dark else "light",
                is_mobile=phone,
                has_touch=phone,
            )
            tab = context.new_page()
            tab.goto(pages[picture.page].as_uri())
            tab.wait_for_selector("html[data-drawn]", state="attached")
            if picture.section:
                tab.locator("section").nth(picture.section - 1).evaluate("e => e.scrollIntoView()")
            place = HERE / "img" / f"{picture.name}.png"
            tab.screenshot(path=place)
            context.close()
            if place.stat().st_size > MOST_BYTES:
                sys.exit(f"{place.name} has {place.stat().st_size:,} bytes, above {MOST_BYTES:,}: make it smaller")
        browser.close()


def write(name: str, folder: Path) -> Path:
    """The page of a command."""
    place = folder / f"{name}.html"
    command = [sys.executable, "-m", "fleetsim", *COMMANDS[name].split(), "--html", str(place)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=HERE.parent)
    return place


if __name__ == "__main__":
    main()
