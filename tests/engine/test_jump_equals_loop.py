"""The kernel's jumps against the iteration-by-iteration loop: every time, every instance, every preemption.

Why: a jump is only an optimisation. If it changed one finish time by more than rounding, every answer built on it
would be about an engine that does not exist.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.engine import EngineLimits, LinearStepTime, StepTime, run_requests
from fleetsim.engine.limits import SCHEDULERS
from fleetsim.engine.speculation import Speculation
from fleetsim.engine.step_time import PrefillSide
from fleetsim.engine.window import AttentionWindow
from fleetsim.records import replace
from tests.engine.reference import run_reference

seconds = st.sampled_from([0.0, 1.7e-5, 3.1e-4, 0.0123])


@st.composite
def step_times(draw: st.DrawFn) -> StepTime:
    knots = draw(st.sampled_from([(0.0,), (0.0, 7.0), (1.0, 4.0, 60.0)]))
    rises = draw(st.lists(st.floats(0, 0.01), min_size=len(knots), max_size=len(knots)))
    base = draw(st.sampled_from([0.0031, 0.0117]))
    return StepTime(
        knots,
        tuple(float(base + x) for x in np.cumsum(rises)),
        per_seq_s=draw(seconds),
        per_prefill_token_s=draw(seconds),
        per_kv_token_s=draw(st.sampled_from([0.0, 1.3e-6, 2.9e-4])),
        per_attn_pair_s=draw(st.sampled_from([0.0, 1.1e-6])),
    )


@st.composite
def speculations(draw: st.DrawFn) -> Speculation:
    """Up to three batch sizes with their k; a drafter that is refused always, never, and in between."""
    sizes = draw(st.lists(st.integers(1, 13), min_size=1, max_size=3, unique=True))
    most = draw(st.integers(1, 5))
    drafts = [draw(st.integers(0, most)) for _ in sizes[1:]] + [most]
    shares = draw(st.lists(st.sampled_from([0.0, 0.37, 0.9, 1.0]), min_size=most, max_size=most))
    knots = draw(st.sampled_from([(0.0,), (0.0, 5.0)]))
    cost = st.floats(0, 0.01)
    return Speculation(
        schedule=tuple(zip(sorted(sizes), drafts, strict=True)),
        lengths=((1.0, *(1.0 + float(x) for x in np.cumsum(np.cumprod(shares)))),),
        knots_sequences=knots,
        added_s=tuple(tuple(float(x) for x in np.cumsum([draw(cost) for _ in knots])) for _ in range(most + 1)),
        added_kv_token_s=tuple(draw(st.sampled_from([0.0, 1.3e-6])) for _ in range(most + 1)),
        prompt_token_s=draw(seconds),
    )


@st.composite
def windows(draw: st.DrawFn) -> AttentionWindow | None:
    """Layers that look back a few tokens, or as far as the longest request goes, sliding or in chunks."""
    tokens = draw(st.sampled_from([0, 0, 1, 3, 16, 40, 90, 1000]))
    if tokens == 0:
        return None
    cost = draw(st.sampled_from([0.0, 1.3e-6, 2.9e-4])), draw(st.sampled_from([0.0, 1.1e-6]))
    return AttentionWindow(tokens, *cost, chunked=draw(st.booleans()))


@st.composite
def prefill_sides(draw: st.DrawFn, limits: EngineLimits, longest: int, window: AttentionWindow | None) -> PrefillSide:
    """One to three prefill engines, whose cache just holds the longest prompt or plenty."""
    seqs = draw(st.integers(1, 12))
    own = replace(
        limits,
        max_num_seqs=seqs,
        max_num_batched_tokens=max(draw(st.integers(seqs, 200)), limits.chunk_unit),
        kv_blocks=limits.blocks_for(longest) + draw(st.integers(0, 40)),
    )
    moved = draw(st.sampled_from([0.0, 0.004])), draw(st.sampled_from([0.0, 2e-5]))
    return PrefillSide(draw(st.integers(1, 3)), replace(draw(step_times()), window=window), own, *moved)


@st.composite
def hosted(draw: st.DrawFn) -> dict:
    """Engines with little room whose host holds copies; their link is slow, so that several wait for it."""
    case = draw(cases())
    n, size = len(case["prompt"]), draw(st.sampled_from([1, 4, 16]))
    longest = max(p + o - 1 for p, o in zip(case["prompt"], case["output"], strict=True))
    seqs = draw(st.integers(1, 6))
    limits = EngineLimits(
        seqs, draw(st.integers(seqs, 200)), -(-longest // size) + draw(st.integers(0, 30)), size,
        max_output_tokens=max(case["output"]) + draw(st.sampled_from([0, 500])),
        scheduler=draw(st.sampled_from(["vllm", "vllm", "sglang"])),
        host_blocks=draw(st.sampled_from([20, 60, 200, 1 << 40])),
        load_block_s=draw(st.sampled_from([0.0, 1e-4, 0.004, 0.03, 0.2])),
    )  # fmt: skip
    step_time = replace(case["step_time"], prefill=None, engines=1)
    group = case["group"] if case["group"] is not None else list(range(n))
    return case | {"limits": limits, "step_time": step_time, "group": group, "caching": True}


@st.composite
def cases(draw: st.DrawFn, kept: bool = False) -> dict:
    """kept: by an engine that keeps a window of some layers only, with little room beside."""
    n = draw(st.integers(1, 24))
    size = draw(st.sampled_from([1, 4, 16]))
    groups = draw(st.one_of(st.none(), st.lists(st.integers(0, 5), min_size=n, max_size=n)))
    prompts = draw(st.lists(st.integers(1, 90), min_size=n, max_size=n))
    if groups is not None:
        prompts = [prompts[groups.index(g)] for g in groups]
    outputs = draw(st.lists(st.integers(1, 60), min_size=n, max_size=n))
    longest = max(p + o - 1 for p, o in zip(prompts, outputs, strict=True))
    seqs = draw(st.integers(1, 12))
    state = draw(st.sampled_from([0, 0, 3]))
    limits = EngineLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=draw(st.integers(seqs, 200)),
        # from "one request just fits" (preemption all the time) to plenty
        kv_blocks=-(-longest // size) + state + draw(st.integers(0, 60)),
        block_size=size,
        state_blocks=state,
        max_output_tokens=max(outputs) + draw(st.sampled_from([0, 7, 500])),
        scheduler="vllm" if kept else draw(st.sampled_from(SCHEDULERS)),
        no_evict=draw(st.booleans()),
    )
    arrivals = draw(st.one_of(st.none(), st.lists(st.floats(0, 2, allow_nan=False), min_size=n, max_size=n)))
    window = AttentionWindow(draw(st.sampled_from([1, 3, 16, 40])), 1.3e-6, 1.1e-6) if kept else draw(windows())
    prefill = draw(st.one_of(st.none(), prefill_sides(limits, longest, window)))
    engines = 1 if prefill is None else draw(st.integers(1, 3))
    if window is not None and not window.chunked and limits.scheduler == "vllm":
        near = draw(st.sampled_from([1, 3] if kept else [0, 1, 3]))
        whole = draw(st.sampled_from([0, 1, 1])) if near else 1
        wider = replace(limits, window_tokens=window.tokens, window_blocks=near, whole_blocks=whole)
        more = max(0, wider.blocks_for(longest) - limits.blocks_for(longest))
        limits = replace(wider, kv_blocks=limits.kv_blocks + more)
        prefill = None if prefill is None else draw(prefill_sides(limits, longest, window))
    limits = replace(limits, kv_blocks=limits.kv_blocks * engines)  # the longest request fits one of them
    return {
        "step_time": replace(
            draw(step_times()),
            speculation=draw(st.one_of(st.none(), speculations())),
            prefill=prefill,
            engines=engines,
            window=window,
        ),
        "limits": limits,
        "prompt": prompts,
        "output": outputs,
        "arrival": arrivals,
        "group": groups,
        "caching": groups is not None and draw(st.booleans()),
        "instances": draw(st.integers(1, 4)),
        "routing": draw(st.sampled_from(["round_robin", "least_loaded", "prefix_affinity"])),
    }


def check(case: dict) -> int:
    """How often a request was preempted."""
    expected, where, _ = run_reference(**case)
    got = run_requests(
        case["step_time"],
        case["limits"],
        case["prompt"],
        case["output"],
        arrival_s=case["arrival"],
        group=case["group"],
        prefix_caching=case["caching"],
        instances=case["instances"],
        routing=case["routing"],
    )
    assert got.instance.tolist() == where
    assert got.preemptions.tolist() == [r.preemptions for r in expected]
    for name, values in (
        ("start_s", [r.start for r in expected]),
        ("first_token_s", [r.first for r in expected]),
        ("finish_s", [r.finish for r in expected]),
    ):
        np.testing.assert_allclose(getattr(got, name), values, rtol=1e-9, atol=1e-12, err_msg=name)
    return sum(r.preemptions for r in expected)


@settings(max_examples=int(os.environ.get("FLEETSIM_EXAMPLES", "150")), deadline=None)
@given(cases())
def test_jump_equals_loop(case: dict) -> None:
    check(case)


@settings(max_examples=int(os.environ.get("FLEETSIM_EXAMPLES", "150")), deadline=None)
@given(hosted())
def test_jump_equals_loop_where_the_host_holds_copies(case: dict) -> None:
    check(case)


@settings(max_examples=int(os.environ.get("FLEETSIM_EXAMPLES", "150")), deadline=None)
@given(cases(kept=True))
def test_jump_equals_loop_where_windows_are_kept(case: dict) -> None:
    check(case)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("kv_blocks", [40, 75, 400])
def test_jump_equals_loop_on_a_group_workload(kv_blocks: int, caching: bool, scheduler: str) -> None:
    """Groups of 8, heavy-tailed lengths, KV from very tight to plenty: the shape that RL makes."""
    rng = np.random.default_rng(5)
    prompts = np.repeat(rng.integers(20, 200, 20), 8)
    outputs = np.clip(rng.lognormal(4.5, 0.9, 160), 1, 400).astype(int)
    check(
        {
            "step_time": LinearStepTime(0.008, 2e-5, 5e-5, 3e-7),
            "limits": EngineLimits(32, 256, kv_blocks, 16, max_output_tokens=400, scheduler=scheduler),
            "prompt": prompts.tolist(),
            "output": outputs.tolist(),
            "arrival": np.sort(rng.uniform(0, 3, 160)).tolist(),
            "group": np.repeat(np.arange(20), 8).tolist(),
            "caching": caching,
            "instances": 2,
            "routing": "least_loaded",
        }
    )


@pytest.mark.parametrize("size", [1, 16])
def test_retraction_equals_the_loop(size: int) -> None:
    """Long outputs, so that SGLang's ratio falls, its estimate turns out too low, and decodes are retracted."""
    retracted = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = 32
        prompts = np.repeat(rng.integers(5, 60, n // 4), 4)
        outputs = rng.integers(600, 900, n)
        limits = EngineLimits(
            32, 64, 4000 // size, size, max_output_tokens=900, scheduler="sglang", state_blocks=seed % 3
        )
        case = {
            "step_time": LinearStepTime(0.01, 1e-4, 1e-4, 1e-7),
            "limits": limits,
            "prompt": prompts.tolist(),
            "output": outputs.tolist(),
            "arrival": np.sort(rng.uniform(0, 15, n)).tolist(),
            "group": np.repeat(np.arange(n // 4), 4).tolist(),
            "caching": seed % 2 == 0,
            "instances": 1,
            "routing": "round_robin",
        }
        retracted += check(case)
    assert retracted > 20


def test_preemption_happens_as_in_real_vllm() -> None:
    """33 blocks of 32 of which one is vLLM's null block, 8 requests of 64 + 192 tokens.

    A real vLLM 0.32 (CPU build) did this: 4 preemptions; requests 0 to 3 finish first together, then 4, 5, 7, 6.
    """
    got = run_requests(LinearStepTime(0.01), EngineLimits(16, 2048, 32, 32), [64] * 8, [192] * 8)
    assert got.preemptions.sum() == 4
    assert len(set(got.finish_s[:4].tolist())) == 1
    assert np.argsort(got.finish_s[4:], kind="stable").tolist() in ([0, 1, 3, 2], [0, 1, 2, 3])
    assert got.finish_s[4:].min() > got.finish_s[0]


def test_siblings_in_the_same_iteration_hit_the_prompt() -> None:
    """Measured on real vLLM (block 32): 8 siblings of 300 prompt tokens compute 384 tokens, 7 x 288 are hits."""
    step_time = LinearStepTime(0.0, 0.0, 1.0, 0.0)  # one second per prefill token: time counts computed tokens
    got = run_requests(step_time, EngineLimits(16, 4096, 1000, 32), 300, [1] * 8, group=[0] * 8, prefix_caching=True)
    assert got.finish_s.tolist() == [384.0] * 8
