"""A scenario names an engine: what it takes from it, what it refuses, and that whole runs go through."""

from __future__ import annotations

from typing import Any

import pytest

from fleetsim.config import scenario_from_mapping, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.gpus import gpu_of, gpu_spec
from fleetsim.errors import InputError
from fleetsim.sim.engines import engine_of
from fleetsim.sim.run import simulate


def scenario(**engine: Any) -> Scenario:
    return scenario_from_mapping(
        {
            "workload": {"group_size": 4, "output_tokens": {"mean": 200, "cv": 1.0, "max": 1000}},
            "engine": {"model": "Qwen/Qwen2.5-1.5B", **engine},
            "fleet": {"instances": 2},
            "trainer": {"batch_samples": 64, "fixed_s": 1.0},
            "run": {"steps": 6},
        }
    )


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm"])
def test_a_run_with_each_engine_trains_the_same_samples(name: str) -> None:
    """The engine decides when tokens are made, never which."""
    chosen = scenario(name=name)
    records = simulate(chosen)
    assert records.engine[1].scheduler == name
    assert records.engine[1].max_output_tokens == 1000
    assert len(records.steps) == 6
    assert records.samples["target"][:64].tolist() == simulate(scenario()).samples["target"][:64].tolist()


def test_engines_differ_where_the_cache_is_tight() -> None:
    """1,600 tokens of cache under a cap of 1,000: SGLang and TensorRT-LLM hold room back, vLLM preempts instead."""
    kv = {"vllm": (16, 100), "sglang": (1, 1600), "tensorrt-llm": (32, 50)}
    runs = {
        name: simulate(scenario(name=name, block_size=size, kv_blocks=blocks)) for name, (size, blocks) in kv.items()
    }
    preempted = {name: int(r.samples["preemptions"].sum()) for name, r in runs.items()}
    assert preempted["vllm"] > 10 * max(1, preempted["sglang"])
    assert preempted["tensorrt-llm"] == 0
    waves = {name: float(r.steps["end_s"][-1]) for name, r in runs.items()}
    assert waves["tensorrt-llm"] > 1.2 * waves["vllm"]


def test_max_utilization_is_reached_from_the_scenario() -> None:
    given = {"name": "tensorrt-llm", "block_size": 32, "kv_blocks": 50}
    assert engine_of(scenario(**given))[1].no_evict
    runs = simulate(scenario(capacity_scheduler_policy="max_utilization", **given))
    assert runs.samples["preemptions"].sum() > 0


def test_no_evict_needs_to_know_how_long_an_output_may_be() -> None:
    free = {"output_tokens": {"mean": 200, "cv": 1.0}}
    with pytest.raises(InputError, match=r"workload\.output_tokens\.max.*longest output fits"):
        scenario_from_mapping({"workload": free, "engine": {"name": "tensorrt-llm"}})
    policy = {"name": "tensorrt-llm", "capacity_scheduler_policy": "max_utilization"}
    assert scenario_from_mapping({"workload": free, "engine": policy}).engine.name == "tensorrt-llm"
    buckets = {"output_tokens": {"le": [100, 900], "count": [5, 1]}}
    capped = scenario_from_mapping({"workload": buckets, "engine": {"name": "tensorrt-llm"}})
    assert engine_of(capped)[1].max_output_tokens == 900


def test_ranks_are_instances() -> None:
    """dp ranks share experts, so instances come in multiples of dp; the GPUs are instances x tp as ever."""
    engine = {"model": "Qwen/Qwen3-30B-A3B", "tp": 2, "dp": 4}
    asked = {"engine": engine, "fleet": {"instances": 6}, "run": {"events": [{"step": 2, "instances": 9}]}}
    rounded = scenario_from_mapping(asked)
    assert (rounded.fleet.instances, rounded.run.events[0].instances) == (8, 12)
    assert scenario_from_mapping({"engine": {"dp": 3}}).fleet.instances == 9, "the default is rounded as well"
    # what a plan tries is never rounded in silence
    with pytest.raises(InputError, match=r"fleet\.instances.*multiple of engine\.dp \(4\).*use 4"):
        with_changes(rounded, {"fleet.instances": 6})
    with pytest.raises(InputError, match=r"run\.events\[0\]\.instances"):
        with_changes(rounded, {"run.events": [{"step": 2, "instances": 9}]})
    eight = scenario_from_mapping({"engine": engine, "fleet": {"instances": 8}})
    alone = scenario_from_mapping({"engine": {**engine, "dp": 1}, "fleet": {"instances": 8}})
    assert engine_of(eight)[1].kv_blocks > engine_of(alone)[1].kv_blocks


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm"])
def test_a_constant_rate_runs_under_every_scheduler(name: str) -> None:
    chosen = scenario(name=name, kind="constant", instance_tok_s=4000.0, model="Qwen/Qwen2.5-7B")
    assert len(simulate(chosen).steps) == 6


SHEET = {"name": "X1", "memory_gib": 79.11, "memory_tb_s": 3.35, "bf16_tflop_s": 989.4, "fp8_tflop_s": 1978.9}


def test_a_gpu_of_ones_own_is_as_fast_as_its_sheet_says() -> None:
    """The sheet of an H100 under another name makes its engine; twice the bandwidth makes a faster one."""
    own, known = (
        engine_of(scenario_from_mapping({"engine": {"gpu": gpu}}))
        for gpu in ({**SHEET, "link_gb_s": 450.0}, "H100-SXM")
    )
    assert own[0].seconds(8, 0, 8000) == pytest.approx(known[0].seconds(8, 0, 8000), rel=1e-9)
    assert own[1].kv_blocks == known[1].kv_blocks
    assert "X1 x1" in own[0].source
    fast = engine_of(scenario_from_mapping({"engine": {"gpu": {**SHEET, "memory_tb_s": 6.7}}}))
    assert fast[0].seconds(1) < 0.7 * own[0].seconds(1)


def test_a_sheet_is_used_where_the_gpu_has_its_name() -> None:
    s = scenario_from_mapping({"engine": {"gpu": SHEET}})
    assert (s.engine.gpu, gpu_of(s.engine).fp4_flop_s, gpu_of(s.engine).node_gpus) == ("X1", None, 8)
    assert scenario_from_mapping(s.model_dump()) == s
    other = with_changes(s, {"engine.gpu": "H200"})
    assert gpu_of(other.engine) is gpu_spec("H200")
    with pytest.raises(InputError, match=r"engine.gpu_sheet.memory_tb_s: this key is required"):
        scenario_from_mapping({"engine": {"gpu": {"memory_gib": 80, "bf16_tflop_s": 400}}})
