"""The rules of `fleetsim alerts`, evaluated by a real Prometheus over simulated faults and a simulated healthy week.

History cannot be lived through again, so each recording rule is queried at every evaluation and what it says backfilled
as its series; then each alert's expression is queried in the same way, and fires when it has held for its `for:`.
`test_rules_live.py` lets Prometheus do all of that itself.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.alerts import rehearsal
from fleetsim.alerts.alert_rule import Standing
from fleetsim.alerts.faults import BY_FAULT
from fleetsim.alerts.rules import MISSING, Writing, rules_document
from fleetsim.alerts.signals import MetricNames
from fleetsim.alerts.thresholds import choose
from fleetsim.config.load import load_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from tests.once import rehearse_once
from tests.real_prometheus.server import Server

SCRAPE_S = EVERY_S = 60.0
WEEK_S = 168 * 3600.0
# Runs whose draws no threshold has seen.
NEW = 1000
JOB = (
    "fleet.instances=3",
    "trainer.batch_samples=32",
    "trainer.fixed_s=100",
    "sync.pause_s=10",
    "sync.trainer_block_s=10",
    "admission.law=version_window",
    "admission.max_staleness=1",
)
# Fault -> the alert that is to find it.
FAULTS = {
    "instance_lost": "RolloutInstanceLost",
    "trainer_slow": "RolloutTrainerSlow",
    "sync_slow": "RolloutSyncOverrun",
    "lengths_drift": "RolloutLengthsDrift",
}
BEFORE_S, SETTLED_S = 4 * 3600.0, 2.5 * 3600.0


@dataclass(frozen=True, slots=True)
class Rules:
    """The plan's rules, as made and as written."""

    standing: Standing
    document: dict[str, Any]

    @property
    def alerts(self) -> list[dict[str, Any]]:
        return [rule for rule in self.document["groups"][0]["rules"] if "alert" in rule]


@pytest.fixture(scope="module")
def rules() -> Rules:
    """Made once: a healthy week, and every fault twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1, 3, 6))  # shorter windows than a user gets, and minutes saved
        made = rehearse_once(job(), replications=2, scrape_s=SCRAPE_S, interval_s=EVERY_S)
        standing = choose(made)
    return Rules(standing, rules_document(standing, Writing(MetricNames(), "test")))


def job(**changes: Any) -> Scenario:
    scenario = load_scenario("scenarios/async-one-step.yaml", list(JOB))
    return with_changes(scenario, changes) if changes else scenario


def evaluated(
    home: Path, rules: Rules, run: Scenario, span_s: float | None = None
) -> tuple[dict[str, list[float]], Records]:
    """When each alert fires over a simulated run: alert -> seconds of the run. And the run's records."""
    records = simulate(run, replication=NEW, scrape_every_s=SCRAPE_S)
    end = time.time() // 60 * 60.0 - 3 * 3600.0
    text = io.StringIO()
    written = write_openmetrics(records, text, end_s=end, until_s=span_s)
    server, start = Server(home), written.start_s
    server.backfill(without_buckets(text.getvalue()))
    recorded = [rule for rule in rules.document["groups"][0]["rules"] if "record" in rule]
    # Conditions read the signals that were recorded before them.
    for conditions in (False, True):
        wanted = [rule for rule in recorded if rule["record"].endswith(":active") == conditions]
        if wanted:
            with server:
                lines = [line for rule in wanted for line in _recorded(server, rule, start, end)]
            assert len(lines) > 0.9 * len(wanted) * (end - start) / EVERY_S  # else nothing could ever fire
            server.backfill("\n".join([*lines, "# EOF", ""]))
    with server:
        return {rule["alert"]: _firing(server, rule, start, end) for rule in rules.alerts}, records


def without_buckets(text: str) -> str:
    """A history without what no rule reads, and is most of it."""
    return "".join(line for line in text.splitlines(keepends=True) if "_bucket{" not in line)


def _recorded(server: Server, rule: dict[str, Any], start: float, end: float) -> Iterator[str]:
    """What a recording rule would have recorded, as OpenMetrics."""
    labels = ",".join(f'{name}="{value}"' for name, value in rule["labels"].items())
    for series in _values(server, rule["expr"], start, end):
        for t, value in series["values"]:
            yield f"{rule['record']}{{{labels}}} {value} {t}"


def _values(server: Server, expr: str, start: float, end: float) -> Iterator[Any]:
    """The series of an expression at every evaluation."""
    at = np.arange(start, end + 1, EVERY_S)
    for first in range(0, len(at), 10_000):
        part = at[first : first + 10_000]
        yield from server.ask("query_range", query=expr, start=part[0], end=part[-1], step=EVERY_S)["result"]


def _firing(server: Server, rule: dict[str, Any], start: float, end: float) -> list[float]:
    """Seconds since `start` of the evaluations at which the alert fires."""
    hold = _seconds(rule["for"])
    at = np.arange(start, end + 1, EVERY_S)
    true = np.zeros(len(at), bool)
    for series in _values(server, rule["expr"], start, end):
        for t, _ in series["values"]:
            true[round((t - start) / EVERY_S)] = True
    points = math.ceil(hold / EVERY_S) + 1
    held = np.convolve(true, np.ones(points), "full")[: len(true)] >= points
    return [float(t) for t in at[held] - start]


def _seconds(text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    total, number = 0.0, ""
    for c in text:
        if c.isdigit():
            number += c
        else:
            total, number = total + float(number) * units[c], ""
    return total


def late(fired: Mapping[str, list[float]]) -> dict[str, float]:
    """Alerts that fire after the run has settled (it begins empty), and when first."""
    times = {name: [t for t in at if t > SETTLED_S] for name, at in fired.items()}
    return {name: at[0] for name, at in times.items() if at}


def test_nothing_fires_in_a_healthy_week(prometheus: None, rules: Rules, tmp_path: Path) -> None:
    steps = math.ceil(1.02 * WEEK_S / rules.standing.rehearsal.step_s)
    fired, _ = evaluated(tmp_path, rules, job(**{"run.steps": steps}), WEEK_S)
    assert MISSING in fired
    assert late(fired) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_right_alert_fires_in_time_and_no_other(prometheus: None, rules: Rules, tmp_path: Path, fault: str) -> None:
    standing = rules.standing
    first = math.ceil(BEFORE_S / standing.rehearsal.step_s)
    last = first + math.ceil(2.0 * standing.rehearsal.windows_s[-1] / standing.rehearsal.step_s)
    events = BY_FAULT[fault].events
    assert events is not None
    fired, records = evaluated(tmp_path, rules, job(**{"run.steps": last, "run.events": events(job(), first, last)}))
    onset = float(records.steps["start_s"][first])
    rule = next(r for r in standing.rules if r.signal.alert == FAULTS[fault])
    assert rule.delay_p95_s is not None
    mine = fired.pop(rule.signal.alert)
    assert min(mine) >= onset
    # The run's second 0 falls anywhere between two scrapes and evaluations of ours.
    assert min(mine) - onset <= rule.delay_p95_s + SCRAPE_S + EVERY_S
    assert late(fired) == {}
