"""How an engine is started decides its limits where nobody gives them: vLLM's table, and what each framework does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from fleetsim.config import load_scenario, scenario_from_mapping
from fleetsim.config.data_files import presets
from fleetsim.config.engine import EntryPointName
from fleetsim.engine.defaults import ENTRY_POINTS, sglang_running_requests
from fleetsim.engine.roofline_step import roofline
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import FRAMEWORKS, scenario_from
from fleetsim.frameworks.settings import RunSettings
from fleetsim.frameworks.source import read_source
from fleetsim.job.job import job_from_flags
from fleetsim.sim.engines import engine_of

DATA = Path(__file__).parents[1] / "frameworks" / "data"
# vllm/engine/arg_utils.py, get_batch_defaults, and vllm/config/scheduler.py, read by hand.
BIG = {"api_server": (1024, 8192), "llm": (1024, 16384), "async_engine": (128, 2048)}
SMALL = {"api_server": (256, 2048), "llm": (256, 8192), "async_engine": (128, 2048)}


def limits(gpu: str, **more: Any) -> tuple[int, int]:
    found = roofline(gpu, "Qwen/Qwen2.5-1.5B", **more)[1]
    return found.max_num_seqs, found.max_num_batched_tokens


def test_a_scenario_names_the_entry_points_that_the_table_has() -> None:
    assert get_args(EntryPointName) == tuple(ENTRY_POINTS)


@pytest.mark.parametrize("point", ENTRY_POINTS)
@pytest.mark.parametrize(
    ("gpu", "table"),
    [("H100-SXM", BIG), ("H200-SXM", BIG), ("B200-SXM", BIG), ("MI300X", BIG), ("RTX-PRO-6000", BIG),
     ("A100-SXM-80GB", SMALL), ("L40S", SMALL), ("RTX-4090", SMALL)],
)  # fmt: skip
def test_vllm_takes_what_its_start_and_gpu_say(point: str, gpu: str, table: dict[str, tuple[int, int]]) -> None:
    assert limits(gpu, entry_point=point) == table[point]


def test_other_engines_start_the_same_everywhere() -> None:
    for engine in ("sglang", "tensorrt-llm"):
        assert len({limits("H100", engine=engine, entry_point=point) for point in ENTRY_POINTS}) == 1


def test_sglang_holds_512_requests_per_context_between_its_bounds() -> None:
    assert [sglang_running_requests(kv, 1000) for kv in (100, 4000, 5000, 8000, 10**6)] == [
        2048, 2048, 2560, 4096, 4096,
    ]  # fmt: skip
    assert sglang_running_requests(10**9, None) == 2048


def test_what_is_given_stays() -> None:
    assert limits("H100", entry_point="async_engine", max_num_seqs=512) == (512, 2048)
    assert limits("H100", entry_point="llm", max_num_batched_tokens=512) == (512, 512)


def test_an_unknown_entry_point_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="api_server, llm, async_engine"):
        limits("H100", entry_point="server")
    with pytest.raises(InputError, match=r"engine\.entry_point"):
        scenario_from_mapping({"engine": {"entry_point": "server"}})


def test_a_scenario_takes_the_limits_and_says_so() -> None:
    told = {}
    for point in ENTRY_POINTS:
        job = job_from_flags({"engine": {"entry_point": point}}, [], {"batch": 512})
        found = engine_of(job.scenario)[1]
        told[point] = found.max_num_seqs, found.max_num_batched_tokens
    assert told == BIG


def test_a_start_that_no_vllm_reads_is_told() -> None:
    sets = ["engine.entry_point=llm"]
    assert not job_from_flags(None, sets, {}).notes
    notes = job_from_flags(None, [*sets, "engine.name=sglang"], {}).notes
    assert any(note.startswith("engine.entry_point changes nothing here") for note in notes)


# Configuration -> entry point, as each framework's code was read.
STARTS = {
    "verl_sync.yaml": "api_server",
    "trl_grpo.py": "llm",
    "trl_async.sh": "api_server",
    "openrlhf_async.sh": "async_engine",
    "openrlhf_hybrid_old.sh": "async_engine",
    "open_instruct.sh": "async_engine",
    "prime_rl.toml": "api_server",
    "nemo_rl_async.yaml": "async_engine",
    "nemo_rl_base.yaml": "llm",
    "nemo_rl_single_controller.yaml": "async_engine",
    "roll_agentic.yaml": "async_engine",
    "ms_swift_colocate.sh": "llm",
}


@pytest.mark.parametrize("file", STARTS)
def test_each_framework_starts_vllm_its_own_way_and_its_preset_too(file: str) -> None:
    framework = max((f for f in FRAMEWORKS if file.replace("_", "-").startswith(f)), key=len)
    result = scenario_from(framework, read_source(str(DATA / file)), file)
    assert result.scenario.engine.entry_point == STARTS[file]
    assert load_scenario(f"presets/{result.preset}").engine.entry_point == STARTS[file]


def test_presets_and_their_frameworks_agree_on_the_limits() -> None:
    """ROLL and TRL hand vLLM a number of tokens of their own, AReaL lets SGLang cut no prompt."""
    engines = {name: load_scenario(f"presets/{name}").engine for name in presets()}
    assert engines["roll-agentic"].max_num_batched_tokens == 8192
    assert engines["trl-grpo"].max_num_batched_tokens == 4096
    assert engines["areal"].max_num_batched_tokens == 32768
    assert not engines["areal"].prefix_caching


def nemo(**generation: Any) -> Any:
    tree = {
        "policy": {
            "model_name": "Qwen/Qwen2.5-7B", "max_total_sequence_length": 4096,
            "generation": {"colocated": {"enabled": True}, **generation},
        },
        "grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 16},
        "cluster": {"num_nodes": 1, "gpus_per_node": 8},
    }  # fmt: skip
    settings = RunSettings()
    settings.add("", tree)
    return scenario_from("nemo-rl", settings).scenario.engine


def test_nemo_rl_reads_its_engine_and_what_it_hands_to_vllm() -> None:
    assert nemo().entry_point == "llm"
    assert nemo(vllm_cfg={"async_engine": True}).entry_point == "async_engine"
    handed = nemo(vllm_kwargs={"max_num_seqs": 512, "max_num_batched_tokens": 16384})
    assert (handed.max_num_seqs, handed.max_num_batched_tokens) == (512, 16384)
    assert not nemo(vllm_cfg={"enable_prefix_caching": False}).prefix_caching
