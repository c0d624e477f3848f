"""Roofline: physics that must hold whatever the curves are, KV capacity, and the errors."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetsim.engine
from fleetsim.engine import EngineLimits, StepTime, roofline
from fleetsim.engine.defaults import sglang_static_share
from fleetsim.engine.gpus import GPUS, GpuSpec, gpu_spec
from fleetsim.engine.kv_memory import activation_peak_bytes
from fleetsim.engine.model.names import MODELS, model_shape
from fleetsim.engine.model.states import StateMixer
from fleetsim.engine.operators.attention import core_of
from fleetsim.engine.operators.curves import Curves, curves_of, key_of, read_curves, shipped_curves
from fleetsim.engine.operators.device import Device
from fleetsim.errors import InputError
from fleetsim.records import replace

GIB = 2**30
SHIPPED: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "calibration/engine_curves.json").read_text()
)


def changed(document: Any, values: dict[str, float]) -> Any:
    """A copy with every number of these names set."""
    if isinstance(document, dict):
        return {k: values[k] if k in values else changed(v, values) for k, v in document.items()}
    return document


def ideal(experts: float = 1e9) -> Curves:
    """All of the data sheet, sharp knees, no launch, no gap, no host. experts: share of the peak that they reach."""
    document = changed(SHIPPED, {
        "start_s": 0.0, "bandwidth": 1.0, "bandwidth_fp8": 1.0, "compute": 1.0, "wave": 0.0, "knee": 8.0,
        "prefill": 1.0,
        "per_doubling": 0.0, "link": 1.0, "iteration_s": 0.0, "layer_s": 0.0, "sequence_s": 0.0, "prompt_token_s": 0.0,
        "passes": 0.0, "uneven": 1.0,
    })  # fmt: skip
    for family in document["families"].values():
        family["experts"] = {kind: {**row, "compute": experts} for kind, row in family["experts"].items()}
    document["models"] = {}
    document["hosts"] = {name: {**row, "allreduce": 1.0} for name, row in document["hosts"].items()}
    return curves_of(document)


IDEAL = ideal()


def allreduce_s(gpu: GpuSpec, gpus: int, size: float, curves: Curves) -> float:
    return float(Device(gpu, curves.families[gpu.family], 1).allreduce_s(gpus, np.array(size)))


def some_that_fit() -> Iterator[tuple[StepTime, EngineLimits]]:
    """Of every built-in GPU, model and tp a third, drawn, where they fit together."""
    every = list(itertools.product(GPUS, MODELS, (1, 2, 4, 8)))
    for gpu, model, tp in random.Random(0).sample(every, len(every) // 3):
        try:
            yield roofline(gpu, model, tp)
        except InputError:
            continue


def iteration_s(gpu: str, model: str, tp: int, decodes: int, context: int, prefill: int = 0, **more: Any) -> float:
    step_time, _ = roofline(gpu, model, tp, max_num_batched_tokens=16384, max_num_seqs=256, **more)
    return step_time.seconds(decodes, prefill, decodes * context, prefill * prefill / 2)


def test_ideal_decode_of_one_sequence_reads_the_weights_once() -> None:
    shape, gpu = MODELS["meta-llama/Llama-3.1-8B"], GPUS["H100-SXM"]
    step_time, _ = roofline("H100", shape, curves=IDEAL)
    read = 2 * (shape.params - shape.embedding_params)  # the input embedding is a look-up of one row
    assert step_time.seconds(1) == pytest.approx(read / gpu.memory_bytes_s, rel=0.005)


def test_ideal_prefill_is_two_flop_per_weight_and_token() -> None:
    shape, gpu = MODELS["meta-llama/Llama-3.1-8B"], GPUS["H100-SXM"]
    step_time, _ = roofline("H100", shape, curves=IDEAL, max_num_batched_tokens=16384)
    assert step_time.seconds(0, 16384) == pytest.approx(2 * shape.trunk_params * 16384 / gpu.bf16_flop_s, rel=0.005)
    pairs = 1e9
    attention_s = step_time.seconds(0, 1, attn_pairs=pairs) - step_time.seconds(0, 1)
    assert attention_s == pytest.approx(pairs * 4 * 32 * 128 * 32 / gpu.bf16_flop_s)


def test_ideal_cache_reading_is_its_bytes_over_bandwidth() -> None:
    step_time, _ = roofline("H100", "Llama-3.1-8B", tp=2, curves=IDEAL)
    assert step_time.per_kv_token_s == pytest.approx(65_536 / 3.35e12)


def test_a_mixture_reads_more_experts_with_more_tokens() -> None:
    shape = MODELS["Qwen/Qwen3-30B-A3B"]
    step_time, _ = roofline("H200", shape, curves=IDEAL)
    f = step_time.table(256)
    one_token = 2 * (shape.active_trunk_params + shape.embedding_params) / 4.8e12
    assert f[1] == pytest.approx(one_token, rel=0.01)
    # With 256 tokens the rows that pass through the experts count too: 8 of each, three times 2,048 + 768 wide.
    rows = sum(n for n, _ in shape.mixtures) * 256 * 8 * 3 * (2048 + 768)
    assert f[256] == pytest.approx(2 * (shape.params - shape.embedding_params + rows) / 4.8e12, rel=0.015)
    assert np.all(np.diff(f[1:65], 2) <= 1e-12)  # concave while it is bound by reading


def test_ranks_read_the_experts_that_all_of_them_pick_each_its_share() -> None:
    """dp ranks of n tokens each touch E (1 - (1 - k/E)^(n dp)) experts, of which a rank's GPUs hold 1 / dp."""
    shape, gpu = MODELS["Qwen/Qwen3-30B-A3B"], GPUS["H200-SXM"]
    alone, four = (roofline("H200", shape, dp=dp, curves=IDEAL)[0] for dp in (1, 4))
    fixed = 2 * (shape.trunk_params + shape.embedding_params)
    expert = 2 * sum(n for n, _ in shape.mixtures) * shape.mixture.expert_params(shape.hidden)
    exchange = 48 * allreduce_s(gpu, 4, 4 * 2048 * 2, IDEAL)
    assert four.seconds(1) - four.per_seq_s == pytest.approx(
        (fixed + expert * shape.mixture.touched(4) / 4) / gpu.memory_bytes_s + exchange, rel=0.005
    )
    assert four.seconds(64) < alone.seconds(64), "64 tokens touch nearly all experts: a quarter of them is read"
    assert "of 4 ranks" in four.source
    assert roofline("H200", "Qwen/Qwen3-8B", dp=4)[0] == roofline("H200", "Qwen/Qwen3-8B")[0], "nothing to share"


def test_ranks_leave_more_room_for_the_cache() -> None:
    shape = MODELS["Qwen/Qwen3-235B-A22B"]
    with pytest.raises(InputError, match="leave no KV cache"):
        roofline("H200", shape)
    _, limits = roofline("H200", shape, dp=8)
    weights = (shape.params - shape.routed_params + shape.routed_params / 8) * 2
    cache = limits.kv_tokens * shape.kv_bytes_per_token()
    assert cache == pytest.approx(0.92 * 139.81 * GIB - weights - 0.3e9, rel=0.15)  # less the profile run's peak
    # two GPUs a rank, and 16 ranks over four servers
    weights = (shape.params - shape.routed_params) + shape.routed_params / 16
    cache = roofline("H200", shape, tp=2, dp=16)[1].kv_tokens * shape.kv_bytes_per_token(2)
    assert cache == pytest.approx(0.92 * 139.81 * GIB - weights - 1.3e9, rel=0.15)


def test_a_latent_is_read_once_for_all_heads_and_multiplied_with_each() -> None:
    """DeepSeek-V3: 1,152 bytes and 278,528 operations per token and layer. tp splits the heads, not the latent."""
    operations, read = 61 * 2 * 128 * (576 + 512), 61 * 576 * 2
    for gpu, tp, seconds in (
        ("H20", 1, operations / 148e12),  # all heads on one slow GPU: multiplying takes longer
        ("H20", 8, read / 4.0e12),
        ("H200", 8, read / 4.8e12),
    ):
        step_time, _ = roofline(gpu, "DeepSeek-V3", tp=tp, dtype="fp8", curves=IDEAL, kv_blocks=1000)
        assert step_time.per_kv_token_s == pytest.approx(seconds)
    assert operations / 148e12 > 6 * read / 4.0e12


def test_linear_layers_move_their_state_with_every_token() -> None:
    shape = MODELS["Qwen/Qwen3.5-35B-A3B"]
    step_time, limits = roofline("H200", shape, curves=IDEAL)
    passes = 6 * 4 * 248320
    head = 2 * 248320 * 2048 / 989.4e12
    assert step_time.per_seq_s == pytest.approx(head + (passes + 2 * shape.state_bytes() / 0.7) / 4.8e12)
    assert limits.state_blocks == -(-64_389_120 // (20_480 * 16)) == 197
    assert roofline("H200", "Qwen/Qwen3-8B")[1].state_blocks == 0


@pytest.mark.parametrize(
    ("engine", "seqs", "tokens", "block", "cache"),
    [
        ("vllm", 1024, 8192, 16, None),
        # 79.11 GiB less 512 + 1.5 x 8,192 + 2 x 256 + 128 MiB for activations and graphs, weights, runtime
        # 911,000 tokens of cache are 28 contexts of 32,768, and 512 requests for each are more than 4,096
        ("sglang", 4096, 8192, 1, 79.11 * GIB - 13_440 * 2**20 - 15.231e9 - 0.3e9),
        # 0.9 of what weights, one MLP of 8,192 tokens and runtime leave
        ("tensorrt-llm", 2048, 8192, 32, 0.9 * (79.11 * GIB - 15.231e9 - 0.3e9 - 8192 * 2 * 3 * (3584 + 18944))),
    ],
)
def test_defaults_of_each_engine(engine: str, seqs: int, tokens: int, block: int, cache: float | None) -> None:
    _, limits = roofline("H100", "Qwen/Qwen2.5-7B", engine=engine)
    assert (limits.max_num_seqs, limits.max_num_batched_tokens, limits.block_size) == (seqs, tokens, block)
    assert limits.scheduler == engine
    if cache is not None:
        assert limits.kv_tokens * 57_344 == pytest.approx(cache, rel=0.001)


def test_sglang_limits_by_device() -> None:
    chunk = {gpu: roofline(gpu, "Qwen/Qwen2.5-1.5B", engine="sglang")[1].max_num_batched_tokens for gpu in GPUS}
    assert [chunk[g] for g in ("L40S", "A100-SXM-40GB", "H100-SXM", "H20-SXM", "B200-SXM", "MI300X")] == [
        4096, 4096, 8192, 8192, 16384, 16384,
    ]  # fmt: skip
    share = sglang_static_share(GPUS["B200-SXM"], 1, 16384)
    assert share == pytest.approx(1 - (512 + 1.5 * 16384 + 1024 + 128) / (178.35 * 1024))
    small = roofline("H100", "Qwen/Qwen2.5-1.5B", engine="sglang", max_num_batched_tokens=512)[1]
    assert (small.max_num_seqs, small.max_num_batched_tokens) == (4096, 512), "decodes are not in the budget"


@pytest.mark.parametrize(
    ("slower", "faster"),
    [("A100-SXM-80GB", "H100-SXM"), ("H100-PCIe", "H100-SXM"), ("H100-SXM", "H200-SXM"), ("H200-SXM", "B200-SXM"),
     ("H20-SXM", "H200-SXM"), ("A100-SXM-40GB", "A100-SXM-80GB")],
)  # fmt: skip
@pytest.mark.parametrize("decodes", [1, 32, 256])
@pytest.mark.parametrize("prefill", [0, 512, 8192])
def test_a_faster_gpu_is_never_slower(slower: str, faster: str, decodes: int, prefill: int) -> None:
    for model in ("Qwen/Qwen2.5-7B", "Qwen/Qwen3-4B"):
        times = [iteration_s(gpu, model, 1, decodes, 1000, prefill, kv_blocks=10_000) for gpu in (slower, faster)]
        assert times[1] <= times[0] * 1.0001


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-70B", "Qwen/Qwen2.5-32B", "codellama/CodeLlama-34b-hf"])
@pytest.mark.parametrize(("decodes", "prefill"), [(1, 0), (64, 0), (256, 0), (64, 2048), (0, 8192)])
def test_more_gpus_are_never_slower_for_a_big_model(model: str, decodes: int, prefill: int) -> None:
    times = [iteration_s("H100", model, tp, decodes, 2000, prefill, kv_blocks=50_000) for tp in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)
    assert times[3] > times[0] / 8  # and never better than linear


def test_more_gpus_do_not_help_a_small_model_much() -> None:
    one, eight = (iteration_s("H100", "meta-llama/Llama-3.1-8B", tp, 1, 100) for tp in (1, 8))
    assert one / eight < 4  # latency of 64 all-reduces and launches stays


def test_every_combination_that_fits_is_monotone() -> None:
    combinations = list(some_that_fit())
    assert len(combinations) > 170
    for step_time, limits in combinations:
        assert step_time.kind == "roofline"
        assert np.all(np.diff(step_time.table(limits.max_num_batched_tokens)) >= 0)
        assert step_time.seconds(1) < step_time.seconds(1, kv_tokens=1000) < step_time.seconds(2, kv_tokens=2000)


@settings(max_examples=40, deadline=None)
@given(
    share=st.floats(0.05, 0.95),
    name=st.sampled_from(["bandwidth", "compute", "link", "prefill"]),
    model=st.sampled_from(["Qwen/Qwen2.5-32B", "Qwen/Qwen3-30B-A3B"]),
    decodes=st.integers(1, 256),
    prefill=st.integers(0, 8192),
)
def test_a_better_share_of_the_data_sheet_never_slows(
    share: float, name: str, model: str, decodes: int, prefill: int
) -> None:
    worse, better = (curves_of(changed(SHIPPED, {name: value})) for value in (share, 1.0))
    times = [iteration_s("H100", model, 2, decodes, 500, prefill, curves=c) for c in (worse, better)]
    assert times[1] <= times[0] * (1 + 1e-9)


def test_allreduce_is_near_the_published_latencies() -> None:
    # best kernel, 512 bytes, H100: sgl-project/sglang pull request 2904
    gpu = GPUS["H100-SXM"]
    for tp, seconds in {2: 3.7e-6, 4: 4.8e-6, 8: 5.9e-6}.items():
        assert allreduce_s(gpu, tp, 512, shipped_curves()) == pytest.approx(seconds, rel=0.35)
    assert allreduce_s(gpu, 1, 2**20, shipped_curves()) == 0
    assert allreduce_s(gpu, 2, GIB, IDEAL) == pytest.approx(GIB / 450e9)


# Bytes and seconds of NCCL's all-reduce over four GPUs that only PCIe joins, as published:
# gardenlinux/gardenlinux issue 4556; haohervchb/sglang-V100 pull request 2.
PCIE_MEASURED = [
    (2**18, 45.85e-6), (2**19, 84.93e-6), (2**20, 102.1e-6), (2**21, 192.3e-6), (2**17, 51.8e-6), (3 * 2**17, 83.5e-6),
]  # fmt: skip


@pytest.mark.parametrize("gpu", ["H100-PCIe", "L40S"])
def test_allreduce_over_pcie_matches_published_seconds(gpu: str) -> None:
    ratios = [allreduce_s(GPUS[gpu], 4, size, shipped_curves()) / s for size, s in PCIE_MEASURED]
    assert 0.8 < math.exp(fmean(map(math.log, ratios))) < 1.25
    assert 0.6 < min(ratios) < max(ratios) < 1.6


def test_limits_default_as_vllm_does_by_device() -> None:
    def limits(gpu: str, **more: Any) -> EngineLimits:
        return roofline(gpu, "Qwen/Qwen2.5-1.5B", **more)[1]

    assert (limits("H100").max_num_seqs, limits("H100").max_num_batched_tokens) == (1024, 8192)
    assert (limits("A100").max_num_seqs, limits("A100").max_num_batched_tokens) == (256, 2048)
    assert (limits("L40S").max_num_seqs, limits("L40S").max_num_batched_tokens) == (256, 2048)
    given_ = limits("H100", max_num_seqs=64, max_num_batched_tokens=512, kv_blocks=99, block_size=32)
    assert given_ == EngineLimits(64, 512, 99, 32)
    assert limits("H100", max_num_batched_tokens=512).max_num_seqs == 512


# What vLLM's profile run logged ("PyTorch activation peak memory takes", "reserved for KV Cache"), GiB.
@pytest.mark.parametrize(
    ("model", "visible", "utilization", "tokens", "weights", "peak", "kv"),
    [
        ("Qwen/Qwen2.5-Math-1.5B", 44.39, 0.85, 4096, 2.88, 1.40, 33.37),  # vLLM 0.7.2, NVIDIA L40
        ("meta-llama/Llama-3.1-8B", 79.14, 0.90, 2048, 14.99, 1.19, 54.93),  # vLLM 0.6, 80 GB GPU
    ],
)
def test_kv_memory_against_logged_profile_runs(
    model: str, visible: float, utilization: float, tokens: int, weights: float, peak: float, kv: float
) -> None:
    shape = model_shape(model)
    gpu = GpuSpec("logged", visible * GIB, 1e12, 1e14, None, 1e11, "log")
    assert shape.weight_bytes() / GIB == pytest.approx(weights, abs=0.05)  # the log counts rotary tables too
    assert activation_peak_bytes(shape, 1, 256, tokens) / GIB == pytest.approx(peak, abs=0.2)
    _, limits = roofline(
        gpu, shape, gpu_memory_utilization=utilization, max_num_seqs=256, max_num_batched_tokens=tokens
    )
    assert limits.kv_tokens * shape.kv_bytes_per_token() / GIB == pytest.approx(kv, rel=0.01)


def test_kv_blocks_against_a_recorded_engine() -> None:
    # vLLM 0.19.0, Llama-3.1-8B on an RTX 4090, a card that it nearly fills: casys-kaist/LLMServingSim, commit 5daddb2,
    # bench/examples/RTX4090/Llama-3.1-8B/vllm/meta.json (device_total_memory_bytes, num_gpu_blocks)
    gpu = GpuSpec("RTX 4090", 25_250_627_584, 1.008e12, 165.2e12, None, 32e9, "meta.json")
    _, limits = roofline(
        gpu, "meta-llama/Llama-3.1-8B", gpu_memory_utilization=0.9, max_num_seqs=256, max_num_batched_tokens=2048
    )
    assert limits.kv_blocks == pytest.approx(2588, rel=0.05)


def test_kv_capacity_follows_memory() -> None:
    tokens = [roofline("H100", "Qwen/Qwen2.5-7B", gpu_memory_utilization=u)[1].kv_tokens for u in (0.5, 0.7, 0.92)]
    per_share = 79.11 * GIB / 57_344
    assert np.diff(tokens) == pytest.approx(np.diff([0.5, 0.7, 0.92]) * per_share, rel=0.001)


def test_a_model_that_does_not_fit_says_what_would_help() -> None:
    with pytest.raises(
        InputError, match=r"must fit .*, but 131\.4 GiB weights.*leave no KV cache.*raise tp, use dtype fp8"
    ):
        roofline("H100", "meta-llama/Llama-3.1-70B")
    assert roofline("H100", "meta-llama/Llama-3.1-70B", tp=4)[1].kv_tokens > 400_000
    assert roofline("H200", "meta-llama/Llama-3.1-70B", dtype="fp8")[1].kv_tokens > 100_000


def test_fp8_halves_the_weights_and_speeds_up_both_ends() -> None:
    half, full = (iteration_s("H100", "Qwen/Qwen2.5-32B", 2, 1, 0, dtype=d) for d in ("fp8", "bfloat16"))
    assert half < 0.75 * full  # its launches, and its cache, are not halved
    half, full = (iteration_s("H100", "Qwen/Qwen2.5-32B", 2, 0, 0, 16384, dtype=d) for d in ("fp8", "bfloat16"))
    assert half < 0.75 * full


def test_names_and_aliases() -> None:
    assert gpu_spec("h100") is gpu_spec("NVIDIA H100-SXM") is GPUS["H100-SXM"]
    assert gpu_spec("a100") is GPUS["A100-SXM-80GB"]
    assert gpu_spec("mi300x").fp8_flop_s is not None
    with pytest.raises(InputError, match=r"did you mean H200-SXM\?"):
        gpu_spec("h200x")
    for wrong in ("TPU", "", None):
        with pytest.raises(InputError, match="known: A100"):
            gpu_spec(wrong)  # type: ignore[arg-type]


def test_data_sheets_are_dense_peaks_with_a_source() -> None:
    for gpu in GPUS.values():
        assert gpu.source
        assert gpu.fp8_flop_s is None or gpu.fp8_flop_s == pytest.approx(2 * gpu.bf16_flop_s, rel=0.02)
        assert 10 < gpu.bf16_flop_s / gpu.memory_bytes_s < 1000  # flop per byte at the ridge
        assert gpu.link_bytes_s < gpu.memory_bytes_s
        assert gpu.fp4_flop_s is None or 1.9 <= gpu.fp4_flop_s / gpu.flop_s("fp8") <= 4.1
        assert gpu.flop_s("fp4") == (gpu.fp4_flop_s or gpu.bf16_flop_s), "else weights are unpacked to 16 bits"


@pytest.mark.parametrize(
    ("name", "memory_gb", "bandwidth", "fp4"),
    [
        ("A100-PCIe", 80, 1.935, None),
        ("H100 NVL", 94, 3.9, None),
        ("B200", 192, 8.0, 9000),
        ("NVIDIA B300", 288, 8.0, 13500),
        ("GB200", 192, 8.0, 10000),
        ("GB300-NVL72", 288, 8.0, 15000),
        ("RTX 4090", 24, 1.008, None),
        ("rtx_5090", 32, 1.792, 1676),
        ("NVIDIA RTX PRO 6000", 96, 1.597, 2015),
        ("AMD MI325X", 256, 6.0, None),
        ("MI355X", 288, 8.0, 10066.3),
    ],
)
def test_the_gpus_of_2026(name: str, memory_gb: float, bandwidth: float, fp4: float | None) -> None:
    gpu = gpu_spec(name)
    assert gpu.memory_bytes_s == bandwidth * 1e12
    assert gpu.fp4_flop_s == (None if fp4 is None else fp4 * 1e12)
    # what a process sees is below the number on the box, which NVIDIA counts in GB or in GiB
    assert 0.9 * memory_gb * 1e9 < gpu.memory_bytes < memory_gb * GIB


def test_weights_in_four_bits_are_read_faster_and_multiplied_faster_where_the_gpu_can() -> None:
    model = "Qwen/Qwen3-32B"
    for gpu, gain in (("H100", 1.0), ("B200", 3.0)):
        wide, small = (roofline(gpu, model, dtype=dtype, curves=IDEAL)[0] for dtype in ("bfloat16", "nvfp4"))
        assert 2.5 < wide.seconds(1) / small.seconds(1) < 3.6
        assert wide.seconds(0, 8192) / small.seconds(0, 8192) == pytest.approx(gain, abs=1.0 if gain > 1 else 0.05)


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"tp": 3}, ["tp"]),
        ({"tp": 0}, ["tp"]),
        ({"tp": 5}, ["tp"]),
        ({"tp": 1.5}, ["tp"]),
        ({"dp": 0}, ["dp"]),
        ({"engine": "orca"}, ["engine"]),
        ({"dtype": "int3"}, ["dtype"]),
        ({"gpu_memory_utilization": 92}, ["gpu_memory_utilization"]),
        ({"gpu_memory_utilization": float("nan")}, ["gpu_memory_utilization"]),
        ({"max_num_seqs": 0, "kv_blocks": -1, "block_size": 1.5}, ["max_num_seqs", "kv_blocks", "block_size"]),
        ({"tp": -1, "dtype": "x", "max_model_len": True}, ["tp", "dtype", "max_model_len"]),
        ({"kv_blocks": 10, "max_model_len": 200}, ["max_model_len"]),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 32}, ["limits.max_num_batched_tokens"]),
    ],
)
def test_wrong_arguments_are_reported_together(arguments: dict[str, Any], paths: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        roofline("H100", "Qwen/Qwen3-32B", **arguments)
    assert [p.path for p in caught.value.problems] == paths


def test_roofline_stays_a_function_of_the_package() -> None:
    assert callable(fleetsim.engine.roofline)
    assert isinstance(fleetsim.engine.roofline("H200", "Qwen/Qwen3-8B")[0], StepTime)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d["hosts"]["vllm"].update(layer_s=float("nan")),
        lambda d: d["families"]["hopper"]["gemm"]["fp8"].update(knee=-1),
        lambda d: d["families"]["ampere"]["latent"].pop("compute"),
        lambda d: d["families"]["ampere"].update(gemm=[1]),
        lambda d: d.pop("passes"),
        lambda d: d["models"].update(m={"": float("inf")}),
        lambda d: d.update(hosts=3),
    ],
)
def test_spoiled_curve_files_are_input_errors(tmp_path: Path, spoil: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(json.dumps(SHIPPED))
    path = tmp_path / "curves.json"
    path.write_text(json.dumps(document))
    assert read_curves(path).hosts == shipped_curves().hosts
    spoil(document)
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="fit_engine"):
        read_curves(path)


def test_a_published_model_has_a_factor_by_its_sizes() -> None:
    """A fine-tune has that of its model; a model of which nothing was published, or a kind of engine, has none."""
    published, other = model_shape("meta-llama/Llama-3.1-70B"), model_shape("Qwen/Qwen2.5-7B")
    curves = curves_of({**SHIPPED, "models": {key_of(published): {"of": "it", "": 1.5, "sglang/8": 2.0}}})
    tune = replace(published, name="a fine-tune")
    found = [curves.factor_of(tune, engine, bits) for engine, bits in (("sglang", 8), ("sglang", 16), ("vllm", 8))]
    assert found == [3.0, 1.5, 1.5]
    assert curves.factor_of(other, "sglang", 8) == 1.0
    plain = curves_of({**SHIPPED, "models": {}})
    times = [
        roofline("H100", tune, 8, "fp8", engine="sglang", curves=c)[0].seconds(64, 0, 1e5) for c in (plain, curves)
    ]
    assert times[1] == pytest.approx(3.0 * times[0])


def test_every_gpu_has_the_curves_of_its_family_and_every_engine_a_host() -> None:
    curves = shipped_curves()
    assert {gpu.family for gpu in GPUS.values()} <= set(curves.families)
    assert all(gpu.processors > 0 for gpu in GPUS.values())
    assert set(curves.hosts) == {"vllm", "sglang", "tensorrt-llm"}


@given(
    st.lists(st.tuples(st.integers(0, 4096), st.floats(0.0, 1.0)), min_size=1, max_size=9, unique_by=lambda k: k[0]),
    st.integers(0, 9000),
)
def test_one_count_takes_what_the_kernel_s_table_says_to_the_last_bit(
    knots: list[tuple[int, float]], tokens: int
) -> None:
    counts, seconds = sorted(float(n) for n, _ in knots), sorted(s for _, s in knots)
    step_time = StepTime(tuple(counts), tuple(seconds))
    assert step_time.seconds(tokens) == step_time.table(tokens)[tokens]


@pytest.mark.parametrize(
    ("gpu", "heads", "tokens", "seconds"),
    [
        # NVIDIA's tables of Qwen3.5's prompts under SGLang 0.5.14 (aiconfigurator-core 0.12.0, gdn_perf): convolution
        # and delta rule of one layer, with the heads of one GPU of 1, 4 and 8.
        ("B200", 64, 65536, 8127e-6), ("B200", 16, 65536, 2138e-6), ("B200", 8, 65536, 1212e-6),
        ("H100", 64, 65536, 12749e-6), ("H100", 16, 65536, 2765e-6), ("H100", 8, 65536, 2153e-6),
    ],
)  # fmt: skip
def test_prompts_through_linear_attention_take_what_kernels_take(
    gpu: str, heads: int, tokens: int, seconds: float
) -> None:
    spec = gpu_spec(gpu)
    layer = next(b.mixer for b in model_shape("Qwen/Qwen3.5-397B-A17B").blocks if isinstance(b.mixer, StateMixer))
    found = core_of(Device(spec, shipped_curves().families[spec.family], 64 // heads), layer, 2, engine="sglang")
    assert tokens * found.prompt_token_s == pytest.approx(seconds, rel=0.45)
