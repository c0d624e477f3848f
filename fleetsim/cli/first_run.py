"""`fleetsim simulate --openmetrics --perfetto`: files of the first run, checked before it and written after it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem
from fleetsim.files import new_file, unwritten, whole, write_bytes
from fleetsim.job.question import Option

if TYPE_CHECKING:
    from fleetsim.export.perfetto.tracks import StepChoice
    from fleetsim.sim.records import Records

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


@dataclass(frozen=True, slots=True)
class HistoryFile:
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


@dataclass(frozen=True, slots=True)
class TraceFile:
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
