"""What a scenario means to its policies: the record of its admission law, and the numbers that a law is asked with."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

from fleetsim import units
from fleetsim.config.sections import Sections
from fleetsim.config.tree import is_touched
from fleetsim.errors import Problem
from fleetsim.policies import admission, samples
from fleetsim.policies.admission import LAWS
from fleetsim.policies.law import Law, Sizes
from fleetsim.policies.samples import AGE_ACTIONS, BATCH_RULES


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
    weights; one that limits their age says it itself. Of a window of eta versions of k steps the last sample is
    k (eta + 1) - 1 steps old, if it is done in time.
    """
    law, a, k = law_of(scenario), scenario.admission, steps_per_version(scenario)
    most = math.ceil(law.ahead.most(a)) if law.ahead is not None and law.ahead.promised else None
    if law.waits_for_trainer or most == 0:
        return 0.0
    if AGE_ACTIONS[a.age_action].limits_age and a.max_age is not None:
        return float(k * (math.ceil(a.max_age) + 1) - 1)
    if most is None or law.ahead is None:
        return None
    return float(k * (most + 1) - 1 if law.ahead.unit == "versions" else most + k - 1)


def promised_steps(scenario: Sections, given: Collection[str]) -> float | None:
    """The same, where somebody said it: a law of admission that is assumed promises nobody anything. given: dotted
    paths that the user wrote."""
    return budget_steps(scenario) if is_touched("admission", given) else None


# --- Rules of admission, buffer, streaming, lending and sync scope: policies that need or exclude each other.

Rule = Callable[[Sections], Iterator[Problem]]
# Each rule with the fields it reads: a field that is itself wrong must not raise a second, derived complaint.
Rules = list[tuple[Rule, tuple[str, ...]]]
POLICY_RULES: Rules = []


def rule_of(rules: Rules, *reads: str) -> Callable[[Rule], Rule]:
    """Put the rule below among these. reads: the fields that it joins."""

    def put(rule: Rule) -> Rule:
        rules.append((rule, reads))
        return rule

    return put


@rule_of(POLICY_RULES, "admission.age_action", "admission.max_age")
def _an_age_action_needs_an_age(s: Sections) -> Iterator[Problem]:
    action = s.admission.age_action
    if AGE_ACTIONS[action].limits_age and s.admission.max_age is None:
        yield Problem(
            "admission.max_age", None, f"age_action {action} needs max_age", "give the limit in weight versions"
        )


@rule_of(POLICY_RULES, "trainer.minibatches", "trainer.batch_samples", "workload.group_size")
def _minibatches_are_whole_groups(s: Sections) -> Iterator[Problem]:
    parts, groups = s.trainer.minibatches, s.groups_per_step
    if groups % parts:
        small = [d for d in range(1, math.isqrt(groups) + 1) if groups % d == 0]
        divisor = max(d for k in small for d in (k, groups // k) if d <= parts)
        rule = f"must divide the {groups} groups of a step (batch_samples / group_size)"
        yield Problem("trainer.minibatches", parts, rule, f"use {divisor}")


@rule_of(POLICY_RULES, "trainer.minibatches", "fleet.placement")
def _streaming_needs_running_engines(s: Sections) -> Iterator[Problem]:
    if s.trainer.minibatches > 1 and s.fleet.placement == "colocated":
        rule = "colocated engines stand still while a part is trained, so no later part arrives"
        yield Problem("trainer.minibatches", s.trainer.minibatches, rule, "use 1, or another placement")


@rule_of(
    POLICY_RULES,
    "fleet.placement",
    "fleet.lending.instances",
    "trainer.gpus",
    "engine.tp",
    "engine.pp",
    "engine.disaggregation",
)
def _lent_instances_fit_the_trainer(s: Sections) -> Iterator[Problem]:
    if s.fleet.placement != "colocated_lending":
        return
    most, given = s.trainer.gpus // s.engine.gpus, s.fleet.lending.instances
    if most < 1 or (given is not None and given > most):
        made = units.plural(most, "instance")
        rule = f"the trainer's {units.plural(s.trainer.gpus, 'GPU')} make {made} of {s.engine.gpus}"
        remedy = "use fewer, or more trainer.gpus" if most else "raise trainer.gpus or lower engine.tp"
        yield Problem("fleet.lending.instances", given, rule, remedy)


@rule_of(POLICY_RULES, "sync.trigger", "sync.every_pulls", "sync.every_samples")
def _a_trigger_has_its_count(s: Sections) -> Iterator[Problem]:
    for trigger, name in (("pulls", "every_pulls"), ("samples", "every_samples")):
        value = getattr(s.sync, name)
        if s.sync.trigger == trigger and value is None:
            yield Problem(f"sync.{name}", None, f"trigger {trigger} needs {name}", "give the count")
        if s.sync.trigger != trigger and value is not None:
            yield Problem(f"sync.{name}", value, f"trigger is {s.sync.trigger}", f"set sync.trigger: {trigger}")


@rule_of(POLICY_RULES, "buffer.leftover", "buffer.batch_rule", "admission.law")
def _tail_batching_works_on_rounds(s: Sections) -> Iterator[Problem]:
    in_rounds = BATCH_RULES[s.buffer.batch_rule].rounds and law_of(s).waits_for_trainer
    if s.buffer.leftover == "defer" and not in_rounds:
        yield Problem(
            "buffer.leftover",
            "defer",
            f"long rounds need whole rounds (batch_rule is {s.buffer.batch_rule}, law {s.admission.law})",
            f"use batch_rule: {samples.names_of(lambda rule: rule.rounds)} with admission.law: "
            f"{admission.names_of(lambda law: law.waits_for_trainer)}",
        )


@rule_of(POLICY_RULES, "buffer.batch_rule", "admission.law")
def _targets_and_exact_steps_go_together(s: Sections) -> Iterator[Problem]:
    if BATCH_RULES[s.buffer.batch_rule].reserved and not law_of(s).reserves_steps:
        reserving = admission.names_of(lambda law: law.reserves_steps)
        rule = f"groups have a target step under admission.law {reserving} only (law is {s.admission.law})"
        remedy = f"use admission.law: {reserving}, or another batch_rule"
        yield Problem("buffer.batch_rule", s.buffer.batch_rule, rule, remedy)


@rule_of(POLICY_RULES, "buffer.wait_for_oldest", "buffer.batch_rule")
def _waiting_for_the_oldest_needs_an_order(s: Sections) -> Iterator[Problem]:
    if s.buffer.wait_for_oldest and BATCH_RULES[s.buffer.batch_rule].order != "version":
        ordered = samples.names_of(lambda rule: rule.order == "version")
        rule = f"only batch_rule {ordered} has an oldest (batch_rule is {s.buffer.batch_rule})"
        remedy = f"use buffer.batch_rule: {ordered}, or wait_for_oldest: false"
        yield Problem("buffer.wait_for_oldest", True, rule, remedy)


@rule_of(POLICY_RULES, "sync.scope", "fleet.placement")
def _rolling_is_for_engines_of_their_own(s: Sections) -> Iterator[Problem]:
    if s.sync.scope == "rolling" and s.fleet.placement == "colocated":
        rule = "colocated engines stand still during a sync anyway"
        yield Problem("sync.scope", "rolling", rule, "use scope: global, or another placement")


@rule_of(POLICY_RULES, "admission.adaptive")
def _adaptive_marks_in_order(s: Sections) -> Iterator[Problem]:
    a = s.admission.adaptive
    if not a.grow_below_kv <= a.target_kv <= a.trim_above_kv <= a.cancel_above_kv:
        yield Problem(
            "admission.adaptive",
            [a.grow_below_kv, a.target_kv, a.trim_above_kv, a.cancel_above_kv],
            "grow_below_kv <= target_kv <= trim_above_kv <= cancel_above_kv must hold",
            "put them in order",
        )
    if a.start_samples > a.most_samples:
        yield Problem(
            "admission.adaptive.start_samples", a.start_samples, f"above most_samples ({a.most_samples})", "lower it"
        )


@rule_of(POLICY_RULES, "admission.law", "admission.pool_samples", "workload.group_size")
def _pool_holds_a_group(s: Sections) -> Iterator[Problem]:
    if not law_of(s).counts_open:
        return
    pool, group = s.admission.pool_samples, s.workload.group_size
    if pool is None:
        needs = f"law {s.admission.law} needs pool_samples"
        yield Problem("admission.pool_samples", None, needs, "give the samples in flight")
    elif pool < group:
        rule = f"the pool must hold a group (workload.group_size is {group})"
        yield Problem("admission.pool_samples", pool, rule, f"use at least {group}")


@rule_of(
    POLICY_RULES,
    "fleet.in_flight_unit",
    "fleet.max_in_flight_samples",
    "fleet.max_in_flight_samples_per_instance",
    "workload.group_size",
    "buffer.group_oversampling",
    "fleet.group_placement",
    "admission.law",
)
def _caps_in_groups_hold_one(s: Sections) -> Iterator[Problem]:
    unit, group = s.fleet.in_flight_unit, s.workload.group_size
    if unit == "environments":
        yield from _environments_play(s)
    if unit != "groups":
        return
    for name in ("max_in_flight_samples", "max_in_flight_samples_per_instance"):
        cap = getattr(s.fleet, name)
        if cap is not None and cap < group:
            rule = f"in_flight_unit groups: the cap must hold a group (workload.group_size is {group})"
            yield Problem(f"fleet.{name}", cap, rule, f"use at least {group}, or in_flight_unit: samples")


def _environments_play(s: Sections) -> Iterator[Problem]:
    path, most = "fleet.max_in_flight_samples", s.fleet.max_in_flight_samples
    places = math.ceil(s.workload.group_size * s.buffer.group_oversampling - 1e-9)
    if most is None or most < places:
        rule = f"in_flight_unit environments: their number, in groups of {places} (samples sent of a group)"
        yield Problem(path, most, rule, f"use a multiple of {places}, or in_flight_unit: samples")
    if s.fleet.group_placement == "together":
        rule = "in_flight_unit environments: each sends its sample when it is free"
        yield Problem("fleet.group_placement", "together", rule, "use spread, or in_flight_unit: samples")
    if LAWS[s.admission.law].follows_kv:
        rule = "in_flight_unit environments: their number is fixed, and this law moves it"
        yield Problem("admission.law", s.admission.law, rule, "use another law, or in_flight_unit: samples")


@rule_of(POLICY_RULES, "buffer.capacity_samples", "workload.group_size")
def _buffer_holds_a_group(s: Sections) -> Iterator[Problem]:
    capacity, group = s.buffer.capacity_samples, s.workload.group_size
    if capacity is not None and capacity < group:
        rule = f"the buffer must hold a group (workload.group_size is {group})"
        remedy = f"use at least {group}, a batch ({s.trainer.batch_samples}) if one is to be complete, or null"
        yield Problem("buffer.capacity_samples", capacity, rule, remedy)


@rule_of(POLICY_RULES, "buffer.batch_rule", "admission.law")
def _first_finished_needs_batches(s: Sections) -> Iterator[Problem]:
    chosen = s.buffer.batch_rule
    if BATCH_RULES[chosen].rounds and law_of(s).rounds is None:
        rule = f"{chosen} works on whole batches, but admission.law is {s.admission.law}"
        remedy = f"use admission.law {admission.names_of(lambda law: law.rounds is not None)}, or another batch_rule"
        yield Problem("buffer.batch_rule", chosen, rule, remedy)


@rule_of(POLICY_RULES, "buffer.oversampling", "buffer.batch_rule")
def _oversampling_needs_first_finished(s: Sections) -> Iterator[Problem]:
    if s.buffer.oversampling > 1 and not BATCH_RULES[s.buffer.batch_rule].rounds:
        in_rounds = samples.names_of(lambda rule: rule.rounds)
        rule = f"only batch_rule {in_rounds} oversamples (batch_rule is {s.buffer.batch_rule})"
        remedy = f"use buffer.batch_rule: {in_rounds}, or oversampling: 1.0"
        yield Problem("buffer.oversampling", s.buffer.oversampling, rule, remedy)
