"""`History`: all that was read of a window, on one grid of times, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class InstanceId:
    """One engine: a scrape target and its data-parallel rank. A pod that comes back under another name is another."""

    name: str  # label `pod` where there is one, else `instance`
    engine: str = "0"
    model: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name if self.engine == "0" else f"{self.name}/{self.engine}"


class RawSeries(msgspec.Struct, frozen=True):
    """One series as it stands in a file. stamps: (n,) unix seconds, in any order; values: (n,)."""

    name: str
    labels: Mapping[str, str]
    stamps: Floats
    values: Floats


class SeriesData(msgspec.Struct, frozen=True):
    """One series of a Prometheus's answer. labels: with __name__ where there is one. times, values: (n,); of a range
    query all times of the grid, NaN where there was no sample."""

    labels: dict[str, str]
    times: Floats
    values: Floats


class Buckets(msgspec.Struct, frozen=True):
    """One histogram over time: running totals, as exposed.

    le: (E,) upper bounds, increasing, the last one inf. times: (H,) unix seconds (coarser than the history's).
    counts: (I, H, E) cumulative over le and over time. sums: (I, H). NaN where nothing was read.
    """

    le: Floats
    times: Floats
    counts: Floats
    sums: Floats


class StepLog(msgspec.Struct, frozen=True):
    """One row per optimizer step, from a run log: arrays of equal length n, NaN where the log says nothing.

    columns: those of `step_logs/frameworks.txt` that the log has. framework: which mapping read it. metrics: column
    -> the log's own metrics that it was made of; what follows from other columns has none.
    """

    framework: str
    columns: Mapping[str, Floats]
    metrics: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def where(self, kept: NDArray[np.bool_] | slice) -> StepLog:
        """The rows of a mask (n,), or of a slice."""
        columns = {name: values[kept] for name, values in self.columns.items()}
        return msgspec.structs.replace(self, columns=columns)

    def mean(self, column: str) -> float | None:
        """Mean of a column over the rows that say it; None where none does."""
        values = self.columns.get(column)
        return None if values is None or not np.isfinite(values).any() else float(np.nanmean(values))

    @property
    def ends(self) -> Floats | None:
        """When each step ended: by the log's clock, else by the sum of their seconds; None where it has neither."""
        if "time_s" in self.columns or "step_s" not in self.columns:
            return self.columns.get("time_s")
        return np.cumsum(np.nan_to_num(self.columns["step_s"]))


@dataclass(frozen=True, slots=True)
class Note:
    """Something about the data that the reader of a result must know.

    kind: gap | reset | partial | rename | duplicate | skew | missing | truncated | other. text: one sentence with
    numbers. share: of the window's values concerned, 0 to 1, where that can be said.
    """

    kind: str
    text: str
    share: float | None = None


class History(msgspec.Struct, frozen=True):
    """A window of history.

    times: (T,) unix seconds, evenly spaced by step_s. instances: I of them, sorted by name and engine. values: signal
    name -> (I, T), counters as exposed (with their resets), NaN where there was no sample. fleet: signal name -> (T,),
    for signals of scope fleet. histograms: signal name -> Buckets. configs: per instance, the labels of its
    cache_config. steps: the run log, where that is the source. notes: gaps, resets, renames, partial data. source: a
    few words, without secrets.

    A signal that no metric carried is absent, never zero. A history of a run log alone has I = 0.
    """

    times: Floats
    step_s: float
    instances: tuple[InstanceId, ...]
    values: Mapping[str, Floats]
    fleet: Mapping[str, Floats]
    histograms: Mapping[str, Buckets]
    configs: tuple[Mapping[str, str], ...]
    steps: StepLog | None
    notes: tuple[Note, ...]
    source: str

    @property
    def start_s(self) -> float:
        """Unix seconds of the first time on the grid."""
        return float(self.times[0])

    @property
    def end_s(self) -> float:
        """Unix seconds of the last time on the grid."""
        return float(self.times[-1])
