"""Prefill engines and adapters in the words of each framework, and the sections that have to come of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetsim.config import load_scenario, with_changes
from fleetsim.config.tree import field_at
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import Imported, scenario_from
from fleetsim.frameworks.export import scenario_to
from fleetsim.frameworks.source import parsed_source, read_source
from fleetsim.job.nameplate import limits_of

DATA = Path(__file__).parent / "data"
ROLLOUT, MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
SPLIT, ENGINE = f"{ROLLOUT}.disaggregation", "generator.inference_engine"
LORA = "trainer.policy.model.lora.rank"


def read(framework: str, file: str, *words: str) -> Imported:
    return scenario_from(framework, read_source(str(DATA / file), words), file)


CASES: list[tuple[str, str, tuple[str, ...], dict[str, Any]]] = [
    (
        "verl", "verl_sync.yaml",
        (f"{SPLIT}.enabled=True", f"{SPLIT}.decode_replicas=3", f"{ROLLOUT}.tensor_model_parallel_size=2"),
        {"tp": 2, "disaggregation.prefill": 1, "disaggregation.decode": 3, "disaggregation.prefill_tp": None},
    ),
    (
        "verl", "verl_sync.yaml",
        (f"{SPLIT}.enabled=True", f"{SPLIT}.prefill_replicas=2", f"{SPLIT}.decode_tensor_model_parallel_size=4",
         f"{ROLLOUT}.tensor_model_parallel_size=2"),
        {"tp": 4, "disaggregation.prefill": 2, "disaggregation.prefill_tp": 2, "gpus": 8},
    ),
    ("verl", "verl_sync.yaml", (f"{SPLIT}.enabled=False", f"{SPLIT}.decode_replicas=3"), {"disaggregation": None}),
    ("verl", "verl_sync.yaml", (f"{MODEL}.lora_rank=24",), {"lora.rank": 32, "lora.max_loras": 1}),
    ("verl", "verl_sync.yaml", (f"{MODEL}.lora_rank=24", f"{MODEL}.lora.merge=True"), {"lora": None}),
    ("verl", "verl_sync.yaml", (f"{MODEL}.lora_rank=0",), {"lora": None}),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "file", "words", "expected"), CASES)
def test_what_is_asked_of_the_engine(
    framework: str, file: str, words: tuple[str, ...], expected: dict[str, Any]
) -> None:
    engine = read(framework, file, *words).scenario.engine
    assert {path: field_at(engine, path) for path in expected} == expected


SLIME = ("--rollout-num-gpus", "16", "--rollout-num-gpus-per-engine", "2", "--prefill-num-servers")


@pytest.mark.parametrize(("prefill", "sides", "instances"), [(2, (1, 3), 2), (3, (3, 5), 1), (4, (1, 1), 4)])
def test_a_pool_of_servers_is_as_many_alike_instances(prefill: int, sides: tuple[int, int], instances: int) -> None:
    """slime/backends/sglang_utils/sglang_config.py, `from_prefill_num_servers`: the rest of eight servers decodes."""
    found = read("slime", "slime_fully_async.sh", *SLIME, str(prefill)).scenario
    apart = found.engine.disaggregation
    assert apart is not None
    assert ((apart.prefill, apart.decode), found.fleet.instances) == (sides, instances)
    assert found.fleet.instances * found.engine.gpus == 16


def test_a_pool_without_a_decode_engine_is_refused() -> None:
    with pytest.raises(InputError, match="must leave engines to decode"):
        read("slime", "slime_fully_async.sh", *SLIME, "8")


@pytest.mark.parametrize(
    ("framework", "preset", "said"),
    [
        ("verl", "verl-fully-async", {f"{SPLIT}.enabled": True, f"{SPLIT}.decode_replicas": 3}),
        ("verl", "verl-fully-async", {f"{MODEL}.lora_rank": 64}),
        ("skyrl", "skyrl-fully-async", {f"{ENGINE}.enable_pd": True, f"{ENGINE}.num_prefill": 4, LORA: 64}),
    ],
)  # fmt: skip
def test_both_are_written_and_come_back(framework: str, preset: str, said: dict[str, Any]) -> None:
    changes = {"engine.disaggregation": {"prefill": 1, "decode": 3}, "engine.lora": {"rank": 64}, "fleet.instances": 4}
    scenario = with_changes(load_scenario(f"presets/{preset}"), changes)
    made = scenario_to(framework, scenario, limits_of)
    assert {key: made.settings[key] for key in said} == said
    assert not [left.path for left in made.left_out if left.path.startswith(("engine.", "fleet.instances"))]


@pytest.mark.parametrize("framework", ["trl", "openrlhf", "open-instruct"])
def test_what_a_framework_has_no_word_for_is_listed(framework: str) -> None:
    changes = {"engine.disaggregation": {"prefill": 1, "decode": 3}, "engine.lora": {"rank": 64}}
    scenario = with_changes(load_scenario("presets/verl-fully-async"), changes)
    left = {each.path for each in scenario_to(framework, scenario, limits_of).left_out}
    assert {"engine.disaggregation.prefill", "engine.lora.rank"} <= left


PRIME = """[model]
name = "zai-org/GLM-5.1-FP8"
[orchestrator]
batch_size = 256
[deployment]
type = "multi_node"
num_train_nodes = 2
[inference.deployment]
type = "disaggregated"
[inference.deployment.decode_vllm_overrides]
max_num_batched_tokens = 96
max_num_seqs = 48
"""


@pytest.mark.parametrize(
    ("more", "prefill"),
    [
        ("", 8192),  # vLLM's own
        ("[inference.vllm]\nmax_num_batched_tokens = 4096\n", 4096),
        ("[inference.deployment.prefill_vllm_overrides]\nmax_num_batched_tokens = 16384\nenable_dbo = true\n", 16384),
    ],
)
def test_vllms_options_of_one_side_are_that_sides(more: str, prefill: int) -> None:
    """examples/advanced/glm-5.2/swe-llmd.toml: decode engines take few tokens an iteration, prefill engines many."""
    read = scenario_from("prime-rl", parsed_source(PRIME + more, "rl.toml"))
    engine = read.scenario.engine
    assert (engine.max_num_seqs, engine.max_num_batched_tokens) == (48, 96)
    assert engine.disaggregation is not None
    assert engine.disaggregation.max_num_batched_tokens == prefill
    assert any("enable_dbo" in note.setting for note in read.not_modelled) == ("enable_dbo" in more)
