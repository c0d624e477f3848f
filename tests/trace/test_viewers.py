"""Both viewers open our traces, compressed ones too: chrome://tracing's importer, and Perfetto's whole page.

Debian's Chromium comes without chrome://tracing; its viewer is opened as a page of its own. Pictures are kept where
FLEETSIM_SCREENSHOTS says.
"""

from __future__ import annotations

import base64
import functools
import http.server
import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.trace.conftest import Drawn, draw

HERE = Path(__file__).parent
STYLE = "<style>html,body{margin:0;height:100%;display:flex}tr-ui-timeline-view{flex:1}</style>"


@pytest.fixture
def page(chromium: str) -> Iterator[Any]:
    """A page of a headless Chromium that nothing but this machine can be reached from."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        )
        page = browser.new_page(viewport={"width": 1500, "height": 900})
        page.set_default_timeout(120_000)
        yield page
        browser.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder on a free port of this machine; yields its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def events_of(drawn: Drawn) -> list[dict[str, Any]]:
    return list(json.loads("".join(drawn.trace.text()))["traceEvents"])


def names(events: list[dict[str, Any]], kind: str, at: str) -> dict[int, str]:
    return {e[at]: e["args"]["name"] for e in events if e["name"] == kind}


def test_chrome_tracing_reads_it(viewers: Path, page: Any, screenshots: Path, tmp_path: Path) -> None:
    drawn = draw("faults", tmp_path)
    viewer = tmp_path / "viewer.html"
    polyfill, full = (viewers / name for name in ("webcomponents.min.js", "trace_viewer_full.html"))
    script = f"<script>{polyfill.read_text()}</script>"
    viewer.write_text(f"<!DOCTYPE html><html><head><meta charset=utf-8>{script}{full.read_text()}{STYLE}</head><body>")
    page.goto(viewer.as_uri())
    found = page.evaluate((HERE / "chrome.js").read_text(), base64.b64encode(drawn.file.read_bytes()).decode())
    page.wait_for_timeout(1000)
    page.screenshot(path=str(screenshots / "chrome-tracing.png"))
    assert found["warnings"] == []
    events = events_of(drawn)
    processes, threads = names(events, "process_name", "pid"), names(events, "thread_name", "tid")
    slices = Counter(
        (processes[e["pid"]], threads[e["tid"]], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"
    )
    # It keeps milliseconds.
    assert Counter((p, t, name, round(at * 1e3), round(d * 1e3)) for p, t, name, at, d in found["slices"]) == slices
    arrows = Counter((e["cat"], e["name"]) for e in events if e["ph"] in "st")
    assert Counter((category, name) for category, name, _, _ in found["flows"]) == arrows
    assert all(start and end for _, _, start, end in found["flows"]), "an arrow begins and ends at a slice"
    ends = {end for category, _, _, end in found["flows"] if category == "group"}
    assert "train" in ends
    counters = {(process, name): series for process, name, series in found["counters"]}
    for name in {(processes[e["pid"]], e["name"]) for e in events if e["ph"] == "C"}:
        own = [e["args"] for e in events if e["ph"] == "C" and (processes[e["pid"]], e["name"]) == name]
        assert sorted(counters[name]) == sorted([args[key] for args in own] for key in own[0])


def test_perfetto_opens_it(viewers: Path, page: Any, screenshots: Path, tmp_path: Path) -> None:
    drawn = draw("default", tmp_path)
    site = tmp_path / "site"
    shutil.copytree(viewers / "ui", site)
    shutil.copy(drawn.file, site / "trace.json.gz")
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    with served(site) as address:
        page.goto(f"{address}/index.html#!/?url={address}/trace.json.gz")
        page.wait_for_function("location.hash.startsWith('#!/viewer')")
        text = page.locator("body")
        for name in ("trainer", "weight sync", "queue", "sampled groups", "instance 5"):
            page.get_by_text(name, exact=False).first.wait_for()
        for name in ("trainer", "weight sync", "queue"):
            page.get_by_text(name, exact=False).first.click()
        page.wait_for_timeout(3000)
        page.screenshot(path=str(screenshots / "perfetto.png"))
        assert "queue depth" in text.inner_text()
    assert failed == []
