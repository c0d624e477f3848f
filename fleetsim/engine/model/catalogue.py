"""The most used open models by name. Source of every row: that repository's config.json on the Hugging Face hub.

Mixtures of experts, models of unlike layers and their contexts are in `catalogue_mixtures`.
"""

from __future__ import annotations

from fleetsim.engine.model.mixers import Attention
from fleetsim.engine.model.mlps import Dense
from fleetsim.engine.model.precision import WIDE, usual_parts
from fleetsim.engine.model.shape import Block, ModelShape, blocks_of


def _dense(name: str, layers: int, hidden: int, width: int, vocab: int, attention: Attention, tied: bool, ctx: int,
           dtype: str = "bfloat16") -> ModelShape:  # fmt: skip
    parts = usual_parts(dtype, WIDE, experts=False, latent=False)
    return ModelShape(name, hidden, vocab, (Block(layers, attention, Dense(width)),), tied, parts, max_position=ctx)


def _qwen25(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, vocab: int, tied: bool) -> ModelShape:
    attention = Attention(heads, kv, 128 if hidden != 896 else 64, bias=True)
    return _dense(name, layers, hidden, inter, vocab, attention, tied, 32768)


def _qwen3(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, tied: bool) -> ModelShape:
    return _dense(name, layers, hidden, inter, 151936, Attention(heads, kv, 128, qk_norm=True), tied, 40960)


def _llama(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, vocab: int, ctx: int,
           dtype: str = "bfloat16", head_dim: int = 128, tied: bool = False) -> ModelShape:  # fmt: skip
    return _dense(name, layers, hidden, inter, vocab, Attention(heads, kv, head_dim), tied, ctx, dtype)


def _olmo(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, vocab: int, ctx: int, window: int = 0
          ) -> ModelShape:  # fmt: skip
    """Three of four layers look back `window` tokens."""
    full, near = (Attention(heads, kv, 128, window=w, qk_norm=True) for w in (0, window))
    layered = [(full if (i + 1) % 4 == 0 else near, Dense(inter)) for i in range(layers)]
    return ModelShape(name, hidden, vocab, blocks_of(layered), max_position=ctx)


def _gemma(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, head_dim: int, vocab: int,
           window: int, every: int, ctx: int) -> ModelShape:  # fmt: skip
    """Each `every`-th layer sees everything, the others `window` tokens."""
    full, near = (Attention(heads, kv, head_dim, window=w, qk_norm=every == 6) for w in (0, window))
    layered = [(full if (i + 1) % every == 0 else near, Dense(inter)) for i in range(layers)]
    return ModelShape(name, hidden, vocab, blocks_of(layered), True, max_position=ctx)


DENSE = (
    _qwen25("Qwen/Qwen2.5-0.5B", 24, 896, 4864, 14, 2, 151936, True),
    _qwen25("Qwen/Qwen2.5-1.5B", 28, 1536, 8960, 12, 2, 151936, True),
    _qwen25("Qwen/Qwen2.5-3B", 36, 2048, 11008, 16, 2, 151936, True),
    _qwen25("Qwen/Qwen2.5-7B", 28, 3584, 18944, 28, 4, 152064, False),
    _qwen25("Qwen/Qwen2.5-14B", 48, 5120, 13824, 40, 8, 152064, False),
    _qwen25("Qwen/Qwen2.5-32B", 64, 5120, 27648, 40, 8, 152064, False),
    _qwen25("Qwen/Qwen2.5-72B", 80, 8192, 29568, 64, 8, 152064, False),
    _qwen3("Qwen/Qwen3-0.6B", 28, 1024, 3072, 16, 8, True),
    _qwen3("Qwen/Qwen3-1.7B", 28, 2048, 6144, 16, 8, True),
    _qwen3("Qwen/Qwen3-4B", 36, 2560, 9728, 32, 8, True),
    _qwen3("Qwen/Qwen3-8B", 36, 4096, 12288, 32, 8, False),
    _qwen3("Qwen/Qwen3-14B", 40, 5120, 17408, 40, 8, False),
    _qwen3("Qwen/Qwen3-32B", 64, 5120, 25600, 64, 8, False),
    _dense("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 28, 1536, 8960, 151936, Attention(12, 2, 128, bias=True),
           False, 131072),
    _dense("XiaomiMiMo/MiMo-7B-Base", 36, 4096, 11008, 151680, Attention(32, 8, 128, bias=True), False, 32768),
    _dense("zai-org/GLM-4-9B-0414", 40, 4096, 13696, 151552, Attention(32, 2, 128, bias=True), False, 32768),
    _dense("ByteDance-Seed/Seed-OSS-36B-Base", 64, 5120, 27648, 155136, Attention(80, 8, 128, bias=True), False,
           524288),
    _llama("meta-llama/Llama-2-7b-hf", 32, 4096, 11008, 32, 32, 32000, 4096, "float16"),
    _llama("meta-llama/Llama-2-13b-hf", 40, 5120, 13824, 40, 40, 32000, 4096, "float16"),
    _llama("meta-llama/Llama-2-70b-hf", 80, 8192, 28672, 64, 8, 32000, 4096, "float16"),
    _llama("meta-llama/Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128256, 131072),
    _llama("meta-llama/Llama-3.1-70B", 80, 8192, 28672, 64, 8, 128256, 131072),
    _llama("meta-llama/Llama-3.1-405B", 126, 16384, 53248, 128, 8, 128256, 131072),
    _llama("meta-llama/Llama-3.2-1B", 16, 2048, 8192, 32, 8, 128256, 131072, head_dim=64, tied=True),
    _llama("meta-llama/Llama-3.2-3B", 28, 3072, 8192, 24, 8, 128256, 131072, tied=True),
    _llama("codellama/CodeLlama-34b-hf", 48, 8192, 22016, 64, 8, 32000, 16384),
    _llama("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 22, 2048, 5632, 32, 4, 32000, 2048, head_dim=64),
    _llama("deepseek-ai/deepseek-llm-7b-base", 30, 4096, 11008, 32, 32, 102400, 4096),
    _llama("deepseek-ai/deepseek-coder-6.7b-base", 32, 4096, 11008, 32, 32, 32256, 16384),
    _llama("mistralai/Mistral-7B-v0.3", 32, 4096, 14336, 32, 8, 32768, 32768),
    _llama("mistralai/Mistral-Nemo-Base-2407", 40, 5120, 14336, 32, 8, 131072, 131072),
    _llama("mistralai/Mistral-Small-24B-Base-2501", 40, 5120, 32768, 32, 8, 131072, 32768),
    _llama("mistralai/Mistral-Large-Instruct-2411", 88, 12288, 28672, 96, 8, 32768, 131072),
    _llama("mistralai/Ministral-8B-Instruct-2410", 36, 4096, 12288, 32, 8, 131072, 32768),
    _llama("microsoft/phi-4", 40, 5120, 17920, 40, 10, 100352, 16384),
    _llama("microsoft/Phi-4-mini-instruct", 32, 3072, 8192, 24, 8, 200064, 131072, tied=True),
    _llama("microsoft/Phi-3-mini-4k-instruct", 32, 3072, 8192, 32, 32, 32064, 4096, head_dim=96),
    _llama("HuggingFaceTB/SmolLM2-135M", 30, 576, 1536, 9, 3, 49152, 8192, head_dim=64, tied=True),
    _llama("HuggingFaceTB/SmolLM2-360M", 32, 960, 2560, 15, 5, 49152, 8192, head_dim=64, tied=True),
    _llama("HuggingFaceTB/SmolLM2-1.7B", 24, 2048, 8192, 32, 32, 49152, 8192, head_dim=64, tied=True),
    _llama("HuggingFaceTB/SmolLM3-3B", 36, 2048, 11008, 16, 4, 128256, 65536, tied=True),
    _olmo("allenai/OLMo-2-0425-1B", 16, 2048, 8192, 16, 16, 100352, 4096),
    _olmo("allenai/OLMo-2-1124-7B", 32, 4096, 11008, 32, 32, 100352, 4096),
    _olmo("allenai/OLMo-2-1124-13B", 40, 5120, 13824, 40, 40, 100352, 4096),
    _olmo("allenai/OLMo-2-0325-32B", 64, 5120, 27648, 40, 8, 100352, 4096),
    _olmo("allenai/Olmo-3-7B", 32, 4096, 11008, 32, 32, 100278, 65536, window=4096),
    _olmo("allenai/Olmo-3-32B", 64, 5120, 27648, 40, 8, 100278, 65536, window=4096),
    _gemma("google/gemma-2-2b", 26, 2304, 9216, 8, 4, 256, 256000, 4096, 2, 8192),
    _gemma("google/gemma-2-9b", 42, 3584, 14336, 16, 8, 256, 256000, 4096, 2, 8192),
    _gemma("google/gemma-2-27b", 46, 4608, 36864, 32, 16, 128, 256000, 4096, 2, 8192),
    _gemma("google/gemma-3-1b-pt", 26, 1152, 6912, 4, 1, 256, 262144, 512, 6, 32768),
    _gemma("google/gemma-3-4b-pt", 34, 2560, 10240, 8, 4, 256, 262208, 1024, 6, 131072),
    _gemma("google/gemma-3-12b-pt", 48, 3840, 15360, 16, 8, 256, 262208, 1024, 6, 131072),
    _gemma("google/gemma-3-27b-pt", 62, 5376, 21504, 32, 16, 128, 262208, 1024, 6, 131072),
)  # fmt: skip
