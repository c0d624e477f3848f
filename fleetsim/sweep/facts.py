"""A sweep, told: the best, the cells worth a look, what each key does, what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetsim import units
from fleetsim.job.words import kind_of
from fleetsim.quantities import quantity
from fleetsim.records import replace
from fleetsim.sweep.pictures import LEVELS_LEGEND, best_words, cells, commands, effects, failures, front_chart
from fleetsim.sweep.remarks import engine_sources
from fleetsim.sweep.run import SweepRows
from fleetsim.tell.document import Block, Bullets, Document, Listed, Section, page_only, terminal_only
from fleetsim.tell.facts import Fact, Facts, explained, facts, measured

# Engines that a terminal shows.
_MOST_ENGINES = 40
# Objectives whose best cells are told in brief, and cells that stand below.
_MOST_BEST, _FEW = 3, 10


def document(result: SweepRows, call: Sequence[str], warnings: Sequence[str] = ()) -> Document:
    """What `sweep` says. call: the words of a command line that name the scenario."""
    ran, accuracies = bool(result.pareto.best), [source.accuracy for source in engine_sources(result)]
    rests_on = terminal_only(*accuracies[:_MOST_ENGINES]), page_only(*map(units.sentence, accuracies))
    return Document(
        kind_of("sweep", result.scenario),
        sweep_facts(result),
        (
            *(_cells(result) if ran else ()),
            _failed(result),
            Section("What this rests on", rests_on, short="rests on"),
            *([_next(result, call)] if ran else []),
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


def _failed(result: SweepRows) -> Section:
    """Why some cells have no numbers."""
    failed = [row for row in result.rows if row.status != "ok"]
    reasons = tuple(failures(result, failed))
    blocks: tuple[Block, ...] = (terminal_only(*reasons), page_only(Bullets(reasons))) if failed else ()
    return Section("Cells that could not be simulated", blocks, short="cells that could not be simulated")


def _next(result: SweepRows, call: Sequence[str]) -> Section:
    simulate, size = commands(result, call)
    told = ((simulate, "simulates the best cell"), (size, "sizes the fleet from there"))
    return Section("Next", (Listed(told, code=True, pasted=True),), short="next")
