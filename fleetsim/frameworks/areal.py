"""AReaL (inclusionAI/AReaL at 4aef98d8d): asynchronous GRPO and PPO.

Names and defaults: areal/api/cli_args.py (InferenceEngineConfig, GenerationHyperparameters, SGLangConfig, vLLMConfig);
the parallelism strings: areal/api/alloc_mode.py; what it does: areal/infra/staleness_manager.py.
"""

from __future__ import annotations

import math
import re

from fleetsim.frameworks.common import (
    TrainerSpeed,
    entry_point,
    hardware_and_times,
    lengths,
    model,
    transport,
)
from fleetsim.frameworks.draft import Draft, Read, one_line

_DIMENSION = re.compile(r"([dptce])(\d{1,4})")
_ATTENTION = re.compile(r"\(attn:([^|()]*)\|ffn:[^|()]*\)")  # layers of a mixture split on their own
_PART = re.compile(r"(?:(\w+)(?:\[\w+\])?:)?((?:[dptce]\d{1,4})+)")

NOT_MODELLED = {
    "rollout.queue_size": "the input queue's own bound",
    "rollout.pause_grace_period": "seconds of grace at a pause: --set sync.pause_s=SECONDS",
    "dynamic_bs": "batches of varying size",
    "actor.ppo_n_minibatches": "the updates of one batch count as one optimizer step",
    "actor.use_lora": "an adapter: --set sync.pause_s=SECONDS",
    "rollout.use_lora": "an adapter: --set sync.pause_s=SECONDS",
    "sglang.enable_mixed_chunk": "how prefill and decode share an iteration",
    "sglang.enable_dp_attention": "attention with data parallelism",
    "sglang.ep_size": "expert parallelism inside an instance",
    "sglang.context_length": "only the length caps are kept",
    "vllm.max_model_len": "only the length caps are kept",
    "max_turns": "turns: --set workload.turns.count=N --set workload.turns.tool_latency_s=SECONDS",
    "gconfig.min_new_tokens": "a least length",
}


def build(draft: Draft, speed: TrainerSpeed | None) -> None:
    """Fill the draft from AReaL's keys."""
    draft.mode, draft.preset = "asynchronous", "areal"
    model(draft, "actor.path", remedy="-- actor.path=Qwen/Qwen2.5-7B, or --set engine.model=Qwen/Qwen2.5-7B")
    n = draft.count("gconfig.n_samples", default=1)
    draft.put("workload.group_size", n.value, n)
    batch = draft.needed_count("train_dataset.batch_size", remedy="-- train_dataset.batch_size=256")
    draft.put("trainer.batch_samples", batch.value * n.value, batch, n, why="prompts x responses")
    lengths(draft, draft.count("gconfig.max_new_tokens", default=16384), draft.maybe_count("train_dataset.max_length"))
    engine = _parallelism(draft)
    _engine(draft, engine)
    eta = draft.number("rollout.max_head_offpolicyness", default=0.0, most=1e6)
    draft.semantics("admission.law", "version_window", "(eta + version + 1) batches less what is accepted or runs")
    draft.put("admission.max_staleness", eta.value, eta)
    most = draft.maybe_count("rollout.max_concurrent_rollouts")
    if most is None:
        most = Read("rollout.max_concurrent_rollouts", batch.value, False)
    draft.put("fleet.max_in_flight_samples", most.value * n.value, most, n, why="rollouts are prompts with all samples")
    draft.semantics("fleet.in_flight_unit", "groups", "a rollout ends with the last sample of its prompt")
    consumer = draft.maybe_count("rollout.consumer_batch_size")
    if consumer is not None and consumer.value != batch.value:
        draft.refuse(
            consumer.key, consumer.value, f"differs from {batch}, the batch that is trained", "make them equal"
        )
    draft.semantics("sync.in_flight", "abort_resume", "aborted requests are sent again with what they have")
    draft.semantics("buffer.batch_rule", "oldest_version_first", "finished rollouts, the oldest first")
    draft.semantics("fleet.group_placement", "spread", "a request per sample")
    draft.semantics("fleet.routing", "round_robin", "servers in turn")
    way = draft.text("actor.weight_update_mode", "weight_update_mode", default="xccl")
    words = {"xccl": "collective_broadcast", "nccl": "collective_broadcast", "disk": "checkpoint_shuttle"}
    transport(draft, way, words)
    recompute = draft.flag("actor.recompute_logprob", default=True)
    reference = draft.number("actor.kl_ctl", default=0.1).value > 0 and draft.settings.has("ref")
    hardware_and_times(draft, speed, {"old log-probs": recompute.value, "reference log-probs": reference})
    draft.leave_out(NOT_MODELLED)


def _parallelism(draft: Draft) -> str:
    """fleet.instances, engine.tp and trainer.gpus from `rollout.backend` and `actor.backend`, or `allocation_mode`."""
    rollout, actor = draft.maybe_text("rollout.backend"), draft.maybe_text("actor.backend")
    old = draft.maybe_text("allocation_mode")
    if old is not None and (rollout is None or actor is None):
        first, plus, second = old.value.partition("+")
        rollout, actor = Read(old.key, first, True), Read(old.key, second if plus else first, True)
    for key, read in (("rollout.backend", rollout), ("actor.backend", actor)):
        if read is None:
            draft.refuse(key, None, "is missing: it says how many GPUs there are", f"-- {key}=sglang:d4t1")
    engine, sizes = _sizes(draft, rollout)
    _, trainer = _sizes(draft, actor)
    shared = (draft.maybe_text("rollout.scheduling_strategy.type") or Read("", "separation", False)).value
    if rollout is not None and actor is not None:
        draft.put("engine.tp", sizes["t"], rollout)
        draft.put("fleet.instances", sizes["d"], rollout, why="d: data-parallel servers")
        draft.put("trainer.gpus", math.prod(trainer[k] for k in "dptc"), actor, why="d x p x t x c")
        if sizes["p"] > 1:
            draft.put("engine.pp", sizes["p"], rollout, why="p: pipeline stages")
    draft.semantics(
        "fleet.placement",
        "colocated" if shared == "colocation" or (old is not None and "+" not in old.value) else "disaggregated",
        "rollout and training share GPUs" if shared == "colocation" else "rollout has GPUs of its own",
    )
    return engine


def _sizes(draft: Draft, read: Read[str] | None) -> tuple[str, dict[str, int]]:
    sizes = dict.fromkeys("dptce", 1)
    if read is None:
        return "", sizes
    match = _PART.fullmatch(_ATTENTION.sub(r"\1", read.value.strip()))
    if match is None:
        draft.refuse(
            read.key,
            one_line(read.value),
            "must read backend:d<data>p<pipeline>t<tensor>c<context>, one part per role",
            "for example sglang:d4t1",
        )
        return "", sizes
    for letter, size in _DIMENSION.findall(match[2]):
        sizes[letter] = max(1, int(size))
    return (match[1] or "").lower(), sizes


def _engine(draft: Draft, engine: str) -> None:
    if engine in ("vllm", "sglang"):
        draft.put("engine.name", engine, Read("rollout.backend", engine, True))
    key = "vllm.gpu_memory_utilization" if engine == "vllm" else "sglang.mem_fraction_static"
    share = draft.number(key, default=0.9, most=1.0)
    draft.put("engine.gpu_memory_utilization", share.value, share)
    if engine == "vllm":
        seqs = draft.count("vllm.max_num_seqs", default=256)
        draft.put("engine.max_num_seqs", seqs.value, seqs)
        off = draft.flag("vllm.no_enable_prefix_caching", default=True)
        draft.put("engine.prefix_caching", not off.value, off)
        # areal/engine/vllm_ext/areal_vllm_server.py: vLLM's own run_server
        entry_point(draft, "api_server", "vLLM runs as an API server")
    else:
        requests = draft.maybe_count("sglang.max_running_requests")
        if requests is not None:
            draft.put("engine.max_num_seqs", requests.value, requests)
        # areal/api/cli_args.py, SGLangConfig: prompts are not cut, max_prefill_tokens bounds those that start together
        chunk = draft.maybe_count("sglang.chunked_prefill_size", least=-1)
        whole = chunk is None or chunk.value < 1
        tokens = draft.count("sglang.max_prefill_tokens", default=32768) if chunk is None or whole else chunk
        draft.put("engine.max_num_batched_tokens", tokens.value, tokens, why="prompts are not cut" if whole else "")
        off = draft.flag("sglang.disable_radix_cache", default=True)
        draft.put("engine.prefix_caching", not off.value, off)
