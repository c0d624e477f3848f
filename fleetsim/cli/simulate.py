"""`fleetsim simulate`: one scenario as it is, step by step."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from fleetsim.cli.flags import BriefOutput
from fleetsim.cli.terminal import say
from fleetsim.errors import InputError, Problem, Problems
from fleetsim.files import new_file, unwritten, whole, write_bytes
from fleetsim.job.settings import RUN, Option
from fleetsim.records import replace
from fleetsim.simulate.ask import Simulate
from fleetsim.simulate.ask import simulate as ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetsim.export.perfetto.tracks import StepChoice
    from fleetsim.job.metrics import Gate
    from fleetsim.job.result import Watch
    from fleetsim.sim.records import Records
    from fleetsim.simulate.result import SimulateResult


# --- `fleetsim simulate --openmetrics --perfetto`: files of the first run, checked before it and written after it.

HISTORY = "Histories and traces of the first run"
LEAST_INTERVAL_S, INTERVAL_S, HOUR_S = 1.0, 15.0, 3600.0


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

    def history(self, hours: float | None) -> HistoryFile | None:
        """The history that the flags ask for, None without --openmetrics.

        Raises InputError for a file that is there already or a folder that is not, an interval or an end that is none;
        OutsideError for a folder that cannot be written to.
        """
        if self.openmetrics is None:
            for flag, value in (
                ("--scrape-interval", self.scrape_interval),
                ("--openmetrics-end", self.openmetrics_end),
            ):
                if value is not None:
                    raise InputError([Problem(flag, value, "says how a history is written", "give --openmetrics FILE")])
            return None
        every = INTERVAL_S if self.scrape_interval is None else self.scrape_interval
        if not (LEAST_INTERVAL_S <= every <= HOUR_S):
            rule = "must be 1 to 3600 seconds"
            raise InputError([Problem("--scrape-interval", every, rule, "Prometheus's own is 15")])
        place = _new_writable_file("--openmetrics", self.openmetrics)
        return HistoryFile(place, every, _end(self.openmetrics_end), None if hours is None else hours * HOUR_S)

    def trace(self) -> TraceFile | None:
        """The trace that the flags ask for, None without --perfetto. Raises errors as `history`, or for wrong steps."""
        from fleetsim.export.perfetto.tracks import parse_steps

        if self.perfetto is not None:
            steps = parse_steps(self.perfetto_steps)
            return TraceFile(_new_writable_file("--perfetto", self.perfetto), steps)
        if self.perfetto_steps is not None:
            rule = "says which steps a trace shows"
            raise InputError([Problem("--perfetto-steps", self.perfetto_steps, rule, "give --perfetto FILE")])
        return None


def _new_writable_file(flag: str, output: str) -> Path:
    import tempfile

    place = new_file(flag, output)
    try:
        with tempfile.TemporaryFile(dir=place.parent):
            return place
    except OSError as error:
        raise unwritten(output, error, flag) from None


def _end(text: str | None) -> float:
    from fleetsim.history.window import parse_time

    now_s = time.time()
    return math.floor(now_s / HOUR_S) * HOUR_S if text is None else parse_time(text, now_s, "--openmetrics-end")


class HistoryFile(Struct, frozen=True):
    """A history to be written: where, how often the run is scraped, the unix second of its end, how much of it."""

    place: Path
    every_s: float
    end_s: float
    until_s: float | None

    def write(self, run: Records) -> str:
        """Writes the file; returns what to tell about it. Raises OutsideError."""
        from fleetsim.export.openmetrics import write_openmetrics
        from fleetsim.history.window import shown

        with whole(self.place) as beside, beside.open("w", encoding="utf-8") as file:
            written = write_openmetrics(run, file, end_s=self.end_s, until_s=self.until_s)
        return (
            f"{self.place}: {written.samples:,} samples, {shown(written.start_s)} to {shown(written.end_s)}; for "
            f"Prometheus: promtool tsdb create-blocks-from openmetrics {self.place} DATA"
        )


class TraceFile(Struct, frozen=True):
    """A trace to be written: where, and which steps."""

    place: Path
    steps: StepChoice

    def write(self, run: Records) -> str:
        """Simulates the run once more, recorded, and writes its trace; returns what to tell about it.

        A file that ends in .gz is compressed. Raises InputError for steps that the run does not have, OutsideError.
        """
        from fleetsim.export.perfetto import record, trace_of

        trace = trace_of(record(run.scenario, run, self.steps), self.steps)
        data = trace.data(compressed=self.place.suffix == ".gz")
        write_bytes(self.place, data)
        return (
            f"{self.place}: {len(data) / 1e6:.1f} MB, {len(trace.events):,} events: {'; '.join(trace.left_out)}; open "
            "it at ui.perfetto.dev or chrome://tracing"
        )


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
    with if_interrupted(lambda known, missing: _so_far(known, missing, output)), progress(_LOADING) as watch:
        result = ask(asked, watch)
        told = places.write(result.runs, watch)
    show_result(result, output.form, output.explain)
    if places.page is not None:
        write_page(places.page, result.page())
    for line in told:
        say(line, err=True)
    stop_if_unmeasured(result.profile, output.strict)
    stop_at(places.gate.tripped(result.numbers()))


_LOADING = "loading the simulator"


class SimulatePlaces(Struct, frozen=True):
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
    from fleetsim.job.metrics import parse_gate
    from fleetsim.quantities import RUN_METRICS

    first = {"--openmetrics": files.openmetrics, "--perfetto": files.perfetto}
    wrong = Problems()
    with wrong.check():
        gate = parse_gate(output.fail_if or (), RUN_METRICS)
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
    if output.form == "json":
        known = known.noting(f"interrupted: {missing}")
    else:
        say(f"Interrupted: {missing}.")
    show_result(known, output.form, output.explain)
