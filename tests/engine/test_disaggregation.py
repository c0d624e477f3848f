"""Prompts on engines of their own: what an instance is then, what its sides hold, and what was published of such runs.

That the kernel equals a loop over every iteration is in test_jump_equals_loop.py.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.calibrate.one_load import ClosedLoad, read_sides, seen_of
from fleetsim.config import default_scenario, with_changes
from fleetsim.config.scenario import Scenario, reader_of
from fleetsim.engine import EngineLimits, LinearStepTime, run_requests
from fleetsim.engine.kernel.tables import DONE
from fleetsim.engine.step_time import PrefillSide
from fleetsim.engine.transport import transfer_of
from fleetsim.errors import InputError
from fleetsim.records import replace
from fleetsim.sim.engines import engine_of
from fleetsim.sim.metrics import numbers_of
from fleetsim.sim.run import simulate

LIMITS = EngineLimits(8, 2048, 1000)


def job(**changes: Any) -> Scenario:
    sections = {"prefill": 1, "decode": 1, **changes.pop("sides", {})}
    return with_changes(default_scenario(), {"engine.disaggregation": sections, **changes})


def test_a_request_is_computed_moved_and_decoded() -> None:
    """Two prompts of 100 tokens, one after the other: 0.1 s each, 0.05 s and 1 ms a token on the way, 10 ms a token."""
    side = PrefillSide(1, LinearStepTime(0.0, 0.0, 0.001), replace(LIMITS, max_num_batched_tokens=100), 0.05, 0.001)
    got = run_requests(replace(LinearStepTime(0.01), prefill=side), LIMITS, 100, [4, 4])
    assert got.start_s.tolist() == pytest.approx([0.0, 0.1])
    assert got.first_token_s.tolist() == pytest.approx([0.25, 0.35])
    assert got.finish_s.tolist() == pytest.approx([0.28, 0.38])


@settings(max_examples=60)
@given(st.integers(1, 900), st.integers(1, 900), st.floats(1e-6, 0.01), st.floats(0, 0.01))
def test_prompts_that_end_together_but_for_rounding_decode_in_their_order(
    a: int, b: int, token_s: float, step_s: float
) -> None:
    """A prompt of a + b tokens on one engine, prompts of a and of b on another: their sums differ by rounding,
    in either direction, and the request that was sent first decodes first."""
    side = PrefillSide(2, LinearStepTime(0.0, 0.0, token_s), replace(LIMITS, max_num_seqs=1))
    one = replace(LIMITS, max_num_seqs=1)
    got = run_requests(replace(LinearStepTime(1.0 + step_s), prefill=side), one, [a, a + b, b], [1, 3, 3])
    assert got.first_token_s[1] == pytest.approx((a + b) * token_s)
    assert got.first_token_s[2] == got.finish_s[1]


def test_clients_of_two_sides_wait_for_the_prompts_of_others_and_not_for_their_decodes() -> None:
    """profile estimate --disaggregation: later tokens come sooner than from one engine of the same kind."""
    load = ClosedLoad(64, 2048, 256)
    one = seen_of(load, "H100", "Qwen/Qwen3-8B")
    two = seen_of(load, "H100", "Qwen/Qwen3-8B", **read_sides("prefill=3 decode=1"))
    assert two.tpot_s.value < 0.8 * one.tpot_s.value
    assert read_sides(None) == {}
    for text in ("prefill", "prefill=x", "prefill=1 prefill=2"):
        with pytest.raises(InputError, match="each key once"):
            read_sides(text)


def test_prompts_do_not_disturb_decodes() -> None:
    """A prompt of 2,000 tokens takes 2 s where it stands in the way of decodes, and none of theirs apart."""
    engine = LinearStepTime(0.01, 0.0, 0.001)
    arrival = [0.0, 0.5]
    beside = run_requests(engine, LIMITS, [10, 2000], [200, 2], arrival_s=arrival)
    apart = run_requests(replace(engine, prefill=PrefillSide(1, engine, LIMITS)), LIMITS, [10, 2000], [200, 2],
                         arrival_s=arrival)  # fmt: skip
    assert beside.finish_s[0] == pytest.approx(2.01 + 199 * 0.01, abs=0.02)
    assert apart.finish_s[0] == pytest.approx(0.02 + 199 * 0.01, abs=0.02)


def test_siblings_are_computed_once_and_stay_with_one_engine() -> None:
    """One second a token: 8 siblings of 300 tokens compute 384 (7 x 288 are found), whatever the other engine does."""
    side = PrefillSide(2, LinearStepTime(0.0, 0.0, 1.0), EngineLimits(16, 4096, 1000, 32))
    got = run_requests(replace(LinearStepTime(0.0), prefill=side), EngineLimits(16, 4096, 1000, 32), 300, [1] * 8,
                       group=[0] * 8, prefix_caching=True)  # fmt: skip
    assert got.finish_s.tolist() == [384.0] * 8


def test_engines_that_decode_share_the_load() -> None:
    """Two engines with one decode each read half of the cache each; one with a single decode reads all of it."""
    engine = LinearStepTime(0.0, per_kv_token_s=1e-3)
    side = PrefillSide(1, LinearStepTime(0.0), LIMITS)
    two = replace(engine, prefill=side, engines=2)
    alone, both = (run_requests(two, LIMITS, 100, [2] * n).finish_s[-1] for n in (1, 2))
    assert alone == pytest.approx(0.1)
    assert both == pytest.approx(0.1)
    assert two.decode_tok_s(2, 100) == pytest.approx(2 * engine.decode_tok_s(1, 100))


def test_an_instance_has_the_gpus_and_the_memory_of_both_sides() -> None:
    one = default_scenario()
    apart = job(sides={"prefill": 2, "decode": 3, "prefill_tp": 2}, **{"engine.tp": 1})
    assert apart.engine.gpus == 2 * 2 + 3 * 1
    (_, alone), (step, limits) = engine_of(one), engine_of(apart)
    assert (limits.kv_blocks, limits.max_num_seqs) == (3 * alone.kv_blocks, 3 * alone.max_num_seqs)
    assert step.prefill is not None
    assert step.prefill.limits.kv_blocks > 2 * alone.kv_blocks  # two GPUs hold the weights once
    assert step.blocks_of_one(limits.kv_blocks) == alone.kv_blocks


def test_the_cache_travels_by_the_links_there_are() -> None:
    """Qwen2.5-7B: 28 layers x 2 x 4 heads x 128 numbers of 16 bits are 57,344 bytes a token."""
    near, far = (engine_of(job(sides={"decode": d}))[0].prefill for d in (3, 8))
    assert near is not None
    assert far is not None
    assert near.transfer_token_s == pytest.approx(57_344 / (450e9 * 0.88), rel=0.01)
    assert far.transfer_token_s == pytest.approx(57_344 / (50e9 * 0.88), rel=0.01)
    assert "network" in far.source
    own = engine_of(job(sides={"link_gb_s": 10.0, "latency_s": 0.02}))[0].prefill
    assert own is not None
    assert (own.transfer_s, own.transfer_token_s) == (0.02, 57_344 / 10e9)


def test_weights_go_to_both_sides() -> None:
    sent = transfer_of(job(sides={"prefill": 2, "decode": 2}, **{"sync.transport": "rdma_p2p", "engine.tp": 2}))
    assert sent.tp == 8
    assert sent.gpu_bytes == pytest.approx(sent.model_bytes / 2, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"engine.kind": "constant", "engine.instance_tok_s": 1e4}, "engine.disaggregation"),
        ({"engine.pp": 2}, "engine.pp"),
        ({"engine.dp": 2, "fleet.instances": 2}, "engine.dp"),
        ({"sides": {"prefill": 3, "prefill_dp": 2}}, "engine.disaggregation"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as error:
        job(**changes)
    assert any(p.path.startswith(path) for p in error.value.problems), error.value.problems


def test_a_long_prompt_must_fit_the_prefill_side_too() -> None:
    small = job(**{"engine.kv_blocks": None, "engine.gpu_memory_utilization": 0.25, "engine.tp": 1, "run.steps": 1})
    fits = engine_of(small)[0].prefill
    assert fits is not None
    long = with_changes(small, {"workload.prompt_tokens": fits.limits.kv_tokens + 100})
    with pytest.raises(InputError, match="never fits"):
        simulate(long)


def test_later_turns_compute_what_their_prefill_engine_does_not_hold() -> None:
    """Of a second turn the prompt is found; the first answer, and what the tool said, are computed."""
    turns = {"count": 2, "tool_latency_s": 1.0, "tool_tokens": 160}
    scenario = job(**{
        "workload.turns": turns, "workload.group_size": 1, "workload.prompt_tokens": 1600, "trainer.batch_samples": 4,
        "workload.output_tokens": {"kind": "constant", "value": 320}, "run.steps": 2, "run.warmup_steps": 0,
        "fleet.instances": 1,
    })  # fmt: skip
    steps = simulate(scenario).steps
    computed, found = int(steps["prefilled_tokens"][-1]), int(steps["hit_tokens"][-1])
    samples = found / 1600
    # First turn 1,600; second 160 of the answer and 160 of the tool, as many samples as have come back.
    assert samples >= 8
    assert computed == pytest.approx(1600 * samples + 320 * samples, rel=0.35)
    assert numbers_of(simulate(scenario))["prefill_busy_fraction"] > 0


def test_a_sibling_that_ends_with_its_prompt_takes_the_others_of_its_batch_along() -> None:
    """Responses of one token end where prompts are computed; of 16 siblings 8 are kept, the rest is aborted at once."""
    scenario = job(**{
        "workload.output_tokens": {"kind": "constant", "value": 1}, "workload.group_size": 8,
        "buffer.group_oversampling": 2.0, "trainer.batch_samples": 32, "run.steps": 3, "run.warmup_steps": 0,
        "fleet.instances": 2,
    })  # fmt: skip
    records = simulate(scenario)
    status, made = records.samples["status"], records.samples["made"]
    assert np.count_nonzero(status == DONE) >= 3 * 32
    assert int(records.steps["generated_tokens"][-1]) == int(made[status == DONE].sum())


# By which share the prediction may be off, of seconds per later token (`calibration/fit_engine.py --tables`).
PUBLISHED = {"s2440": 0.10, "s682": 0.18, "s532": 0.10, "s616": 0.10, "s666": 0.12, "s2397": 0.10}


@pytest.fixture(scope="module")
def published() -> Iterator[ModuleType]:
    folder = str(Path(__file__).resolve().parents[2] / "calibration")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module("disaggregated")
    finally:
        sys.path.remove(folder)


@pytest.mark.parametrize("run", PUBLISHED)
def test_published_runs_of_deepseek_with_prompts_apart(run: str, published: ModuleType) -> None:
    """Nothing is fitted to them. The curves are those of engines that compute their prompts themselves."""
    measured = {point.id: point.later_s for point in published.read()[0]}
    assert measured.keys() == PUBLISHED.keys()
    assert published.predicted(run).later_s == pytest.approx(measured[run], rel=PUBLISHED[run])


Sides = tuple[float, Callable[[int, int], float]]


def across_servers(gpu: str, ranks: int, overlap: str, prompt: int = 2000, chunk: int = 16_384) -> Sides:
    """DeepSeek-V3 on 32 GPUs for prompts and so many that decode: tokens per second of a server of eight."""
    sides = {"prefill": 32, "decode": ranks, "prefill_dp": 32, "decode_dp": ranks, "max_num_batched_tokens": chunk}
    step, _ = engine_of(with_changes(default_scenario(), {
        "engine.gpu": gpu, "engine.model": "deepseek-ai/DeepSeek-V3", "engine.name": "sglang", "engine.tp": 1,
        "engine.dtype": "fp8", "engine.expert_exchange": "all_to_all", "engine.overlap": overlap,
        "engine.disaggregation": sides,
    }), log_probs=False)  # fmt: skip
    assert step.prefill is not None
    prompt_s = step.prefill.step_time.seconds(0, chunk, 0.0, chunk / prompt * prompt * (prompt + 1) / 2)
    return 8 * chunk / prompt_s, lambda each, cached: 8 * step.decode_tok_s(each * ranks, cached) / ranks


def test_two_batches_gain_what_sglang_published() -> None:
    """lmsys.org, 2025-05-05, DeepSeek-V3 on H100: decodes on 72 GPUs lose 27 % with 32 of a GPU, break even between 64
    and 128 and gain 25.5 % with 256; prompts on 32 GPUs gain 27 to 35 % with 8,192 tokens of a GPU. One number of the
    model is fitted to these five."""
    (alone, one), (beside, two) = (across_servers("H100", 72, how, chunk=8192) for how in ("none", "two_batch"))
    gains = {each: two(each, 2050) / one(each, 2050) for each in (32, 64, 128, 256)}
    assert gains[32] == pytest.approx(0.73, abs=0.05)
    assert gains[64] < 1 < gains[128]
    assert gains[256] == pytest.approx(1.255, abs=0.05)
    assert beside / alone == pytest.approx(1.31, abs=0.07)


@pytest.mark.parametrize(
    ("gpu", "ranks", "overlap", "each", "cached", "published", "ratio"),
    [
        ("H100", 72, "none", 256, 2050, 22_310 / 1.255, 1.03),
        ("H100", 72, "two_batch", 256, 2050, 22_282, 1.02),
        # DeepSeek's own service (2025-02: a mean over a day), and its published profile
        ("H800", 144, "two_batch", 128, 4989, 14_800, 0.96),
        ("H800", 128, "two_batch", 128, 4096, 18_598, 0.80),
    ],
)
def test_decodes_of_deepseek_across_servers(
    gpu: str, ranks: int, overlap: str, each: int, cached: int, published: float, ratio: float
) -> None:
    """Tokens per second and server, as lmsys.org (2025-05-05) gives them all. docs/layouts.md gives these ratios."""
    _, decode = across_servers(gpu, ranks, overlap)
    assert decode(each, cached) / published == pytest.approx(ratio, abs=0.02)


@pytest.mark.parametrize(
    ("gpu", "overlap", "prompt", "chunk", "published", "ratio"),
    [
        ("H100", "none", 2000, 8192, 54_543 / 1.405, 1.16),
        ("H100", "two_batch", 1000, 16_384, 57_674, 1.15),
        ("H100", "two_batch", 2000, 16_384, 54_543, 1.17),
        ("H100", "two_batch", 4096, 16_384, 50_302, 1.17),
        # experts visited evenly: SGLang's, simulated, and DeepSeek's profile
        ("H100", "two_batch", 4096, 16_384, 59_337, 0.99),
        ("H800", "two_batch", 4096, 16_384, 62_713, 0.94),
    ],
)
def test_prompts_of_deepseek_across_servers(
    gpu: str, overlap: str, prompt: int, chunk: int, published: float, ratio: float
) -> None:
    """The same of prompts. Too fast by a sixth: real prompts visit experts unevenly, and all wait for the busiest."""
    prompts, _ = across_servers(gpu, 72, overlap, prompt, chunk)
    assert prompts / published == pytest.approx(ratio, abs=0.03)


def test_two_batches_need_ranks_and_an_exchange() -> None:
    """Alone, a rank has nobody to exchange tokens with; tokens that are gathered cannot wait for another batch."""
    moe = {"engine.model": "Qwen/Qwen3-30B-A3B", "engine.gpu": "H100"}
    with pytest.raises(InputError, match="all_to_all"):
        engine_of(with_changes(default_scenario(), {
            **moe, "engine.dp": 8, "fleet.instances": 8, "engine.overlap": "two_batch",
            "engine.expert_exchange": "gather",
        }))  # fmt: skip
    alone, halves = (engine_of(with_changes(default_scenario(), {**moe, "engine.overlap": how}))[0] for how in
                     ("none", "two_batch"))  # fmt: skip
    assert alone == halves
    job_alone = with_changes(default_scenario(), moe)
    assert "engine.dp" in reader_of(job_alone, "engine.overlap")
