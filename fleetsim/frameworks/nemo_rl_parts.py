"""NeMo-RL's GPUs, of the trainer, of generation and of models beside them, and how it trains. Sources: `nemo_rl.py`.

Which section holds generation's sizes: nemo_rl/models/generation, vllm/config.py, dynamo/config.py, trtllm/config.py,
sglang/config.py and megatron/config.py (`merged_inference_megatron_cfg`).
"""

from __future__ import annotations

from msgspec import Struct

from fleetsim.frameworks import recipe, roles
from fleetsim.frameworks.common import eager, engine_name, weights_type
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import NODE_GPUS, Read, nodes_of, on_nodes, one_of, parts_of, times

GENERATION = "policy.generation"
# Backend -> the section of generation with its sizes, and what tensor and pipeline ranks are called there.
_SIZES = {
    "sglang": ("sglang_cfg", "tp_size", "pp_size"),
    "trtllm": ("trtllm_cfg", "tensor_parallel_size", "pipeline_parallel_size"),
    "megatron": ("mcore_generation_config", "tensor_model_parallel_size", "pipeline_model_parallel_size"),
}
_OF_VLLM = ("vllm_cfg", "tensor_parallel_size", "pipeline_parallel_size")
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "dynamo": "vllm", "trtllm": "tensorrt-llm"}
_TEACHERS = "on_policy_distillation"


class Beside(Struct, frozen=True):
    """Of the cluster's nodes, those that neither train nor generate; of a single node, its GPUs. taught: teachers pass
    over every sample."""

    nodes: int
    gpus_of_one: int
    taught: bool


def put_beside(draft: Draft) -> Beside:
    """Reward models, teachers and what NeMo-Gym starts: grpo.py takes the nodes of the first two off the cluster."""
    per_node = draft.count("cluster.gpus_per_node", default=1).value
    single = draft.count("cluster.num_nodes", default=1).value == 1
    reward, nodes, gpus = "env.reward_model", 0, 0
    if draft.settings.has(f"{reward}.resources"):
        nodes = draft.count(f"{reward}.resources.num_nodes", default=1).value
        gpus = draft.count(f"{reward}.resources.gpus_per_node", default=1).value
        roles.judged(draft, f"{reward}.model_name: a reward model", gpus if single else nodes * per_node)
        nodes = 0 if single else nodes
    taught = draft.flag(f"{_TEACHERS}.enabled", default=False).value
    if taught:
        apart = f"{_TEACHERS}.non_colocated_teachers"
        models = {str(found[1]) for key in draft.settings.below(f"{_TEACHERS}.teacher_model_by_agent_name")
                  if (found := draft.settings.get(key)) is not None}  # fmt: skip
        own = draft.flag(f"{apart}.enabled", default=False).value
        each = draft.count(f"{apart}.default_teacher_cfg.num_nodes", default=1).value if own else 0
        nodes += each * max(1, len(models))
        roles.taught(draft, f"{_TEACHERS}: {max(1, len(models))} teachers", each * max(1, len(models)) * per_node)
        draft.settings.see(_TEACHERS)
    gym = draft.maybe_count("env.nemo_gym.num_gpu_nodes", least=0)
    if gym is not None and gym.value:
        roles.judged(draft, f"{gym.key}: judges of NeMo-Gym", gym.value * per_node)
    draft.settings.see(reward, "env.nemo_gym", "_teachers")
    return Beside(nodes, gpus if single else 0, taught)


def put_pools(draft: Draft, beside: Beside) -> None:
    """The trainer's GPUs, the instances and their engine."""
    nodes = _less(draft.count("cluster.num_nodes", default=1), beside.nodes)
    per_node = _less(draft.count("cluster.gpus_per_node", default=1), beside.gpus_of_one)
    if nodes.value < 1 or per_node.value < 1:
        rule = "are all taken by reward models and teachers"
        draft.refuse("cluster.num_nodes", f"{nodes}, {per_node}", rule, "have more nodes")
        nodes, per_node = Read(nodes.key, 1, True), Read(per_node.key, 1, True)
    backend = draft.text(f"{GENERATION}.backend", default="vllm")
    name, tensor, pipeline = _SIZES.get(backend.value, _OF_VLLM)
    section = f"{GENERATION}.{name}"
    # Megatron generates as it trains, but for what its own section says.
    trained = ["policy.megatron_cfg"] if backend.value == "megatron" else []
    tp, pp = (draft.count(*(f"{s}.{w}" for s in (section, *trained)), default=1) for w in (tensor, pipeline))
    draft.take("engine.tp", tp)
    draft.take("engine.pp", pp, unless=1)
    # nemo_rl/models/generation/vllm/vllm_generation.py: vllm_dp_size = ep_size // tp_size
    experts = f"{GENERATION}.vllm_cfg.expert_parallel_size"
    ep = draft.maybe_count(experts)
    if ep is not None and ep.value > tp.value:
        dp = draft.divided("the number of ranks that share the experts", ep, tp)
        draft.put("engine.dp", dp, ep, tp, why="ranks that share the experts", back=parts_of(ep, tp), unless=1)
    else:
        draft.could("engine.dp", 1, parts_of(Read(experts, 1, False), tp), 1)
    each = tp if pp.value == 1 else times(tp, pp)
    colocated = draft.flag(f"{GENERATION}.colocated.enabled", default=True)
    resources = f"{GENERATION}.colocated.resources"
    draft.either("fleet.placement", colocated, "colocated", "disaggregated")
    if colocated.value:
        gpus = on_nodes(nodes, per_node)
        draft.put("trainer.gpus", gpus.value, gpus)
    else:
        asked = [f"{resources}.{word}" for word in ("gpus_per_node", "num_nodes")]
        rollout_gpus, rollout_nodes = map(draft.maybe_count, asked)
        if nodes.value == 1:
            gpus = rollout = rollout_gpus or draft.needed_count(asked[0], remedy=f"-- {asked[0]}=4")
            left, why = per_node.value - rollout.value, "the node's GPUs less those of generation"
        else:
            rollout = rollout_nodes or draft.needed_count(asked[1], remedy=f"-- {asked[1]}=1")
            left, why = (nodes.value - rollout.value) * per_node.value, "the nodes that generation does not take"
            gpus = times(rollout, per_node)
        if left < 1:
            rule = f"leaves no GPU to training ({nodes}, {per_node})"
            draft.refuse(rollout.key, rollout.value, rule, "give it fewer")
        left, back = max(1, left), lambda want: _pools(want, gpus.value)
        draft.put("trainer.gpus", left, nodes, per_node, rollout, why=why, back=back)
    instances = draft.divided("the number of instances", gpus, each)
    way = parts_of(gpus, each) if colocated.value else lambda want: _pools(left, want * each.value)
    draft.put("fleet.instances", instances, gpus, each, back=way)
    engine_name(draft, backend, _ENGINES)
    _types(draft, section)
    if name in ("vllm_cfg", "sglang_cfg"):
        eager(draft, f"{section}.{'enforce_eager' if name == 'vllm_cfg' else 'disable_cuda_graph'}")
    word = "mem_fraction_static" if backend.value == "sglang" else "gpu_memory_utilization"
    share = draft.number(f"{section}.{word}", f"{GENERATION}.vllm_cfg.{word}", default=0.6, most=1.0)
    draft.put("engine.gpu_memory_utilization", share.value, share)
    draft.settings.see(*(f"{GENERATION}.{other}" for other, *_ in _SIZES.values() if other != name))
    draft.settings.see(resources, f"{section}.sglang_server_config")


def _less(read: Read[int], taken: int) -> Read[int]:
    """A number of the cluster without what is taken off it."""
    if not taken:
        return read
    back = lambda want: read.written(want + taken)  # noqa: E731 with them
    return Read(f"{read.key} {read.value} - {taken}", read.value - taken, read.given, back)


def _types(draft: Draft, section: str) -> None:
    """The engine's weights and KV cache: modelopt/models/generation/vllm_quant_worker.py. Without `real_quant`, a
    quantization is imitated in 16 bits."""
    quantized = draft.maybe_text(f"{GENERATION}.quant_cfg")
    if quantized is not None and draft.flag(f"{GENERATION}.real_quant", default=False).value:
        weights_type(draft, f"{GENERATION}.quant_cfg")
    else:
        own = section.endswith("trtllm_cfg")
        weights_type(draft, f"{section}.precision" if own else f"{GENERATION}.vllm_cfg.precision")
    if quantized is not None and "fp4" not in str(draft.values.get("engine.dtype")):
        why = f"{quantized} without real_quant: imitated in 16 bits"
        draft.assume("engine.dtype", draft.values.get("engine.dtype", "bfloat16"), why, "--set engine.dtype=nvfp4")
    cache = draft.maybe_text(f"{section}.kv_cache_dtype")
    if cache is not None and cache.value.startswith("fp8"):
        draft.put("engine.kv_dtype", "fp8", cache)


def _pools(trainer: int, rollout: int) -> dict[str, int] | None:
    """A cluster of a trainer and a rollout pool: one node for up to eight GPUs of both, else nodes of their own."""
    if trainer + rollout <= NODE_GPUS:
        nodes, each, rollout_nodes, rollout_each = 1, trainer + rollout, 1, rollout
    else:
        (train_nodes, rollout_nodes), each = nodes_of((trainer, rollout))
        nodes, rollout_each = train_nodes + rollout_nodes, each
    resources = f"{GENERATION}.colocated.resources"
    return {
        "cluster.num_nodes": nodes,
        "cluster.gpus_per_node": each,
        f"{resources}.num_nodes": rollout_nodes,
        f"{resources}.gpus_per_node": rollout_each,
    }


def put_recipe(draft: Draft) -> None:
    """The update: policy.dtensor_cfg (FSDP2), or policy.megatron_cfg where that is on."""
    megatron = draft.flag("policy.megatron_cfg.enabled", default=False)
    enabled = ("policy.megatron_cfg.enabled", "policy.dtensor_cfg.enabled")
    kinds = {"megatron": (True, False), "fsdp": (False, True)}
    back = one_of({kind: dict(zip(enabled, on, strict=True)) for kind, on in kinds.items()})
    if megatron.given:
        draft.put("trainer.recipe.backend", "megatron" if megatron.value else "fsdp", megatron, back=back, unless=None)
    else:
        draft.could("trainer.recipe.backend", None, back, None)
    section, other = ("policy.megatron_cfg", "policy.dtensor_cfg")[:: 1 if megatron.value else -1]
    if megatron.value:
        recipe.megatron(draft, f"{section}.")
        offload = f"{section}.optimizer.optimizer_cpu_offload"
    else:
        ranks = {"tp": "tensor", "cp": "context", "ep": "expert"}
        recipe.rows(draft, **{k: f"{section}.{word}_parallel_size" for k, word in ranks.items()})
        offload = f"{section}.cpu_offload"
    recipe.rows(
        draft,
        offload=(offload, {"true": "adam"}),
        recompute=(f"{section}.activation_checkpointing", False),
        packing=("policy.sequence_packing.enabled", True),
    )
    lora = f"{section}.peft" if megatron.value else f"{section}.lora_cfg"
    roles.adapters(draft, draft.flag(f"{lora}.enabled", default=False))
    if megatron.value and draft.flag(f"{section}.fp8_cfg.enabled", default=False).value:
        recipe.rows(draft, precision=(f"{section}.fp8_cfg.enabled", {"true": "fp8"}))
    quantized = draft.maybe_text("policy.quant_cfg")
    if quantized is not None:
        why = f"{quantized}: imitated in 16 bits, which takes longer"
        draft.assume("trainer.recipe.precision", "bf16", why, "--set trainer.fixed_s=SECONDS, from your own logs")
    draft.settings.see(other)
