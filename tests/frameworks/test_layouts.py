"""Stages, ranks and experts of the frameworks' engines, as each framework's own settings name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetsim.config.load import scenario_from_mapping
from fleetsim.config.tree import field_at
from fleetsim.frameworks.convert import scenario_from
from fleetsim.frameworks.source import read_source

DATA = Path(__file__).parent / "data"
SLIME = "--rollout-num-gpus 32 --rollout-num-gpus-per-engine 16"


@pytest.mark.parametrize(
    ("framework", "file", "words", "expected"),
    [
        (
            "verl", "verl_sync.yaml",
            "actor_rollout_ref.rollout.data_parallel_size=2",
            {"engine.tp": 2, "engine.pp": 1, "engine.dp": 2, "fleet.instances": 8},
        ),
        (  # a resolved configuration has both keys: FSDPActorConfig.__post_init__ says which holds
            "verl", "verl_sync.yaml",
            "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4 "
            "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=1",
            {"trainer.recipe.cp": 4},
        ),
        (
            "verl", "verl_sync.yaml",
            "actor_rollout_ref.actor.ulysses_sequence_parallel_size=1 "
            "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=2",
            {"trainer.recipe.cp": 2},
        ),
        (
            "verl", "verl_sync.yaml",
            "actor_rollout_ref.actor.strategy=fsdp_turbo actor_rollout_ref.actor.fsdp_config.fsdp_size=-1 "
            "actor_rollout_ref.actor.fsdp_config.turbo_config.distributed.fully_shard_parallel_size=4",
            {"trainer.recipe.shards": 4},
        ),
        (
            "nemo-rl", "nemo_rl_base.yaml",
            "policy.generation.vllm_cfg.tensor_parallel_size=1 policy.generation.vllm_cfg.expert_parallel_size=8 "
            "cluster.gpus_per_node=8 cluster.num_nodes=2",
            {"engine.tp": 1, "engine.pp": 1, "engine.dp": 8, "fleet.instances": 16},
        ),
        (
            "areal", "areal.yaml", "rollout.backend=sglang:d2p2t4",
            {"engine.tp": 4, "engine.pp": 2, "fleet.instances": 2},
        ),
        (  # examples/tau2/config_30b_moe_airline.yaml
            "areal", "areal.yaml", "actor.backend=megatron:(attn:d4p4t2|ffn:d2p4e4)",
            {"trainer.gpus": 32, "engine.dp": 1},
        ),
        (
            "roll", "roll_rlvr_async.yaml",
            "actor_infer.strategy_args.strategy_config.pipeline_parallel_size=2 "
            "actor_infer.strategy_args.strategy_config.tensor_parallel_size=1",
            {"engine.tp": 1, "engine.pp": 2},
        ),
        (
            "slime", "slime_fully_async.sh",
            f"{SLIME} --sglang-enable-dp-attention --sglang-dp-size 8 --sglang-ep-size 16 --sglang-enable-deepep-moe "
            "--sglang-enable-two-batch-overlap --sglang-max-running-requests 512 --sglang-chunked-prefill-size 65536",
            {
                "engine.tp": 2, "engine.dp": 8, "fleet.instances": 16, "engine.expert_exchange": "all_to_all",
                "engine.overlap": "two_batch", "engine.max_num_seqs": 64, "engine.max_num_batched_tokens": 8192,
                # 32 requests of each of two servers, in groups of 4
                "admission.pool_samples": 2 * 32 * 4, "fleet.max_in_flight_samples_per_instance": 4,
            },
        ),
        (
            "slime", "slime_fully_async.sh", f"{SLIME} --sglang-pp-size 2",
            {"engine.tp": 8, "engine.pp": 2, "engine.dp": 1, "fleet.instances": 2},
        ),
        (  # examples/advanced/glm-5.2/swe-llmd.toml: 16 nodes a replica; the ranks that decode share the experts
            "prime-rl", "prime_rl.toml",
            "--deployment.type multi_node --deployment.num_train_nodes 1 --inference.deployment.type disaggregated "
            "--inference.deployment.prefill_nodes_per_replica 2 --inference.deployment.num_prefill_replicas 4 "
            "--inference.deployment.decode_nodes_per_replica 8 --inference.vllm.tensor_parallel_size 2 "
            "--inference.kv_cache_offload.cpu.num_bytes 125000000000",
            {
                "engine.tp": 2, "fleet.instances": 1,
                "engine.disaggregation.prefill": 32, "engine.disaggregation.prefill_dp": 8,
                "engine.disaggregation.decode": 32, "engine.disaggregation.decode_dp": 32,
            },
        ),
        (  # on one node the ranks take its GPUs
            "prime-rl", "prime_rl.toml",
            "--inference.vllm.enable_expert_parallel true --inference.vllm.tensor_parallel_size 1",
            {"engine.tp": 1, "engine.dp": 6, "fleet.instances": 6},
        ),
    ],
)  # fmt: skip
def test_layouts_become_those_of_the_engine(framework: str, file: str, words: str, expected: dict[str, Any]) -> None:
    imported = scenario_from(framework, read_source(str(DATA / file), words.split()), file, ())
    raw = imported.scenario.model_dump()
    assert {path: field_at(imported.scenario, path) for path in expected} == expected
    assert scenario_from_mapping(raw).engine == imported.scenario.engine


def test_a_server_s_gpus_are_its_stages_times_its_ranks() -> None:
    from fleetsim.errors import InputError

    words = f"{SLIME} --sglang-enable-dp-attention --sglang-dp-size 3".split()
    with pytest.raises(InputError, match="must be a multiple of"):
        scenario_from("slime", read_source(str(DATA / "slime_fully_async.sh"), words), "x", ())
