"""Tokens of a trainer's micro-batch, and whether samples are padded: read by hand in each framework's code."""

from __future__ import annotations

import pytest

from fleetsim.config.scenario import Scenario
from fleetsim.frameworks.common import MEAN_OF_CAP
from tests.frameworks.test_passes import AREAL, NEMO, OPEN, ROLL, SKYRL, SLIME, SWIFT, TRL, USUAL, read

MODEL = "actor_rollout_ref.model.path=Qwen/Qwen3-8B data.max_prompt_length=400 data.max_response_length=1000"
VERL = f"python -m verl.trainer.main_ppo {MODEL} "
ACTOR = "actor_rollout_ref.actor."
PPO = "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen3-8B --vllm.num_engines 8 "
ASYNC = TRL.replace("trl grpo", "accelerate launch train_async_grpo.py --max_staleness 4")
SERVER = "vllm serve Qwen/Qwen3-8B --max-model-len 12000 --weight-transfer-config '{}'"
PRIME = "seq_len = 6144\n[model]\nname = 'Qwen/Qwen3-8B'\n"
PACKED = "sequence_packing: {enabled: true, train_mb_tokens: 4096}, megatron_cfg: {enabled: true, "
DYNAMIC = "dynamic_batching: {enabled: true, train_mb_tokens: 3072}, train_micro_batch_size: 2"
ROLLS = "max_packed_sequence_length_train: 8000}\n  strategy_args: {strategy_config: {context_parallel_size: 2}"
RLINF = """\
runner: {task_type: reasoning, enable_dynamic_batch_size: true, max_tokens_per_mbs: 28672}
cluster: {component_placement: {"actor,rollout": 0-7}}
rollout: {model: {model_path: Qwen/Qwen3-8B}}
data: {rollout_batch_size: 64}
"""


def mean(scenario: Scenario) -> int:
    """Tokens of a prompt and of the mean answer, as they are assumed."""
    return scenario.workload.prompt_tokens.value + scenario.workload.output_tokens.mean  # type: ignore[union-attr]


def longest(scenario: Scenario) -> int:
    return scenario.workload.prompt_tokens.value + scenario.workload.output_tokens.max  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("framework", "text", "tokens"),
    [
        ("verl", VERL, 16384),  # nothing says it: the scenario's own
        ("verl", f"{VERL} {ACTOR}use_dynamic_bsz=True {ACTOR}ppo_max_token_len_per_gpu=20000", 20000),
        ("verl", f"{VERL} {ACTOR}use_dynamic_bsz=True {ACTOR}ulysses_sequence_parallel_size=4", 16384),  # of each GPU
        ("nemo-rl", NEMO.format("", "false").replace("policy: {", f"policy: {{{PACKED}context_parallel_size: 2}}, "),
         2048),
        ("nemo-rl", NEMO.format("", "false").replace("policy: {", f"policy: {{{DYNAMIC}, "), 3072),
        ("roll", ROLL.format(**USUAL).replace("  strategy_args: {", "  use_sequence_packing: true\n"
         f"  sequence_packing_args: {{{ROLLS}, "), 4000),
        ("skyrl", f"{SKYRL} trainer.max_tokens_per_microbatch=9000 trainer.policy.sequence_parallel_size=2 "
         "trainer.placement.policy_num_gpus_per_node=2 generator.inference_engine.num_engines=2", 4500),
        ("areal", AREAL.replace("fsdp:d2", "fsdp:d1c2").format("mb_spec: {max_tokens_per_mb: 10240}"), 5120),
        ("prime-rl", f"{PRIME}[trainer.model]\ncp = 2\n", 3072),
        ("slime", f"{SLIME} --use-dynamic-batch-size --max-tokens-per-gpu 9216 --context-parallel-size 2", 9216),
        ("openrlhf", f"{PPO} --train.dynamic_batch_enable", 16192),
        ("open-instruct", f"{OPEN} --pack_length 4096", 4096),
        ("rlinf", RLINF, 28672),
        ("trl", f"{ASYNC} --token_budget 9000", 9000),
        ("trl", f"{SERVER} &\n{ASYNC}", 12000),
    ],
)  # fmt: skip
def test_a_cap_in_tokens_is_of_one_gpu(framework: str, text: str, tokens: int) -> None:
    assert read(framework, text).trainer.recipe.micro_tokens == tokens


@pytest.mark.parametrize(
    ("framework", "text", "samples", "padded"),
    [
        ("verl", f"{VERL} {ACTOR}ppo_micro_batch_size_per_gpu=4", 4, False),
        ("verl", f"{VERL} {ACTOR}ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.model.use_remove_padding=False",
         4, True),
        ("nemo-rl", NEMO.format("", "false").replace("policy: {", "policy: {train_micro_batch_size: 2, "), 2, True),
        ("roll", ROLL.format(**USUAL), 1, True),
        ("skyrl", SKYRL, 1, False),
        ("slime", SLIME, 1, False),
        ("openrlhf", PPO, 1, False),  # one sample is not padded
        ("openrlhf", f"{PPO} --train.micro_batch_size 8", 8, True),
        ("openrlhf", f"{PPO} --train.micro_batch_size 8 --ds.packing_samples", 8, False),
        ("trl", TRL, 8, True),
        ("trl", f"{ASYNC} --token_budget 0", 8, False),  # it packs, whatever the rows
        ("ms-swift", SWIFT, 8, True),
        ("ms-swift", f"{SWIFT} --padding_free true", 8, False),
    ],
)  # fmt: skip
def test_so_many_samples_are_assumed_to_have_their_length(
    framework: str, text: str, samples: int, padded: bool
) -> None:
    scenario = read(framework, text)
    assert scenario.trainer.recipe.packing is not padded
    assert scenario.trainer.recipe.micro_tokens == samples * (longest if padded else mean)(scenario)
    assert "trainer.recipe.micro_tokens" in scenario.assumed


def test_ranks_that_share_a_sequence_share_its_samples() -> None:
    micro = f"{ACTOR}ppo_micro_batch_size_per_gpu=4 {ACTOR}ulysses_sequence_parallel_size=2"
    scenario = read("verl", f"{VERL} {micro}")
    assert scenario.trainer.recipe.micro_tokens == 2 * mean(scenario)
    whole = read("verl", f"{VERL} {ACTOR}ppo_micro_batch_size=64 trainer.n_gpus_per_node=4")  # of verl before 2025
    assert whole.trainer.recipe.micro_tokens == 16 * mean(whole)


def test_easyr1s_dynamic_batches_have_the_tokens_of_so_many_longest_samples() -> None:
    actor = "worker.actor.micro_batch_size_per_device_for_update=4 worker.actor.model.model_path=Qwen/Qwen3-4B"
    scenario = read("verl", f"python3 -m verl.trainer.main {actor} data.max_response_length=2048")
    assert scenario.trainer.recipe.micro_tokens == 4 * longest(scenario)
    assert scenario.workload.output_tokens.mean == round(MEAN_OF_CAP * 2048)  # type: ignore[union-attr]
