"""Healthy fleets of each preset under its own alerts: how many of them fire one, against what the alerts say of
themselves.

    python benchmarks/alerts.py [--fleets N] [--steps N] [PRESET ...]

Each fleet (`--fleets`) is healthy, and off from the plan by a joint draw of all that the plan is not sure of, and of
what one run differs from its repetition; no threshold has seen its run. Prints a line a preset: how many of its alerts
find their fault, how many false alarms a month they state, all together, with the 95 % bound, and in how many fleets an
alert fired, of how many by what is stated; then the same at levels at which there are enough to count, where several
alerts of one fleet fire together; at the end those of each alert. Exits 1 if over all presets more fired at their own
levels than the stated rates explain in 95 of 100 such trials.

A rate is what `fleetsim/alerts/healthy.py` says: of each fleet that the plan may be, the share of its time beyond a
level, and how often it crosses it. Fleets of such rates fire in a watch of so many hours or do not (`expected`): a
month's rate times the months would count a fleet that fires from the beginning as a small part of one. Silenced alerts
count as silent.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fleetsim.alerts.alert_rule import Standing, Tracer, alarms, fires, sign
from fleetsim.alerts.ask import Alerts, alerts
from fleetsim.alerts.faults import scraped_run
from fleetsim.alerts.healthy import MONTH_H, Healthy
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


def fired(standing: Standing, runs: Iterable[Tracer]) -> Counter[str]:
    """Alert -> in how many fleets it fired."""
    return Counter(alert for tracer in runs for alert, firing in alarms(standing, tracer).items() if firing.any())


def expected(healthy: Healthy, level: float, runs: Sequence[Tracer]) -> float:
    """How many of the fleets fire within their hours: those beyond the level when the watch begins, and of the others
    those that cross it."""
    beyond, begun = healthy.each(level)
    hours = (len(tracer.at) * tracer.rehearsal.interval_s / 3600.0 for tracer in runs)
    return sum(float(np.mean(1.0 - (1.0 - beyond) * np.exp(-begun * h / MONTH_H))) for h in hours)


def line(preset: str, standing: Standing, runs: Sequence[Tracer], often: dict[str, list[float]]) -> list[float]:
    """Prints what a preset's alerts did. Returns fleets that fired one and those stated, the same at levels for OFTEN,
    and the hours. often: alert -> fleets that fired it at that level, and those stated, of all presets so far."""
    made, own, many = standing.rehearsal, 0.0, [0.0, 0.0]
    planned, raised = simulated(made), fired(standing, runs)
    hours = sum(len(tracer.at) for tracer in runs) * made.interval_s / 3600.0
    for rule in standing.rules:
        points = round(rule.for_s / made.interval_s) + 1
        healthy = planned.healthy(rule.signal, rule.window_s, points)
        if rule.signal.name == "instances" or healthy is None:
            continue
        own += expected(healthy, sign(rule.signal) * rule.threshold, runs)
        level = healthy.level(OFTEN, healthy.mean)
        seen = sum(bool(fires(tracer(rule.signal, rule.window_s) > level, points).any()) for tracer in runs)
        found = [float(seen), expected(healthy, level, runs)]
        for total in (many, often.setdefault(rule.signal.alert, [0.0, 0.0])):
            total[:] = [a + b for a, b in zip(total, found, strict=True)]
    stated = sum(rule.false_per_month for rule in standing.rules)
    upper = sum(rule.false_upper for rule in standing.rules if rule.signal.name != "instances")
    finding = sum(rule.delay_s is not None for rule in standing.rules)
    print(
        f"{preset:28} {finding:3} of {len(standing.rules):2} {hours:5.0f} {stated:8.2f} {upper:8.2f}"
        f" {raised.total():5} of {own:4.2f} {many[0]:5.0f} of {many[1]:4.1f}  {', '.join(raised)}",
        flush=True,
    )
    return [raised.total(), own, *many, hours]


def too_many(seen: float, stated: float) -> bool:
    """Whether so many or more happen in fewer than 5 of 100 trials of that mean."""
    return seen >= 1 and 1.0 - poisson_below(int(seen) - 1, stated) < 0.05


def main() -> None:
    """A line a preset, one an alert, and one of all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--fleets", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500)
    asked = parser.parse_args()
    found, began, often = [], time.process_time(), dict[str, list[float]]()
    print(f"{'':28} finding  hours   stated  at most     fired  at {OFTEN:g} a month")
    for preset in asked.presets or presets():
        standing = alerts(Alerts(of=PlanFields(preset=preset))).standing
        found.append(line(preset, standing, list(fleets(preset, standing, asked.fleets, asked.steps)), often))
    for alert, (seen, stated) in often.items():
        print(f"at {OFTEN:g} a month {alert:28} {seen:5.0f} of {stated:5.1f}")
    own, own_stated, many, many_stated, hours = np.sum(found, axis=0).tolist()
    print(f"{own:.0f} alerts fired in {hours:,.0f} hours, where {own_stated:.1f} are stated at most")
    print(f"{many:.0f} fired at levels for {OFTEN:g} a month each, where {many_stated:.0f} are stated")
    print(f"{time.process_time() - began:,.0f} processor seconds")
    sys.exit(too_many(own, own_stated))


if __name__ == "__main__":
    main()
