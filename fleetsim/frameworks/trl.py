"""TRL (huggingface/trl at f2cd57710): GRPOTrainer and AsyncGRPOTrainer: flags, YAML, `GRPOConfig(...)`.

Names and defaults: trl/trainer/grpo_config.py, trl/experimental/async_grpo/async_grpo_config.py and
async_grpo_trainer.py. TRL leaves the number of processes to the launcher: `num_processes` is read from it.
"""

from __future__ import annotations

from fleetsim.frameworks.common import (
    TrainerSpeed,
    barrier,
    entry_point,
    hardware_and_times,
    lengths,
    model,
    transport,
)
from fleetsim.frameworks.draft import Draft, Read, times

CLASSES = ("GRPOConfig", "AsyncGRPOConfig", "GRPOTrainer", "AsyncGRPOTrainer")
_ASYNC_KEYS = ("max_staleness", "weight_sync_steps", "queue_maxsize", "max_inflight_tasks")
_REMEDY = "-- --num_processes 8, as the launcher is told"

NOT_MODELLED = {
    "num_iterations": "a batch is reused for several updates: --set trainer.per_token_s=SECONDS for all of them",
    "max_tool_calling_iterations": "tool calls: --set workload.turns.count=N, and tool_latency_s",
    "token_budget": "packing: the trainer's seconds per token say how well it works",
    "use_liger_kernel": "kernels: the trainer's seconds per token say how well they work",
    "use_peft": "an adapter: --set sync.pause_s=SECONDS",
    "use_transformers_continuous_batching": "generation by transformers: vLLM stands in",
    "eval_strategy": "evaluation between steps",
    "mask_truncated_completions": "truncated samples are generated, but not trained",
}


def build(draft: Draft, speed: TrainerSpeed | None) -> None:
    """Fill the draft from TRL's configuration."""
    settings = draft.settings
    is_async = settings.runs("AsyncGRPO", "async_grpo") or settings.has(*_ASYNC_KEYS)
    draft.mode = "AsyncGRPOTrainer" if is_async else "GRPOTrainer"
    draft.preset = "trl-async-grpo" if is_async else "trl-grpo"
    model(
        draft,
        "model_name_or_path",
        "model",
        "model_name",
        "model_id",
        "vllm_serve.model",
        remedy="-- --model_name_or_path Qwen/Qwen2.5-7B, or --set engine.model=Qwen/Qwen2.5-7B",
    )
    n = draft.count("num_generations", default=8)
    draft.put("workload.group_size", n.value, n)
    answer = draft.count("max_completion_length", default=2048 if is_async else 512)
    lengths(draft, answer, draft.maybe_count("max_prompt_length"))
    processes = _processes(draft)
    samples = _samples(draft, processes, n)
    if is_async:
        _async(draft, samples)
    else:
        _grpo(draft, processes)
    transport(draft, None, {})
    beta = draft.number("beta", default=0.0)
    hardware_and_times(draft, speed, {"old log-probs": not is_async, "reference log-probs": beta.value > 0})
    draft.leave_out(NOT_MODELLED)


def _processes(draft: Draft) -> Read[int]:
    found = draft.maybe_count("num_processes", "launcher.num_processes")
    if found is None:
        per_node = draft.maybe_count("launcher.nproc_per_node")
        nodes = draft.maybe_count("launcher.nnodes", "launcher.num_machines") or Read("nnodes", 1, False)
        found = None if per_node is None else times(nodes, per_node)
    if found is None:
        draft.assume("trainer.gpus", 8, "the number of processes is the launcher's, not in this configuration", _REMEDY)
        return Read("num_processes", 8, False)
    draft.put("trainer.gpus", found.value, found, why="one GPU per process")
    return found


def _samples(draft: Draft, processes: Read[int], n: Read[int]) -> Read[int]:
    """Samples of one optimizer step; TRL counts batches in samples, not in prompts."""
    per_device = draft.count("per_device_train_batch_size", default=8)
    accumulation = draft.count("gradient_accumulation_steps", default=1)
    step = times(per_device, accumulation, processes)
    whole = draft.maybe_count("generation_batch_size")
    generations = draft.maybe_count("steps_per_generation")
    batch = whole or (step if generations is None else times(per_device, generations, processes))
    if whole is not None and generations is not None:
        draft.refuse(
            whole.key, whole.value, f"excludes {generations}", "keep one of generation_batch_size, steps_per_generation"
        )
    if batch.value % n.value:
        draft.refuse(
            batch.key,
            batch.value,
            f"must be a multiple of {n}: groups are whole",
            f"use {max(1, batch.value // n.value) * n.value} samples, or another num_generations",
        )
    why = "samples of one generation" if batch.value != step.value else ""
    draft.put("trainer.batch_samples", batch.value, batch, why=why)
    if batch.value > step.value:
        draft.note(str(step), "the updates of one generation count as one optimizer step")
    return batch


def _grpo(draft: Draft, processes: Read[int]) -> None:
    used = draft.flag("use_vllm", default=False)
    if not used.value:
        draft.note(str(used), "generation by transformers: vLLM stands in, which is several times faster")
    mode = draft.choice("vllm_mode", default="colocate", known=("colocate", "server"))
    barrier(draft, "the whole batch is generated before it is trained")
    draft.semantics("fleet.group_placement", "together", "a prompt's completions are asked for at once")
    if mode.value == "server":
        _server(draft)
        entry_point(draft, "llm", "trl vllm-serve holds an LLM")  # trl/scripts/vllm_serve.py
    else:
        tp = draft.count("vllm_tensor_parallel_size", default=1)
        draft.put("engine.tp", tp.value, tp)
        instances = draft.divided("the number of instances", processes, tp)
        draft.put("fleet.instances", instances, processes, tp)
        share = draft.number("vllm_gpu_memory_utilization", default=0.3, most=1.0)
        draft.put("engine.gpu_memory_utilization", share.value, share)
        draft.put("fleet.placement", "colocated", mode, why="vLLM runs on the trainer's GPUs")
        # trl/generation/vllm_generation.py: max_num_seqs is the engine's own part of the batch, which never binds.
        entry_point(draft, "llm", "vLLM is an LLM in the trainer's processes")
        draft.semantics("engine.max_num_batched_tokens", 4096, "written in TRL's code")
        sleep = draft.flag("vllm_enable_sleep_mode", default=False)
        if not sleep.value:
            draft.put("fleet.switch_s", 0.0, sleep, why="nothing is offloaded")
    draft.semantics("fleet.routing", "round_robin", "each engine gets an equal part of the prompts")


def _server(draft: Draft) -> None:
    """The vLLM server: its own command says how large it is, if the script has it."""
    tp = draft.count("vllm_serve.tensor_parallel_size", "vllm_server_tensor_parallel_size", default=1)
    replicas = draft.maybe_count("vllm_serve.data_parallel_size", "vllm_server_data_parallel_size")
    draft.put("engine.tp", tp.value, tp)
    if replicas is None:
        draft.assume("fleet.instances", 1, "the server's size is not in this configuration")
    else:
        draft.put("fleet.instances", replicas.value, replicas)
    draft.semantics("fleet.placement", "disaggregated", "the vLLM server has GPUs of its own")


def _async(draft: Draft, samples: Read[int]) -> None:
    _server(draft)
    entry_point(draft, "api_server", "vllm serve")  # docs/source/async_grpo_trainer.md
    draft.semantics("fleet.group_placement", "spread", "each completion is a request of its own")
    staleness = draft.count("max_staleness", default=4, least=0)
    every = draft.count("weight_sync_steps", default=1)
    queue = draft.count("queue_maxsize", default=1024)
    tasks = draft.maybe_count("max_inflight_tasks", least=-1)
    draft.put("sync.every_steps", every.value, every)
    draft.semantics("admission.law", "unbounded", "only the tasks in flight and a full queue hold generation back")
    group = draft.values.get("workload.group_size", 1)
    if tasks is None or tasks.value <= 0:
        draft.put(
            "fleet.max_in_flight_samples", max(group, staleness.value * samples.value), staleness, samples, why="auto"
        )
    else:
        draft.put("fleet.max_in_flight_samples", max(group, tasks.value), tasks)
    draft.semantics(
        "admission.age_action", "drop_on_dequeue", "samples that are too old are dropped when they are drawn"
    )
    draft.put("admission.max_age", float(staleness.value), staleness)
    draft.put("buffer.capacity_samples", max(queue.value, samples.value), queue)
    if queue.value < samples.value:
        draft.note(str(queue), "the queue is smaller than a batch: a whole batch fits here")
    draft.semantics("buffer.on_full", "block", "a full queue blocks the rollout worker")
    draft.semantics("buffer.batch_rule", "fifo", "groups in the order of completion")
    draft.semantics("sync.in_flight", "keep", "the server pauses, loads and goes on")
    draft.semantics("fleet.routing", "least_loaded", "the server spreads requests over its replicas")
