"""The oldest group that a scenario lets into training, where its own rules see to that."""

from __future__ import annotations

from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario
from fleetsim.policies.law import Order
from fleetsim.policies.samples import AGE_ACTIONS, BATCH_RULES, IN_FLIGHT


def age_bound(scenario: Scenario) -> float | None:
    """Weight versions that no trained group is ever older than when its batch is taken; None = no rule bounds it.

    Age is the versions triggered by then less the group's reference version (`admission.age_reference`; submission
    where nothing refers to age). The bound is `max_age` of an age action that acts on it, or what the law implies
    (`Law.oldest`).

    A law alone bounds how far generation runs ahead, not how long one response takes: a window whose stragglers may
    be overtaken (AReaL, SkyRL), a per-sync-window cap (verl) and a pool bound no age.
    """
    a = scenario.admission
    action = AGE_ACTIONS[a.age_action]
    if action.limits_age and a.max_age is not None:
        return a.max_age if not action.waits or _waits_in_time(scenario, a.max_age) else None
    return law_of(scenario).oldest(a, _order(scenario))


def _order(scenario: Scenario) -> Order:
    b, sync = scenario.buffer, scenario.sync
    rule = BATCH_RULES[b.batch_rule]
    return Order(
        one_by_one=sync.trigger == "steps" and sync.every_steps == 1 and scenario.trainer.minibatches == 1,
        exact=rule.reserved,
        waits_for_oldest=rule.order == "version" and b.wait_for_oldest,
        in_order=rule.in_order,
        carries_over=rule.rounds and b.leftover == "carry_over",
        oversampled=b.oversampling > 1,
        drains=IN_FLIGHT[sync.in_flight].drains and sync.scope == "global",
    )


def _waits_in_time(scenario: Scenario, max_age: float) -> bool:
    """Whether at most (max_age + 1) versions' worth of groups is out, so that waiting for them is soon enough."""
    out = law_of(scenario).units_out(scenario.admission)
    return out is not None and out <= max_age + 1
