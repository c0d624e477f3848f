"""Published models by the fields of their config.json: parameters within 1 % of the makers' counts, cache to the byte.

`published_configs.json` holds those fields; {"runs": [[value, count], ...]} stands for a long list.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetsim.engine.model.hf_config import shape_from_config
from fleetsim.engine.roofline_step import roofline

CONFIGS: dict[str, Any] = json.loads(Path(__file__).with_name("published_configs.json").read_text(encoding="utf-8"))

# Billions of parameters in all and of one token, as the makers publish them (model cards and reports); how many of
# embedding and LM head their count of the active ones includes; bytes of KV cache per token in 16 bits: layers x
# numbers x 2, of indexers 132 per key.
PUBLISHED: dict[str, tuple[float, float, int, float]] = {
    "MiniMaxAI/MiniMax-M1-80k": (456, 45.9, 0, 10 * 2 * 8 * 128 * 2),
    "MiniMaxAI/MiniMax-M2.5": (228.7, 9.8, 0, 62 * 2 * 8 * 128 * 2),
    "MiniMaxAI/MiniMax-M3": (428, 23.4, 0, 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": (480, 35.4, 2, 62 * 2 * 8 * 128 * 2),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (80, 3.87, 2, 12 * 2 * 2 * 256 * 2),
    "Qwen/Qwen3-VL-8B-Instruct": (8.19, 8.19, 2, 36 * 2 * 8 * 128 * 2),
    "Qwen/Qwen3.5-122B-A10B": (122, 9.8, 2, 12 * 2 * 2 * 256 * 2),
    "Qwen/Qwen3.5-27B": (27, 27, 2, 16 * 2 * 4 * 256 * 2),
    "Qwen/Qwen3.5-397B-A17B": (397, 17.4, 2, 15 * 2 * 2 * 256 * 2),
    # Sizes from slime's scripts/models/qwen3.5-9B.sh; heads of its states as its users list them.
    "Qwen/Qwen3.5-9B": (9, 9, 2, 8 * 2 * 4 * 256 * 2),
    "XiaomiMiMo/MiMo-7B-Base": (7.62, 7.62, 2, 36 * 2 * 8 * 128 * 2),
    "XiaomiMiMo/MiMo-V2-Flash": (309, 15.4, 2, 9 * 4 * (192 + 128) * 2),
    "allenai/Olmo-3-7B-Think": (7.3, 7.3, 2, 32 * 2 * 32 * 128 * 2),
    "baidu/ERNIE-4.5-300B-A47B-PT": (300, 47, 1, 54 * 2 * 8 * 128 * 2),
    "deepseek-ai/DeepSeek-V3.2": (671.9, 37.5, 1, 61 * (576 * 2 + 132)),
    "deepseek-ai/DeepSeek-V4-Flash": (284, 13.2, 1, 21 * (512 * 2 + 132) / 4 + 20 * 512 * 2 / 128),
    "deepseek-ai/DeepSeek-V4-Pro": (1573, 49, 1, 30 * (512 * 2 + 132) / 4 + 31 * 512 * 2 / 128),
    "google/gemma-3-27b-it": (27.0, 27.0, 2, 10 * 2 * 16 * 128 * 2),
    "google/gemma-4-26B-A4B": (25.2, 3.8, 2, 5 * 2 * 2 * 512 * 2),
    "nvidia/Gemma-4-31B-IT-NVFP4": (30.7, 30.7, 2, 10 * 2 * 4 * 512 * 2),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (400, 17.2, 2, 48 * 2 * 8 * 128 * 2),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (107.8, 17.2, 2, 48 * 2 * 8 * 128 * 2),
    "microsoft/phi-4": (14.7, 14.7, 2, 40 * 2 * 10 * 128 * 2),
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": (23.6, 23.6, 2, 40 * 2 * 8 * 128 * 2),
    "mistralai/Mixtral-8x22B-v0.1": (141, 39, 2, 56 * 2 * 8 * 128 * 2),
    "moonshotai/Kimi-K2.5": (1026, 32.86, 2, 61 * 576 * 2),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (49.1, 3.1, 1, 7 * 576 * 2),
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": (49.9, 49.9, 2, 49 * 2 * 8 * 128 * 2),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6, 3.6, 2, 6 * 2 * 2 * 128 * 2),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120.6, 12.7, 2, 8 * 2 * 2 * 128 * 2),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": (550, 55, 1, 12 * 2 * 2 * 128 * 2),
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": (8.89, 8.89, 2, 4 * 2 * 8 * 128 * 2),
    "nvidia/Nemotron-H-56B-Base-8K": (56.3, 56.3, 2, 10 * 2 * 8 * 128 * 2),
    "openai/gpt-oss-120b": (116.8, 5.13, 1, 18 * 2 * 8 * 64 * 2),
    "openai/gpt-oss-20b": (20.9, 3.61, 1, 12 * 2 * 8 * 64 * 2),
    "stepfun-ai/Step-3.7-Flash": (196, 10.9, 2, 12 * 2 * 8 * 128 * 2),
    "tencent/Hunyuan-A13B-Instruct": (80.4, 12.75, 2, 32 * 2 * 8 * 128 * 2),
    "zai-org/GLM-4.5-Air": (106.9, 12.2, 0, 46 * 2 * 8 * 128 * 2),
    "zai-org/GLM-4.5": (355, 32.1, 0, 92 * 2 * 8 * 128 * 2),
    "zai-org/GLM-5": (744, 40, 0, 78 * (576 * 2 + 132)),
    "zai-org/GLM-5.2": (744, 39.4, 0, 78 * 576 * 2 + 21 * 132),
}
# Bytes that one sequence holds whatever its length: windows in 16 bits, states.
HELD = {
    "MiniMaxAI/MiniMax-M1-80k": (0, 70 * 64 * 128 * 128 * 4),
    "XiaomiMiMo/MiMo-V2-Flash": (39 * 128 * 8 * (192 + 128) * 2, 0),
    "deepseek-ai/DeepSeek-V4-Flash": (43 * 128 * 512 * 2, 0),
    "google/gemma-4-26B-A4B": (25 * 1024 * 2 * 8 * 256 * 2, 0),
    "openai/gpt-oss-120b": (18 * 128 * 2 * 8 * 64 * 2, 0),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (0, 20 * (32 * 128 * 128 * 4 + 3 * 3 * 4096 * 2)),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (0, 23 * (64 * 64 * 128 * 4 + 3 * (4096 + 2 * 8 * 128) * 2)),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (0, 0),
}


def config_of(name: str) -> dict[str, Any]:
    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            runs = value.get("runs")
            return [v for v, n in runs for _ in range(n)] if runs else {k: whole(v) for k, v in value.items()}
        return value

    found: dict[str, Any] = whole(CONFIGS[name])
    return found


def test_every_config_is_checked() -> None:
    assert set(PUBLISHED) == set(CONFIGS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_cache_are_the_published_ones(name: str) -> None:
    total, active, embeddings, cache = PUBLISHED[name]
    shape = shape_from_config(config_of(name), name)
    assert shape.params == pytest.approx(total * 1e9, rel=0.01)
    heads = embeddings * shape.embedding_params if not shape.tied_embeddings else shape.embedding_params
    assert shape.active_trunk_params + heads == pytest.approx(active * 1e9, rel=0.012)
    assert shape.kv_bytes_per_token() == pytest.approx(cache, rel=1e-12)
    weights = sum(b.count * sum(g.params for g in b.gemms(shape.hidden)) for b in shape.blocks)
    assert weights <= shape.active_trunk_params, "the matrices are part of what one token is multiplied with"


@pytest.mark.parametrize("name", HELD)
def test_windows_and_states_are_held_whatever_the_length(name: str) -> None:
    shape = shape_from_config(config_of(name), name)
    assert (shape.window_bytes(), shape.state_bytes()) == HELD[name]


def test_a_window_costs_a_sequence_and_no_longer_context() -> None:
    near = shape_from_config(config_of("openai/gpt-oss-20b"), "near")
    wide = shape_from_config({**config_of("openai/gpt-oss-20b"), "sliding_window": 4096}, "wide")
    step, limits = roofline("H100", near)
    wide_step, wide_limits = roofline("H100", wide)
    assert wide_step.window is not None
    assert step.per_kv_token_s == pytest.approx(wide_step.per_kv_token_s) == wide_step.window.per_kv_token_s
    assert limits.kv_tokens > 1.9 * wide_limits.keeping_all.kv_tokens
    assert (wide_limits.whole_blocks, wide_limits.window_blocks) == (1, 1)
    assert (limits.state_blocks, wide_limits.state_blocks) == (8, 0)
    assert (near.window, wide.window, wide.held_whole) == (0, 4096, (12, 4096))


FP4 = {"num_bits": 4, "type": "float", "group_size": 16}
WORDS = ("model.layers.{}.self_attn*", "model.layers.{}.mlp.shared_experts*", "model.layers.{}.mlp.gate")

SELF_ATTENTION = [WORDS[0].format(i) for i in range(1, 61)]


@pytest.mark.parametrize(
    ("quant", "parts"),
    [
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"0": {"targets": ["Linear"], "weights": {**FP4, "type": "int", "group_size": 32}}},
                "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|down)_proj.*"],
            },
            ("bfloat16", "bfloat16", "int4g32"),
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "config_groups": {"0": {"targets": ["Linear"], "weights": FP4}},
                "ignore": [w.format(i) for i in range(61) for w in WORDS],
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            },
            ("bfloat16", "bfloat16", "nvfp4"),
        ),
        (
            {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.0*", *SELF_ATTENTION]},
            ("bfloat16", "nvfp4", "nvfp4"),
        ),
        (
            {"quant_method": "fp8", "modules_to_not_convert": [f"{w[:-1]}.kv_a_layernorm" for w in SELF_ATTENTION]},
            ("fp8", "fp8", "fp8"),
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"},
                    "model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4"},
                    "lm_head": {"quant_algo": "NVFP4"},
                },
            },
            ("fp8", "bfloat16", "nvfp4"),
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, ("int4", "int4", "int4")),
        ({"quant_method": "mxfp4"}, ("bfloat16", "bfloat16", "mxfp4")),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}, "exclude": ["*self_attn*"]},
            ("bfloat16", "mxfp4", "mxfp4"),
        ),
        ({"quant_method": "fp8", "moe_quant_algo": "NVFP4", "ignore": ["*.attn.*"]}, ("fp8", "fp8", "nvfp4")),
    ],
)  # fmt: skip
def test_each_part_has_the_precision_that_the_checkpoint_tells(quant: dict[str, Any], parts: tuple[str, ...]) -> None:
    config = config_of("moonshotai/Kimi-K2.5")
    shape = shape_from_config({**config, "text_config": {**config["text_config"], "quantization_config": quant}})
    assert (shape.parts.attention, shape.parts.mlp, shape.parts.expert, shape.parts.head) == (*parts, "bfloat16")
    assert shape.kv_dtype == ("fp8" if "kv_cache_scheme" in quant else "bfloat16")
    sizes = {"bfloat16": 2, "fp8": 1, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.515625, "int4g32": 0.5625}
    assert shape.routed_bytes() == shape.routed_params * sizes[parts[2]]


def test_experts_of_deepseek_v4_are_in_four_bits_and_the_rest_in_eight() -> None:
    config = {**config_of("deepseek-ai/DeepSeek-V4-Pro"), "quantization_config": {"quant_method": "fp8"}}
    shape = shape_from_config(config)
    assert (shape.parts.attention, shape.parts.mlp, shape.parts.expert) == ("fp8", "fp8", "mxfp4")
    assert shape.weight_bytes() == pytest.approx(850e9, rel=0.01)
    assert shape.dtype == "mxfp4"


def test_a_wished_precision_quantizes_what_such_checkpoints_do() -> None:
    kimi = shape_from_config(config_of("moonshotai/Kimi-K2.5"))
    assert kimi.stored("nvfp4").attention == "bfloat16"
    assert kimi.stored("nvfp4").mlp == "nvfp4"
    assert (kimi.stored("int4").mlp, kimi.stored("w4a16").expert) == ("bfloat16", "int4")
    assert kimi.stored("auto") == kimi.stored("bf16") == kimi.parts
    phi = shape_from_config(config_of("microsoft/phi-4"))
    assert (phi.stored("int4").attention, phi.stored("int4").head) == ("int4", "bfloat16")
    assert phi.weight_bytes("int4") < 0.4 * phi.weight_bytes()
