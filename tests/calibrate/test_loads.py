"""What an engine is asked to run: it fits, it covers what a profile needs, and it is the same every time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.calibrate.loads import Limits, Load, Request, computed, key_of, lognormal, peak_blocks, scaled, warm_ups
from fleetsim.calibrate.order import batches, decodes, loads_in_order, mixtures, prompts
from fleetsim.records import replace

H200 = Limits(max_num_seqs=1024, max_num_batched_tokens=16384, max_model_len=32768, kv_blocks=120_000, block_size=16)
SMALL = Limits(max_num_seqs=32, max_num_batched_tokens=2048, max_model_len=2048, kv_blocks=4096, block_size=32)


def blocks_of(load: Load, limits: Limits) -> int:
    """Blocks that a sweep's load holds at most: its decodes, and one prompt while the next may have been admitted."""
    running = [r for r in load.requests if r.at == 0] + [r for r in load.requests if r.at][:2]
    return sum(math.ceil((r.prompt_tokens + r.output_tokens) / limits.block_size) for r in running)


@settings(max_examples=30)
@given(
    st.builds(
        Limits,
        max_num_seqs=st.integers(1, 2048),
        max_num_batched_tokens=st.integers(16, 32768),
        max_model_len=st.integers(16, 65536),
        kv_blocks=st.integers(8, 200_000),
        block_size=st.sampled_from([16, 32, 128, 400]),
    ),
    st.booleans(),
)
def test_every_load_fits_every_engine(limits: Limits, quick: bool) -> None:
    for load in loads_in_order(limits, quick=quick):
        assert load.requests
        for r in load.requests:
            assert r.prompt_tokens >= 1
            assert r.output_tokens >= 1
            assert r.prompt_tokens + r.output_tokens <= limits.max_model_len
            assert r.cached_tokens < r.prompt_tokens
            assert r.cached_tokens % limits.block_size == 0
        if load.phase == "decode":
            assert len(load.requests) <= limits.max_num_seqs
        if load.phase in ("decode", "mixed"):
            assert blocks_of(load, limits) <= limits.kv_blocks, "a sweep must not preempt"
        if load.max_num_batched_tokens is not None:
            assert load.max_num_batched_tokens <= limits.max_num_batched_tokens
        if load.pool_blocks is not None:
            assert load.pool_blocks <= limits.kv_blocks


@pytest.mark.parametrize("quick", [False, True])
def test_a_program_is_reproducible_and_names_every_load_once(quick: bool) -> None:
    loads = loads_in_order(H200, quick=quick, seed=3)
    assert loads == loads_in_order(H200, quick=quick, seed=3)
    assert len({load.key for load in loads}) == len(loads)
    other = loads_in_order(H200, quick=quick, seed=4)
    assert {load.key for load in other} == {load.key for load in loads}
    assert [load.key for load in other] != [load.key for load in loads]


def test_decodes_reach_a_thousand_sequences_and_long_contexts() -> None:
    points = {(load.label["B"], load.label["C"]) for load in decodes(H200, coarse=False)}
    assert {b for b, _ in points} >= {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
    assert {b for b, _ in points} >= {3, 100, 520, 896}, "between the sizes of graphs, and beyond them"
    assert max(c for _, c in points) > 32_000
    assert max(c for b, c in points if b == 1024) > 1500, "a little less context rather than none"
    assert max(b * c for b, c in points) > 0.9 * H200.kv_tokens


def test_a_decode_load_runs_at_one_batch_size_after_warm_up() -> None:
    for load in decodes(H200, coarse=False):
        outputs = {r.output_tokens for r in load.requests}
        assert len(outputs) == 1
        assert outputs.pop() - load.warm >= 14
        assert {r.prompt_tokens - r.cached_tokens for r in load.requests} == {1}
        assert len({r.prompt for r in load.requests}) == len(load.requests)


def test_prompts_are_never_seen_twice() -> None:
    loads = loads_in_order(H200)
    keys = [r.prompt for load in loads for r in load.requests if not r.cached_tokens and not load.kept_out]
    assert len(set(keys)) == len(keys)


def test_prompts_come_alone_together_and_in_chunks() -> None:
    loads = prompts(H200, False, itertools.count())
    points = {(load.label["N"], load.label["P"], load.label["budget"]) for load in loads}
    assert {p for n, p, b in points if n == 1 and b == 16384} >= {128, 512, 2048, 8192, 16384}
    assert {n for n, _, _ in points} >= {1, 2, 4, 8, 16, 32}
    assert {b for n, p, b in points if p == 16384} == {512, 2048, 4096, 8192, 16384}


def test_mixtures_let_prompts_arrive_beside_running_decodes() -> None:
    for load in mixtures(H200, False, itertools.count()):
        arriving = [r for r in load.requests if r.at]
        chunks = math.ceil(load.label["P"] / (load.label["budget"] - load.label["B"]))
        assert min(r.at for r in arriving) > load.warm
        last = max(r.at for r in arriving)
        assert all(r.output_tokens > last + chunks for r in load.requests if not r.at), "decodes outlast the prompts"


def test_the_batches_are_those_that_the_accuracy_claim_names() -> None:
    on, off, preempt, long = batches(H200, quick=False, seed=0)
    assert [b.phase for b in (on, off, preempt, long)] == ["rl_on", "rl_off", "rl_preempt", "rl_long"]
    lengths = np.array([r.output_tokens for r in on.requests])
    assert len(lengths) == 512
    assert lengths.max() <= 8192
    assert lengths.mean() == pytest.approx(1536, rel=0.15)  # 4 standard errors of the mean of 512
    assert [r.output_tokens for r in off.requests] == lengths.tolist()
    assert [r.prompt for r in on.requests] == [i // 8 for i in range(512)]
    assert all(r.read_cache for r in on.requests)
    assert not any(r.read_cache for r in off.requests)
    assert preempt.pool_blocks is not None
    assert preempt.pool_blocks < peak_blocks(preempt.requests, H200)
    assert all(b.kept_out and b.track for b in (on, off, preempt, long))
    assert [b.phase for b in batches(H200, quick=True, seed=0)] == ["rl_on", "rl_off"]


def test_the_lengths_have_the_mean_that_was_asked_for() -> None:
    lengths = np.array(lognormal(200_000, 1000.0, 10**9, seed=1))
    assert lengths.mean() == pytest.approx(1000.0, rel=4 * 0.9 / math.sqrt(200_000) + 0.001)
    assert lengths.std() / lengths.mean() == pytest.approx(0.9, rel=0.05)


def test_a_shorter_batch_keeps_its_name_and_its_pressure() -> None:
    whole = batches(H200, quick=False, seed=0)[2]
    half = scaled(whole, 0.5, H200)
    assert half.key == whole.key, "a resumed run must know it again"
    assert half.label["length_scale"] == 0.5
    assert sum(r.output_tokens for r in half.requests) == pytest.approx(0.5 * whole.label["tokens"], rel=0.01)
    assert half.pool_blocks is not None
    assert half.pool_blocks / peak_blocks(half.requests, H200) == pytest.approx(0.6, abs=0.02)


def test_small_engines_get_small_batches() -> None:
    for load in batches(SMALL, quick=False, seed=0):
        assert len(load.requests) == 64
        assert len({r.output_tokens for r in load.requests}) > 20, "still heavy-tailed"


def test_batches_lie_between_the_passes_and_the_first_pass_is_coarse() -> None:
    loads = [load for load in loads_in_order(H200) if not load.optional]
    passes = [load.label.get("pass", load.phase) for load in loads]
    order = [name for name, _ in itertools.groupby(passes)]
    assert order == [1, "rl_on", 2, "rl_off", 2, "rl_preempt", 3, "rl_long"]
    sizes = [load.label["B"] for load in loads if load.phase == "decode" and load.label["pass"] == 2]
    assert sizes != sorted(sizes), "drift must not look like an effect of the batch size"


def test_what_a_load_is_called_does_not_depend_on_the_day() -> None:
    assert key_of("rl_on", {"P": 1, "length_scale": 0.5}) == key_of("rl_on", {"length_scale": 1.0, "P": 1, "tokens": 9})
    assert key_of("rl_on", {"P": 1}) != key_of("rl_off", {"P": 1})


def test_where_contexts_must_be_computed_the_warm_up_does_it() -> None:
    decoding = [Request(i, 257, 20, cached_tokens=256) for i in range(8)]
    load = Load("mixed", {}, (*decoding, Request(9, 64, 1, at=5)), 4)
    limits = replace(SMALL, max_num_batched_tokens=520)
    changed = computed(load, limits)
    more = changed.warm - load.warm
    assert more >= 8 * 257 / (520 - 8)
    assert changed.requests[0] == Request(0, 257, 20 + more)
    assert changed.requests[-1].at == 5 + more
    assert len(changed.requests) == 9
    tight = computed(load, replace(limits, max_model_len=270))
    assert all(r.prompt_tokens + r.output_tokens <= 270 for r in tight.requests)


@pytest.mark.parametrize("limits", [H200, SMALL, Limits(1, 16, 16, 2, 16)])
def test_warm_up_fits(limits: Limits) -> None:
    for load in warm_ups(limits):
        assert load.kept_out
        assert all(1 <= r.prompt_tokens <= limits.max_model_len for r in load.requests)
