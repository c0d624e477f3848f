"""The policy's own pass before an update: what each framework's code asks of its settings, read there by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.frameworks.convert import scenario_from
from fleetsim.frameworks.export import scenario_to
from fleetsim.frameworks.patch import patch_of
from fleetsim.frameworks.source import parsed_source
from fleetsim.job.nameplate import limits_of

NEMO = """\
policy: {{model_name: Qwen/Qwen2.5-7B, train_global_batch_size: 32}}
grpo: {{num_prompts_per_step: 8, num_generations_per_prompt: 4, {}}}
loss_fn: {{force_on_policy_ratio: {}}}
cluster: {{gpus_per_node: 8}}
"""
AREAL = """\
actor: {{path: Qwen/Qwen3-8B, backend: "fsdp:d2", {}}}
rollout: {{backend: "sglang:d2"}}
train_dataset: {{batch_size: 8}}
"""
# 8 x 4 samples on eight data-parallel ranks: four of each rank.
ROLL = """\
pretrain: Qwen/Qwen2.5-7B
rollout_batch_size: 8
num_return_sequences_in_group: 4
adv_estimator: {estimator}
init_kl_coef: {coefficient}
actor_train:
  device_mapping: "list(range(0,8))"
  training_args: {{per_device_train_batch_size: 1, gradient_accumulation_steps: {steps}}}
  strategy_args: {{strategy_name: {strategy}}}
actor_infer: {{device_mapping: "list(range(0,8))"}}
{more}
"""
USUAL = {"estimator": "grpo", "coefficient": 0.0, "steps": 4, "strategy": "megatron_train", "more": ""}
SLIME = "python train.py --hf-checkpoint Qwen/Qwen3-8B --colocate --rollout-batch-size 8 --n-samples-per-prompt 4 "
OPEN = "python grpo_fast.py --model_name_or_path Qwen/Qwen3-8B "
TRL = "trl grpo --model_name_or_path Qwen/Qwen3-8B --num_processes 4 --per_device_train_batch_size 8 "
SWIFT = "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B --per_device_train_batch_size 8 "
SKYRL = "python -m skyrl.train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen3-8B "
RLLM = "python train.py rllm/backend=verl actor_rollout_ref.model.path=Qwen/Qwen3-8B "


def read(framework: str, text: str) -> Scenario:
    name = {"nemo-rl": "c.yaml", "areal": "c.yaml", "roll": "c.yaml", "rlinf": "c.yaml", "prime-rl": "c.toml"}.get(
        framework, "c.sh"
    )
    return scenario_from(framework, parsed_source(text, name), name).scenario


@pytest.mark.parametrize(
    ("framework", "text", "made"),
    [
        ("nemo-rl", NEMO.format("", "false"), True),
        ("nemo-rl", NEMO.format("", "true"), False),
        ("nemo-rl", NEMO.format("seq_logprob_error_threshold: 2", "true"), True),
        ("areal", AREAL.format(""), False),
        ("areal", AREAL.format("recompute_logprob: true"), True),
        ("areal", AREAL.format("use_decoupled_loss: true"), True),
        ("areal", AREAL.format("use_decoupled_loss: true, prox_logp_method: loglinear"), False),
        ("roll", ROLL.format(**USUAL), False),
        ("roll", ROLL.format(**{**USUAL, "steps": 2}), True),
        ("roll", ROLL.format(**{**USUAL, "steps": 2, "more": "force_disable_old_logprobs_recompute: true"}), False),
        ("roll", ROLL.format(**{**USUAL, "coefficient": 0.1}), True),
        ("roll", ROLL.format(**{**USUAL, "estimator": "gigpo"}), True),
        ("roll", ROLL.format(**{**USUAL, "more": "enable_old_logprobs_recompute: true"}), True),
        ("roll", ROLL.format(**{**USUAL, "strategy": "deepspeed_train"}), True),  # counted as one rank
        ("slime", SLIME, False),
        ("slime", f"{SLIME} --global-batch-size 16", True),
        ("slime", f"{SLIME} --global-batch-size 16 --use-rollout-logprobs", False),
        ("slime", f"{SLIME} --advantage-estimator gspo", True),
        ("slime", f"{SLIME} --kl-coef 0.01", True),
        ("slime", f"{SLIME} --use-routing-replay", True),
        ("slime", f"{SLIME} --use-routing-replay --use-rollout-routing-replay", False),
        ("slime", f"{SLIME} --keep-old-actor", True),
        ("slime", f"{SLIME} --train-backend fsdp", True),  # Miles
        ("slime", f"{SLIME} --custom-rm-path miles.rewards.mine", True),
        ("slime", f"{SLIME} --custom-rm-path miles.rewards.mine --skip-actor-forward-only", False),
        ("slime", f"{SLIME} --custom-rm-path smiles.rewards.mine", False),
        ("open-instruct", OPEN, False),
        ("open-instruct", f"{OPEN} --num_mini_batches 2", True),
        ("open-instruct", f"{OPEN} --num_mini_batches 2 --use_vllm_logprobs true", False),
        ("trl", f"{TRL} --use_vllm", True),
        ("trl", f"{TRL} --use_vllm --vllm_importance_sampling_correction false", False),
        ("trl", TRL, False),
        ("trl", f"{TRL} --num_iterations 2", True),
        ("trl", f"{TRL} --steps_per_generation 4", True),
        ("ms-swift", SWIFT, True),
        ("skyrl", SKYRL, True),
        ("skyrl", f"{SKYRL} trainer.algorithm.policy_loss_type=rollout_is", False),
        ("skyrl", f"{SKYRL} trainer.algorithm.policy_loss_type=cispo", True),
        ("skyrl", f"{SKYRL} trainer.algorithm.policy_loss_type=dppo trainer.algorithm.use_kl_in_reward=true", True),
        ("skyrl", f"{SKYRL} trainer.algorithm.policy_loss_type=dppo generator.sampling_params.logprobs=null", True),
        ("skyrl", f"{SKYRL} trainer.algorithm.policy_loss_type=rollout_is "
         "trainer.algorithm.off_policy_correction.tis_ratio_type=token", True),
        ("verl", RLLM, True),
        ("verl", f"{RLLM} rllm.algorithm.rollout_correction.bypass_mode=true", False),
    ],
)  # fmt: skip
def test_the_policys_own_pass(framework: str, text: str, made: bool) -> None:
    assert read(framework, text).trainer.recipe.old_log_probs == made


@pytest.mark.parametrize(("steps", "updates"), [(4, 1), (2, 2), (1, 4)])
def test_rolls_optimizer_steps_are_of_a_ranks_samples(steps: int, updates: int) -> None:
    """roll/pipeline/rlvr/actor_worker.py, train_step: a rank's 4 samples in parts of per_device x accumulated."""
    assert read("roll", ROLL.format(**{**USUAL, "steps": steps})).trainer.recipe.optimizer_steps == updates


def test_rolls_sequences_are_split_by_ulysses() -> None:
    """Eight GPUs, two to a sequence, are four ranks, each of eight samples."""
    text = ROLL.format(**{**USUAL, "strategy": "fsdp2_train", "steps": 4}).replace(
        "  training_args", "  model_args: {ulysses_size: 2}\n  training_args"
    )
    recipe = read("roll", text).trainer.recipe
    assert (recipe.cp, recipe.optimizer_steps, recipe.old_log_probs) == (2, 2, True)


@pytest.mark.parametrize(
    ("strategy", "where", "value", "again"),
    [
        ("megatron_train", "strategy_args: {strategy_config: {recompute_granularity", "full", True),
        ("megatron_train", "strategy_args: {strategy_config: {moe_layer_recompute", "true", True),
        ("fsdp2_train", "model_args: {disable_gradient_checkpointing", "true", False),
        ("deepspeed_train", "model_args: {disable_gradient_checkpointing", "true", False),
        (
            "megatron_train",
            "model_args: {disable_gradient_checkpointing",
            "true",
            False,
        ),  # it is no switch of Megatron's, which computes nothing again by itself
    ],
)
def test_rolls_activations(strategy: str, where: str, value: str, again: bool) -> None:
    tree = yaml.safe_load(ROLL.format(**USUAL))
    for section, of in yaml.safe_load(f"{where}: {value}{'}' * where.count('{')}").items():
        tree["actor_train"][section] = {**tree["actor_train"].get(section, {}), **of}
    tree["actor_train"]["strategy_args"]["strategy_name"] = strategy
    assert read("roll", yaml.safe_dump(tree)).trainer.recipe.recompute == again


def test_rolls_modules_that_are_computed_again_are_said() -> None:
    text = ROLL.format(**USUAL)
    tree = yaml.safe_load(text)
    for modules, again in (("moe,layernorm", True), ("core_attn", False), (["core_attn", "mlp"], True), (None, False)):
        config = {"recompute_granularity": "selective", "recompute_modules": modules}
        tree["actor_train"]["strategy_args"]["strategy_config"] = config
        job = read("roll", yaml.safe_dump(tree))
        assert job.trainer.recipe.recompute == again
        assert "trainer.recipe.recompute" in job.assumed


@pytest.mark.parametrize(("said", "again"), [("full", True), ("selective", False), ("none", False)])
def test_megatrons_activations(said: str, again: bool) -> None:
    """ms-swift, like Megatron-LM: selective is core attention alone; that it counts for nothing is assumed."""
    job = read("ms-swift", f"{SWIFT.replace('swift rlhf', 'megatron rlhf')} --recompute_granularity {said}")
    assert job.trainer.recipe.recompute == again
    assert ("trainer.recipe.recompute" in job.assumed) == (said == "selective")


VERL = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B "
MEGATRON = "actor_rollout_ref.actor.megatron.override_transformer_config.recompute"
OPENRLHF = "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen3-8B --vllm.num_engines 8 "
nemo_megatron = lambda more: NEMO.format("", "false").replace(  # noqa: E731 a text with a section more
    "batch_size: 32", f"batch_size: 32, megatron_cfg: {{enabled: true{more}}}"
)
PRIME = "[orchestrator]\nbatch_size = 64\n[model]\nname = 'Qwen/Qwen3-8B'\n"


@pytest.mark.parametrize(
    ("framework", "text", "again"),
    [
        ("verl", VERL, True),
        ("verl", f"{VERL} actor_rollout_ref.model.enable_gradient_checkpointing=False", False),
        ("verl", f"{VERL} model_engine=megatron", False),
        # its switch is none of Megatron's
        ("verl", f"{VERL} model_engine=megatron actor_rollout_ref.model.enable_gradient_checkpointing=True", False),
        ("verl", f"{VERL} model_engine=megatron +{MEGATRON}_granularity=full", True),
        ("verl", f"{VERL} model_engine=automodel", False),
        ("verl", f"{VERL} model_engine=torchtitan", False),
        ("verl", f"{VERL} model_engine=torchtitan "
         "actor_rollout_ref.actor.torchtitan.activation_checkpoint=selective", False),
        ("openrlhf", OPENRLHF, False),
        ("openrlhf", f"{OPENRLHF} --actor.gradient_checkpointing_enable", True),
        ("open-instruct", OPEN, True),  # grpo_fast.py asks nobody
        ("open-instruct", f"{OPEN.replace('grpo_fast', 'grpo')}", False),
        ("open-instruct", f"{OPEN.replace('grpo_fast', 'grpo')} --activation_memory_budget 0.5", True),
        ("trl", TRL, True),
        ("areal", AREAL.format(""), False),
        ("areal", AREAL.format("gradient_checkpointing: true"), True),
        ("areal", AREAL.replace("fsdp", "megatron").format(
            "gradient_checkpointing: true, megatron: {recompute_granularity: selective}"), False),
        ("nemo-rl", NEMO.format("", "false"), False),
        ("nemo-rl", nemo_megatron(""), False),
        ("nemo-rl", nemo_megatron(", activation_checkpointing: true"), True),
        ("nemo-rl", nemo_megatron(
            ", activation_checkpointing: true, recompute_granularity: selective"), False),
        ("roll", ROLL.format(**USUAL), False),
        ("roll", ROLL.format(**{**USUAL, "strategy": "fsdp2_train"}), True),
        ("slime", SLIME, False),
        ("slime", f"{SLIME} --recompute-granularity full", True),
        ("slime", f"{SLIME} --train-backend fsdp", False),  # Miles
        ("slime", f"{SLIME} --train-backend fsdp --gradient-checkpointing", True),
        ("ms-swift", SWIFT, True),
        ("ms-swift", SWIFT.replace("swift rlhf", "megatron rlhf"), False),
        ("skyrl", SKYRL, True),
        ("skyrl", f"{SKYRL} trainer.strategy=megatron", True),
        ("skyrl", f"{SKYRL} trainer.strategy=megatron trainer.gradient_checkpointing=false", False),
        ("prime-rl", PRIME, True),
        ("prime-rl", f"{PRIME}[trainer.model.ac]\nmode = 'selective'\n", False),  # of norms
        ("prime-rl", f"{PRIME}[trainer.model.ac]\nmode = 'selective'\ntargets = ['norm', 'routed_experts']\n", True),
        ("prime-rl", f"max_async_level = 1\n{PRIME}", False),  # before 2026-06
        ("prime-rl", f"max_async_level = 1\n{PRIME}[trainer.model.ac]\n", True),
    ],
)  # fmt: skip
def test_activations_are_computed_again_where_the_framework_itself_does(framework: str, text: str, again: bool) -> None:
    assert read(framework, text).trainer.recipe.recompute == again


@pytest.mark.parametrize(
    ("framework", "text", "words", "removed"),
    [
        ("slime", f"{SLIME} --recompute-granularity full", [], ["--recompute-granularity"]),
        ("ms-swift", f"{SWIFT.replace('swift rlhf', 'megatron rlhf')} --recompute_granularity full",
         ["--recompute_granularity none"], []),
        ("verl", f"{VERL} model_engine=megatron +{MEGATRON}_granularity=full", [f"{MEGATRON}_granularity=null"], []),
    ],
)  # fmt: skip
def test_activations_are_kept_where_they_were_computed_again(
    framework: str, text: str, words: list[str], removed: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "run.sh"
    file.write_text(text)
    kept = with_changes(read(framework, text), {"trainer.recipe.recompute": False})
    patch = patch_of(framework, kept, limits_of, str(file))
    assert ([word for words in patch.words.values() for word in words], list(patch.removed)) == (words, removed)


@pytest.mark.parametrize("framework", ["slime", "verl"])
def test_a_framework_that_computes_nothing_again_is_told_to(framework: str) -> None:
    """Megatron asks for three settings (transformer_config.py)."""
    job = read("slime", f"{SLIME} --recompute-granularity full")
    job = with_changes(job, {"trainer.recipe.backend": "megatron"})
    written = scenario_to(framework, job, limits_of).settings
    assert {key.rpartition("recompute_")[2] for key in written if "recompute_" in key} == {
        "granularity", "method", "num_layers"
    }  # fmt: skip


def test_skyrls_imitated_int4_is_said() -> None:
    job = read("skyrl", f"{SKYRL} trainer.policy.model.fake_int4_qat.enabled=true")
    assert "trainer.recipe.precision" in job.assumed


INT4 = """RUNTIME="{ \\"env_vars\\": { \\"MASTER_ADDR\\": \\"${MASTER_ADDR}\\",
  \\"OPEN_TRAINING_INT4_FAKE_QAT_FLAG\\": \\"%s\\" } }"
ray job submit --runtime-env-json%s"${RUNTIME}" -- """


@pytest.mark.parametrize("sign", ["=", " "])
@pytest.mark.parametrize(("flag", "said"), [("1", True), ("0", False)])
def test_slimes_imitated_int4_is_said(sign: str, flag: str, said: bool) -> None:
    """docker/patch of slime: the switch is a variable of the job's environment."""
    assert ("trainer.recipe.precision" in read("slime", INT4 % (flag, sign) + SLIME).assumed) == said


def test_rllms_own_keys_go_before_verls() -> None:
    """rllm/trainer/verl/utils.py, sync_config; rllm/trainer/config/rllm/base.yaml has the defaults."""
    usual = read("verl", RLLM)
    assert (usual.workload.group_size, usual.trainer.batch_samples, usual.trainer.recipe.critic) == (8, 64 * 8, False)
    assert usual.workload.output_tokens.max == 30720
    assert usual.fleet.max_in_flight_samples == 256
    assert "workload.turns.count" in usual.assumed
    own = read("verl", f"{RLLM} actor_rollout_ref.rollout.n=4 rllm.rollout.n=2 data.train_batch_size=16")
    assert (own.workload.group_size, own.trainer.batch_samples) == (2, 32)


def test_rllms_penalty_needs_a_reference() -> None:
    assert not read("verl", RLLM).trainer.recipe.reference
    assert read("verl", f"{RLLM} rllm.algorithm.kl_beta=0.001").trainer.recipe.reference


def test_rllms_asynchronous_training_is_verls_law() -> None:
    """rllm/trainer/sync_coordinator.py: (1 + staleness) x pulls x mini-batch groups in a sync window."""
    on = "rllm.async_training.enable=true rllm.async_training.staleness_threshold=2 rollout.nnodes=1"
    job = read("verl", f"{RLLM} {on} rllm.async_training.mini_batch_size=16 rllm.workflow.n_parallel_tasks=100")
    assert (job.admission.law, job.trainer.batch_samples) == ("per_sync_window", 16 * 8)
    assert job.fleet.max_in_flight_samples == 100
    assert job.trainer.recipe.old_log_probs
    assert read("verl", f"{RLLM} rllm.async_training.staleness_threshold=2").admission.law == "barrier"
