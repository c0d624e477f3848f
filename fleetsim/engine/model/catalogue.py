"""The most used open models by name. Source of every row: that repository's config.json on the Hugging Face hub.

First the dense ones, then mixtures of experts and models of unlike layers.
"""

from __future__ import annotations

from fleetsim.engine.model.indexer import Indexer
from fleetsim.engine.model.mixers import Attention, CompressedAttention, LatentAttention
from fleetsim.engine.model.mlps import Dense, Mixture
from fleetsim.engine.model.precision import WIDE, Parts, usual_parts
from fleetsim.engine.model.shape import Attending, Block, ModelShape, blocks_of
from fleetsim.engine.model.states import StateMixer, gated_delta, kimi_delta, lightning_attention, mamba2
from fleetsim.records import replace


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


def _mixture(name: str, layers: int, hidden: int, vocab: int, attention: Attention, mixture: Mixture, ctx: int,
             dense: tuple[int, int] = (0, 1), dtype: str = "bfloat16") -> ModelShape:  # fmt: skip
    """dense: how many layers keep a dense MLP, and its width."""
    count, width = dense
    blocks = Block(count, attention, Dense(width)), Block(layers - count, attention, mixture)
    parts = usual_parts(dtype, WIDE, experts=True, latent=False)
    return ModelShape(name, hidden, vocab, tuple(b for b in blocks if b.count), parts=parts, max_position=ctx)


def _deepseek(name: str, layers: int, hidden: int, inter: int, heads: int, vocab: int, mixture: Mixture,
              dense: int, q_lora: int, dtype: str, ctx: int, index: Indexer | None = None) -> ModelShape:  # fmt: skip
    mla = LatentAttention(heads, q_lora, 512, 128, 64, 128, index)
    blocks = Block(dense, mla, Dense(inter)), Block(layers - dense, mla, mixture)
    return ModelShape(name, hidden, vocab, blocks, parts=_latent(dtype), max_position=ctx)


def _latent(dtype: str) -> Parts:
    return usual_parts(dtype, WIDE, experts=True, latent=True)


def _qwen_hybrid(name: str, layers: int, hidden: int, vocab: int, heads: int, kv: int, value_heads: int,
                 mlp: Mixture | Dense, tied: bool = False) -> ModelShape:  # fmt: skip
    """Qwen3-Next and Qwen3.5: each fourth layer attends, the others have a state."""
    state = Block(layers * 3 // 4, gated_delta(16, value_heads, 128, 128, 4), mlp)
    full = Block(layers // 4, Attention(heads, kv, 256, qk_norm=True, gate=True), mlp)
    return ModelShape(name, hidden, vocab, (state, full), tied, max_position=262144)


def _windowed(name: str, hidden: int, vocab: int, full: tuple[int, Attention], near: tuple[int, Attention],
              mlp: Mixture | Dense, ctx: int, tied: bool = False, parts: Parts = WIDE) -> ModelShape:  # fmt: skip
    """full, near: how many layers see everything or look back, and their attention."""
    blocks = tuple(Block(count, attention, mlp) for count, attention in (near, full))
    return ModelShape(name, hidden, vocab, blocks, tied, parts, max_position=ctx)


def _gpt_oss(name: str, layers: int, experts: int) -> ModelShape:
    full, near = (Attention(64, 8, 64, window=w, bias=True) for w in (0, 128))
    mixture = Mixture(experts, 4, 2880, bias=True)
    parts = usual_parts("mxfp4", WIDE, experts=True, latent=False)
    return _windowed(name, 2880, 201088, (layers // 2, full), (layers // 2, near), mixture, 131072, parts=parts)


def _llama4(name: str, experts: int, ctx: int, dense: int = 0) -> ModelShape:
    """dense: layers without experts; they are among the 36 of 48 that look back a chunk."""
    full = Attention(40, 8, 128, qk_norm=not dense)
    near = replace(full, window=8192, chunked=True)
    mixture = Mixture(experts, 1, 8192, 8192)
    blocks = Block(36 - dense, near, mixture), Block(dense, near, Dense(16384)), Block(12, full, mixture)
    return ModelShape(name, 5120, 202048, tuple(b for b in blocks if b.count), max_position=ctx)


def _deepseek_v4(name: str, hidden: int, heads: int, q_rank: int, groups: int, mixture: Mixture, top_k: int,
                 layers: tuple[int, int, int]) -> ModelShape:  # fmt: skip
    """layers: how many see the window only, compress four tokens, compress 128."""
    base = CompressedAttention(heads, 512, q_rank, 1024, groups, 128)
    picked = replace(base, ratio=4, indexer=Indexer(64, 128, top_k, q_rank))
    mixers: tuple[Attending, ...] = (base, picked, replace(base, ratio=128))
    blocks = tuple(Block(count, mixer, mixture) for count, mixer in zip(layers, mixers, strict=True) if count)
    return ModelShape(name, hidden, 129280, blocks, parts=Parts("fp8", "fp8", "mxfp4"), max_position=1048576)


def _glm5(name: str, indexed: int, ctx: int) -> ModelShape:
    """indexed: layers with an indexer of their own; the others take what an earlier one picked."""
    own = Indexer(32, 128, 2048, 2048)
    mixers = [LatentAttention(64, 2048, 512, 192, 64, 256, replace(own, shared=shared)) for shared in (False, True)]
    mixture = Mixture(256, 8, 2048, 2048)
    rest = Block(78 - indexed, mixers[1], mixture)
    blocks = Block(3, mixers[0], Dense(12288)), Block(indexed - 3, mixers[0], mixture), rest
    return ModelShape(name, 6144, 154880, tuple(b for b in blocks if b.count), max_position=ctx)


def _nemotron(name: str, hidden: int, mamba: tuple[int, StateMixer], attention: tuple[int, Attention],
              mlp: tuple[int, Mixture | Dense], ctx: int) -> ModelShape:  # fmt: skip
    """Nemotron-H: how many layers of each kind; each is a mixer or an MLP alone."""
    blocks = Block(mamba[0], mamba[1], None), Block(attention[0], attention[1], None), Block(mlp[0], None, mlp[1])
    return ModelShape(name, hidden, 131072, blocks, max_position=ctx)


def _relu2(experts: int, per_token: int, width: int, latent: int = 0) -> Mixture:
    return Mixture(experts, per_token, width, 2 * width, gated=False, latent=latent)


_QWEN3 = Attention(32, 4, 128, qk_norm=True)
_V3 = Mixture(256, 8, 2048, 2048)
_KIMI = Mixture(384, 8, 2048, 2048)
_KIMI_3 = Mixture(896, 16, 3072, 6144, latent=3584)
_KIMI_LINEAR = Mixture(256, 8, 1024, 1024)
_GLM = Attention(96, 8, 128, bias=True)
_FLASH = LatentAttention(20, 768, 512, 192, 64, 256)
_M1 = Mixture(32, 2, 9216)

MIXTURES = (
    _mixture("Qwen/Qwen3-30B-A3B", 48, 2048, 151936, _QWEN3, Mixture(128, 8, 768), 40960),
    _mixture(
        "Qwen/Qwen3-235B-A22B", 94, 4096, 151936, Attention(64, 4, 128, qk_norm=True), Mixture(128, 8, 1536), 40960
    ),
    _mixture(
        "Qwen/Qwen3-Coder-480B-A35B-Instruct", 62, 6144, 151936, Attention(96, 8, 128, qk_norm=True),
        Mixture(160, 8, 2560), 262144,
    ),
    _mixture("mistralai/Mixtral-8x7B-v0.1", 32, 4096, 32000, Attention(32, 8, 128), Mixture(8, 2, 14336), 32768),
    _mixture("mistralai/Mixtral-8x22B-v0.1", 56, 6144, 32000, Attention(48, 8, 128), Mixture(8, 2, 16384), 65536),
    _mixture("allenai/OLMoE-1B-7B-0924", 16, 2048, 50304, Attention(16, 16, 128), Mixture(64, 8, 1024), 4096),
    _mixture(
        "baidu/ERNIE-4.5-300B-A47B-PT", 54, 8192, 103424, Attention(64, 8, 128), Mixture(64, 8, 3584), 131072,
        (3, 28672),
    ),
    _mixture("zai-org/GLM-4.5", 92, 5120, 151552, replace(_GLM, qk_norm=True), Mixture(160, 8, 1536, 1536), 131072,
             (3, 12288)),
    _mixture("zai-org/GLM-4.5-Air", 46, 4096, 151552, _GLM, Mixture(128, 8, 1408, 1408), 131072, (1, 10944)),
    _mixture(
        "MiniMaxAI/MiniMax-M2", 62, 3072, 200064, Attention(48, 8, 128, qk_norm=True), Mixture(256, 8, 1536), 196608,
        dtype="fp8",
    ),
    replace(
        _mixture(
            "tencent/Hunyuan-A13B-Instruct", 32, 4096, 128167, Attention(32, 8, 128, qk_norm=True),
            Mixture(64, 8, 3072, 3072), 32768,
        ),
        tied_embeddings=True,
    ),
    _qwen_hybrid("Qwen/Qwen3-Next-80B-A3B-Instruct", 48, 2048, 151936, 16, 2, 32,
                 Mixture(512, 10, 512, 512, shared_gate=True)),
    _qwen_hybrid("Qwen/Qwen3.5-35B-A3B", 40, 2048, 248320, 16, 2, 32, Mixture(256, 8, 512, 512, shared_gate=True)),
    _qwen_hybrid("Qwen/Qwen3.5-122B-A10B", 48, 3072, 248320, 32, 2, 64, Mixture(256, 8, 1024, 1024, shared_gate=True)),
    _qwen_hybrid("Qwen/Qwen3.5-397B-A17B", 60, 4096, 248320, 32, 2, 64,
                 Mixture(512, 10, 1024, 1024, shared_gate=True)),
    # Sizes of the three small ones: slime's scripts/models, and for the heads of their states the operator tables of
    # ai-dynamo/aiconfigurator (linear_attention, gdn_perf).
    _qwen_hybrid("Qwen/Qwen3.5-0.8B", 24, 1024, 248320, 8, 2, 16, Dense(3584), tied=True),
    _qwen_hybrid("Qwen/Qwen3.5-2B", 24, 2048, 248320, 8, 2, 16, Dense(6144), tied=True),
    _qwen_hybrid("Qwen/Qwen3.5-4B", 32, 2560, 248320, 16, 4, 32, Dense(9216), tied=True),
    _qwen_hybrid("Qwen/Qwen3.5-9B", 32, 4096, 248320, 16, 4, 32, Dense(12288)),
    _qwen_hybrid("Qwen/Qwen3.5-27B", 64, 5120, 248320, 24, 4, 48, Dense(17408)),
    _deepseek("deepseek-ai/DeepSeek-V2", 60, 5120, 12288, 128, 102400, Mixture(160, 6, 1536, 3072), 1, 1536,
              "bfloat16", 163840),
    _deepseek("deepseek-ai/DeepSeek-V2-Lite", 27, 2048, 10944, 16, 102400, Mixture(64, 6, 1408, 2816), 1, 0,
              "bfloat16", 163840),
    _deepseek("deepseek-ai/DeepSeek-V3", 61, 7168, 18432, 128, 129280, _V3, 3, 1536, "fp8", 163840),
    _deepseek("deepseek-ai/DeepSeek-V3.2", 61, 7168, 18432, 128, 129280, _V3, 3, 1536, "fp8", 163840,
              Indexer(64, 128, 2048, 1536)),
    _deepseek("moonshotai/Kimi-K2-Base", 61, 7168, 18432, 64, 163840, _KIMI, 1, 1536, "fp8", 131072),
    replace(
        _deepseek("moonshotai/Kimi-K2.5", 61, 7168, 18432, 64, 163840, _KIMI, 1, 1536, "bfloat16", 262144),
        parts=_latent("int4g32"),
    ),
    _deepseek("moonshotai/Moonlight-16B-A3B", 27, 2048, 11264, 16, 163840, Mixture(64, 6, 1408, 2816), 1, 0,
              "bfloat16", 8192),
    _deepseek_v4("deepseek-ai/DeepSeek-V4-Flash", 4096, 64, 1024, 8, Mixture(256, 6, 2048, 2048), 512, (2, 21, 20)),
    _deepseek_v4("deepseek-ai/DeepSeek-V4-Pro", 7168, 128, 1536, 16, Mixture(384, 6, 3072, 3072), 1024, (0, 30, 31)),
    _glm5("zai-org/GLM-5", 78, 202752),
    _glm5("zai-org/GLM-5.2", 21, 1048576),
    ModelShape(
        "zai-org/GLM-4.7-Flash", 2048, 154880,
        (Block(1, _FLASH, Dense(10240)), Block(46, _FLASH, Mixture(64, 4, 1536, 1536))),
        parts=_latent("bfloat16"), max_position=202752,
    ),
    _gpt_oss("openai/gpt-oss-20b", 24, 32),
    _gpt_oss("openai/gpt-oss-120b", 36, 128),
    _llama4("meta-llama/Llama-4-Scout-17B-16E-Instruct", 16, 10485760),
    _llama4("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 128, 1048576, dense=24),
    _windowed("google/gemma-4-26B-A4B", 2816, 262144,
              (5, Attention(16, 2, 512, qk_norm=True, k_is_v=True)), (25, Attention(16, 8, 256, 0, 1024, qk_norm=True)),
              Mixture(128, 8, 704, 2112), 262144, tied=True),
    _windowed("google/gemma-4-31B", 5376, 262144,
              (10, Attention(32, 4, 512, qk_norm=True, k_is_v=True)),
              (50, Attention(32, 16, 256, 0, 1024, qk_norm=True)), Dense(21504), 262144, tied=True),
    ModelShape(
        "XiaomiMiMo/MiMo-V2-Flash", 4096, 152576,
        (
            Block(1, Attention(64, 4, 192, 128), Dense(16384)),
            Block(8, Attention(64, 4, 192, 128), Mixture(256, 8, 2048)),
            Block(39, Attention(64, 8, 192, 128, 128), Mixture(256, 8, 2048)),
        ),
        parts=usual_parts("fp8", WIDE, experts=True, latent=False), max_position=262144,
    ),
    ModelShape(
        "MiniMaxAI/MiniMax-M1-80k", 6144, 200064,
        (
            Block(70, lightning_attention(64, 128), _M1),
            Block(10, Attention(64, 8, 128, qk_norm=True), _M1),
        ),
        max_position=10240000,
    ),
    ModelShape(
        "MiniMaxAI/MiniMax-M3", 6144, 200064,
        (
            Block(3, Attention(64, 4, 128, qk_norm=True), Dense(12288)),
            Block(57, Attention(64, 4, 128, qk_norm=True, indexer=Indexer(4, 128, 2048, element_bytes=2)),
                  Mixture(128, 4, 3072, 3072)),
        ),
        max_position=1048576,
    ),
    ModelShape(
        "moonshotai/Kimi-Linear-48B-A3B-Instruct", 2304, 163840,
        (
            Block(1, kimi_delta(32, 128, 4), Dense(9216)),
            Block(19, kimi_delta(32, 128, 4), _KIMI_LINEAR),
            Block(7, LatentAttention(32, 0, 512, 128, 64, 128), _KIMI_LINEAR),
        ),
        max_position=1048576,
    ),
    ModelShape(
        "moonshotai/Kimi-K3", 7168, 163840,
        (
            Block(1, kimi_delta(96, 128, 4, True), Dense(33792)),
            Block(68, kimi_delta(96, 128, 4, True), _KIMI_3),
            Block(24, LatentAttention(96, 1536, 512, 128, 64, 128, gate=True), _KIMI_3),
        ),
        parts=_latent("mxfp4"), max_position=1048576,
    ),
    ModelShape(
        "stepfun-ai/Step-3.7-Flash", 4096, 128896,
        (
            Block(1, Attention(64, 8, 128), Dense(11264)),
            Block(2, Attention(64, 8, 128, window=512), Dense(11264)),
            Block(11, Attention(64, 8, 128), Mixture(288, 8, 1280, 1280)),
            Block(31, Attention(64, 8, 128, window=512), Mixture(288, 8, 1280, 1280)),
        ),
        max_position=65536,
    ),
    _nemotron("nvidia/NVIDIA-Nemotron-Nano-9B-v2", 4480, (27, mamba2(128, 80, 128, 8, 4)), (4, Attention(40, 8, 128)),
              (25, Dense(15680, gated=False)), 131072),
    _nemotron("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B", 2688, (23, mamba2(64, 64, 128, 8, 4, 4)),
              (6, Attention(32, 2, 128)), (23, _relu2(128, 6, 1856)), 262144),
    _nemotron("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B", 4096, (40, mamba2(128, 64, 128, 8, 4, 4)),
              (8, Attention(32, 2, 128)), (40, _relu2(512, 22, 2688, 1024)), 262144),
    _nemotron("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B", 8192, (48, mamba2(256, 64, 128, 8, 4, 4)),
              (12, Attention(64, 2, 128)), (48, _relu2(512, 22, 5120, 2048)), 262144),
)  # fmt: skip
