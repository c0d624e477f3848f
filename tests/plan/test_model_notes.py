"""What a model cannot do that a job asks of it; and weights in fp8, which a plan counts as the checkpoint has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim.cli.main import app
from fleetsim.config import default_scenario, with_changes
from fleetsim.engine import roofline
from fleetsim.engine.kv_memory import windows_kept
from fleetsim.engine.model.hf_config import shape_from_config
from fleetsim.engine.transport import transfer_of
from fleetsim.errors import InputError
from fleetsim.job.assumptions import assumptions_of
from fleetsim.job.derived_values import model_notes
from fleetsim.sim.engines import engine_of

LLAMA: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "max_position_embeddings": 8192,
}  # fmt: skip
FLOAT8 = {"config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}
INT8 = {"config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}}}
INT4 = {"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}


def config(folder: Path, **more: Any) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps({**LLAMA, **more}))
    return str(file)


@pytest.mark.parametrize(
    "quant",
    [{"quant_method": "fp8", "weight_block_size": [128, 128]}, {"quant_method": "fbgemm_fp8"},
     {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {}},
     {"quant_method": "compressed-tensors", **FLOAT8}, {"quant_method": "modelopt", "quant_algo": "FP8"},
     {"quant_algo": "FP8", **FLOAT8}],
)  # fmt: skip
def test_fp8_checkpoints_are_fp8(quant: dict[str, Any]) -> None:
    shape = shape_from_config({**LLAMA, "quantization_config": quant})
    assert (shape.dtype, shape.notes) == ("fp8", ())


@pytest.mark.parametrize(
    ("quant", "kind"),
    [({"quant_method": "gptq", "bits": 3}, "gptq of 3 bits"), ("awq", "awq"), ("bitsandbytes", "bitsandbytes"),
     ({"quant_method": "compressed-tensors", **INT8}, "int8"), ({"quant_method": "fp8", **INT8}, "int8"),
     ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "w4a8_awq"),
     ({"quant_method": "compressed-tensors", "config_groups": {**FLOAT8["config_groups"], "1": INT4["config_groups"]
      ["group_0"]}}, "float8 and int4")],
)  # fmt: skip
def test_other_weights_are_refused_by_name_and_never_counted_as_something_else(quant: Any, kind: str) -> None:
    with pytest.raises(InputError, match=f"weights of {kind} cannot be counted"):
        shape_from_config({**LLAMA, "quantization_config": quant})


def test_modelopt_tells_of_the_weights_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = config(tmp_path)
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})
    )
    shape = shape_from_config(file)
    assert (shape.dtype, shape.kv_dtype, shape.notes) == ("fp8", "fp8", ())
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    shape = shape_from_config(file)
    assert (shape.dtype, shape.kv_dtype) == ("nvfp4", "bfloat16")


def test_a_name_that_promises_what_the_file_does_not_tell_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-3.1-8B-NVFP4"
    folder.mkdir()
    job = fs.load(model=config(folder))
    assert [n for n in job.notes if "NVFP4 and its config.json nothing: weights in 16 bits" in n]
    assert not fs.load(model="Qwen/Qwen2.5-7B").notes


def test_a_plan_counts_fp8_weights_and_says_so(tmp_path: Path) -> None:
    """Half of the bytes are read per iteration and sent in a sync; whoever wants 16 bits is told how."""
    file = config(tmp_path, quantization_config={"quant_method": "fp8"})
    own, wide = fs.load(model=file), fs.load(None, {"engine.dtype": "bfloat16"}, model=file)
    line = next(a for a in assumptions_of(own.scenario, own.given) if a.path == "engine.dtype")
    assert (line.text, line.flag) == ("fp8 weights, as the checkpoint has them", "--dtype")
    assert not [a for a in assumptions_of(wide.scenario, wide.given) if a.path == "engine.dtype"]
    sent = [transfer_of(j.with_({"sync.transport": "rdma_p2p"}).scenario) for j in (own, wide)]
    assert sent[0].element_bytes == 1
    assert sent[0].model_bytes < 0.6 * sent[1].model_bytes
    times = [roofline("H100", file, dtype=j.scenario.engine.dtype)[0].seconds(1) for j in (own, wide)]
    assert times[0] < 0.75 * times[1]  # launches and the LM head stay
    assert roofline("H100", file) == roofline("H100", file, dtype="fp8")


def test_deepseek_by_its_name_is_what_its_checkpoint_is() -> None:
    job = fs.load(model="deepseek-ai/DeepSeek-V3", gpu="H200", tp=8)  # bfloat16 would not fit
    assert job.scenario.engine.dtype == "auto"
    assert any("fp8 weights" in a.text for a in assumptions_of(job.scenario, job.given))


@settings(max_examples=60, deadline=None)
@given(
    prompt=st.integers(1, 60_000),
    most=st.integers(4, 60_000),
    limit=st.integers(1, 100_000),
    tools=st.integers(0, 3000),
    turns=st.integers(1, 4),
)
def test_a_context_beyond_the_models_is_told_and_no_other(
    prompt: int, most: int, limit: int, tools: int, turns: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = config(tmp_path_factory.mktemp("m"), max_position_embeddings=limit)
    changes = {
        "workload.prompt_tokens": prompt,
        "workload.output_tokens": {"mean": 500.0, "cv": 1.0, "max": float(most)},
        "workload.turns": {"count": turns, "tool_tokens": tools},
    }
    notes = model_notes(with_changes(default_scenario(), {"engine.model": file, **changes}), ())
    told = [n for n in notes if "max_position_embeddings" in n]
    assert len(told) == (prompt + most + (turns - 1) * tools > limit)
    assert all(f"{limit:,}" in n for n in told)


@pytest.mark.parametrize(
    ("more", "limit"),
    [({}, 8192),
     ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}}, 32768),
     ({"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 128}}, 8192),
     ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 16384), ({"rope_parameters": {"rope_type": "dynamic",
       "factor": 2.0}}, 16384), ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 8192),
     ({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 8192),
     ({"rope_scaling": {"type": "yarn", "factor": "much"}}, 8192), ({"rope_scaling": [1]}, 8192)],
)  # fmt: skip
def test_scaled_positions_reach_further(more: dict[str, Any], limit: int) -> None:
    assert shape_from_config({**LLAMA, **more}).max_position == limit


@pytest.mark.parametrize(
    ("more", "window", "layers"),
    [({}, 0, 0), ({"sliding_window": 4096}, 4096, 32), ({"sliding_window": None}, 0, 0),
     ({"model_type": "qwen3", "sliding_window": 4096}, 0, 0),
     ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28}, 4096, 4),
     ({"model_type": "gemma3_text", "sliding_window": 4096, "sliding_window_pattern": 6}, 4096, 27),
     ({"model_type": "gemma3_text", "sliding_window": 1024, "sliding_window_pattern": 6}, 0, 0),
     ({"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16}, 0, 0),
     ({"sliding_window": 128}, 128, 32),
     ({"model_type": "llama4", "attention_chunk_size": 8192}, 8192, 24)],
)  # fmt: skip
def test_windows_are_read_and_told_where_a_context_leaves_them(
    more: dict[str, Any], window: int, layers: int, tmp_path: Path
) -> None:
    file = config(tmp_path, **{"max_position_embeddings": 2**20, **more})
    shape = shape_from_config(file)
    assert shape.held_whole == (layers, window)
    for most in (window // 2, 2 * window + 1000):
        changes = {
            "engine.name": "sglang",
            "workload.prompt_tokens": 1,
            "workload.output_tokens": {"mean": 100.0, "cv": 1.0, "max": max(64.0, most)},
        }
        told = [n for n in fs.load(None, changes, model=file).notes if "look back" in n]
        assert len(told) == (window > 0 and most > window)
        assert all(f"{layers} of the 32 layers" in n and f"{window:,} tokens" in n for n in told)
        told = [n for n in fs.load(None, {**changes, "engine.name": "vllm"}, model=file).notes if "look back" in n]
        assert len(told) == (window > 0 and most > window and windows_kept(shape, "vllm") is None)


def test_a_sweep_tells_of_the_models_of_its_cells() -> None:
    found = fs.sweep(
        "async-one-step", {"engine.model": ["Qwen/Qwen2.5-7B", "meta-llama/Llama-2-7b-hf"]}, steps=6, replications=1
    )
    assert [n for n in found.warnings if "Llama-2-7b-hf reads 4,096" in n]


def test_a_measured_engine_whose_model_nobody_named_is_asked_nothing() -> None:
    job = fs.load(
        None, {"workload.output_tokens": {"mean": 50_000.0, "cv": 1.0, "max": 200_000.0}}, instance_tok_s=4000.0
    )
    assert not [n for n in job.notes if "max_position" in n]


def test_both_types_are_flags_of_every_planning_command(tmp_path: Path) -> None:
    """fp8 halves the weights and the cache; each is told under its own flag."""
    file = config(tmp_path, quantization_config={"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"})
    own = fs.load(model=file)
    told = {a.path: (a.text, a.flag) for a in assumptions_of(own.scenario, own.given)}
    assert told["engine.dtype"] == ("fp8 weights, as the checkpoint has them", "--dtype")
    assert told["engine.kv_dtype"] == ("KV cache in fp8, as the checkpoint asks", "--kv-dtype")
    wide = fs.load(model=file, kv_dtype="bf16")
    limits = [engine_of(j.scenario)[1] for j in (own, wide)]
    assert limits[0].kv_tokens == pytest.approx(2 * limits[1].kv_tokens, rel=0.001)
    assert "engine.kv_dtype" not in [a.path for a in assumptions_of(wide.scenario, wide.given)]
    with pytest.raises(InputError, match="kv_dtype: 'int4': must be one of auto, bfloat16, float16, fp8"):
        roofline("H100", file, kv_dtype="int4")
    for command in ("size", "split", "simulate"):
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "120"}).stdout
        assert "--dtype" in shown
        assert "--kv-dtype" in shown
