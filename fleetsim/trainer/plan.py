"""What is trained how, on which GPUs: the batch, the recipe, the layout of the ranks; a token's work, a GPU's bytes."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

from msgspec import Struct

from fleetsim.config.pools import Backend
from fleetsim.engine.gpus import GpuSpec
from fleetsim.engine.model.mixers import Attention
from fleetsim.engine.model.mlps import Dense, Mixture
from fleetsim.engine.model.shape import Block, ModelShape
from fleetsim.engine.model.states import StateMixer

# --- What is trained how, on which GPUs: the batch, the recipe, and the layout of the parallel ranks.

Tuned = Literal["full", "lora"]
Offload = Literal["none", "states", "adam"]
Precision = Literal["bf16", "fp8"]
Experts = Literal["grouped", "looped"]

# Tokens of a micro-batch per GPU where nobody says: what verl's, prime-rl's and NeMo-RL's examples set is 8,192 to
# 24,576; more only saves overhead.
MICRO_TOKENS = 16384


class Batch(Struct, frozen=True):
    """Samples of one optimizer step of the job, prompts included.

    mean: tokens of a sample. longest: of the longest one. token_length: of the sample that a token is in, on average:
    E[n^2] / E[n], by which attention's square counts.
    """

    samples: int
    mean: float
    longest: float
    token_length: float

    @property
    def tokens(self) -> float:
        """All of them."""
        return self.samples * self.mean


class Recipe(Struct, frozen=True):
    """How a batch is trained.

    backend: fully sharded (FSDP, ZeRO 3) or Megatron (replicas of TP x PP x EP with a sharded optimizer). tune: all
    weights or adapters. recompute: activations again in the backward pass. packing: sequences without padding. epochs,
    minibatches: optimizer steps over one batch. micro_tokens: of a micro-batch, per GPU. old_log_probs, reference,
    critic: passes beside the update. offload: optimizer states in host memory between steps, or also their arithmetic.
    precision: of matrix products. framework: whose, None = any. shards: GPUs that share fully sharded weights, the
    others having copies of theirs; None = all. experts: of a fully sharded mixture, in one product or one by one.
    """

    backend: Backend = "fsdp"
    tune: Tuned = "full"
    recompute: bool = True
    packing: bool = True
    epochs: int = 1
    minibatches: int = 1
    micro_tokens: int = MICRO_TOKENS
    old_log_probs: bool = True
    reference: bool = False
    critic: bool = False
    offload: Offload = "none"
    precision: Precision = "bf16"
    framework: str | None = None
    shards: int | None = None
    experts: Experts = "grouped"


class TrainerLayout(Struct, frozen=True):
    """GPUs of the trainer and how they share the work: tensor, pipeline, context and expert parallel ranks."""

    gpus: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1

    @property
    def dp(self) -> int:
        """Replicas: groups of ranks that read different samples."""
        return max(1, self.gpus // (self.tp * self.pp * self.cp))

    @property
    def words(self) -> str:
        """ "TP2 EP8 on 16 GPUs"; ranks of one are left out."""
        ranks = [f"{name.upper()}{n}" for name in ("tp", "pp", "cp", "ep") if (n := getattr(self, name)) > 1]
        gpus = "1 GPU" if self.gpus == 1 else f"{self.gpus:,} GPUs"
        return f"{' '.join(ranks)} on {gpus}" if ranks else gpus


class TrainingPlan(Struct, frozen=True):
    """Everything that the seconds of a step depend on."""

    shape: ModelShape
    gpu: GpuSpec
    batch: Batch
    recipe: Recipe
    layout: TrainerLayout

    @property
    def sample_tokens(self) -> float:
        """Tokens of a sample as they are computed: padded to the longest without packing."""
        return self.batch.mean if self.recipe.packing else self.batch.longest

    @property
    def shards(self) -> int:
        """GPUs among which the optimizer's states are divided."""
        own = self.recipe.shards if self.recipe.backend == "fsdp" else None
        return self.layout.gpus if own is None else min(own, self.layout.gpus)

    def rank_tokens(self, samples: float) -> float:
        """Tokens that one replica of `samples` samples gets; never less than the longest sample, which is not split."""
        return max(samples * self.sample_tokens / self.layout.dp, min(self.batch.longest, samples * self.sample_tokens))

    def micro_batches(self, tokens: float, budget: float) -> int:
        """Parts in which a replica reads so many tokens, `budget` of them per GPU of its context ranks."""
        return max(1, math.ceil(tokens / max(budget * self.layout.cp, self.batch.longest)))


# --- What one token costs a trainer, whatever the GPU: operations, numbers that are moved, numbers that are sent.

# Copies of the hidden state that a layer reads or writes once: its norms, residuals, and the inputs of its products.
_HIDDEN_COPIES = 8
# A routed token is sent to its experts and back, and each copy is sorted and unsorted.
_ROUTED_COPIES = 4


class Work(Struct, frozen=True):
    """A forward pass of one token, summed over all layers; a backward pass is told by what it is a multiple of.

    trunk_flop: products with weights that every token visits, the LM head included. expert_flop: with the routed
    experts it visits. pair_flop: attention, per pair of tokens that see each other. moved: numbers that pass through
    memory once. head_moved: numbers of the logits. routed: numbers sent to experts on other GPUs, one way. reduced:
    numbers that tensor parallelism adds up. layers: all of them. params: all weights; routed_params: those of routed
    experts.
    """

    trunk_flop: float
    expert_flop: float
    pair_flop: float
    moved: float
    head_moved: float
    routed: float
    reduced: float
    layers: int
    params: int
    routed_params: int

    def attention_flop(self, token_length: float) -> float:
        """Attention per token of sequences whose token-weighted mean length this is; half of the pairs are causal."""
        return self.pair_flop * token_length / 2


@cache
def work_of(shape: ModelShape) -> Work:
    """The forward pass of one token of this model."""
    layers = shape.layers
    states = sum(2 * 2 * n * m.matrix for n, m in shape.states)
    trunk = 2 * (shape.active_trunk_params - shape.active_routed_params + shape.embedding_params) + states
    routed = sum(n * m.per_token * (m.latent or shape.hidden) for n, m in shape.mixtures)
    return Work(
        trunk_flop=trunk,
        expert_flop=2 * shape.active_routed_params,
        pair_flop=shape.prefill_pair_flop,
        moved=sum(b.count * _moved(b, shape.hidden) for b in shape.blocks),
        head_moved=shape.vocab,
        routed=routed,
        reduced=2 * layers * shape.hidden,
        layers=layers,
        params=shape.params,
        routed_params=shape.routed_params,
    )


def _moved(block: Block, hidden: int) -> float:
    """Numbers of one layer: the hidden state, what the mixer makes, what the MLP makes for each expert it visits."""
    total = _HIDDEN_COPIES * hidden
    if block.mixer is not None:
        kind = block.mixer
        total += sum(g.n for g in kind.gemms(hidden))
        total += kind.heads * kind.head_dim if isinstance(kind, Attention) else 0
        total += 2 * hidden if isinstance(kind, StateMixer) else 0
    if isinstance(block.mlp, Dense):
        total += (2 + block.mlp.gated) * block.mlp.width
    elif isinstance(block.mlp, Mixture):
        m = block.mlp
        total += (2 + m.gated) * m.peak_width + _ROUTED_COPIES * m.per_token * (m.latent or hidden)
    return float(total)


# --- Bytes that one GPU of a trainer holds: weights, gradients, optimizer states, activations.

# Bytes per weight: in 16 bits; of a 32-bit gradient; of Adam's states, the 32-bit weight included (Rajbhandari et al.,
# ZeRO, arXiv 1910.02054, section 3.1, with gradients in 32 bits, as FSDP2 and Megatron keep them).
_WEIGHT, _GRADIENT, _STATES = 2, 4, 12
# Trained weights of adapters over all weights: rank 16 to 64 in all linear layers.
LORA_SHARE = 0.01
# Logits are made in chunks of so many tokens, in 32 bits, with their gradient.
_LOGIT_TOKENS, _LOGIT_BYTES = 4096, 8
# The context of CUDA and NCCL, and buffers; and the part of the memory that an allocator can fill.
_RUNTIME_BYTES, _USABLE = 3e9, 0.94


class Memory(Struct, frozen=True):
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
    recipe, layout, work = plan.recipe, plan.layout, work_of(plan.shape)
    trained = LORA_SHARE if recipe.tune == "lora" else 1.0
    states = 0 if recipe.offload == "adam" else _STATES
    if recipe.backend == "fsdp":
        layer = (work.params - plan.shape.embeddings_params) / work.layers
        gathered = 2 * layer * _WEIGHT  # this layer's weights and the next one's
        return work.params * (_WEIGHT + trained * (_GRADIENT + states)) / plan.shards + gathered
    own = (work.params - work.routed_params) / (layout.tp * layout.pp)
    experts = work.routed_params / (layout.ep * layout.pp)
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
