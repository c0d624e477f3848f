"""Each framework's documented parameter names, and the scenario that has to come of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetsim.config import Scenario, load_scenario
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import FRAMEWORKS, Imported, scenario_from
from fleetsim.frameworks.source import parsed_source, read_source

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Case:
    file: str
    preset: str
    expected: dict[str, Any]
    not_modelled: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def framework(self) -> str:
        return max((f for f in FRAMEWORKS if self.file.replace("_", "-").startswith(f)), key=len)

    def read(self, *sets: str) -> Imported:
        settings = read_source(str(DATA / self.file), self.words)
        return scenario_from(self.framework, settings, self.file, sets)


CASES = (
    Case(
        "verl_sync.yaml",
        "verl-sync",
        {
            "engine.model": "Qwen/Qwen2.5-7B-Instruct",
            "engine.tp": 2,
            "engine.gpu_memory_utilization": 0.6,
            "engine.max_num_seqs": 512,
            "engine.max_num_batched_tokens": 16384,
            "workload.group_size": 8,
            "workload.output_tokens.max": 4096,
            "trainer.batch_samples": 4096,
            "trainer.gpus": 16,
            "fleet.instances": 8,
            "fleet.placement": "colocated",
            "fleet.group_placement": "spread",
            "sync.transport": "cuda_ipc",
            "sync.in_flight": "drain",
            "buffer.batch_rule": "fifo",
            "admission.law": "barrier",
            "trainer.recipe.optimizer_steps": 4,
            "trainer.recipe.backend": "fsdp",
        },
        ("test_freq",),
    ),
    Case(
        "verl_sync.yaml",
        "verl-sync",
        {"trainer.gpus": 32, "fleet.instances": 8, "engine.tp": 4, "workload.group_size": 16},
        words=(
            "trainer.nnodes=4",
            "++actor_rollout_ref.rollout.n=16",
            "actor_rollout_ref.rollout.tensor_model_parallel_size=4",
        ),
    ),
    Case(
        "verl_sync.yaml",
        "verl-v1-colocate-async",
        {
            "fleet.placement": "colocated",
            "admission.law": "version_window",
            "admission.max_staleness": 1.0,
            "admission.age_action": "wait",
            "admission.max_age": 7.0,
            "sync.in_flight": "abort_resume",
        },
        words=("trainer.v1.trainer_mode=colocate_async", "trainer.v1.sampler.max_off_policy_strategy=wait"),
    ),
    Case(
        "verl_one_step_off.sh",
        "verl-one-step-off",
        {
            "fleet.placement": "disaggregated",
            "fleet.instances": 3,
            "trainer.gpus": 2,
            "trainer.batch_samples": 2048,
            "admission.law": "batches_ahead",
            "admission.batches_ahead": 1,
            "sync.in_flight": "drain",
        },
    ),
    Case(
        "verl_fully_async.sh",
        "verl-fully-async",
        {
            "engine.model": "Qwen2.5-Math-7B",
            "trainer.batch_samples": 32 * 1 * 4 * 16,
            "trainer.minibatches": 4,
            "trainer.gpus": 8,
            "fleet.instances": 16,
            "fleet.max_in_flight_samples_per_instance": 16 * 16,
            "workload.output_tokens.max": 8192,
            "admission.law": "per_sync_window",
            "admission.staleness_threshold": 0.5,
            "sync.trigger": "pulls",
            "sync.every_pulls": 4,
            "sync.in_flight": "abort_resume",
            "buffer.capacity_samples": 32 * 4 * 3 // 2 * 16,
            "buffer.on_full": "drop_oldest",
            "buffer.batch_rule": "fifo",
        },
    ),
    Case(
        "verl_fully_async.sh",
        "verl-fully-async",
        {"sync.in_flight": "drain", "admission.staleness_threshold": 0.0},
        words=("async_training.partial_rollout=False", "async_training.staleness_threshold=0"),
    ),
    Case(
        "verl_separate_async.yaml",
        "verl-v1-separate-async-switch",
        {
            "trainer.minibatches": 4,
            "sync.trigger": "pulls",
            "sync.every_pulls": 4,
            "admission.law": "version_window",
            "admission.max_staleness": 2.0,
            "admission.age_action": "drop_and_refill",
            "admission.age_reference": "creation",
            "admission.max_age": 3.0,
            "fleet.placement": "colocated_lending",
            "fleet.lending.return_at": 0.5,
            "fleet.instances": 8,
        },
        ("adaptive_switch_threshold",),
    ),
    Case(
        "skyrl_fully_async.sh",
        "skyrl-fully-async",
        {
            "engine.model": "Qwen/Qwen2.5-1.5B-Instruct",
            "workload.group_size": 8,
            "workload.output_tokens.max": 2048,
            "trainer.batch_samples": 512,
            "trainer.gpus": 4,
            "fleet.instances": 4,
            "fleet.placement": "disaggregated",
            "fleet.max_in_flight_samples": 2048,
            "fleet.in_flight_unit": "groups",
            "engine.max_num_seqs": 1024,
            "engine.gpu_memory_utilization": 0.7,
            "admission.law": "version_window",
            "admission.max_staleness": 3.0,
            "sync.in_flight": "keep",
            "sync.reset_prefix_cache": False,
            "trainer.recipe.backend": "fsdp",
        },
        ("eval_interval",),
    ),
    Case(
        "skyrl_fully_async.sh",
        "verl-sync",
        {"admission.law": "barrier", "fleet.placement": "disaggregated", "trainer.recipe.optimizer_steps": 2},
        words=("trainer.fully_async.enabled=false", "trainer.policy_mini_batch_size=32"),
    ),
    Case(
        "roll_rlvr_async.yaml",
        "roll-rlvr-async",
        {
            "trainer.batch_samples": 512,
            "trainer.gpus": 16,
            "fleet.instances": 4,
            "engine.tp": 2,
            "fleet.placement": "disaggregated",
            "fleet.group_placement": "together",
            "fleet.max_in_flight_samples_per_instance": 256,
            "admission.law": "cumulative_ratio",
            "admission.async_ratio": 1.5,
            "admission.extra_groups": 8,
            "admission.age_action": "cancel_in_flight",
            "admission.age_reference": "creation",
            "admission.max_age": 2.0,
            "buffer.batch_rule": "oldest_version_first",
            "buffer.wait_for_oldest": True,
            "sync.in_flight": "abort_resume",
        },
    ),
    Case(
        "roll_rlvr_async.yaml",
        "roll-rlvr-sync",
        {
            "admission.law": "cumulative_ratio",
            "admission.async_ratio": 0.0,
            "buffer.wait_for_oldest": True,
            "sync.in_flight": "abort_discard",
            "sync.transport": "cuda_ipc",
            "fleet.placement": "colocated",
            "fleet.instances": 8,
        },
        words=("async_generation_ratio=0", "actor_infer.device_mapping='list(range(0,16))'"),
    ),
    Case(
        "roll_agentic.yaml",
        "roll-agentic",
        {
            "trainer.batch_samples": 256,
            "workload.group_size": 8,
            "workload.turns.count": 5,
            "workload.output_tokens.max": 6144,
            "fleet.max_in_flight_samples": 256,
            "admission.age_action": "drop_and_refill",
            "admission.law": "cumulative_ratio",
        },
    ),
    Case(
        "openrlhf_async.sh",
        "openrlhf-async-partial",
        {
            "engine.model": "Qwen/Qwen3-4B",
            "engine.prefix_caching": True,
            "engine.gpu_memory_utilization": 0.85,
            "trainer.batch_samples": 1024,
            "trainer.gpus": 4,
            "fleet.instances": 4,
            "fleet.placement": "disaggregated",
            "fleet.group_placement": "together",
            "workload.output_tokens.max": 7168,
            "admission.law": "batches_ahead",
            "admission.batches_ahead": 2,
            "sync.in_flight": "keep",
            "buffer.batch_rule": "first_finished",
            "buffer.oversampling": 1.5,
            "buffer.leftover": "carry_over",
        },
        (),
    ),
    Case(
        "openrlhf_hybrid_old.sh",
        "openrlhf-hybrid",
        {
            "engine.model": "meta-llama/Llama-3.1-8B",
            "engine.tp": 2,
            "fleet.instances": 4,
            "fleet.placement": "colocated",
            "trainer.batch_samples": 1024,
            "workload.group_size": 1,
            "workload.output_tokens.max": 1024,
            "admission.law": "barrier",
            "trainer.recipe.optimizer_steps": 8,
        },
    ),
    Case(
        "open_instruct.sh",
        "open-instruct",
        {
            "trainer.batch_samples": 512,
            "trainer.gpus": 12,
            "fleet.instances": 6,
            "engine.tp": 2,
            "fleet.group_placement": "together",
            "admission.law": "fixed_pool",
            "admission.pool_samples": 4 * 512,
            "admission.age_action": "drop_on_dequeue",
            "admission.max_age": 4.0,
            "buffer.capacity_samples": 4 * 512,
            "buffer.on_full": "block",
            "sync.in_flight": "keep",
            "workload.filter.zero_variance_share": 0.0,
        },
    ),
    Case(
        "trl_grpo.py",
        "trl-grpo",
        {
            "engine.model": "Qwen/Qwen2.5-1.5B-Instruct",
            "engine.tp": 2,
            "engine.gpu_memory_utilization": 0.4,
            "workload.group_size": 16,
            "workload.output_tokens.max": 1024,
            "trainer.gpus": 4,
            "trainer.batch_samples": 8 * 4 * 4,
            "fleet.instances": 2,
            "fleet.placement": "colocated",
            "admission.law": "barrier",
        },
        words=("--num_processes", "4"),
    ),
    Case(
        "trl_async.sh",
        "trl-async-grpo",
        {
            "trainer.gpus": 4,
            "trainer.batch_samples": 128,
            "fleet.instances": 2,
            "fleet.max_in_flight_samples": 128,
            "sync.every_steps": 2,
            "sync.in_flight": "keep",
            "admission.law": "unbounded",
            "admission.age_action": "drop_on_dequeue",
            "admission.max_age": 4.0,
            "buffer.capacity_samples": 512,
            "buffer.on_full": "block",
            "buffer.batch_rule": "fifo",
        },
    ),
    Case(
        "trl_async.sh",
        "trl-async-grpo",
        {"fleet.max_in_flight_samples": 3 * 128},
        words=("--max_inflight_tasks", "-1", "--max_staleness=3"),
    ),
    Case(
        "trl_server.sh",
        "trl-grpo",
        {
            "engine.tp": 2,
            "engine.entry_point": "llm",
            "engine.gpu_memory_utilization": 0.9,
            "fleet.instances": 2,
            "fleet.placement": "disaggregated",
            "fleet.group_placement": "together",
            "fleet.routing": "round_robin",
            "admission.law": "barrier",
        },
        ("1.10.0",),
    ),
    Case(
        "trl_server.sh",
        "trl-grpo",
        {"engine.entry_point": "api_server", "fleet.group_placement": "spread", "fleet.routing": "least_loaded"},
        words=("trl==1.11.0",),
    ),
    Case(
        "areal.yaml",
        "areal",
        {
            "trainer.batch_samples": 1024,
            "trainer.gpus": 4,
            "fleet.instances": 6,
            "engine.tp": 2,
            "engine.prefix_caching": False,
            "fleet.max_in_flight_samples": 96 * 16,
            "fleet.routing": "round_robin",
            "sync.transport": "collective_broadcast",
            "admission.law": "version_window",
            "admission.max_staleness": 4.0,
            "sync.in_flight": "abort_resume",
            "buffer.batch_rule": "oldest_version_first",
        },
    ),
    Case(
        "nemo_rl_base.yaml",
        "nemo-rl-sync",
        {
            "trainer.batch_samples": 2048,
            "trainer.gpus": 16,
            "fleet.instances": 16,
            "fleet.placement": "colocated",
            "admission.law": "barrier",
            "workload.output_tokens.max": 4096,
        },
    ),
    Case(
        "nemo_rl_async.yaml",
        "nemo-rl-async-grpo",
        {
            "trainer.gpus": 8,
            "fleet.instances": 8,
            "fleet.placement": "disaggregated",
            "engine.gpu_memory_utilization": 0.8,
            "admission.law": "target_step",
            "admission.max_staleness": 2.0,
            "buffer.batch_rule": "exact_target_step",
            "buffer.capacity_samples": 2 * 2 * 2048,
            "fleet.max_in_flight_samples": 2 * 2048,
            "fleet.in_flight_unit": "groups",
            "sync.in_flight": "keep",
            "sync.transport": "collective_broadcast",
            "sync.link.source": "sharded",
        },
        (),
    ),
    Case(
        "nemo_rl_async.yaml",
        "nemo-rl-async-grpo",
        {"sync.transport": "rdma_p2p", "sync.link.fetch": "whole"},
        words=("policy.generation.refit_transport=nixl",),
    ),
    Case(
        "nemo_rl_async.yaml",
        "nemo-rl-async-grpo",
        {"sync.transport": "rdma_p2p", "sync.link.load": "in_place"},
        words=("policy.generation.refit_transport=nccl_reshard",),
    ),
    Case(
        "nemo_rl_async.yaml",
        "nemo-rl-async-grpo",
        {"trainer.gpus": 6, "fleet.instances": 1, "engine.tp": 2},
        words=(
            "cluster.num_nodes=1",
            "policy.generation.colocated.resources.gpus_per_node=2",
            "policy.generation.vllm_cfg.tensor_parallel_size=2",
        ),
    ),
    Case(
        "nemo_rl_single_controller.yaml",
        "nemo-rl-sc-weight-fifo",
        {
            "trainer.minibatches": 4,
            "fleet.max_in_flight_samples": 2048,
            "admission.law": "version_window",
            "admission.age_action": "drop_on_dequeue",
            "buffer.batch_rule": "oldest_version_first",
            "buffer.wait_for_oldest": True,
            "buffer.capacity_samples": 128 * 32,
        },
    ),
    Case(
        "slime_sync.sh",
        "slime-sync",
        {
            "engine.model": "Qwen3-4B",
            "engine.tp": 2,
            "trainer.gpus": 8,
            "trainer.batch_samples": 256,
            "fleet.instances": 4,
            "fleet.placement": "colocated",
            "fleet.max_in_flight_samples_per_instance": 512,
            "admission.law": "barrier",
            "buffer.batch_rule": "first_finished",
            "buffer.oversampling": 1.5,
            "buffer.leftover": "carry_over",
            "workload.filter.zero_variance_share": 0.0,
        },
    ),
    Case(
        "slime_fully_async.sh",
        "slime-fully-async",
        {
            "fleet.instances": 6,
            "trainer.gpus": 2,
            "sync.every_steps": 2,
            "sync.transport": "checkpoint_shuttle",
            "sync.in_flight": "abort_resume",
            "admission.law": "fixed_pool",
            "admission.pool_samples": 32 * 6 * 4,
            "buffer.capacity_samples": 32 * 6 * 4,
            "buffer.batch_rule": "fifo",
        },
    ),
    Case(
        "slime_fully_async.sh",
        "slime-async",
        {"admission.law": "batches_ahead", "admission.batches_ahead": 1, "sync.in_flight": "drain"},
        words=("--rollout-function-path", "slime.rollout.sglang_rollout.generate_rollout"),
    ),
    Case(
        "prime_rl.toml",
        "prime-rl",
        {
            "trainer.batch_samples": 512,
            "workload.group_size": 16,
            "workload.output_tokens.max": 8192,  # all turns of a game of wordle
            "trainer.gpus": 2,
            "fleet.instances": 3,
            "engine.tp": 2,
            "admission.law": "adaptive",
            "sync.transport": "collective_broadcast",
            "admission.adaptive.start_samples": 256,
            "admission.adaptive.most_samples": 768,
            "admission.age_action": "cancel_in_flight",
            "admission.max_age": 4.0,
            "sync.in_flight": "keep",
            "sync.reset_prefix_cache": False,
            "buffer.capacity_samples": 512,
        },
    ),
    Case(
        "prime_rl.toml",
        "prime-rl",
        {"admission.law": "version_window", "admission.max_staleness": 2.0},
        words=("--max-async-level", "2"),
    ),
    Case(
        "ms_swift_colocate.sh",
        "trl-grpo",
        {
            "engine.model": "Qwen/Qwen2.5-7B-Instruct",
            "engine.tp": 2,
            "engine.gpu_memory_utilization": 0.5,
            "engine.max_num_seqs": 256,
            "workload.group_size": 8,
            "workload.output_tokens.max": 2048,
            "trainer.batch_samples": 4 * 4 * 8,
            "trainer.gpus": 8,
            "fleet.instances": 4,
            "fleet.placement": "colocated",
            "trainer.recipe.offload": "adam",
        },
    ),
    Case(
        "ms_swift_colocate.sh",
        "trl-grpo",
        {"trainer.gpus": 16, "trainer.batch_samples": 4 * 4 * 16, "fleet.instances": 8},
        words=("--nnodes", "2"),
    ),
    Case(
        "ms_swift_server.sh",
        "trl-grpo",
        {
            "trainer.gpus": 6,
            "trainer.batch_samples": 96 * 4,
            "trainer.recipe.optimizer_steps": 4,
            "trainer.recipe.backend": "megatron",
            "trainer.recipe.tp": 2,
            "fleet.instances": 2,
            "fleet.placement": "disaggregated",
            "workload.turns.count": 3,
            "workload.output_tokens.max": 3 * 2048,
        },
    ),
    Case(
        "ms_swift_server.sh",
        "trl-grpo",
        {"admission.law": "batches_ahead", "admission.batches_ahead": 1, "sync.in_flight": "drain"},
        words=("--async_generate", "true"),
    ),
    Case(
        "ms_swift_ray.yaml",
        "trl-grpo",
        {
            "trainer.gpus": 4,
            "fleet.instances": 2,
            "fleet.placement": "disaggregated",
            "trainer.batch_samples": 128,
            "trainer.recipe.optimizer_steps": 2,
            "trainer.recipe.tune": "lora",
        },
    ),
    Case(
        "rlinf.yaml",
        "trl-grpo",
        {
            "engine.model": "Qwen2.5-7B",
            "engine.tp": 2,
            "engine.name": "vllm",
            "workload.output_tokens.max": 9216 - 1024,
            "trainer.batch_samples": 320 * 16,
            "trainer.gpus": 40,
            "fleet.instances": 8,
            "fleet.placement": "disaggregated",
            "trainer.minibatches": 4,
            "trainer.recipe.offload": "states",
        },
    ),
    Case(
        "rlinf.yaml",
        "trl-grpo",
        {"fleet.placement": "colocated", "trainer.gpus": 16, "fleet.instances": 8,
         "trainer.recipe.optimizer_steps": 4},
        words=("cluster.component_placement.actor=0-15",),
    ),
    Case(
        "tinker.sh",
        "tinker-async",
        {
            "workload.group_size": 8,
            "workload.turns.count": 6,
            "workload.output_tokens.max": 16384,
            "trainer.batch_samples": 128,
            "trainer.minibatches": 2,
            "trainer.recipe.tune": "lora",
            "engine.lora.rank": 32,
            "fleet.max_in_flight_samples": 128,
            "admission.max_age": 2.0,
            "sync.in_flight": "finish_on_old_weights",
        },
    ),
    Case(
        "tinker.sh",
        "tinker-async",
        {"workload.output_tokens.max": 4096, "trainer.minibatches": 4},
        words=("max_turns=1", "num_substeps=2"),
    ),
    Case(
        "tinker_config.json",
        "trl-grpo",
        {"trainer.batch_samples": 128 * 16, "workload.output_tokens.max": 256, "trainer.recipe.optimizer_steps": 2,
         "sync.in_flight": "drain", "workload.filter.zero_variance_share": 0.0},
    ),
)  # fmt: skip


def at(scenario: Scenario, path: str) -> Any:
    value: Any = scenario
    for key in path.split("."):
        value = getattr(value, key)
    return value


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join((c.file, *c.words)))
def test_what_comes_of_a_configuration(case: Case) -> None:
    result = case.read()
    assert result.preset == case.preset
    assert {path: at(result.scenario, path) for path in case.expected} == case.expected
    told = "\n".join(n.setting for n in result.not_modelled)
    assert [word for word in case.not_modelled if word not in told] == []


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join((c.file, *c.words)))
def test_the_text_is_the_scenario_and_names_every_origin(case: Case, tmp_path: Path) -> None:
    result = case.read()
    file = tmp_path / "job.yaml"
    file.write_text(result.text)
    assert load_scenario(file) == result.scenario
    assert result.preset in result.scenario.description
    for line in result.text.splitlines():
        bare = line.strip()
        # every value has its origin behind it; headings, the head and its list of assumed paths have none
        if line.startswith("  ") and not bare.endswith(":") and bare != "kind: lognormal" and bare[:2] != "- ":
            assert "  # " in line, line
    listed = {t.path for t in result.taken} | {a.path for a in result.assumed}
    assert set(case.expected) <= listed


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_has_a_case_and_says_what_it_assumes(framework: str) -> None:
    cases = [c for c in CASES if c.framework == framework]
    assert cases
    for case in cases:
        assumed = {a.path: a for a in case.read().assumed}
        for path in ("workload.output_tokens.mean", "trainer.fixed_s", "engine.gpu"):
            assert "--set" in assumed[path].remedy


def test_what_the_user_sets_is_neither_taken_nor_assumed() -> None:
    result = CASES[0].read("workload.output_tokens.mean=900", "engine.gpu=H200", "fleet.instances=5")
    assert result.scenario.fleet.instances == 5
    assert result.scenario.engine.gpu == "H200"
    told = {t.path for t in result.taken} | {a.path for a in result.assumed}
    assert not told & {"workload.output_tokens.mean", "engine.gpu", "fleet.instances"}
    assert "instances: 5" in result.text
    assert result.text.count("given with --set") == 3


def test_the_trainers_seconds_follow_from_its_gpus() -> None:
    settings = read_source(str(DATA / "verl_sync.yaml"))
    asked: list[tuple[str, str, int]] = []

    def speed(model: str, gpu: str, gpus: int) -> tuple[float, float]:
        asked.append((model, gpu, gpus))
        return 2e-5, 5e-6

    result = scenario_from("verl", settings, "x", ("engine.gpu=H200",), speed)
    assert asked == [("Qwen/Qwen2.5-7B-Instruct", "H200", 16)]
    assert (result.scenario.trainer.fixed_s, result.scenario.trainer.per_token_s) == (0.0, 2e-5)
    assert [p.name for p in result.scenario.trainer.phases] == ["old log-probs", "reference log-probs"]


def test_keys_that_do_not_matter_are_counted() -> None:
    result = CASES[0].read()
    assert "actor_rollout_ref.hybrid_engine" in result.not_looked_at
    assert "data.train_batch_size" not in result.not_looked_at


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("fp8", "fp8"),
        ("mxfp4", "mxfp4"),
        ("modelopt_fp4", "nvfp4"),
        ("awq_marlin", "int4"),
        ("gptq", "int4"),
        ("bf16", "bfloat16"),
        ("int8", "auto"),
    ],
)
def test_the_type_of_the_weights_is_taken_over(value: str, dtype: str) -> None:
    settings = read_source(str(DATA / "verl_sync.yaml"), (f"actor_rollout_ref.rollout.quantization={value}",))
    result = scenario_from("verl", settings, "x", ())
    assert result.scenario.engine.dtype == dtype
    told = [n for n in result.not_modelled if "16-bit weights are simulated" in str(n)]
    assert bool(told) == (value == "int8")


HOSTED = """\
model = "Qwen/Qwen3.5-4B"
batch_size = 256
rollouts_per_example = 8
[sampling]
max_tokens = 1024
[[env]]
id = "me/wordle"
"""


def test_a_hosted_training_of_verifiers_is_read_by_prime_rl() -> None:
    """Its keys have no section of the orchestrator; an evaluation of the same environments is none."""
    made = scenario_from("verifiers", parsed_source(HOSTED, "rl.toml"), "rl.toml")
    assert made.framework == "prime-rl"
    assert (made.scenario.trainer.batch_samples, made.scenario.workload.group_size) == (256, 8)
    # Of several turns, the sequence's own cap holds: its default.
    assert made.scenario.workload.output_tokens.model_dump()["max"] == 2048
    assert any("wordle" in a.why for a in made.assumed if a.path == "workload.turns.count")
    with pytest.raises(InputError, match="an evaluation"):
        scenario_from("verifiers", parsed_source(HOSTED.replace("batch_size", "num_examples"), "eval.toml"))
