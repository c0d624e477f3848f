"""`fleetsim simulate`: one scenario as it is, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from fleetsim.cli.flags import Output
from fleetsim.cli.terminal import say
from fleetsim.errors import Problem, Problems
from fleetsim.files import new_file, unwritten
from fleetsim.job.settings import RUN, Option
from fleetsim.records import replace
from fleetsim.simulate.ask import HOUR_S, Simulate
from fleetsim.simulate.ask import simulate as ask

if TYPE_CHECKING:
    from fleetsim.export.perfetto.tracks import StepChoice
    from fleetsim.job.metrics import Gate
    from fleetsim.job.result import Watch
    from fleetsim.simulate.ask import SimulateResult


# --- `fleetsim simulate --openmetrics --perfetto`: files of the first run, checked before it and written after it.

HISTORY = "Histories and traces of the first run"
INTERVAL_S = 15.0


@dataclass(frozen=True, kw_only=True)
class FirstRun:
    """Files of the first run, and what they hold."""

    openmetrics: Annotated[
        str | None,
        Option("Write the first run there, as vLLM and a trainer export it.", HISTORY, metavar="FILE", after="html"),
    ] = None
    scrape_interval: Annotated[
        float | None, Option("Of that history; 15 if not given.", HISTORY, metavar="SECONDS", after="openmetrics")
    ] = None
    openmetrics_end: Annotated[
        str | None,
        Option(
            "Its end: now, -6h, ISO or unix; else this hour's begin.", HISTORY, metavar="TIME", after="scrape_interval"
        ),
    ] = None
    perfetto: Annotated[
        str | None,
        Option(
            "Write the first run there as a trace, for ui.perfetto.dev.",
            HISTORY,
            metavar="FILE",
            after="openmetrics_end",
        ),
    ] = None
    perfetto_steps: Annotated[
        str | None,
        Option(
            "Of that trace: 20 (after warm-up) if not given, 0:9, or all.", HISTORY, metavar="STEPS", after="perfetto"
        ),
    ] = None

    def misplaced(self) -> Iterator[Problem]:
        """What is said of a file that nobody asked for."""
        history, trace = "says how a history is written", "says which steps a trace shows"
        for flag, value, rule, file, name in (
            ("--scrape-interval", self.scrape_interval, history, self.openmetrics, "--openmetrics"),
            ("--openmetrics-end", self.openmetrics_end, history, self.openmetrics, "--openmetrics"),
            ("--perfetto-steps", self.perfetto_steps, trace, self.perfetto, "--perfetto"),
        ):
            if value is not None and file is None:
                yield Problem(flag, value, rule, f"give {name} FILE")

    @property
    def every_s(self) -> float | None:
        """Seconds between two scrapes of the history, None without one."""
        every = INTERVAL_S if self.scrape_interval is None else self.scrape_interval
        return None if self.openmetrics is None else every


def _new_writable_file(flag: str, output: str | None) -> Path | None:
    """A file that a flag names, if it does. Raises InputError, OutsideError for a folder that cannot be written to."""
    import tempfile

    if output is None:
        return None
    place = new_file(flag, output)
    try:
        with tempfile.TemporaryFile(dir=place.parent):
            return place
    except OSError as error:
        raise unwritten(output, error, flag) from None


@dataclass(frozen=True, kw_only=True)
class SimulateOutput(Output):
    """What `simulate` does with its answer."""

    parquet: Annotated[
        str | None, Option("Write the records there, one file a table.", RUN, metavar="DIR", after="json_")
    ] = None


def simulate(asked: Simulate, output: SimulateOutput, files: FirstRun) -> None:
    """Simulate a scenario: where each second of an optimizer step goes.

    Examples:
    fleetsim simulate job.yaml
    fleetsim simulate --preset verl-fully-async --set admission.staleness_threshold=0.5
    fleetsim simulate --batch 512 --len 1536 --instances 7
    fleetsim simulate job.yaml --instances 13 --max-staleness 2 --steps 100 --replications 10
    fleetsim simulate job.yaml --json --fail-if "trainer_idle_fraction>0.1"
    fleetsim simulate job.yaml --html run.html
    fleetsim simulate job.yaml --parquet records/
    fleetsim simulate job.yaml --hours 6 --openmetrics history.om
    fleetsim simulate job.yaml --perfetto trace.json.gz

    Without a scenario the job is that of the flags; what they leave out is assumed, as in parentheses below.

    `fleetsim scenario ls` lists the presets and the shipped scenarios.
    """
    from fleetsim.cli.output import if_interrupted, show_result, stop_at, stop_if_unmeasured, write_page
    from fleetsim.cli.progress import progress

    asked, places = _checked(asked, output, files)

    def so_far(known: SimulateResult, missing: str) -> None:
        """Shows the runs that were finished, or as much as there is of the first ones, after Ctrl-C."""
        missing += "" if known.steady else "; warm-up only, no steady value yet"
        if output.form != "json":
            say(f"Interrupted: {missing}.")
        noted = known.noting(f"interrupted: {missing}") if output.form == "json" else known
        show_result(noted, output.form, output.explain)

    with if_interrupted(so_far), progress("loading the simulator") as watch:
        result = ask(asked, watch)
        told = places.write(result, watch)
    show_result(result, output.form, output.explain)
    if places.page is not None:
        write_page(places.page, result.page())
    for line in told:
        say(line, err=True)
    stop_if_unmeasured(result.profile, output.strict)
    stop_at(places.gate.tripped(result.numbers()))


class SimulatePlaces(Struct, frozen=True):
    """What is done with the answer, checked: a condition, and files, each None where it is not asked for. end_s: unix
    seconds of the history's end, None = this hour's begin; until_s: of the run, up to which it is written. steps: of
    the trace."""

    gate: Gate
    page: Path | None
    folder: Path | None
    history: Path | None
    end_s: float | None
    until_s: float | None
    trace: Path | None
    steps: StepChoice | None

    def write(self, result: SimulateResult, watch: Watch) -> list[str]:
        """Writes the records, the history and the trace; returns what to tell of them. Raises OutsideError."""
        told = []
        if self.folder is not None:
            result.to_parquet(self.folder)
        if self.history is not None:
            from fleetsim.export.openmetrics import write_history

            told.append(f"{self.history}: {write_history(result.runs[0], self.history, self.end_s, self.until_s)}")
        if self.trace is not None and self.steps is not None:
            from fleetsim.export.perfetto import write_trace

            watch("simulating the trace")
            told.append(f"{self.trace}: {write_trace(result.runs[0], self.trace, self.steps)}")
        return told


def _checked(asked: Simulate, output: SimulateOutput, files: FirstRun) -> tuple[Simulate, SimulatePlaces]:
    """The question with its job, and where the answer goes. Raises InputError with all that is wrong."""
    import time

    from fleetsim.cli.output import new_page
    from fleetsim.export.parquet import check_folder
    from fleetsim.export.perfetto.tracks import parse_steps
    from fleetsim.files import apart
    from fleetsim.history.window import parse_time
    from fleetsim.job.metrics import parse_gate
    from fleetsim.quantities import RUN_METRICS

    outputs = {"--openmetrics": files.openmetrics, "--perfetto": files.perfetto, "--parquet": output.parquet}
    asked, end = replace(asked, scrape_interval_s=files.every_s), files.openmetrics_end
    wrong = Problems()
    gate = wrong.made(parse_gate, output.fail_if or (), RUN_METRICS)
    with wrong.check():
        asked = asked.ready()
    wrong.made(apart, {"--html": output.html, **outputs})
    wrong += files.misplaced()
    wrong.made(asked.check)
    history = wrong.made(_new_writable_file, "--openmetrics", files.openmetrics)
    end_s = wrong.made(lambda: None if end is None else parse_time(end, time.time(), "--openmetrics-end"))
    steps = wrong.made(lambda: None if files.perfetto is None else parse_steps(files.perfetto_steps))
    trace = wrong.made(_new_writable_file, "--perfetto", files.perfetto)
    page = wrong.made(new_page, "--html", output.html)
    folder = wrong.made(lambda: None if output.parquet is None else check_folder(output.parquet, "--parquet"))
    wrong.stop()
    until_s = None if asked.hours is None else asked.hours * HOUR_S
    places = SimulatePlaces(gate, page, folder, history, end_s, until_s, trace, steps)
    return replace(asked, activity=page is not None, check_steps=None if steps is None else steps.check), places
