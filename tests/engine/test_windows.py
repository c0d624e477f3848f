"""Layers that look back a number of tokens only: what models with them take, by hand and by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.engine import EngineLimits, StepTime, roofline, run_requests
from fleetsim.engine.kv_memory import block_bytes_per_token, windows_kept
from fleetsim.engine.layout import Layout
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.window import AttentionWindow
from fleetsim.errors import InputError
from fleetsim.records import replace
from tests.engine.test_roofline import IDEAL


@pytest.mark.parametrize(
    ("model", "window", "full", "near", "heads", "kv_heads", "chunked"),
    # Layers and heads of the published config.json: `layer_types` of Olmo-3, every fourth layer of Llama 4
    # (`no_rope_layers`) and every second one of Gemma 2 sees everything.
    [
        ("allenai/Olmo-3-32B", 4096, 16, 48, 40, 8, False),
        ("allenai/Olmo-3-7B", 4096, 8, 24, 32, 32, False),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 8192, 12, 36, 40, 8, True),
    ],
)
def test_each_layer_reads_what_it_sees(
    model: str, window: int, full: int, near: int, heads: int, kv_heads: int, chunked: bool
) -> None:
    """Bytes of keys and values of 128 numbers in 16 bits over 3.35 TB/s, operations of a pair over 989 TFLOP/s."""
    step_time, _ = roofline("H100", model, tp=8, curves=IDEAL)
    read_s, pair_s = 2 * 2 * 128 * kv_heads / 8 / 3.35e12, 4 * 128 * heads / 8 / 989.4e12
    assert step_time.window is not None
    assert (step_time.window.tokens, step_time.window.chunked) == (window, chunked)
    assert step_time.per_kv_token_s == pytest.approx(full * read_s)
    assert step_time.window.per_kv_token_s == pytest.approx(near * read_s)
    assert step_time.per_attn_pair_s == pytest.approx(full * pair_s, rel=0.01)
    assert step_time.window.per_attn_pair_s == pytest.approx(near * pair_s, rel=0.01)


def test_of_two_long_windows_that_of_most_layers_counts() -> None:
    """Gemma 2 has one; the others of a model with several see everything, as does a window of 2,048 tokens nothing."""
    assert model_shape("google/gemma-2-9b").window == 4096
    assert model_shape("google/gemma-3-27b-pt").window == 0
    assert model_shape("Qwen/Qwen3-32B").window == 0


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("prompt", [1, 60, 64, 65, 300])
def test_a_response_takes_what_each_of_its_tokens_sees(prompt: int, chunked: bool) -> None:
    """One request alone, in chunks of 50 tokens: added up token by token."""
    window, output = 64, 500
    near = AttentionWindow(window, 1e-5, 1e-6, chunked)
    step_time = StepTime((0.0,), (0.01,), per_kv_token_s=1e-6, per_attn_pair_s=1e-7, window=near)
    got = run_requests(step_time, EngineLimits(4, 50, 1000), [prompt], [output])
    at = np.arange(prompt)
    looks_at = at % window + 1 if chunked else np.minimum(at + 1, window)
    first_s = 0.01 * -(-prompt // 50) + 1e-7 * (at + 1).sum() + 1e-6 * looks_at.sum()
    context = prompt + np.arange(output - 1)
    sees = context % window if chunked else np.minimum(context, window)
    assert got.first_token_s[0] == pytest.approx(first_s, rel=1e-9)
    assert got.finish_s[0] == pytest.approx(first_s + (0.01 + 1e-6 * context + 1e-5 * sees).sum(), rel=1e-9)


def test_a_window_that_nobody_leaves_is_none() -> None:
    """Responses within it take the same time as in a model whose layers all see everything, to rounding."""
    near = AttentionWindow(700, 3e-6, 2e-9)
    step_time = StepTime((0.0, 500.0), (0.01, 0.03), 1e-5, 1e-6, 1e-6, 1e-9, window=near)
    prompt, output = np.arange(100, 300), np.arange(1, 401, 2)
    times = [run_requests(t, EngineLimits(64, 512, 500), prompt, output) for t in (step_time, step_time.seeing_all)]
    np.testing.assert_allclose(times[0].finish_s, times[1].finish_s, rtol=1e-9)


@given(st.integers(1, 5000), st.integers(1, 3000), st.booleans())
def test_the_mean_token_of_a_prompt_is_that_of_all_of_them(length: int, window: int, chunked: bool) -> None:
    at = np.arange(length)
    looks_at = at % window + 1 if chunked else np.minimum(at + 1, window)
    found = AttentionWindow(window, 0.0, 1.0, chunked).prompt_token_s(length / 2.0)
    # A chunk that is cut off is taken for a whole one, and a token's look at itself for half a look.
    assert found == pytest.approx(looks_at.mean(), rel=0.5 if chunked and length > window else 0.0, abs=0.51)


@given(st.integers(1, 300), st.integers(0, 600), st.floats(1.0, 9000.0), st.integers(1, 5000), st.booleans())
def test_one_iteration_and_many_are_told_alike(
    decodes: int, prompts: int, context: float, window: int, chunked: bool
) -> None:
    near = AttentionWindow(window, 3e-7, 2e-9, chunked)
    step_time = StepTime((1.0, 500.0), (0.01, 0.03), 1e-5, 1e-6, 1e-7, 1e-9, window=near)
    held = (float(decodes), float(prompts), decodes * context, prompts * context / 2.0)
    many = step_time.each_s(*(np.array([x, x]) for x in held))
    assert many.tolist() == [step_time.seconds(*held)] * 2
    alone = step_time.mixed_s(np.array([float(decodes)]), context, 0.0, 0.0)[0]
    assert alone == pytest.approx(step_time.seconds(decodes, kv_tokens=decodes * context))


def test_a_longer_context_costs_three_quarters_less_beyond_the_window() -> None:
    """Olmo-3-32B: 48 of 64 layers look back 4,096 tokens, so that what a token more costs falls to a quarter."""
    step_time, _ = roofline("H100", "allenai/Olmo-3-32B", tp=4)
    before, within, beyond, after = (step_time.seconds(8, kv_tokens=8.0 * n) for n in (1000, 2000, 9000, 10000))
    assert (after - beyond) / (within - before) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("model", "layers", "window_blocks"),
    # vLLM's groups: as many layers each as the rarer kind has; Gemma 2 9b has 21 of each.
    [("allenai/Olmo-3-32B", 16, 3), ("allenai/Olmo-3-7B", 8, 3), ("google/gemma-2-9b", 21, 1)],
)
def test_vllm_keeps_a_window_in_blocks_of_its_own(model: str, layers: int, window_blocks: int) -> None:
    shape = model_shape(model)
    each = {m.token_bytes() for _, m in shape.attentions}
    _, kept = roofline("H100", model, tp=1, dtype="fp8")
    _, all_kept = roofline("H100", model, tp=1, dtype="fp8", engine="tensorrt-llm")
    assert (kept.whole_blocks, kept.window_blocks, kept.window_tokens) == (1, window_blocks, 4096)
    assert block_bytes_per_token(shape, Layout(), "vllm") == layers * each.pop()
    assert all_kept.window_blocks == 0
    # Up to the window a token takes what it takes anyway, beyond it a block for 16 tokens.
    near, far = kept.blocks_for(4096), kept.blocks_for(4096 + 16)
    assert (near, far) == ((1 + window_blocks) * 256, (1 + window_blocks) * 256 + 1)
    assert kept.keeping_all.kv_tokens * (1 + window_blocks) == pytest.approx(kept.kv_tokens, rel=1e-3)


def test_what_keeps_all_tokens_says_so() -> None:
    """SGLang and TensorRT-LLM have pools of fixed size, and chunks are counted as kept."""
    assert windows_kept(model_shape("allenai/Olmo-3-7B"), "sglang") is None
    assert windows_kept(model_shape("meta-llama/Llama-4-Scout-17B-16E-Instruct"), "vllm") is None
    assert windows_kept(model_shape("Qwen/Qwen3-8B"), "vllm") is None


def test_a_response_beyond_the_window_takes_no_more_of_its_layers() -> None:
    """Ten requests of 1,000 cached tokens, blocks of 10, a window of 100: 100 blocks each and three times 10."""
    step_time = StepTime((0.0,), (0.01,), window=AttentionWindow(100, 1e-6, 1e-8))
    kept = EngineLimits(10, 512, 10 * (100 + 3 * 10), 10, window_tokens=100, window_blocks=3)
    for limits, preempted in ((kept, False), (replace(kept, kv_blocks=kept.kv_blocks - 10), True)):
        got = run_requests(step_time, limits, [20] * 10, [981] * 10)
        assert (got.preemptions.sum() > 0) == preempted


def test_limits_of_windows_that_no_engine_has_are_refused() -> None:
    for wrong in ({"window_blocks": 3}, {"whole_blocks": 0}, {"window_tokens": 8, "window_blocks": -1}):
        with pytest.raises(InputError):
            EngineLimits(4, 64, 40, **wrong)
    with pytest.raises(InputError, match="vLLM only"):
        EngineLimits(4, 64, 40, window_tokens=8, window_blocks=1, scheduler="sglang")
    limits = EngineLimits(4, 64, 40, window_tokens=8, window_blocks=1)
    for near in (None, AttentionWindow(9, 0.0, 0.0), AttentionWindow(8, 0.0, 0.0, chunked=True)):
        with pytest.raises(InputError, match=r"limits\.window_tokens"):
            run_requests(StepTime((0.0,), (1.0,), window=near), limits, [5], [5])
