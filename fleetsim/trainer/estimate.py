"""A training step, estimated: its seconds and its memory on the GPUs given, or on the smallest trainer that fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import WorkloadConfig
from fleetsim.engine.gpus import gpu_of, gpu_spec
from fleetsim.engine.model.names import model_shape
from fleetsim.errors import InputError, Problem
from fleetsim.trainer.efficiency import KnownTrainerError, shipped_fit
from fleetsim.trainer.layout import backend_for, laid_out, refused, smallest
from fleetsim.trainer.memory import Memory, memory_of
from fleetsim.trainer.plan import Batch, Layout, Plan, Recipe
from fleetsim.trainer.seconds import StepSeconds, family_of, kind_of, step_seconds
from fleetsim.workload.lengths import mean_length, quantile_length

_QUANTILES = 200


@dataclass(frozen=True, slots=True)
class TrainerEstimate:
    """seconds, memory: of `plan`. error: of this kind of trainer on published steps that the fit did not see; None
    where nothing was published. chosen: nobody gave the GPUs, and this is the smallest trainer that fits."""

    plan: Plan
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


def estimate(plan: Plan, *, gpus_given: bool, ranks: Layout | None = None) -> TrainerEstimate:
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
def _estimated(plan: Plan, gpus_given: bool, ranks: Layout) -> TrainerEstimate:
    return estimate(plan, gpus_given=gpus_given, ranks=ranks)


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
    lengths = [quantile_length(workload.output_tokens, (i + 0.5) / _QUANTILES) for i in range(_QUANTILES)]
    whole = beside + np.array(lengths)
    longest = beside + max(output, quantile_length(workload.output_tokens, 1 - 0.5 / samples))
    return beside + output, float(longest), float(np.mean(whole**2) / np.mean(whole))


def _plan_of(scenario: Scenario, gpus: int | None) -> Plan:
    r = scenario.trainer.recipe
    try:
        shape = model_shape(r.model or scenario.engine.model)
        gpu = gpu_of(scenario.engine) if r.gpu is None else gpu_spec(r.gpu)
    except InputError as error:
        raise InputError([replace(p, path=_place(p, r.model, r.gpu)) for p in error.problems]) from None
    recipe = Recipe(
        backend=r.backend or backend_for(shape),
        tune=r.tune,
        recompute=r.recompute,
        packing=r.packing,
        epochs=r.epochs,
        minibatches=r.optimizer_steps,
        micro_tokens=r.micro_tokens,
        old_log_probs=r.old_log_probs,
        reference=r.reference,
        critic=r.critic,
        offload=r.offload,
        precision=r.precision,
        framework=r.framework,
    )
    return Plan(shape, gpu, batch_of(scenario), recipe, Layout(gpus or 1))


def _place(problem: Problem, model: str | None, gpu: str | None) -> str:
    """Where the name stands that is not known."""
    own = {"model": model, "gpu": gpu}.get(problem.path)
    return f"{'trainer.recipe' if own else 'engine'}.{problem.path}"


def _ranks(scenario: Scenario, gpus: int | None) -> Layout:
    r = scenario.trainer.recipe
    return Layout(gpus or 1, r.tp or 1, r.pp or 1, r.cp or 1, r.ep or 1)
