"""A back-test, told: predicted beside observed, overall and for each slice of the window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetsim import units
from fleetsim.history.window import has_clock
from fleetsim.replay.backtest import Backtest, Slice
from fleetsim.replay.compared_quantities import QUANTITIES, Compared, ComparedRow, catalogued, error_words
from fleetsim.replay.words import clock
from fleetsim.tell.document import Block, Bullets, Table, Words, terminal_only

_MOST_SLICES = 24
_BY_SLICE = "error by part of the window"


def backtest_blocks(back: Backtest) -> Iterator[Block]:
    """What holds, in one line; the table of the whole window; the slices; where to look if it is off."""
    yield terminal_only(Words(verdict_words(back), strong=back.verdict == "wrong"))
    if back.overall:
        yield overall(back.overall)
    if len(back.hours) > 1:
        yield terminal_only(Words(tail=_BY_SLICE))
        yield by_slice(back.hours)
    if back.where:
        yield terminal_only("The model is wrong somewhere. Where to look:", Bullets(back.where))


def verdict_words(back: Backtest) -> str:
    """The outcome in one sentence."""
    what = f"{back.steps:,} steps" if back.steps else "what was sent to each instance, sent again"
    runs = f"{what}, {units.plural(back.replications, 'replication')}"
    if back.worst is None:
        return "Nothing of what was observed could be compared."
    beyond = sum(not row.within for row in back.overall)
    if beyond:
        which = "one quantity is" if beyond == 1 else f"{beyond} of {len(back.overall)} quantities are"
        return f"Simulated ({runs}): {which} off by more than {units.share(back.limit)}."
    return f"Simulated ({runs}): every quantity within {units.share(back.limit)}{_worst(back.worst)}."


def _worst(row: ComparedRow) -> str:
    """Which quantity is off most, and by how much; nothing where that rounds to nothing."""
    said = error_words(row)
    return "" if not any(c in "123456789" for c in said) else f", worst: {catalogued(row.quantity).title} {said}"


def overall(rows: Sequence[ComparedRow]) -> Table:
    """Observed and predicted, with the error in its own measure."""
    return Table(
        "back-test: the window, simulated",
        ("", "observed", "predicted", "error", ""),
        tuple(_compared(row) for row in rows),
        words_last=1,
        marked=frozenset(i for i, row in enumerate(rows) if not row.within),
    )


def _compared(row: ComparedRow) -> tuple[str | Words, ...]:
    half = units.half_width(row.interval)
    text = units.percent(half) if row.measure == "points" else units.number(half)
    return (
        catalogued(row.quantity).title,
        _value(row.quantity, row.observed),
        Words(_value(row.quantity, row.predicted), f" ±{text}" if half > 0 else ""),
        error_words(row),
        "" if row.within else "OFF",
    )


def by_slice(slices: Sequence[Slice]) -> Table:
    """The errors of every slice; which of them the engine's speed was fitted on."""
    there = [q for q in QUANTITIES if any(row.quantity == q for s in slices for row in s.rows)]
    began = "from (UTC)" if has_clock(slices[0].start_s) else "from"
    rows = [_errors(s, there) for s in slices[:_MOST_SLICES]]
    if len(slices) > _MOST_SLICES:
        rows.append((f"and {len(slices) - _MOST_SLICES} more", *("",) * (len(there) + 1)))
    return Table(_BY_SLICE, (began, *map(_heading, there), ""), tuple(rows), words_last=1).narrowing(_heading("tok_s"))


def _errors(part: Slice, there: Sequence[Compared]) -> tuple[str | Words, ...]:
    errors = {row.quantity: error_words(row, short=True) for row in part.rows}
    fitted = "" if part.held_out is None else "held out" if part.held_out else "fitted"
    return (clock(part.start_s), *(errors.get(q, "-") for q in there), Words(tail=fitted))


def _heading(name: Compared) -> str:
    """Without the unit: below it stand errors."""
    return catalogued(name).heading.partition(",")[0]


def _value(name: Compared, x: float) -> str:
    return units.written(x, catalogued(name).unit)
