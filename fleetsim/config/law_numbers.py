"""What a scenario means to its policies: the record of its admission law, and the numbers that a law is asked with."""

from __future__ import annotations

import math

from fleetsim.config.sections import Sections
from fleetsim.policies.admission import LAWS
from fleetsim.policies.law import Law, Sizes
from fleetsim.policies.samples import AGE_ACTIONS


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


def steps_per_version(scenario: Sections) -> int:
    """Optimizer steps between two publications, rounded up to whole ones."""
    sync, trainer = scenario.sync, scenario.trainer
    if sync.trigger == "pulls":
        return math.ceil((sync.every_pulls or 1) / trainer.minibatches)
    if sync.trigger == "samples":
        return math.ceil((sync.every_samples or 1) / trainer.batch_samples)
    return sync.every_steps


def budget_steps(scenario: Sections) -> float | None:
    """Optimizer steps that a trained sample may be old by what the recipe says; None where it says no number.

    A recipe whose generation waits for the trainer, or may be 0 versions ahead of it, asks for samples of the newest
    weights. Of a window of eta versions of k steps the last sample is k (eta + 1) - 1 steps old, if it is done in time.
    """
    law, a, k = law_of(scenario), scenario.admission, steps_per_version(scenario)
    if law.waits_for_trainer:
        return 0.0
    if law.ahead is not None and law.ahead.promised:
        most = math.ceil(law.ahead.most(a))
        if most == 0:
            return 0.0
        return float(k * (most + 1) - 1 if law.ahead.unit == "versions" else most + k - 1)
    if AGE_ACTIONS[a.age_action].limits_age and a.max_age is not None:
        return float(k * (math.ceil(a.max_age) + 1) - 1)
    return None
