"""Colocated jobs: rollout and trainer work on the same GPUs in turn, so another count of instances is another trainer.

Instances use all GPUs of the trainer. Its seconds follow: worked out anew where they come from its model, else scaled
from those that somebody gave (`trainer_scaling.py`).
"""

from __future__ import annotations

from typing import Any

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.gpus import gpu_of
from fleetsim.errors import InputError
from fleetsim.frameworks.equal_parts import divides
from fleetsim.job.assumptions import is_estimated
from fleetsim.job.derived_values import seconds_of
from fleetsim.job.trainer_scaling import least_trainer_gpus, scaled, scaled_share
from fleetsim.trainer.estimate import estimate_of

_SERVER = 8
# The next count is looked for up to so many times one.
_FARTHEST = 64


def takes_turns(scenario: Scenario) -> bool:
    """Whether rollout and trainer work on the same GPUs in turn."""
    return scenario.fleet.placement == "colocated"


def count_words(scenario: Scenario, instances: int) -> str:
    """ "13 instances"; "48 GPUs" where both take turns on them."""
    if takes_turns(scenario):
        return units.plural(instances * scenario.engine.gpus, "GPU")
    return units.plural(instances, "instance")


def gpus_each(scenario: Scenario) -> int | None:
    """GPUs of an instance where both take turns on them, so that a count is told in GPUs; else None."""
    return scenario.engine.gpus if takes_turns(scenario) else None


def trained_on(scenario: Scenario, gpus: int) -> dict[str, Any] | None:
    """The changes that give a trainer so many GPUs, with its seconds there; None where it does not fit.

    Seconds that nobody gave are worked out as for any job; those that somebody gave scale.
    """
    if not is_estimated(scenario):
        return scaled(scenario, gpus)
    try:
        seconds = seconds_of(estimate_of(scenario, gpus))
    except InputError:
        return None
    phases = [phase.model_dump() for phase in seconds["trainer.phases"]]
    return {**scaled_share(scenario.trainer, gpus), **seconds, "trainer.phases": phases, "trainer.gpus": gpus}


def trainer_gpus(scenario: Scenario, instances: int) -> int:
    """The trainer's GPUs beside so many instances: theirs, where both take turns on all of them.

    A job that leaves some of the trainer's GPUs without an instance has room for more of these.
    """
    own, gpus, now = scenario.trainer.gpus, instances * scenario.engine.gpus, scenario.fleet.instances
    if not takes_turns(scenario) or instances == now:
        return own
    return gpus if now * scenario.engine.gpus == own else max(own, gpus)


def on_all_gpus(scenario: Scenario, instances: int) -> dict[str, Any]:
    """The changes that make a colocated job one of so many instances, on as many GPUs as they have."""
    return counted(scenario, instances, instances * scenario.engine.gpus)


def counted(scenario: Scenario, instances: int, trainer: int) -> dict[str, Any]:
    """The changes that make a job one of so many instances, beside a trainer of so many GPUs. Speed factors beyond the
    count are dropped."""
    changes: dict[str, Any] = {"fleet.instances": instances}
    if len(scenario.fleet.speed_factors) > instances:
        changes["fleet.speed_factors"] = scenario.fleet.speed_factors[:instances]
    return changes | ({} if trainer == scenario.trainer.gpus else moved_trainer(scenario, trainer))


def moved_trainer(scenario: Scenario, gpus: int) -> dict[str, Any]:
    """The changes that give a trainer so many GPUs, which then count as chosen; also where it does not fit."""
    changes = trained_on(scenario, gpus) or scaled(scenario, gpus)
    return {**changes, "assumed": [path for path in scenario.assumed if path != "trainer.gpus"]}


def with_all_gpus(scenario: Scenario) -> Scenario:
    """A colocated job with instances on all GPUs of its trainer, or on as many as they fill; others as they are."""
    if not takes_turns(scenario):
        return scenario
    each, unit = scenario.engine.gpus, scenario.engine.dp
    instances = max(1, scenario.trainer.gpus // (each * unit)) * unit
    return with_changes(scenario, on_all_gpus(scenario, instances))


def server_gpus(scenario: Scenario) -> int:
    """GPUs of a server of the trainer: a rack of them is no layout."""
    try:
        return min(gpu_of(scenario.engine).node_gpus, _SERVER)
    except InputError:  # an engine that is only a speed, on a GPU of its own name
        return _SERVER


def lays_out(trainer: int, scenario: Scenario) -> bool:
    """Whether a trainer has so many GPUs: whole servers, or a part of one that divides it, among whose ranks the job's
    framework can divide an update; as many as the job's own has, always."""
    server = server_gpus(scenario)
    whole = trainer % server == 0 or server % trainer == 0
    return (whole and divides(scenario, trainer)) or trainer == scenario.trainer.gpus


def can_be(scenario: Scenario, instances: int) -> bool:
    """Whether a job can have so many instances: a colocated one where a trainer of their GPUs has a layout, and room
    for weights, gradients and optimizer states."""
    if not takes_turns(scenario):
        return True
    gpus = instances * scenario.engine.gpus
    if gpus == scenario.trainer.gpus:
        return True
    return lays_out(gpus, scenario) and gpus >= least_trainer_gpus(scenario) and trained_on(scenario, gpus) is not None


def next_count(scenario: Scenario, instances: int, step: int = 1) -> int:
    """The count next to this one that the job can have, in whole engines; below it for -1, then 0 where none is."""
    unit = step * scenario.engine.dp
    last = _FARTHEST * instances if step > 0 else 0
    found = (n for n in range(instances + unit, last + step, unit) if n > 0 and can_be(scenario, n))
    return next(found, instances + unit if step > 0 else 0)
