"""Pages: a Document as one self-contained HTML file, that opens offline and asks nobody for anything, or as Markdown.

A page is words, tables and charts: `templates/page.html.j2` draws a Document, `charts/draw.py` its charts.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fleetsim
from fleetsim.errors import OutsideError
from fleetsim.faces import Text, text
from fleetsim.tell.charts.chart import Chart, Rows
from fleetsim.tell.charts.draw import LANE_PX, chart_html, row_marks
from fleetsim.tell.charts.ink import pct, symbol, text_of
from fleetsim.tell.document import (
    Block,
    Bullets,
    Cell,
    Document,
    Judged,
    Listed,
    NextLines,
    Pair,
    Table,
    Verbatim,
    Words,
    charts_of,
)
from fleetsim.tell.next_lines import broken, is_command
from fleetsim.visible import visible

_TEMPLATES = Path(__file__).parent / "templates"

# Blanks that no line is broken at: before a unit, and in "5 + 11" and "H100 x 1".
_UNITS = r"(?<=\d) (?=(?:%|(?:s|ms|us|min|h|k|M|G|GB|GiB|steps?|tok/s|GPUs?|instances?|samples)\b))"
_UNIT = re.compile(_UNITS + r"|(?<=\d) (?=\+ \d)|(?<=\d \+) (?=\d)|(?<= x) (?=\d)|(?<=seed) (?=\d)")

_COMMAND_CH = 88  # of a command's line


def document_page(document: Document) -> str:
    """The text of the page. Raises OutsideError where jinja2 is missing."""
    jinja2, sections, facts = _jinja2(), tuple(document.on("page")), document.facts
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = unbroken
    environment.filters["lines"] = lines_of
    environment.filters["drawn"] = chart_html
    environment.tests["commands"] = lambda said: isinstance(said, NextLines)
    environment.tests["words"] = lambda cell: isinstance(cell, Words)
    made: str = environment.get_template("page.html.j2").render(
        title=facts.answer,
        kind=document.kind,
        tiles=facts.tiles,
        lines=facts.lines,
        explained=facts.explained,
        warnings=document.warnings,
        sections=[(s.title, s.folded, [(_kind(block), block) for block in blocks]) for s, blocks in sections],
        drawn=any(True for _, blocks in sections for _ in charts_of(blocks)),
        version=fleetsim.__version__,
    )
    return visible(made)


def _kind(block: Block) -> str:
    """What the template calls a block: the name of its class."""
    return "words" if isinstance(block, str) else type(block).__name__.lower()


def check_installed() -> None:
    """Raises OutsideError where what pages need is missing."""
    _jinja2()


def _jinja2() -> Any:
    try:
        return importlib.import_module("jinja2")
    except ImportError:
        needs = "needs jinja2; install it: pip install 'fleetsim[report]'"
        raise OutsideError(text("{} {}", Text("--html", "to_html"), needs)) from None


def unbroken(text: Cell) -> str:
    """Keeps every figure and its unit on one line: "33.6 s", "5.0 %", "4 + 4"."""
    return _UNIT.sub("\u00a0", str(text))


def lines_of(text: str) -> list[tuple[bool, str]]:
    """What to do next, line by line: whether it is a command, and the line, which a shell puts together again."""
    each = ((is_command(line), line) for line in text.splitlines())
    return [(command, "\n".join(broken(line, _COMMAND_CH)) if command else line) for command, line in each]


# --- A page of the documentation: Markdown, with its pictures as SVG files beside it.

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


def rows_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table, under the names of all their columns; what is no number or text is left out."""
    shown = [{name: value for name, value in row.items() if isinstance(value, str | int | float)} for row in rows]
    names = tuple(dict.fromkeys(name for row in shown for name in row))
    cells = tuple(tuple(str(row.get(name, "")) for name in names) for row in shown)
    return "\n".join(_table(Table("", names, cells, left=len(names)))) + "\n"


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


_WIDTH, _SIDE, _LETTER, _LETTERS = 720, 8, 6.5, 94
_TITLE_PX, _LEGEND_PX, _NAME_PX, _FOOT_PX = 32, 22, 17, 48
_MIDDLE = ' text-anchor="middle"'
_FONT = "ui-sans-serif, system-ui, sans-serif"


def svg(chart: Chart) -> str:
    """The text of the file, for light and for dark. Raises ValueError for a chart that is not of rows."""
    rows = chart.points
    if not isinstance(rows, Rows):
        raise ValueError(f"an SVG file shows rows, not {type(rows).__name__}")
    used = {key: k for k, key in enumerate(rows.looks)}
    parts, x, y = [_at(0, 20, chart.title, ' class="strong"')], 6.0, float(_TITLE_PX)
    for key, (name, look) in rows.looks.items():
        if any(mark.key == key for row in rows.rows for mark in row.marks):
            parts.append(f'<g class="c-{look.colour}">{symbol(look, f"{x:g}", y + 4)}</g>{_at(x + 10, y + 8, name)}')
            x += 34 + _LETTER * len(name)
    y += _LEGEND_PX
    for row in rows.rows:
        weight = ' class="strong"' if row.strong or not row.marks else ""
        parts += [
            _at(0, y + 13, row.name if len(row.name) <= _LETTERS else f"{row.name[: _LETTERS - 3]}...", weight),
            _at("100%", y + 13, row.said, ' text-anchor="end"'),
        ]
        marks = "".join(row_marks(chart.id, rows, row, used))
        parts.append(f'<svg y="{y + _NAME_PX:g}">{marks}</svg>')
        y += _NAME_PX + LANE_PX * len(row.marks) + (0 if row.marks else 6)
    ticks = "".join(_at(pct(at), 18, text, _MIDDLE) for at, text in rows.x.marks())
    parts.append(f'<svg y="{y:g}">{ticks}{_at("50%", 38, rows.x.title, _MIDDLE)}</svg>')
    high = round(y) + _FOOT_PX
    style = (Path(__file__).parent / "templates" / "chart.css").read_text(encoding="utf-8")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {high}" width="{_WIDTH}" height="{high}" '
        f'font-family="{_FONT}" font-size="12">\n<style>\n{style}svg svg {{ overflow: visible; }}\n'
        "text { fill: var(--ink); }\n.strong { font-weight: 700; }\n</style>\n"
        f'<rect width="100%" height="100%" fill="var(--paper)"/>\n<svg x="{_SIDE}" width="{_WIDTH - 2 * _SIDE}">\n'
        + "\n".join(parts)
        + "\n</svg>\n</svg>\n"
    )


def _at(x: float | str, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y:g}"{more}>{text_of(text)}</text>'
