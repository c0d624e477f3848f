"""What follows from a job's model, GPUs and framework where nobody said it: the trainer's seconds and GPUs, how weights
are sent, and how much slower engines are in such a job.

Such values are written into the scenario, and their paths into its `assumed`. So they are worked out anew for a
scenario that was written to a file and is read again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fleetsim.config.paths import is_given, is_touched
from fleetsim.config.scenario import Scenario
from fleetsim.config.trainer import PhaseConfig, TrainerConfig
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.sim.engines import profile_of
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
