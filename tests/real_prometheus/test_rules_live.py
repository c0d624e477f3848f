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
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fleetsim.alerts import rehearsal
from fleetsim.alerts.alert_rule import Standing
from fleetsim.alerts.faults import BY_FAULT
from fleetsim.alerts.rules import Writing, rules_document
from fleetsim.alerts.signals import MetricNames
from fleetsim.alerts.thresholds import choose
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from tests.once import rehearse_once
from tests.real_prometheus.exporter import Exporter
from tests.real_prometheus.server import Server
from tests.real_prometheus.test_rules_fire import EVERY_S, NEW, SCRAPE_S, SETTLED_S, job
from tests.scrape_pages import Pages

FASTER = 60.0  # simulated seconds a second: one scrape
BEFORE_S, AFTER_S = 26.0, 16.0  # seconds of ours with and without the instance
BEGUN_S = 7.0  # after which every target has been scraped: a server that has just come up waits for five
FULL_S = 14.0  # after which all windows are full
LATE_S = 4.0  # scrapes and evaluations may be late by so much
TRIES = 4  # on a machine that is so busy that scrapes are missed


@pytest.fixture(scope="module")
def standing() -> Standing:
    """The plan's alerts, all windows as short as they get."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1,))
        return choose(rehearse_once(job(), hours=48.0, replications=2, scrape_s=SCRAPE_S, interval_s=EVERY_S))


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


Target = list[str | None]


def pages_of(records: Records, first: int) -> list[Target]:
    """What the targets of a fleet answer, scrape by scrape: the instances, then the trainer. first: of the scrapes."""
    pages = Pages(records)
    last = min(pages.scrapes, first + math.ceil(2 * (BEFORE_S + AFTER_S)))
    return [
        [pages.page(target, k) for k in range(first, last)]
        for target in (*range(records.scenario.fleet.instances), None)
    ]


@contextmanager
def exported(known: list[Target], clock: Callable[[], float]) -> Iterator[list[str]]:
    """Live targets, at second 0 of the clock with their first page."""
    with ExitStack() as stack:

        def serve(target: Target) -> str:
            exporter = Exporter(lambda: target[min(max(0, int(clock() * FASTER / SCRAPE_S)), len(target) - 1)])
            return stack.enter_context(exporter).target

        yield [serve(target) for target in known]


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
    known = {plan: pages_of(records, round(SETTLED_S / SCRAPE_S)) for plan, records in runs.items()}
    attempts = (lived(known, standing, onset_s, tmp_path / str(attempt)) for attempt in range(TRIES))
    fired = next((fired for fired in attempts if fired is not None), None)
    assert fired is not None, "this machine is too busy for a scrape a second"
    assert {plan for plan, _ in fired} == {"lost"}, fired
    assert {alert for _, alert in fired} == {"RolloutInstanceLost"}, fired
    rule = standing.rule("instances")
    assert rule.delay_p95_s is not None
    after = fired["lost", "RolloutInstanceLost"] - onset_s
    assert 0 <= after <= (rule.delay_p95_s + SCRAPE_S + EVERY_S) / FASTER + LATE_S


def lived(
    known: dict[str, list[Target]], standing: Standing, onset_s: float, home: Path
) -> dict[tuple[str, str], float] | None:
    """What fired, and how many seconds after the beginning. None where a target that lives was not scraped in time: a
    rule that fires then is right, and says nothing about the rule."""
    home.mkdir()
    begun: list[float] = []

    def clock() -> float:
        return time.time() - begun[0] if begun else 0.0

    targets: dict[str, list[str]] = {}
    files = []
    with ExitStack() as stack:
        for plan, pages in known.items():
            hosts = stack.enter_context(exported(pages, clock))
            targets[plan], targets[f"{plan}-trainer"] = hosts[:-1], hosts[-1:]
            names = MetricNames(selector=f'job="{plan}"', trainer_selector=f'job="{plan}-trainer"')
            files.append(home / f"{plan}.json")  # JSON is YAML
            files[-1].write_text(json.dumps(faster(rules_document(standing, Writing(names, plan)))))
        server = stack.enter_context(Server(home / "server", targets=targets, rules=files))
        begun.append(time.time())
        time.sleep(onset_s + AFTER_S)
        if not scraped_in_time(server, begun[0], onset_s):
            return None
        assert len(server.ask("query", query="up == 1")["result"]) == 7  # one of eight is gone
        fired = firing(server, begun[0] + FULL_S, begun[0] + onset_s + AFTER_S)
    return {key: at - begun[0] for key, at in fired.items()}


def scraped_in_time(server: Server, begun: float, onset_s: float) -> bool:
    """Whether every target was scraped every second, and answered; the one that is lost, until then."""
    end_s = onset_s + AFTER_S
    answer = server.ask("query", query=f"up[{math.ceil(end_s)}s]", time=begun + end_s)["result"]
    ups = [[(float(t) - begun, up == "1") for t, up in series["values"]] for series in answer]
    late = max(b - a for up in ups for a, b in pairwise([BEGUN_S - 1.0, *(t for t, _ in up), end_s]))
    failed = [at for up in ups if (at := [t for t, answered in up if not answered])]
    return late < 2.5 and len(failed) == 1 and failed[0][0] > onset_s - 1.0


def firing(server: Server, start: float, end: float) -> dict[tuple[str, str], float]:
    """(plan, alert) -> when it fired first."""
    answer = server.ask("query_range", query='ALERTS{alertstate="firing"}', start=start, end=end, step=1)
    return {(s["metric"]["plan"], s["metric"]["alertname"]): float(s["values"][0][0]) for s in answer["result"]}
