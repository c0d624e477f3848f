"""Seconds of a training step: arithmetic and memory over what trainers reach, links, and what every step costs anew.

A token's forward pass takes the sum of its products, its attention and the numbers that it moves, each over what
trainers reach of the data sheet (`fleetsim.trainer.efficiency`). A backward pass has twice the products (adapters:
once, because frozen weights need no gradient), 2.5 times the attention (flash attention computes the scores again; Dao,
arXiv 2307.08691, section 3.1) and twice the movement; recomputed activations are one more forward pass.
"""

from __future__ import annotations

from fleetsim.dataclass import dataclass
from fleetsim.engine.model.shape import ModelShape
from fleetsim.trainer.efficiency import Efficiency, TrainerFit
from fleetsim.trainer.links import expert_token_s, replicas_s, sharded_micro_s, tensor_token_s
from fleetsim.trainer.memory import LORA_SHARE
from fleetsim.trainer.plan import TrainingPlan
from fleetsim.trainer.work import Work, work_of

# A forward pass keeps no activations, so its micro-batches are larger by about this.
FORWARD_BUDGET = 3
# Adam's states with the gradient, in bytes per weight: read and written once (32-bit weight, two moments, gradient).
ADAM_BYTES, ADAM_MOVED = 16, 30
# Host memory to a GPU and a server's memory, bytes per second; assumed (PCIe 5.0 from pinned memory; 8 channels).
PCIE_BYTES_S, HOST_BYTES_S = 25e9, 150e9


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """update: all optimizer steps over the batch. forward: one pass for log-probs. passes: how many of those, a
    critic's included. fixed_of_update: what of the update does not depend on its tokens. divides, grows, stays: the
    parts of the whole step that more GPUs divide, that grow with them (collectives), and that stay."""

    update: float
    forward: float
    passes: int
    fixed_of_update: float
    divides: float
    grows: float
    stays: float

    @property
    def total(self) -> float:
        """The whole step."""
        return self.update + self.passes * self.forward


@dataclass(frozen=True, slots=True)
class _Pass:
    """Seconds of one pass over some samples by where they go."""

    arithmetic: float
    links: float
    fixed: float

    @property
    def total(self) -> float:
        return self.arithmetic + self.links + self.fixed


def kind_of(shape: ModelShape, backend: str) -> str:
    """What errors and factors are told by: "fsdp dense", "megatron mixture"..."""
    return f"{backend} {'dense' if shape.mixture is None else 'mixture'}"


def family_of(shape: ModelShape, framework: str | None) -> str:
    """What frameworks' factors are told by: "verl dense", "nemo-rl mixture"."""
    return f"{framework} {'dense' if shape.mixture is None else 'mixture'}"


def step_seconds(plan: TrainingPlan, fit: TrainerFit) -> StepSeconds:
    """Seconds of a training step of this plan."""
    recipe = plan.recipe
    factor = fit.factor(kind_of(plan.shape, recipe.backend), family_of(plan.shape, recipe.framework))
    work = work_of(plan.shape)
    steps = recipe.epochs * recipe.minibatches
    one = _update(plan, work, fit.efficiency, plan.batch.samples / recipe.minibatches)
    forward = _forward(plan, work, fit.efficiency)
    models = 2 if recipe.critic else 1
    passes = (models if recipe.old_log_probs else 0) + recipe.reference
    moved = _offloaded_s(plan)
    update = models * factor * (steps * one.total + moved)
    arithmetic = models * steps * one.arithmetic + passes * forward.arithmetic + models * moved
    links = models * steps * one.links + passes * forward.links
    fixed = models * steps * one.fixed + passes * forward.fixed
    return StepSeconds(
        update=update,
        forward=factor * forward.total,
        passes=passes,
        fixed_of_update=models * factor * steps * one.fixed,
        divides=factor * arithmetic,
        grows=factor * links,
        stays=factor * fixed,
    )


def _token_s(plan: TrainingPlan, work: Work, e: Efficiency, products: float, attention: float, moved: float) -> float:
    """A token of a pass on one GPU alone, in multiples of its forward pass."""
    gpu = plan.gpu
    peak = gpu.flop_s("fp8" if plan.recipe.precision == "fp8" else "bf16")
    flops = work.trunk_flop / (peak * e.product) + work.expert_flop / (peak * e.expert)
    square = work.attention_flop(plan.batch.token_length) / (gpu.bf16_flop_s * e.attention)
    bytes_ = 2 * (work.moved * e.touches + work.head_moved * e.head_touches)
    return products * flops + attention * square + moved * bytes_ / gpu.memory_bytes_s


def _update(plan: TrainingPlan, work: Work, e: Efficiency, samples: float) -> _Pass:
    """One optimizer step on `samples` samples."""
    recipe, layout, again = plan.recipe, plan.layout, float(plan.recipe.recompute)
    trained = LORA_SHARE if recipe.tune == "lora" else 1.0
    products = (2.0 if recipe.tune == "lora" else 3.0) + again
    tokens = plan.rank_tokens(samples)
    micro = plan.micro_batches(tokens, recipe.micro_tokens)
    own = tokens / (layout.tp * layout.pp * layout.cp)
    token = _token_s(plan, work, e, products, 3.5 + again, 3.0 + again)
    arithmetic = own * token * (1 + (layout.pp - 1) / micro)
    links = own * layout.tp * (2 + again) * tensor_token_s(plan, work, e.links)
    links += own * (2 + again) * expert_token_s(plan, work, e.links)
    if recipe.backend == "fsdp":
        shared = micro * sharded_micro_s(plan, work, e.links, 2, recipe.tune == "full")
        links += _exposed(arithmetic, shared, e.exposed)
    else:
        links += replicas_s(plan, e.links, trained)
    arithmetic += _adam_s(plan, trained)
    return _Pass(arithmetic, links, e.step_s + micro * e.micro_s)


def _forward(plan: TrainingPlan, work: Work, e: Efficiency) -> _Pass:
    """One pass over the whole batch without gradients."""
    layout = plan.layout
    tokens = plan.rank_tokens(plan.batch.samples)
    micro = plan.micro_batches(tokens, FORWARD_BUDGET * plan.recipe.micro_tokens)
    own = tokens / (layout.tp * layout.pp * layout.cp)
    arithmetic = own * e.forward * _token_s(plan, work, e, 1.0, 1.0, 1.0) * (1 + (layout.pp - 1) / micro)
    links = own * (layout.tp * tensor_token_s(plan, work, e.links) + expert_token_s(plan, work, e.links))
    if plan.recipe.backend == "fsdp":
        links += _exposed(arithmetic, micro * sharded_micro_s(plan, work, e.links, 1, False), e.exposed)
    return _Pass(arithmetic, links, e.step_s + micro * e.micro_s)


def _exposed(arithmetic: float, shared: float, part: float) -> float:
    """Of collectives that run beside arithmetic, the seconds that they add to it."""
    return max(0.0, shared - arithmetic) + part * min(arithmetic, shared)


def _adam_s(plan: TrainingPlan, trained: float) -> float:
    """The optimizer's own arithmetic on its share of the weights, in the GPU's or in the host's memory."""
    weights, gpus = trained * plan.shape.params, plan.layout.gpus
    if plan.recipe.offload != "adam":
        return ADAM_MOVED * weights / gpus / plan.gpu.memory_bytes_s
    servers = -(-gpus // plan.gpu.node_gpus)
    return ADAM_MOVED * weights / (servers * HOST_BYTES_S) + 6 * weights / gpus / PCIE_BYTES_S


def _offloaded_s(plan: TrainingPlan) -> float:
    """States that leave the GPU between steps come back for each update, and go."""
    if plan.recipe.offload != "states" or plan.recipe.tune == "lora":
        return 0.0
    return 2 * ADAM_BYTES * plan.shape.params / plan.layout.gpus / PCIE_BYTES_S
