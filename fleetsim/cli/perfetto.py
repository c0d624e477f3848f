"""`--perfetto`: the file and its steps, checked before the run, and written after it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.files import new_file, reason, write_bytes

if TYPE_CHECKING:
    from fleetsim.engine.limits import EngineLimits
    from fleetsim.engine.step_time import StepTime
    from fleetsim.export.perfetto import Steps
    from fleetsim.sim.records import Records


@dataclass(frozen=True, slots=True)
class TraceFile:
    """What is to be written: where, and which steps."""

    place: Path
    steps: Steps


def check_trace(output: str | None, steps: str | None) -> TraceFile | None:
    """The trace that the flags ask for, None without --perfetto.

    Raises InputError for a file that is there already or a folder that is not, or steps that are none; OutsideError for
    a folder that cannot be written to.
    """
    from fleetsim.export.perfetto import parse_steps

    if output is None:
        if steps is not None:
            rule = "says which steps a trace shows"
            raise InputError([Problem("--perfetto-steps", steps, rule, "give --perfetto FILE")])
        return None
    asked = parse_steps(steps)
    place = new_file("--perfetto", output)
    try:
        with tempfile.TemporaryFile(dir=place.parent):
            return TraceFile(place, asked)
    except OSError as error:
        raise OutsideError(f"--perfetto {output!r}: cannot be written: {reason(error)}") from None


def write_trace(file: TraceFile, run: Records, engine: tuple[StepTime, EngineLimits] | None = None) -> str:
    """Simulates the run once more, recorded, and writes its trace; returns what to tell about it.

    engine: as for `simulate`. A file that ends in .gz is compressed. Raises
    InputError for steps that the run does not have, OutsideError.
    """
    from fleetsim.export.perfetto import record, trace_of

    trace = trace_of(record(run.scenario, run, file.steps, engine), file.steps)
    data = trace.data(compressed=file.place.suffix == ".gz")
    write_bytes(file.place, data)
    size = f"{len(data) / 1e6:.1f} MB"
    shown = "; ".join(trace.left_out)
    return (
        f"{file.place}: {size}, {len(trace.events):,} events: {shown}; open it at ui.perfetto.dev or chrome://tracing"
    )
