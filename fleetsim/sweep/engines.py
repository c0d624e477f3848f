"""The engines of a sweep: how far off the speed of each is, and whether GPUs of several types have prices."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.errors import InputError
from fleetsim.job.derived_values import PRICE, model_notes, price_notes
from fleetsim.job.engine_source import EngineSource, engine_source
from fleetsim.sweep.run import SweepRows


def engine_sources(result: SweepRows) -> tuple[EngineSource, ...]:
    """The source of each engine speed among the cells that ran, in their order. Ranges are not looked at."""
    sources: dict[str, EngineSource] = {}
    for scenario in _distinct(result, "engine"):
        source = engine_source(scenario, scenario.fleet.instances)
        sources.setdefault(source.accuracy, source)
    return tuple(sources.values())


def engine_notes(result: SweepRows, known: Collection[str] = ()) -> tuple[str, ...]:
    """What has to be said of cells with several types of GPU, of their models and lengths, and of their counts.

    known: what was said of the scenario that all of them started from.
    """
    swept = [axis.path for axis in result.design.grid.axes]
    given = [*result.design.given, *swept]
    told = dict.fromkeys(n for s in _distinct(result, "engine", "workload") for n in model_notes(s, given))
    found = [note for note in told if note not in known]
    found += _rounded_notes(result)
    if not is_given(PRICE, given):
        fleets = ((s.engine.gpu, s.cost) for s in _distinct(result, "engine"))
        found += price_notes(
            fleets, f"sweep each type by itself with --set {PRICE}=DOLLARS, or give --set cost.prices=FILE.csv"
        )
    return tuple(found)


def _rounded_notes(result: SweepRows) -> Iterator[str]:
    """Counts of cells that were rounded up to whole engines: the table shows what was asked for."""
    path = "fleet.instances"
    swept = [axis.path for axis in result.design.grid.axes]
    if path not in swept or not ("engine.dp" in swept or result.scenario.engine.dp > 1):
        return
    ran = [row.cell for row in result.rows if row.status == "ok"]
    counts = {(result.design.grid.values(c)[path], result.design.scenario(c).fleet.instances) for c in ran}
    words = [f"{asked} ran as {whole}" for asked, whole in sorted(counts) if asked != whole]
    if words:
        yield f"{path} {', '.join(words)}: the ranks of an engine (engine.dp) come and go together"


def _distinct(result: SweepRows, *sections: str) -> Iterator[Scenario]:
    """A scenario for each combination of the keys of some sections."""
    axes = [axis.path for axis in result.design.grid.axes if axis.path.partition(".")[0] in sections]
    seen: set[str] = set()
    for row in result.rows:
        values = result.design.grid.values(row.cell)
        key = repr([values[path] for path in axes])
        if row.status == "ok" and key not in seen:
            seen.add(key)
            try:
                yield result.design.scenario(row.cell)
            except InputError:  # a profile that is no more
                continue
