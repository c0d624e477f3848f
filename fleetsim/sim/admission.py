"""Which group may start: each admission law is a number of groups that may be outstanding, as a plain function.

Outstanding = sent and neither trained nor thrown away. Credits (groups that the kernel may still send) are topped up
to it whenever something changes: at the start, when a batch is taken, when a version is published, when groups are
dropped. What the filter or a full buffer throws away inside the kernel returns its credit there and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fleetsim.config.scenario import Scenario
from fleetsim.sim.fleet import Fleet

PLENTY = 1 << 40


@dataclass(slots=True)
class Progress:
    """How far the run is: published weight version, groups taken to train, and whether a barrier's round is open."""

    version: int = 0
    taken_groups: int = 0
    generating: bool = False


def round_groups(scenario: Scenario) -> int:
    """Groups started for one batch: oversampling x B / G, rounded up."""
    return math.ceil(scenario.buffer.oversampling * scenario.groups_per_step - 1e-9)


def barrier(scenario: Scenario, progress: Progress) -> int:
    """One batch, started when the trainer is done with the last one and has published."""
    return round_groups(scenario) if progress.generating else 0


def batches_ahead(scenario: Scenario, progress: Progress) -> int:
    """k batches beyond the one being trained (OpenRLHF's semaphore, one-step-off for k = 1)."""
    return scenario.admission.batches_ahead * round_groups(scenario)


def version_window(scenario: Scenario, progress: Progress) -> int:
    """(eta + v + 1) * B - accepted (AReaL), B the groups trained per published version."""
    per_version = scenario.groups_per_step * scenario.sync.every_steps
    window = (scenario.admission.max_staleness + progress.version + 1) * per_version
    return math.floor(window + 1e-9) - progress.taken_groups


def unbounded(scenario: Scenario, progress: Progress) -> int:
    """Whatever the engines can hold."""
    return PLENTY


LAWS: dict[str, Callable[[Scenario, Progress], int]] = {
    "barrier": barrier,
    "batches_ahead": batches_ahead,
    "version_window": version_window,
    "unbounded": unbounded,
}


def top_up(scenario: Scenario, fleet: Fleet, progress: Progress) -> None:
    """Sets the kernel's credits to what the law allows now."""
    if scenario.admission.law == "fixed_pool":
        pool = scenario.admission.pool_samples or 0
        free = pool // scenario.workload.group_size - fleet.open_groups()
    else:
        free = LAWS[scenario.admission.law](scenario, progress) - fleet.outstanding()
    fleet.set(credits=max(0, free))
