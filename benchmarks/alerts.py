"""A healthy month of each preset under its own alerts: how often each fires, against what it says of itself.

    python benchmarks/alerts.py [--fleets N] [--hours H] [PRESET ...]

Eight fleets (`--fleets`) share the month (`--hours`). Each is healthy, and off from the plan by a joint draw of all
that the plan is not sure of, and of what one run differs from its repetition; no threshold has seen its run. Prints a
line an alert: how often a month it says that it fires, with its 95 % bound, and how often it did. Exits 1 if a preset's
alerts fired more often than the budget explains in 95 of 100 such months.

A rate is what `fleetsim/alerts/healthy.py` says: how often the alert begins to fire in a month, and once for a fleet
that fires from its first evaluation on; within a day it is the same alarm. Silenced alerts count as silent.
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
from fleetsim.alerts.healthy import DAY_H, MONTH_H
from fleetsim.alerts.inhibition import alarms
from fleetsim.alerts.planned_fleet import PlanFields
from fleetsim.alerts.rehearsal import SETTLED_STEPS, drawn
from fleetsim.config.data_files import presets
from fleetsim.config.load import with_changes

SEED = 8
# Steps of a fleet, at most: those of a preset with short steps are watched for less than the month.
MOST_STEPS = 2500


def fired(
    standing: Standing, given: frozenset[str] | None, fleets: int, hours: float
) -> tuple[dict[str, float], float]:
    """Alert -> how often a month it fired in healthy fleets, and the hours that were looked at."""
    made, random = standing.rehearsal, np.random.default_rng(SEED)
    first = {rule.signal.alert: 0 for rule in standing.rules}
    begun, looked = dict(first), 0.0
    steps = SETTLED_STEPS + min(MOST_STEPS, math.ceil(hours / fleets * 3600.0 / made.step_s))
    for k in range(fleets):
        fleet = with_changes(drawn(made.scenario, given, random), {"run.steps": steps})
        tracer = Tracer(made, scraped_run(fleet, 100 + k, made.scrape_s, SETTLED_STEPS * made.step_s), 3.0)
        looked += len(tracer.at) * made.interval_s / 3600.0
        for alert, firing in alarms(standing, tracer).items():
            first[alert] += int(firing[:1].sum())
            begun[alert] += alarms_of(firing, round(DAY_H * 3600.0 / made.interval_s))
    return {alert: first[alert] / fleets + begun[alert] / looked * MONTH_H for alert in first}, looked


def alarms_of(firing: np.ndarray[tuple[int], np.dtype[np.bool_]], day: int) -> int:
    """Alarms that begin after the first evaluation, those within a day of the one before left out."""
    count, last = 0, -day
    for at in (np.flatnonzero(firing[1:] & ~firing[:-1]) + 1).tolist():
        if at - last >= day:
            count, last = count + 1, at
    return count


def most(stated: float) -> int:
    """The most alarms in 95 of 100 months of such a mean."""
    chances = np.cumsum([math.exp(-stated) * stated**k / math.factorial(k) for k in range(100)])
    return int(np.argmax(chances >= 0.95))


def main() -> None:
    """A line an alert, and one a preset."""
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--fleets", type=int, default=8)
    parser.add_argument("--hours", type=float, default=MONTH_H)
    asked = parser.parse_args()
    bad = 0
    print(f"{'':28} {'stated':>8} {'at most':>8} {'found':>8}   a month")
    for preset in asked.presets or presets():
        begun = time.process_time()
        fields = PlanFields(preset=preset)
        standing = alerts(Alerts(of=fields)).standing
        took = time.process_time() - begun
        found, hours = fired(standing, fields.planned("alerts").given, asked.fleets, asked.hours)
        for rule in standing.rules:
            rates = (rule.false_per_month, rule.false_upper, found[rule.signal.alert])
            print(f"  {rule.signal.alert:26} " + " ".join(f"{rate:8.2g}" for rate in rates))
        seen = round(sum(found.values()) * hours / MONTH_H)
        bad += seen > most(standing.budget_per_month * hours / MONTH_H)
        kept = f"{len(standing.rules)} alerts, {len(standing.left_out)} left out"
        print(
            f"{preset}: {kept}, made in {took:.0f} processor seconds; {seen} alarms in {hours:,.0f} hours", flush=True
        )
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
