"""Caches that are found again: what was published of routers by prefix, and of caches in the host's memory."""

from __future__ import annotations

import numpy as np
import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine import roofline, run_requests
from fleetsim.errors import InputError
from fleetsim.sim.engines import engine_of
from fleetsim.sim.run import simulate

# llm-d's benchmark of Qwen3-32B on eight vLLM engines of two H100 (llm-d/llm-d, pull request 2071, and the load in its
# guide): 150 groups of five prompts, 6,000 tokens that a group shares and 1,200 of the question, 1,000 tokens of
# output, up to 60 requests per second. Output tokens per second at best, by the router: Kubernetes' own, and by prefix.
SHARED, QUESTION, OUTPUT, GROUPS, RATE = 6000, 1200, 1000, 150, 60
PLAIN, BY_PREFIX = 6_986, 14_892


def output_tok_s(routing: str, shared: int, own: int) -> float:
    """Of a minute of such requests, at random times and of random groups."""
    step, limits = roofline("H100", "Qwen/Qwen3-32B", 2)
    draws = np.random.default_rng(0)
    n = 60 * RATE
    group, arrival_s = draws.integers(0, GROUPS, n), np.cumsum(draws.exponential(1 / RATE, n))
    got = run_requests(
        step, limits, np.full(n, shared), np.full(n, OUTPUT), arrival_s=arrival_s, group=group, prefix_caching=True,
        instances=8, routing=routing, own_tokens=own, imbalance_limit=64,
    )  # fmt: skip
    return float(n * OUTPUT / got.finish_s.max())


def test_requests_that_go_anywhere_find_little() -> None:
    """The cache of an engine holds a quarter of the prompts that come: whether questions come again does not matter."""
    assert output_tok_s("round_robin", SHARED, QUESTION) == pytest.approx(PLAIN, rel=0.07)
    assert output_tok_s("round_robin", SHARED + QUESTION, 0) == pytest.approx(PLAIN, rel=0.07)


def test_requests_that_go_where_their_prefix_is() -> None:
    """The load repeats its 750 prompts, and caches hold most of them: more than if no question was found, and about as
    much as if all were."""
    none_found = output_tok_s("prefix_affinity", SHARED, QUESTION)
    all_found = output_tok_s("prefix_affinity", SHARED + QUESTION, 0)
    assert none_found < BY_PREFIX
    assert all_found == pytest.approx(0.94 * BY_PREFIX, rel=0.03)
    assert none_found == pytest.approx(0.66 * BY_PREFIX, rel=0.03)


@pytest.mark.parametrize(
    ("routing", "published", "ratio"), [("prefix_affinity", 158_597, 0.87), ("round_robin", 82_665, 1.37)]
)
def test_sglang_s_first_router(routing: str, published: float, ratio: float) -> None:
    """lmsys.org, 2024-12-04 (sgl-project/sglang, pull requests 1990 and 2114): Llama-3.1-8B on eight A100, 64 groups of
    16 requests of 2,271 tokens, of which 2,048 of 2,176 are shared, 256 tokens of output, all sent at once; all tokens
    per second. Engines found 75 % of their prompts with the router, and 20 % without it, where half of them had a
    sibling on their engine before: nobody says why. docs/model.md gives these ratios."""
    step, limits = roofline("A100", "meta-llama/Llama-3.1-8B", engine="sglang")
    group = np.random.default_rng(0).permutation(np.repeat(np.arange(64), 16))
    got = run_requests(
        step, limits, np.full(1024, 2137), np.full(1024, 256), group=group, prefix_caching=True, instances=8,
        routing=routing, own_tokens=134, imbalance_limit=64,
    )  # fmt: skip
    assert 1024 * (2271 + 256) / got.finish_s.max() / published == pytest.approx(ratio, abs=0.03)


def test_own_tokens_are_computed_by_each_sibling() -> None:
    """Two siblings, 1,600 tokens shared and 160 of each one's own: the second computes its own and no more."""
    step, limits = roofline("H100", "Qwen/Qwen3-8B")
    both = {"group": [0, 0], "prefix_caching": True}
    got = run_requests(step, limits, [1600, 1600], [1, 1], own_tokens=160, arrival_s=[0.0, 10.0], **both)
    first, second = got.first_token_s - [0.0, 10.0]
    alone = run_requests(step, limits, [1760], [1]).first_token_s[0]
    assert first == pytest.approx(alone)
    assert second < 0.3 * first
    with pytest.raises(InputError, match="own_tokens"):
        run_requests(step, limits, [8], [1], own_tokens=-1)


def test_a_cache_moves_back_nine_times_as_fast_as_it_is_computed() -> None:
    """vLLM's offloading connector (blog.vllm.ai, "Inside vLLM's New Offloading Connector": Llama-3.1-8B, H100, 10,000
    prompts of 512 tokens, all of them in the host's memory, 50 GB/s one way): up to 9 times the throughput. fleetsim
    has no such connector; this is what it could save of each token that is computed again."""
    step, _ = roofline("H100", "meta-llama/Llama-3.1-8B")
    computed = 8192 / step.seconds(0, 8192, 0.0, 16 * 512 * 513 / 2)
    moved = 50e9 / (2 * 32 * 8 * 128 * 2)
    assert moved / computed == pytest.approx(9, rel=0.1)


@pytest.mark.parametrize(
    ("model", "tp", "mean", "instances", "share"),
    [
        ("Qwen/Qwen2.5-7B", 1, 4000, 4, 0.14),
        ("Qwen/Qwen2.5-32B", 2, 6000, 4, 0.11),
        ("Qwen/Qwen2.5-32B", 1, 3000, 8, 0.04),
    ],
)
def test_what_is_computed_again_after_preemption(model: str, tp: int, mean: int, instances: int, share: float) -> None:
    """The part of the engines' time that a cache in the host's memory could save eight ninths of, in jobs that start
    far more responses than the caches hold. A cap on samples in flight saves it, too."""
    scenario = with_changes(default_scenario(), {
        "engine.gpu": "H100", "engine.model": model, "engine.tp": tp, "workload.prompt_tokens": 500,
        "workload.output_tokens": {"kind": "lognormal", "mean": mean, "cv": 0.8, "max": 16_384},
        "trainer.batch_samples": 1024 if tp == 1 and instances == 4 else 512, "trainer.fixed_s": 60.0,
        "fleet.instances": instances, "run.steps": 3, "run.warmup_steps": 1,
    })  # fmt: skip
    steps = simulate(scenario).steps
    token_s = engine_of(scenario)[0].seconds(0, 8192) / 8192
    found = float(steps["recomputed_tokens"][-1]) * token_s / float(steps["busy_s"][-1])
    assert found == pytest.approx(share, abs=0.02)
