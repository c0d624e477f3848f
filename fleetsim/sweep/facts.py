"""A sweep, told: the best, the cells worth a look, what each key does, what to type next; all cells in a picture."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.job.words import kind_of
from fleetsim.quantities import quantity
from fleetsim.records import replace
from fleetsim.sweep.cell import SweepRow, text_of
from fleetsim.sweep.grid import Axis as GridAxis
from fleetsim.sweep.pareto import BestCells, Mark, Objective
from fleetsim.sweep.remarks import engine_sources
from fleetsim.sweep.run import SweepRows
from fleetsim.tell.charts.axes import ChartAxis
from fleetsim.tell.charts.chart import Chart, ChartSeries, MarkLook, Panel, Plot
from fleetsim.tell.document import Bullets, Document, Listed, Section, Table, estimated, page_only, terminal_only
from fleetsim.tell.facts import Fact, Facts, explained, facts, measured

# Engines that a terminal shows.
_MOST_ENGINES = 40
# Objectives whose best cells are told in brief, and cells that stand below.
_MOST_BEST, _FEW = 3, 10


def document(result: SweepRows, call: Sequence[str], warnings: Sequence[str] = ()) -> Document:
    """What `sweep` says. call: the words of a command line that name the scenario."""
    ran, accuracies = bool(result.pareto.best), [source.accuracy for source in engine_sources(result)]
    reasons = tuple(failures(result, [row for row in result.rows if row.status != "ok"]))
    failed = (terminal_only(*reasons), page_only(Bullets(reasons))) if reasons else ()
    rests_on = terminal_only(*accuracies[:_MOST_ENGINES]), page_only(*map(units.sentence, accuracies))
    told = (
        zip(commands(result, call), ("simulates the best cell", "sizes the fleet from there"), strict=True)
        if ran
        else ()
    )
    return Document(
        kind_of("sweep", result.scenario),
        sweep_facts(result),
        (
            *(_cells(result) if ran else ()),
            Section("Cells that could not be simulated", failed, short="cells that could not be simulated"),
            Section("What this rests on", rests_on, short="rests on"),
            Section("Next", (Listed(tuple(told), code=True, pasted=True),) if ran else (), short="next"),
        ),
        tuple(warnings),
    )


def sweep_facts(result: SweepRows) -> Facts:
    """What one must know of a sweep, as a table; the answer is the best cell by the first objective."""
    failed = [row for row in result.rows if row.status != "ok"]
    runs, best = units.plural(result.design.replications, "replication"), result.pareto.best
    of = units.plural(len(result.design.grid), "cell")
    shape = " x ".join(f"{axis.path} ({len(axis.values):,})" for axis in result.design.grid.axes)
    grid = f"{of if result.complete else f'{len(result.rows):,} of {of}'}, {shape}"
    if not best:
        why = "No cell could be simulated." if result.complete else "No cell is finished."
        return facts(f"{result.scenario.name}: {grid}", explained("runs", f"{runs} each."), explained("none", why))
    found = result.row(best[0].cell).estimates()
    front, cells = len(result.pareto.front), units.plural(len(result.rows), "cell")
    return facts(
        f"{best_words(result, best[0])}.",
        (
            Fact(f"best_{one.objective.metric}", best_words(result, one), "also", apart=True)
            for one in best[1:_MOST_BEST]
        ),
        Fact("cells", f"{result.scenario.name}: {grid}; {runs} each"),
        Fact("failed", f"{units.plural(len(failed), 'cell')}: {failures(result, failed)[0]}" if failed else ""),
        (measured(o.metric, found[o.metric]) for o in result.pareto.objectives[:4]),
        Fact("front", value=front, title="on the Pareto front", note=f"of {cells}"),
        explained("draws", "The same draws in every cell: two of them are compared run by run."),
    )


def _cells(result: SweepRows) -> Iterator[Section]:
    """The cells, and what each key does: in a terminal a section a key."""
    table, found = cells(result), effects(result)
    first = quantity(result.pareto.objectives[0].metric).title
    yield Section(
        "The cells",
        (
            page_only(front_chart(result), replace(table, note=f"{table.note}." if table.note else "")),
            terminal_only(cells(result, _FEW)),
        ),
        short=f"cells, by {first} ({LEVELS_LEGEND})",
        asked=True,
    )
    if len(table.rows) > _FEW:
        yield Section(f"more cells, by {first}", (table,), on=("terminal",))
    noted = (replace(effect, note="Means over the values of the other keys.") for _, effect in found)
    yield Section("What each key does", tuple(noted), on=("page",))
    for axis, effect in found:
        yield Section(f"what {axis.path} does (means over the other keys)", (effect,), on=("terminal",))


# --- Sentences and commands of a sweep.

# Reasons that are told.
_MOST_REASONS = 40


def best_words(result: SweepRows, best: BestCells) -> str:
    """ "Lowest optimizer step: 41.2 s at fleet.instances=8; 1 other cell equal to it, 3 others within luck of it"."""
    row = result.row(best.cell)
    found, how = row.estimates()[best.objective.metric], quantity(best.objective.metric).unit
    value = str(estimated(found, how))
    if how == "seconds" and found.mean >= 60:  # a column of minutes does not compare
        plain = estimated(found, "number")
        value = f"{plain.text} s{plain.tail}"
    way = "Highest" if best.objective.most else "Lowest"
    lucky = len(best.tied) - len(best.equal)
    ties = [f"{units.plural(len(best.equal), 'other cell')} equal to it"] if best.equal else []
    ties += [f"{units.plural(lucky, 'other' if ties else 'other cell')} within luck of it"] if lucky else []
    told = "; " + ", ".join(ties) if ties else ""
    return f"{way} {quantity(best.objective.metric).title}: {value} at {cell_words(result, best.cell)}{told}"


def commands(result: SweepRows, call: Sequence[str]) -> tuple[str, str]:
    """The best cell of the first objective, simulated as a run of its own; and one that sizes from there."""
    sets = _sets(result, result.pareto.best[0].cell)
    words = [word for text in sets for word in ("--set", text)]
    sized = [word for text in sets if not text.startswith("fleet.instances=") for word in ("--set", text)]
    source = ("--scenario", *call) if call and not call[0].startswith("-") else call
    if "--instances" in source:  # `size` chooses them
        at = source.index("--instances")
        source = (*source[:at], *source[at + 2 :])
    return shlex.join(["fleetsim", "simulate", *call, *words]), shlex.join(["fleetsim", "size", *source, *sized])


def failures(result: SweepRows, failed: Sequence[SweepRow]) -> list[str]:
    """Each reason once, with its cells."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for row in failed:
        reasons.setdefault((row.status, row.reason), []).append(row.cell)
    lines: list[str] = []
    for (status, reason), found in list(reasons.items())[:_MOST_REASONS]:
        others = f" and {units.plural(len(found) - 1, 'other')}" if len(found) > 1 else ""
        lines.append(f"{cell_words(result, found[0])}{others}: {status}: {reason}")
    left = len(reasons) - _MOST_REASONS
    return [*lines, *([f"{units.plural(left, 'other reason')} not shown"] if left > 0 else [])]


def _sets(result: SweepRows, cell: int) -> list[str]:
    return [f"{path}={text_of(value)}" for path, value in result.design.grid.values(cell).items()]


def cell_words(result: SweepRows, cell: int) -> str:
    """ "fleet.instances=8, admission.max_staleness=1"."""
    return ", ".join(_sets(result, cell))


# The dominated cells are drawn first, the front on top of them.
_LOOKS: tuple[tuple[Mark, str, MarkLook], ...] = (
    ("dominated", "beaten by another cell", MarkLook("quiet", symbol="x")),
    ("tied", "not significantly beaten (~)", MarkLook("third", symbol="diamond-open")),
    ("front", "Pareto front (*)", MarkLook("accent")),
)
_SMALL_PX, _LARGE_PX = 7.0, 22.0
# So many dominated cells are drawn: a page of more is slow, and they hide each other.
_MOST_DOMINATED = 2000


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
    least, span = _SMALL_PX**2, _LARGE_PX**2 - _SMALL_PX**2  # the area of a symbol grows with the value
    series = []
    for mark, name, style in _LOOKS:
        found = [row.estimates() for row in by_mark[mark]]
        parts = [(_scaled(sized, e) - low) / (high - low) if sized and high > low else 0.3 for e in found]
        sizes = [round(float((least + part * span) ** 0.5), 2) if sized else 11.0 for part in parts]
        said = [_hover(result, row, e) for row, e in zip(by_mark[mark], found, strict=True)]
        x, y = ([_scaled(objective, e) for e in found] for objective in (right, up))
        series += [ChartSeries(name, "dots", x, y, style, said=said, sizes=sizes)] if found else []
    best = result.row(result.pareto.best[0].cell)
    at = best.estimates()
    star, name = MarkLook("second", symbol="star-open"), f"best by {_title(up)}"
    series.insert(0, ChartSeries(name, "dots", [_scaled(right, at)], [_scaled(up, at)], star, sizes=[_LARGE_PX + 10]))
    ran = [row.estimates() for row in result.rows if row.status == "ok"]
    x_axis, y_axis = (_axis(objective, ran) for objective in (right, up))
    corner = f"{'up' if up.most else 'down'} and to the {'right' if right.most else 'left'}"
    words = f"Each symbol is a cell; {corner} is better. The star is the best by the first objective, "
    words += f"{cell_words(result, best.cell)}."
    if sized is not None and high > low:
        unit = " %" if quantity(sized.metric).unit == "share" else ""
        words += f" The larger the symbol, the higher its {_title(sized)}: {low:.3g}{unit} to {high:.3g}{unit}."
    if left_out:
        words += f" {units.plural(left_out, 'beaten cell')} not drawn."
    title = units.capital(f"{_title(up)} against {_title(right)}")
    return Chart("front", title, words, Plot(x_axis, (Panel(y_axis, tuple(series), height_px=360),)))


def _axis(objective: Objective, ran: Sequence[dict[str, Estimate]]) -> ChartAxis:
    values = [_scaled(objective, found) for found in ran]
    low, high = min(values), max(values)
    room = 0.08 * ((high - low) or high or 1.0)
    unit = {"seconds": ", s", "share": ", %"}.get(quantity(objective.metric).unit, "")
    title = f"{_title(objective)}{unit} ({'more' if objective.most else 'less'} is better)"
    return ChartAxis(title, low - room, high + room)


def _hover(result: SweepRows, row: SweepRow, found: dict[str, Estimate]) -> str:
    told = [cell_words(result, row.cell)]
    for objective in result.pareto.objectives:
        how = quantity(objective.metric).unit
        told.append(f"{_title(objective)} {units.with_ends(found[objective.metric], how)}")
    return "; ".join((*told, f"bound by {row.binding.replace('_', ' ')}"))


def _title(objective: Objective) -> str:
    return quantity(objective.metric).title


def _scaled(objective: Objective, found: dict[str, Estimate]) -> float:
    return found[objective.metric].mean * (100.0 if quantity(objective.metric).unit == "share" else 1.0)


# --- The cells of a sweep side by side, and what each key does, as tables of a terminal and of a page.

LEVELS_LEGEND = "* Pareto front, ~ not significantly beaten"
# Rows of the table of cells; the dominated ones go first where there are more.
_MOST_ROWS = 40
# Values of a key whose effect is shown.
_MOST_VALUES = 20
_MARKS = {"front": "*", "tied": "~", "dominated": ""}


def cells(result: SweepRows, most: int = _MOST_ROWS) -> Table:
    """The cells by the first objective; where there are more than `most`, those of the front.

    A narrow terminal does without what binds each.
    """
    objectives, marks = result.pareto.objectives, result.pareto.marks
    first, way = objectives[0], -1.0 if objectives[0].most else 1.0
    ran = [row for row in result.rows if row.status == "ok"]
    ran.sort(key=lambda row: (way * row.estimates()[first.metric].mean, row.cell))
    shown = ran
    if len(ran) > most:
        worth = [row for row in ran if marks[row.cell] != "dominated"]
        shown = [row for row in worth if marks[row.cell] == "front"] if len(worth) > most else worth
        shown = shown[:most]
    left = len(ran) - len(shown)
    note = f"{units.plural(left, 'other cell')} not shown: --out FILE and --json have all of them" if left else ""
    table = Table(
        f"cells, by {quantity(objectives[0].metric).title} ({LEVELS_LEGEND})",
        ("", *_keys(result.design.grid.axes), *(quantity(o.metric).heading for o in objectives), "binds"),
        tuple(_cell(result, row) for row in shown),
        left=0,
        note=note,
        marked=frozenset(i for i, row in enumerate(shown) if marks[row.cell] == "front"),
    )
    return replace(table, narrower=(table.without("binds"),))


def _cell(result: SweepRows, row: SweepRow) -> tuple[str, ...]:
    estimates, values = row.estimates(), result.design.grid.values(row.cell)
    return (
        _MARKS[result.pareto.marks[row.cell]],
        *(text_of(values[axis.path]) for axis in result.design.grid.axes),
        *(_plain(o, estimates[o.metric].mean) for o in result.pareto.objectives),
        row.binding.replace("_", " "),
    )


def effects(result: SweepRows) -> tuple[tuple[GridAxis, Table], ...]:
    """What each key does, where that is worth a table."""
    axes = (axis for axis in result.design.grid.axes if 1 < len(axis.values) <= _MOST_VALUES)
    return tuple((axis, _effect(result, axis)) for axis in axes)


def _effect(result: SweepRows, axis: GridAxis) -> Table:
    """The mean of each objective at each value of one key, over the values of the other keys that ran at all of its
    values, so that like is compared with like."""
    objectives = result.pareto.objectives
    by_others: dict[str, dict[str, SweepRow]] = {}
    for row in result.rows:
        if row.status == "ok":
            values = result.design.grid.values(row.cell)
            value = text_of(values.pop(axis.path))
            by_others.setdefault(repr(values), {})[value] = row
    balanced = [rows for rows in by_others.values() if len(rows) == len(axis.values)]
    shown = []
    for value in map(text_of, axis.values):
        found = [rows[value].estimates() for rows in (balanced or by_others.values()) if value in rows]
        sums = [math.fsum(estimates[o.metric].mean for estimates in found) for o in objectives]
        means = [_plain(o, total / len(found)) if found else "-" for o, total in zip(objectives, sums, strict=True)]
        shown.append((value, *means, f"{len(found):,}"))
    headings = (*(quantity(o.metric).heading for o in objectives), "cells")
    table = Table(f"by {axis.path}", (axis.path, *headings), tuple(shown), left=0)
    return replace(table, narrower=(replace(table, headings=(_last_word(axis), *headings)),))


def _keys(axes: Sequence[GridAxis]) -> list[str]:
    """The last word of each key, as long as they differ."""
    last = [_last_word(axis) for axis in axes]
    return last if len(set(last)) == len(last) else [axis.path for axis in axes]


def _last_word(axis: GridAxis) -> str:
    return axis.path.rpartition(".")[2]


def _plain(objective: Objective, mean: float) -> str:
    how = quantity(objective.metric).unit
    return units.share(mean) if how == "share" else units.number(mean)
