"""Healthy fleets of each preset under its own alerts: how often they fire, against what they say of themselves.

    python benchmarks/alerts.py [--fleets N] [--steps N] [PRESET ...]

Each fleet (`--fleets`) is healthy, and off from the plan by a joint draw of all that the plan is not sure of, and of
what one run differs from its repetition; no threshold has seen its run. Prints a line a preset: how many false alarms a
month its alerts state, all together, how many they raised, and which. Exits 1 if over all presets more began than the
stated rates explain in 95 of 100 such trials, or if more fleets fired from their first evaluation on.

A rate is what `fleetsim/alerts/healthy.py` says: how often an alert begins to fire in a month, and once for a fleet
that fires from its first evaluation on; within a day it is the same alarm. Silenced alerts count as silent.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fleetsim.alerts.alert_rule import Standing, Tracer
from fleetsim.alerts.ask import Alerts, alerts
from fleetsim.alerts.faults import scraped_run
from fleetsim.alerts.healthy import DAY_H, MONTH_H
from fleetsim.alerts.inhibition import alarms
from fleetsim.alerts.planned_fleet import PlanFields
from fleetsim.alerts.rehearsal import SETTLED_STEPS, drawn
from fleetsim.alerts.signal_values import Scraped
from fleetsim.config.data_files import presets
from fleetsim.config.load import with_changes

SEED, FIRST_RUN = 77, 500


def fleets(preset: str, standing: Standing, count: int, steps: int) -> Iterator[Scraped]:
    """Healthy fleets of a preset, as they were scraped for so many steps; other draws for each preset."""
    made, given = standing.rehearsal, PlanFields(preset=preset).planned("alerts").given
    random = np.random.default_rng([SEED, zlib.crc32(preset.encode())])
    for k in range(count):
        fleet = with_changes(drawn(made.scenario, given, random), {"run.steps": SETTLED_STEPS + steps})
        yield scraped_run(fleet, FIRST_RUN + k, made.scrape_s, SETTLED_STEPS * made.step_s)


def fired(standing: Standing, runs: Iterable[Scraped]) -> tuple[Counter[str], Counter[str], float]:
    """Alert -> in how many fleets it fired from the first evaluation on, and how often it began to; and the hours."""
    first: Counter[str] = Counter()
    begun: Counter[str] = Counter()
    hours, interval_s = 0.0, standing.rehearsal.interval_s
    for run in runs:
        tracer = Tracer(standing.rehearsal, run, 3.0)
        hours += len(tracer.at) * interval_s / 3600.0
        for alert, firing in alarms(standing, tracer).items():
            first[alert] += int(firing[:1].sum())
            begun[alert] += alarms_of(firing, round(DAY_H * 3600.0 / interval_s))
    return +first, +begun, hours


def alarms_of(firing: NDArray[np.bool_], day: int) -> int:
    """Alarms that begin after the first evaluation, those within a day of the one before left out."""
    count, last = 0, -day
    for at in (np.flatnonzero(firing[1:] & ~firing[:-1]) + 1).tolist():
        if at - last >= day:
            count, last = count + 1, at
    return count


def line(preset: str, standing: Standing, runs: Iterable[Scraped], count: int) -> NDArray[np.float64]:
    """Prints what a preset's alerts did. Returns alarms that began and those expected at most, then the same of fleets
    that fired from the beginning."""
    first, begun, hours = fired(standing, runs)
    stated = sum(rule.false_per_month for rule in standing.rules)
    raised = begun.total() / hours * MONTH_H + first.total() / count
    upper = sum(rule.false_upper for rule in standing.rules if rule.signal.name != "instances")
    seen = [rule for rule in standing.rules if rule.delay_s is not None]
    which = ", ".join(f"{alert} {n}" for alert, n in (begun + first).items())
    print(
        f"{preset:30} {len(standing.rules):3} {len(seen):3} {hours:7.0f} {stated:8.2f} {upper:8.2f} {raised:8.2f}"
        f"   {which}",
        flush=True,
    )
    return np.array([begun.total(), stated * hours / MONTH_H, first.total(), stated * count, hours])


def verdict(found: NDArray[np.float64]) -> int:
    """Prints what all presets did together; 1 if that was too much."""
    begun, expected, first, expected_first, hours = found.sum(axis=0).tolist()
    print(f"{begun:.0f} alarms began in {hours:,.0f} hours, where {expected:.1f} are stated at most; ", end="")
    print(f"{first:.0f} fleets fired from their first evaluation on, where {expected_first:.1f} are stated at most")
    return int(too_many(begun, expected) or too_many(first, expected_first))


def too_many(seen: float, expected: float) -> bool:
    """Whether so many or more happen in fewer than 5 of 100 trials of that mean."""
    chances = np.cumsum([0.0, *np.exp(np.cumsum([-expected, *np.log(expected / np.arange(1, 200))]))])
    return bool(1.0 - chances[int(seen)] < 0.05)


def main() -> None:
    """A line a preset, and one of all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--fleets", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500)
    asked = parser.parse_args()
    found, begun = [], time.process_time()
    heads = ("alerts", "see", "hours", "stated", "at most", "raised")
    print(f"{'':29} {heads[0]:>6} {heads[1]:>1} " + " ".join(f"{head:>7}" for head in heads[2:]) + "  a month")
    for preset in asked.presets or presets():
        standing = alerts(Alerts(of=PlanFields(preset=preset))).standing
        runs = fleets(preset, standing, asked.fleets, asked.steps)
        found.append(line(preset, standing, runs, asked.fleets))
    bad = verdict(np.array(found))
    print(f"{time.process_time() - begun:,.0f} processor seconds")
    sys.exit(bad)


if __name__ == "__main__":
    main()
