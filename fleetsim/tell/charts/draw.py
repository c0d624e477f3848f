"""Charts as HTML and SVG: seen without a script, as wide as there is room, in the colours of `templates/chart.css`.

Across, all places are shares of the width; what is drawn as a path is stretched to it, and its strokes are not. Texts
that may be long are HTML, which breaks into lines. The script (`templates/chart.js`) adds values under a pointer, a
finger or the arrow keys, and legends that switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fleetsim.records import replace
from fleetsim.tell.charts.axes import MOST_TICKS, ChartAxis
from fleetsim.tell.charts.chart import (
    Chart,
    ChartRow,
    ChartSeries,
    Mark,
    MarkLook,
    Panel,
    Plot,
    Points,
    RowMark,
    Rows,
    Spans,
    Values,
)
from fleetsim.tell.charts.ink import (
    DOT_PX,
    at_x,
    axis_line,
    fill_of,
    legend,
    path_of,
    pattern_defs,
    pct,
    px,
    said_number,
    symbol,
    text_of,
)

LANE_PX, SPAN_PX = 22, 19
_WIDE = 1000  # what a stretched path is wide
# Letters of a row's label that the usual margin has room for.
_SHORT_LABEL = 8


def chart_html(chart: Chart) -> str:
    """The chart without its title and words: legend, plots, axis."""
    drawn = "".join(SHAPES[type(chart.points)](chart.id, chart.points))
    attributes = f'id="{text_of(chart.id)}-chart" role="group" aria-label="{text_of(chart.title)}"'
    return f'<div class="chart" {attributes}>{drawn}</div>'


def _plot(id: str, plot: Plot) -> Iterator[str]:  # noqa: A002
    named = [one.name for panel in plot.panels for one in panel.series if one.name]
    keys = {name: k for k, name in enumerate(dict.fromkeys(named))}
    shown = {
        one.name: (one.kind, one.look)
        for panel in reversed(plot.panels)
        if len({one.name for one in panel.series} - {""}) > 1
        for one in reversed(panel.series)
    }
    bars = [(keys[one.name], one.look) for panel in plot.panels for one in panel.series if one.kind == "bars"]
    yield legend([(name, keys[name], *shown[name]) for name in keys if name in shown], id)
    for k, panel in enumerate(plot.panels):
        yield f'<p class="of">{text_of(panel.y.title)}</p>' if panel.y.title else ""
        if plot.letters and k == 0:
            letters = "".join(at_x(plot.x.share(at), 11, text, "middle") for at, text in plot.letters)
            yield f'<svg class="plot" height="13"><g class="letter">{letters}</g></svg>'
        axis = plot.x
        data = f'data-ends="{px(axis.low)} {px(axis.high)}"{" data-log" * axis.log}{" data-date" * axis.dated}'
        yield f'<svg class="plot" height="{panel.height_px}" tabindex="0" {data}>'
        yield pattern_defs(id, bars) if k == 0 else ""
        yield from _panel(id, plot, panel, keys)
        yield "</svg>"
    yield from axis_line(plot.x)


def _panel(id: str, plot: Plot, panel: Panel, keys: Mapping[str, int]) -> Iterator[str]:  # noqa: A002
    x, high = plot.x, panel.height_px
    grid = "".join(f"M0 {px(high * (1 - at))}H{_WIDE}" for at, _ in panel.y.marks(_ticks_in(high)))
    if x.grid:
        grid += "".join(f"M{px(_WIDE * at)} 0V{high}" for at, _ in x.marks())
    tinted = [
        f'<rect x="{pct(x.share(a))}" width="{pct(x.share(b) - x.share(a))}" height="{high}"/>' for a, b in plot.shades
    ]
    for a, b in panel.bands:
        top, foot = (high * (1 - panel.y.share(end)) for end in (b, a))
        tinted.append(f'<rect y="{px(top)}" width="100%" height="{px(foot - top)}"/>')
    yield f'<g class="tint">{"".join(tinted)}</g>' if tinted else ""
    stretched = [path_of("grid", grid)]
    over: list[str] = []
    ends: dict[int, float] = {}  # of the stacks, by bar
    for one in panel.series:
        of = f"c-{one.look.colour} k{keys[one.name]}" if one.name else f"c-{one.look.colour}"
        if one.kind == "bars":
            fill = fill_of(id, keys[one.name], one.look)
            over.append(f'<g class="{of}" fill="{fill}">{"".join(_bars(one, x, panel, ends))}</g>')
        elif one.kind == "dots":
            over.append(f'<g class="{of}">{"".join(_dots(one, x, panel))}</g>')
        else:
            stretched += _line(one, x, panel, of)
    yield f'<svg viewBox="0 0 {_WIDE} {high}" preserveAspectRatio="none">{"".join(stretched)}</svg>'
    yield from (_across(mark, panel, i) for i, mark in enumerate(panel.across))
    yield from (_upright(mark, x, high) for mark in plot.upright)
    yield from over
    for at, text in panel.y.marks(_ticks_in(high)):
        yield f'<text x="-6" y="{px(high * (1 - at) + 4)}" class="y">{text_of(text)}</text>'


def _ticks_in(height_px: int) -> int:
    """How many ticks a height has room for."""
    return max(2, min(MOST_TICKS, height_px // 30))


def _line(one: ChartSeries, x: ChartAxis, panel: Panel, of: str) -> Iterator[str]:
    """Of a line, of steps or of a band: the area, the stroke, and what is read off it."""
    high = panel.height_px
    places = [_WIDE * x.share(v) for v in one.x]

    def up(value: float) -> float:
        return high * (1 - panel.y.share(value))

    dash = f" {one.look.dash}" if one.look.dash else ""
    suffix = panel.y.after
    pieces = list(_known_runs(one.y))
    read = f' data-name="{text_of(one.name or panel.y.title)}" data-x="{" ".join(f"{p:.0f}" for p in places)}" data-y="'
    if one.kind == "band":
        texts = [said_number(v, suffix, low) for v, low in zip(one.y, one.low, strict=True)]
        outline = "".join(_around(replace(one, high=one.y), run, places, up) for run in pieces)
        yield path_of(f"area {of}", outline, f'{read}{"|".join(texts)}"')
        return
    texts = list(map(text_of, one.said)) or [said_number(v, suffix) for v in one.y]
    steps = one.kind == "steps"
    drawn, area = "", ""
    for run in pieces:
        points = [(places[i], up(one.y[i] or 0.0)) for i in run]
        outline = _through(points, steps)
        if one.low:
            area += _around(one, run, places, up)
        drawn += outline
        if one.fill:
            floor = up(max(0.0, panel.y.low))
            area += f"{outline}V{px(floor)}H{px(points[0][0])}Z"
    if area:
        yield path_of(f"area {of}", area)
    yield path_of(f"line {of}{dash}", drawn, f'{" data-steps" * steps}{read}{"|".join(texts)}"' if one.name else "")


def _around(one: ChartSeries, run: Sequence[int], places: Sequence[float], up: Callable[[float], float]) -> str:
    """The area between the ends of the values of a run."""
    upper = [(places[i], up(one.high[i] or 0.0)) for i in run]
    lower = [(places[i], up(one.low[i] or 0.0)) for i in reversed(run)]
    return f"{_through([*upper, *lower])}Z"


def _known_runs(values: Values) -> Iterator[list[int]]:
    """Indices of values that follow each other without a hole."""
    run: list[int] = []
    for i, value in enumerate(values):
        if value is not None and value == value:  # not NaN
            run.append(i)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _through(points: Sequence[tuple[float, float]], steps: bool = False) -> str:
    (x, y), *rest = points
    return f"M{px(x)} {px(y)}" + "".join(f"H{px(x)}V{px(y)}" if steps else f"L{px(x)} {px(y)}" for x, y in rest)


def _dots(one: ChartSeries, x: ChartAxis, panel: Panel) -> Iterator[str]:
    high = panel.height_px
    for i, (at, value) in enumerate(zip(one.x, one.y, strict=True)):
        if value is None:
            continue
        place, up = pct(x.share(at)), high * (1 - panel.y.share(value))
        said = one.said[i] if one.said else f"{one.name}: {said_number(value, panel.y.after)}"
        ends = [end for end in (one.low[i], one.high[i]) if end is not None] if one.low else []
        if len(ends) == 2 and ends[0] < ends[1]:
            low, top = (high * (1 - panel.y.share(end)) for end in ends)
            yield f'<line class="whisker" x1="{place}" x2="{place}" y1="{px(low)}" y2="{px(top)}"/>'
        yield symbol(one.look, place, up, one.sizes[i] if one.sizes else DOT_PX, said)


def _bars(one: ChartSeries, x: ChartAxis, panel: Panel, ends: dict[int, float]) -> Iterator[str]:
    wide = one.width * (x.share(x.low + 1) - x.share(x.low))
    for i, (at, value) in enumerate(zip(one.x, one.y, strict=True)):
        if not value:
            continue
        foot = ends.get(i, 0.0)
        ends[i] = foot + value
        top, low = (panel.height_px * (1 - panel.y.share(v)) for v in (ends[i], foot))
        said = one.said[i] if one.said else f"{at:,g}: {one.name} {said_number(value, panel.y.after)}"
        yield (
            f'<rect class="bar" x="{pct(x.share(at) - wide / 2)}" width="{pct(wide)}" y="{px(top)}" '
            f'height="{px(low - top)}"><title>{text_of(said)}</title></rect>'
        )


def _across(mark: Mark, panel: Panel, i: int) -> str:
    """Named at the right and the left end in turn; below the line where there is no room above it."""
    up = panel.height_px * (1 - panel.y.share(mark.at))
    place, anchor = (("100%", "end"), ("0", "start"))[i % 2]
    beside = px(up + (13 if up < 14 else -4))
    text = f'<text class="said" x="{place}" y="{beside}" text-anchor="{anchor}">{text_of(mark.text)}</text>'
    return f'<line class="cut" x2="100%" y1="{px(up)}" y2="{px(up)}"/>{text if mark.text else ""}'


def _upright(mark: Mark, x: ChartAxis, high: float) -> str:
    """Named at its upper end, on the side where there is more room."""
    share = x.share(mark.at)
    side, shift = ("end", -4) if share > 0.6 else ("start", 4)
    text = f'<text class="said" x="{pct(share)}" dx="{shift}" y="11" text-anchor="{side}">{text_of(mark.text)}</text>'
    kind = "cut star" if mark.star else "cut"
    return f'<line class="{kind}" x1="{pct(share)}" x2="{pct(share)}" y2="{px(high)}"/>{text if mark.text else ""}'


def _rows(id: str, rows: Rows) -> Iterator[str]:  # noqa: A002
    used, patterns = _used(rows.looks, {mark.key for row in rows.rows for mark in row.marks})
    bars = {mark.key for row in rows.rows for mark in row.marks if mark.base is not None}
    if len(used) > 1:
        yield legend(
            [(rows.looks[key][0], k, "bars" if key in bars else "dots", rows.looks[key][1]) for key, k in used.items()],
            id,
        )
    yield f'<svg class="none">{pattern_defs(id, patterns)}</svg>'
    for row in rows.rows:
        strong = " strong" if row.strong or not row.marks else ""
        said = f"<b>{text_of(row.said)}</b>" if row.said else ""
        yield f'<div class="row{strong}"><p><span>{text_of(row.name)}</span>{said}</p>'
        if row.marks:
            high = LANE_PX * len(row.marks)
            yield f'<svg class="plot rows" height="{high}" tabindex="0">{"".join(row_marks(id, rows, row, used))}</svg>'
        yield "</div>"
    yield from axis_line(rows.x, "rows")


def row_marks(id: str, rows: Rows, row: ChartRow, used: Mapping[str, int]) -> Iterator[str]:  # noqa: A002
    """What a row's plot holds: bands, the line of no difference, marks with their intervals."""
    high = LANE_PX * len(row.marks)
    for low, top in rows.bands:
        a, b = (min(max(rows.x.share(end), 0.0), 1.0) for end in (low, top))
        yield f'<rect class="tint" x="{pct(a)}" width="{pct(b - a)}" height="{high}"/>'
    if rows.centre is not None:
        centre = pct(rows.x.share(rows.centre))
        yield f'<line class="centre" x1="{centre}" x2="{centre}" y2="{high}"/>'
    if row.link is not None:
        link = pct(rows.x.share(row.link))
        yield f'<line class="cut" x1="{link}" x2="{link}" y1="{high - 3}" y2="{high + 30}"/>'
    for i, mark in enumerate(row.marks):
        name, look = rows.looks[mark.key]
        said = mark.said or f"{row.name}: {name} {row.said}"
        yield f'<g class="c-{look.colour} k{used[mark.key]}">'
        yield from _row_mark(id, rows.x, mark, look, used[mark.key], LANE_PX * (i + 0.5), said)
        yield "</g>"


def _row_mark(id: str, x: ChartAxis, mark: RowMark, look: MarkLook, k: int, up: float, said: str) -> Iterator[str]:  # noqa: A002
    if mark.base is not None:
        a, b = sorted((x.share(mark.base), x.share(mark.value)))
        yield (
            f'<rect class="bar" x="{pct(a)}" width="{pct(b - a)}" y="{px(up - 7)}" height="14" '
            f'fill="{fill_of(id, k, look)}"><title>{text_of(said)}</title></rect>'
        )
    if mark.low is not None and mark.high is not None and mark.low < mark.high:
        ends = f'x1="{pct(x.share(mark.low))}" x2="{pct(x.share(mark.high))}"'
        yield f'<line class="whisker{" over" * (mark.base is not None)}" {ends} y1="{px(up)}" y2="{px(up)}"/>'
    if mark.base is None:
        yield symbol(look, pct(x.share(mark.value)), up, DOT_PX, said)


def _spans(id: str, spans: Spans) -> Iterator[str]:  # noqa: A002
    used, _ = _used(spans.looks, {span.kind for _, row in spans.rows for span in row})
    yield legend([(spans.looks[key][0], k, "spans", spans.looks[key][1]) for key, k in used.items()], id)
    side = " named" if any(len(label) > _SHORT_LABEL for label, _ in spans.rows) else ""
    high = SPAN_PX * len(spans.rows)
    ends = f'data-ends="{px(spans.x.low)} {px(spans.x.high)}"{" data-date" * spans.x.dated}'
    yield f'<svg class="plot{side}" height="{high}" tabindex="0" {ends}>'
    yield f'<svg viewBox="0 0 {_WIDE} {high}" preserveAspectRatio="none">'
    for i, (label, row) in enumerate(spans.rows):
        for key, k in used.items():
            name, look = spans.looks[key]
            drawn = "".join(_span(span.start, span.end, spans.x, look, i) for span in row if span.kind == key)
            if drawn:
                yield path_of(f"span c-{look.colour} k{k}", drawn, "", f"{label}: {name}")
    yield "</svg>"
    yield from (_upright(Mark(at), spans.x, high) for at in spans.upright)
    for i, (label, _) in enumerate(spans.rows):
        yield f'<text x="-6" y="{px(SPAN_PX * (i + 0.5) + 4)}" class="y">{text_of(label)}</text>'
    yield "</svg>"
    yield from axis_line(spans.x, side.strip())


def _span(start: float, end: float, x: ChartAxis, look: MarkLook, row: int) -> str:
    a, wide = _WIDE * x.share(start), _WIDE * (x.share(end) - x.share(start))
    top, high = SPAN_PX * row + 2.0, SPAN_PX - 4.0
    lanes = ((top + high * low, high * (upto - low)) for low, upto in look.lanes)
    return "".join(f"M{px(a)} {px(y)}h{px(wide)}v{px(h)}h{px(-wide)}z" for y, h in lanes)


def _used(
    looks: Mapping[str, tuple[str, MarkLook]], keys: set[str]
) -> tuple[dict[str, int], list[tuple[int, MarkLook]]]:
    """The keys that are drawn, numbered, and those looks, for their patterns."""
    used = {key: k for k, key in enumerate(key for key in looks if key in keys)}
    return used, [(k, looks[key][1]) for key, k in used.items()]


SHAPES: Mapping[type[Points], Callable[[str, Any], Iterator[str]]] = {Plot: _plot, Rows: _rows, Spans: _spans}
