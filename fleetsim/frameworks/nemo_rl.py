"""NeMo-RL (NVIDIA-NeMo/RL at 7ea279abf): GRPO synchronous, asynchronous, and under the single controller.

Names: examples/configs/grpo_math_1B.yaml, whose values are the defaults of a file that builds on it (`defaults:`), and
grpo_math_1B_megatron_single_controller.yaml; what they do: nemo_rl/algorithms/grpo.py (GPU split, L753 and following),
async_utils/trajectory_collector.py, replay_buffer.py and staleness_sampler.py. Which section holds generation's sizes:
nemo_rl/models/generation, vllm/config.py, dynamo/config.py, trtllm/config.py, sglang/config.py and megatron/config.py
(`merged_inference_megatron_cfg`).
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim.frameworks import common, micro_batch, roles
from fleetsim.frameworks.draft import Draft, ServedModel
from fleetsim.frameworks.reading import NODE_GPUS, Read, above_0, nodes_of, on_nodes, one_of, parts_of, times, writes
from fleetsim.frameworks.sides import vllm_drafts
from fleetsim.frameworks.tables import entry_point_of, most_in_flight, put_rows

SAMPLERS = ("in_order", "ready_first", "weight_fifo", "windowed")
GENERATION = "policy.generation"
# Backend -> the section of generation with its sizes, and what tensor and pipeline ranks are called there.
_SIZES = {
    "sglang": ("sglang_cfg", "tp_size", "pp_size"),
    "trtllm": ("trtllm_cfg", "tensor_parallel_size", "pipeline_parallel_size"),
    "megatron": ("mcore_generation_config", "tensor_model_parallel_size", "pipeline_model_parallel_size"),
}
_OF_VLLM = ("vllm_cfg", "tensor_parallel_size", "pipeline_parallel_size")
_TEACHERS, _SAMPLER = "on_policy_distillation", "async_rl.sampler."


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from NeMo-RL's keys."""
    based = bool(draft.settings.parents)
    put_rows(draft, "model")
    prompts = _counted(draft, "grpo.num_prompts_per_step", 32, based)
    n = _counted(draft, "grpo.num_generations_per_prompt", 16, based)
    draft.take("workload.group_size", n)
    samples = draft.product("trainer.batch_samples", prompts, n, why="prompts x responses")
    update = draft.maybe_count("policy.train_global_batch_size")
    common.optimizer_steps(draft, samples, update, "policy.train_global_batch_size")
    one = update is None or draft.values.get("trainer.recipe.optimizer_steps", 1) == 1
    with_it = lambda want: {"policy.train_global_batch_size": want} if one else None  # noqa: E731 one update's batch
    draft.could("trainer.batch_samples", samples.value, with_it)
    whole, most = draft.maybe_count("policy.max_total_sequence_length"), f"{GENERATION}.max_new_tokens"
    answer = draft.maybe_count(most) or whole
    turns, gym = _turns(draft)
    # What is generated and its prompt share the whole length.
    output = answer or Read(most, 512, False)
    several = gym or (turns is not None and turns.value > 1)
    output = roles.trajectory(
        draft, output, turns, whole if several else None, "policy.max_total_sequence_length", several=gym
    )
    if not several and output.key != most:
        output = Read(output.key, output.value, output.given, writes(most))
    cap = draft.maybe_count("data.max_input_seq_length")
    if cap is not None and (answer is None or (whole is not None and cap.value >= whole.value)):
        cap = None
    common.lengths(draft, output, cap, prompt_key="data.max_input_seq_length")
    prompt = draft.settings.get("data.max_input_seq_length")
    longest = output.value + (int(prompt[1]) if prompt is not None and str(prompt[1]).isdigit() else 0)
    draft.could(common.OUTPUT_CAP, output.value, lambda want: {"policy.max_total_sequence_length": longest})
    taken, taught = _put_beside(draft)
    _put_pools(draft, taken)
    if draft.settings.has("async_rl"):
        _single_controller(draft, prompts, n)
    elif draft.flag("grpo.async_grpo.enabled", default=False).value:
        _async(draft, prompts, n)
    else:
        draft.mode, draft.preset = "synchronous", "nemo-rl-sync"
        put_rows(draft, "synchronous")
    _limits(draft)
    put_rows(draft, "requests")
    # grpo.py, dynamic_sampling
    drops, over = draft.flag("grpo.use_dynamic_sampling", default=False), "grpo.batch_multiplier"
    common.filtering(draft, drops, draft.number(over, default=1.0))
    _transport(draft)
    penalty = draft.number("loss_fn.reference_policy_kl_penalty", default=0.01)
    # opd.py, _skip_prev_logprobs: of one update on its own samples the ratio is 1
    one_ratio = draft.flag("loss_fn.force_on_policy_ratio", default=False)
    needed = draft.maybe_number("grpo.seq_logprob_error_threshold") is not None
    with_old = lambda want: {one_ratio.key: not want} if (one or want) and not needed else None  # noqa: E731
    old, reference = Read(one_ratio.key, needed or not one_ratio.value, True, with_old), above_0(penalty, 0.01)
    common.hardware_and_times(draft, speed, old, reference, taught=taught, called="policy log-probs")
    _put_recipe(draft)
    own = draft.text("data.default.env_name", "data.train.env_name", "data.env_name", default="math")
    pool = f"env.{own.value}.num_workers"
    roles.workers(draft, "reward", [draft.maybe_count(pool)], pool)


def _transport(draft: Draft) -> None:
    """How a refit travels (docs/guides/weight-refit.md, docs/guides/checkpoint-engine-refit.md)."""
    way = draft.maybe_text(f"{GENERATION}.refit_transport")
    put_rows(draft, "refit")
    if draft.values.get("fleet.placement") == "colocated":
        return
    word = "" if way is None else way.value.lower()
    if word == "nccl_reshard":
        put_rows(draft, word)
    elif word == "nixl":
        sliced = draft.flag(f"{GENERATION}.refit_cfg.nixl.shard_expert_weights", default=False)
        fetch = "slice" if sliced.value else "whole"
        draft.put("sync.link.fetch", fetch, sliced, why="of the experts", unless="slice")
    elif draft.values.get("sync.transport") == "collective_broadcast":
        put_rows(draft, "packed")


def _turns(draft: Draft) -> tuple[Read[int] | None, bool]:
    """The turns of a trajectory, and whether NeMo-Gym's agents take them: `max_rollout_turns` then says nothing."""
    gym = draft.flag("env.should_use_nemo_gym", default=False).value
    own = [k for k in draft.settings.below("env.nemo_gym") if k.endswith(("max_turns", "max_steps"))]
    found = [read for read in map(draft.maybe_count, own) if read is not None]
    turns = max(found, key=lambda read: read.value, default=None)
    if not gym:
        turns = draft.count("grpo.max_rollout_turns", default=1)
    roles.put_turns(draft, turns, "grpo.max_rollout_turns", "env.should_use_nemo_gym: agents" if gym else "")
    return turns, gym


def _counted(draft: Draft, key: str, example: int, based: bool) -> Read[int]:
    remedy = f"-- {key}={example}, or name the file it builds on under defaults:"
    return draft.needed_count(key, remedy=remedy, usual=based * example)


def _limits(draft: Draft) -> None:
    """Limits and prefix cache: nemo_rl/models/generation/vllm, vllm_worker.py and vllm_worker_async.py, vLLM 0.25.1.

    grpo.py demands the asynchronous engine of asynchronous training.
    """
    if draft.values.get("engine.name", "vllm") != "vllm":
        return
    engine = draft.flag(f"{GENERATION}.vllm_cfg.async_engine", default=False)
    training = draft.flag("grpo.async_grpo.enabled", default=False).value or draft.settings.has("async_rl")
    beside = engine.value or training
    started = "AsyncLLM.from_engine_args" if beside else "vllm.LLM"
    common.entry_point(draft, entry_point_of("nemo-rl", asynchronous=beside), started)
    put_rows(draft, "limits", f"{GENERATION}.vllm_kwargs.")
    trained = draft.flag("policy.draft.enabled", default=False)
    vllm_drafts(draft, f"{GENERATION}.vllm_kwargs.speculative_config.", trained)


def _async(draft: Draft, prompts: Read[int], n: Read[int]) -> None:
    draft.mode, draft.preset = "async_grpo", "nemo-rl-async-grpo"
    age = put_rows(draft, "async_grpo")["admission.max_staleness"]
    draft.put("buffer.capacity_samples", 2 * age.value * prompts.value * n.value, age, prompts, n, why="twice the age")
    most = most_in_flight("nemo-rl", "target_step", prompts.value * n.value, age.value)
    if most is not None:
        draft.put("fleet.max_in_flight_samples", most, age, prompts, n, why="the age; main has none since 2026-07-21")
        put_rows(draft, "in flight")
    keeps = draft.flag("grpo.async_grpo.in_flight_weight_updates", default=False)
    recompute = draft.flag("grpo.async_grpo.recompute_kv_cache_after_weight_updates", default=False)
    policy = ("keep_recompute" if recompute.value else "keep") if keeps.value else "drain"
    words = {"drain": (False, False), "keep": (True, False), "keep_recompute": (True, True)}
    table = {name: {keeps.key: a, recompute.key: b} for name, (a, b) in words.items()}
    draft.put("sync.in_flight", policy, keeps, recompute, back=one_of(table))


def _single_controller(draft: Draft, prompts: Read[int], n: Read[int]) -> None:
    sampler = draft.choice("async_rl.sampler.name", default="windowed", known=SAMPLERS)
    draft.mode, draft.preset = f"single controller, {sampler.value}", f"nemo-rl-sc-{sampler.value.replace('_', '-')}"
    buffered = draft.count("async_rl.max_buffered_rollouts", default=2 * prompts.value)
    in_flight = draft.count("async_rl.max_inflight_prompts", default=prompts.value)
    draft.product("fleet.max_in_flight_samples", in_flight, n)
    put_rows(draft, "in flight")
    failure, again = "async_rl.rollout_failure", "a time-out is sent again, the whole group of it there"
    roles.limited(draft, "turn", draft.maybe_number(f"{failure}.native.generation_timeout_s"), "retried", again)
    roles.limited(draft, "tools", draft.maybe_number(f"{failure}.native.env_timeout_s"), "retried", again)
    roles.limited(draft, "episode", draft.maybe_number(f"{failure}.nemo_gym.rollout_timeout_s"), "retried", again)
    if sampler.value == "windowed":
        put_rows(draft, "windowed")
        ahead = max(1, buffered.value // prompts.value)
        draft.put("admission.batches_ahead", ahead, buffered, prompts, back=parts_of(buffered, prompts))
        put_rows(draft, "evicted", _SAMPLER)
    else:
        put_rows(draft, "in_order" if sampler.value == "in_order" else "version window", _SAMPLER)
        held = max(buffered.value, prompts.value) * n.value
        draft.put("buffer.capacity_samples", held, buffered, n, back=times(buffered, n).written)
    if sampler.value == "weight_fifo":
        put_rows(draft, "weight_fifo", _SAMPLER)
    rules = {"in_order": "exact_target_step", "weight_fifo": "oldest_version_first"}
    draft.semantics("buffer.batch_rule", rules.get(sampler.value, "fifo"), "how the sampler selects")
    streamed = draft.count(key := "async_rl.min_groups_for_streaming_train", default=prompts.value)

    def parts(want: int) -> dict[str, int] | None:
        return None if prompts.value % want else {key: prompts.value // want}

    value = draft.divided("the streamed parts", prompts, streamed) if streamed.value < prompts.value else 1
    draft.where(value > 1, "trainer.minibatches", value, prompts, streamed, now=1, back=parts, unless=1)
    put_rows(draft, "updates")


def _put_beside(draft: Draft) -> tuple[dict[str, int], bool]:
    """Reward models, teachers and what NeMo-Gym starts: grpo.py takes the nodes of the first two off the cluster, or
    their GPUs off its only node; how many of either, and whether teachers pass on the trainer's GPUs."""
    per_node = draft.count("cluster.gpus_per_node", default=1).value
    single = draft.count("cluster.num_nodes", default=1).value == 1
    reward, nodes, gpus = "env.reward_model", 0, 0
    if draft.settings.has(f"{reward}.resources"):
        nodes = draft.count(f"{reward}.resources.num_nodes", default=1).value
        gpus = draft.count(f"{reward}.resources.gpus_per_node", default=1).value
        by = roles.served(draft, (f"{reward}.model_name",), (f"{reward}.dtensor_cfg.tensor_parallel_size",), 1)
        roles.judged(draft, f"{reward}.model_name: a reward model", gpus if single else nodes * per_node, by)
        nodes = 0 if single else nodes
    taught = draft.flag(f"{_TEACHERS}.enabled", default=False).value
    if taught:
        apart = f"{_TEACHERS}.non_colocated_teachers"
        models = {str(found[1]) for key in draft.settings.below(f"{_TEACHERS}.teacher_model_by_agent_name")
                  if (found := draft.settings.get(key)) is not None}  # fmt: skip
        own = draft.flag(f"{apart}.enabled", default=False).value
        usual = f"{apart}.default_teacher_cfg"
        each = draft.count(f"{usual}.num_nodes", default=1).value if own else 0
        nodes += each * max(1, len(models))
        parts = [f"{usual}.{kind}_parallel_size" for kind in ("tensor_model", "pipeline_model", "context")]
        ranks = times(*(draft.count(part, default=1) for part in parts)).value
        for model in sorted(models) or [""]:
            by = ServedModel(common.model_name(model), ranks)
            roles.taught(draft, f"{_TEACHERS}: {model or 'a teacher'}", each * per_node, by)
        draft.settings.see(_TEACHERS)
        taught = not own
    gym = draft.maybe_count("env.nemo_gym.num_gpu_nodes", least=0)
    if gym is not None and gym.value:
        roles.judged(draft, f"{gym.key}: judges of NeMo-Gym", gym.value * per_node)
    draft.settings.see(reward, "env.nemo_gym", "_teachers")
    return {"num_nodes": nodes, "gpus_per_node": gpus if single else 0}, taught


def _put_pools(draft: Draft, taken: Mapping[str, int]) -> None:
    """The trainer's GPUs, the instances and their engine. taken: by others, of the cluster's nodes and of a node."""
    nodes, per_node = (draft.count(f"cluster.{word}", default=1).plus(-n) for word, n in taken.items())
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
    ep, why = draft.count(experts, default=1), "ranks that share the experts"
    dp = draft.divided(f"the number of {why}", ep, tp) if ep.value > tp.value else 1
    draft.where(dp > 1, "engine.dp", dp, ep, tp, now=1, why=why, back=parts_of(ep, tp), unless=1)
    each = tp if pp.value == 1 else times(tp, pp)
    colocated = draft.flag(f"{GENERATION}.colocated.enabled", default=True)
    resources = f"{GENERATION}.colocated.resources"
    put_rows(draft, "placement")
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
        left, whole = max(1, left), -(-gpus.value // each.value) * each.value  # an engine that has grown has its GPUs
        back = lambda want: _pools(want, whole)  # noqa: E731 beside the engines
        draft.put("trainer.gpus", left, nodes, per_node, rollout, why=why, back=back)
    instances = draft.divided("the number of instances", gpus, each)
    way = parts_of(gpus, each) if colocated.value else lambda want: _pools(left, want * each.value)
    draft.put("fleet.instances", instances, gpus, each, back=way)
    put_rows(draft, "engine name")
    _types(draft, section)
    if name in ("vllm_cfg", "sglang_cfg"):
        put_rows(draft, f"graphs of {name}")
    word = "mem_fraction_static" if backend.value == "sglang" else "gpu_memory_utilization"
    share = draft.number(f"{section}.{word}", f"{GENERATION}.vllm_cfg.{word}", default=0.6, most=1.0)
    draft.put("engine.gpu_memory_utilization", share.value, share)
    draft.settings.see(*(f"{GENERATION}.{other}" for other, *_ in _SIZES.values() if other != name))
    draft.settings.see(resources, f"{section}.sglang_server_config")


def _types(draft: Draft, section: str) -> None:
    """The engine's weights and KV cache: modelopt/models/generation/vllm_quant_worker.py. Without `real_quant`, a
    quantization is imitated in 16 bits."""
    quantized = draft.maybe_text(f"{GENERATION}.quant_cfg")
    if quantized is not None and draft.flag(f"{GENERATION}.real_quant", default=False).value:
        common.weights_type(draft, f"{GENERATION}.quant_cfg")
    else:
        own = section.endswith("trtllm_cfg")
        common.weights_type(draft, f"{section}.precision" if own else f"{GENERATION}.vllm_cfg.precision")
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


def _put_recipe(draft: Draft) -> None:
    """The update: policy.dtensor_cfg (FSDP2), or policy.megatron_cfg where that is on."""
    megatron = draft.flag("policy.megatron_cfg.enabled", default=False)
    enabled = ("policy.megatron_cfg.enabled", "policy.dtensor_cfg.enabled")
    kinds = {"megatron": (True, False), "fsdp": (False, True)}
    back = one_of({kind: dict(zip(enabled, on, strict=True)) for kind, on in kinds.items()})
    kind = "megatron" if megatron.value else "fsdp"
    draft.put("trainer.recipe.backend", kind, megatron, back=back)
    section, other = ("policy.megatron_cfg", "policy.dtensor_cfg")[:: 1 if megatron.value else -1]
    put_rows(draft, "megatron" if megatron.value else "dtensor", f"{section}.")
    lora = f"{section}.peft" if megatron.value else f"{section}.lora_cfg"
    roles.adapters(draft, draft.flag(f"{lora}.enabled", default=False))
    put_rows(draft, "memory")
    if megatron.value and draft.flag(f"{section}.fp8_cfg.enabled", default=False).value:
        put_rows(draft, "precision", f"{section}.")
    quantized = draft.maybe_text("policy.quant_cfg")
    if quantized is not None:
        micro_batch.imitated(draft, quantized)
    draft.settings.see(other)
