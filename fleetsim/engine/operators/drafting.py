"""What drafts cost beside the tokens that they add to the iteration: the drafter's passes, and their verification.

- MTP: each token is one pass of the model's MTP layer (attention and MLP as in its last layer), of the projection that
  joins embedding and hidden state, and of the LM head. vLLM runs the one layer k times (`v1/spec_decode/eagle.py`).
- EAGLE-3: one dense layer of the target's width whose attention reads embedding and hidden state side by side, an LM
  head of 32,000 entries, and once per iteration the projection of three hidden states. Source: SafeAILab/EAGLE,
  eagle/model/cnets.py.
- A draft model: k passes of its own, on the same GPUs.
- n-gram and suffix: the host alone looks the text up (`looked_up`).
- Verification: k more rows of logits for each sequence, attention of k + 1 queries that read the cache once, and a
  state written after each of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from fleetsim.engine.layout import Layout
from fleetsim.engine.model.gemm import Gemm
from fleetsim.engine.model.mixers import Attention
from fleetsim.engine.model.mlps import Dense
from fleetsim.engine.model.precision import PRECISIONS
from fleetsim.engine.model.shape import Block, ModelShape
from fleetsim.engine.model.states import StateMixer
from fleetsim.engine.operators.attention import core_of, gemms_s
from fleetsim.engine.operators.device import Tokens
from fleetsim.engine.operators.layers import Layers

# vLLM 0.32.0's n-gram search (`v1/spec_decode/ngram_proposer.py`), run alone on a core of an AMD EPYC for 1 to 1,024
# sequences of 1,000 to 16,000 tokens, processor seconds: it walks through the whole text, in one thread, and looks each
# sequence up in a list of all. Within 17 % of every point.
_NGRAM_ITERATION_S, _NGRAM_SEQUENCE_S, _NGRAM_PAIR_S, _NGRAM_TOKEN_S = 10e-6, 1.0e-6, 4.5e-9, 0.9e-9
# Per sequence and iteration, Arctic's suffix trees. Nobody measured it.
_SUFFIX_SEQUENCE_S = 20e-6
# Entries of the LM head that EAGLE-3 heads have.
EAGLE_VOCAB = 32_000
# A prompt's tokens pass the drafter in chunks like this one.
_CHUNK = 2048.0


class Drafting(Struct, frozen=True):
    """Seconds beside f(n) of the verified tokens.

    pass_s: of drafting one token for so many sequences. once_s: of each iteration that drafts, for so many sequences.
    kv_token_s: of one pass, for each cached token; once_kv_token_s: the same of an iteration. prompt_token_s: for each
    prompt token. weight_bytes: of the drafter on each GPU. kv_bytes: of its cache for each token.
    """

    pass_s: Callable[[Tokens], Tokens]
    once_s: Callable[[Tokens], Tokens]
    kv_token_s: float = 0.0
    prompt_token_s: float = 0.0
    weight_bytes: float = 0.0
    kv_bytes: float = 0.0
    once_kv_token_s: float = 0.0


def nothing(n: Tokens) -> Tokens:
    """No seconds."""
    return 0.0 * n


def looked_up(method: str) -> Drafting:
    """Drafts that the host finds in the text so far."""
    if method == "suffix":
        return Drafting(nothing, lambda n: _SUFFIX_SEQUENCE_S * n)

    def search_s(n: Tokens) -> Tokens:
        return _NGRAM_ITERATION_S + _NGRAM_SEQUENCE_S * n + _NGRAM_PAIR_S * n**2

    return Drafting(nothing, search_s, once_kv_token_s=_NGRAM_TOKEN_S)


def mtp(layers: Layers, element_bytes: float) -> Drafting:
    """Drafts of the model's own MTP layer."""
    shape = layers.shape
    attention = next((m for _, m in reversed(list(shape.attentions)) if not m.near), None)
    mixer = attention or next(m for _, m in shape.attentions)
    block = Block(1, mixer, next(b.mlp for b in reversed(shape.blocks) if b.mlp is not None))
    joined = Gemm(2 * shape.hidden, shape.hidden, "attention", "none")
    return _layer(layers, block, element_bytes, (joined,), (), shape.vocab, own_head=False)


def eagle3(layers: Layers, element_bytes: float) -> Drafting:
    """Drafts of an EAGLE-3 head."""
    shape = layers.shape
    hidden = shape.hidden
    like = next((m for _, m in shape.attentions if isinstance(m, Attention)), None)
    heads = max(1, hidden // 128)
    attention = like or Attention(heads, max(1, heads // 4), 128)
    width = next((b.mlp.width for b in shape.blocks if isinstance(b.mlp, Dense)), 4 * hidden)
    # Its queries, keys and values are of two hidden states side by side: once more as many inputs.
    second = tuple(g for g in attention.gemms(hidden) if g.split == "columns")
    fused = (Gemm(3 * hidden, hidden, "attention", "none"),)
    return _layer(layers, Block(1, attention, Dense(width)), element_bytes, second, fused, EAGLE_VOCAB, own_head=True)


def draft_model(target: Layers, shape: ModelShape, element_bytes: float) -> Drafting:
    """Drafts of a model of its own, which the target's engine runs without scheduling of its own."""
    host, tp = target.host, target.device.tp
    own = Layers(target.device, shape, "auto", Layout(tp), target.curves, target.host)
    core = own.cores(element_bytes)

    def pass_s(n: Tokens) -> Tokens:
        return own.tokens_s(n) - host.iteration_s + n * (core.sequence_s - host.sequence_s)

    prompt_s = (float(own.tokens_s(np.array([_CHUNK]))[0]) - host.iteration_s) / _CHUNK
    cached = shape.kv_bytes_per_token(tp, element_bytes)
    read_s = core.kv_token_s + core.window_token_s
    return Drafting(pass_s, nothing, read_s, prompt_s, shape.weight_bytes_per_gpu(tp), cached)


def _layer(
    layers: Layers,
    block: Block,
    element_bytes: float,
    each_pass: tuple[Gemm, ...],
    once: tuple[Gemm, ...],
    vocab: int,
    *,
    own_head: bool,
) -> Drafting:
    """A layer and a head that run once for each drafted token. own_head: the head is not the target's."""
    device, shape = layers.device, layers.shape
    mixer = block.mixer
    assert mixer is not None and not isinstance(mixer, StateMixer)  # noqa: PT018 - a drafter has attention
    parts = shape.stored(layers.dtype)
    attention, head = PRECISIONS[parts.attention], PRECISIONS[parts.head]
    core = core_of(device, mixer, element_bytes)

    def layer_s(n: Tokens) -> Tokens:
        return layers.layer_s(block, n) + gemms_s(device, n, each_pass, attention)

    def pass_s(n: Tokens) -> Tokens:
        return layer_s(n) + device.gemm_s(n, shape.hidden, vocab / device.tp, head) + core.sequence_s * n

    params = sum(g.params for g in block.gemms(shape.hidden)) + sum(g.params for g in (*each_pass, *once))
    stored = params * attention.weight_bytes + own_head * vocab * shape.hidden * head.weight_bytes
    return Drafting(
        pass_s,
        lambda n: gemms_s(device, n, once, attention),
        core.kv_token_s,
        float(layer_s(np.array([_CHUNK]))[0]) / _CHUNK,
        stored / device.tp,
        mixer.token_bytes(device.tp, element_bytes),
    )


def drafting(layers: Layers, method: str, element_bytes: float, model: ModelShape | None) -> Drafting:
    """What a method of a scenario costs on this engine. model: of method draft_model."""
    if method == "mtp":
        return mtp(layers, element_bytes)
    if method == "eagle3":
        return eagle3(layers, element_bytes)
    if method == "draft_model":
        assert model is not None  # a rule of the scenario
        return draft_model(layers, model, element_bytes)
    return looked_up(method)
