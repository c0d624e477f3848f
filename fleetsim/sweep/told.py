"""A sweep, told: the best, the cells worth a look, what each key does, what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleetsim import units
from fleetsim.job.words import kind_of
from fleetsim.quantities import quantity
from fleetsim.sweep.pictures import LEVELS_LEGEND, best_words, cells, commands, effects, failures, front_chart
from fleetsim.sweep.remarks import engine_sources
from fleetsim.sweep.run import SweepRows
from fleetsim.tell.document import (
    Block,
    Bullets,
    Document,
    Listed,
    Section,
    Table,
    Tile,
    brief,
    figure,
    page_only,
    terminal_only,
)  # fmt: skip
from fleetsim.tell.facts import Facts

# Engines that a terminal shows.
_MOST_ENGINES = 40
# Objectives whose best cells are told in brief, and cells that stand below.
_MOST_BEST, _FEW = 3, 10


def document(result: SweepRows, call: Sequence[str], warnings: Sequence[str] = ()) -> Document:
    """What `sweep` says. call: the words of a command line that name the scenario."""
    ran = bool(result.pareto.best)
    title = best_words(result, result.pareto.best[0]) if ran else "No cell could be simulated"
    return Document(
        kind=kind_of("sweep", result.scenario),
        title=f"{title}.",
        headline="" if ran else f"{result.scenario.name}: {_count(result)}, {_shape(result)}",
        brief=_brief(result) if ran else None,
        lede=(terminal_only(*_opening(result)), page_only(*_lede(result))),
        tiles=tuple(_tiles(result)),
        warnings=tuple(warnings),
        sections=(
            *(_cells(result) if ran else ()),
            _failed(result),
            _rests_on(result),
            *([_next(result, call)] if ran else []),
        ),
    )


def _brief(result: SweepRows) -> Facts:
    """What one must know of a sweep; its headline is the best cell by the first objective."""
    failed = [row for row in result.rows if row.status != "ok"]
    runs = units.plural(result.design.replications, "replication")
    return brief(
        *(("also", best_words(result, best)) for best in result.pareto.best[1:_MOST_BEST]),
        ("cells", f"{result.scenario.name}: {_count(result)}, {_shape(result)}; {runs} each"),
        ("failed", f"{units.plural(len(failed), 'cell')}: {failures(result, failed)[0]}" if failed else None),
    )


def _count(result: SweepRows) -> str:
    """How many cells ran, and of how many if that is not all."""
    of = units.plural(len(result.design.grid), "cell")
    return of if result.complete else f"{len(result.rows):,} of {of}"


def _shape(result: SweepRows) -> str:
    return " x ".join(f"{axis.path} ({len(axis.values):,})" for axis in result.design.grid.axes)


def _opening(result: SweepRows) -> Iterator[str]:
    """What a terminal says first: what ran, and the best cell of each objective."""
    yield f"{units.plural(result.design.replications, 'replication')} each, the same draws in every cell"
    yield from (best_words(result, best) for best in result.pareto.best)
    if not result.pareto.best:
        yield "No cell could be simulated." if result.complete else "No cell is finished."


def _lede(result: SweepRows) -> Iterator[str]:
    """What a page says first; its title is the best cell of the first objective."""
    runs = units.plural(result.design.replications, "replication")
    yield f"{_count(result)}: {_shape(result)}."
    yield f"{runs} each, the same draws in every cell: two of them are compared run by run."
    yield from (f"{best_words(result, best)}." for best in result.pareto.best[1:])


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
    yield Section("What each key does", tuple(_with_note(effect) for _, effect in found), on=("page",))
    for axis, effect in found:
        yield Section(f"what {axis.path} does (means over the other keys)", (effect,), on=("terminal",))


def _with_note(effect: Table) -> Table:
    return replace(effect, note="Means over the values of the other keys.")


def _failed(result: SweepRows) -> Section:
    """Why some cells have no numbers."""
    failed = [row for row in result.rows if row.status != "ok"]
    reasons = tuple(failures(result, failed))
    blocks: tuple[Block, ...] = (terminal_only(*reasons), page_only(Bullets(reasons))) if failed else ()
    return Section("Cells that could not be simulated", blocks, short="cells that could not be simulated")


def _rests_on(result: SweepRows) -> Section:
    accuracies = [source.accuracy for source in engine_sources(result)]
    blocks = terminal_only(*accuracies[:_MOST_ENGINES]), page_only(*map(units.sentence, accuracies))
    return Section("What this rests on", blocks, short="rests on")


def _next(result: SweepRows, call: Sequence[str]) -> Section:
    simulate, size = commands(result, call)
    told = ((simulate, "simulates the best cell"), (size, "sizes the fleet from there"))
    return Section("Next", (Listed(told, code=True, pasted=True),), short="next")


def _tiles(result: SweepRows) -> Iterator[Tile]:
    if result.pareto.best:
        row = result.row(result.pareto.best[0].cell)
        found = row.estimates()
        for objective in result.pareto.objectives[:4]:
            e, q = found[objective.metric], quantity(objective.metric)
            yield replace(figure(objective.metric, e), title=f"{q.title}, best cell")
        yield Tile(
            "on the Pareto front", f"{len(result.pareto.front):,}", f"of {units.plural(len(result.rows), 'cell')}"
        )
