"""`fleetsim simulate --openmetrics`: the file and its times, checked before the run, and written after it."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.files import new_file, reason

if TYPE_CHECKING:
    from fleetsim.sim.records import Records

LEAST_INTERVAL_S, INTERVAL_S, HOUR_S = 1.0, 15.0, 3600.0


@dataclass(frozen=True, slots=True)
class History:
    """What is to be written: where, how often the run is scraped, the unix second of its end, and how much of it."""

    place: Path
    every_s: float
    end_s: float
    until_s: float | None


def check_history(output: str | None, interval_s: float | None, end: str | None, hours: float | None) -> History | None:
    """The history that the flags ask for, None without --openmetrics.

    Raises InputError for a file that is there already or a folder that is not, an interval or an end that is none;
    OutsideError for a folder that cannot be written to.
    """
    if output is None:
        for flag, value in (("--scrape-interval", interval_s), ("--openmetrics-end", end)):
            if value is not None:
                raise InputError([Problem(flag, value, "says how a history is written", "give --openmetrics FILE")])
        return None
    every = INTERVAL_S if interval_s is None else interval_s
    if not (LEAST_INTERVAL_S <= every <= HOUR_S):
        raise InputError([Problem("--scrape-interval", every, "must be 1 to 3600 seconds", "Prometheus's own is 15")])
    place = new_file("--openmetrics", output)
    try:
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except OSError as error:
        raise OutsideError(f"--openmetrics {output!r}: cannot be written: {reason(error)}") from None
    return History(place, every, _end(end, time.time()), None if hours is None else hours * HOUR_S)


def _end(text: str | None, now_s: float) -> float:
    from fleetsim.history.window import parse_time

    return math.floor(now_s / HOUR_S) * HOUR_S if text is None else parse_time(text, now_s, "--openmetrics-end")


def write_history(history: History, run: Records) -> str:
    """Writes the file, beside its place first; returns what to tell about it. Raises OutsideError."""
    from fleetsim.export.openmetrics import write_openmetrics
    from fleetsim.history.window import shown

    place = history.place
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            written = write_openmetrics(run, file, end_s=history.end_s, until_s=history.until_s)
        beside.replace(place)
    except OSError as error:
        raise OutsideError(f"{str(place)!r}: cannot be written: {reason(error)}") from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return (
        f"{place}: {written.samples:,} samples, {shown(written.start_s)} to {shown(written.end_s)}; for Prometheus: "
        f"promtool tsdb create-blocks-from openmetrics {place} DATA"
    )
