"""`fleetsim simulate`: one scenario as it is, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from fleetsim.cli.answer_options import BriefOutput
from fleetsim.cli.first_run import FirstRun, HistoryFile, TraceFile
from fleetsim.cli.lines import say
from fleetsim.dataclass import dataclass
from fleetsim.errors import Problems
from fleetsim.job.question import Option
from fleetsim.job.settings import RUN
from fleetsim.simulate.ask import Simulate
from fleetsim.simulate.ask import simulate as ask

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fleetsim.job.gate import Gate
    from fleetsim.job.watch import Watch
    from fleetsim.sim.records import Records
    from fleetsim.simulate.result import SimulateResult


@dataclass(frozen=True, kw_only=True)
class SimulateOutput(BriefOutput):
    """What `simulate` does with its answer."""

    fail_if: Annotated[
        list[str] | None,
        Option('Exit 10 if true: "trainer_idle_fraction>0.1". Repeatable.', RUN, metavar="CONDITION"),
    ] = None
    parquet: Annotated[
        str | None, Option("Write the records there, one file a table.", RUN, metavar="DIR", after="json_")
    ] = None


def simulate(asked: Simulate, output: SimulateOutput, files: FirstRun) -> None:
    """Simulate a scenario: where each second of an optimizer step goes.

    Examples:

    [bold]fleetsim simulate job.yaml[/bold]

    [bold]fleetsim simulate --preset verl-fully-async --set admission.staleness_threshold=0.5[/bold]

    [bold]fleetsim simulate --batch 512 --len 1536 --instances 7[/bold]

    [bold]fleetsim simulate job.yaml --instances 13 --max-staleness 2 --steps 100 --replications 10[/bold]

    [bold]fleetsim simulate job.yaml --json --fail-if "trainer_idle_fraction>0.1"[/bold]

    [bold]fleetsim simulate job.yaml --html run.html[/bold]

    [bold]fleetsim simulate job.yaml --parquet records/[/bold]

    [bold]fleetsim simulate job.yaml --hours 6 --openmetrics history.om[/bold]

    [bold]fleetsim simulate job.yaml --perfetto trace.json.gz[/bold]

    Without a scenario the job is that of the flags; what they leave out is assumed, as in parentheses below.

    `fleetsim scenario ls` lists the presets and the shipped scenarios.
    """
    from fleetsim.cli.output import finish, if_interrupted, show_result, write_page
    from fleetsim.cli.progress import progress

    asked, places = _checked(asked, output, files)
    with if_interrupted(lambda known, missing: _so_far(known, missing, output)), progress(_LOADING) as watch:
        result = ask(asked, watch)
        told = places.write(result.runs, watch)
    show_result(result, output.json_, output.explain)
    if places.page is not None:
        write_page(places.page, result.page())
    for line in told:
        say(line, err=True)
    finish(result, places.gate, output.strict)


_LOADING = "loading the simulator"


@dataclass(frozen=True, slots=True)
class SimulatePlaces:
    """What is done with the answer, checked: a condition, and files, each None where it is not asked for."""

    gate: Gate
    history: HistoryFile | None
    trace: TraceFile | None
    page: Path | None
    folder: Path | None

    def write(self, runs: Sequence[Records], watch: Watch) -> list[str]:
        """Writes the records, the history and the trace; returns what to tell of them. Raises OutsideError."""
        from fleetsim.export.parquet import write_parquet

        told = []
        if self.folder is not None:
            write_parquet(self.folder, runs)
        if self.history is not None:
            told.append(self.history.write(runs[0]))
        if self.trace is not None:
            watch("simulating the trace")
            told.append(self.trace.write(runs[0]))
        return told


def _checked(asked: Simulate, output: SimulateOutput, files: FirstRun) -> tuple[Simulate, SimulatePlaces]:
    """The question with its job, and where the answer goes. Raises InputError with all that is wrong."""
    from fleetsim.cli.output import new_page
    from fleetsim.export.parquet import check_folder
    from fleetsim.files import apart
    from fleetsim.job.gate import METRICS, parse_gate

    first = {"--openmetrics": files.openmetrics, "--perfetto": files.perfetto}
    wrong = Problems()
    with wrong.check():
        gate = parse_gate(output.fail_if or (), METRICS)
    with wrong.check():
        asked = asked.ready()
    with wrong.check():
        apart({"--html": output.html, **first, "--parquet": output.parquet})
    with wrong.check():
        asked.check()
        history = files.history(asked.hours)
    with wrong.check():
        trace = files.trace()
    with wrong.check():
        page = new_page("--html", output.html)
    with wrong.check():
        folder = None if output.parquet is None else check_folder(output.parquet, "--parquet")
    wrong.stop()
    places = SimulatePlaces(gate, history, trace, page, folder)
    every_s = None if history is None else history.every_s
    check_steps = None if trace is None else trace.steps.check
    return replace(asked, scrape_interval_s=every_s, activity=page is not None, check_steps=check_steps), places


def _so_far(known: SimulateResult, missing: str, output: SimulateOutput) -> None:
    """Shows the runs that were finished, or as much as there is of the first ones, after Ctrl-C."""
    from fleetsim.cli.output import show_result

    if not known.steady:
        missing += "; warm-up only, no steady value yet"
    if output.json_:
        known = known.noting(f"interrupted: {missing}")
    else:
        say(f"Interrupted: {missing}.")
    show_result(known, output.json_, output.explain)
