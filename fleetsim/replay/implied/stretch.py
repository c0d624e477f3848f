"""A stretch of a window: its scrapes, its steady intervals, and the level of its iteration times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Iteration = Callable[[Floats, Floats], Floats]
# Where a gauge that was read so often shows so much fewer running than the requests' seconds in the engine, they are
# not those in which requests ran: the rest of them waited, uncounted.
_MANY_SCRAPES, _WAITED = 200, 1.25
# Finished requests below which their seconds and tokens are no level.
_FEWEST_REQUESTS = 30


@dataclass(frozen=True, slots=True)
class SteadyIntervals:
    """Steady intervals, arrays of equal length n. time_s: middle, unix. dt_s: length x pace. running: mean of the ends.
    generated, prefilled: tokens. kv_tokens: K, NaN where unknown. doubt: relative, in the number of iterations."""

    time_s: Floats
    dt_s: Floats
    running: Floats
    generated: Floats
    prefilled: Floats
    kv_tokens: Floats
    doubt: Floats

    def __len__(self) -> int:
        return len(self.time_s)

    def some(self, mask: Bools) -> SteadyIntervals:
        """The selected rows."""
        return SteadyIntervals(*(getattr(self, name)[mask] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class MeanLoad:
    """Mean load as tokens see it."""

    running: float
    kv_tokens: float


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """seconds: of an iteration, the mean over tokens. running, kv_tokens: at the scrapes it belongs to, (n,) each.
    prefill_per_iteration: prompt tokens computed per iteration. counted: from counted seconds, else a sampled gauge."""

    seconds: float
    running: Floats
    kv_tokens: Floats
    prefill_per_iteration: float
    counted: bool

    def mean(self, iteration: Iteration) -> float:
        """Mean iteration over tokens, if iterations take `iteration(running, kv_tokens)`."""
        each = iteration(self.running, self.kv_tokens)
        return float(self.running.sum() / (self.running / each).sum())

    def load(self, iteration: Iteration) -> MeanLoad:
        """The mean load over tokens."""
        weights = self.running / iteration(self.running, self.kv_tokens)
        kv = np.nan_to_num(self.kv_tokens)
        return MeanLoad(float(np.average(self.running, weights=weights)), float(np.average(kv, weights=weights)))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a window.

    times: (T,) of the scrapes. running, kv_tokens: (I, T), NaN in pauses. generated, prefilled: (I, T - 1) growth;
    unseen: request-seconds in pauses that no scrape showed. rows: steady intervals. pace: (I,). request_s,
    request_tokens, requests: (I, H - 1) growth of seconds in the engine, output tokens and number of the requests that
    finished, with their times (H,); None where they are not exported. preempting: intervals that are no rows because
    requests were preempted in them.
    """

    times: Floats
    running: Floats
    kv_tokens: Floats
    generated: Floats
    prefilled: Floats
    unseen: Floats
    rows: SteadyIntervals
    pace: Floats
    request_times: Floats | None
    request_s: Floats | None
    request_tokens: Floats | None
    requests: Floats | None
    preempting: int = 0

    def part(self, start_s: float, end_s: float) -> Stretch:
        """The stretch from start to end."""
        scrapes = (self.times >= start_s) & (self.times < end_s)
        spans = (self.times[:-1] >= start_s) & (self.times[1:] <= end_s)
        rows = self.rows.some((self.rows.time_s >= start_s) & (self.rows.time_s < end_s))
        inside = None
        if self.request_times is not None:
            inside = (self.request_times[:-1] >= start_s - 1.0) & (self.request_times[1:] <= end_s + 1.0)
        return Stretch(
            self.times[scrapes],
            self.running[:, scrapes],
            self.kv_tokens[:, scrapes],
            self.generated[:, spans],
            self.prefilled[:, spans],
            self.unseen[:, spans],
            rows,
            self.pace,
            self.request_times,
            None if self.request_s is None else self.request_s[:, inside],
            None if self.request_tokens is None else self.request_tokens[:, inside],
            None if self.requests is None else self.requests[:, inside],
            self.preempting,
        )

    def level(self, of: Bools | None = None) -> LoadLevel | None:
        """The level of all instances or of some; None where nothing ran."""
        some = np.ones(len(self.pace), np.bool_) if of is None else of
        running, kv = self.running[some], self.kv_tokens[some]
        work = np.isfinite(running) & (running > 0)
        tokens = float(np.nansum(self.generated[some]))
        if work.sum() < 8 or tokens <= 0:
            return None
        pace = self.pace[some][:, None]
        counted = self._counted(some)
        step = float(np.median(np.diff(self.times))) if len(self.times) > 1 else 0.0
        sampled = float((np.where(work, running, 0.0) * pace).sum()) * step - float(self.unseen[some].sum())
        if counted is not None and work.sum() >= _MANY_SCRAPES and counted * tokens > _WAITED * sampled:
            counted = None
        seconds = counted or sampled / tokens
        if seconds <= 0:
            return None
        mean = float(np.average(running[work], weights=running[work]))
        prefilled = float(np.nansum(self.prefilled[some]))
        return LoadLevel(seconds, running[work], kv[work], prefilled * mean / tokens, counted is not None)

    def _counted(self, some: Bools) -> float | None:
        if self.request_s is None or self.request_tokens is None or self.requests is None:
            return None
        if float(np.nansum(self.requests[some])) < _FEWEST_REQUESTS:
            return None
        tokens = float(np.nansum(self.request_tokens[some]))
        seconds = float(np.nansum(self.request_s[some] * self.pace[some][:, None]))
        return seconds / tokens if tokens > 0 and seconds > 0 else None

    def errors(self, predict: Callable[[LoadLevel], float]) -> Floats | None:
        """predict(level) / seconds - 1 of each instance; None where no instance has a level."""
        found = []
        for i in range(len(self.pace)):
            level = self.level(np.arange(len(self.pace)) == i)
            if level is not None:
                found.append(predict(level) / level.seconds - 1.0)
        return np.array(found) if found else None
