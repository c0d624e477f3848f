"""Defaults that what was given makes implausible: told, with the value that would fit, and never changed in silence."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.training import trainer_s_per_token
from fleetsim.engine.transport import sync_times, transfer_of
from fleetsim.errors import InputError
from fleetsim.job.assumptions import is_given, is_touched
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.job.trainer_scaling import STATE_BYTES, least_trainer_gpus, mean_step_s

# A default that is off by more than this factor is worth a line.
_OFF = 2.0
_SECONDS = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases", "trainer.scaling.points")
_SYNC = ("publish_s", "pause_s", "trainer_block_s")


def implausible(scenario: Scenario, given: Collection[str]) -> tuple[str, ...]:
    """A warning for each default that does not fit. given: dotted paths that the user wrote.

    scenario: with the fleet that it will have, because a broadcast takes longer to more engines.
    """
    if not _names_a_model(scenario, given):
        return ()
    return (*_trainer_seconds(scenario, given), *_trainer_memory(scenario), *_sync_seconds(scenario))


def _names_a_model(scenario: Scenario, given: Collection[str]) -> bool:
    """Whether engine.model is the model of this job: beside a speed that is only a number it is often left out."""
    return scenario.engine.kind != "constant" or is_given("engine.model", given)


def _trainer_seconds(s: Scenario, given: Collection[str]) -> Iterator[str]:
    """Seconds that nobody gave, for a model or lengths that somebody did."""
    about = ("engine.model", "engine.profile", "workload.output_tokens")
    if any(is_given(path, given) for path in _SECONDS) or not any(is_touched(path, given) for path in about):
        return
    found = trainer_s_per_token(s.engine.model, s.engine, s.trainer.gpus)
    if found is None:
        return
    tokens = s.trainer.batch_samples * (mean_prompt_tokens(s) + mean_output_tokens(s))
    assumed, estimate = mean_step_s(s), found[0] * tokens
    if _differ(assumed, estimate):
        yield (
            f"a trainer step of {units.seconds(assumed)} is assumed; an update of {s.engine.model} on "
            f"{units.count(round(tokens))} tokens takes {_gpus(s)} about {units.seconds(estimate)} (8 FLOPs per active "
            f"parameter and token at half of the peak): --trainer-step-s {estimate:.3g}, or what you measured"
        )


def _trainer_memory(s: Scenario) -> Iterator[str]:
    least = least_trainer_gpus(s)
    if least > s.trainer.gpus:
        yield (
            f"a trainer of {_gpus(s)} cannot hold weights, gradients and Adam states of {s.engine.model} "
            f"({STATE_BYTES} bytes per parameter), one of {least:,} could: --trainer-gpus {least}, unless states are "
            "offloaded or an adapter is trained"
        )


def _sync_seconds(s: Scenario) -> Iterator[str]:
    """Seconds of a weight sync that nobody gave and no transport derives."""
    if s.sync.transport is not None or any(getattr(s.sync, name) is not None for name in _SYNC):
        return
    transport = "cuda_ipc" if s.fleet.placement == "colocated" else "collective_broadcast"
    try:
        changed = with_changes(s, {"sync.transport": transport})
        estimate, size = sync_times(changed).complete_s, transfer_of(changed).model_bytes
    except InputError:  # a model or GPU of unknown size
        return
    assumed = sync_times(s).complete_s
    if _differ(assumed, estimate):
        by = "CUDA IPC" if transport == "cuda_ipc" else "collective broadcast"
        yield (
            f"a weight sync of {assumed:g} s is assumed; {size / 1e9:.1f} GB by {by} take about "
            f"{units.seconds(estimate)}: --set sync.transport={transport}"
        )


def _gpus(s: Scenario) -> str:
    return units.plural(s.trainer.gpus, "GPU")


def _differ(a: float, b: float) -> bool:
    return max(a, b) > _OFF * min(a, b)
