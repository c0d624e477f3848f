"""Models by name: every one is held to a published count, or to the config.json of the same model."""

from __future__ import annotations

import pytest

from fleetsim.engine.model.hf_config import shape_from_config
from fleetsim.engine.model.names import MODELS, model_shape
from fleetsim.errors import InputError
from tests.engine.test_published_models import CONFIGS, config_of
from tests.engine.test_shapes import PUBLISHED_PARAMS

# Parameters in the published safetensors index of each repository, or in billions as its card says.
COUNTS: dict[str, float] = {
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
    "deepseek-ai/deepseek-llm-7b-base": 6_910_365_696,
    "deepseek-ai/deepseek-coder-6.7b-base": 6_740_512_768,
    "mistralai/Mistral-7B-v0.3": 7_248_023_552,
    "mistralai/Mistral-Nemo-Base-2407": 12_247_782_400,
    "mistralai/Mistral-Small-24B-Base-2501": 23_572_403_200,
    "mistralai/Mistral-Large-Instruct-2411": 122_610_069_504,
    "microsoft/Phi-4-mini-instruct": 3_836_021_760,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "HuggingFaceTB/SmolLM2-360M": 361_821_120,
    "HuggingFaceTB/SmolLM2-1.7B": 1_711_376_384,
    "HuggingFaceTB/SmolLM3-3B": 3_075_098_624,
    "ByteDance-Seed/Seed-OSS-36B-Base": 36_151_104_512,
    "zai-org/GLM-4-9B-0414": 9_400_279_040,
    "zai-org/GLM-4.7-Flash": 29.94e9,  # without its MTP layer, as llama.cpp counts it
    "allenai/OLMo-2-0425-1B": 1_484_916_736,
    "allenai/OLMo-2-1124-7B": 7_298_617_344,
    "allenai/OLMo-2-1124-13B": 13_716_198_400,
    "allenai/OLMo-2-0325-32B": 32_234_279_936,
    "allenai/Olmo-3-7B": 7.3e9,
    "allenai/Olmo-3-32B": 32.2e9,
    "allenai/OLMoE-1B-7B-0924": 6_919_161_856,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-1b-pt": 999_885_952,
    "google/gemma-3-4b-pt": 3.88e9,
    "google/gemma-3-12b-pt": 11.77e9,
    "google/gemma-3-27b-pt": 27.01e9,
    "deepseek-ai/DeepSeek-V2": 235_741_434_880,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "moonshotai/Kimi-K3": 2.78e12,
}
# Names of the catalogue whose config.json stands under another.
SAME = {
    "MiniMaxAI/MiniMax-M2": "MiniMaxAI/MiniMax-M2.5",
    "google/gemma-4-31B": "nvidia/Gemma-4-31B-IT-NVFP4",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B": "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B": "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
}


def test_every_model_is_checked() -> None:
    held = {*PUBLISHED_PARAMS, *COUNTS, *SAME, *CONFIGS}
    assert set(MODELS) <= held
    assert len(MODELS) >= 90
    assert all(shape.max_position for shape in MODELS.values())


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert MODELS[name].params == pytest.approx(COUNTS[name], rel=0.002)


@pytest.mark.parametrize("name", [name for name in MODELS if SAME.get(name, name) in CONFIGS])
def test_a_name_is_what_its_config_says(name: str) -> None:
    """Layer by layer; the context where the file has one."""
    told = shape_from_config(config_of(SAME.get(name, name)), name)
    known = MODELS[name]
    assert sorted(told.blocks, key=str) == sorted(known.blocks, key=str)
    assert (told.hidden, told.vocab, told.tied_embeddings) == (known.hidden, known.vocab, known.tied_embeddings)
    assert told.max_position in (None, known.max_position)


@pytest.mark.parametrize(
    ("name", "base", "context", "dtype"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B", 262144, "bfloat16"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "Qwen/Qwen3-235B-A22B", 262144, "fp8"),
        ("Qwen/Qwen2.5-Math-7B", "Qwen/Qwen2.5-7B", 4096, "bfloat16"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Llama-3.1-8B", 8192, "bfloat16"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-V3", 163840, "fp8"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-ai/DeepSeek-V3", 163840, "nvfp4"),
        ("moonshotai/Kimi-K2-Thinking", "moonshotai/Kimi-K2.5", 262144, "int4g32"),
        ("Qwen/Qwen3-32B-AWQ", "Qwen/Qwen3-32B", 40960, "int4"),
        ("casperhansen/Qwen3.6-35B-A3B-INT4-RTN", "Qwen/Qwen3.5-35B-A3B", 262144, "int4"),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "meta-llama/Llama-3.1-70B", 131072, "int4"),
        ("google/gemma-3-12b-it", "google/gemma-3-12b-pt", 131072, "bfloat16"),
        ("openai/gpt-oss-120b", "openai/gpt-oss-120b", 131072, "mxfp4"),
        ("unsloth/gpt-oss-20b-BF16", "openai/gpt-oss-20b", 131072, "bfloat16"),
    ],
)
def test_other_names_have_the_layers_of_their_base_and_their_own_context(
    name: str, base: str, context: int, dtype: str
) -> None:
    shape = model_shape(name)
    assert (shape.blocks, shape.max_position, shape.dtype) == (MODELS[base].blocks, context, dtype)


@pytest.mark.parametrize(
    ("name", "base", "dtype"),
    [
        ("Qwen3-4B-SFT-x", "Qwen/Qwen3-4B", "bfloat16"),
        ("my-org/Qwen3-4B-sft-AWQ", "Qwen/Qwen3-4B", "int4"),
        ("agentica-org/DeepSWE-Qwen3-32B", "Qwen/Qwen3-32B", "bfloat16"),
        ("my-org/Qwen3-30B-A3B-Thinking-2507-rl", "Qwen/Qwen3-30B-A3B", "bfloat16"),
        ("llama-3.1-8b_rl_step_300", "meta-llama/Llama-3.1-8B", "bfloat16"),
    ],
)
def test_a_fine_tune_is_the_model_that_its_name_holds_and_says_so(name: str, base: str, dtype: str) -> None:
    """Fine-tuning changes no shape, so that the layers are those of the base."""
    shape = model_shape(name)
    assert (shape.blocks, shape.name, shape.dtype) == (MODELS[base].blocks, name, dtype)
    assert f"taken as {base}" in shape.notes[-1]


@pytest.mark.parametrize(
    "name",
    [
        "Qwen3-8B-EAGLE3",  # a drafter of one layer
        "Llama-3.1-8B-Minitron-4B",  # pruned: the other size counts
        "DeepSeek-R1-Distill-My-7B",  # 7B of a name that has 671B elsewhere
        "Qwen3-4B-AWQ-rl",  # bits that are not read there
        "OpenThinker",  # no known name, and no size
    ],
)
def test_a_name_that_may_be_another_model_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"its config\.json"):
        model_shape(name)


def test_mixtures_in_4_bits_keep_attention_in_16() -> None:
    """nvidia/DeepSeek-R1-0528-NVFP4 leaves out `model.layers.*.self_attn*`, which the maker's checkpoint has in fp8."""
    kimi, r1 = model_shape("moonshotai/Kimi-K2.5"), model_shape("nvidia/DeepSeek-R1-NVFP4")
    assert (kimi.parts.attention, kimi.parts.mlp, kimi.parts.expert) == ("bfloat16", "bfloat16", "int4g32")
    assert (r1.parts.attention, r1.parts.expert) == ("bfloat16", "nvfp4")


@pytest.mark.parametrize(("model", "dtype"), [("openai/gpt-oss-120b", "nvfp4"), ("moonshotai/Kimi-K2.5", "int4")])
def test_a_checkpoint_with_experts_in_4_bits_is_taken_as_it_is(model: str, dtype: str) -> None:
    shape = model_shape(model)
    assert shape.stored(dtype) == shape.parts
