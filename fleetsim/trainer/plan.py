"""What is trained how, on which GPUs: the batch, the recipe, and the layout of the parallel ranks."""

from __future__ import annotations

import math
from typing import Literal

from fleetsim.config.trainer import Backend
from fleetsim.dataclass import dataclass
from fleetsim.engine.gpus import GpuSpec
from fleetsim.engine.model.shape import ModelShape

Tuned = Literal["full", "lora"]
Offload = Literal["none", "states", "adam"]
Precision = Literal["bf16", "fp8"]

# Tokens of a micro-batch per GPU where nobody says: what verl's, prime-rl's and NeMo-RL's examples set is 8,192 to
# 24,576; more only saves overhead.
MICRO_TOKENS = 16384


@dataclass(frozen=True, slots=True)
class Batch:
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


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a batch is trained.

    backend: fully sharded (FSDP, ZeRO 3) or Megatron (replicas of TP x PP x EP with a sharded optimizer). tune: all
    weights or adapters. recompute: activations again in the backward pass. packing: sequences without padding. epochs,
    minibatches: optimizer steps over one batch. micro_tokens: of a micro-batch, per GPU. old_log_probs, reference,
    critic: passes beside the update. offload: optimizer states in host memory between steps, or also their arithmetic.
    precision: of matrix products. framework: whose, None = any.
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


@dataclass(frozen=True, slots=True)
class TrainerLayout:
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


@dataclass(frozen=True, slots=True)
class TrainingPlan:
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

    def rank_tokens(self, samples: float) -> float:
        """Tokens that one replica of `samples` samples gets; never less than the longest sample, which is not split."""
        return max(samples * self.sample_tokens / self.layout.dp, min(self.batch.longest, samples * self.sample_tokens))

    def micro_batches(self, tokens: float, budget: float) -> int:
        """Parts in which a replica reads so many tokens, `budget` of them per GPU of its context ranks."""
        return max(1, math.ceil(tokens / max(budget * self.layout.cp, self.batch.longest)))
