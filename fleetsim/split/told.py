"""The terminal view of a split advice."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fleetsim import units
from fleetsim.job import words
from fleetsim.job.rests_on import assumption_list
from fleetsim.quantities import quantity
from fleetsim.split import words as split_words
from fleetsim.split.split import Outcome, SplitResult
from fleetsim.tell.terminal import drawn, grid, section, word_a_line

# Rows of the ranking that are shown; the colocated ways and the advised one always are.
_MOST_ROWS = 14
# Heading of the column that shows how idle the trainer and the instances are, one behind the other.
_IDLE = "idle t/r"


def split_report(result: SplitResult) -> Group:
    """Everything that `fleetsim split` prints on stdout."""
    blocks: list[RenderableType] = [
        answer(result),
        section("every way (rollout + trainer GPUs; mean ± half of the 95 % interval)", ranking(result)),
        section("the trainer's seconds", Text(split_words.law(result))),
    ]
    if result.assumptions:
        blocks.append(
            section("assumed (and the flags that change it)", drawn(assumption_list(result.assumptions, words.THEMES)))
        )
    blocks.append(section("accuracy", Text(words.profile(result.profile))))
    return Group(*blocks)


def answer(result: SplitResult) -> RenderableType:
    """The advice, its reason, what it costs in freshness, and what else would help."""
    lines = [Text(split_words.headline(result), style="bold"), Text(split_words.verdict(result))]
    fresh = split_words.on_policy(result)
    if fresh is not None:
        lines.append(Text(fresh))
    lines.append(Text(result.explanation))
    return Group(*lines)


def ranking(result: SplitResult) -> Group:
    """Best first; what lies between the shown ones is left out and said to be."""
    notes = (
        "idle: the trainer's share / the instances'; stale: in steps; long lost: share of the longest tenth of the "
        "samples that is dropped or aborted"
    )
    return Group(_Ranking(result), Text(split_words.orders(result)), Text(notes, style="dim"))


class _Ranking:
    """The table as the terminal allows: intervals go first, then columns, before a name or a figure is cut in two."""

    def __init__(self, result: SplitResult) -> None:
        self._result = result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        by = self._result.by
        intervals = [name for name in _INTERVALS if name != by]
        columns = [name for name in _COLUMNS if name != by]
        for gone in range(len(intervals) + len(columns) + 1):
            bare, dropped = intervals[:gone], columns[: max(0, gone - len(intervals))]
            table = _table(self._result, [name for name in _FIGURES if name not in dropped], bare)
            if Measurement.get(console, options.update(max_width=_UNBOUNDED), table).maximum <= options.max_width:
                break
        yield table
        if gone:
            left_out = [
                *map(_heading, dropped),
                *(f"the interval of {_heading(name)}" for name in bare if name not in dropped),
            ]
            yield Text(f"Left out, the terminal is too narrow: {', '.join(left_out)}.", style="dim")


def _table(result: SplitResult, columns: list[str], bare: Collection[str]) -> Table:
    """bare: columns without their intervals."""
    table = grid(
        "", "", *(_heading(name, word_a_line) for name in columns), align=("left", "left", *("right",) * len(columns))
    )
    table.columns[1].no_wrap = True
    blank = [""] * len(columns)
    last = 0
    for outcome in shown_ways(result):
        place = result.outcomes.index(outcome) + 1
        if place > last + 1:
            table.add_row("", f"({place - last - 1} more)", *blank, style="dim")
        last = place
        figures = [_FIGURES[name](outcome, name not in bare) for name in columns]
        style = "bold" if outcome is result.chosen else ""
        table.add_row(_sign(result, outcome, place), outcome.arrangement.label, *figures, style=style)
    if last < len(result.outcomes):
        table.add_row("", f"({len(result.outcomes) - last} more)", *blank, style="dim")
    return table


def ways_table(outcomes: Sequence[Outcome]) -> Table:
    """Ways by rank, with the runs that are behind each: for what is known before there is an advice."""
    names = ("step_s", "cost_per_step", "goodput")
    table = grid("", *map(_heading, names), "runs", align=("left", *("right",) * 4))
    for outcome in outcomes:
        figures = [_FIGURES[name](outcome, True) for name in names]
        table.add_row(outcome.arrangement.label, *figures, f"{outcome.replications}")
    return table


def shown_ways(result: SplitResult) -> list[Outcome]:
    """The first few, every colocated way, and the one that is advised."""
    if len(result.outcomes) <= _MOST_ROWS + 2:
        return list(result.outcomes)
    return [
        o
        for i, o in enumerate(result.outcomes)
        if i < _MOST_ROWS - 2 or o.arrangement.kind != "split" or o is result.chosen
    ]


def _sign(result: SplitResult, outcome: Outcome, place: int) -> str:
    """The advised way, and what ties with the first."""
    if outcome is result.chosen:
        return ">"
    return "=" if outcome.ties and outcome.replications > 1 and place > 1 else ""


def _interval(outcome: Outcome, metric: str, shown: bool) -> Text:
    """ "35.0 ±0.3", both to three figures of the mean; no interval where it is narrower, none, or not `shown`."""
    e = outcome.estimates[metric]
    decimals = max(0, 2 - math.floor(math.log10(abs(e.mean)))) if e.mean else 0
    text = Text(f"{e.mean:,.{decimals}f}")
    half = f"{(e.ci_high - e.ci_low) / 2.0:,.{decimals}f}"
    if shown and float(half.replace(",", "")) > 0:
        text.append(f" ±{half}", style="dim")
    return text


def _idle(outcome: Outcome) -> Text:
    trainer, rollout = (outcome.mean(name) for name in ("trainer_idle_fraction", "rollout_idle_fraction"))
    return Text(f"{units.percent(trainer, 0)}/{units.share(rollout, 0)}")


# What stands in a column, with its interval or without. Idle is one column of two quantities.
_FIGURES: Mapping[str, Callable[[Outcome, bool], Text]] = {
    "step_s": lambda outcome, shown: _interval(outcome, "step_s", shown),
    "goodput": lambda outcome, shown: _interval(outcome, "goodput", shown),
    "cost_per_step": lambda outcome, shown: _interval(outcome, "cost_per_step", shown),
    _IDLE: lambda outcome, shown: _idle(outcome),
    "staleness_steps.p99": lambda outcome, shown: Text(units.number(outcome.mean("staleness_steps.p99"))),
    "samples_lost.longest_tenth": lambda outcome, shown: Text(
        units.share(outcome.mean("samples_lost.longest_tenth"), 0)
    ),
}
# What goes where the terminal is too narrow, the first one first; never the figure that the ways are ranked by.
_INTERVALS: tuple[str, ...] = ("cost_per_step", "goodput", "step_s")
_COLUMNS = ("goodput", "cost_per_step", "samples_lost.longest_tenth", "staleness_steps.p99", _IDLE, "step_s")


def _heading(name: str, of: Callable[[str], str] = lambda name: quantity(name).heading) -> str:
    return name if name == _IDLE else of(name)


# Wide enough for any table: what it needs is measured, not what the terminal has.
_UNBOUNDED = 10_000
