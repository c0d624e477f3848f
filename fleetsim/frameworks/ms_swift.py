"""ms-swift (modelscope/ms-swift at 3602360a5): GRPO by `swift rlhf` and `megatron rlhf`, engines shared or apart.

Names and defaults: swift/arguments/rlhf_args.py and deploy_args.py, swift/rlhf_trainers/args_mixin.py,
swift/trainers/arguments.py, swift/megatron/arguments/megatron_args.py; processes: NPROC_PER_NODE and NNODES
(swift/cli/main.py). What it shares with TRL, whose trainer it builds on, is `trl.py`'s.
"""

from __future__ import annotations

from typing import Any

from fleetsim.frameworks import common, recipe, roles
from fleetsim.frameworks.common import Framework, Mode
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, on_nodes, one_of, parts_of, times
from fleetsim.frameworks.roles import put_turns, trajectory
from fleetsim.frameworks.sides import adapter
from fleetsim.frameworks.trl import equal_parts, put_samples

# The server's own command, and the section of a file for Ray, say the same under these.
_SERVED, _RAY = "vllm_serve.", "rollout."
# swift/trainers/arguments.py: a step has at least so many samples where nothing says how many.
_LEAST = 16
_MEGATRON = "trainer.recipe.backend"
_OTHERS = {
    **dict.fromkeys(("dpo", "kto", "cpo", "orpo", "simpo"), "preference optimization: no rollout to plan"),
    "rm": "a reward model's training: no rollout to plan",
    "ppo": "its critic and its step are not modelled",
    "gkd": "distillation: its step is not modelled",
}
NOT_MODELLED = {
    "use_liger_kernel": "kernels: the trainer's seconds per token say how well they work",
    "overlong_filter": "truncated samples are generated, but not trained",
    "vllm_use_async_engine": "the engine's own front",
}


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from ms-swift's flags."""
    megatron = draft.settings.runs("megatron") or draft.settings.has("global_batch_size", "micro_batch_size")
    kind = draft.text("rlhf_type", default="")
    if kind.value != "grpo":
        what = _OTHERS.get(kind.value, "fine-tuning, inference or a server: no rollout to plan")
        draft.refuse("rlhf_type", kind.value or None, what, "give a training with rlhf_type grpo")
        if len(draft.settings.found) > 1:
            return
    draft.preset = "trl-grpo"
    common.model(draft, "model", f"{_SERVED}model", remedy="-- --model Qwen/Qwen2.5-7B")
    n = draft.take("workload.group_size", draft.count("num_generations", default=8))
    _lengths(draft)
    gpus = _processes(draft)
    samples, step = _megatron_samples(draft, n) if megatron else put_samples(draft, gpus, n, _LEAST, 1)
    _rollout(draft, gpus, samples)
    common.transport(draft, None, {})
    common.filtering(draft, draft.flag("dynamic_sample", default=False))
    beta = draft.number("beta", default=0.04)
    made = {"old log-probs": samples.value > step.value, "reference log-probs": beta.value > 0}
    common.hardware_and_times(draft, speed, made)
    recipe.passes(draft, reference=(beta.value > 0, one_of({True: {beta.key: 0.04}, False: {beta.key: 0.0}})))
    recipe.counts(draft, {"epochs": "num_iterations"})
    _trainer(draft, megatron)
    draft.leave_out(NOT_MODELLED)


def _lengths(draft: Draft) -> None:
    """args_mixin.py, completion_length_limit_scope: the cap is one turn's unless it is told to be the whole's."""
    answer = draft.count("max_completion_length", "response_length", "max_new_tokens", default=512)
    turns = draft.maybe_count("max_turns", f"{_SERVED}max_turns")
    marks = ("multi_turn_scheduler", "gym_env", "use_gym_env")
    marks = (*marks, *(f"{_SERVED}{mark}" for mark in marks), "vllm_server_pass_dataset")
    found = next((key for key in marks if draft.settings.get(key) is not None), "")
    put_turns(draft, turns, "max_turns", found)
    if draft.text("completion_length_limit_scope", default="per_round").value == "per_round":
        answer = trajectory(answer, turns, None)
    common.lengths(draft, answer, draft.maybe_count("max_length"), prompt_key="max_length")


def _processes(draft: Draft) -> Read[int]:
    """GPUs of the trainer: its processes, or what a file for Ray says."""
    ray = draft.maybe_count("train.gpus")
    nodes = draft.count("nnodes", "launcher.nnodes", default=1)
    each = draft.count("nproc_per_node", "launcher.nproc_per_node", default=1)
    gpus = ray or on_nodes(nodes, each)
    return draft.take("trainer.gpus", gpus, why="one GPU per process")


def _megatron_samples(draft: Draft, n: Read[int]) -> tuple[Read[int], Read[int]]:
    """megatron_args.py, resolve_generation_batch_size: a generation is so many global batches, each a step."""
    update = draft.count("global_batch_size", default=16)
    whole, steps = draft.maybe_count("generation_batch_size"), draft.maybe_count("steps_per_generation")
    steps = steps or Read("steps_per_generation", max(1, whole.value // update.value) if whole else 1, False)
    batch = times(update, steps)
    if batch.value % n.value:
        draft.refuse(update.key, update.value, f"with {steps} must be a multiple of {n}", "groups are whole")
    draft.put("trainer.batch_samples", batch.value, batch, why="samples of one generation", back=batch.written)

    def split(want: int) -> dict[str, int] | None:
        return None if batch.value % want else {update.key: batch.value // want, steps.key: want}

    why = "their updates count as one step"
    draft.put("trainer.recipe.optimizer_steps", steps.value, steps, why=why, back=split, unless=1)
    return batch, update


def _rollout(draft: Draft, gpus: Read[int], samples: Read[int]) -> None:
    used = draft.flag("use_vllm", default=False)
    if not used.value:
        draft.note(str(used), "generation by transformers: vLLM stands in, which is several times faster")
    ray = draft.maybe_count("rollout.gpus")
    shared = ray is None or draft.settings.has("colocate_groups")
    mode = draft.choice("vllm_mode", default="colocate" if shared else "server", known=("colocate", "server"))
    keys = (_SERVED, "") if mode.value == "server" and ray is None else ("", _SERVED)
    keys = (_RAY, *keys) if ray is not None else keys
    tp = draft.take("engine.tp", draft.count(*(f"{k}vllm_tensor_parallel_size" for k in keys), default=1))
    share = draft.number(*(f"{k}vllm_gpu_memory_utilization" for k in keys), default=0.9, most=1.0)
    draft.take("engine.gpu_memory_utilization", share)
    draft.take("engine.prefix_caching", draft.flag(*(f"{k}vllm_enable_prefix_caching" for k in keys), default=True))
    most = [f"{k}vllm_max_num_seqs" for k in keys]
    draft.where_said("engine.max_num_seqs", draft.maybe_count(*most), most[0])
    common.entry_point(draft, "llm", "vLLM's engine in the framework's own processes")
    equal_parts(draft)
    if mode.value == "colocate":
        draft.mode = "colocate"
        instances = draft.divided("the number of instances", gpus, tp)
        draft.put("fleet.instances", instances, gpus, tp, back=parts_of(gpus, tp))
        draft.put("fleet.placement", "colocated", mode, why="vLLM runs on the trainer's GPUs", back=one_of({}))
        common.barrier(draft, "the whole batch is generated before it is trained")
        moved = [draft.flag(key, default=False) for key in ("offload_model", "offload_optimizer")]
        sleep = draft.count("sleep_level", default=0, least=0)
        if not sleep.value and not any(read.value for read in moved):
            draft.put(
                "fleet.switch_s", 0.0, sleep, why="nothing is offloaded", back=lambda want: {sleep.key: +(want > 0)}
            )
        return
    _server(draft, tp, ray, draft.flag("async_generate", default=False))


def _server(draft: Draft, tp: Read[int], ray: Read[int] | None, ahead: Read[bool]) -> None:
    """`swift rollout`: its own command says how large it is, if the script has it; a file for Ray has its GPUs."""
    draft.mode = "server, one batch ahead" if ahead.value else "server"
    replicas = draft.maybe_count(f"{_SERVED}vllm_data_parallel_size")
    if ray is not None:
        instances = draft.divided("the number of instances", ray, tp)
        draft.put("fleet.instances", instances, ray, tp, back=parts_of(ray, tp))
    elif replicas is not None:
        draft.take("fleet.instances", replicas)
    else:
        draft.could("fleet.instances", None, Read(f"{_SERVED}vllm_data_parallel_size", 1, False).written)
        draft.assume("fleet.instances", 1, "the size of `swift rollout` is not in this configuration")
    draft.could("engine.model", None, Read(f"{_SERVED}model", "", False).written)
    draft.semantics("fleet.placement", "disaggregated", "the server has GPUs of its own")
    if not ahead.value:
        common.barrier(draft, "the whole batch is generated before it is trained")
        return
    # grpo_trainer.py, async_generate: the next batch is generated, with the weights of before, while one is trained
    draft.semantics("admission.law", "batches_ahead", "the next batch is generated while one is trained")
    draft.semantics("admission.batches_ahead", 1, "one batch ahead")
    draft.semantics("sync.in_flight", "drain", "weights change between two batches, when nothing is in flight")
    draft.semantics("buffer.batch_rule", "fifo", "the batch that was generated before")


def _trainer(draft: Draft, megatron: bool) -> None:
    """Layout, offload, adapters, and the models beside the policy."""
    sections = ("", "train.")
    draft.could(_MEGATRON, "megatron" if megatron else "fsdp", one_of({}))
    if megatron:
        draft.semantics(_MEGATRON, "megatron", "Megatron-Core trains")
        words = {"tp": "tensor_model", "pp": "pipeline_model", "cp": "context", "ep": "expert_model"}
        recipe.counts(draft, {k: tuple(f"{s}{w}_parallel_size" for s in sections) for k, w in words.items()})
        recipe.words(draft, "offload", {"true": "adam"}, "optimizer_cpu_offload")
    else:
        recipe.words(draft, "offload", {"zero3_offload": "adam", "zero2_offload": "adam"}, "deepspeed")
        recipe.counts(draft, {"cp": "sequence_parallel_size"})
        recipe.flags(draft, {"recompute": ("gradient_checkpointing", True)})
    tuner = draft.text(*(f"{s}tuner_type" for s in sections), default="full" if megatron else "lora")
    lora = tuner.value.startswith("lora")
    roles.adapters(draft, tuner, lora)
    own = draft.flag("vllm_enable_lora", f"{_SERVED}vllm_enable_lora", default=False)
    rank = draft.count(*(f"{s}lora_rank" for s in sections), default=8)
    on: dict[str, Any] = {own.key: True}
    adapter(
        draft, Read(rank.key, rank.value if lora and own.value else 0, rank.given, lambda want: {rank.key: want, **on})
    )
    draft.settings.see("lora_rank", "train.lora_rank")
    teacher = draft.maybe_text("teacher_model")
    if teacher is not None:
        roles.passed(draft, str(teacher))
    for key in ("teacher_model_server", "reward_model"):
        found = draft.settings.get(key)
        if found is not None:
            roles.judged(draft, f"{found[0].key} = {found[1]}")


_START = "NNODES={nnodes} NPROC_PER_NODE={nproc_per_node} "
FRAMEWORK = Framework(
    build,
    "modelscope/ms-swift",
    "values",
    tuple(
        Mode(f"{program}, {name}", f"{_START}{program} rlhf", {"rlhf_type": "grpo", "use_vllm": True, **settings})
        for program in ("swift", "megatron")
        for name, settings in (
            ("colocate", {"vllm_mode": "colocate"}),
            ("server", {"vllm_mode": "server"}),
            ("one batch ahead", {"vllm_mode": "server", "async_generate": True}),
        )
    ),
    "--dataset, --reward_funcs, the learning rate, --vllm_server_host and --vllm_server_port",
    {_SERVED: "swift rollout"},
)
