"""What follows from a job's model, GPUs and framework where nobody said it: the GPUs of an instance, the trainer's
seconds and GPUs, how weights are sent, and how much slower engines are in such a job.

Such values are written into the scenario, and their paths into its `assumed`. So they are worked out anew for a
scenario that was written to a file and is read again. The GPUs of an instance are those with the cheapest tokens:
weights that leave little room for the KV cache make an instance slow, and more GPUs than a model needs lose time in
collectives. So the sizes 1, 2, 4, ... up to a server are compared by their tokens per second and GPU. Each holds as
many samples as the job keeps in flight, as its memory holds, and as its limits allow. Where none of these sizes holds
the model, the answer is the fewest servers that do, up to four.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.pools import PhaseConfig, TrainerConfig
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import given_paths, is_given, is_touched
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.job.nameplate import mean_step_s, nameplate_rate
from fleetsim.job.notes import longest_context
from fleetsim.sim.engines import engine_of, profile_of
from fleetsim.trainer.estimate import TrainerEstimate, estimate_of, is_known

SECONDS = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases", "trainer.scaling.points")
SLOWDOWN = "engine.slowdown"
# provenance.source of a profile that was measured inside a training job.
_IN_A_JOB = "job"
SYNC = ("sync.transport", "sync.publish_s", "sync.pause_s", "sync.trainer_block_s")


def names_a_model(scenario: Scenario, given: Collection[str]) -> bool:
    """Whether engine.model is the model of this job. Where the speed is only a number, the model is often left out."""
    named = scenario.engine.kind != "constant" or is_given("engine.model", given)
    return named or scenario.trainer.recipe.model is not None


def with_derived(scenario: Scenario, given: Collection[str]) -> Scenario:
    """The scenario with all values that nobody gave and that follow from its model. given: dotted paths that somebody
    wrote.

    Raises InputError for a trainer that is too small for its model.
    """
    slowed = _with_slowdown(scenario, given)
    if not names_a_model(slowed, given):
        return slowed
    return _with_transport(_with_trainer(slowed, given), given)


def _with_slowdown(scenario: Scenario, given: Collection[str]) -> Scenario:
    """With the slowdown of published runs. A constant rate, and a profile that was measured in a job, include it
    already."""
    if scenario.engine.kind == "constant" or is_given(SLOWDOWN, given):
        return scenario
    profile = profile_of(scenario)
    if profile is not None and profile.provenance.source == _IN_A_JOB:
        return scenario
    return _assuming(scenario, {SLOWDOWN: slowdown_of(scenario.trainer.recipe.framework)})


def as_alone(scenario: Scenario) -> Scenario:
    """Without a slowdown that is only assumed: for windows, which show how fast engines were in their own job."""
    if SLOWDOWN not in scenario.assumed:
        return scenario
    assumed = tuple(path for path in scenario.assumed if path != SLOWDOWN)
    engine = scenario.engine.model_copy(update={"slowdown": 1.0})
    return scenario.model_copy(update={"engine": engine, "assumed": assumed})


def _with_trainer(scenario: Scenario, given: Collection[str]) -> Scenario:
    if any(is_touched(path, given) for path in SECONDS) or not is_known(scenario):
        return scenario
    chosen = not is_given("trainer.gpus", given) and scenario.fleet.placement == "disaggregated"
    try:
        found = estimate_of(scenario, None if chosen else scenario.trainer.gpus)
    except InputError:
        if "trainer.per_token_s" in scenario.assumed:  # of a configuration that somebody runs: its own estimate stands
            return scenario
        raise
    changes = seconds_of(found)
    if chosen:
        changes["trainer.gpus"] = found.gpus
    return _assuming(scenario, changes)


def trainer_estimate(scenario: Scenario, given: Collection[str]) -> TrainerEstimate:
    """The trainer of a job, on the GPUs that somebody gave, or on the smallest that fits.

    given: dotted paths that somebody wrote. Raises InputError as `estimate_of` does.
    """
    return estimate_of(scenario, scenario.trainer.gpus if is_given("trainer.gpus", given) else None)


def seconds_of(found: TrainerEstimate) -> dict[str, Any]:
    """An estimate as values of a scenario: the seconds of every step, and of every trained token."""
    tokens, seconds = found.plan.batch.tokens, found.seconds
    fixed = seconds.fixed_of_update
    phases: list[PhaseConfig] = []
    recipe = found.plan.recipe
    own = seconds.passes - recipe.reference
    for name, passes in (("log-probs", own), ("reference log-probs", int(recipe.reference))):
        if passes:
            per_token = _few(passes * seconds.forward / tokens)
            phases.append(PhaseConfig(name=name, per_token_s=per_token))
    return {
        "trainer.fixed_s": _few(fixed),
        "trainer.per_token_s": _few((seconds.update - fixed) / tokens),
        "trainer.phases": tuple(phases),
    }


def slower(trainer: TrainerConfig, factor: float) -> dict[str, Any]:
    """The changes that multiply the seconds of a step."""
    phases = [
        {**phase.model_dump(), "fixed_s": factor * phase.fixed_s, "per_token_s": factor * phase.per_token_s}
        for phase in trainer.phases
    ]
    seconds = {"fixed_s": factor * trainer.fixed_s, "per_token_s": factor * trainer.per_token_s, "phases": phases}
    return {f"trainer.{name}": value for name, value in seconds.items()}


def training_step_s(scenario: Scenario) -> float:
    """Seconds of a training step on a mean batch: those of the scenario, else of the trainer's model. Raises InputError
    for a file that cannot be read."""
    try:
        return mean_step_s(with_derived(scenario, given_paths(scenario)))
    except InputError:  # a trainer that is too small for its model: the file is told as it is
        return mean_step_s(scenario)


def _with_transport(scenario: Scenario, given: Collection[str]) -> Scenario:
    if any(is_given(path, given) for path in SYNC):
        return scenario
    transport = "cuda_ipc" if scenario.fleet.placement == "colocated" else "collective_broadcast"
    changed = _assuming(scenario, {"sync.transport": transport})
    try:
        sync_times(changed)
    except InputError:  # a GPU or model of unknown size
        return scenario
    return changed


def _assuming(scenario: Scenario, changes: dict[str, Any]) -> Scenario:
    """The scenario with changed values of sections, which are called assumed; what counts as written stays the same."""
    assumed = tuple(dict.fromkeys([*scenario.assumed, *changes]))
    sections: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        section, name = path.split(".")
        sections.setdefault(section, {})[name] = value
    copies = {name: getattr(scenario, name).model_copy(update=values) for name, values in sections.items()}
    return scenario.model_copy(update={**copies, "assumed": assumed})


def _few(value: float) -> float:
    """Four digits: no estimate has more."""
    return float(f"{value:.4g}")


TP = "engine.tp"
# More GPUs must be better by so much: a smaller instance is easier to place, and its speed is better known.
_WORTH = 1.03


def instance_gpus(scenario: Scenario, given: Collection[str]) -> int | None:
    """The tensor parallelism to take; None where there is nothing to choose, because it is given or the engine is no
    roofline.

    A model that fits no server gets two or four of them. One that is still too large gets a server, and the engine then
    says that it is too large. given: dotted paths that somebody wrote.
    """
    if scenario.engine.kind != "roofline" or is_given(TP, given):
        return None
    try:
        node, heads = gpu_of(scenario.engine).node_gpus, model_shape(scenario.engine.model).heads
    except InputError:
        return None
    server = max(1, node // (scenario.engine.dp * scenario.engine.pp))
    sizes = [1 << n for n in range(server.bit_length()) if heads % (1 << n) == 0]
    found = dict(_rates(scenario, sizes)) or dict(_rates(scenario, [n for n in (2 * node, 4 * node) if heads % n == 0]))
    best, best_rate = sizes[-1], 0.0
    for tp, rate in found.items():
        if rate > best_rate * _WORTH:
            best, best_rate = tp, rate
    return best


def _rates(scenario: Scenario, sizes: Iterable[int]) -> Iterator[tuple[int, float]]:
    """Each size that holds the longest sample of the job, and its output tokens per second and GPU."""
    for tp in sizes:
        candidate = with_changes(scenario, {TP: tp})
        try:
            step_time, limits = engine_of(candidate)
            holds = step_time.blocks_of_one(limits.kv_blocks) * limits.block_size
            if holds >= limits.cache_tokens(longest_context(candidate)[0]):
                yield tp, nameplate_rate(candidate)(1) / candidate.engine.gpus
        except InputError:  # the weights do not fit
            continue
