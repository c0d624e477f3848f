"""Bytes that one GPU of a trainer holds: weights, gradients, optimizer states, activations."""

from __future__ import annotations

from fleetsim.dataclass import dataclass
from fleetsim.trainer.plan import TrainingPlan
from fleetsim.trainer.work import work_of

# Bytes per weight: in 16 bits; of a 32-bit gradient; of Adam's states, the 32-bit weight included (Rajbhandari et al.,
# ZeRO, arXiv 1910.02054, section 3.1, with gradients in 32 bits, as FSDP2 and Megatron keep them).
_WEIGHT, _GRADIENT, _STATES = 2, 4, 12
# Trained weights of adapters over all weights: rank 16 to 64 in all linear layers.
LORA_SHARE = 0.01
# Logits are made in chunks of so many tokens, in 32 bits, with their gradient.
_LOGIT_TOKENS, _LOGIT_BYTES = 4096, 8
# The context of CUDA and NCCL, and buffers; and the part of the memory that an allocator can fill.
_RUNTIME_BYTES, _USABLE = 3e9, 0.94


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU. states: weights, gradients and optimizer. activations: of one micro-batch. room: what may be
    filled of the GPU."""

    states: float
    activations: float
    runtime: float
    room: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.states + self.activations + self.runtime

    @property
    def fits(self) -> bool:
        """Whether there is room for all of them."""
        return self.total <= self.room


def memory_of(plan: TrainingPlan) -> Memory:
    """What one GPU of the plan holds at its peak."""
    models = 2 if plan.recipe.critic else 1
    return Memory(models * _states(plan), _activations(plan), _RUNTIME_BYTES, _USABLE * plan.gpu.memory_bytes)


def _states(plan: TrainingPlan) -> float:
    recipe, layout, shape = plan.recipe, plan.layout, plan.shape
    trained = LORA_SHARE if recipe.tune == "lora" else 1.0
    states = 0 if recipe.offload == "adam" else _STATES
    if recipe.backend == "fsdp":
        layer = (shape.params - shape.embeddings_params) / work_of(shape).layers
        gathered = 2 * layer * _WEIGHT  # this layer's weights and the next one's
        return shape.params * (_WEIGHT + trained * (_GRADIENT + states)) / layout.gpus + gathered
    own = (shape.params - shape.routed_params) / (layout.tp * layout.pp)
    experts = shape.routed_params / (layout.ep * layout.pp)
    copies = max(1, layout.gpus // (layout.ep * layout.pp))
    whole = _WEIGHT + trained * _GRADIENT
    return own * (whole + trained * states / (layout.dp * layout.cp)) + experts * (whole + trained * states / copies)


def _activations(plan: TrainingPlan) -> float:
    """Of one micro-batch. A pipeline's first stage keeps as many as it has stages: that makes up for its few layers."""
    shape, layout, work = plan.shape, plan.layout, work_of(plan.shape)
    tokens = max(plan.recipe.micro_tokens, plan.batch.longest / layout.cp) / layout.tp
    kept = work.layers * shape.hidden if plan.recipe.recompute else work.moved
    layer = 2 * work.moved / work.layers
    chunk = min(tokens, _LOGIT_TOKENS)
    return 2 * tokens * (kept + layer) + _LOGIT_BYTES * chunk * shape.vocab
