"""What is odd about a sweep: engines of unknown error, trainer seconds that somebody stated, keys that did nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fleetsim import units
from fleetsim.config.scenario import Scenario, unread_notes
from fleetsim.config.tree import is_given
from fleetsim.errors import InputError
from fleetsim.job.derived_values import PRICE, model_notes, price_notes
from fleetsim.job.engine_source import EngineSource, engine_source
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trainer_scaling import course_of, time_factor
from fleetsim.sweep.cell import SweepRow, text_of
from fleetsim.sweep.run import SweepRows

# --- The engines of a sweep: how far off the speed of each is, and whether GPUs of several types have prices.


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
    path = "fleet.instances"
    if path in swept and ("engine.dp" in swept or result.scenario.engine.dp > 1):
        # counts that were rounded up to whole engines: the table shows what was asked for
        ran = [row.cell for row in result.rows if row.status == "ok"]
        counts = {(result.design.grid.values(c)[path], result.design.scenario(c).fleet.instances) for c in ran}
        words = ", ".join(f"{asked} ran as {whole}" for asked, whole in sorted(counts) if asked != whole)
        found += [f"{path} {words}: the ranks of an engine (engine.dp) come and go together"] if words else []
    if not is_given(PRICE, given):
        fleets = ((s.engine.gpu, s.cost) for s in _distinct(result, "engine"))
        found += price_notes(
            fleets, f"sweep each type by itself with --set {PRICE}=DOLLARS, or give --set cost.prices=FILE.csv"
        )
    return tuple(found)


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


# --- Trainer seconds that somebody stated: they stay as they are in cells that the trainer's model gives others.
# A cell is the job that `fleetsim simulate` makes of its values, so stated seconds are not scaled. Cells that differ in
# the trainer's GPUs then differ in their price alone, and look as if more GPUs bought nothing.

_GPUS = "trainer.gpus"
# Seconds that are nearer than this to what the model makes of the first cell's are right as they are.
_NEAR = 0.05


def stated_seconds(result: SweepRows) -> tuple[str, ...]:
    """A sentence for each key that should move the trainer's seconds and does not, or not enough: of the cells that
    differ from the first in that key alone, the last one is looked at."""
    grid = result.design.grid
    ran = [row.cell for row in result.rows if row.status == "ok"]
    notes: list[str] = []
    for axis in grid.axes:
        fixed = {**grid.values(ran[0]), axis.path: None} if ran else {}
        alone = [cell for cell in ran if {**grid.values(cell), axis.path: None} == fixed]
        if len(alone) > 1:
            first, last = alone[0], alone[-1]
            values = [text_of(grid.values(cell)[axis.path]) for cell in (first, last)]
            notes += _note(axis.path, values, result.design.scenario(first), result.design.scenario(last))
    return tuple(notes)


def _note(path: str, values: list[str], first: Scenario, last: Scenario) -> list[str]:
    now, then = mean_step_s(first), mean_step_s(last)
    if now <= 0:
        return []
    factor, by, remedies = _scaling(path, first, last)
    if abs(then / (now * factor) - 1.0) < _NEAR:
        return []

    def ends(seconds: float) -> str:
        return f"{units.seconds(now)} at {values[0]} and {units.seconds(seconds)} at {values[1]}"

    told = f"{units.seconds(now)} in every cell" if abs(then / now - 1.0) < _NEAR else ends(then)
    return [
        f"{path} does not move the trainer's seconds as it should, because they are stated: a step takes {told}; "
        f"by {by} {ends(now * factor)}; {' or '.join(remedies)}"
    ]


def _scaling(path: str, first: Scenario, last: Scenario) -> tuple[float, str, list[str]]:
    """Seconds of the last over those of the first, by what, and what to do."""
    split = ["ask fleetsim split, which scales them"] if path == _GPUS else []
    now, then = course_of(first), course_of(last)
    if now is not None and then is not None:
        factor = then(last.trainer.gpus) / now(first.trainer.gpus)
        return factor, "the trainer's model", ["leave the seconds out", *split]
    if path == _GPUS:
        return time_factor(first.trainer, last.trainer.gpus), "the law for trainers that are not known", split
    return mean_step_s(last) / mean_step_s(first), "", []


# --- Keys of a sweep that did nothing: cells that differ in one of them alone came out equal, run by run.


def idle_keys(result: SweepRows) -> tuple[str, ...]:
    """A sentence for each key with several values that changed no number of any cell, and why if that is known."""
    ran = [row for row in result.rows if row.status == "ok"]
    if not ran:
        return ()
    notes: list[str] = []
    stride = 1
    for axis in reversed(result.design.grid.axes):
        count = len(axis.values)
        if _alike(ran, stride, count):
            first, last = (unread_notes(result.design.scenario(row.cell), [axis.path]) for row in (ran[0], ran[-1]))
            plain = f"{axis.path} changes nothing here: cells that differ in it alone are equal"
            notes = [*(first if first and first == last else [plain]), *notes]
        stride *= count
    return tuple(notes)


def _alike(ran: list[SweepRow], stride: int, count: int) -> bool:
    """Whether there are cells that differ in this key alone, and all of those are equal. stride: how far apart."""
    first: dict[int, SweepRow] = {}
    compared = False
    for row in ran:
        other = first.setdefault(row.cell - row.cell // stride % count * stride, row)
        if other is not row:
            compared = True
            if other.values != row.values:
                return False
    return compared
