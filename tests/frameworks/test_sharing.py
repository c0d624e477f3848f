"""What shards a trainer's weights, among how many GPUs, and a mixture's experts: by hand in each framework's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.config.load import with_changes
from fleetsim.frameworks.convert import scenario_from
from fleetsim.frameworks.export import scenario_to
from fleetsim.frameworks.source import parsed_source, read_source
from fleetsim.job.nameplate import limits_of
from tests.frameworks.test_passes import NEMO, OPEN, ROLL, SKYRL, SLIME, SWIFT, TRL, USUAL, read

VERL = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B trainer.nnodes=2 "
ACTOR = "actor_rollout_ref.actor."
EASY = "python -m verl.trainer.main worker.actor.model.model_path=Qwen/Qwen3-4B trainer.nnodes=2 "
FSDP2 = ROLL.format(**USUAL | {"strategy": "fsdp2_train, strategy_config: @"})
POLICY = (
    "trainer.policy.fsdp_config.fsdp_size=2 trainer.placement.policy_num_gpus_per_node=4 "
    "generator.inference_engine.num_engines=4"
)
PRIME = """\
seq_len = 6144
[model]
name = 'Qwen/Qwen3-8B'
[deployment]
type = 'multi_node'
num_train_nodes = 4
num_infer_nodes = 1
"""
RLINF = """\
runner: {{task_type: reasoning}}
cluster: {{component_placement: {{"actor,rollout": 0-7}}}}
actor: {{training_backend: fsdp, fsdp_config: {{strategy: {}, sharding_strategy: {}}}}}
rollout: {{model: {{model_path: Qwen/Qwen3-8B}}}}
data: {{rollout_batch_size: 64}}
"""


@pytest.mark.parametrize(
    ("framework", "text", "backend", "shards"),
    [
        ("verl", VERL, "fsdp", None),  # its default, whatever the model
        ("verl", f"{VERL} model_engine=megatron", "megatron", None),
        ("verl", f"{VERL} --config-name=ppo_megatron_trainer", "megatron", None),
        ("verl", f"{VERL} {ACTOR}fsdp_config.fsdp_size=8", "fsdp", 8),
        ("verl", f"{VERL} {ACTOR}fsdp_config.fsdp_size=-1", "fsdp", None),
        ("verl", f"{VERL} {ACTOR}strategy=veomni {ACTOR}veomni.fsdp_size=4", "fsdp", 4),
        ("verl", f"{VERL} {ACTOR}strategy=torchtitan {ACTOR}torchtitan.data_parallel_replicate_size=4", "fsdp", 4),
        ("verl", f"{VERL} {ACTOR}strategy=automodel {ACTOR}automodel.dp_replicate_size=2", "fsdp", 8),
        ("verl", f"{EASY} worker.actor.fsdp.fsdp_size=8", "fsdp", 8),
        ("roll", FSDP2.replace("@", "{fsdp_size: 4}"), "fsdp", 4),
        ("roll", FSDP2.replace("@", "{fsdp_size: 1}"), "fsdp", None),  # fsdp2_strategy.py: one means all
        ("roll", ROLL.format(**USUAL), "megatron", None),
        ("nemo-rl", NEMO.format("", "false").replace("policy: {", "policy: {dtensor_cfg: {dp_replicate_size: 4}, "),
         "fsdp", 2),
        ("skyrl", f"{SKYRL} {POLICY}", "fsdp", 2),
        ("skyrl", f"{SKYRL} {POLICY} trainer.strategy=megatron", "megatron", None),
        ("prime-rl", PRIME, "fsdp", None),
        ("prime-rl", f"{PRIME}nodes_per_fsdp_group = 2\n", "fsdp", 16),
        ("prime-rl", f"{PRIME}[trainer.model]\ndp_replicate = 4\n", "fsdp", 8),
        ("slime", SLIME, "megatron", None),
        ("slime", f"{SLIME} --train-backend fsdp --dp-replicate-size 2", "fsdp", 4),  # Miles
        ("open-instruct", f"{OPEN} --num_learners_per_node 8 8 --fsdp_shard_degree 8", "fsdp", 8),
        ("open-instruct", f"{OPEN} --num_learners_per_node 8 8 --fsdp_num_replicas 4", "fsdp", 4),
        ("rlinf", RLINF.format("fsdp", "no_shard"), "fsdp", 1),
        ("rlinf", RLINF.format("fsdp", "full_shard"), "fsdp", None),
        ("rlinf", RLINF.format("fsdp2", "no_shard"), "fsdp", None),  # which reads no such setting
        ("trl", TRL, "fsdp", None),
        ("ms-swift", SWIFT, "fsdp", None),
        ("openrlhf", "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen3-32B "
         "--vllm.num_engines 8 ", "fsdp", None),
    ],
)  # fmt: skip
def test_so_many_gpus_share_the_weights(framework: str, text: str, backend: str, shards: int | None) -> None:
    recipe = read(framework, text).trainer.recipe
    assert (recipe.backend, recipe.shards) == (backend, shards)


@pytest.mark.parametrize(
    ("lines", "shards"),
    [
        ("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}", 8),
        ("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 1}", None),
        ("distributed_type: FSDP\nparallelism_config: {parallelism_config_dp_replicate_size: 4}", 4),
        ("distributed_type: MULTI_GPU", 1),  # each GPU has all of them
        ("distributed_type: DEEPSPEED", None),
    ],
)
def test_accelerates_file_says_who_shares_them(tmp_path: Path, lines: str, shards: int | None) -> None:
    (tmp_path / "a.yaml").write_text(f"num_processes: 16\n{lines}\n")
    (tmp_path / "run.sh").write_text(
        "accelerate launch --config_file a.yaml grpo.py --model_name_or_path Qwen/Qwen3-1.7B"
    )
    found = scenario_from("trl", read_source(str(tmp_path / "run.sh"))).scenario.trainer
    assert (found.gpus, found.recipe.shards) == (16, shards)


@pytest.mark.parametrize(
    ("lines", "offload"),
    [
        ("deepspeed_config: {offload_optimizer_device: cpu, zero_stage: 3}", "adam"),
        ("deepspeed_config: {offload_optimizer_device: none, zero_stage: 3}", "none"),
        ("fsdp_config: {fsdp_offload_params: true}", "adam"),
    ],
)
def test_accelerates_file_says_where_the_optimizer_runs(tmp_path: Path, lines: str, offload: str) -> None:
    (tmp_path / "a.yaml").write_text(f"num_processes: 8\n{lines}\n")
    text = "accelerate launch --config_file a.yaml grpo.py --model_name_or_path Qwen/Qwen3-1.7B"
    (tmp_path / "run.sh").write_text(text)
    assert scenario_from("trl", read_source(str(tmp_path / "run.sh"))).scenario.trainer.recipe.offload == offload


def test_processes_that_nobody_says_make_whole_groups() -> None:
    """open-r1's config_demo_code.yaml: a server's eighth GPU generates."""
    text = "model_name_or_path: Qwen/Qwen3-1.7B\nper_device_train_batch_size: 16\nnum_generations: 14\nuse_vllm: true\n"
    found = scenario_from("trl", parsed_source(text, "c.yaml"))
    assert found.scenario.trainer.gpus == 7
    assert "trainer.gpus" in found.scenario.assumed


@pytest.mark.parametrize(
    ("framework", "text", "experts"),
    [
        ("verl", f"{VERL} {ACTOR}strategy=veomni", "grouped"),
        ("verl", f"{VERL} {ACTOR}strategy=veomni {ACTOR}veomni.moe_implementation=fused_triton", "grouped"),
        ("verl", f"{VERL} {ACTOR}strategy=veomni {ACTOR}veomni.moe_implementation=eager", "looped"),
        ("verl", f"pip install transformers==4.57.1\n{VERL}", "looped"),
        ("verl", f"pip install transformers==5.9.0\n{VERL}", "grouped"),
        ("ms-swift", f"{SWIFT} --experts_impl eager", "looped"),
    ],
)
def test_experts_are_one_product_unless_something_says_otherwise(framework: str, text: str, experts: str) -> None:
    assert read(framework, text).trainer.recipe.experts == experts


@pytest.mark.parametrize("framework", ["verl", "skyrl", "prime-rl", "roll", "nemo-rl"])
def test_both_come_back(framework: str) -> None:
    preset = {"verl": VERL, "skyrl": SKYRL, "prime-rl": PRIME, "roll": FSDP2.replace("@", "{}"),
              "nemo-rl": NEMO.format("", "false")}[framework]  # fmt: skip
    wanted = with_changes(read(framework, preset), {"trainer.recipe.shards": 4})
    written = scenario_to(framework, wanted, limits_of)
    name = {"roll": "c.yaml", "nemo-rl": "c.yaml", "prime-rl": "c.toml"}.get(framework, "c.sh")
    assert scenario_from(framework, parsed_source(written.text, name)).scenario.trainer.recipe.shards == 4
