"""What a weight sync takes, transport by transport, from bytes, bandwidths and the number of tensors.

Stages that run side by side, bucket by bucket, overlap: the slowest counts. Stages that take turns add up.
docs/transports.md holds every one of them against published seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct

from fleetsim.config.exchange import LinkConfig


class Transfer(Struct, frozen=True):
    """One sync's job: how much moves between how many GPUs.

    model_bytes: all weights as they travel. element_bytes: of one weight. tensors: of the checkpoint. loaded: those of
    them that a rank of an engine keeps a part of; it passes over experts of other ranks. trainer_gpus, instances, tp:
    GPUs that send, engines that receive, GPUs of each (all stages together). copy_gpus: of the trainer's GPUs, those
    that share one copy of the weights; None = all do, and gather together. gpu_bytes: what a GPU of an engine keeps of
    the weights. node_gpus: GPUs of a server. link_bytes_s: from a GPU to its peers. colocated: trainer and engines
    share the GPUs.
    """

    model_bytes: float
    element_bytes: float
    tensors: int
    loaded: int
    trainer_gpus: int
    copy_gpus: int | None
    instances: int
    tp: int
    gpu_bytes: float
    node_gpus: int
    link_bytes_s: float
    colocated: bool
    link: LinkConfig

    @property
    def rollout_nodes(self) -> int:
        """Servers that the engines fill."""
        return math.ceil(self.instances * self.tp / self.node_gpus)

    @property
    def trainer_nodes(self) -> int:
        """Servers that the trainer fills."""
        return math.ceil(self.trainer_gpus / self.node_gpus)

    @property
    def in_one_node(self) -> bool:
        """Whether nothing leaves a server."""
        both = self.instances * self.tp if self.colocated else self.instances * self.tp + self.trainer_gpus
        return both <= self.node_gpus

    @property
    def peers_bytes_s(self) -> float:
        """Between the GPUs of a node, one of them."""
        return self.link_bytes_s * self.link.efficiency

    @property
    def nic_bytes_s(self) -> float:
        """Through one GPU's network card."""
        return self.link.nic_bytes_s * self.link.efficiency

    @property
    def node_bytes_s(self) -> float:
        """Into a node whose cards share the work and hand round what they got."""
        cards = min(self.node_gpus, self.instances * self.tp, self.trainer_gpus)
        return min(cards * self.nic_bytes_s, self.peers_bytes_s)

    @property
    def gather_s(self) -> float:
        """Full tensors put together on one rank, or a stage of them on each; 0 where every rank sends its own share."""
        if self.link.source == "stage":
            assert self.link.stages is not None  # by the trainer's recipe
            return 2.0 / self.element_bytes * self.model_bytes / self.link.stages / self.nic_bytes_s
        if self.link.source != "gather":
            return 0.0
        assert self.link.gather_bytes_s is not None  # by the trainer's backend
        return self.model_bytes / self.link.gather_bytes_s

    @property
    def offload_s(self) -> float:
        """The trainer's weights back from host memory, all its GPUs at once."""
        per_gpu = self.model_bytes / self.trainer_gpus
        return per_gpu / self.link.offload_bytes_s if self.link.offloaded else 0.0

    @property
    def load_s(self) -> float:
        """The engine's loader, tensor by tensor."""
        return self.loaded * self.link.tensor_s if self.link.load == "per_tensor" else 0.0

    @property
    def calls_s(self) -> float:
        """A call for each tensor; 0 where calls are batched."""
        return self.tensors * self.link.call_s if self.link.calls == "per_tensor" else 0.0

    @property
    def host_to_gpu_s(self) -> float:
        """Each GPU of an instance its slice, from the host's memory."""
        return self.gpu_bytes / (self.link.pcie_bytes_s * self.link.efficiency)

    @property
    def changed_bytes(self) -> float:
        """Positions and values of the weights that changed, never more than the model itself."""
        share = self.link.changed_share * (self.element_bytes + self.link.index_bytes) / self.element_bytes
        return min(share, 1.0) * self.model_bytes

    def written_s(self, size: float, writers: int) -> float:
        """`size` bytes into shared storage by so many nodes."""
        return size / min(writers * self.link.storage_write_bytes_s, self.link.storage_total_bytes_s or math.inf)

    def read_s(self, size: float) -> float:
        """`size` bytes out of shared storage, by every rollout node."""
        share = (self.link.storage_total_bytes_s or math.inf) / self.rollout_nodes
        return size / min(self.link.storage_read_bytes_s, share)


class Stages(Struct, frozen=True):
    """Seconds of one sync: publish with the engines at work, pause without, and what the trainer waits for.

    slowest: the stage that takes most of it, in words.
    """

    publish_s: float
    pause_s: float
    trainer_block_s: float
    slowest: str


def _slowest(stages: dict[str, float]) -> str:
    return max(stages, key=lambda name: stages[name])


def _together(t: Transfer, stages: dict[str, float], seconds: float) -> Stages:
    """Trainer and engines both stand still for all of it."""
    fixed = {"latency": t.link.latency_s, "offloaded weights": t.offload_s, "a call per tensor": t.calls_s}
    total = sum(fixed.values()) + seconds
    return Stages(0.0, total, total, _slowest({**stages, **fixed}))


def _into_engines(t: Transfer, gathering: float, bringing: float, name: str) -> Stages:
    """Gathered and brought in bucket by bucket, side by side; loaded meanwhile if pipelined, else in turns."""
    brought = max(gathering, bringing)
    seconds = max(brought, t.load_s) if t.link.pipelined else brought + t.load_s
    return _together(t, {"gathering": gathering, name: bringing, "loading": t.load_s}, seconds)


def collective_broadcast(t: Transfer) -> Stages:
    """Everything to everyone, in buckets.

    One sending rank is held to its own card; ranks that all send use all cards of a node (verl issue 7167 measured
    both). While one bucket is sent the next is gathered (verl issue 7060: hardly any waiting for the wire).
    """
    rate = t.peers_bytes_s
    if not t.in_one_node:
        rate = min(rate, t.nic_bytes_s) if t.link.source == "gather" else t.node_bytes_s
    return _into_engines(t, t.gather_s, t.model_bytes / rate, "sending")


def rdma_p2p(t: Transfer) -> Stages:
    """Every GPU of an instance fetches its slice, or all weights, through its own card, then the engine loads it.

    Stages are collected before anything is fetched (radixark/miles, update_weight_from_remote).
    """
    rate = t.peers_bytes_s if t.in_one_node else t.nic_bytes_s
    fetching = (t.model_bytes if t.link.fetch == "whole" else t.gpu_bytes) / rate
    if t.link.source == "stage":
        return _into_engines(t, 0.0, t.gather_s + fetching, "collecting stages")
    return _into_engines(t, t.gather_s, fetching, "fetching")


def cuda_ipc(t: Transfer) -> Stages:
    """Shards gathered on every one of the GPUs that trainer and engine share, passed as handles, loaded.

    Ranks of Megatron receive what other stages and expert ranks hold, each through its own card
    (NVIDIA-NeMo/RL, megatron_policy_worker.py, `export_hf_weights`); one collective of all uses every card of a server.
    """
    if min(t.copy_gpus or t.trainer_gpus, t.trainer_gpus) <= t.node_gpus:
        rate = t.peers_bytes_s
    else:
        rate = t.node_bytes_s if t.copy_gpus is None else min(t.nic_bytes_s, t.peers_bytes_s)
    return _into_engines(t, t.gather_s, t.model_bytes / rate, "collecting shards")


def checkpoint_shuttle(t: Transfer) -> Stages:
    """A checkpoint written to shared storage, read by every rollout node, loaded.

    The trainer goes on once it is written. With `prefetch` a node has its copy before its engines pause.
    """
    writers = 1 if t.link.source == "gather" else t.trainer_nodes
    write = t.offload_s + max(t.gather_s, t.written_s(t.model_bytes, writers))
    read = t.read_s(t.model_bytes)
    copy = {"copying to the GPUs": t.host_to_gpu_s, "loading": t.load_s}
    if not t.link.prefetch:
        copy["reading"] = read
    publish = write + t.link.storage_latency_s + (read if t.link.prefetch else 0.0)
    pause = t.link.latency_s + t.calls_s + max(copy.values())
    return Stages(publish, pause, write, _slowest({"writing": write, "reading": read, **copy}))


def sparse_delta(t: Transfer) -> Stages:
    """Only what changed, as positions and values; found, packed and applied at delta_bytes_s.

    Over the network trainer and engines wait for all of it; through storage only for their own part.
    """
    pack, size = t.changed_bytes / t.link.delta_bytes_s, t.changed_bytes
    if t.link.delta_over == "network":
        send = size / (t.peers_bytes_s if t.in_one_node else t.nic_bytes_s)
        stages = {"packing": max(t.gather_s, pack), "sending": send, "loading": t.load_s}
        return _together(t, stages, max(t.gather_s, pack, send) + t.load_s)
    write = t.offload_s + max(t.gather_s, pack) + t.written_s(size, 1)
    read = t.read_s(size)
    publish = write + t.link.storage_latency_s + (read if t.link.prefetch else 0.0)
    pause = t.link.latency_s + t.calls_s + t.load_s + (0.0 if t.link.prefetch else read)
    return Stages(publish, pause, write, _slowest({"writing": write, "reading": read, "loading": t.load_s}))


def relay(t: Transfer) -> Stages:
    """Handed to relay workers in host memory, passed along the rollout nodes in a chain, pulled over PCIe (Laminar).

    The trainer waits for the hand-over only, engines for their own pull.
    """
    push = t.offload_s + max(t.gather_s, t.model_bytes / t.link.relay_bytes_s)
    rate = t.nic_bytes_s * min(t.node_gpus, t.instances * t.tp)
    chain = (t.model_bytes + (t.rollout_nodes - 1) * t.link.chunk_bytes) / rate
    pull = {"pulling over PCIe": t.host_to_gpu_s, "loading": t.load_s}
    pause = t.link.latency_s + t.calls_s + max(pull.values())
    return Stages(push + chain, pause, push, _slowest({"handing over": push, "the relay chain": chain, **pull}))


TRANSPORTS: dict[str, Callable[[Transfer], Stages]] = {
    f.__name__: f for f in (collective_broadcast, rdma_p2p, cuda_ipc, checkpoint_shuttle, sparse_delta, relay)
}
