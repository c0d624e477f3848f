"""Seconds of a training step: arithmetic and memory over what trainers reach, links, and what every step costs anew.

A token's forward pass takes the sum of its products, its attention and the numbers that it moves, each over what
trainers reach of the data sheet (`fleetsim.trainer.seconds`). A backward pass has twice the products (adapters:
once, because frozen weights need no gradient), 2.5 times the attention (flash attention computes the scores again; Dao,
arXiv 2307.08691, section 3.1) and twice the movement; recomputed activations are one more forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from msgspec import Struct

from fleetsim.config.data_files import Positive, data_path, fitted
from fleetsim.engine.gpus import GpuSpec
from fleetsim.engine.model.shape import ModelShape
from fleetsim.trainer.plan import LORA_SHARE, TrainingPlan, Work, work_of

# --- Seconds of a trainer's collectives, from bytes and links: the part of a step that grows with the GPUs.

# Of a server's network, per GPU and direction: ConnectX-7, 400 Gb/s, one per GPU, as sync.link.nic_bytes_s has it.
NIC_BYTES_S = 50e9
# A ring hands its pieces on from GPU to GPU; seconds of one hand-over that no bandwidth shortens. Assumed.
HOP_S = 5e-6


def reached_bytes_s(gpu: GpuSpec, links: float, gpus: int, cards: int = 1) -> float:
    """What collectives reach between `gpus` of one server, else through `cards` network cards at a time.

    links: share of a bandwidth that is reached; of PCIe, the data sheet has what is.
    """
    near = gpu.link_bytes_s * (1.0 if gpu.pcie else links)
    return near if gpus <= gpu.node_gpus else min(near, cards * NIC_BYTES_S * links)


def ring_s(gpu: GpuSpec, size: float, ranks: int, links: float) -> float:
    """`size` bytes gathered or scattered over `ranks` neighbours, whole servers first: what each of them receives.

    A ring over several servers uses all their cards.
    """
    if ranks <= 1:
        return 0.0
    return size * (ranks - 1) / ranks / reached_bytes_s(gpu, links, ranks, gpu.node_gpus) + (ranks - 1) * HOP_S


def across_s(gpu: GpuSpec, size: float, ranks: int, gpus: int, links: float) -> float:
    """The same over `ranks` that stand in different servers as soon as `gpus` need more than one, each by its card."""
    if ranks <= 1:
        return 0.0
    return size * (ranks - 1) / ranks / reached_bytes_s(gpu, links, gpus) + (ranks - 1) * HOP_S


def sharded_micro_s(plan: TrainingPlan, work: Work, links: float, gathers: int, scatters: bool) -> float:
    """Fully sharded weights put together `gathers` times for a micro-batch, and gradients scattered.

    Weights travel in 16 bits, gradients in 32, layer by layer.
    """
    size = plan.shape.params * (2 * gathers + (4 if scatters else 0))
    ranks, steps = plan.shards, gathers + scatters
    if ranks <= 1:
        return 0.0
    return ring_s(plan.gpu, size, ranks, links) + (work.layers * steps - 1) * (ranks - 1) * HOP_S


def copies_s(plan: TrainingPlan, links: float, trained: float) -> float:
    """The end of a step where groups of GPUs hold copies: gradients (32 bits) are added up over them."""
    size = 2 * 4 * trained * plan.shape.params / plan.shards
    return across_s(plan.gpu, size, plan.layout.gpus // plan.shards, plan.layout.gpus, links)


def tensor_token_s(plan: TrainingPlan, work: Work, links: float) -> float:
    """One pass of one token over tensor parallel ranks: each sum is scattered and gathered, 16 bits a number."""
    tp = plan.layout.tp
    size = 2 * work.reduced * 2
    return size * (tp - 1) / tp / reached_bytes_s(plan.gpu, links, tp)


def expert_token_s(plan: TrainingPlan, work: Work, links: float) -> float:
    """One pass of one token to its experts and back; what leaves the server goes through the GPU's own card."""
    ep = plan.layout.ep
    if ep <= 1:
        return 0.0
    size, inside = 2 * work.routed * 2, min(ep, plan.gpu.node_gpus)
    near = size * (inside - 1) / ep / reached_bytes_s(plan.gpu, links, inside)
    far = size * (ep - inside) / ep / (NIC_BYTES_S * links)
    return near + far


def replicas_s(plan: TrainingPlan, links: float, trained: float) -> float:
    """The end of a Megatron step: gradients of the replicas scattered (32 bits), new weights gathered (16 bits).

    trained: share of the weights that have gradients.
    """
    shape, layout = plan.shape, plan.layout
    own = (shape.params - shape.routed_params) / (layout.tp * layout.pp)
    experts = shape.routed_params / (layout.ep * layout.pp)
    copies = max(1, layout.gpus // (layout.ep * layout.pp))
    dense = across_s(plan.gpu, 6 * trained * own, layout.dp * layout.cp, layout.gpus, links)
    return dense + across_s(plan.gpu, 6 * trained * experts, copies, layout.gpus, links)


# --- What trainers reach of a data sheet: a few physical parameters, fitted to published steps.
# `calibration/fit_trainer.py` fits them to the rows of `calibration/public/trainer_points.yaml` and writes
# `calibration/trainer_fit.json`; docs/accuracy.md says how far off they are on rows that the fit did not see.

_FILE = "trainer_fit.json"


class Efficiency(Struct, frozen=True):
    """product: share of the peak that products with dense weights reach; expert: with routed experts. attention: share
    that flash attention reaches. touches: how often each number of a forward pass goes through memory; head_touches:
    each logit. links: share of a link's bandwidth that collectives reach. exposed: share of what could be hidden behind
    arithmetic that is not. forward: a pass for log-probs over the forward part of an update: it computes them and their
    entropy in 32 bits, in turns with what it moves. step_s: seconds of an optimizer step, whatever it holds. micro_s:
    of a micro-batch. context: share that arithmetic takes longer on many context ranks; half of it on two. blackwell:
    of what GPUs of that family reach over what Hopper does.
    """

    product: Positive
    expert: Positive
    attention: Positive
    touches: Positive
    head_touches: Positive
    links: Positive
    exposed: Positive
    forward: Positive
    step_s: Positive
    micro_s: Positive
    context: Positive
    blackwell: Positive


class KnownTrainerError(Struct, frozen=True):
    """|predicted / published - 1| of steps of one kind, predicted by a fit that did not see their framework, or, of a
    framework's own, their model.

    median, p90: half and 90 % of the steps are within. bias: median of the signed error. points, sources: how many.
    """

    median: float
    p90: float
    bias: float
    points: int
    sources: int


class TrainerFit(Struct, frozen=True):
    """The parameters; factors: seconds over the model's for a backend and kind of model ("fsdp dense"), and for a
    framework on top of it; errors: by both, and "" for all."""

    efficiency: Efficiency
    kinds: Mapping[str, Positive]
    frameworks: Mapping[str, Positive]
    errors: Mapping[str, KnownTrainerError]

    def factor(self, kind: str, family: str) -> float:
        """Of the model's seconds; 1 where nothing is known."""
        return self.kinds.get(kind, 1.0) * self.frameworks.get(family, 1.0)

    def error(self, kind: str, family: str) -> KnownTrainerError | None:
        """Of the framework and kind of model, else of the backend and kind of model, else of all."""
        return self.errors.get(family) or self.errors.get(kind) or self.errors.get("")


@cache
def shipped_fit() -> TrainerFit:
    """The one that comes with the package, as calibration/fit_trainer.py writes it, read once."""
    return fitted(TrainerFit, data_path("calibration", _FILE), _FILE, "calibration/fit_trainer.py")


# A forward pass keeps no activations, so its micro-batches are larger by about this.
FORWARD_BUDGET = 3
# Adam's states with the gradient, in bytes per weight: read and written once (32-bit weight, two moments, gradient).
ADAM_BYTES, ADAM_MOVED = 16, 30
# The mixtures of transformers (before its release 5) visit their experts one after the other, in a Python loop
# (huggingface/transformers pull request 40016): seconds of one expert in one pass of a micro-batch, a backward pass
# being two. By ISEEKYAN/verl_megatron_practice, dapo_moe30b.csv row 2: 167 s of update on 64 H100, 32 without it.
EXPERT_VISIT_S = 459e-6
# Host memory to a GPU and a server's memory, bytes per second; assumed (PCIe 5.0 from pinned memory; 8 channels).
PCIE_BYTES_S, HOST_BYTES_S = 25e9, 150e9


class StepSeconds(Struct, frozen=True):
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


class _Pass(Struct, frozen=True):
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
    reached = e.blackwell if gpu.family == "blackwell" else 1.0
    peak = reached * gpu.flop_s("fp8" if plan.recipe.precision == "fp8" else "bf16")
    flops = work.trunk_flop / (peak * e.product) + work.expert_flop / (peak * e.expert)
    square = work.attention_flop(plan.batch.token_length) / (reached * gpu.bf16_flop_s * e.attention)
    bytes_ = 2 * (work.moved * e.touches + work.head_moved * e.head_touches)
    apart = 1.0 + e.context * (1.0 - 1.0 / plan.layout.cp)
    return apart * (products * flops + attention * square + moved * bytes_ / gpu.memory_bytes_s)


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
        links += _exposed(arithmetic, shared, e.exposed) + copies_s(plan, e.links, trained)
    else:
        links += replicas_s(plan, e.links, trained)
    arithmetic += _adam_s(plan, trained)
    return _Pass(arithmetic, links, e.step_s + micro * (e.micro_s + (3 + again) * _visits_s(plan)))


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
    return _Pass(arithmetic, links, e.step_s + micro * (e.micro_s + _visits_s(plan)))


def _visits_s(plan: TrainingPlan) -> float:
    """What a pass of a micro-batch takes for visiting experts one by one; 0 where they are one product."""
    if plan.recipe.backend != "fsdp" or plan.recipe.experts == "grouped":
        return 0.0
    return EXPERT_VISIT_S * sum(layers * mixture.experts for layers, mixture in plan.shape.mixtures)


def _exposed(arithmetic: float, shared: float, part: float) -> float:
    """Of collectives that run beside arithmetic, the seconds that they add to it."""
    return max(0.0, shared - arithmetic) + part * min(arithmetic, shared)


def _adam_s(plan: TrainingPlan, trained: float) -> float:
    """The optimizer's own arithmetic on its share of the weights, in the GPU's or in the host's memory."""
    own, gpus = trained * plan.shape.params / plan.shards, plan.layout.gpus
    if plan.recipe.offload != "adam":
        return ADAM_MOVED * own / plan.gpu.memory_bytes_s
    servers = -(-gpus // plan.gpu.node_gpus)
    return ADAM_MOVED * own * gpus / (servers * HOST_BYTES_S) + 6 * own / PCIE_BYTES_S


def _offloaded_s(plan: TrainingPlan) -> float:
    """States that leave the GPU between steps come back for each update, and go."""
    if plan.recipe.offload != "states" or plan.recipe.tune == "lora":
        return 0.0
    return 2 * ADAM_BYTES * plan.shape.params / plan.shards / PCIE_BYTES_S
