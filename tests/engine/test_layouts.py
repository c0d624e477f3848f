"""Layouts of one engine: memory by hand from published sizes, links against published seconds, stages and ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.config.load import scenario_from_mapping
from fleetsim.engine import roofline
from fleetsim.engine.gpus import GPUS, gpu_of, gpu_spec
from fleetsim.engine.kv_memory import stage_bytes
from fleetsim.engine.layout import Layout, near
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.operators.curves import shipped_curves
from fleetsim.engine.operators.device import Device, experts_s
from fleetsim.engine.transport import transfer_of
from fleetsim.errors import InputError
from fleetsim.job.job import job_from_flags
from fleetsim.sim.engines import engine_of

GIB = 2**30
DEEPSEEK, LLAMA = "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.1-405B"


def device(gpu: str, tp: int = 1) -> Device:
    spec = gpu_spec(gpu)
    return Device(spec, shipped_curves().families[spec.family], tp)


# ---------------------------------------------------------------------------------------------------------- memory


def test_latents_routers_and_norms_are_whole_on_every_gpu() -> None:
    """DeepSeek-V3 by its config.json: 61 layers, hidden 7168, latents of 1536 + 576, 58 routers of 256 experts."""
    shape = model_shape(DEEPSEEK)
    latents = 61 * 7168 * (1536 + 512 + 64)
    norms = 61 * (2 * 7168 + 1536 + 512) + 7168
    whole = latents + norms + 58 * 7168 * 256
    # all of it in fp8, as the shape has it, but for the embedding and the head in 16 bits
    divided = (shape.weight_bytes("fp8") - whole) / 8
    assert shape.weight_bytes_per_gpu(8, 1, "fp8") == pytest.approx(whole + divided, rel=1e-6)
    assert shape.weight_bytes_per_gpu(8, 1, "fp8") - shape.weight_bytes("fp8") / 8 == pytest.approx(0.9e9, abs=0.05e9)


def test_keys_and_values_of_few_heads_are_copied() -> None:
    """Qwen2.5-1.5B has 2 heads of keys and values: on 4 GPUs each holds one, and half of them are copies."""
    shape = model_shape("Qwen/Qwen2.5-1.5B")
    extra = shape.layer_bytes_per_gpu(4) - (shape.layer_bytes_per_gpu(2) / 2)
    kv_layer, whole = 2 * 128 * 1536, 2 * 1536 + 12 * 128 + 4 * 128  # the norms, and the biases of q, k and v
    assert extra == pytest.approx(28 * 2 * (kv_layer / 2 + whole / 2))


@pytest.mark.parametrize(
    ("engine", "layers", "stages"),
    [
        ("vllm", 61, [15, 15, 16, 15]), ("vllm", 62, [15, 16, 16, 15]), ("sglang", 62, [15, 15, 16, 16]),
        ("tensorrt-llm", 62, [16, 16, 15, 15]), ("vllm", 64, [16, 16, 16, 16]),
    ],
)  # fmt: skip
def test_layers_are_dealt_as_each_engine_does(engine: str, layers: int, stages: list[int]) -> None:
    assert list(Layout(pp=4).stages(layers, engine)) == stages


def test_stages_hold_their_layers_and_the_ends() -> None:
    """Llama-3.1-405B in bf16: 126 layers of 3.19 billion weights, embedding and head of 128,256 x 16,384 each."""
    layer = 16384 * (16384 + 2 * 1024) + 16384 * 16384 + 3 * 16384 * 53248 + 2 * 16384
    head = 128256 * 16384
    first, second = stage_bytes(model_shape(LLAMA), Layout(8, pp=2), "vllm", "bfloat16")
    assert first == pytest.approx(2 * (63 * layer + head) / 8, rel=1e-4)
    assert second == pytest.approx(first, rel=1e-4)


def test_two_stages_hold_what_one_server_cannot() -> None:
    with pytest.raises(InputError, match="must fit H100-SXM x8"):
        roofline("H100", LLAMA, tp=8, dtype="bfloat16")
    for more in ({"tp": 16}, {"tp": 8, "pp": 2}):
        assert roofline("H100", LLAMA, dtype="bfloat16", **more)[1].kv_tokens > 200_000
    # 8 heads of keys and values: 16 GPUs in one stage hold each twice, two stages of 8 once
    wide, staged = (
        roofline("H100", LLAMA, dtype="bfloat16", max_num_seqs=64, **more)[1].kv_tokens
        for more in ({"tp": 16}, {"tp": 8, "pp": 2})
    )
    assert staged == pytest.approx(2 * wide, rel=0.06)


# ------------------------------------------------------------------------------------------------- across servers


@given(st.integers(1, 96), st.sampled_from([1, 2, 4, 8, 72]), st.sampled_from([1, 2, 4, 8]))
def test_groups_fill_servers_evenly(gpus: int, node: int, stride: int) -> None:
    inside = near(gpus, node, stride)
    assert gpus % inside == 0
    assert inside <= max(1, node // stride)


def test_an_allreduce_over_two_servers_starts_as_nccl_says() -> None:
    """NVIDIA/nccl issue 1453: 128 bytes over two servers of eight H100 take 25.2 us by NCCL's own estimate."""
    assert float(device("H100").allreduce_s(16, np.array(128.0))) == pytest.approx(25.2e-6, rel=0.02)
    inside, across = (float(device("H100").allreduce_s(g, np.array(float(GIB)))) for g in (8, 16))
    # NVIDIA/nccl-tests issue 290: 46 to 48 of 50 GB/s per card; eight cards carry both halves of a server's sum
    assert across - inside == pytest.approx(GIB / 8 / 47e9, rel=0.1)


# Published seconds of DeepEP on H800 with cards of 400 Gb/s, few tokens: 128 of hidden 7168, top 8, there
# in fp8 and back in bf16 (deepseek-ai/DeepEP, docs/legacy.md).
DEEPEP = {8: (77, 114), 16: (118, 195), 32: (155, 273), 64: (173, 314), 128: (192, 369), 256: (194, 360)}


@pytest.mark.parametrize("gpus", DEEPEP)
def test_tokens_reach_their_experts_in_deepep_s_time(gpus: int) -> None:
    tokens, rows = np.array(128.0), (7168 * (1 + 4 / 128), 7168 * 2.0)
    there, back = (1e6 * float(device("H800").exchange_s("few", gpus, tokens, 8, row)) for row in rows)
    assert (there, back) == pytest.approx(DEEPEP[gpus], rel=0.15)


def test_experts_that_get_their_tokens_take_what_nvidia_measured() -> None:
    """DeepSeek-V3's, in fp8, evenly visited, on H100 (aiconfigurator-core 0.12.0, sglang 0.5.10,
    `wideep_generation_moe` and `wideep_context_moe`): 8,192 tokens of all 64 GPUs in 0.110 ms; of 262,144 of 32 GPUs
    7.19 ms, of which 2.0 passes over all are that program's own (2.27 ms, as `calibration/kernels.py` finds)."""
    gpu, family = gpu_spec("H100"), shipped_curves().families["hopper"]
    expert, each = (3 * 7168 * 2048, 7168 + 2048), 3 * 7168 * 2048
    for kind, tokens, gpus, seconds in (("few", 8192, 64, 0.110e-3), ("many", 262_144, 32, 7.19e-3 - 2.27e-3)):
        rows, stored = np.array(tokens * 8 / gpus), np.array(256 / gpus * each)
        found = experts_s(gpu, family.grouped[kind], gpu.flop_s("fp8"), stored, rows, expert)
        assert float(found) == pytest.approx(seconds, rel=0.1)


def test_one_domain_of_72_is_one_server() -> None:
    times = [roofline(gpu, LLAMA, tp=16, dtype="fp8")[0].seconds(1) for gpu in ("GB200", "B200")]
    assert times[0] < 0.75 * times[1], "B200 crosses its network, GB200 does not"


def test_a_card_of_ones_own() -> None:
    slow = scenario_from_mapping({"engine": {"gpu": "H100", "nic_gb_s": 1.5}}).engine
    assert (gpu_of(slow).nic_bytes_s, GPUS["H100-SXM"].nic_bytes_s, GPUS["L40S"].nic_bytes_s) == (1.5e9, 50e9, 12.5e9)
    wide = {"model": "Qwen/Qwen2.5-72B", "tp": 16}
    fast, slow_s = (
        engine_of(scenario_from_mapping({"engine": {**wide, **more}}))[0].seconds(0, 8192)
        for more in ({}, {"nic_gb_s": 1.5})
    )
    assert slow_s > 2 * fast


# ----------------------------------------------------------------------------------------------------- the stages


def test_a_round_of_stages_is_bounded_by_hand() -> None:
    """One sequence crosses all layers as in one stage; many keep all stages busy, and the slowest sets the pace."""
    one, two = (roofline("H100", "meta-llama/Llama-3.1-70B", tp=4, pp=pp)[0] for pp in (1, 2))
    assert one.seconds(1) < two.seconds(1) < one.seconds(1) + 1e-3
    # 512 decodes: two batches of 256, each through all layers; not half of the time, because each reads all weights
    alone = one.seconds(256, 0, 256 * 1000)
    assert alone < two.seconds(512, 0, 512 * 1000) < 1.1 * alone
    # prompts that fill both batches: twice the tokens in the time of one batch
    assert two.seconds(0, 16384) == pytest.approx(one.seconds(0, 8192), rel=0.06)


def test_each_batch_in_flight_has_its_own_budget_of_tokens() -> None:
    one, three = (roofline("H100", "Qwen/Qwen3-8B", pp=pp, max_num_batched_tokens=4096)[1] for pp in (1, 3))
    assert (one.max_num_batched_tokens, three.max_num_batched_tokens) == (4096, 3 * 4096)
    assert one.max_num_seqs == three.max_num_seqs, "one scheduler"


def test_uneven_stages_wait_for_the_longest() -> None:
    """36 layers in 5 stages: 8 on one of them, so that a full pipeline takes 5 x 8 layers' time and not 36."""
    shape = model_shape("Qwen/Qwen3-8B")
    assert max(Layout(pp=5).stages(shape.layers, "vllm")) == 8
    even, uneven = (roofline("H100", shape, pp=pp)[0] for pp in (4, 5))
    assert uneven.per_kv_token_s / even.per_kv_token_s == pytest.approx((8 / 36) / (9 / 36))
    assert uneven.per_attn_pair_s / even.per_attn_pair_s == pytest.approx(8 / 9)


def taking_turns_s(computed_s: float, exchanged_s: float, held: float, rounds: int = 300) -> float:
    """Seconds of a layer of two batches that take turns at the GPU and at the network, step by step. Each computes,
    holds the GPU for the first part of its exchange, and waits for the rest of it."""
    gpu = network = 0.0
    ready = [0.0, 0.0]
    marks = []
    for _ in range(rounds):
        for batch in (0, 1):
            sent = max(gpu, ready[batch]) + computed_s
            sent = max(sent, network)
            gpu, network = sent + held * exchanged_s, sent + exchanged_s
            ready[batch] = network
        marks.append(network)
    return (marks[-1] - marks[rounds // 2]) / (rounds - 1 - rounds // 2)


@given(st.floats(0.1, 3.0), st.floats(0.1, 3.0))
def test_two_batches_take_what_two_that_take_turns_do(computed_s: float, exchanged_s: float) -> None:
    """`Device.beside_s` is one batch's part. The network is the GPU's own, so that exchanges follow each other."""
    one = float(device("H100").beside_s(np.array(computed_s), np.array(exchanged_s), np.array(0.0)))
    assert taking_turns_s(computed_s, exchanged_s, 0.4) == pytest.approx(2 * one, rel=0.01)


def circulating_s(stages: list[float], batches: int, rounds: int = 400) -> float:
    """Seconds of a round, batch by batch and stage by stage: a batch starts again when it has left the last stage."""
    free, ready = [0.0] * len(stages), [0.0] * batches
    marks = []
    for _ in range(rounds):
        for batch in range(batches):
            for stage, seconds in enumerate(stages):
                ready[batch] = free[stage] = max(free[stage], ready[batch]) + seconds
        marks.append(ready[-1])
    return (marks[-1] - marks[rounds // 2]) / (rounds - 1 - rounds // 2)


@given(st.lists(st.floats(0.1, 3.0), min_size=2, max_size=8), st.integers(1, 8))
def test_a_round_ends_with_the_first_batch_or_the_slowest_stage(stages: list[float], batches: int) -> None:
    """The formula of `Layers.tokens_s` against batches that circulate."""
    batches = min(batches, len(stages))
    expected = max(sum(stages), batches * max(stages))
    assert circulating_s(stages, batches) == pytest.approx(expected, rel=0.01)


# ------------------------------------------------------------------------------------------- contexts over several GPUs


def test_a_latent_cache_is_divided_among_the_gpus_that_copied_it() -> None:
    whole, divided = (roofline("H200", DEEPSEEK, tp=8, dcp=dcp) for dcp in (1, 8))
    assert divided[1].kv_tokens == pytest.approx(8 * whole[1].kv_tokens, rel=1e-3)
    assert divided[0].per_kv_token_s < whole[0].per_kv_token_s
    assert divided[0].seconds(1) > whole[0].seconds(1), "the queries are gathered, and the parts added up"
    assert divided[0].seconds(0, 8192) == pytest.approx(whole[0].seconds(0, 8192), rel=0.01)


# ------------------------------------------------------------------------------------------------------- in scenarios


def scenario(**engine: Any) -> Any:
    return scenario_from_mapping({"engine": {"gpu": "H200", "model": DEEPSEEK, **engine}, "trainer": {"gpus": 64}})


def test_gpus_of_an_instance_are_those_of_all_stages() -> None:
    assert scenario(tp=8, pp=2).engine.gpus == 16


def test_a_sync_brings_each_gpu_its_own_part() -> None:
    """Of 32 ranks a GPU keeps the attention whole and 8 of 256 experts."""
    sync = {"sync": {"transport": "rdma_p2p"}}
    job = scenario_from_mapping(
        {"engine": {"gpu": "H200", "model": DEEPSEEK, "dp": 32}, "fleet": {"instances": 32}, **sync}
    )
    shape = model_shape(DEEPSEEK)
    assert transfer_of(job).gpu_bytes == pytest.approx(shape.weight_bytes_per_gpu(1, 32, "fp8"), rel=1e-6)
    assert transfer_of(job).gpu_bytes < 0.06 * shape.weight_bytes("fp8")
    stages = scenario_from_mapping({"engine": {"gpu": "H200", "model": DEEPSEEK, "tp": 8, "pp": 2}, **sync})
    assert transfer_of(stages).gpu_bytes == max(stage_bytes(shape, Layout(8, pp=2), "vllm"))


def test_ranks_across_servers_send_tokens_to_experts() -> None:
    near_by, far = (roofline("H200", DEEPSEEK, dp=dp)[0] for dp in (8, 32))
    gathered = roofline("H200", DEEPSEEK, dp=32, expert_exchange="gather")[0]
    # many tokens: gathering all of them everywhere costs more than sending each to its eight experts
    assert far.seconds(512) < gathered.seconds(512)
    assert all(math.isfinite(s.seconds(512)) for s in (near_by, far, gathered))


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"tp": 16}, "16 GPUs over 2 servers: "),
        ({"tp": 8, "pp": 2, "dcp": 4}, "2 pipeline stages and a cache divided by 4: "),
        ({"tp": 8}, ""),
        ({"dp": 8}, ""),
    ],
)
def test_an_answer_says_which_layouts_nobody_published(engine: dict[str, int], words: str) -> None:
    notes = job_from_flags({"engine": {"gpu": "H200", "model": DEEPSEEK, **engine}}, [], {}).notes
    found = [note for note in notes if "no published run has such a layout" in note]
    assert [note.startswith(words) for note in found] == ([True] if words else [])


def test_an_answer_says_how_right_ranks_across_servers_were() -> None:
    notes = job_from_flags({"engine": {"gpu": "H200", "model": DEEPSEEK, "dp": 32}}, [], {}).notes
    (note,) = (note for note in notes if "32 GPUs over 4 servers" in note)
    assert "0.85 to 1.08" in note


@pytest.mark.parametrize(
    ("arguments", "path", "rule"),
    [
        ({"pp": 100}, "pp", "at most the 36 layers"),
        ({"pp": 0}, "pp", "an integer >= 1"),
        ({"dcp": 2}, "dcp", "a divisor of tp 1"),
        ({"tp": 8, "dcp": 2}, "dcp", "at most the 1 GPUs"),
        ({"tp": 32, "dcp": 8}, "dcp", "at most the 4 GPUs"),
        ({"expert_exchange": "post"}, "expert_exchange", "one of auto, gather, all_to_all"),
    ],
)
def test_layouts_that_cannot_be(arguments: dict[str, Any], path: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        roofline("H100", "Qwen/Qwen3-8B", **arguments)
    (problem,) = caught.value.problems
    assert (problem.path, rule in problem.rule) == (path, True)
