"""`fleetsim sweep`: a grid of scenarios, every combination simulated under the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetsim.cli.options import JOB, RUN, SIMULATED, Html
from fleetsim.cli.say import say

GRID, WHERE = "The grid", "Where it runs"

if TYPE_CHECKING:
    from fleetsim.cli.sweep_files import Output
    from fleetsim.job.job import Job
    from fleetsim.sweep.grid import Grid
    from fleetsim.sweep.journal import Journal
    from fleetsim.sweep.objective import Objective
    from fleetsim.sweep.run import Sweep


def sweep(
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A framework instead: verl-fully-async, areal, trl-grpo...", rich_help_panel=JOB)
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES", help="A key and its values: LO:HI:STEP or A,B,C. Repeatable.", rich_help_panel=GRID
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any other key, in every cell. Repeatable.", rich_help_panel=JOB
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="A measured engine instead of the scenario's: profile name or file.", rich_help_panel=JOB),
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="What counts, first things first: METRIC, max:METRIC. Repeatable.",
            rich_help_panel=GRID,
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Optimizer steps of every run (30).", rich_help_panel=SIMULATED)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same bytes (0).", rich_help_panel=SIMULATED)] = None,
    replications: Annotated[int | None, typer.Option(help="Runs of every cell (5).", rich_help_panel=SIMULATED)] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the table there: .parquet or .csv. A killed sweep then goes on.",
            rich_help_panel=RUN,
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget what an unfinished sweep left at --out.", rich_help_panel=RUN)
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes on this machine; else as many as pay.", rich_help_panel=WHERE),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Ray cluster instead: auto, or HOST:PORT.", rich_help_panel=WHERE),
    ] = None,
    html: Html = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.", rich_help_panel=RUN)] = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION", help='Exit 10 if true of the best cell: "step_s>30". Repeatable.', rich_help_panel=RUN
        ),
    ] = None,
) -> None:
    """Simulate every combination of some values, and say which are worth a look.

    Examples:

    [bold]fleetsim sweep job.yaml --grid fleet.instances=4:32:2 --grid admission.max_staleness=0,0.5,1,2[/bold]

    [bold]fleetsim sweep job.yaml --grid fleet.instances=4:32 --out sweep.parquet[/bold]

    [bold]fleetsim sweep job.yaml --grid fleet.instances=4:32:2 --html sweep.html[/bold]

    [bold]fleetsim sweep job.yaml --grid engine.gpu=H100,H200 --objective goodput --objective step_s --json[/bold]

    [bold]fleetsim sweep job.yaml --grid fleet.instances=100:1000:10 --out sweep.parquet --ray auto[/bold]

    The first --objective orders the cells; the front is over all of them: cost_per_step, step_s and
    staleness_steps.mean unless you say otherwise. A combination that cannot be simulated is a row with its reason.

    The same command goes on where a killed one stopped, if there is an --out.
    """
    from fleetsim.cli.output import show, show_json, stop_at, warn
    from fleetsim.cli.pages import new_page, write_page
    from fleetsim.cli.together import together
    from fleetsim.errors import InfeasibleError, OutsideError
    from fleetsim.job.gate import METRICS, parse_gate

    flags: dict[str, Any] = {"profile": profile, "steps": steps, "seed": seed, "replications": replications}
    with together() as wrong:
        with wrong.check():
            gate = parse_gate(fail_if or (), METRICS)
        with wrong.check():
            job, cells, objectives = _asked(scenario, preset, grid or (), set_ or (), objective or (), flags)
        with wrong.check():
            page = new_page("--html", html)
    with _place(out, workers, ray, restart) as place:
        result, stopped = _swept(job, cells, objectives, place, workers, ray, restart)
        if place is not None and stopped is None:
            try:
                place.write(result)
            except OutsideError as error:  # the cells are known all the same
                stopped = error
    call = _call(scenario, preset, set_ or (), profile, seed)

    from fleetsim.sweep.engines import engine_notes
    from fleetsim.sweep.idle import idle_keys

    job_notes = (*job.notes, *idle_keys(result), *engine_notes(result, job.notes))
    notes = (
        *job_notes,
        *(
            [f"{'stopped' if isinstance(stopped, OutsideError) else 'interrupted'}: {stopped}"]
            if stopped is not None
            else []
        ),
    )
    if json_:
        from fleetsim.sweep.data import sweep_document

        show_json(sweep_document(result, notes))
    elif stopped is None or result.rows:
        from fleetsim.sweep.told import sweep_report

        show(sweep_report(result, call))
    if page is not None and stopped is None:
        from fleetsim.sweep.page import sweep_page

        write_page(page, sweep_page(result, call, notes))
    warn(job_notes)
    if stopped is not None:
        raise stopped
    if not result.pareto.best:
        raise InfeasibleError("no cell of the grid could be simulated; each says why above")
    best = result.row(result.pareto.best[0].cell)
    stop_at(gate.tripped({name: e.mean for name, e in best.estimates().items()}))


def _swept(
    job: Job,
    grid: Grid,
    objectives: Sequence[Objective],
    place: Output | None,
    workers: int | None,
    ray: str | None,
    restart: bool,
) -> tuple[Sweep, BaseException | None]:
    """The sweep, told as it goes on; and what ended it before its time, which says how to go on.

    Raises what `sweep` raises before the first cell.
    """
    from fleetsim.cli.interrupts import loaded
    from fleetsim.cli.progress import progress
    from fleetsim.cli.sweep_best import BestSoFar
    from fleetsim.errors import Interrupted, UnfinishedError

    with progress("loading the simulator") as tell:
        from fleetsim.sweep.run import sweep as run_sweep

        loaded()
        told = BestSoFar(grid, objectives[0], tell)
        try:
            result = run_sweep(
                job.scenario,
                grid,
                objectives=objectives,
                given=job.given,
                workers=workers,
                ray=ray,
                journal=None if place is None else lambda design: _told(place.journal(design, restart), len(grid)),
                progress=told,
            )
        except (Interrupted, UnfinishedError) as cut:
            done = f"{len(cut.known.rows):,} of {len(grid):,} cells are finished"
            how = "without --out nothing is kept" if place is None else "the same command goes on from there"
            if isinstance(cut, Interrupted):
                return cut.known, KeyboardInterrupt(f"{done}; {how}")
            return cut.known, UnfinishedError(f"{cut}; {done}" if cut.known.rows else str(cut), cut.known)
    return result, None


def _told(journal: Journal, cells: int) -> Journal:
    """The journal; that the sweep goes on from it is worth a line, on a terminal or off it."""
    if journal.rows:
        say(f"going on: {len(journal.rows):,} of {cells:,} cells are in {journal.path}", err=True)
    return journal


def _asked(
    scenario: str | None,
    preset: str | None,
    grids: Sequence[str],
    sets: Sequence[str],
    objectives: Sequence[str],
    flags: dict[str, object],
) -> tuple[Job, Grid, tuple[Objective, ...]]:
    """The job, the grid and the objectives of a command line. Raises InputError with the problems of all flags."""
    from fleetsim.errors import InputError, Problem
    from fleetsim.job.fields import scenario_or_preset
    from fleetsim.job.job import job_from_flags
    from fleetsim.sweep.grid import MOST_VALUES, Axis, grid_of
    from fleetsim.sweep.objective import objectives_of
    from fleetsim.sweep.values import parse_sweep

    problems: list[Problem] = []
    axes: list[Axis] = []
    found: Grid | None = None
    wanted: tuple[Objective, ...] = ()
    for text in grids:
        try:
            axes.append(Axis(*parse_sweep(text, "--grid", MOST_VALUES)))
        except InputError as error:
            problems += error.problems
    swept = {axis.path for axis in axes}
    for text in sets:
        if (path := text.partition("=")[0].strip()) in swept:
            problems.append(Problem("--set", text, f"--grid {path} gives it in every cell", "keep one of the two"))
    try:
        if not problems:
            found = grid_of(axes)
    except InputError as error:
        problems += error.problems
    try:
        wanted = objectives_of(objectives)
    except InputError as error:
        problems += error.problems
    try:
        start = scenario_or_preset(scenario, preset)
        if start is None:
            remedy = "give a file or --preset NAME (fleetsim scenario ls)"
            raise InputError([Problem("SCENARIO", None, "nothing to sweep", remedy)])
        job = job_from_flags(start, sets, flags)
    except InputError as error:
        raise InputError([*problems, *error.problems]) from None
    if problems or found is None:
        raise InputError(problems)
    return job, found, wanted


def _place(
    out: str | None, workers: int | None, ray: str | None, restart: bool
) -> AbstractContextManager[Output | None]:
    """Where the table goes. Raises InputError with what is wrong about it, and about where the work is to be done."""
    from fleetsim.cli.sweep_files import Output
    from fleetsim.errors import InputError, Problem

    problems: list[Problem] = []
    if workers is not None and not 1 <= workers <= 1024:
        problems.append(Problem("--workers", workers, "must be between 1 and 1,024", "for example --workers 4"))
    if workers is not None and ray is not None:
        problems.append(Problem("--workers", workers, "a cluster has its own", "drop --workers or --ray"))
    if restart and out is None:
        problems.append(Problem("--restart", True, "there is nothing to forget without --out", "add --out FILE"))
    place = None
    try:
        place = None if out is None else Output(out)
    except InputError as error:
        problems += error.problems
    try:
        if ray is not None:
            from fleetsim.sweep.cluster import check_ray

            check_ray(ray)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    return nullcontext() if place is None else place


def _call(
    scenario: str | None, preset: str | None, sets: Sequence[str], profile: str | None, seed: int | None
) -> list[str]:
    """The words that name the same job in another command."""
    words = [scenario] if scenario is not None else ["--preset", str(preset)]
    words += [word for text in sets for word in ("--set", text)]
    words += [] if profile is None else ["--profile", profile]
    return [*words, *([] if seed is None else ["--seed", str(seed)])]
