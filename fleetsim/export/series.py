"""Series of exported metrics, and the processes whose counters they show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fleetsim.dataclass import dataclass
from fleetsim.sim.records import Records

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[np.float64 | np.int64]


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one target that belong together: a counter, a gauge, or all lines of one histogram.

    target: index of the instance, None = the trainer. labels: beside the target's. lines: what stands behind the
    family's name in each sample's name, and its own labels. rows: scrape indices. values: (rows, lines).
    """

    target: int | None
    labels: Mapping[str, str]
    lines: tuple[tuple[str, Mapping[str, str]], ...]
    rows: Ints
    values: Numbers


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: name without `_total`, type, unit ("" = none said), help, and its series."""

    name: str
    kind: str
    unit: str
    help: str
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One process of an instance: it began at born_s, the next one at end_s; rows: scrapes that found it up."""

    instance: int
    born_s: float
    end_s: float
    rows: Ints


def scrape_times(records: Records) -> Floats:
    """Seconds of the run at which it was scraped: (T,). Raises ValueError when it was not."""
    if len(records.queue_scrapes) == 0:
        raise ValueError("the run was not scraped: simulate(..., scrape_every_s=15.0)")
    return records.queue_scrapes["time_s"].astype(np.float64)


def incarnations(records: Records) -> list[Incarnation]:
    """All processes of all instances, in the order of instance and time."""
    times = scrape_times(records)
    table = records.scrapes.reshape(len(times), -1)
    out = []
    for i in range(table.shape[1]):
        column = table[:, i]
        numbers, first = np.unique(column["incarnation"], return_index=True)
        born = [*column["born_s"][first].tolist(), np.inf]
        for k, number in enumerate(numbers):
            rows = np.flatnonzero((column["incarnation"] == number) & column["up"])
            if len(rows):
                out.append(Incarnation(i, born[k] if number else -1.0, born[k + 1], rows))
    return out


def in_order(series: list[Series]) -> tuple[Series, ...]:
    """All processes of an instance one after the other, label by label: the format wants a series in one piece."""
    return tuple(sorted(series, key=lambda s: (s.target or 0, *s.labels.values())))
