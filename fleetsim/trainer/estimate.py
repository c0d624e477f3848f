"""A training step, estimated: its seconds and its memory on the GPUs given, or on the smallest trainer that fits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.config.engine import EngineConfig
from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import WorkloadConfig
from fleetsim.engine.gpus import GpuSpec, gpu_of, gpu_spec
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.transport import backend_for, known_gpu
from fleetsim.errors import InputError, Problem
from fleetsim.records import field_names, replace
from fleetsim.trainer.plan import Batch, Memory, Recipe, TrainerLayout, TrainingPlan, memory_of
from fleetsim.trainer.seconds import (
    KnownTrainerError,
    StepSeconds,
    TrainerFit,
    family_of,
    kind_of,
    shipped_fit,
    step_seconds,
)
from fleetsim.workload.lengths import mean_length, quantile_length, typical_lengths
from fleetsim.workload.turns import mean_turns, response_law

# --- Which trainer a team would take: the smallest that fits, in whole servers, and the fastest layout of its ranks.

# Servers of a trainer that are tried, fewest first.
_SERVERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
# Micro-batches are cut into so many where they do not fit whole: into more than a few only while they are long.
_MICRO_PARTS, _FEW, _LONG = (1, 2, 4, 8, 16, 32), 4, 4096
_RANKS = (1, 2, 4, 8, 16)
_EXPERT_RANKS = (1, 2, 4, 8, 16, 32, 64)
# GPUs of the largest server that is bought alone; an NVLink domain of 72 comes in trays of 4.
_SERVER, _TRAY = 8, 4


def server_gpus(gpu: GpuSpec) -> int:
    """GPUs in which a trainer grows."""
    return gpu.node_gpus if gpu.node_gpus <= _SERVER else _TRAY


def laid_out(
    plan: TrainingPlan, fit: TrainerFit, given: TrainerLayout | None = None, *, whatever_fits: bool = False
) -> TrainingPlan | None:
    """The plan with the fastest layout of its GPUs that fits; None where none does.

    Where no layout fits with the plan's micro-batches, smaller ones are tried.
    given: ranks that somebody chose; those above one stay. whatever_fits: whether it fits does not matter.
    """
    for parts in _MICRO_PARTS:
        if parts > _FEW and 2 * plan.recipe.micro_tokens <= _LONG * parts:
            break
        smaller = replace(plan, recipe=replace(plan.recipe, micro_tokens=max(1, plan.recipe.micro_tokens // parts)))
        found = _fastest(smaller, fit, given or TrainerLayout(plan.layout.gpus), whatever_fits)
        if found is not None:
            return found
    return None


def _fastest(plan: TrainingPlan, fit: TrainerFit, fixed: TrainerLayout, whatever_fits: bool) -> TrainingPlan | None:
    best: tuple[float, TrainingPlan] | None = None
    for layout in _layouts(plan, fixed):
        tried = replace(plan, layout=layout)
        if not (whatever_fits or memory_of(tried).fits):
            continue
        seconds = step_seconds(tried, fit).total
        if best is None or seconds < best[0]:
            best = seconds, tried
    return None if best is None else best[1]


def smallest(plan: TrainingPlan, fit: TrainerFit, given: TrainerLayout | None = None) -> TrainingPlan:
    """The plan on the fewest whole servers that hold it. Raises InputError where the largest trainer does not."""
    server = server_gpus(plan.gpu)
    for servers in _SERVERS:
        found = laid_out(replace(plan, layout=replace(plan.layout, gpus=servers * server)), fit, given)
        if found is not None:
            return found
    rule = f"no trainer of up to {units.plural(_SERVERS[-1] * server, 'GPU')} {plan.gpu.name} holds it"
    raise InputError([Problem("trainer.gpus", plan.shape.name, rule, _remedy(plan))])


@lru_cache(maxsize=256)
def least_for_states(plan: TrainingPlan, given: TrainerLayout) -> int:
    """Fewest GPUs on which some layout holds weights, gradients and optimizer states; the most that are tried where
    none does. Many engines ask it for one trainer."""
    server = server_gpus(plan.gpu)
    counts: list[int] = [*range(1, server), *(servers * server for servers in _SERVERS)]
    for gpus in counts:
        tried = replace(plan, layout=TrainerLayout(gpus))
        memories = (memory_of(replace(tried, layout=layout)) for layout in _layouts(tried, given))
        if any(memory.states + memory.runtime <= memory.room for memory in memories):
            return gpus
    return counts[-1]


def refused(plan: TrainingPlan, fit: TrainerFit) -> InputError:
    """A trainer that is too small: what it would hold, and what would do."""
    tightest = min((memory_of(replace(plan, layout=one)) for one in _layouts(plan, TrainerLayout(plan.layout.gpus))),
                   key=lambda m: m.total, default=memory_of(plan))  # fmt: skip
    rule = (
        f"must hold {plan.shape.name}: {tightest.states / 1e9:,.0f} GB of weights, gradients and optimizer and "
        f"{tightest.activations / 1e9:,.0f} GB of activations on each {plan.gpu.name} of {tightest.room / 1e9:,.0f} GB"
    )
    try:
        least = smallest(plan, fit).layout.gpus
        remedy = f"give at least {least:,}, or {_remedy(plan)}"
    except InputError:
        remedy = _remedy(plan)
    return InputError([Problem("trainer.gpus", plan.layout.gpus, rule, remedy)])


def _remedy(plan: TrainingPlan) -> str:
    ways = ["a GPU with more memory"]
    if plan.recipe.tune == "full":
        ways.insert(0, "adapters (trainer.recipe.tune=lora)")
    if plan.recipe.offload != "adam":
        ways.insert(0, "the optimizer in host memory (trainer.recipe.offload=adam)")
    if plan.shards < plan.layout.gpus:
        ways.insert(0, "weights that more GPUs share (trainer.recipe.shards)")
    if not plan.recipe.recompute:
        ways.insert(0, "activations that are computed again (trainer.recipe.recompute=true)")
    return ", or ".join(ways)


def _layouts(plan: TrainingPlan, given: TrainerLayout) -> Iterator[TrainerLayout]:
    """Layouts of the plan's GPUs that its model allows. Context ranks only where fewer do not fit: they cost nothing
    here, but what their rings send."""
    gpus, shape = plan.layout.gpus, plan.shape
    fsdp = plan.recipe.backend == "fsdp"
    for cp in (given.cp,) if given.cp > 1 else _RANKS[:4]:
        found = False
        tps = (given.tp,) if given.tp > 1 or fsdp else [n for n in _RANKS[:4] if shape.heads % n == 0]
        pps = (given.pp,) if given.pp > 1 or fsdp else _RANKS
        eps = (given.ep,) if given.ep > 1 or fsdp or shape.mixture is None else _EXPERT_RANKS
        for tp, pp, ep in product(tps, pps, eps):
            layout = TrainerLayout(gpus, tp, pp, cp, ep)
            if _allowed(plan, layout):
                found = found or memory_of(replace(plan, layout=layout)).fits
                yield layout
        if found:
            return


def _allowed(plan: TrainingPlan, layout: TrainerLayout) -> bool:
    if layout.gpus % (layout.tp * layout.pp * layout.cp) or layout.gpus % (layout.ep * layout.pp):
        return False
    mixture = plan.shape.mixture
    experts = mixture.experts if mixture is not None else 1
    enough = plan.batch.samples / plan.recipe.minibatches >= layout.dp
    return experts % layout.ep == 0 and 2 * layout.pp <= max(plan.shape.layers, 2) and (enough or layout.dp == 1)


_QUANTILES = 200


class TrainerEstimate(Struct, frozen=True):
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


@lru_cache(maxsize=4096)
def _estimate(plan: TrainingPlan, gpus_given: bool, ranks: TrainerLayout) -> TrainerEstimate | None:
    """The plan in its fastest layout: on its GPUs, None where it does not fit, or on the smallest trainer that does.

    ranks: those above one that somebody chose. Raises InputError where no trainer holds it.
    """
    fit = shipped_fit()
    found = laid_out(plan, fit, ranks) if gpus_given else smallest(plan, fit, ranks)
    if found is None:
        return None
    kind, family = kind_of(plan.shape, plan.recipe.backend), family_of(plan.shape, plan.recipe.framework)
    error = fit.error(kind, family)
    return TrainerEstimate(found, step_seconds(found, fit), memory_of(found), error, not gpus_given)


_RECIPE = "trainer.recipe."
# What a recipe has as the scenario has it.
_OF_RECIPE = tuple(name for name in field_names(Recipe) if name not in ("backend", "tune", "minibatches"))


def estimate_of(scenario: Scenario, gpus: int | None) -> TrainerEstimate:
    """The trainer of a scenario, on so many GPUs; None = the smallest that fits.

    Raises InputError for a model or GPU that is not known, or a trainer that is too small, with what would do.
    """
    plan = _plan_of(scenario, gpus)
    found = _estimate(plan, gpus is not None, _ranks(scenario, gpus))
    if found is None:
        raise refused(plan, shipped_fit())
    return found


def estimate_on(scenario: Scenario, gpus: int) -> TrainerEstimate | None:
    """The same on GPUs that may be too few: None at once, then. Raises InputError for a model or GPU not known."""
    return _estimate(_plan_of(scenario, gpus), True, _ranks(scenario, gpus))


def is_known(scenario: Scenario) -> bool:
    """Whether the model that is trained and its GPU are known."""
    try:
        _plan_of(scenario, None)
    except InputError:
        return False
    return True


def check_recipe(scenario: Scenario) -> None:
    """Raises InputError where the recipe names a model or GPU of its own that is not known."""
    try:
        _plan_of(scenario, None)
    except InputError as error:
        if own := [p for p in error.problems if p.path.startswith(_RECIPE)]:
            raise InputError(own) from None


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
    beside += (mean_turns(workload) - 1.0) * mean_length(turns.tool_tokens, at_least=0.0)
    law = response_law(workload)
    output = mean_length(law, at_least=1.0)
    whole = beside + typical_lengths(law, _QUANTILES)
    longest = beside + max(output, quantile_length(law, 1 - 0.5 / samples))
    return beside + output, float(longest), float(np.mean(whole**2) / np.mean(whole))


def _plan_of(scenario: Scenario, gpus: int | None) -> TrainingPlan:
    r = scenario.trainer.recipe
    try:
        shape = model_shape(r.model or scenario.engine.model)
        gpu = known_gpu(scenario.engine) if r.gpu is None else _own_gpu(scenario.engine, r.gpu)
    except InputError as error:
        raise InputError([replace(p, path=_place(p, r.model, r.gpu)) for p in error.problems]) from None
    own = {name: getattr(r, name) for name in _OF_RECIPE}
    recipe = Recipe(
        backend=r.backend or backend_for(shape),
        tune=r.tune or ("full" if scenario.engine.lora is None else "lora"),
        minibatches=max(r.optimizer_steps, scenario.trainer.minibatches),
        **own,
    )
    return TrainingPlan(shape, gpu, batch_of(scenario), recipe, TrainerLayout(gpus or 1))


def _own_gpu(engine: EngineConfig, name: str) -> GpuSpec:
    """The trainer's GPU: the one whose data sheet the scenario has, or a built-in one."""
    own = engine.gpu_sheet is not None and engine.gpu_sheet.name == name
    return gpu_of(engine.model_copy(update={"gpu": name})) if own else gpu_spec(name)


def _place(problem: Problem, model: str | None, gpu: str | None) -> str:
    """Where the name stands that is not known."""
    own = {"model": model, "gpu": gpu}.get(problem.path)
    return f"{_RECIPE if own else 'engine.'}{problem.path}"


def _ranks(scenario: Scenario, gpus: int | None) -> TrainerLayout:
    r = scenario.trainer.recipe
    return TrainerLayout(gpus or 1, r.tp or 1, r.pp or 1, r.cp or 1, r.ep or 1)
