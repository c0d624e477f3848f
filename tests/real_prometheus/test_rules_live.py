"""The rules at work: a Prometheus that scrapes two live fleets and evaluates their alerts, a minute of theirs a second.

All signals are ratios of rates, or gauges, so that a minute that passes in a second changes nothing but durations.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleetsim.report.openmetrics import Pages
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.standing import rehearsal
from fleetsim.standing.alert_rule import Standing
from fleetsim.standing.faults import BY_FAULT
from fleetsim.standing.metric_names import MetricNames
from fleetsim.standing.rules import Writing, rules_document
from fleetsim.standing.thresholds import choose
from tests.real_prometheus.exporter import Exporter
from tests.real_prometheus.server import Server
from tests.real_prometheus.test_rules_fire import EVERY_S, NEW, SCRAPE_S, SETTLED_S, job

FASTER = 60.0  # simulated seconds a second: one scrape
BEFORE_S, AFTER_S = 26.0, 16.0  # seconds of ours with and without the instance
FULL_S = 14.0  # after which all windows are full
LATE_S = 4.0  # scrapes and evaluations of a busy machine may be late by so much


@pytest.fixture(scope="module")
def standing() -> Standing:
    """The plan's alerts, all windows as short as they get."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1,))
        return choose(rehearsal.rehearse(job(), hours=48.0, replications=2, scrape_s=SCRAPE_S, interval_s=EVERY_S))


def faster(document: dict[str, Any]) -> dict[str, Any]:
    """A rule file with all its durations shortened."""
    text = re.sub(r"\[([0-9dhms]+)\]", lambda found: f"[{shorter(found[1])}]", json.dumps(document))
    quicker: dict[str, Any] = json.loads(text)
    for group in quicker["groups"]:
        group["interval"] = shorter(group["interval"])
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = shorter(rule["for"])
    return quicker


def shorter(text: str) -> str:
    units = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
    seconds = sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)([dhms])", text))
    return f"{round(1000 * seconds / FASTER)}ms"


@contextmanager
def exported(records: Records, first: int, clock: Callable[[], float]) -> Iterator[list[str]]:
    """Live targets: the instances, then the trainer. first: the scrape that they answer at second 0 of the clock."""
    pages = Pages(records)
    instances = records.scenario.fleet.instances
    last = min(pages.scrapes, first + math.ceil(2 * (BEFORE_S + AFTER_S)))
    with ExitStack() as stack:

        def serve(target: int | None) -> str:
            known = [pages.page(target, k) for k in range(first, last)]
            exporter = Exporter(lambda: known[min(max(0, int(clock() * FASTER / SCRAPE_S)), len(known) - 1)])
            return stack.enter_context(exporter).target

        yield [serve(target) for target in (*range(instances), None)]


def test_one_lost_instance_fires_its_alert_and_nothing_fires_for_a_healthy_fleet(
    prometheus: None, standing: Standing, tmp_path: Path
) -> None:
    step_s = standing.rehearsal.step_s
    first = math.ceil((SETTLED_S + BEFORE_S * FASTER) / step_s)
    last = first + math.ceil(2 * AFTER_S * FASTER / step_s)
    lost = BY_FAULT["instance_lost"].events
    assert lost is not None
    runs = {
        "healthy": simulate(job(**{"run.steps": last}), replication=NEW, scrape_every_s=SCRAPE_S),
        "lost": simulate(
            job(**{"run.steps": last, "run.events": lost(job(), first, last)}),
            replication=NEW + 1,
            scrape_every_s=SCRAPE_S,
        ),
    }
    onset_s = (float(runs["lost"].steps["start_s"][first]) - SETTLED_S) / FASTER
    begun: list[float] = []

    def clock() -> float:
        return time.time() - begun[0] if begun else 0.0

    targets: dict[str, list[str]] = {}
    files = []
    with ExitStack() as stack:
        for plan, records in runs.items():
            hosts = stack.enter_context(exported(records, round(SETTLED_S / SCRAPE_S), clock))
            targets[plan], targets[f"{plan}-trainer"] = hosts[:-1], hosts[-1:]
            names = MetricNames(selector=f'job="{plan}"', trainer_selector=f'job="{plan}-trainer"')
            files.append(tmp_path / f"{plan}.json")  # JSON is YAML
            files[-1].write_text(json.dumps(faster(rules_document(standing, Writing(names, plan)))))
        server = stack.enter_context(Server(tmp_path / "server", targets=targets, rules=files))
        begun.append(time.time())
        time.sleep(onset_s + AFTER_S)
        fired = firing(server, begun[0] + FULL_S, begun[0] + onset_s + AFTER_S)
        assert len(server.ask("query", query="up == 1")["result"]) == 7  # one of eight is gone
    assert {plan for plan, _ in fired} == {"lost"}, fired
    assert {alert for _, alert in fired} == {"RolloutInstanceLost"}, fired
    rule = standing.rule("instances")
    assert rule.delay_p95_s is not None
    after = fired["lost", "RolloutInstanceLost"] - begun[0] - onset_s
    assert 0 <= after <= (rule.delay_p95_s + SCRAPE_S + EVERY_S) / FASTER + LATE_S


def firing(server: Server, start: float, end: float) -> dict[tuple[str, str], float]:
    """(plan, alert) -> when it fired first."""
    answer = server.ask("query_range", query='ALERTS{alertstate="firing"}', start=start, end=end, step=1)
    return {(s["metric"]["plan"], s["metric"]["alertname"]): float(s["values"][0][0]) for s in answer["result"]}
