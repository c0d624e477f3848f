"""The three times of a weight sync: as given, or derived by its transport (fleetsim.engine.transfer)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from fleetsim import units
from fleetsim.config.engine import EngineConfig
from fleetsim.config.exchange import GATHER_BYTES_S, SyncConfig
from fleetsim.config.pools import Backend, RecipeConfig
from fleetsim.config.scenario import Scenario
from fleetsim.engine.gpus import GpuSpec, gpu_of, gpu_spec
from fleetsim.engine.kv_memory import stage_bytes
from fleetsim.engine.layout import Layout, layout_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import precision_of
from fleetsim.engine.model.shape import ModelShape
from fleetsim.engine.operators.adapters import Adapters
from fleetsim.engine.transfer import TRANSPORTS, Stages, Transfer
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

# Larger models are trained with Megatron: gathering all their weights for each micro-batch costs more than tensor,
# pipeline and expert parallel ranks (NVIDIA-NeMo/RL discussion 1161 for 70B; SkyRL's docs for a mixture of 30B).
DENSE_FSDP, MIXTURE_FSDP = 40e9, 20e9
# What replicas of Megatron have each for itself: weights in 16 bits and gradients in 32.
COPY_BYTES = 6
# Without a transport and without a figure of the user.
PUBLISH_S, PAUSE_S, TRAINER_BLOCK_S = 0.0, 1.0, 1.0
# The three times, as they are told.
_TIMES = {"publish_s": "publish", "pause_s": "pause", "trainer_block_s": "trainer held"}


class SyncTimes(Struct, frozen=True):
    """Seconds of one weight sync.

    publish_s: from the update until the weights are there, engines at work. pause_s: engines stand still.
    trainer_block_s: the trainer waits, in parallel with both. derived: which of the three the transport gave. text:
    how, in words; empty without a transport.
    """

    publish_s: float
    pause_s: float
    trainer_block_s: float
    derived: tuple[str, ...] = ()
    text: str = ""

    @property
    def complete_s(self) -> float:
        """Until the engines serve the new weights and the trainer is free."""
        return max(self.publish_s + self.pause_s, self.trainer_block_s)

    def slower(self, factor: float) -> SyncTimes:
        """The same sync, `factor` times as long in all its parts."""
        return replace(self, **{name: factor * getattr(self, name) for name in _TIMES})


def sync_times(scenario: Scenario) -> SyncTimes:
    """The times of the scenario's weight sync: what the user gave stands, the transport gives the rest.

    Raises InputError where a transport needs the size of a model that is not known.
    """
    sync = scenario.sync
    if sync.transport is None:
        return _pinned(sync, Stages(PUBLISH_S, PAUSE_S, TRAINER_BLOCK_S, ""), (), "")
    transfer = transfer_of(scenario)
    stages = TRANSPORTS[sync.transport](transfer)
    derived = tuple(name for name in _TIMES if getattr(sync, name) is None)
    return _pinned(sync, stages, derived, _words(sync.transport, transfer, stages))


def syncs_between(scenario: Scenario, fleets: Iterable[tuple[int, int]]) -> list[SyncTimes]:
    """The same with so many instances and trainer GPUs in the place of its own, each pair; without words.

    What a transport has to move is worked out once. Raises as `sync_times` does.
    """
    sync = scenario.sync
    if sync.transport is None:
        return [sync_times(scenario) for _ in fleets]
    moved = replace(transfer_of(scenario), instances=0, trainer_gpus=0)  # the same for all fleets
    stages = _stages_between(sync.transport, moved, tuple(fleets))
    return [_pinned(sync, each, (), "") for each in stages]


@lru_cache(maxsize=64)
def _stages_between(transport: str, moved: Transfer, fleets: tuple[tuple[int, int], ...]) -> list[Stages]:
    """The stages of each fleet: a plan asks for the same ones at each staleness."""
    return [TRANSPORTS[transport](replace(moved, instances=n, trainer_gpus=gpus)) for n, gpus in fleets]


def _pinned(sync: SyncConfig, stages: Stages, derived: tuple[str, ...], text: str) -> SyncTimes:
    """The times of the stages, but for those that the file gives."""
    times = {name: getattr(stages if getattr(sync, name) is None else sync, name) for name in _TIMES}
    return SyncTimes(**times, derived=derived, text=text)


def transfer_of(scenario: Scenario) -> Transfer:
    """What the scenario's transport has to move, with everything that the file leaves to models and data sheets.

    Raises InputError with everything that is not known.
    """
    s, link = scenario, scenario.sync.link
    problems: list[Problem] = []
    shape = None
    if link.model_bytes is None or link.tensors is None:
        shape = _shape(s, problems)
    try:
        gpu = known_gpu(s.engine)
        node_gpus, link_bytes_s = link.node_gpus or gpu.node_gpus, link.link_bytes_s or gpu.link_bytes_s
        memory: float = gpu.memory_bytes
    except InputError as error:
        node_gpus, link_bytes_s, memory = link.node_gpus or 8, link.link_bytes_s or 0.0, math.inf
        if link.node_gpus is None or link.link_bytes_s is None:
            problems += [
                Problem("engine.gpu", p.value, p.rule, f"{p.remedy}; or give link.node_gpus and link.link_bytes_s")
                for p in error.problems
            ]
    # Beside given sizes nobody has to know the model; then its weights are taken to travel in 16 bits.
    dtype, element = s.engine.dtype, 2.0
    try:
        dtype = shape.weights_type(dtype) if shape else dtype
        element = 2.0 if dtype == "auto" else precision_of(dtype).weight_bytes
    except InputError as error:
        problems += [Problem("engine.dtype", p.value, p.rule, p.remedy) for p in error.problems]
    if problems:
        raise InputError(problems)
    model_bytes, tensors = link.model_bytes, link.tensors
    lora = s.engine.lora
    if shape is not None and lora is not None:
        adapters = Adapters(lora.rank, experts=lora.experts)
        model_bytes, tensors = model_bytes or round(adapters.bytes_each(shape)), tensors or adapters.tensors(shape)
    elif shape is not None:
        model_bytes = model_bytes or _weight_bytes(shape, dtype)
        tensors = tensors or checkpoint_tensors(shape)
    assert model_bytes is not None
    assert tensors is not None
    source = link.source or ("gather" if s.sync.transport == "collective_broadcast" else "sharded")
    backend = s.trainer.recipe.backend
    if backend is None:
        unknown: Backend = "fsdp" if model_bytes <= DENSE_FSDP * element else "megatron"
        backend = backend_for(shape) if shape else unknown
    return Transfer(
        model_bytes=model_bytes,
        element_bytes=element,
        tensors=tensors,
        loaded=tensors if shape is None or lora is not None else _loaded(s.engine, shape, tensors),
        trainer_gpus=s.trainer.gpus,
        copy_gpus=_copy_gpus(s.trainer.recipe, model_bytes / element, memory) if backend == "megatron" else None,
        instances=s.fleet.instances,
        tp=s.engine.gpus,
        gpu_bytes=model_bytes * _kept(s.engine, shape, dtype),
        node_gpus=node_gpus,
        link_bytes_s=link_bytes_s,
        colocated=s.fleet.placement == "colocated",
        link=link.model_copy(
            update={
                "source": source,
                "stages": link.stages or s.trainer.recipe.pp or 1,
                "gather_bytes_s": link.gather_bytes_s or GATHER_BYTES_S[backend],
            }
        ),
    )


def backend_for(shape: ModelShape) -> Backend:
    """What a team would train it with where nobody says."""
    limit = DENSE_FSDP if shape.mixture is None else MIXTURE_FSDP
    return "fsdp" if shape.params <= limit else "megatron"


def _copy_gpus(recipe: RecipeConfig, weights: float, memory: float) -> int:
    """Megatron's GPUs that share one copy: the ranks that are given, and no fewer than hold it with its gradients."""
    ranks = (recipe.pp or 1) * max(recipe.tp or 1, recipe.ep or 1)
    return max(ranks, math.ceil(COPY_BYTES * weights / memory))


def _layouts(engine: EngineConfig) -> list[Layout]:
    """Those of the engines that decode and of those that compute prompts."""
    apart = engine.disaggregation
    prefill = [] if apart is None else [Layout(engine.prefill_tp, dp=apart.prefill_dp, exchange=engine.expert_exchange)]
    return [layout_of(engine), *prefill]


def _loaded(engine: EngineConfig, shape: ModelShape, tensors: int) -> int:
    """Tensors that a rank keeps a part of: all; but of experts that are dealt out to ranks only its own."""
    sharing = min(layout.sharing if layout.dp > 1 else 1 for layout in _layouts(engine))
    experts = sum(count * mixture.expert_tensors for count, mixture in shape.mixtures)
    return tensors - round(min(experts, tensors) * (1 - 1 / sharing))


def _kept(engine: EngineConfig, shape: ModelShape | None, dtype: str) -> float:
    """The share of all weights that the fullest GPU of an instance keeps; of an unknown model an even one."""
    if shape is None:
        return 1 / min(layout.gpus for layout in _layouts(engine))
    fullest = max(_fullest(shape, layout, engine.name, dtype) for layout in _layouts(engine))
    return fullest / _weight_bytes(shape, dtype)


# Both are remembered: a search asks for the same engine thousands of times.
@lru_cache(maxsize=256)
def _fullest(shape: ModelShape, layout: Layout, engine: str, dtype: str) -> float:
    """Bytes of weights on the fullest GPU."""
    return max(stage_bytes(shape, layout, engine, dtype))


@lru_cache(maxsize=256)
def _weight_bytes(shape: ModelShape, dtype: str) -> int:
    """Bytes of all weights."""
    return shape.weight_bytes(dtype)


def checkpoint_tensors(shape: ModelShape) -> int:
    """Weight tensors of the model's Hugging Face checkpoint: experts and projections apart, as they are sent.

    Source: the tensor names of the published checkpoints. Qwen3-30B-A3B: 18,867.
    """
    layers = sum(b.count * (1 + part.tensors) for b in shape.blocks for part in (b.mixer, b.mlp) if part is not None)
    return layers + (2 if shape.tied_embeddings else 3)


def known_gpu(engine: EngineConfig) -> GpuSpec:
    """The data sheet; a profile has its name from the driver ("NVIDIA H100 80GB HBM3"), so the chip may do."""
    try:
        return gpu_of(engine)
    except InputError:
        name = engine.gpu
        chip = re.search(r"[a-z]+[0-9]+[a-z]*", name.lower())
        if chip is None or chip[0] == name.lower():
            raise
        try:
            return gpu_spec(chip[0])
        except InputError:
            return gpu_spec(name)  # the name as it was given is what the error should tell


def _shape(s: Scenario, problems: list[Problem]) -> ModelShape | None:
    """The model's shape, or a problem: unknown, or only a default beside an engine that is known by its speed."""
    remedy = "give sync.link.model_bytes and sync.link.tensors"
    if s.engine.kind != "roofline" and "model" not in s.engine.model_fields_set:
        rule = f"transport {s.sync.transport} needs the model's size, and engine.kind {s.engine.kind} names no model"
        problems.append(Problem("sync.link.model_bytes", None, rule, f"{remedy}, or engine.model"))
        return None
    try:
        return model_shape(s.engine.model)
    except InputError as error:
        problems += [Problem("engine.model", p.value, p.rule, f"{p.remedy}; or {remedy}") for p in error.problems]
        return None


def _words(transport: str, t: Transfer, stages: Stages) -> str:
    """ "15.2 GB in 339 tensors (collective_broadcast), most of it gathering"."""
    size = f"{t.model_bytes / 1e9:,.1f} GB in {t.tensors:,} tensors"
    if transport == "sparse_delta":
        size = f"{t.changed_bytes / 1e9:,.2f} GB that changed, of {size}"
    return f"{size} ({transport}), most of it {stages.slowest}"


def sync_words(times: SyncTimes) -> str:
    """Which times were derived, and from what; empty where none was."""
    if not times.derived:
        return ""
    said = (f"{_TIMES[name]} {units.seconds(getattr(times, name))}" for name in times.derived)
    return f"weight sync: {', '.join(said)}: from {times.text}"
