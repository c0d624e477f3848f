"""A training step, estimated: its seconds and its memory on the GPUs given, or on the smallest trainer that fits."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import WorkloadConfig
from fleetsim.dataclass import dataclass
from fleetsim.engine.gpus import gpu_spec
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.transport import backend_for, known_gpu
from fleetsim.errors import InputError, Problem
from fleetsim.trainer.efficiency import KnownTrainerError, shipped_fit
from fleetsim.trainer.layout import laid_out, least_for_states, refused, server_gpus, smallest
from fleetsim.trainer.memory import Memory, memory_of
from fleetsim.trainer.plan import Batch, Recipe, TrainerLayout, TrainingPlan
from fleetsim.trainer.seconds import StepSeconds, family_of, kind_of, step_seconds
from fleetsim.workload.lengths import mean_length, quantile_length, typical_lengths

_QUANTILES = 200


@dataclass(frozen=True, slots=True)
class TrainerEstimate:
    """seconds, memory: of `plan`. error: of this kind of trainer on published steps that the fit did not see; None
    where nothing was published. chosen: nobody gave the GPUs, and this is the smallest trainer that fits."""

    plan: TrainingPlan
    seconds: StepSeconds
    memory: Memory
    error: KnownTrainerError | None
    chosen: bool

    @property
    def step_s(self) -> float:
        """Of the whole step."""
        return self.seconds.total

    @property
    def gpus(self) -> int:
        """Of the trainer."""
        return self.plan.layout.gpus

    @property
    def mfu(self) -> float:
        """Share of the peak that the update's operations come to, recomputation not counted (as verl and prime-rl
        count: attention over all pairs)."""
        plan, shape = self.plan, self.plan.shape
        token: float = 6 * (shape.active_trunk_params + shape.embedding_params)
        token += 3 * shape.prefill_pair_flop * plan.batch.token_length
        epochs = plan.recipe.epochs * (2 if plan.recipe.critic else 1)
        peak = plan.gpu.bf16_flop_s * plan.layout.gpus * self.seconds.update
        return token * plan.batch.tokens * epochs / peak


def estimate(plan: TrainingPlan, *, gpus_given: bool, ranks: TrainerLayout | None = None) -> TrainerEstimate:
    """The plan on its GPUs, or on the smallest trainer that holds it, in the fastest layout.

    ranks: those above one that somebody chose. Raises InputError where nothing fits, with what would.
    """
    fit = shipped_fit()
    found = laid_out(plan, fit, ranks) if gpus_given else smallest(plan, fit, ranks)
    if found is None:
        raise refused(plan, fit)
    kind, family = kind_of(plan.shape, plan.recipe.backend), family_of(plan.shape, plan.recipe.framework)
    error = fit.error(kind, family)
    return TrainerEstimate(found, step_seconds(found, fit), memory_of(found), error, not gpus_given)


def estimate_of(scenario: Scenario, gpus: int | None) -> TrainerEstimate:
    """The trainer of a scenario, on so many GPUs; None = the smallest that fits.

    Raises InputError for a model or GPU that is not known, or a trainer that is too small.
    """
    return _estimated(_plan_of(scenario, gpus), gpus is not None, _ranks(scenario, gpus))


@lru_cache(maxsize=4096)
def _estimated(plan: TrainingPlan, gpus_given: bool, ranks: TrainerLayout) -> TrainerEstimate:
    return estimate(plan, gpus_given=gpus_given, ranks=ranks)


def is_known(scenario: Scenario) -> bool:
    """Whether the model that is trained and its GPU are known."""
    try:
        _plan_of(scenario, None)
    except InputError:
        return False
    return True


def seconds_on(scenario: Scenario, gpus: int) -> float:
    """Seconds of a step on so many GPUs, however much they must hold: what fits on them or on their whole servers, else
    the fastest layout. Raises InputError for a model or GPU that is not known.
    """
    return _seconds_on(_plan_of(scenario, gpus), _ranks(scenario, gpus))


@lru_cache(maxsize=4096)
def _seconds_on(plan: TrainingPlan, ranks: TrainerLayout) -> float:
    fit, gpus, server = shipped_fit(), plan.layout.gpus, server_gpus(plan.gpu)
    found = laid_out(plan, fit, ranks)
    if found is None and gpus > server and gpus % server:
        found = laid_out(replace(plan, layout=TrainerLayout(gpus - gpus % server)), fit, ranks)
    found = found or laid_out(plan, fit, ranks, whatever_fits=True)
    return step_seconds(found or plan, fit).total


def token_seconds(model: str, gpu: str, gpus: int) -> tuple[float, float] | None:
    """Seconds per trained token of an update and of a pass for log-probs, on a batch of 512 samples of 2,048 tokens.

    What stands in a configuration's scenario until its own batch is known. None for a model or GPU that is not known.
    """
    try:
        shape, spec = model_shape(model), gpu_spec(gpu)
    except InputError:
        return None
    batch, fit = Batch(512, 2048, 8704, 3072), shipped_fit()
    plan = TrainingPlan(shape, spec, batch, Recipe(backend=backend_for(shape)), TrainerLayout(gpus))
    found = laid_out(plan, fit) or laid_out(plan, fit, whatever_fits=True) or plan
    seconds = step_seconds(found, fit)
    return seconds.update / batch.tokens, seconds.forward / batch.tokens


def least_gpus(scenario: Scenario) -> int:
    """Fewest GPUs that hold weights, gradients and optimizer states; activations can be cut by smaller micro-batches.

    Any part of a server, or whole servers. Raises InputError for a model or GPU that is not known.
    """
    return least_for_states(_plan_of(scenario, None), _ranks(scenario, None))


def batch_of(scenario: Scenario) -> Batch:
    """Samples of a step with their tokens: prompt, output, and what tools answer."""
    mean, longest, token_length = _lengths(scenario.workload, scenario.trainer.batch_samples)
    return Batch(scenario.trainer.batch_samples, mean, longest, token_length)


@lru_cache(maxsize=256)
def _lengths(workload: WorkloadConfig, samples: int) -> tuple[float, float, float]:
    """Mean tokens of a sample, of the longest of so many, and of the one that a token is in. Prompts do not vary."""
    turns = workload.turns
    beside = mean_length(workload.prompt_tokens, at_least=1.0)
    beside += (turns.count - 1) * mean_length(turns.tool_tokens, at_least=0.0)
    output = mean_length(workload.output_tokens, at_least=1.0)
    whole = beside + typical_lengths(workload.output_tokens, _QUANTILES)
    longest = beside + max(output, quantile_length(workload.output_tokens, 1 - 0.5 / samples))
    return beside + output, float(longest), float(np.mean(whole**2) / np.mean(whole))


def _plan_of(scenario: Scenario, gpus: int | None) -> TrainingPlan:
    r = scenario.trainer.recipe
    try:
        shape = model_shape(r.model or scenario.engine.model)
        gpu = known_gpu(scenario.engine) if r.gpu is None else gpu_spec(r.gpu)
    except InputError as error:
        raise InputError([replace(p, path=_place(p, r.model, r.gpu)) for p in error.problems]) from None
    recipe = Recipe(
        backend=r.backend or backend_for(shape),
        tune=r.tune,
        recompute=r.recompute,
        packing=r.packing,
        epochs=r.epochs,
        minibatches=max(r.optimizer_steps, scenario.trainer.minibatches),
        micro_tokens=r.micro_tokens,
        old_log_probs=r.old_log_probs,
        reference=r.reference,
        critic=r.critic,
        offload=r.offload,
        precision=r.precision,
        framework=r.framework,
    )
    return TrainingPlan(shape, gpu, batch_of(scenario), recipe, TrainerLayout(gpus or 1))


def _place(problem: Problem, model: str | None, gpu: str | None) -> str:
    """Where the name stands that is not known."""
    own = {"model": model, "gpu": gpu}.get(problem.path)
    return f"{'trainer.recipe' if own else 'engine'}.{problem.path}"


def _ranks(scenario: Scenario, gpus: int | None) -> TrainerLayout:
    r = scenario.trainer.recipe
    return TrainerLayout(gpus or 1, r.tp or 1, r.pp or 1, r.cp or 1, r.ep or 1)
