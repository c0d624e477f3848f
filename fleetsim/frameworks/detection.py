"""Whose configuration is this? Told by keys that only one framework has, so that a mix-up is an error with a name."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim.errors import InputError, Problem
from fleetsim.frameworks.settings import RunSettings, normal

# Keys (or the first parts of keys) and programs that give a framework away; one that does so alone stands there twice.
MARKS: Mapping[str, tuple[str, ...]] = {
    "verl": (
        "actor_rollout_ref", "async_training", "data.train_batch_size", "data.max_response_length", "trainer.nnodes",
        "trainer.v1", "algorithm.adv_estimator", "worker.actor", "worker.rollout",
    ),
    "roll": (
        "actor_train", "actor_infer", "async_generation_ratio", "num_return_sequences_in_group", "train_env_manager",
        "rewards",
    ),
    "openrlhf": (
        "vllm.num_engines", "rollout.n_samples_per_prompt", "actor.model_name_or_path", "train.async_enable",
        "colocate_all_models", "micro_rollout_batch_size", "prompt_max_len", "generate_max_len", "train.colocate_all",
    ),
    "open-instruct": (
        "num_unique_prompts_rollout", "num_samples_per_prompt_rollout", "num_learners_per_node", "pack_length",
        "max_prompt_token_length",
    ),
    "trl": (
        "num_generations", "max_completion_length", "per_device_train_batch_size", "gradient_accumulation_steps",
        "vllm_mode", "max_inflight_tasks", "steps_per_generation",
    ),
    "areal": (
        "gconfig", "allocation_mode", "rollout.max_head_offpolicyness", "train_dataset", "rollout.backend",
        "actor.backend",
    ),
    "nemo-rl": ("grpo.num_prompts_per_step", "grpo", "policy.generation", "policy.model_name", "loss_fn", "async_rl"),
    "slime": (
        "hf_checkpoint", "rollout_num_gpus", "rollout_num_gpus_per_engine", "rollout_max_response_len", "colocate",
        "over_sampling_batch_size", "sglang_server_concurrency",
    ),
    "skyrl": (
        "trainer.placement", "generator.inference_engine", "generator.n_samples_per_prompt", "trainer.fully_async",
        "trainer.policy.model.path", "environment.env_class",
    ),
    "prime-rl": (
        "orchestrator", "inference", "deployment", "trainer_gpu_ids", "inference_gpu_ids", "max_async_level",
        "weight_broadcast", "rollouts_per_example",
    ),
    "ms-swift": (
        "rlhf_type", "rlhf_type", "tuner_type", "external_plugins", "sleep_level", "move_model_batches",
        "multi_turn_scheduler", "load_from_cache_file", "async_generate",
    ),
    "rlinf": (
        "cluster.component_placement", "cluster.component_placement", "runner.task_type", "rollout.rollout_backend",
        "data.rollout_batch_size", "algorithm.group_size",
    ),
    "tinker": (
        "groups_per_batch", "max_steps_off_policy", "stream_minibatch_config", "async_config", "dataset_builder",
        "training.group_size", "renderer_name", "recipe_name", "num_substeps", "behavior_if_log_dir_exists",
    ),
}  # fmt: skip
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "verl": ("verl.", "main_ppo"),
    "roll": ("rlvr_pipeline", "agentic_pipeline", "start_rlvr"),
    "openrlhf": ("openrlhf",),
    "open-instruct": ("grpo_fast", "open_instruct"),
    "trl": ("trl", "GRPOConfig"),
    "areal": ("areal",),
    "nemo-rl": ("run_grpo", "nemo_rl"),
    "slime": ("slime",),
    "skyrl": ("skyrl", "main_fully_async"),
    "prime-rl": ("prime_rl", "prime-rl"),
    "rlinf": ("rlinf",),
    "tinker": ("tinker_cookbook",),
    "ms-swift": ("swift rlhf", "megatron rlhf", "swift/cli", "rlhf.py"),
}
_ENOUGH = 2
_REMEDY = "give a configuration of RL with a rollout"
# What a file is instead, its sections (or the parts of a program's name) that say so, and what is wrong with it.
_OTHER_JOBS = (
    ("supervised fine-tuning", ("sft", "sft_train", "sft_args"), ("sft", "finetune", "SFTConfig", "SFTTrainer"), ""),
    ("preference optimization (as DPO)", ("dpo", "chosen_key"),
     ("dpo", "DPOTrainer", "KTO", "ORPO", "CPO", "bco.", "tpo.", "xpo.", "nash_md"), ""),
    ("a reward model's training", ("rm",),
     ("train_rm", "reward_model", "RewardTrainer", "_rw", "run_rm", "PRMTrainer", "prm."), ""),
    ("PPO or RLOO", ("ppo",), ("run_ppo", "PPOTrainer", "RLOO"), "its step is not modelled"),
    ("distillation", ("distillation", "teacher", "student"), ("distil", "GKD", "gold.", "sdft.", "ssd"),
     "its step is not modelled"),
    ("a rollout without training", ("rollout.rollout_backend", "rollout.backend"), ("rollout_pipeline",),
     "no trainer to plan for"),
)  # fmt: skip


def marks(settings: RunSettings) -> dict[str, int]:
    """How many of its marks each framework has in these settings."""
    counts = {}
    for framework, keys in MARKS.items():
        found = sum(settings.has(normal(key)) for key in keys)
        found += 2 * any(settings.runs(part) for part in PROGRAMS[framework])
        counts[framework] = found
    if counts["ms-swift"] and not settings.runs(*PROGRAMS["trl"]):
        counts["trl"] = 0  # ms-swift takes TRL's arguments as well
    return counts


# Framework, sections of which a file has one, those of which it then has none, what it is, and what is wrong with it.
_WITHOUT = (
    ("areal", ("actor",), ("rollout", "gconfig", "allocation_mode"), "fine-tuning, DPO or a reward model", ""),
    ("prime-rl", ("data",), ("orchestrator",), "supervised fine-tuning", ""),
    ("prime-rl", ("deployment",), ("orchestrator", "trainer", "deployment.num_train_gpus", "deployment.num_train_nodes",
     "model"), "an inference server", "no trainer to plan for"),
    ("prime-rl", ("model", "num_tasks", "gepa", "eval"), ("orchestrator", "trainer", "batch_size", "deployment",
     "data"), "an evaluation", "no training to plan for"),
    ("roll", ("actor_infer.device_mapping",), ("actor_train.device_mapping", "actor_train.strategy_args",
     "student_train"), "a rollout without training", "no trainer to plan for"),
    ("verl", ("engine", "optim"), ("actor_rollout_ref",), "supervised fine-tuning", ""),
)  # fmt: skip


def expect(settings: RunSettings, framework: str) -> None:
    """Raises InputError for settings that are plainly another framework's, or no training with a rollout."""
    other = _mixed_up(settings, framework) or _no_rollout(settings, framework)
    if other is not None:
        raise InputError([other])


def _no_rollout(settings: RunSettings, framework: str) -> Problem | None:
    """What a file is that could be read, but has no section or key of training with a rollout."""
    for whose, with_, without, what, why in _WITHOUT:
        if whose == framework and settings.has(*with_) and not settings.has(*without):
            return Problem("CONFIG", what, why or "no rollout to plan", _REMEDY)
    return None if any(settings.has(normal(key)) for key in MARKS[framework]) else other_job(settings)


def unlike(settings: RunSettings, framework: str) -> Problem | None:
    """That a file with settings of its own has none by which this framework is known, and does not start it."""
    if len(settings.found) == 1 or marks(settings)[framework]:  # one word of the user's own: he is told what it lacks
        return None
    rule = f"holds no setting of {framework}, and does not start it"
    return Problem("CONFIG", None, rule, "give its configuration file, launch script or flags")


def other_job(settings: RunSettings, *, sections: bool = True) -> Problem | None:
    """What a file is that lacks what a rollout needs; None where nothing says it. sections: whether they count, too."""
    rollout = settings.get("rollout_function_path", "loss_type")  # slime's
    if rollout is not None and "sft" in str(rollout[1]):
        return Problem("CONFIG", f"{rollout[0].key} = {rollout[1]}", "no rollout to plan: fine-tuning", _REMEDY)
    for what, keys, programs, why in _OTHER_JOBS:
        if (sections and settings.has(*keys)) or settings.runs(*programs):
            return Problem("CONFIG", what, why or "no rollout to plan", _REMEDY)
    return None


def _mixed_up(settings: RunSettings, framework: str) -> Problem | None:
    """A problem when the settings are plainly another framework's."""
    counts = marks(settings)
    if not counts[framework] and (job := other_job(settings, sections=False)) is not None:
        return job
    other = max(counts, key=lambda name: counts[name])
    if counts[framework] or counts[other] < _ENOUGH:
        return None
    return Problem(
        "FRAMEWORK", framework, f"this looks like a configuration of {other}", f"fleetsim scenario from {other} CONFIG"
    )
