"""NeMo-RL (NVIDIA-NeMo/RL at 7ea279abf): GRPO synchronous, asynchronous, and under the single controller.

Names: examples/configs/grpo_math_1B.yaml, whose values are the defaults of a file that builds on it (`defaults:`), and
grpo_math_1B_megatron_single_controller.yaml; what they do: nemo_rl/algorithms/grpo.py (GPU split, L753 and following),
async_utils/trajectory_collector.py, replay_buffer.py and staleness_sampler.py.
"""

from __future__ import annotations

from fleetsim.frameworks import common, recipe, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.nemo_rl_parts import GENERATION, put_beside, put_pools, put_recipe
from fleetsim.frameworks.reading import Read, one_of, parts_of, switched, times, writes
from fleetsim.frameworks.sides import vllm_drafts

SAMPLERS = ("in_order", "ready_first", "weight_fifo", "windowed")
TRANSPORTS = {
    "nccl_reshard": "rdma_p2p",
    "nixl": "rdma_p2p",
    **dict.fromkeys(("vllm_s3_sparse", "vllm_zmq_sparse"), "sparse_delta"),
}

NOT_MODELLED = {
    "policy.draft.enabled": "the drafter's own passes and loss in the trainer's seconds",
    "grpo.async_grpo.max_generation_failures": "failed rollouts: --set fleet.failures.mtbf_s=SECONDS",
    "async_rl.rollout_failure.on_dropped_prompt": "dropped prompts",
}


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from NeMo-RL's keys."""
    based = bool(draft.settings.parents)
    common.model(draft, "policy.model_name", remedy="-- policy.model_name=Qwen/Qwen2.5-7B")
    prompts = _counted(draft, "grpo.num_prompts_per_step", 32, based)
    n = _counted(draft, "grpo.num_generations_per_prompt", 16, based)
    draft.take("workload.group_size", n)
    samples = draft.product("trainer.batch_samples", prompts, n, why="prompts x responses")
    update = draft.maybe_count("policy.train_global_batch_size")
    recipe.optimizer_steps(draft, samples, update, "policy.train_global_batch_size")
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
    beside = put_beside(draft)
    put_pools(draft, beside)
    if draft.settings.has("async_rl"):
        _single_controller(draft, prompts, n)
    elif draft.flag("grpo.async_grpo.enabled", default=False).value:
        _async(draft, prompts, n)
    else:
        draft.mode, draft.preset = "synchronous", "nemo-rl-sync"
        common.barrier(draft, "the whole batch is generated before it is trained")
    _limits(draft)
    common.requests(draft, "spread", "a request per sample", "round_robin", "over the data-parallel engines")
    # grpo.py, dynamic_sampling
    drops, over = draft.flag("grpo.use_dynamic_sampling", default=False), "grpo.batch_multiplier"
    common.filtering(draft, drops, draft.number(over, default=1.0))
    _transport(draft)
    penalty = draft.number("loss_fn.reference_policy_kl_penalty", default=0.01)
    with_kl, called = switched(penalty.key, 0.01, 0.0), "policy log-probs"
    common.hardware_and_times(
        draft, speed, True, penalty.value > 0, with_reference=with_kl, taught=beside.taught, called=called
    )
    put_recipe(draft)
    own = draft.text("data.default.env_name", "data.train.env_name", "data.env_name", default="math")
    pool = f"env.{own.value}.num_workers"
    roles.workers(draft, "reward", [draft.maybe_count(pool)], pool)
    draft.leave_out(NOT_MODELLED)


def _transport(draft: Draft) -> None:
    """How a refit travels (docs/guides/weight-refit.md, docs/guides/checkpoint-engine-refit.md)."""
    way = draft.maybe_text(f"{GENERATION}.refit_transport")
    common.transport(draft, way, TRANSPORTS)
    if draft.values.get("fleet.placement") == "colocated":
        return
    word = "" if way is None else way.value.lower()
    if word == "nccl_reshard":
        draft.semantics("sync.link.load", "in_place", "each rank gets its shards where the engine uses them")
    elif word == "nixl":
        sliced = draft.flag(f"{GENERATION}.refit_cfg.nixl.shard_expert_weights", default=False)
        fetch = "slice" if sliced.value else "whole"
        draft.put("sync.link.fetch", fetch, sliced, why="of the experts", unless="slice")
    elif draft.values.get("sync.transport") == "collective_broadcast":
        draft.semantics("sync.transport", "collective_broadcast", "NCCL, packed")
        draft.semantics("sync.link.source", "sharded", "every rank sends its own part")


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
    if based:
        return draft.count(key, default=example)
    return draft.needed_count(key, remedy=f"-- {key}={example}, or name the file it builds on under defaults:")


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
    common.entry_point(draft, common.entry_point_of("nemo-rl", asynchronous=beside), started)
    common.engine_limits(draft, f"{GENERATION}.vllm_kwargs.")
    draft.take("engine.prefix_caching", draft.flag(f"{GENERATION}.vllm_cfg.enable_prefix_caching", default=True))
    trained = draft.flag("policy.draft.enabled", default=False)
    vllm_drafts(draft, f"{GENERATION}.vllm_kwargs.speculative_config.", trained)


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
    draft.product("fleet.max_in_flight_samples", in_flight, n)
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
_BASE, _SINGLE = {"defaults": "grpo_math_1B.yaml"}, "grpo_math_1B_megatron_single_controller.yaml"
_ASYNC = {f"{GENERATION}.vllm_cfg.async_engine": True}
FRAMEWORK = common.Framework(
    build,
    "NVIDIA-NeMo/RL",
    "yaml",
    (
        common.Mode("synchronous", _START, _BASE),
        common.Mode("async_grpo", _START, {**_BASE, "grpo.async_grpo.enabled": True, **_ASYNC}),
        *(
            common.Mode(
                f"single controller, {sampler}",
                _START.replace("grpo.py", "grpo_single_controller.py"),
                {"defaults": _SINGLE, "async_rl.sampler.name": sampler, **_ASYNC},
            )
            for sampler in SAMPLERS
        ),
    ),
    "data, env, the learning rate; the file that it builds on lies in examples/configs of the repository",
)
