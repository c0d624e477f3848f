"""Seconds of a trainer's collectives, from bytes and links: the part of a step that grows with the GPUs."""

from __future__ import annotations

from fleetsim.engine.gpus import GpuSpec
from fleetsim.trainer.plan import TrainingPlan
from fleetsim.trainer.work import Work

# Of a server's network, per GPU and direction: ConnectX-7, 400 Gb/s, one per GPU, as sync.link.nic_bytes_s has it.
NIC_BYTES_S = 50e9
# A ring hands its pieces on from GPU to GPU; seconds of one hand-over that no bandwidth shortens. Assumed.
HOP_S = 5e-6


def ring_s(gpu: GpuSpec, size: float, ranks: int, links: float) -> float:
    """`size` bytes gathered or scattered over `ranks` neighbours, whole servers first: what each of them receives.

    links: share of the bandwidth that is reached. A ring over several servers uses all their cards.
    """
    if ranks <= 1:
        return 0.0
    rate = gpu.link_bytes_s if ranks <= gpu.node_gpus else min(gpu.link_bytes_s, gpu.node_gpus * NIC_BYTES_S)
    return size * (ranks - 1) / ranks / (rate * links) + (ranks - 1) * HOP_S


def across_s(gpu: GpuSpec, size: float, ranks: int, gpus: int, links: float) -> float:
    """The same over `ranks` that stand in different servers as soon as `gpus` need more than one, each by its card."""
    if ranks <= 1:
        return 0.0
    rate = gpu.link_bytes_s if gpus <= gpu.node_gpus else min(gpu.link_bytes_s, NIC_BYTES_S)
    return size * (ranks - 1) / ranks / (rate * links) + (ranks - 1) * HOP_S


def sharded_micro_s(plan: TrainingPlan, work: Work, links: float, gathers: int, scatters: bool) -> float:
    """Fully sharded weights put together `gathers` times for a micro-batch, and gradients scattered.

    Weights travel in 16 bits, gradients in 32, layer by layer.
    """
    size = plan.shape.params * (2 * gathers + (4 if scatters else 0))
    ranks, steps = plan.layout.gpus, gathers + scatters
    if ranks <= 1:
        return 0.0
    return ring_s(plan.gpu, size, ranks, links) + (work.layers * steps - 1) * (ranks - 1) * HOP_S


def tensor_token_s(plan: TrainingPlan, work: Work, links: float) -> float:
    """One pass of one token over tensor parallel ranks: each sum is scattered and gathered, 16 bits a number."""
    tp = plan.layout.tp
    size = 2 * work.reduced * 2
    rate = plan.gpu.link_bytes_s if tp <= plan.gpu.node_gpus else NIC_BYTES_S
    return size * (tp - 1) / tp / (rate * links)


def expert_token_s(plan: TrainingPlan, work: Work, links: float) -> float:
    """One pass of one token to its experts and back; what leaves the server goes through the GPU's own card."""
    ep = plan.layout.ep
    if ep <= 1:
        return 0.0
    size, inside = 2 * work.routed * 2, min(ep, plan.gpu.node_gpus)
    near = size * (inside - 1) / ep / (plan.gpu.link_bytes_s * links)
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
