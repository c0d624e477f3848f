"""NeMo-RL (NVIDIA-NeMo/RL at 7ea279abf): GRPO synchronous, asynchronous, and under the single controller.

Names: examples/configs/grpo_math_1B.yaml, whose values are the defaults of a file that builds on it (`defaults:`), and
grpo_math_1B_megatron_single_controller.yaml; what they do: nemo_rl/algorithms/grpo.py (GPU split, L753 and following),
async_utils/trajectory_collector.py, replay_buffer.py and staleness_sampler.py.
"""

from __future__ import annotations

from fleetsim.frameworks import recipe
from fleetsim.frameworks.common import (
    OUTPUT_CAP,
    TrainerSpeed,
    barrier,
    engine_limits,
    engine_name,
    entry_point,
    filtering,
    hardware_and_times,
    lengths,
    model,
    transport,
    weights_type,
)
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.framework import Framework, Mode
from fleetsim.frameworks.nemo_rl_recipe import put_recipe
from fleetsim.frameworks.reading import NODE_GPUS, Read, nodes_of, on_nodes, one_of, parts_of, times
from fleetsim.frameworks.speculation import frozen, vllm_drafts

GENERATION = "policy.generation"
SAMPLERS = ("in_order", "ready_first", "weight_fifo", "windowed")
TRANSPORTS = {
    "nccl_reshard": "collective_broadcast",
    "nixl": "rdma_p2p",
    **dict.fromkeys(("vllm_s3_sparse", "vllm_zmq_sparse"), "sparse_delta"),
}

NOT_MODELLED = {
    "policy.sequence_packing.enabled": "packing: the trainer's seconds per token say how well it works",
    "policy.dynamic_batching.enabled": "micro-batches do not change what is counted: seconds per token do",
    f"{GENERATION}.vllm_cfg.enforce_eager": "decoding without CUDA graphs is slower than what is simulated",
    "policy.draft.enabled": "the drafter's own passes and loss in the trainer's seconds",
    "grpo.val_period": "validation between steps",
    "policy.dtensor_cfg.lora_cfg.enabled": "an adapter: --set sync.pause_s=SECONDS",
    "grpo.async_grpo.max_generation_failures": "failed rollouts: --set fleet.failures.mtbf_s=SECONDS",
    "async_rl.rollout_failure.on_dropped_prompt": "dropped prompts",
    "env.math.num_workers": "workers of the reward: --set workload.reward.workers=N with latency_s",
}


def build(draft: Draft, speed: TrainerSpeed | None) -> None:
    """Fill the draft from NeMo-RL's keys."""
    based = bool(draft.settings.parents)
    model(draft, "policy.model_name", remedy="-- policy.model_name=Qwen/Qwen2.5-7B")
    prompts = _counted(draft, "grpo.num_prompts_per_step", 32, based)
    n = _counted(draft, "grpo.num_generations_per_prompt", 16, based)
    draft.put("workload.group_size", n.value, n)
    samples = times(prompts, n)
    draft.put("trainer.batch_samples", samples.value, prompts, n, why="prompts x responses", back=samples.written)
    update = draft.maybe_count("policy.train_global_batch_size")
    recipe.optimizer_steps(draft, samples, update, "policy.train_global_batch_size", "their updates count as one step")
    draft.could("trainer.batch_samples", samples.value, lambda want: _one_update(draft, update, want))
    whole = draft.maybe_count("policy.max_total_sequence_length")
    answer = draft.maybe_count(f"{GENERATION}.max_new_tokens") or whole
    # What is generated and its prompt share the whole length.
    output = answer or Read(f"{GENERATION}.max_new_tokens", 512, False)
    if output.key != f"{GENERATION}.max_new_tokens":
        output = Read(output.key, output.value, output.given, Read(f"{GENERATION}.max_new_tokens", 1, False).written)
    lengths(draft, output, _prompt_cap(draft, whole, answer), prompt_key="data.max_input_seq_length")
    prompt = draft.settings.get("data.max_input_seq_length")
    longest = output.value + (int(prompt[1]) if prompt is not None and str(prompt[1]).isdigit() else 0)
    draft.could(OUTPUT_CAP, output.value, lambda want: {"policy.max_total_sequence_length": longest})
    _gpus(draft)
    turns = draft.count("grpo.max_rollout_turns", default=1)
    if turns.value > 1:
        draft.put("workload.turns.count", turns.value, turns, why="every sample takes all its turns")
    if draft.settings.has("async_rl"):
        _single_controller(draft, prompts, n)
    elif draft.flag("grpo.async_grpo.enabled", default=False).value:
        _async(draft, prompts, n)
    else:
        draft.mode, draft.preset = "synchronous", "nemo-rl-sync"
        barrier(draft, "the whole batch is generated before it is trained")
    _limits(draft)
    draft.semantics("fleet.group_placement", "spread", "a request per sample")
    draft.semantics("fleet.routing", "round_robin", "over the data-parallel engines")
    filtering(draft, draft.flag("grpo.use_dynamic_sampling", default=False))
    transport(draft, draft.maybe_text(f"{GENERATION}.refit_transport"), TRANSPORTS)
    penalty = draft.number("loss_fn.reference_policy_kl_penalty", default=0.01)
    hardware_and_times(draft, speed, {"policy log-probs": True, "reference log-probs": penalty.value > 0})
    recipe.passes(draft, reference=(penalty.value > 0, one_of({True: {penalty.key: 0.01}, False: {penalty.key: 0.0}})))
    put_recipe(draft)
    draft.leave_out(NOT_MODELLED)


def _one_update(draft: Draft, update: Read[int] | None, want: int) -> dict[str, int] | None:
    """The global batch goes with the batch, where the batch is one update."""
    one = update is None or draft.values.get("trainer.recipe.optimizer_steps", 1) == 1
    return {"policy.train_global_batch_size": want} if one else None


def _counted(draft: Draft, key: str, example: int, based: bool) -> Read[int]:
    if based:
        return draft.count(key, default=example)
    return draft.needed_count(key, remedy=f"-- {key}={example}, or name the file it builds on under defaults:")


def _prompt_cap(draft: Draft, whole: Read[int] | None, answer: Read[int] | None) -> Read[int] | None:
    cap = draft.maybe_count("data.max_input_seq_length")
    return None if cap is None or (whole is not None and cap.value >= whole.value) or answer is None else cap


def _gpus(draft: Draft) -> None:
    nodes = draft.count("cluster.num_nodes", default=1)
    per_node = draft.count("cluster.gpus_per_node", default=1)
    tp = draft.count(f"{GENERATION}.vllm_cfg.tensor_parallel_size", default=1)
    pp = draft.count(f"{GENERATION}.vllm_cfg.pipeline_parallel_size", default=1)
    draft.put("engine.tp", tp.value, tp)
    draft.put("engine.pp", pp.value, pp, unless=1)
    # nemo_rl/models/generation/vllm/vllm_generation.py: vllm_dp_size = ep_size // tp_size
    ep = draft.maybe_count(f"{GENERATION}.vllm_cfg.expert_parallel_size")
    experts = f"{GENERATION}.vllm_cfg.expert_parallel_size"
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
        rollout_gpus = draft.maybe_count(f"{resources}.gpus_per_node")
        rollout_nodes = draft.maybe_count(f"{resources}.num_nodes")
        if nodes.value == 1:
            rollout = rollout_gpus or draft.needed_count(
                f"{resources}.gpus_per_node", remedy=f"-- {resources}.gpus_per_node=4"
            )
            left, why = per_node.value - rollout.value, "the node's GPUs less those of generation"
            gpus = rollout
        else:
            rollout = rollout_nodes or draft.needed_count(
                f"{resources}.num_nodes", remedy=f"-- {resources}.num_nodes=1"
            )
            left, why = (nodes.value - rollout.value) * per_node.value, "the nodes that generation does not take"
            gpus = times(rollout, per_node)
        if left < 1:
            draft.refuse(
                rollout.key, rollout.value, f"leaves no GPU to training ({nodes}, {per_node})", "give it fewer"
            )
        draft.put(
            "trainer.gpus", max(1, left), nodes, per_node, rollout, why=why, back=lambda want: _pools(want, gpus.value)
        )
        left = max(1, left)
    instances = draft.divided("the number of instances", gpus, each)
    way = parts_of(gpus, each) if colocated.value else lambda want: _pools(left, want * each.value)
    draft.put("fleet.instances", instances, gpus, each, back=way)
    backend = draft.text(f"{GENERATION}.backend", default="vllm")
    engine_name(draft, backend, {"vllm": "vllm", "sglang": "sglang"})
    weights_type(draft, f"{GENERATION}.vllm_cfg.precision")
    share = draft.number(f"{GENERATION}.vllm_cfg.gpu_memory_utilization", default=0.6, most=1.0)
    draft.put("engine.gpu_memory_utilization", share.value, share)


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


def _limits(draft: Draft) -> None:
    """Limits and prefix cache: nemo_rl/models/generation/vllm, vllm_worker.py and vllm_worker_async.py, vLLM 0.25.1.

    grpo.py demands the asynchronous engine of asynchronous training.
    """
    if draft.values.get("engine.name", "vllm") != "vllm":
        return
    engine = draft.flag(f"{GENERATION}.vllm_cfg.async_engine", default=False)
    training = draft.flag("grpo.async_grpo.enabled", default=False).value or draft.settings.has("async_rl")
    if engine.value or training:
        entry_point(draft, "async_engine", "AsyncLLM.from_engine_args")
    else:
        entry_point(draft, "llm", "vllm.LLM")
    engine_limits(draft, f"{GENERATION}.vllm_kwargs.")
    prefix = draft.flag(f"{GENERATION}.vllm_cfg.enable_prefix_caching", default=True)
    draft.put("engine.prefix_caching", prefix.value, prefix)
    asked = vllm_drafts(draft, f"{GENERATION}.vllm_kwargs.speculative_config.")
    trained = draft.flag("policy.draft.enabled", default=False)
    if asked and not trained.value:
        frozen(draft, str(trained))


def _async(draft: Draft, prompts: Read[int], n: Read[int]) -> None:
    draft.mode, draft.preset = "async_grpo", "nemo-rl-async-grpo"
    age = draft.count("grpo.async_grpo.max_trajectory_age_steps", default=1)
    draft.semantics("admission.law", "target_step", "a trajectory is reserved for a step at most the age ahead")
    draft.put("admission.max_staleness", float(age.value), age)
    draft.semantics("buffer.batch_rule", "exact_target_step", "a step takes the groups that are meant for it")
    draft.put("buffer.capacity_samples", 2 * age.value * prompts.value * n.value, age, prompts, n, why="twice the age")
    keeps = draft.flag("grpo.async_grpo.in_flight_weight_updates", default=False)
    recompute = draft.flag("grpo.async_grpo.recompute_kv_cache_after_weight_updates", default=False)
    policy = ("keep_recompute" if recompute.value else "keep") if keeps.value else "drain"
    words = {"drain": (False, False), "keep": (True, False), "keep_recompute": (True, True)}
    table = {name: {keeps.key: a, recompute.key: b} for name, (a, b) in words.items()}
    draft.put("sync.in_flight", policy, keeps, recompute, back=one_of(table))


def _single_controller(draft: Draft, prompts: Read[int], n: Read[int]) -> None:
    sampler = draft.choice("async_rl.sampler.name", default="windowed", known=SAMPLERS)
    draft.mode, draft.preset = f"single controller, {sampler.value}", f"nemo-rl-sc-{sampler.value.replace('_', '-')}"
    window = draft.count(
        "async_rl.sampler.max_lookahead_versions", "async_rl.sampler.max_staleness_versions", default=1, least=0
    )
    buffered = draft.count("async_rl.max_buffered_rollouts", default=2 * prompts.value)
    in_flight = draft.count("async_rl.max_inflight_prompts", default=prompts.value)
    most = times(in_flight, n)
    draft.put("fleet.max_in_flight_samples", most.value, in_flight, n, back=most.written)
    draft.semantics("fleet.in_flight_unit", "groups", "a prompt is in flight until its last response has its reward")
    if sampler.value == "windowed":
        draft.semantics("admission.law", "batches_ahead", "no gate: the buffer bounds what is out")
        ahead = max(1, buffered.value // prompts.value)
        draft.put("admission.batches_ahead", ahead, buffered, prompts, back=parts_of(buffered, prompts))
        draft.semantics("admission.age_action", "cancel_in_flight", "what leaves the window is evicted and aborted")
        draft.put("admission.max_age", float(window.value), window)
    else:
        law = "target_step" if sampler.value == "in_order" else "version_window"
        draft.semantics("admission.law", law, "prompts of at most the window ahead are sent")
        draft.put("admission.max_staleness", float(window.value), window)
        held = max(buffered.value, prompts.value) * n.value
        draft.put("buffer.capacity_samples", held, buffered, n, back=times(buffered, n).written)
    if sampler.value == "weight_fifo":
        draft.semantics("admission.age_action", "drop_on_dequeue", "ready groups below the window are evicted")
        draft.put("admission.max_age", float(window.value), window)
        draft.semantics("buffer.wait_for_oldest", True, "the oldest weights' batch must fill first")
    rules = {"in_order": "exact_target_step", "weight_fifo": "oldest_version_first"}
    draft.semantics("buffer.batch_rule", rules.get(sampler.value, "fifo"), "how the sampler selects")
    streamed = draft.maybe_count("async_rl.min_groups_for_streaming_train")
    key = "async_rl.min_groups_for_streaming_train"

    def parts(want: int) -> dict[str, int] | None:
        return None if prompts.value % want else {key: prompts.value // want}

    if streamed is not None and streamed.value < prompts.value:
        value = draft.divided("the streamed parts", prompts, streamed)
        draft.put("trainer.minibatches", value, prompts, streamed, back=parts, unless=1)
    else:
        draft.could("trainer.minibatches", 1, parts, 1)
    recompute = draft.flag("async_rl.recompute_kv_cache_after_weight_updates", default=False)
    draft.either("sync.in_flight", recompute, "keep_recompute", "keep")


_START = "uv run examples/run_grpo.py --config FILE"
_BASE = {"defaults": "grpo_math_1B.yaml"}
_SINGLE = "grpo_math_1B_megatron_single_controller.yaml"
FRAMEWORK = Framework(
    build,
    "NVIDIA-NeMo/RL",
    "yaml",
    (
        Mode("synchronous", _START, _BASE),
        Mode(
            "async_grpo",
            _START,
            {**_BASE, "grpo.async_grpo.enabled": True, f"{GENERATION}.vllm_cfg.async_engine": True},
        ),
        *(
            Mode(
                f"single controller, {sampler}",
                "uv run examples/run_grpo_single_controller.py --config FILE",
                {"defaults": _SINGLE, "async_rl.sampler.name": sampler, f"{GENERATION}.vllm_cfg.async_engine": True},
            )
            for sampler in SAMPLERS
        ),
    ),
    "data, env, the learning rate; the file that it builds on lies in examples/configs of the repository",
)
