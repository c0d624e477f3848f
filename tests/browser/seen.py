"""What a headless Chromium makes of a page: whether all of it was drawn, what it asked for, and a picture of it.

Playwright's synchronous side keeps an event loop running in its thread, where no other can then be started; so that
the other tests of a process keep theirs, the browser lives in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

WIDE = {"width": 1100, "height": 800}
PHONE = {"width": 390, "height": 844}
_PATIENCE_MS = 120_000
T = TypeVar("T")

# A mark is what stands for a value: a path, a rectangle, a symbol or a label inside a plot, of a size above 0.
_LOOK = """() => {
  const size = (e) => e.getBoundingClientRect();
  const visible = (e) => { const b = size(e); return b.width > 0 || b.height > 0; };
  const charts = {}, cut = [], over = [];
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  const hidden = [...document.querySelectorAll(".wide")].filter((e) => e.scrollWidth > e.clientWidth + 1);
  for (const chart of document.querySelectorAll(".chart")) {
    const marks = chart.querySelectorAll("svg.plot :is(.symbol, .line, .area, .bar, .span)");
    charts[chart.id] = [...marks].filter(visible).length;
    const frame = size(chart);
    for (const plot of chart.querySelectorAll(".plot")) {
      const texts = [...plot.querySelectorAll("text")].map((e) => [e.textContent, size(e)]).filter(([, b]) => b.width);
      texts.forEach(([text, b], i) => {
        const inside = b.left > frame.left - 2 && b.right < frame.right + 2;
        if (!inside || b.top < frame.top - 2 || b.bottom > frame.bottom + 2)
          cut.push(`${chart.id}: ${text}`);
        for (const [other, o] of texts.slice(i + 1))
          if (b.left < o.right - 1 && o.left < b.right - 1 && b.top < o.bottom - 3 && o.top < b.bottom - 3)
            over.push(`${chart.id}: ${text} and ${other}`);
      });
    }
  }
  const style = getComputedStyle(document.body);
  return {
    charts, cut, over,
    tables: [...document.querySelectorAll("table")].map((t) => [...t.querySelectorAll("tbody tr")].map(
      (r) => [...r.querySelectorAll("td")].map((d) => d.textContent.trim()))),
    scrolled: hidden.map((e) => e.innerText.slice(0, 80)),
    text: document.body.innerText, paper: style.backgroundColor, ink: style.color,
    width: Math.max(document.documentElement.scrollWidth, document.body.scrollWidth),
  };
}"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A page in a browser, all that is folded opened. marks: marks drawn, by chart; text: all words; width_px: what the
    body needs.

    cut: labels that stand out of their chart; over: pairs that cover each other; errors: of the console and of scripts;
    asked: every request but the file itself; paper, ink: colours of the body; scrolled: tables of which only a part is
    seen at once; tables: the cells of each, row by row.
    """

    screenshot: Path
    marks: dict[str, int]
    text: str
    width_px: int
    cut: tuple[str, ...]
    errors: tuple[str, ...]
    asked: tuple[str, ...]
    paper: str
    ink: str
    scrolled: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    tables: tuple[tuple[tuple[str, ...], ...], ...] = ()


class Browser:
    """A headless Chromium; a page after the other, each in a context of its own."""

    def __init__(self, chromium: str) -> None:
        self._chromium = chromium
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="browser")

    def __enter__(self) -> Browser:
        self._thread.submit(self._start).result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.submit(self._stop).result()
        self._thread.shutdown()

    def see(self, page: Path, screenshot: Path, dark: bool = False, phone: bool = False) -> Seen:
        """Opens the file as a reader would, waits until it is drawn, and takes its picture."""
        return self._thread.submit(self._see, page, screenshot, dark, phone).result()

    def used(self, do: Callable[[Any], T], phone: bool = False) -> T:
        """What a function makes of a tab in a context of its own. Raises what it raises."""
        return self._thread.submit(self._used, do, phone).result()

    def _used(self, do: Callable[[Any], T], phone: bool) -> T:
        context = self._browser.new_context(viewport=PHONE if phone else WIDE)
        context.set_default_timeout(_PATIENCE_MS)
        try:
            return do(context.new_page())
        finally:
            context.close()

    def _start(self) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        # In a container /dev/shm is too small for a tall page.
        self._browser = self._playwright.chromium.launch(
            executable_path=self._chromium, headless=True, args=["--disable-dev-shm-usage"]
        )

    def _stop(self) -> None:
        self._browser.close()
        self._playwright.stop()

    def _see(self, page: Path, screenshot: Path, dark: bool, phone: bool) -> Seen:
        from playwright.sync_api import Error

        options: dict[str, Any] = {"viewport": PHONE if phone else WIDE, "color_scheme": "dark" if dark else "light"}
        if phone:
            options |= {"is_mobile": True, "has_touch": True}
        context = self._browser.new_context(**options)
        context.set_default_timeout(_PATIENCE_MS)
        try:
            tab = context.new_page()
            errors: list[str] = []
            asked: list[str] = []
            tab.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
            tab.on("pageerror", lambda e: errors.append(str(e)))
            tab.on("request", lambda r: asked.append(r.url))
            own = page.resolve().as_uri()
            tab.goto(own)
            try:
                tab.wait_for_selector("html[data-drawn]", state="attached", timeout=_PATIENCE_MS)
            except Error as error:
                errors.append(f"the page never said that its charts are drawn: {error.message.splitlines()[0]}")
            found = tab.evaluate(_LOOK)
            tab.screenshot(path=screenshot, full_page=True)
        finally:
            context.close()
        return Seen(
            screenshot=screenshot,
            marks=found["charts"],
            text=found["text"],
            width_px=found["width"],
            cut=tuple(found["cut"]),
            errors=tuple(errors),
            asked=tuple(url for url in asked if url != own and not url.startswith(("data:", "blob:"))),
            paper=found["paper"],
            ink=found["ink"],
            scrolled=tuple(found["scrolled"]),
            over=tuple(found["over"]),
            tables=tuple(tuple(map(tuple, rows)) for rows in found["tables"]),
        )
