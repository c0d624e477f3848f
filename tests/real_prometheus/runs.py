"""Simulated fleets behind a real Prometheus: what was run, as the simulator knows it, and the server that has it."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate, steps_for
from tests.real_prometheus.server import Server

SCRAPE_S = 15.0


@dataclass(frozen=True, slots=True)
class Backfilled:
    """A run whose scrapes lie in a Prometheus. start_unix: unix seconds of the run's second 0; hours: written."""

    records: Records
    server: Server
    start_unix: float
    span_s: float

    @property
    def end_unix(self) -> float:
        return self.start_unix + self.span_s

    def tok_s(self) -> NDArray[np.float64]:
        """(I,) output tokens per second of each instance over the window, as it was."""
        rows = self.records.scrapes[self.records.scrapes["time_s"] <= self.span_s + 1e-6]
        count = int(rows["instance"].max()) + 1
        return np.array([_grown(rows[rows["instance"] == i]["generated"]) for i in range(count)]) / self.span_s

    def pauses(self) -> NDArray[np.float64]:
        """(P, 2) unix seconds in which weight sync held the fleet, those that lie well inside the window."""
        syncs = self.records.syncs
        inside = (syncs["pause_start_s"] > 2 * SCRAPE_S) & (syncs["end_s"] < self.span_s - 2 * SCRAPE_S)
        return self.start_unix + np.stack([syncs["pause_start_s"][inside], syncs["end_s"][inside]], axis=1)

    def lengths(self) -> NDArray[np.float64]:
        """Output tokens of the samples that finished in the window."""
        s = self.records.samples
        done = (s["finish_s"] > 0) & (s["finish_s"] <= self.span_s) & (s["made"] >= s["target"])
        return np.asarray(s["made"][done], dtype=np.float64)


def _grown(counter: NDArray[np.int64]) -> float:
    """Growth of a running total whose process may have begun again."""
    steps = np.diff(counter)
    return float(np.where(steps < 0, counter[1:], steps).sum())


def backfilled(
    home: Path, scenario: str, overrides: tuple[str, ...], hours: float, end_in_s: float = -3 * 3600.0
) -> Backfilled:
    """Simulates, writes the history, starts a Prometheus with it. end_in_s: when it ends, seconds from now."""
    base = load_scenario(scenario, list(overrides))
    job = with_changes(base, {"run.steps": steps_for(base, hours * 3600.0)})
    records = simulate(job, scrape_every_s=SCRAPE_S)
    end = time.time() // SCRAPE_S * SCRAPE_S + end_in_s
    text = io.StringIO()
    written = write_openmetrics(records, text, end_s=end, until_s=hours * 3600.0)
    server = Server(home)
    server.backfill(text.getvalue())
    server.start()
    return Backfilled(records, server, written.start_s, written.end_s - written.start_s)
