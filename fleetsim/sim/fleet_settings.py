"""What a scenario says of its fleet, in numbers: instances and their paces, the client's caps, rules for credits."""

from __future__ import annotations

import math

from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario
from fleetsim.engine.first_rows import UNLIMITED
from fleetsim.engine.limits import EngineLimits
from fleetsim.policies.law import EachStep
from fleetsim.sim.pools import pools_of


def most_instances(scenario: Scenario) -> int:
    """Instances that the fleet ever has, those on the trainer's GPUs apart."""
    return max([scenario.fleet.instances, *(e.instances for e in scenario.run.events if e.instances is not None)])


def lent_instances(scenario: Scenario) -> int:
    """Instances that the trainer's GPUs make while they are lent."""
    if scenario.fleet.placement != "colocated_lending":
        return 0
    given = scenario.fleet.lending.instances
    return scenario.trainer.gpus // scenario.engine.gpus if given is None else given


def paces(scenario: Scenario) -> list[float]:
    """Iteration time multiplier of every instance that a run ever has, against one of the first pool: in the order of
    the kernel's rows, those on lent GPUs and of the other pools last."""
    own = slowness(scenario, most_instances(scenario)) + [1.0] * lent_instances(scenario)
    return own + [1.0 / pool.weight for pool in pools_of(scenario) for _ in range(pool.instances)]


def slowness(scenario: Scenario, instances: int) -> list[float]:
    """Iteration time multiplier per instance; stragglers are spread evenly over the indices."""
    fleet = scenario.fleet
    slow = [*fleet.speed_factors, *([1.0] * (instances - len(fleet.speed_factors)))][:instances]
    n = round(fleet.straggler_share * instances)
    for k in range(n):
        slow[(k * instances) // n] *= fleet.straggler_slowdown
    return slow


def caps(scenario: Scenario, limits: EngineLimits) -> dict[str, int]:
    """The client's caps in their unit (fields of the fleet row). Without a cap the engines' own limit is one."""
    fleet, own = scenario.fleet, UNLIMITED
    if law_of(scenario).engines_limit:
        own = limits.max_num_seqs
    if fleet.in_flight_unit != "groups":
        most, each = fleet.max_in_flight_samples, fleet.max_in_flight_samples_per_instance
        return {"cap": most or UNLIMITED, "cap_instance": each or own}
    held = fleet.max_in_flight_samples_per_instance is None
    return {
        "cap_groups": most_groups(scenario, fleet.instances + fleet.pooled),
        "cap_instance": own if held else UNLIMITED,
    }


def most_groups(scenario: Scenario, instances: int) -> int:
    """Unfinished groups that the client keeps at most, where its caps count groups."""
    fleet, size = scenario.fleet, scenario.workload.group_size
    if fleet.in_flight_unit != "groups":
        return UNLIMITED
    most, each = fleet.max_in_flight_samples, fleet.max_in_flight_samples_per_instance
    of_all = UNLIMITED if most is None else most // size
    return min(of_all, UNLIMITED if each is None else each // size * instances)


def credit_rules(scenario: Scenario) -> dict[str, int]:
    """What the kernel itself does with credits between two looks of the admission law (fields of the fleet row)."""
    law = law_of(scenario)
    reserved = scenario.groups_per_step if law.reserves_steps else 0
    return {
        "counts_open": int(law.counts_open),
        "returns": int(not (law.counts_open or law.counts_started)),
        "floor": law.lets_in.kept_running(scenario.admission) if isinstance(law.lets_in, EachStep) else 0,
        "target_groups": reserved,
        "target_left": reserved,
    }


def steering(scenario: Scenario) -> dict[str, float]:
    """What the kernel must know to move the cap with the KV use (`engine/kernel/steering.py`; fields of the fleet row);
    nothing where the law does not follow it."""
    if not law_of(scenario).follows_kv:
        return {}
    a, size = scenario.admission.adaptive, scenario.workload.group_size
    hard = scenario.fleet.max_in_flight_samples or math.inf
    pool = min(float(a.start_samples), hard)
    return {
        "steer_s": a.interval_s,
        "steer_every": a.interval_s,
        "steer_pool": pool,
        "steer_most": min(float(a.most_samples), hard),
        "steer_group": size,
        "steer_grow": a.grow,
        "steer_target": a.target_kv,
        "grow_below": a.grow_below_kv,
        "trim_above": a.trim_above_kv,
        "cancel_above": a.cancel_above_kv,
        "cap": max(size, int(pool)),
    }
