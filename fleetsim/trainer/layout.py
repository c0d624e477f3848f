"""Which trainer a team would take: the smallest that fits, in whole servers, and the fastest layout of its ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from fleetsim import units
from fleetsim.engine.gpus import GpuSpec
from fleetsim.errors import InputError, Problem
from fleetsim.trainer.efficiency import TrainerFit
from fleetsim.trainer.memory import memory_of
from fleetsim.trainer.plan import TrainerLayout, TrainingPlan
from fleetsim.trainer.seconds import step_seconds

# Servers of a trainer that are tried, fewest first.
_SERVERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
# Micro-batches are cut into so many where they do not fit whole.
_MICRO_PARTS = (1, 2, 4)
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
    mixture = plan.shape.mixture
    layers = sum(b.count for b in plan.shape.blocks)
    experts = mixture.experts if mixture is not None else 1
    divides = layout.gpus % (layout.tp * layout.pp * layout.cp) == 0 and layout.gpus % (layout.ep * layout.pp) == 0
    enough = plan.batch.samples / plan.recipe.minibatches >= layout.dp
    return divides and experts % layout.ep == 0 and 2 * layout.pp <= max(layers, 2) and (enough or layout.dp == 1)
