"""The oldest group that a scenario lets into training, where its own rules see to that."""

from __future__ import annotations

import math

from fleetsim.config.scenario import Scenario


def age_bound(scenario: Scenario) -> float | None:
    """Weight versions that no trained group is ever older than when its batch is taken; None = no rule bounds it.

    Age is the versions triggered by then less the group's reference version (`admission.age_reference`; submission
    where nothing refers to age). The bound is `max_age` of an age action that acts on it, or what the law implies:

    - a barrier trains what it has just started: 0, unless late groups are carried over;
    - exact target steps: each group is trained at most eta steps after it was let in;
    - a window or a cumulative ratio whose batches wait for the oldest: whole versions in order, eta (alpha) ahead;
    - one whole batch ahead: the next batch is exactly what was sent when the last was taken; with k batches and a
      drain before every publication, whatever was sent is complete one version later, and k are trained before it.

    A law alone bounds how far generation runs ahead, not how long one response takes: a window whose stragglers may
    be overtaken (AReaL, SkyRL), a per-sync-window cap (verl) and a pool bound no age.
    """
    a, b, sync = scenario.admission, scenario.buffer, scenario.sync
    if a.age_action != "train_anyway" and a.max_age is not None:
        return a.max_age if a.age_action != "wait" or _waits_in_time(scenario, a.max_age) else None
    one_by_one = sync.trigger == "steps" and sync.every_steps == 1 and scenario.trainer.minibatches == 1
    if a.law == "barrier":
        return None if b.leftover == "carry_over" and b.batch_rule == "first_finished" else 0.0
    if a.law == "target_step" and b.batch_rule == "exact_target_step":
        return float(math.ceil(a.max_staleness)) if one_by_one else None
    if b.batch_rule == "oldest_version_first" and b.wait_for_oldest and one_by_one:
        if a.law == "version_window":
            return float(math.ceil(a.max_staleness))
        if a.law == "cumulative_ratio" and a.extra_groups == 0:
            return float(math.ceil(a.async_ratio))
    if a.law == "batches_ahead" and b.oversampling == 1 and one_by_one:
        if a.batches_ahead == 1:
            return 1.0
        if sync.in_flight == "drain" and sync.scope == "global" and b.batch_rule == "fifo":
            return float(a.batches_ahead)
    return None


def _waits_in_time(scenario: Scenario, max_age: float) -> bool:
    """Whether at most (max_age + 1) versions' worth of groups is out, so that waiting for them is soon enough."""
    a = scenario.admission
    ahead = {
        "barrier": 1.0,
        "batches_ahead": float(a.batches_ahead),
        "version_window": a.max_staleness + 1,
        "target_step": a.max_staleness + 1,
        "cumulative_ratio": a.async_ratio + 1,
    }.get(a.law)
    return ahead is not None and ahead <= max_age + 1
