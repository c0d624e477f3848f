"""`sweep`: what can be asked of a grid of jobs: every combination of some values, simulated under the same draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, Unpack

from fleetsim.errors import InputError, Interrupted, OutsideError, Problem, Problems, UnfinishedError
from fleetsim.faces import Text, flag, keywords, text
from fleetsim.job.fields import CountedJob, ready
from fleetsim.job.result import SILENT, Gated, Watch, told, unchanging
from fleetsim.job.settings import JOB, RUN, SIMULATED, AnyJob, Lends, Option
from fleetsim.records import replace
from fleetsim.sweep.grid import Axis, grid_of

if TYPE_CHECKING:
    from fleetsim.job.base_job import Job, Start, Tell
    from fleetsim.job.options import Options
    from fleetsim.sweep.cell import SweepRow
    from fleetsim.sweep.run import SweepRows
    from fleetsim.sweep.table import TableOutput
    from fleetsim.tell.document import Document

GRID, WHERE = "The grid", "Where it runs"
MOST_WORKERS = 1024


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SweepResult(Gated):
    """Every cell of a grid.

    job: what all of them share. swept: all that was found (fleetsim/sweep/run.py). call: the words that name the job in
    another command. stopped: what ended the sweep before its time; empty where nothing did.
    """

    _index: ClassVar[str | None] = "cell"
    job: Job
    swept: SweepRows
    call: tuple[str, ...] = ("SCENARIO",)
    stopped: str = ""

    def __repr__(self) -> str:
        return f"<SweepResult: {len(self.swept.rows)} cells, {len(self.swept.pareto.front)} on the Pareto front>"

    @property
    def best(self) -> Job:
        """The job of the cell that is best by the first objective. Raises InputError where no cell could be simulated
        (the column `reason` of `to_pandas` says why)."""
        if not self.swept.pareto.best:
            rule = f"none of the {len(self.swept.rows)} cells could be simulated"
            why = next((row.reason for row in self.swept.rows if row.reason), "")
            raise InputError([Problem("best", None, rule, f"the first says: {why}" if why else "change the grid")])
        return self.job.with_(self.swept.design.grid.values(self.swept.pareto.best[0].cell))

    def numbers(self) -> dict[str, float]:
        """What --fail-if can ask: the means of the cell that is best by the first objective."""
        row = self.swept.row(self.swept.pareto.best[0].cell)
        return {name: estimate.mean for name, estimate in row.estimates().items()}

    def missed(self) -> str:
        """Why there is no best cell."""
        return "" if self.swept.pareto.best else "no cell of the grid could be simulated; each says why above"

    @property
    def found(self) -> tuple[SweepRow, ...]:
        """The cells that were run."""
        return self.swept.rows

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings that the command prints on stderr."""
        from fleetsim.sweep.remarks import engine_notes, idle_keys, stated_seconds

        keys = (*idle_keys(self.swept), *stated_seconds(self.swept))
        return (*self.job.notes, *keys, *engine_notes(self.swept, self.job.notes))

    def rows(self) -> list[dict[str, Any]]:
        """The cells, as under -o csv."""
        from fleetsim.sweep.table import columns_of

        columns = columns_of(self.swept)
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def told(self) -> Document:
        """The Document of the sweep."""
        from fleetsim.sweep.facts import document

        return document(self.swept, self.call, self.warnings)

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.sweep.facts import sweep_facts
        from fleetsim.sweep.table import sweep_document
        from fleetsim.tell.data import told

        warnings = (*self.warnings, *([self.stopped] if self.stopped else []))
        return {**sweep_document(self.swept, warnings), **told(sweep_facts(self.swept))}


@dataclass(frozen=True, kw_only=True)
class SweptJob(CountedJob):
    """The job that all cells of a sweep share."""

    set_: Annotated[
        list[str] | None, Option("Any other key, in every cell. Repeatable.", JOB, metavar="KEY=VALUE", after="preset")
    ] = None
    steps: Annotated[int | None, Option("Optimizer steps of every run (30).", SIMULATED, after="trainer_price")] = None
    replications: Annotated[int | None, Option("Runs of every cell (5).", SIMULATED)] = None

    to_do = "sweep"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Which combinations of some values are worth a look?

    axes: the grid itself, where it is not written as texts. call: the words that name the job in another command.
    """

    job: Annotated[AnyJob, Lends(SweptJob)]
    grid: Annotated[
        list[str] | None,
        Option("A key and its values: LO:HI:STEP or A,B,C. Repeatable.", GRID, metavar="KEY=VALUES", after="preset"),
    ] = None
    objective: Annotated[
        list[str] | None,
        Option(
            "What counts, the most important first: METRIC, max:METRIC. Repeatable.",
            GRID,
            metavar="METRIC",
            after="grid",
        ),
    ] = None
    out: Annotated[
        str | None, Option("Write the table there: .parquet or .csv. A killed sweep then goes on.", RUN, metavar="FILE")
    ] = None
    restart: Annotated[bool, Option("Forget what an unfinished sweep left at --out.", RUN)] = False
    workers: Annotated[int | None, Option("Processes on this machine; else as many as help.", WHERE, metavar="N")] = (
        None
    )
    ray: Annotated[str | None, Option("A Ray cluster instead: auto, or HOST:PORT.", WHERE, metavar="ADDRESS")] = None
    axes: tuple[Axis, ...] = ()
    call: tuple[str, ...] = ("SCENARIO",)

    def ready(self) -> Self:
        """The same question with the job and the axes themselves. Raises InputError with all that is wrong with the
        grid, the objectives and the job."""
        from fleetsim.sweep.grid import axes_written
        from fleetsim.sweep.pareto import objectives_of

        axes, wrong = list(self.axes), Problems()
        with wrong.check():
            axes += axes_written(self.grid or ())
        wrong += self._said_twice({axis.path for axis in axes})
        with wrong.check():
            if not wrong:
                grid_of(axes)
        wrong.made(objectives_of, self.objective or ())
        job = wrong.made(ready, self.job)
        wrong.stop()
        call = self.job.words() if isinstance(self.job, SweptJob) else self.call
        return replace(self, job=job, grid=None, axes=tuple(axes), call=call)

    def _said_twice(self, swept: set[str]) -> Iterator[Problem]:
        """Keys of the grid that are said of every cell as well."""
        from fleetsim.job.typed_words import said_by

        if not isinstance(self.job, SweptJob):
            return
        sets = {text.partition("=")[0].strip(): text for text in self.job.set_ or ()}
        flags = {name: value for name, value in self.job.flags().items() if value is not None}
        for path in sorted(swept):
            name = said_by(path, flags)
            for where, value in (("--set", sets.get(path)), (flag(name or ""), flags.get(name or ""))):
                if value is not None:
                    yield Problem(where, value, f"--grid {path} gives it in every cell", "keep one of the two")

    def place(self) -> AbstractContextManager[TableOutput | None]:
        """Where the table goes. Raises InputError with what is wrong about it, and about where the work is done."""
        from fleetsim.sweep.cluster import check_ray
        from fleetsim.sweep.table import TableOutput

        wrong, flags = Problems(), (flag("workers"), flag("ray"))
        if self.workers is not None and not 1 <= self.workers <= MOST_WORKERS:
            rule, remedy = f"must be between 1 and {MOST_WORKERS:,}", text("for example {}", flag("workers", 4))
            wrong.append(Problem(flags[0], self.workers, rule, remedy))
        if self.workers is not None and self.ray is not None:
            wrong.append(Problem(flags[0], self.workers, "a cluster has its own", text("drop {} or {}", *flags)))
        if self.restart and self.out is None:
            wrong.append(Problem("--restart", True, "there is nothing to forget without --out", "add --out FILE"))
        place = wrong.made(lambda: nullcontext() if self.out is None else TableOutput(self.out))
        with wrong.check():
            if self.ray is not None:
                check_ray(self.ray)
        wrong.stop()
        return place


def ask(asked: Sweep, watch: Watch = SILENT) -> SweepResult:
    """Every cell of the grid, simulated; the table at `out`, if there is one.

    Raises InputError with all that is wrong, or where no cell is valid; UnfinishedError with the SweepResult so far
    when a worker, a cluster or a file fails; Interrupted with the same on Ctrl-C.
    """
    from fleetsim.sweep.pareto import BestSoFar, objectives_of
    from fleetsim.sweep.run import sweep as run

    asked = asked.ready()
    with asked.place() as place:
        watch.loaded()
        job, grid, objectives = ready(asked.job), grid_of(asked.axes), objectives_of(asked.objective or ())
        journal = None if place is None else place.journal(asked.restart, watch)
        try:
            swept = run(
                job.scenario,
                grid,
                objectives=objectives,
                given=job.given,
                workers=asked.workers,
                ray=asked.ray,
                journal=journal,
                progress=BestSoFar(grid, objectives[0], watch),
            )
        except (Interrupted, UnfinishedError) as cut:
            raise _cut_off(cut, SweepResult(job, cut.known, asked.call), len(grid), kept=place is not None) from None
        result = SweepResult(job, swept, asked.call)
        if place is not None:
            try:
                place.write(swept)
            except OutsideError as error:  # the cells are known all the same
                raise UnfinishedError(error.args[0], replace(result, stopped=f"stopped: {error}")) from None
    return result


def _cut_off(cut: Interrupted | UnfinishedError, known: SweepResult, of: int, kept: bool) -> BaseException:
    """The error of a sweep that ended before its time, with what is known and how to go on."""
    done = f"{len(known.swept.rows):,} of {of:,} cells are finished"
    if isinstance(cut, Interrupted):
        nothing_kept = Text("without --out nothing is kept", "nothing else is kept")
        missing = text("{}; {}", done, "the same command goes on from there" if kept else nothing_kept)
        return Interrupted(replace(known, stopped=f"interrupted: {missing}"), missing)
    what = text("{}; {}", cut.args[0], done) if known.swept.rows else cut.args[0]
    return UnfinishedError(what, replace(known, stopped=f"stopped: {what}"))


@keywords()
def sweep(
    job: Start,
    grid: Mapping[str, Sequence[Any]],
    *,
    objectives: Sequence[str] = (),
    workers: int | None = None,
    ray: str | None = None,
    tell: Tell | None = None,
    **options: Unpack[Options],
) -> SweepResult:
    """Simulates every combination of some values: `fleetsim sweep`.

    job: a Job, or what `load` takes. grid: dotted path -> values. objectives: metrics ("step_s", "max:queue_depth"),
    first things first. workers: processes on this machine, None = as many as pay. ray: the address of a cluster
    instead. options: as for `load`, in every cell.

        >>> import fleetsim as fs
        >>> found = fs.sweep("async-one-step", {"fleet.instances": [2, 4]}, steps=8, replications=2)
        >>> list(found.to_pandas()["fleet.instances"])
        [2, 4]

    Raises InputError with all that is wrong, or where no cell is valid; OutsideError when a worker or a cluster fails;
    Interrupted with the SweepResult so far on Ctrl-C.
    """
    from fleetsim.job.base_job import load
    from fleetsim.sweep.grid import axes_of

    start = load(job, **options)
    asked = Sweep(job=start, axes=axes_of(grid), objective=list(objectives), workers=workers, ray=ray)
    return ask(asked, told(tell))
