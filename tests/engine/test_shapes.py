"""Shapes against published parameter counts, and config.json files: good, odd, wrong, hostile."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.engine.model.hf_config import shape_from_config
from fleetsim.engine.model.mixers import Attention
from fleetsim.engine.model.mlps import Dense
from fleetsim.engine.model.names import MODELS, model_shape
from fleetsim.engine.model.shape import Block, ModelShape
from fleetsim.errors import InputError

# Parameters in the published safetensors index of each repository (tied embeddings once).
PUBLISHED_PARAMS = {
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    # the language models, without vision tower and MTP layer
    "Qwen/Qwen3.5-0.8B": 752_393_024,
    "Qwen/Qwen3.5-2B": 1_881_825_088,
    "Qwen/Qwen3.5-4B": 4_205_751_296,
    "mistralai/Ministral-8B-Instruct-2410": 8_019_808_256,
    "Qwen/Qwen3.5-35B-A3B": 34_660_610_688,  # the language model, without vision tower and MTP layer
    # without the MTP layer, fp8 scales and the routers' 32-bit biases
    "deepseek-ai/DeepSeek-V3": 671_026_404_352,
    "moonshotai/Kimi-K2-Base": 1_026_408_209_408,
    "moonshotai/Moonlight-16B-A3B": 15_960_108_544,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "codellama/CodeLlama-34b-hf": 33_743_970_304,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
}
LLAMA_2_7B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
    "attention_bias": False,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}


QWEN35_MOE = {
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 10,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "attn_output_gate": True,
        "head_dim": 256,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "vocab_size": 248320,
        "tie_word_embeddings": False,
        "max_position_embeddings": 262144,
        "dtype": "bfloat16",
    },
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}


def problem_paths(error: InputError) -> list[str]:
    return [p.path for p in error.problems]


def active_params(shape: ModelShape) -> int:
    """Parameters that one token uses, embeddings included, as in "30B-A3B"."""
    return shape.active_trunk_params + shape.embeddings_params


def moe_layers(shape: ModelShape) -> int:
    return sum(n for n, _ in shape.mixtures)


@pytest.mark.parametrize(("name", "params"), PUBLISHED_PARAMS.items())
def test_parameter_counts_are_the_published_ones(name: str, params: int) -> None:
    assert MODELS[name].params == params


def test_active_parameters_of_the_mixtures() -> None:
    assert active_params(MODELS["Qwen/Qwen3-30B-A3B"]) == pytest.approx(3.35e9, rel=0.01)  # "A3B", 3.3B activated
    assert active_params(MODELS["mistralai/Mixtral-8x7B-v0.1"]) == pytest.approx(12.9e9, rel=0.01)  # Mistral says so
    assert active_params(MODELS["Qwen/Qwen3-235B-A22B"]) == pytest.approx(22e9, rel=0.01)
    assert active_params(MODELS["deepseek-ai/DeepSeek-V3"]) == 37_552_282_624
    moonlight = MODELS["moonshotai/Moonlight-16B-A3B"]
    assert moonlight.active_trunk_params == pytest.approx(2.24e9, rel=0.005)  # as its authors count: no embeddings
    assert moonlight.params - 2 * moonlight.embedding_params == pytest.approx(15.29e9, rel=0.001)


def test_latent_attention_caches_one_vector_for_all_heads() -> None:
    shape = MODELS["deepseek-ai/DeepSeek-V3"]
    assert shape.kv_bytes_per_token() == 61 * (512 + 64) * 2 == 70_272
    assert shape.kv_bytes_per_token(8) == 70_272, "the latent is on every GPU"
    # a decode multiplies 128 heads with 576 numbers for the scores and 512 for the values, two operations each
    assert sum(n * m.decode_flop for n, m in shape.attentions) == 61 * 2 * 128 * (576 + 512)
    assert shape.prefill_pair_flop == 61 * 2 * 128 * (128 + 64 + 128)


def test_hybrid_models_cache_in_their_full_attention_layers_only() -> None:
    shape = MODELS["Qwen/Qwen3.5-35B-A3B"]
    assert sum(count for count, _ in shape.attentions) == 10
    assert shape.kv_bytes_per_token() == 10 * 2 * 2 * 256 * 2 == 20_480
    # per linear layer: 32 matrices of 128 x 128 in 32 bits, and 3 inputs of 8,192 channels in 16
    assert shape.state_bytes() == 30 * (32 * 128 * 128 * 4 + 3 * 8192 * 2) == 64_389_120
    assert shape.state_bytes(4) == 64_389_120 / 4
    assert shape.mixer_params == 1_011_553_920 + 272_634_880 + 40 * 2048, "linear + full attention + norms"
    assert MODELS["Qwen/Qwen3-8B"].state_bytes() == 0


def test_ranks_share_the_routed_experts_and_nothing_else() -> None:
    shape = MODELS["Qwen/Qwen3-30B-A3B"]
    routed = 48 * 128 * 3 * 2048 * 768 * 2
    # routers, and norms of hidden states and of heads, are whole on every GPU
    whole = 2 * (48 * (128 * 2048 + 2 * 2048 + 2 * 128) + 2048)
    assert shape.weight_bytes_per_gpu(1, 1) == shape.weight_bytes()
    assert shape.weight_bytes_per_gpu(2, 1) == (shape.weight_bytes() + whole) / 2
    assert shape.weight_bytes_per_gpu(2, 4) == (shape.weight_bytes() - routed + whole) / 2 + routed / 8
    dense = MODELS["Qwen/Qwen3-8B"]
    assert dense.weight_bytes_per_gpu(2, 4) == dense.weight_bytes_per_gpu(2, 1)


def test_kv_bytes_per_token_and_their_sharding() -> None:
    llama = MODELS["meta-llama/Llama-3.1-8B"]
    assert llama.kv_bytes_per_token() == 2 * 32 * 8 * 128 * 2 == 131_072
    assert [llama.kv_bytes_per_token(tp) for tp in (2, 4, 8)] == [65_536, 32_768, 16_384]
    assert llama.kv_bytes_per_token(16) == llama.kv_bytes_per_token(8)  # heads are replicated, never split
    assert MODELS["meta-llama/Llama-2-7b-hf"].kv_bytes_per_token() == 524_288


def test_weight_bytes_of_fp8_keep_embeddings_in_16_bits() -> None:
    shape = MODELS["meta-llama/Llama-3.1-8B"]
    embeddings = 2 * shape.vocab * shape.hidden
    assert shape.weight_bytes("bfloat16") == 2 * shape.params
    assert shape.weight_bytes("fp8") == shape.params - embeddings + 2 * embeddings


def test_experts_touched_grow_from_k_to_all() -> None:
    shape = MODELS["Qwen/Qwen3-30B-A3B"]
    assert shape.mixture is not None
    touched = shape.mixture.touched
    assert touched(1) == pytest.approx(8)
    assert touched(2) == pytest.approx(8 + 8 * (1 - 8 / 128))
    assert touched(4096) == pytest.approx(128)
    assert MODELS["Qwen/Qwen2.5-7B"].mixture is None


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen2.5-1.5B"),
        ("Qwen2.5-Math-7B", "Qwen/Qwen2.5-7B"),
        ("qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B"),
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3-30B-A3B"),
        ("Qwen/Qwen3-1.7B-Base", "Qwen/Qwen3-1.7B"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Llama-2-7b", "meta-llama/Llama-2-7b-hf"),
        ("codellama/CodeLlama-34b-Instruct-hf", "codellama/CodeLlama-34b-hf"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "Qwen/Qwen2.5-7B"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek-ai/DeepSeek-V3"),
        ("moonshotai/Moonlight-16B-A3B-Instruct", "moonshotai/Moonlight-16B-A3B"),
        ("Qwen/Qwen3.5-35B-A3B-Base", "Qwen/Qwen3.5-35B-A3B"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B"),
    ],
)
def test_variants_share_their_base_shape(alias: str, name: str) -> None:
    assert model_shape(alias).blocks == MODELS[name].blocks
    assert model_shape(alias).name == name


def test_unknown_model_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean Qwen/Qwen2\.5-7B\?.*config\.json"):
        model_shape("Qwen/Qwen25-7B")


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("PRIME-RL/Eurus-2-7B-SFT", "Qwen/Qwen2.5-7B"),
        ("acme/mistral-x-7b", "mistralai/Mistral-7B-v0.3"),
        ("acme/thing-30b-a3b", "Qwen/Qwen3-30B-A3B"),
        ("SmolQwen3-4B", "Qwen/Qwen3-4B"),
        ("OpenThinker-7B", "Qwen/Qwen2.5-7B"),
    ],
)
def test_an_unknown_name_that_says_a_size_is_as_large_and_says_what_was_assumed(name: str, like: str) -> None:
    found = model_shape(name)
    assert (found.name, found.blocks, found.mtp, found.max_position) == (name, MODELS[like].blocks, False, None)
    assert f"assumed to have the layers of {like}, which is as large" in found.notes[-1]
    assert model_shape(f"{name}-awq").weights_type("auto") == "int4"


@pytest.mark.parametrize("name", ["nobody/knows", "our/eagle-7b", "acme/thing-7000b", "acme/thing-8x7b-a3b"])
def test_a_name_that_says_no_known_size_or_no_fine_tune_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"config\.json"):
        model_shape(name)


def test_config_gives_the_built_in_shapes() -> None:
    assert shape_from_config(LLAMA_2_7B).params == MODELS["meta-llama/Llama-2-7b-hf"].params
    moe = shape_from_config(QWEN3_MOE, name="Qwen/Qwen3-30B-A3B")
    assert moe == MODELS["Qwen/Qwen3-30B-A3B"]
    assert shape_from_config(QWEN35_MOE, name="Qwen/Qwen3.5-35B-A3B") == MODELS["Qwen/Qwen3.5-35B-A3B"]
    latent = shape_from_config(DEEPSEEK_V3, name="deepseek-ai/DeepSeek-V3")
    assert (latent.blocks, latent.params) == (MODELS[latent.name].blocks, PUBLISHED_PARAMS[latent.name])
    assert latent.dtype == "fp8"


def test_config_defaults_are_those_of_transformers() -> None:
    bare = {
        k: v for k, v in LLAMA_2_7B.items() if k not in ("num_key_value_heads", "tie_word_embeddings", "torch_dtype")
    }
    shape = shape_from_config(bare)
    assert shape.blocks == (Block(32, Attention(32, 32, 128), Dense(11008)),)
    assert (shape.tied_embeddings, shape.dtype) == (False, "bfloat16")
    assert shape_from_config({**bare, "model_type": "gemma2"}).tied_embeddings
    assert shape_from_config({**bare, "model_type": "qwen2"}).blocks[0].mixer == Attention(32, 32, 128, bias=True)


def test_text_config_is_followed() -> None:
    shape = shape_from_config({"model_type": "llava", "text_config": LLAMA_2_7B, "vision_config": {"hidden_size": 1}})
    assert shape.params == MODELS["meta-llama/Llama-2-7b-hf"].params


def test_dense_layers_of_a_mixture_are_counted() -> None:
    sparse = shape_from_config({**QWEN3_MOE, "mlp_only_layers": [0, 1]})
    assert (sparse.layers, moe_layers(sparse)) == (48, 46)
    assert moe_layers(shape_from_config({**QWEN3_MOE, "decoder_sparse_step": 2})) == 24


def test_everything_wrong_is_said_at_once() -> None:
    broken = {
        **LLAMA_2_7B,
        "hidden_size": math.nan,
        "num_hidden_layers": -3,
        "vocab_size": "many",
        "tie_word_embeddings": 1,
        "torch_dtype": "int3",
    }
    del broken["num_attention_heads"]
    with pytest.raises(InputError) as caught:
        shape_from_config(broken)
    wrong = {path.removeprefix("config.") for path in problem_paths(caught.value)}
    assert wrong == {
        "hidden_size", "num_hidden_layers", "vocab_size", "tie_word_embeddings", "torch_dtype", "num_attention_heads",
    }  # fmt: skip
    assert all(p.rule and p.remedy for p in caught.value.problems)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kv_lora_rank": 512}, "qk_nope_head_dim.*required"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "a list of 32 texts or integers"),
        ({"layer_types": ["linear_attention"] * 32}, "at least one layer of full attention"),
        ({"full_attention_interval": 4}, "linear_num_key_heads.*required"),
        ({"model_type": "mamba2"}, "not supported yet"),
        ({"quantization_config": {"quant_method": "awq"}}, "weights of awq cannot be counted"),
        ({"layer_types": ["retention"] * 32}, "layer_types: 'retention': a kind of layer that is known"),
        ({"differential_attention": True}, "differential_attention.*a field that is known"),
        ({"num_hash_experts": 4}, "num_hash_experts.*a field that is known"),
        ({"hybrid_override_pattern": "MMMM"}, "mamba_num_heads.*required"),
        ({"hybrid_override_pattern": "M?"}, "layers of mamba, attention, mlp, moe only"),
        (
            {"block_configs": [{"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 1}}]},
            "not supported yet",
        ),
        ({"compress_ratios": [4]}, "a list of at least 32 integers"),
        ({"index_topk": 64}, "index_n_heads.*required"),
        ({"num_key_value_heads": 5}, "a divisor of num_attention_heads"),
        ({"hidden_size": 4100, "head_dim": None}, "a multiple of num_attention_heads"),
        ({"num_hidden_layers": True}, "an integer from 1"),
        ({"num_hidden_layers": 10**9}, "an integer from 1"),
        ({"num_experts": 4, "num_experts_per_tok": 8}, "at most the number of experts"),
    ],
)
def test_refusals_name_the_reason(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        shape_from_config({**LLAMA_2_7B, **change})


def test_fp8_checkpoints_are_fp8() -> None:
    assert shape_from_config({**LLAMA_2_7B, "quantization_config": {"quant_method": "fp8"}}).dtype == "fp8"


def test_files(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(LLAMA_2_7B))
    shape = model_shape(path)
    assert (shape.name, shape.params) == ("my-model", PUBLISHED_PARAMS["meta-llama/Llama-2-7b-hf"])
    assert model_shape(str(path)) == shape == model_shape(folder) == model_shape(f"{folder}/")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "valid JSON"),
        (b"{", "valid JSON"),
        (b"[1, 2]", "a JSON object"),
        (b"\xff\xfe\x00", "readable text"),
        (b"[" * 100_000, "JSON"),
        (b'{"hidden_size": NaN}', "hidden_size.*an integer from 1"),
        (b" " * (5 * 2**20), "at most 4194304 bytes"),
    ],
    ids=["empty", "cut", "list", "binary", "deep", "nan", "huge"],
)
def test_wrong_files_are_one_error(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        model_shape(path)


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="an existing file"):
        model_shape(str(tmp_path / "config.json"))
    with pytest.raises(InputError, match="an existing file"):
        model_shape(tmp_path)
    for text in ("", "\0", "a/b/c/d", "x" * 5000):
        with pytest.raises(InputError):
            model_shape(text)
    with pytest.raises(InputError, match="must be a name"):
        model_shape(7)  # type: ignore[arg-type]


PUBLISHED = [
    {**config, **config.get("text_config", {})}
    for config in json.loads(Path(__file__).with_name("published_configs.json").read_text(encoding="utf-8")).values()
]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    *LLAMA_2_7B,
    *QWEN3_MOE,
    *DEEPSEEK_V3,
    *QWEN35_MOE["text_config"],
    *("layer_types", "quantization_config", "text_config", "dtype", "full_attention_interval", "attn_output_gate"),
    *(
        "n_shared_experts",
        "n_routed_experts",
        "first_k_dense_replace",
        "compress_ratios",
        "index_topk",
        "index_n_heads",
    ),
    *("hybrid_override_pattern", "layers_block_type", "block_configs", "linear_attn_config", "attn_type_list"),
    *("sparse_attention_config", "hybrid_layer_pattern", "moe_layer_freq", "mlp_layer_types", "sliding_window"),
    *("num_kv_shared_layers", "expert_dtype", "indexer_types", "model_type", "use_cla", "cla_share_factor"),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    base=st.sampled_from([LLAMA_2_7B, QWEN3_MOE, DEEPSEEK_V3, QWEN35_MOE["text_config"], *PUBLISHED, {}]),
    change=st.dictionaries(st.sampled_from(KEYS), JSON_VALUES),
)
def test_any_mapping_is_a_shape_or_an_input_error(base: dict[str, Any], change: dict[str, Any]) -> None:
    try:
        shape = shape_from_config({**base, **change})
    except InputError as error:
        assert error.problems
        return
    assert isinstance(shape, ModelShape)
    assert shape.params > 0
    assert 0 < active_params(shape) <= shape.params
    assert shape.kv_bytes_per_token(8) <= shape.kv_bytes_per_token()
