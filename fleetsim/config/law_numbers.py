"""What a scenario means to its policies: the record of its admission law, and the numbers that a law is asked with."""

from __future__ import annotations

import math

from fleetsim.config.sections import Sections
from fleetsim.policies.admission import LAWS
from fleetsim.policies.law import Law
from fleetsim.policies.law_inputs import Sizes


def law_of(scenario: Sections) -> Law:
    """What the scenario's admission law says about itself."""
    return LAWS[scenario.admission.law]


def sizes_of(scenario: Sections) -> Sizes:
    """What the scenario counts in: groups of a step, a version and a round, samples of a group and a batch."""
    return Sizes(
        step=scenario.groups_per_step,
        version=groups_per_version(scenario),
        round=round_groups(scenario),
        group=scenario.workload.group_size,
        batch=scenario.trainer.batch_samples,
    )


def round_groups(scenario: Sections) -> int:
    """Groups started for one batch: oversampling x B / G, rounded up."""
    return math.ceil(scenario.buffer.oversampling * scenario.groups_per_step - 1e-9)


def groups_per_version(scenario: Sections) -> int:
    """Groups trained between two publications."""
    sync, step = scenario.sync, scenario.groups_per_step
    if sync.trigger == "pulls":
        return (sync.every_pulls or 1) * step // scenario.trainer.minibatches
    if sync.trigger == "samples":
        return math.ceil((sync.every_samples or 1) / scenario.trainer.batch_samples) * step
    return sync.every_steps * step
