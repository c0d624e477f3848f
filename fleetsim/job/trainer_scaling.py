"""How the trainer's seconds change when it gets more or fewer GPUs: by its model, a given law, or measured points.

The model is that of `fleetsim.trainer`: a part that more GPUs divide, collectives that grow with them, and a part that
stays, in the fastest layout for each count. Seconds that somebody gave keep their value and take its ratio.

Where the model that is trained is not known, or a parallel share is given, the law is Amdahl's. Of the seconds at
g0 = trainer.gpus a share p is divided by more GPUs, the rest is not:

    t(g) = t(g0) * ((1 - p) + p * g0 / g)

p depends on where one looks from: the more GPUs, the smaller the part that still shrinks. With K, the count at which
both parts are equally long, p = 1 / (1 + g0 / K) at every g0. K = 90 is what verl's published colocated runs imply
(docs/advance/fully_async.md of verl-project/verl at 1dda039, Qwen2.5-Math-7B, 8,192 responses per step on H20):

    GPUs                                  32       64      128
    update_actor + old_log_prob, s    377.51   203.67   167.73     t(g) = 94 + 264 * 32 / g: p = 0.74 at 32, K = 90

with errors of -5, +11 and -5 %; from 32 to 64 alone p would be 0.92, from 64 to 128 it would be 0.35. It is an
assumption for every other model, batch and trainer: a small batch is divided worse, so measure two counts and give
them as points. Between points the time is a power of the GPUs (a line in log-log); beyond them the law goes on from
the last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.pools import TrainerConfig
from fleetsim.config.scenario import Scenario
from fleetsim.engine.gpus import gpu_of
from fleetsim.errors import InputError
from fleetsim.frameworks.equal_parts import divides
from fleetsim.job.assumptions import is_estimated
from fleetsim.job.derived_values import seconds_of, slower
from fleetsim.trainer.estimate import estimate_on, is_known, least_gpus, seconds_on

# GPUs at which half of the trainer's seconds no longer shrink (see above).
HALF_SERIAL_GPUS = 90.0
# A trainer that takes no time: what generation does by itself.
FREED = {"trainer.fixed_s": 0.0, "trainer.per_token_s": 0.0, "trainer.phases": [], "trainer.checkpoint": {}}

Points = Sequence[tuple[int, float]]


def parallel_share(trainer: TrainerConfig, gpus: int) -> float:
    """p of the law, seen from `gpus`; a share that was given is one seen from trainer.gpus."""
    given = trainer.scaling.parallel_share
    if given is None:
        return 1.0 / (1.0 + gpus / HALF_SERIAL_GPUS)
    parallel = given * trainer.gpus / gpus
    # All serial and all parallel stay what they are from everywhere.
    return parallel / (1.0 - given + parallel) if parallel > 0 else 0.0


# Seconds of a step by GPUs, of which only ratios count.
Course = Callable[[int], float]


def course_of(scenario: Scenario) -> Course | None:
    """The trainer model's seconds by GPUs; None where a share was given, or nobody knows what is trained."""
    if scenario.trainer.scaling.parallel_share is not None or not _named(scenario) or not is_known(scenario):
        return None
    return lambda gpus: seconds_on(scenario, gpus)


def _named(scenario: Scenario) -> bool:
    """Whether somebody said what is trained: beside an engine that is only a speed the model is a mere default."""
    return scenario.engine.kind != "constant" or scenario.trainer.recipe.model is not None


def time_factor(trainer: TrainerConfig, gpus: int, course: Course | None = None) -> float:
    """Seconds of a step on `gpus` GPUs over those on trainer.gpus. course: the model's; None = Amdahl's law."""
    points = trainer.scaling.points
    if not points:
        return _law(trainer, trainer.gpus, gpus, course)
    return _measured(trainer, points, gpus, course) / _measured(trainer, points, trainer.gpus, course)


def scaled(scenario: Scenario, gpus: int) -> dict[str, Any]:
    """The changes that move a scenario's trainer to `gpus` GPUs: its seconds, its phases' and the law's own p.

    The checkpoint's stall and weight sync stay as they are: they wait for storage and network.
    """
    trainer = scenario.trainer
    factor = time_factor(trainer, gpus, course_of(scenario))
    return {"trainer.gpus": gpus, **slower(trainer, factor), **scaled_share(trainer, gpus)}


def followed(scenario: Scenario, measured: Scenario) -> Scenario:
    """A job whose lengths or batch were other ones when somebody measured its trainer: those seconds, times what its
    model's grow by. As it is where they depend on tokens already, or nobody knows what is trained."""
    trainer = measured.trainer
    if is_estimated(scenario) or not follows_model(measured):
        return scenario
    factor = seconds_on(scenario, trainer.gpus) / seconds_on(measured, trainer.gpus)
    return with_changes(scenario, slower(trainer, factor))


def follows_model(scenario: Scenario) -> bool:
    """Whether the seconds of a step were said, but not how they depend on its tokens, and a model knows that."""
    t = scenario.trainer
    by_token = t.per_token_s > 0.0 or any(phase.per_token_s > 0.0 for phase in t.phases)
    return t.fixed_s > 0.0 and not by_token and _named(scenario) and is_known(scenario)


def scaled_share(trainer: TrainerConfig, gpus: int) -> dict[str, float | None]:
    """The change that keeps a share that was given what it is, seen from `gpus`."""
    share = None if trainer.scaling.parallel_share is None else parallel_share(trainer, gpus)
    return {"trainer.scaling.parallel_share": share}


def anchored(scenario: Scenario, given: frozenset[str]) -> Scenario:
    """The scenario with the seconds that its points measured, unless its own seconds were given.

    given: dotted paths that the user wrote. Then the points are only a course, and trainer.gpus is where it starts.
    """
    trainer = scenario.trainer
    own = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases")
    if not trainer.scaling.points or any(path in given for path in own):
        return scenario
    gpus = trainer.gpus if "trainer.gpus" in given else trainer.scaling.points[0][0]
    seconds = _measured(trainer, trainer.scaling.points, gpus, course_of(scenario))
    return with_changes(scenario, {"trainer.gpus": gpus, "trainer.fixed_s": seconds})


def law_words(trainer: TrainerConfig, course: Course | None = None) -> str:
    """The law in a line, for a report."""
    points, assumed = trainer.scaling.points, trainer.scaling.parallel_share is None
    if course is not None:
        return _course_words(trainer, course)
    share = units.share(parallel_share(trainer, trainer.gpus), 0)
    source = ", as verl's published runs imply" if assumed else ""
    law = f"of the seconds on {units.plural(trainer.gpus, 'GPU')} {share} are divided by more of them{source}"
    if not points:
        return law
    counts = ", ".join(str(gpus) for gpus, _ in points)
    return f"measured on {counts} GPUs, a power law between; beyond, {law}"


def _course_words(trainer: TrainerConfig, course: Course) -> str:
    """What twice the GPUs gain by the trainer's model."""
    points = trainer.scaling.points
    start = points[-1][0] if points else trainer.gpus
    gain = course(start) / course(2 * start)
    model = f"the trainer's model (twice {units.plural(start, 'GPU')} are {gain:.2f} times as fast)"
    if not points:
        return f"by {model}"
    counts = ", ".join(str(gpus) for gpus, _ in points)
    return f"measured on {counts} GPUs, a power law between; beyond, by {model}"


def _law(trainer: TrainerConfig, start: int, gpus: int, course: Course | None) -> float:
    if course is not None:
        return course(gpus) / course(start)
    share = parallel_share(trainer, start)
    return (1.0 - share) + share * start / gpus


def _measured(trainer: TrainerConfig, points: Points, gpus: int, course: Course | None) -> float:
    """Seconds on `gpus`: log-log between the points (sorted by GPUs), by the law beyond them."""
    (low, low_s), (high, high_s) = points[0], points[-1]
    if gpus <= low:
        return low_s * _law(trainer, low, gpus, course)
    if gpus >= high:
        return high_s * _law(trainer, high, gpus, course)
    (a, a_s), (b, b_s) = next(pair for pair in pairwise(points) if pair[0][0] <= gpus <= pair[1][0])
    part = math.log(gpus / a) / math.log(b / a)
    return float(a_s * (b_s / a_s) ** part)


def least_trainer_gpus(scenario: Scenario) -> int:
    """Fewest GPUs that hold the trainer's weights, gradients and Adam states; 1 where nobody knows the model."""
    if not _named(scenario):
        return 1
    try:
        return least_gpus(scenario)
    except InputError:
        return 1


# --- Colocated jobs: rollout and trainer work on the same GPUs in turn, so another count is another trainer.
# Instances use all GPUs of the trainer. Its seconds follow: worked out anew where they come from its model, else scaled
# from those that somebody gave.

_SERVER = 8
# The next count is looked for up to so many times one.
_FARTHEST = 64


def takes_turns(scenario: Scenario) -> bool:
    """Whether rollout and trainer work on the same GPUs in turn."""
    return scenario.fleet.placement == "colocated"


def count_words(scenario: Scenario, instances: int) -> str:
    """ "13 instances", "13 instances of pool b"; "48 GPUs" where both take turns on them."""
    if takes_turns(scenario):
        return units.plural(instances * scenario.engine.gpus, "GPU")
    first = scenario.fleet.first
    return units.plural(instances, "instance") + ("" if first is None else f" of pool {first}")


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
        found = estimate_on(scenario, gpus)
    except InputError:
        return None
    if found is None:
        return None
    seconds = seconds_of(found, scenario)
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
    """The changes that make a job one of so many instances, beside a trainer of so many GPUs."""
    return fleet_of(scenario, instances) | (
        {} if trainer == scenario.trainer.gpus else moved_trainer(scenario, trainer)
    )


def fleet_of(scenario: Scenario, instances: int) -> dict[str, Any]:
    """The changes that make the fleet one of so many instances; speed factors beyond them are dropped."""
    changes: dict[str, Any] = {"fleet.instances": instances}
    if len(scenario.fleet.speed_factors) > instances:
        changes["fleet.speed_factors"] = scenario.fleet.speed_factors[:instances]
    return changes


def moved_trainer(scenario: Scenario, gpus: int) -> dict[str, Any]:
    """The changes that give a trainer so many GPUs, which then count as chosen; also where it does not fit."""
    return chosen_gpus(scenario) | (trained_on(scenario, gpus) or scaled(scenario, gpus))


def chosen_gpus(scenario: Scenario) -> dict[str, Any]:
    """The change by which the trainer's GPUs are no longer assumed, so that no reader of a file derives them anew."""
    return {"assumed": [path for path in scenario.assumed if path != "trainer.gpus"]}


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
