"""The ranking of a split advice for a terminal: as much of every way as there is room for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.split.runs import Outcome
from fleetsim.split.split import Advice
from fleetsim.tell.document import Cell, Table, Words
from fleetsim.tell.terminal import word_a_line

# Rows of the ranking that are shown; the colocated ways and the advised one always are.
_MOST_ROWS = 14
# Heading of the column that shows how idle the trainer and the instances are, one behind the other.
_IDLE = "idle t/r"


def ranking(result: Advice) -> Table:
    """Best first; what lies between the shown ones is left out and said to be.

    Where the terminal is narrow, intervals go first, then columns, before a name or a figure is cut in two.
    """
    widest, *narrower = _tables(result)
    return replace(widest, narrower=tuple(narrower))


def _tables(result: Advice) -> Iterator[Table]:
    """From the widest to the narrowest."""
    intervals = [name for name in _INTERVALS if name != result.by]
    columns = [name for name in _COLUMNS if name != result.by]
    for gone in range(len(intervals) + len(columns) + 1):
        bare, dropped = intervals[:gone], columns[: max(0, gone - len(intervals))]
        table = _table(result, [name for name in _FIGURES if name not in dropped], bare)
        left_out = [
            *map(_heading, dropped),
            *(f"the interval of {_heading(name)}" for name in bare if name not in dropped),
        ]
        note = f"Left out, the terminal is too narrow: {', '.join(left_out)}." if gone else ""
        yield replace(table, note=note)


def _table(result: Advice, columns: list[str], bare: Collection[str]) -> Table:
    """bare: columns without their intervals."""
    rows: list[tuple[Cell, ...]] = []
    last, chosen = 0, -1
    for outcome in shown_ways(result):
        place = result.outcomes.index(outcome) + 1
        if place > last + 1:
            rows.append(_more(place - last - 1, columns))
        if outcome is result.chosen:
            chosen = len(rows)
        last = place
        figures = (_FIGURES[name](outcome, name not in bare) for name in columns)
        rows.append((_sign(result, outcome, place), outcome.arrangement.label, *figures))
    if last < len(result.outcomes):
        rows.append(_more(len(result.outcomes) - last, columns))
    headings = ("", "", *(_heading(name, word_a_line) for name in columns))
    return Table("", headings, tuple(rows), left=2, marked=frozenset({chosen}))


def _more(ways: int, columns: Sequence[str]) -> tuple[Cell, ...]:
    return "", Words(tail=f"({ways} more)"), *("" for _ in columns)


def ways_table(outcomes: Sequence[Outcome]) -> Table:
    """Ways by rank, with the runs that are behind each: for what is known before there is an advice."""
    names = ("step_s", "cost_per_step", "goodput")
    rows = tuple(
        (o.arrangement.label, *(_FIGURES[name](o, True) for name in names), f"{o.replications}") for o in outcomes
    )
    return Table("", ("", *map(_heading, names), "runs"), rows)


def shown_ways(result: Advice) -> list[Outcome]:
    """The first few, every colocated way, and the one that is advised."""
    if len(result.outcomes) <= _MOST_ROWS + 2:
        return list(result.outcomes)
    return [
        o for i, o in enumerate(result.outcomes) if i < _MOST_ROWS - 2 or not o.arrangement.apart or o is result.chosen
    ]


def _sign(result: Advice, outcome: Outcome, place: int) -> str:
    """The advised way, and what ties with the first."""
    if outcome is result.chosen:
        return ">"
    return "=" if outcome.ties and outcome.replications > 1 and place > 1 else ""


def _interval(outcome: Outcome, metric: str, shown: bool) -> Words:
    """ "35.0 ±0.3", both to three figures of the mean; no interval where it is narrower, none, or not `shown`."""
    e = outcome.estimates[metric]
    decimals = max(0, 2 - math.floor(math.log10(abs(e.mean)))) if e.mean else 0
    half = f"{(e.ci_high - e.ci_low) / 2.0:,.{decimals}f}"
    return Words(f"{e.mean:,.{decimals}f}", f" ±{half}" if shown and float(half.replace(",", "")) > 0 else "")


def _idle(outcome: Outcome) -> str:
    trainer, rollout = (outcome.mean(name) for name in ("trainer_idle_fraction", "rollout_idle_fraction"))
    return f"{units.percent(trainer, 0)}/{units.share(rollout, 0)}"


# What stands in a column, with its interval or without. Idle is one column of two quantities.
_FIGURES: Mapping[str, Callable[[Outcome, bool], Cell]] = {
    "step_s": lambda outcome, shown: _interval(outcome, "step_s", shown),
    "goodput": lambda outcome, shown: _interval(outcome, "goodput", shown),
    "cost_per_step": lambda outcome, shown: _interval(outcome, "cost_per_step", shown),
    _IDLE: lambda outcome, shown: _idle(outcome),
    "staleness_steps.p99": lambda outcome, shown: units.number(outcome.mean("staleness_steps.p99")),
    "samples_lost.longest_tenth": lambda outcome, shown: units.share(outcome.mean("samples_lost.longest_tenth"), 0),
}
# What goes where the terminal is too narrow, the first one first; never the figure that the ways are ranked by.
_INTERVALS: tuple[str, ...] = ("cost_per_step", "goodput", "step_s")
_COLUMNS = ("goodput", "cost_per_step", "samples_lost.longest_tenth", "staleness_steps.p99", _IDLE, "step_s")


def _heading(name: str, of: Callable[[str], str] = lambda name: quantity(name).heading) -> str:
    return name if name == _IDLE else of(name)
