"""Healthy fleets of each preset under its own alerts: how often they fire, against what they say of themselves.

    python benchmarks/alerts.py [--fleets N] [--steps N] [PRESET ...]

Each fleet (`--fleets`) is healthy, and off from the plan by a joint draw of all that the plan is not sure of, and of
what one run differs from its repetition; no threshold has seen its run. Prints a line a preset: how many of its alerts
find their fault, how many false alarms a month they state, all together, with the 95 % bound, and how many they raised;
then the same at levels at which there are enough to count, where several alerts of one fleet begin together. Exits 1
if over all presets more began than the stated rates explain in 95 of 100 such trials, or if more fleets fired from
their first evaluation on.

A rate is what `fleetsim/alerts/healthy.py` says: how often an alert begins to fire in a month, and once for a fleet
that fires from its first evaluation on; within a day it is the same alarm. Silenced alerts count as silent.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fleetsim.alerts.alert_rule import Standing, Tracer, alarms, fires
from fleetsim.alerts.ask import Alerts, alerts
from fleetsim.alerts.faults import scraped_run
from fleetsim.alerts.healthy import DAY_H, MONTH_H
from fleetsim.alerts.planned_fleet import PlanFields
from fleetsim.alerts.rehearsal import SETTLED_STEPS, drawn
from fleetsim.alerts.thresholds import simulated
from fleetsim.config.data_files import presets
from fleetsim.config.load import with_changes
from fleetsim.distributions import poisson_below

SEED, FIRST_RUN = 77, 500
# False alarms a month of each alert at which there are enough of them to count.
OFTEN = 10.0


def fleets(preset: str, standing: Standing, count: int, steps: int) -> Iterator[Tracer]:
    """Healthy fleets of a preset, as they were scraped for so many steps; other draws for each preset."""
    made, given = standing.rehearsal, PlanFields(preset=preset).planned("alerts").given
    random = np.random.default_rng([SEED, zlib.crc32(preset.encode())])
    for k in range(count):
        fleet = with_changes(drawn(made.scenario, given, random), {"run.steps": SETTLED_STEPS + steps})
        yield Tracer(made, scraped_run(fleet, FIRST_RUN + k, made.scrape_s, SETTLED_STEPS * made.step_s), 3.0)


def fired(standing: Standing, runs: Iterable[Tracer]) -> tuple[Counter[str], Counter[str]]:
    """Alert -> in how many fleets it fired from the first evaluation on, and how often it began to."""
    first: Counter[str] = Counter()
    begun: Counter[str] = Counter()
    for tracer in runs:
        for alert, firing in alarms(standing, tracer).items():
            first[alert] += int(firing[:1].sum())
            begun[alert] += alarms_of(firing, standing.rehearsal.interval_s)
    return +first, +begun


def often(standing: Standing, runs: Sequence[Tracer]) -> tuple[int, float]:
    """How often alerts begin at the levels that they would have for OFTEN false alarms a month each, unsilenced; and
    how often a month that is, by what is stated. At their own levels too few begin to be counted."""
    made, begun, stated = standing.rehearsal, 0, 0.0
    planned = simulated(made)
    for rule in standing.rules:
        points = round(rule.for_s / made.interval_s) + 1
        healthy = planned.healthy(rule.signal, rule.window_s, points)
        if rule.signal.name != "instances" and healthy is not None:
            level = healthy.level(OFTEN, healthy.mean)
            stated += healthy.per_month(level)
            for tracer in runs:
                begun += alarms_of(fires(tracer(rule.signal, rule.window_s) > level, points), made.interval_s)
    return begun, stated


def alarms_of(firing: NDArray[np.bool_], interval_s: float) -> int:
    """Alarms that begin after the first evaluation, those within a day of the one before left out."""
    day = round(DAY_H * 3600.0 / interval_s)
    count, last = 0, -day
    for at in (np.flatnonzero(firing[1:] & ~firing[:-1]) + 1).tolist():
        if at - last >= day:
            count, last = count + 1, at
    return count


def line(preset: str, standing: Standing, runs: Sequence[Tracer]) -> list[float]:
    """Prints what a preset's alerts did. Returns alarms that began and those stated at most, the same of fleets that
    fired from the beginning, the same of alarms at levels for OFTEN, and the hours."""
    first, begun = fired(standing, runs)
    many, stated_many = often(standing, runs)
    hours = sum(len(tracer.at) for tracer in runs) * standing.rehearsal.interval_s / 3600.0
    stated = sum(rule.false_per_month for rule in standing.rules)
    upper = sum(rule.false_upper for rule in standing.rules if rule.signal.name != "instances")
    raised = begun.total() / hours * MONTH_H + first.total() / len(runs)
    seen = sum(rule.delay_s is not None for rule in standing.rules)
    months = hours / MONTH_H
    print(
        f"{preset:28} {seen:3} of {len(standing.rules):2} {hours:5.0f} {stated:8.2f} {upper:8.2f} {raised:8.2f}"
        f" {many:5} of {stated_many * months:4.1f}  {', '.join(begun | first)}",
        flush=True,
    )
    return [begun.total(), stated * months, first.total(), stated * len(runs), many, stated_many * months, hours]


def verdict(found: NDArray[np.float64]) -> int:
    """Prints what all presets did together; 1 if that was too much."""
    begun, stated, first, stated_first, many, stated_many, hours = found.sum(axis=0).tolist()
    print(f"{begun:.0f} alarms began in {hours:,.0f} hours, where {stated:.1f} are stated at most")
    print(f"{first:.0f} fleets fired from their first evaluation on, where {stated_first:.0f} are stated at most")
    print(f"{many:.0f} alarms began at levels for {OFTEN:g} a month each, where {stated_many:.0f} are stated at most")
    return int(too_many(begun, stated) or too_many(first, stated_first))


def too_many(seen: float, expected: float) -> bool:
    """Whether so many or more happen in fewer than 5 of 100 trials of that mean."""
    return seen >= 1 and 1.0 - poisson_below(int(seen) - 1, expected) < 0.05


def main() -> None:
    """A line a preset, and one of all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--fleets", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500)
    asked = parser.parse_args()
    found, begun = [], time.process_time()
    print(f"{'':28} finding hours   stated  at most   raised  at {OFTEN:g} a month")
    for preset in asked.presets or presets():
        standing = alerts(Alerts(of=PlanFields(preset=preset))).standing
        found.append(line(preset, standing, list(fleets(preset, standing, asked.fleets, asked.steps))))
    bad = verdict(np.array(found))
    print(f"{time.process_time() - begun:,.0f} processor seconds")
    sys.exit(bad)


if __name__ == "__main__":
    main()
