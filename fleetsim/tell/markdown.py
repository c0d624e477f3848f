"""A Document as a page of the documentation: Markdown, with its pictures as SVG files beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import log10
from pathlib import Path
from typing import Any

from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.document import Block, Bullets, Cell, Document, Judged, Listed, Pair, Table, Verbatim, charts_of
from fleetsim.tell.facts import NextLines, Words

_FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")


def markdown_files(document: Document, stem: str, title: str = "", pictures: bool = True) -> dict[str, str]:
    """Name and text of each file: "STEM.md", and, if pictures are wanted, "STEM.svg", further ones "STEM-ID.svg".
    title: of the page, where it is not the answer."""
    sections = tuple(document.shown("markdown"))
    charts = [chart for _, blocks in sections for chart in charts_of(blocks) if pictures]
    names = {chart.id: f"{stem}-{chart.id}.svg" if i else f"{stem}.svg" for i, chart in enumerate(charts)}
    facts = document.facts
    lines = "\n".join(f"- **{label}**: {said}" for label, said in facts.lines)
    blocks = [f"# {title or facts.answer}", *([lines] if lines else []), *map(_words, facts.explained)]
    for title, found in sections:
        blocks += [f"## {title}", *_blocks(found, names)]
    return {f"{stem}.md": "\n\n".join(blocks) + "\n", **{names[chart.id]: svg(chart) for chart in charts}}


def markdown_text(document: Document) -> str:
    """The same as one text without pictures, for a comment or a wiki."""
    return next(iter(markdown_files(document, "", pictures=False).values()))


def _blocks(blocks: tuple[Block, ...], names: Mapping[str, str]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Chart) and block.id not in names:
            continue
        elif isinstance(block, Chart):
            yield f"![{block.title}]({names[block.id]})"
        elif isinstance(block, Pair):
            yield from _blocks(block.charts, names)
        elif isinstance(block, Table):
            yield from _table(block)
        elif isinstance(block, Listed):
            quote = "`" if block.code else "**"
            yield "\n".join(f"- {quote}{term}{quote}: {_words(words)}" for term, words in block.items)
        elif isinstance(block, Bullets):
            yield "\n".join(f"- {_words(item)}" for item in block.items)
        elif isinstance(block, Verbatim | NextLines):
            lead = f"{block.lead}\n\n" if isinstance(block, NextLines) and block.lead else ""
            yield f"{lead}```\n{block.text}\n```"
        elif isinstance(block, Judged):
            for item in block.items:
                said = f"{item.mark} {item.name}: {item.answer} {item.size}".rstrip()
                yield "\n".join([f"- {said}", *(f"  - {ground}" for ground in (*item.grounds, item.next) if ground)])
        elif isinstance(block, str | Words):
            yield _words(block)
        else:
            raise TypeError(f"Markdown cannot show {type(block).__name__}")


def _table(table: Table) -> Iterator[str]:
    columns = len(table.headings)
    words = (*range(table.left), *range(columns - table.words_last, columns))
    rules = ["---" if i in words else "---:" for i in range(columns)]
    rows = (table.headings, rules, *table.rows)
    yield "\n".join("| " + " | ".join(_words(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)
    if table.note:
        yield table.note


def _words(cell: Cell) -> str:
    if isinstance(cell, Words) and cell.strong:
        return f"**{cell.text}**{cell.tail}"
    return str(cell)


def same(ours: str, theirs: str, relative: float = 0.01, absolute: float = 0.11) -> bool:
    """Whether two pages say the same: the same words, and figures that differ by the last digit shown at most.

    exp() differs by a bit between processors, and a length that rounds the other way moves every later event a little.
    """
    if _FIGURE.sub("#", ours) != _FIGURE.sub("#", theirs):
        return False
    pairs = zip(*(_FIGURE.findall(text) for text in (ours, theirs)), strict=True)
    return all(
        math.isclose(*(float(x.replace(",", "")) for x in pair), rel_tol=relative, abs_tol=absolute) for pair in pairs
    )


_WIDTH, _TITLE, _FOOT, _SIDE = 720, 34, 46, 8
_LEGEND_ROW, _LETTER = 18, 6.5
_SHARE = 2 / 3  # of the height on a page, where rows are wide enough apart for fingers
_FONT = "ui-sans-serif, system-ui, sans-serif"


def svg(chart: Chart) -> str:
    """The text of the file. Raises ValueError for a trace that is not of single symbols."""
    above = _TITLE + _LEGEND_ROW
    height = round(_SHARE * chart.height_px) + above
    place = _Place(chart.layout, above, height - _FOOT)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" font-family="{_FONT}" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="{_colour("paper")}"/>',
        _text(_SIDE, 20, f"<b>{chart.title}</b>", "start"),
        *_legend(chart.data),
        *(_shape(shape, place) for shape in chart.layout.get("shapes", ())),
        *_ticks(chart.layout["xaxis"], place, height),
        *(_note(note, place) for note in chart.layout.get("annotations", ())),
        *(mark for trace in chart.data for mark in _symbols(trace, place)),
        "</svg>",
        "",
    ]
    return "\n".join(parts)


class _Place:
    """Where values of the two axes, and shares of the plot, stand in the picture."""

    def __init__(self, layout: Mapping[str, Any], top: float, bottom: float) -> None:
        self._axes = layout["xaxis"], layout["yaxis"]
        self._ends = (_SIDE, _WIDTH - _SIDE), (bottom, top)

    def x(self, value: float, ref: str = "x") -> float:
        return self._at(0, value, ref)

    def y(self, value: float, ref: str = "y") -> float:
        return self._at(1, value, ref)

    def _at(self, which: int, value: float, ref: str) -> float:
        axis, (first, last) = self._axes[which], self._ends[which]
        if ref != "paper":
            low, high = axis["range"]
            value = ((log10(value) if axis.get("type") == "log" else value) - low) / (high - low)
        return round(first + value * (last - first), 1)


def _shape(shape: Mapping[str, Any], place: _Place) -> str:
    x = [place.x(shape[end], shape.get("xref", "x")) for end in ("x0", "x1")]
    y = [place.y(shape[end], shape.get("yref", "y")) for end in ("y0", "y1")]
    if shape["type"] == "rect":
        corner = f'x="{min(x)}" y="{min(y)}" width="{max(x) - min(x):.1f}" height="{max(y) - min(y):.1f}"'
        return f'<rect {corner} fill="{_colour(shape["fillcolor"])}"/>'
    return f'<line x1="{x[0]}" y1="{y[0]}" x2="{x[1]}" y2="{y[1]}" stroke="{_colour("quiet")}"/>'


def _ticks(axis: Mapping[str, Any], place: _Place, height: float) -> Iterator[str]:
    for value, text in zip(axis["tickvals"], axis["ticktext"], strict=True):
        yield _text(place.x(value), height - 28, text, "middle", "quiet")
    yield _text(_WIDTH / 2, height - 8, axis["title"]["text"], "middle", "quiet")


def _note(note: Mapping[str, Any], place: _Place) -> str:
    anchor = {"left": "start", "right": "end"}.get(note.get("xanchor", ""), "middle")
    return _text(
        place.x(note["x"], note.get("xref", "x")), place.y(note["y"], note.get("yref", "y")) + 4, note["text"], anchor
    )


def _legend(data: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    x = 2.0 * _SIDE
    for trace in data:
        if trace.get("showlegend", True):
            yield _symbol(x, _TITLE + 2, trace)
            yield _text(x + 10, _TITLE + 6, trace["name"], "start")
            x += 34 + _LETTER * len(trace["name"])


def _symbols(trace: Mapping[str, Any], place: _Place) -> Iterator[str]:
    if trace["type"] != "scatter" or trace["mode"] != "markers":
        raise ValueError(f"an SVG shows symbols, not {trace['type']} {trace.get('mode', '')}")
    for x, y in zip(trace["x"], trace["y"], strict=True):
        yield _symbol(place.x(x), place.y(y), trace)


def _symbol(x: float, y: float, trace: Mapping[str, Any]) -> str:
    shape, _, open_ = trace["marker"]["symbol"].partition("-")
    colour = _colour(trace["meta"]["colour"])
    look = f'fill="{_colour("paper") if open_ else colour}" stroke="{colour}" stroke-width="1.5"'
    if shape == "circle":
        return f'<circle cx="{x}" cy="{y}" r="4.5" {look}/>'
    return f'<path transform="translate({x} {y})" d="{_PATHS[shape]}" {look}/>'


_PATHS = {
    "diamond": "M0 -5.5L5.5 0L0 5.5L-5.5 0Z",
    "square": "M-4 -4H4V4H-4Z",
    "x": "M-4.5 -4.5L4.5 4.5M-4.5 4.5L4.5 -4.5",
}


def _text(x: float, y: float, text: str, anchor: str, colour: str = "ink") -> str:
    plain = text.removeprefix("<b>").removesuffix("</b>")
    weight = "" if plain == text else ' font-weight="bold"'
    return f'<text x="{x:g}" y="{y:g}" fill="{_colour(colour)}" text-anchor="{anchor}"{weight}>{plain}</text>'


@cache
def _colours() -> dict[str, str]:
    """The colours of the style sheet by name: its first block is the light one."""
    sheet = (Path(__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--([\w-]+): (#\w+);", sheet[: sheet.index("}")]))


def _colour(name: str) -> str:
    """name: as "accent", or as a chart writes it: "var(--accent)"."""
    return _colours()[name.removeprefix("var(--").removesuffix(")")]
