"""A Document as a page of the documentation: Markdown, with its pictures as files beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.document import Block, Bullets, Cell, Document, Listed, Pair, Table, Words, blocks_on, charts_of
from fleetsim.tell.svg import svg

_FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")


def markdown_files(document: Document, stem: str) -> dict[str, str]:
    """Name and text of each file: "STEM.md", and "STEM.svg" for its picture, further ones "STEM-ID.svg"."""
    sections = tuple(document.shown("markdown"))
    charts = [chart for _, blocks in sections for chart in charts_of(blocks)]
    names = {chart.id: f"{stem}-{chart.id}.svg" if i else f"{stem}.svg" for i, chart in enumerate(charts)}
    lines = () if document.brief is None else document.brief.lines
    blocks = [
        f"# {document.title}",
        *(["\n".join(f"- **{label}**: {said}" for label, said in lines)] if lines else []),
        *_blocks(blocks_on("markdown", document.lede), names),
    ]
    for title, found in sections:
        blocks += [f"## {title}", *_blocks(found, names)]
    return {f"{stem}.md": "\n\n".join(blocks) + "\n", **{names[chart.id]: svg(chart) for chart in charts}}


def _blocks(blocks: tuple[Block, ...], names: Mapping[str, str]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Chart):
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
