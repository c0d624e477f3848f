"""TRL (huggingface/trl, 1.10 to 1.16): GRPOTrainer and AsyncGRPOTrainer: flags, YAML, `GRPOConfig(...)`.

Names and defaults: trl/trainer/grpo_config.py, trl/experimental/async_grpo/async_grpo_config.py and
async_grpo_trainer.py. TRL leaves the number of processes to the launcher: `num_processes` is read from it. Which
server runs depends on TRL's version, which a script may pin (`trl==1.10.0`); without a pin it is taken to be new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import NEVER, Draft
from fleetsim.frameworks.reading import Read, above_0, one_of, times, writes
from fleetsim.frameworks.sides import adapter, vllm_drafts
from fleetsim.frameworks.tables import put_rows, rename

CLASSES = ("GRPOConfig", "AsyncGRPOConfig", "GRPOTrainer", "AsyncGRPOTrainer")
# Unsloth's own samples on a device and accumulated steps; what loads weights of more than four bits.
_UNSLOTHS = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
_LOADED, _WIDER = "from_pretrained", ("load_in_16bit", "load_in_8bit", "full_finetuning")
_GENERATIONS = ("steps_per_generation", "generation_batch_size")
_ASYNC_KEYS = ("max_staleness", "weight_sync_steps", "queue_maxsize", "max_inflight_tasks")

# huggingface/trl pull request 6765: from this version on `trl vllm-serve` starts vLLM's own server. Until then it held
# one LLM per replica, and weights went tensor by tensor.
_OWN_SERVER = (1, 11)


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from TRL's configuration."""
    is_async = draft.settings.runs("AsyncGRPO", "async_grpo") or draft.settings.has(*_ASYNC_KEYS)
    draft.mode, draft.preset = ("AsyncGRPOTrainer", "trl-async-grpo") if is_async else ("GRPOTrainer", "trl-grpo")
    unsloth = draft.settings.runs("unsloth")
    if unsloth or draft.settings.has("base_model"):
        rename("trl", draft.settings, "Unsloth" if unsloth else "Axolotl")
        draft.choice("rl", default="grpo", known=("grpo", "gdpo"))  # Axolotl's algorithm
    put_rows(draft, "model")
    n = draft.take("workload.group_size", draft.count("num_generations", default=8, least=1 if is_async else 2))
    answer = draft.count("max_completion_length", default=2048 if is_async else 512)
    common.lengths(draft, answer, draft.maybe_count("max_prompt_length"))
    # trl/trainer/grpo_trainer.py, _tool_loop: `max_completion_length` bounds all turns
    marks = ("tools", "environment_factory", "rollout_func", "rollout_worker")
    found = next((key for key in marks if draft.settings.get(key) is not None), "")
    turns = roles.turns_of_calls(draft.maybe_count("max_tool_calling_iterations"))
    roles.put_turns(draft, turns, "", found and f"{found}=")
    peft, on = draft.maybe_text("peft_config"), draft.flag("use_peft", default=False)
    asked = peft is None or "get_peft_config" in peft.value  # which makes none without the flag
    rank = draft.count("get_peft_model.r", default=16 if draft.settings.has("get_peft_model") else 0, least=0)
    roles.adapters(draft, rank if rank.value else on if asked else Read("peft_config", True, True))
    roles.judges(draft, "reward_model_name_or_path")
    processes = draft.maybe_count("num_processes", "launcher.num_processes")
    if processes is None:
        per_node = draft.maybe_count("launcher.nproc_per_node")
        nodes = draft.maybe_count("launcher.nnodes", "launcher.num_machines") or Read("nnodes", 1, False)
        processes = None if per_node is None else times(nodes, per_node)
    if processes is None:
        draft.could("trainer.gpus", None, writes("num_processes"))
        why = "the number of processes is the launcher's, not in this configuration"
        processes = Read("num_processes", 1 if unsloth else _whole_groups(draft, n.value), False)
        remedy = f"-- --num_processes {processes.value}, as the launcher is told"
        draft.assume("trainer.gpus", processes.value, why + "; Unsloth's is one" * unsloth, remedy)
    else:
        draft.take("trainer.gpus", processes, why="one GPU per process")
    if unsloth:
        _of_unsloth(draft, processes, n, rank)
    samples, step = put_samples(draft, processes, n)
    if is_async:
        _async(draft, samples)
    else:
        _grpo(draft, processes)
    common.transport(draft, None, {})
    beta = draft.number("beta", default=0.0)
    if is_async:  # AsyncGRPOConfig has neither
        common.hardware_and_times(draft, speed, False, Read(beta.key, beta.value > 0, True, one_of({})))
        draft.could("trainer.recipe.epochs", 1, one_of({}), 1)
    else:
        # grpo_trainer.py: what does not train the newest samples at once, or corrects for vLLM
        aligned = step.value % (samples.value * draft.count("num_iterations", default=1).value) == 0
        corrected = draft.flag("vllm_importance_sampling_correction", default=True)
        used = draft.flag("use_vllm", default=False)
        made = not aligned or (used.value and corrected.value)
        with_old = lambda want: {used.key: True, corrected.key: want} if aligned else None  # noqa: E731
        old = Read(corrected.key, made, True, with_old)
        common.hardware_and_times(draft, speed, old, above_0(beta, 0.001))
        put_rows(draft, "epochs")
    put_rows(draft, "memory")


def _whole_groups(draft: Draft, group: int) -> int:
    """Processes of a server, or the most of fewer with which a batch has whole groups."""
    steps = draft.count(*_GENERATIONS[:1], "gradient_accumulation_steps", default=1).value
    each = draft.count("per_device_train_batch_size", default=8).value * steps
    alone = draft.maybe_count(_GENERATIONS[1]) is not None
    return next((n for n in range(8, 0, -1) if alone or n * each % group == 0), 8)


def _of_unsloth(draft: Draft, processes: Read[int], n: Read[int], rank: Read[int]) -> None:
    """unsloth/models/rl.py: a device's samples are a group where a step has no whole ones. loader.py: weights have four
    bits unless it is told otherwise; vLLM, where it generates, has them as well, and the adapter beside them."""
    each, steps = (draft.count(key, default=usual) for key, usual in _UNSLOTHS.items())
    if each.value * steps.value * processes.value % n.value and not draft.settings.has(*_GENERATIONS):
        draft.settings.add(each.key, n.value)
    fp8 = draft.maybe_text(f"{_LOADED}.load_in_fp8")  # or the size of its blocks
    others = [fp8 is not None and fp8.value.lower() != "false"]
    others += [draft.flag(f"{_LOADED}.{key}", default=False).value for key in _WIDER]
    four = draft.flag(f"{_LOADED}.load_in_4bit", default=not any(others))
    if small := fp8 if others[0] else four if four.value else None:
        draft.put("engine.dtype", "fp8" if others[0] else "int4", small)
        draft.note(str(small), "the trainer's frozen weights are counted in 16 bits")
    if draft.flag("use_vllm", default=False).value:
        adapter(draft, rank)


def put_samples(
    draft: Draft, processes: Read[int], n: Read[int], least: int = 1, default: int = 8
) -> tuple[Read[int], Read[int]]:
    """Samples of one generation, and of one optimizer step; TRL counts batches in samples, not in prompts.

    least: samples of a step to which steps are accumulated by default. default: samples on a device at once.
    """
    per_device = draft.count("per_device_train_batch_size", default=default)
    steps = max(1, -(-least // (per_device.value * processes.value)))
    accumulation = draft.count("gradient_accumulation_steps", default=steps)
    step = times(per_device, accumulation, processes)
    whole = draft.maybe_count("generation_batch_size")
    generations = draft.maybe_count("steps_per_generation")
    counted = step if generations is None else times(per_device, generations, processes)
    batch = whole or counted
    if generations is not None and batch.value != counted.value:
        remedy = "keep one of generation_batch_size, steps_per_generation"
        draft.refuse(batch.key, batch.value, f"differs from {counted}", remedy)
    if batch.value % n.value:
        remedy = f"use {max(1, batch.value // n.value) * n.value} samples, or another num_generations"
        draft.refuse(batch.key, batch.value, f"must be a multiple of {n}: groups are whole", remedy)
    why = "samples of one generation" if batch.value != step.value else ""

    def accumulated(want: int) -> Mapping[str, Any] | None:
        """As many samples on each device at once as divide it, up to eight, the rest one by one."""
        if want % processes.value:
            return None
        each = want // processes.value
        at_once = next(n for n in range(min(8, each), 0, -1) if each % n == 0)
        sizes = {"per_device_train_batch_size": at_once} | ({} if whole is None else {"generation_batch_size": want})
        several = "gradient_accumulation_steps" if generations is None else "steps_per_generation"
        return {**sizes, several: each // at_once}

    def updates(want: int) -> Mapping[str, Any] | None:
        """A generation is so many times what is accumulated for an optimizer step."""
        made = batch.value // (processes.value * per_device.value)
        if draft.mode == "AsyncGRPOTrainer" or want == 1 or made % want:
            return None
        return {"steps_per_generation": made, "gradient_accumulation_steps": made // want}

    draft.put("trainer.batch_samples", batch.value, batch, why=why, back=accumulated)
    path = "trainer.recipe.optimizer_steps"
    if batch.value > step.value and batch.value % step.value == 0:
        draft.put(path, batch.value // step.value, batch, step, why="their updates count as one step")
    elif batch.value > step.value:
        draft.note(str(step), "the updates of one generation count as one optimizer step")
    else:
        draft.could(path, 1, updates, 1)
    return batch, step


def _grpo(draft: Draft, processes: Read[int]) -> None:
    mode = engine_mode(draft, "colocate")
    put_rows(draft, "GRPOTrainer")
    if mode.value == "server":
        _server(draft)
        _started(draft)
        return
    draft.parted("fleet.instances", processes, put_rows(draft, "memory of colocate")["engine.tp"])
    draft.put("fleet.placement", "colocated", mode, why="vLLM runs on the trainer's GPUs", back=one_of({}))
    put_rows(draft, "colocate")
    sleep = draft.flag("vllm_enable_sleep_mode", default=False)
    slept = lambda want: sleep.written(want > 0)  # noqa: E731 what takes time is what sleep mode does
    draft.where(not sleep.value, "fleet.switch_s", 0.0, sleep, why="nothing is offloaded", back=slept)
    put_rows(draft, "equal parts")


def engine_mode(draft: Draft, default: str) -> Read[str]:
    """Whether the engine is in the trainer's processes or a server, and a note where there is none."""
    used = draft.flag("use_vllm", default=False)
    if not used.value:
        draft.note(str(used), "generation by transformers: vLLM stands in, which is several times faster")
    return draft.choice("vllm_mode", default=default, known=("colocate", "server"))


def _started(draft: Draft) -> None:
    """How the synchronous trainer's server was started, and what that means for its limits, its routing, its sync."""
    pin = draft.settings.pinned.get("trl")
    if pin is not None and pin.only_before(_OWN_SERVER) and not draft.settings.runs("vllm serve"):
        common.entry_point(draft, "llm", f"{pin.text}: trl vllm-serve holds an LLM before 1.11")
        put_rows(draft, "equal parts")
        slow = "weights go tensor by tensor before 1.11, longer than their bytes take: --set sync.pause_s=SECONDS"
        draft.note(pin.text, slow)
        return
    if draft.settings.runs("vllm serve") or (pin is not None and pin.only_from(_OWN_SERVER)):
        common.entry_point(draft, "api_server", "vLLM's own server")
    else:
        why = "TRL's version is not known; from 1.11 on the server is vLLM's own"
        draft.assume("engine.entry_point", "api_server", why, "-- trl==1.10.0, for an older TRL")
    put_rows(draft, "one by one")


def put_server(draft: Draft, replicas: str, model: str, *others: str, size: str = "the server's size") -> None:
    """Instances on GPUs of their own, as the server's own command says, if the script has it."""
    found = draft.maybe_count(replicas, *others)
    if found is not None:
        draft.take("fleet.instances", found)
    else:
        draft.could("fleet.instances", None, writes(replicas))
        draft.assume("fleet.instances", 1, f"{size} is not in this configuration")
    draft.could("engine.model", None, writes(model, ""))


def _server(draft: Draft) -> None:
    """The vLLM server."""
    put_server(draft, "vllm_serve.data_parallel_size", "vllm_serve.model", "vllm_server_data_parallel_size")
    put_rows(draft, "apart")
    share = draft.number("vllm_serve.gpu_memory_utilization", default=0.9, most=1.0)
    # trl vllm-serve hands its default on; vllm serve has its own.
    known = share.given or (draft.settings.has("vllm_serve") and not draft.settings.runs("vllm serve"))
    draft.where(known, "engine.gpu_memory_utilization", share.value, share, back=share.written)
    prefix = draft.flag("vllm_serve.enable_prefix_caching", default=True)
    draft.where_said("engine.prefix_caching", prefix, now=True, unless=NEVER if prefix.given else True)
    put_rows(draft, "serve", "vllm_serve.")
    vllm_drafts(draft, "vllm_serve.speculative_config.", "vllm_serve.speculative_config")


def _async(draft: Draft, samples: Read[int]) -> None:
    _server(draft)
    put_rows(draft, "served")
    put_rows(draft, "one by one")
    staleness = draft.count("max_staleness", default=4, least=0)
    queue = draft.count("queue_maxsize", default=1024)
    tasks = draft.maybe_count("max_inflight_tasks", least=-1)
    put_rows(draft, "AsyncGRPOTrainer")
    if draft.settings.get("token_budget") is not None:
        put_rows(draft, "no budget")
    group, path = draft.values.get("workload.group_size", 1), "fleet.max_in_flight_samples"
    if tasks is None or tasks.value <= 0:
        most = max(group, staleness.value * samples.value)
        draft.put(path, most, staleness, samples, why="auto", back=writes("max_inflight_tasks"))
    else:
        draft.put(path, max(group, tasks.value), tasks)
    put_rows(draft, "age")
    draft.put("buffer.capacity_samples", max(queue.value, samples.value), queue)
    if queue.value < samples.value:
        draft.note(str(queue), "the queue is smaller than a batch: a whole batch fits here")
    put_rows(draft, "queue")
