"""A page as text: its words, and what its charts show."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

from tests.golden.shortened import numbers_in, shortened, strings_in

_UNSEEN = frozenset({"script", "style", "template"})
_INLINE = frozenset({"a", "b", "code", "em", "i", "small", "span", "strong", "sub", "sup", "tspan"})
_CELLS = frozenset({"td", "th"})
_TOLD = ("aria-label", "alt", "title", "data-of")


class _Words(HTMLParser):
    """Visible text, a block a line, cells of a row side by side; and the scripts that hold data."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.data: dict[str, str] = {}
        self._line = ""
        self._unseen: list[str] = []
        self._data_id: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag in _UNSEEN:
            self._unseen.append(tag)
            if said.get("type") == "application/json":
                self._data_id = said.get("id") or "data"
            return
        if tag in _CELLS:
            self._line += " | "
        elif tag not in _INLINE:
            self._end()
        for name in _TOLD:
            if said.get(name):
                self._line += f"[{name}: {said[name]}] "

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen.remove(tag)
            self._data_id = None
        elif tag not in _INLINE and tag not in _CELLS:
            self._end()

    def handle_data(self, data: str) -> None:
        if self._data_id is not None:
            self.data[self._data_id] = self.data.get(self._data_id, "") + data
        elif not self._unseen:
            self._line += data

    def _end(self) -> None:
        line = " ".join(self._line.split(" "))
        line = " ".join(line.replace("\n", " ").split(" ")).strip()
        while "  " in line:
            line = line.replace("  ", " ")
        if line:
            self.lines.append(line)
        self._line = ""


def page_text(html: str) -> str:
    """The words of the page, then a paragraph for each chart."""
    parser = _Words()
    parser.feed(html)
    parser.close()
    lines = parser.lines
    for name, text in sorted(parser.data.items()):
        document = json.loads(text)
        for chart, figure in document.items():
            lines += ["", f"chart {name}/{chart}", *_figure(figure)]
    return "\n".join(lines)


def _figure(figure: dict[str, Any]) -> list[str]:
    lines = [f"  layout {json.dumps(shortened(figure.get('layout'), most=12), sort_keys=True)}"]
    for trace in figure.get("data", ()):
        values = {key: value for key, value in trace.items() if isinstance(value, list)}
        rest = {key: value for key, value in trace.items() if key not in values}
        lines.append(f"  trace {json.dumps(rest, sort_keys=True)}")
        for key, value in sorted(values.items()):
            found, said = numbers_in(value), strings_in(value)
            text = f"    {key}: {len(value)} values"
            if found:
                text += f", {len(found)} numbers, sum {float(f'{sum(found):.9g}')!r}"
            if said:
                text += f", first text {said[0]!r}, last {said[-1]!r}"
            lines.append(text)
    return lines
