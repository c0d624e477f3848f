"""How old a group is, and what becomes of groups that are too old."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.policies.law import Progress
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.sim.admission import creation_version
from fleetsim.sim.fleet import Fleet

Ids = NDArray[np.int64]
YOUNG = 1 << 30


def reference_versions(scenario: Scenario, fleet: Fleet, progress: Progress, groups: Ids) -> Ids:
    """The weight version that each group's age is counted from. A group without any token yet never gets too old.

    With adapters that stay resident (finish_on_old_weights) a group's oldest token is of the version at its submission.
    """
    kind = scenario.admission.age_reference
    submitted: Ids = fleet.world.groups["version"][groups].astype(np.int64)
    if kind == "creation":
        # the kernel itself replaces what it filters: such a group was let in no later than it was sent
        return np.minimum(creation_version(progress, groups), submitted)
    if kind == "submission" or IN_FLIGHT[scenario.sync.in_flight].keeps_version or len(groups) == 0:
        return submitted
    samples = fleet.world.samples[fleet.samples_of(groups)]
    versions = np.where(samples["first_token_s"] >= 0, samples["first_version"], YOUNG)
    size = fleet.world.groups["size"][groups]
    return np.minimum.reduceat(versions, np.cumsum(size) - size).astype(np.int64)


def too_old(scenario: Scenario, fleet: Fleet, progress: Progress, groups: Ids, version: int) -> NDArray[np.bool_]:
    """Whether `version` - reference > max_age for each group; never without an age limit."""
    limit = scenario.admission.max_age
    if limit is None or len(groups) == 0:
        return np.zeros(len(groups), bool)
    out: NDArray[np.bool_] = version - reference_versions(scenario, fleet, progress, groups) > limit
    return out
