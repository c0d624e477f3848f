"""A healthy month of each preset under its own alerts: how often they fire, against what they say of themselves.

    python benchmarks/alerts.py [--fleets N] [--hours H] [PRESET ...]

Eight fleets (`--fleets`) share the month (`--hours`). Each is healthy, and off from the plan by a joint draw of all
that the plan is not sure of, and of what one run differs from its repetition. Prints a line a preset, and exits 1 if
more alarms were seen than the stated rate explains in 95 of 100 months.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

import numpy as np

from fleetsim.alerts.alert_rule import Standing, Tracer
from fleetsim.alerts.ask import Alerts, alerts
from fleetsim.alerts.faults import scraped_run
from fleetsim.alerts.inhibition import alarms
from fleetsim.alerts.planned_fleet import PlanFields
from fleetsim.alerts.rate import MONTH_H
from fleetsim.alerts.rehearsal import SETTLED_STEPS, drawn
from fleetsim.config.data_files import presets
from fleetsim.config.load import with_changes

SEED = 8


def fired(standing: Standing, given: frozenset[str] | None, fleets: int, hours: float) -> dict[str, int]:
    """Alert -> how often it began to fire in healthy fleets."""
    made, random = standing.rehearsal, np.random.default_rng(SEED)
    found: dict[str, int] = {}
    for k in range(fleets):
        fleet = drawn(made.scenario, given, random)
        steps = SETTLED_STEPS + math.ceil(hours / fleets * 3600.0 / made.step_s)
        run = scraped_run(
            with_changes(fleet, {"run.steps": steps}), 100 + k, made.scrape_s, SETTLED_STEPS * made.step_s
        )
        for alert, firing in alarms(standing, Tracer(made, run, 3.0)).items():
            found[alert] = found.get(alert, 0) + int(np.count_nonzero(firing[1:] & ~firing[:-1]) + firing[:1].sum())
    return {alert: count for alert, count in found.items() if count}


def most(stated: float) -> int:
    """The most alarms in 95 of 100 months of such a mean."""
    chances = np.cumsum([math.exp(-stated) * stated**k / math.factorial(k) for k in range(100)])
    return int(np.argmax(chances >= 0.95))


def main() -> None:
    """One line a preset."""
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--fleets", type=int, default=8)
    parser.add_argument("--hours", type=float, default=MONTH_H)
    asked = parser.parse_args()
    bad = 0
    for preset in asked.presets or presets():
        begun = time.perf_counter()
        fields = PlanFields(preset=preset)
        standing = alerts(Alerts(of=fields)).standing
        took = time.perf_counter() - begun
        seen = fired(standing, fields.planned("alerts").given, asked.fleets, asked.hours)
        stated = standing.budget_per_month * asked.hours / MONTH_H
        bad += sum(seen.values()) > most(stated)
        kept = f"{len(standing.rules)} alerts, {len(standing.left_out)} left out"
        print(f"{preset}: {kept}, made in {took:.0f} s; fired {seen or 'never'}; {stated:.2g} allowed", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
