"""A sweep in a picture: every cell by the first two objectives, larger where it has more of the third."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.quantities import quantity
from fleetsim.sweep.cell import SweepRow
from fleetsim.sweep.objective import Objective
from fleetsim.sweep.pareto import Mark
from fleetsim.sweep.run import SweepRows
from fleetsim.sweep.words import cell_words
from fleetsim.tell.charts.chart import LEGEND, Chart, axis, plain_text
from fleetsim.tell.charts.parts import PartLook, wrapped

# The dominated cells are drawn first, the front on top of them.
_LOOKS: tuple[tuple[Mark, str, PartLook], ...] = (
    ("dominated", "beaten by another cell", PartLook("quiet", symbol="x-thin-open")),
    ("tied", "not significantly beaten (~)", PartLook("third", symbol="diamond-open")),
    ("front", "Pareto front (*)", PartLook("accent", symbol="circle")),
)
_SMALL_PX, _LARGE_PX = 7.0, 22.0
# So many dominated cells are drawn: a page of more is slow, and they hide each other.
_MOST_DOMINATED = 3000


def front_chart(result: SweepRows) -> Chart | None:
    """The first objective over the second, larger symbols where the third has more; None with one objective."""
    objectives = result.pareto.objectives
    if len(objectives) < 2:
        return None
    up, right, *rest = objectives
    sized = rest[0] if rest else None
    by_mark: dict[Mark, list[SweepRow]] = {mark: [] for mark, _, _ in _LOOKS}
    for row in result.rows:
        if row.status == "ok":
            by_mark[result.pareto.marks[row.cell]].append(row)
    left_out = max(len(by_mark["dominated"]) - _MOST_DOMINATED, 0)
    by_mark["dominated"] = by_mark["dominated"][:_MOST_DOMINATED]
    of_third = [_scaled(sized, row.estimates()) for rows in by_mark.values() for row in rows] if sized else [0.0]
    low, high = min(of_third), max(of_third)
    data: list[dict[str, Any]] = []
    for mark, name, style in _LOOKS:
        rows = by_mark[mark]
        if not rows:
            continue
        found = [row.estimates() for row in rows]
        sizes = [_px(_scaled(sized, e), low, high) if sized else 11.0 for e in found]
        marker = {"symbol": style.symbol, "size": sizes, "line": {"width": 1.5}}
        texts = ["<br>".join(_hover(result, row, e)) for row, e in zip(rows, found, strict=True)]
        data.append({**_trace(name, found, right, up, style.colour, marker), "hoverinfo": "text", "text": texts})
    best = result.row(result.pareto.best[0].cell)
    star = {"symbol": "star-open", "size": _LARGE_PX + 8, "line": {"width": 2}}
    data.append({**_trace(f"best by {_title(up)}", [best.estimates()], right, up, "second", star), "hoverinfo": "skip"})
    layout: dict[str, Any] = {
        "xaxis": axis(_axis_title(right), nticks=6, tickangle=0),
        "yaxis": axis(_axis_title(up)),
        "legend": {**LEGEND, "itemsizing": "constant"},
        "showlegend": True,
    }
    words = f"Each symbol is a cell; {_corner(up, right)} is better. The star is the best by the first objective, "
    words += f"{cell_words(result, best.cell)}."
    if sized is not None and high > low:
        words += (
            f" The larger the symbol, the higher its {_title(sized)}: {_shown(low, sized)} to {_shown(high, sized)}."
        )
    if left_out:
        words += f" {units.plural(left_out, 'beaten cell')} not drawn."
    title = f"{_title(up)} against {_title(right)}"
    return Chart("front", units.capital(title), words, tuple(data), layout, 460)


def _trace(
    name: str,
    found: Sequence[dict[str, Estimate]],
    right: Objective,
    up: Objective,
    colour: str,
    marker: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [_scaled(right, e) for e in found],
        "y": [_scaled(up, e) for e in found],
        "meta": {"colour": colour},
        "marker": marker,
    }


def _hover(result: SweepRows, row: SweepRow, found: dict[str, Estimate]) -> Iterator[str]:
    yield wrapped(cell_words(result, row.cell), 44, 4)
    for objective in result.pareto.objectives:
        how = quantity(objective.metric).unit
        yield plain_text(f"{_title(objective)}: {units.with_ends(found[objective.metric], how)}")
    yield plain_text(f"bound by {row.binding.replace('_', ' ')}")


def _title(objective: Objective) -> str:
    return quantity(objective.metric).title


def _axis_title(objective: Objective) -> str:
    unit = {"seconds": ", s", "share": ", %"}.get(quantity(objective.metric).unit, "")
    return f"{_title(objective)}{unit} ({'more' if objective.most else 'less'} is better)"


def _scaled(objective: Objective, found: dict[str, Estimate]) -> float:
    return found[objective.metric].mean * (100.0 if quantity(objective.metric).unit == "share" else 1.0)


def _shown(value: float, objective: Objective) -> str:
    return f"{value:.3g}{' %' if quantity(objective.metric).unit == 'share' else ''}"


def _px(value: float, low: float, high: float) -> float:
    """The width of a symbol; its area grows with the value."""
    part = (value - low) / (high - low) if high > low else 0.3
    area = _SMALL_PX**2 + part * (_LARGE_PX**2 - _SMALL_PX**2)
    return round(float(area**0.5), 2)


def _corner(up: Objective, right: Objective) -> str:
    return f"{'up' if up.most else 'down'} and to the {'right' if right.most else 'left'}"
