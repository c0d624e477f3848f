"""Tinker's cookbook (thinking-machines-lab/tinker-cookbook at 9dfcc3a2): RL of its recipes, LoRA on a service.

Names: tinker_cookbook/rl/train.py (Config, AsyncConfig, StreamMinibatchConfig), whose values a run writes to
config.json; defaults: the train.py of each recipe. What it does: do_sync_training, do_async_training and
do_train_step_streaming there, completers.py (a cap is one request's), recipes/verifiers_rl (a group runs in one).
The service has the GPUs and is paid by the token: what is simulated is the same job on GPUs of one's own.
"""

from __future__ import annotations

from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, above_0, one_of, times, writes
from fleetsim.frameworks.sides import ADAPTERS
from fleetsim.frameworks.tables import FRAMEWORKS, put_rows

# rllm-org/rllm at 9beb6e0f, rllm/trainer/config/rllm/backend/tinker.yaml: the same service by other keys, in commands
# of any name; a group's samples must be said.
_RLLM = ("Qwen/Qwen3-8B", "0", "32", "2048")
# These call the groups of a batch `batch_size`.
_BY_BATCH = ("search_tool", "guess_number", "twenty_questions", "shorter", "rl_loop")
# Of these the turns are the recipe's own; of the others that take several, a setting says the cap.
_GAMES = ("guess_number", "twenty_questions", "text_arena", "multi_turn", "verifiers_rl")
_CAPPED = {"harbor_rl": 10, "search_tool": 5}
_WINDOWS = "rllm.async_training"
_CONTEXT = 32768  # tokens of a trajectory of the recipes that cap its turns


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from the cookbook's keys."""
    settings = draft.settings
    recipes = FRAMEWORKS["tinker"].told["recipe"]
    name = next((name for name in recipes if settings.runs(name)), "")
    of_rllm = settings.has("training.group_size")
    named, *sizes = recipes.get(name, _RLLM if of_rllm else ("", "0", "0", "0"))
    group, groups, tokens = map(int, sizes)
    if named and settings.get("model_name", "model.name") is None and "engine.model" not in draft.given:
        draft.put("engine.model", named, Read("model.name" if of_rllm else "model_name", named, False))
    else:
        put_rows(draft, "model")
    n = _counted(draft, group, "group_size", "train_group_size", "dataset_builder.group_size", "training.group_size")
    draft.take("workload.group_size", n)
    spelled = ("batch_size", "groups_per_batch") if name in _BY_BATCH else ("groups_per_batch", "batch_size")
    sections = (*(f"dataset_builder.{key}" for key in spelled), "async_config.groups_per_batch")
    sections += ("data.train_batch_size",)
    if windowed := draft.flag(f"{_WINDOWS}.enable", default=False).value:
        _windows(draft, n)
    else:
        batch = _counted(draft, groups, *spelled, *sections, "stream_minibatch_config.groups_per_batch")
        samples = draft.product("trainer.batch_samples", batch, n, why="groups x samples")
    _lengths(draft, name, tokens)
    if windowed:
        put_rows(draft, "windows")
    else:
        _order(draft, samples, batch)
    tasks = draft.maybe_count("rllm.workflow.n_parallel_tasks", "workflow.n_parallel_tasks")
    if tasks is not None:
        most = max(tasks.value, n.value)
        draft.put("fleet.max_in_flight_samples", most, tasks, why="a workflow has a sample")
    if draft.settings.has("training.group_size"):
        roles.workflow_limited(draft)
    why = "the service has the GPUs, and no setting says how many: those of your own that would do this"
    for path, value in (("trainer.gpus", 8), ("fleet.instances", 4)):
        draft.assume(path, value, why, f"--set {path}=N")
    put_rows(draft, "service")
    draft.note("Tinker", "a price by the token: GPUs of your own have one by the hour")
    penalty = draft.number("kl_penalty_coef", default=float(name == "on_policy_distillation"))
    drops = draft.flag("remove_constant_reward_groups", default=False)  # of Config: no recipe's command takes it
    common.filtering(draft, Read(drops.key, drops.value, drops.given, one_of({})))
    common.hardware_and_times(draft, speed, Read("", False, False, one_of({})), above_0(penalty, 0.01))
    roles.judges(draft, "teacher_model", by=roles.passed)
    rank = draft.count("lora_rank", "model.lora_rank", default=128 if name == "on_policy_distillation" else 32)
    roles.adapters(draft, rank)
    draft.put(f"{ADAPTERS}.rank", rank.value, rank, why="the engine multiplies the adapter beside its weights")


def _counted(draft: Draft, default: int, *keys: str) -> Read[int]:
    """A number that every recipe has; a run of another one must say it."""
    return draft.needed_count(*keys, remedy=f"-- {keys[0]}=32", usual=default)


def _lengths(draft: Draft, name: str, tokens: int) -> None:
    turn = _counted(draft, tokens, "max_tokens", "data.max_response_length")
    turns = draft.maybe_count("max_turns", "rllm.agent.max_steps", "agent.max_steps") or (
        Read("max_turns", _CAPPED[name], False) if name in _CAPPED else None
    )
    marker = next((game for game in _GAMES if draft.settings.runs(game)), "")
    roles.put_turns(draft, turns, "max_turns", marker)
    context = Read("max_trajectory_tokens", _CONTEXT, False) if name in _CAPPED else None
    key = "max_trajectory_tokens"
    whole = roles.fewest(*map(draft.maybe_count, ("max_generation_tokens", key))) or context
    common.lengths(
        draft, roles.trajectory(draft, turn, turns, whole, key, several=turns is None and bool(marker)), None
    )


def _windows(draft: Draft, n: Read[int]) -> None:
    """rLLM's asynchronous training: a step here is what is trained between two synchronizations."""
    draft.mode, draft.preset = "asynchronous, by windows", "verl-fully-async"
    groups = draft.count(f"{_WINDOWS}.mini_batch_size", default=64)
    every = draft.count(f"{_WINDOWS}.trigger_parameter_sync_step", default=1)
    draft.product("trainer.batch_samples", times(groups, every), n, why="groups x samples, of a window")
    each = draft.maybe_count(f"{_WINDOWS}.fwd_bwd_group_size") or groups  # unified_trainer.py, _training_loop
    passes = draft.divided("the number of passes", groups, each)
    parts = times(every, Read(f"{groups.key} / {each.key}", passes, each.given))
    draft.put("trainer.minibatches", parts.value, parts, why="each is trained as soon as it is there", unless=1)
    draft.take("sync.every_pulls", parts)
    draft.settings.see("data.train_batch_size")


def _order(draft: Draft, samples: Read[int], batch: Read[int]) -> None:
    """Who waits for whom: whole batches, streamed parts of one, or workers that never wait for the trainer."""
    late = draft.maybe_count("max_steps_off_policy", "async_config.max_steps_off_policy", least=0)
    streamed = draft.maybe_count("stream_minibatch_config.num_minibatches")
    steps = draft.count("num_substeps", default=1)
    named = ["asynchronous" if late is not None else "synchronous", *(["streamed"] if streamed is not None else [])]
    draft.mode, draft.preset = ", ".join(named), "trl-grpo" if late is None else "tinker-async"
    if streamed is None:
        put_rows(draft, "steps")
        draft.could("trainer.minibatches", 1, writes("stream_minibatch_config.num_minibatches"), 1)
    else:
        parts = draft.take("trainer.minibatches", times(streamed, steps), why="each is trained once it is there")
        if batch.value % parts.value:
            draft.refuse(batch.key, batch.value, f"must be a multiple of {parts}", "change one of them")
    if late is None:
        put_rows(draft, "synchronous")
        return
    put_rows(draft, "workers")
    draft.put("fleet.max_in_flight_samples", samples.value, samples, why="a worker for each group of a batch")
    put_rows(draft, "groups")
