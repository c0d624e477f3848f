"""ms-swift (modelscope/ms-swift at 3602360a5): GRPO by `swift rlhf` and `megatron rlhf`, engines shared or apart.

Names and defaults: swift/arguments/rlhf_args.py and deploy_args.py, swift/rlhf_trainers/args_mixin.py,
swift/trainers/arguments.py, swift/megatron/arguments/megatron_args.py; processes: NPROC_PER_NODE and NNODES
(swift/cli/main.py). What it shares with TRL, whose trainer it builds on, is `trl.py`'s.
"""

from __future__ import annotations

from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, above_0, on_nodes, one_of, times, writes
from fleetsim.frameworks.sides import adapter
from fleetsim.frameworks.tables import FRAMEWORKS, put_rows
from fleetsim.frameworks.trl import engine_mode, put_samples, put_server

# The server's own command, and the section of a file for Ray, say the same under these.
_SERVED, _RAY = "vllm_serve.", "rollout."
# swift/trainers/arguments.py: a step has at least so many samples where nothing says how many.
_LEAST = 16
_MEGATRON = "trainer.recipe.backend"


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from ms-swift's flags."""
    megatron = draft.settings.runs("megatron") or draft.settings.has("global_batch_size", "micro_batch_size")
    kind = draft.text("rlhf_type", default="")
    if kind.value != "grpo":
        others = FRAMEWORKS["ms-swift"].told["kind"]
        (what,) = others.get(kind.value, ["fine-tuning, inference or a server: no rollout to plan"])
        draft.refuse("rlhf_type", kind.value or None, what, "give a training with rlhf_type grpo")
        if len(draft.settings.found) > 1:
            return
    draft.preset = "trl-grpo"
    n = put_rows(draft, "model")["workload.group_size"]
    # args_mixin.py, completion_length_limit_scope: the cap is one turn's unless it is told to be the whole's
    answer = draft.count("max_completion_length", "response_length", "max_new_tokens", default=512)
    turns = draft.maybe_count("max_turns", f"{_SERVED}max_turns")
    marks = ("multi_turn_scheduler", "gym_env", "use_gym_env")
    marks = (*marks, *(f"{_SERVED}{mark}" for mark in marks), "vllm_server_pass_dataset")
    found = next((key for key in marks if draft.settings.get(key) is not None), "")
    roles.put_turns(draft, turns, "max_turns", found)
    if draft.text("completion_length_limit_scope", default="per_round").value == "per_round":
        answer = roles.trajectory(draft, answer, turns, None)
    common.lengths(draft, answer, draft.maybe_count("max_length"), prompt_key="max_length")
    ray = draft.maybe_count("train.gpus")  # of a file for Ray
    nodes = draft.count("nnodes", "launcher.nnodes", default=1)
    each = draft.count("nproc_per_node", "launcher.nproc_per_node", default=1)
    gpus = draft.take("trainer.gpus", ray or on_nodes(nodes, each), why="one GPU per process")
    samples = _megatron_samples(draft, n) if megatron else put_samples(draft, gpus, n, _LEAST, 1)[0]
    _rollout(draft, gpus, samples)
    common.transport(draft, None, {})
    put_rows(draft, "filter")
    # swift/rlhf_trainers/grpo_trainer.py, _prepare_batch_inputs: the policy's own pass is always made
    common.hardware_and_times(draft, speed, True, above_0(draft.number("beta", default=0.04), 0.04))
    put_rows(draft, "epochs")
    _trainer(draft, megatron)


def _megatron_samples(draft: Draft, n: Read[int]) -> Read[int]:
    """megatron_args.py, resolve_generation_batch_size: a generation is so many global batches, each a step."""
    update = draft.count("global_batch_size", default=16)
    whole, steps = draft.maybe_count("generation_batch_size"), draft.maybe_count("steps_per_generation")
    steps = steps or Read("steps_per_generation", max(1, whole.value // update.value) if whole else 1, False)
    batch = times(update, steps)
    if batch.value % n.value:
        draft.refuse(update.key, update.value, f"with {steps} must be a multiple of {n}", "groups are whole")
    draft.take("trainer.batch_samples", batch, why="samples of one generation")

    def split(want: int) -> dict[str, int] | None:
        return None if batch.value % want else {update.key: batch.value // want, steps.key: want}

    why = "their updates count as one step"
    draft.put("trainer.recipe.optimizer_steps", steps.value, steps, why=why, back=split, unless=1)
    return batch


def _rollout(draft: Draft, gpus: Read[int], samples: Read[int]) -> None:
    ray = draft.maybe_count("rollout.gpus")
    shared = ray is None or draft.settings.has("colocate_groups")
    mode = engine_mode(draft, "colocate" if shared else "server")
    keys = (_SERVED, "") if mode.value == "server" and ray is None else ("", _SERVED)
    keys = (_RAY, *keys) if ray is not None else keys
    tp = put_rows(draft, "engine", *keys)["engine.tp"]
    if mode.value == "colocate":
        draft.mode = "colocate"
        draft.parted("fleet.instances", gpus, tp)
        draft.put("fleet.placement", "colocated", mode, why="vLLM runs on the trainer's GPUs", back=one_of({}))
        put_rows(draft, "colocate")
        moved = [draft.flag(key, default=False) for key in ("offload_model", "offload_optimizer")]
        sleep = draft.count("sleep_level", default=0, least=0)
        if not sleep.value and not any(read.value for read in moved):
            back = lambda want: {sleep.key: +(want > 0)}  # noqa: E731 its level
            draft.put("fleet.switch_s", 0.0, sleep, why="nothing is offloaded", back=back)
        return
    ahead = draft.flag("async_generate", default=False)
    draft.mode = "server, one batch ahead" if ahead.value else "server"
    replicas, model = f"{_SERVED}vllm_data_parallel_size", f"{_SERVED}model"
    if ray is not None:
        draft.maybe_count(replicas)
        draft.parted("fleet.instances", ray, tp)
        draft.could("engine.model", None, writes(model, ""))
    else:
        put_server(draft, replicas, model, size="the size of `swift rollout`")
    put_rows(draft, draft.mode)


def _trainer(draft: Draft, megatron: bool) -> None:
    """Layout, offload, adapters, and the models beside the policy."""
    sections = ("", "train.")
    kind = ("megatron", "Megatron-Core trains") if megatron else ("fsdp", "accelerate or DeepSpeed shards the weights")
    draft.semantics(_MEGATRON, *kind)
    for block in ("megatron" if megatron else "trainer", "memory"):
        put_rows(draft, block, *sections)
    tuner = draft.text(*(f"{s}tuner_type" for s in sections), default="full" if megatron else "lora")
    lora = tuner.value.startswith("lora")
    roles.adapters(draft, tuner, lora)
    own = draft.flag("vllm_enable_lora", f"{_SERVED}vllm_enable_lora", default=False)
    rank = draft.count(*(f"{s}lora_rank" for s in sections), default=8)
    with_it = lambda want: {rank.key: want, own.key: True}  # noqa: E731 a table of two
    adapter(draft, Read(rank.key, rank.value if lora and own.value else 0, rank.given, with_it))
    roles.judges(draft, "teacher_model", by=roles.passed)
    for key in ("teacher_model_server", "reward_model"):  # one, or several in a list
        found = draft.settings.get(key)
        if found is not None:
            roles.judged(draft, f"{found[0].key} = {found[1]}")
