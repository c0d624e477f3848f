"""LoRA adapters in an engine: their size as published, their memory and seconds, and what a weight sync sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.layout import Layout
from fleetsim.engine.model.mixers import LatentAttention
from fleetsim.engine.model.mlps import Dense, Mixture
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.shape import Block, ModelShape
from fleetsim.engine.operators.adapters import KERNEL_S, Adapters
from fleetsim.engine.transport import transfer_of
from fleetsim.errors import InputError
from fleetsim.job.engine_source import engine_source
from fleetsim.sim.engines import engine_of, in_engine

LLAMA = "meta-llama/Llama-2-7b-hf"


def job(lora: dict[str, Any] | None, **engine: Any) -> Scenario:
    changes = {"engine.model": LLAMA, "engine.slowdown": 1.0, **{f"engine.{k}": v for k, v in engine.items()}}
    return with_changes(default_scenario(), {**changes, "engine.lora": lora})


@pytest.mark.parametrize(
    ("model", "params"), [(LLAMA, 39_976_960), ("meta-llama/Llama-3.1-8B", 41_943_040), ("Qwen/Qwen2.5-7B", 40_370_176)]
)
def test_rank_16_on_all_matrices_has_the_published_count(model: str, params: int) -> None:
    shape = model_shape(model)
    layers = sum(b.count for b in shape.blocks)
    assert Adapters(16).bytes_each(shape) == 2 * params
    assert Adapters(16).tensors(shape) == layers * 7 * 2


def test_skyrls_adapter_of_a_mixture() -> None:
    """NovaSky-AI/SkyRL#2221: GLM-4.7-Flash, rank 32: 2.0 GB, 18,040 tensors. As many are all but four matrices of
    attention in each layer, which are 4 % of the bytes."""
    attention = LatentAttention(20, 768, 512, 192, 64, 256)
    blocks = Block(1, attention, Dense(10240)), Block(46, attention, Mixture(64, 4, 1536, 1536))
    shape = ModelShape("zai-org/GLM-4.7-Flash", 2048, 154880, blocks)
    whole = Adapters(32)
    assert whole.tensors(shape) - 47 * 4 * 2 == 18_040
    assert 0.96 * whole.bytes_each(shape) / 1e9 == pytest.approx(2.0, rel=0.05)
    assert Adapters(32, experts=False).bytes_each(shape) < 0.1 * whole.bytes_each(shape)


def test_on_several_gpus_one_of_a_pair_stays_whole() -> None:
    """By hand, Llama-2-7B, rank 8, 2 GPUs: columns keep A, rows keep B."""
    hidden, width, r, tp = 4096, 11008, 8, 2
    columns = r * (3 * hidden + 3 * hidden / tp) + r * (2 * hidden + 2 * width / tp)
    rows = r * (hidden / tp + hidden) + r * (width / tp + hidden)
    assert Adapters(8, 3).bytes_per_gpu(model_shape(LLAMA), Layout(tp)) == 3 * 32 * 2 * (columns + rows)


def test_an_iteration_takes_its_kernels_and_what_they_move() -> None:
    plain, adapted = (engine_of(job(lora))[0] for lora in (None, {"rank": 16}))
    kernels_s = 32 * 4 * 2 * KERNEL_S
    added = [adapted.seconds(n) - plain.seconds(n) for n in (1, 64, 1024)]
    assert kernels_s < added[0] < 1.1 * kernels_s
    assert added[0] < added[1] < added[2]
    # 1,024 tokens: inputs once and outputs twice of 2 bytes, and little more, from a memory of 3.35 TB/s
    moved = 1024 * 32 * 2 * ((4096 * 3 + 11008) + 2 * (3 * 4096 + 2 * 11008 + 2 * 4096))
    assert added[2] - kernels_s > moved / 3.35e12
    more = engine_of(job({"rank": 256, "max_loras": 4}))[0]
    assert np.all(np.asarray(more.knots_s) > np.asarray(adapted.knots_s))


def test_an_answer_says_that_nobody_checked_the_seconds() -> None:
    assert "LoRA adapters" not in engine_source(job(None), 4).accuracy
    assert (
        "of runs without LoRA adapters, what those take is not checked" in engine_source(job({"rank": 8}), 4).accuracy
    )


def test_adapters_take_cache() -> None:
    plain, adapted = (engine_of(job(lora))[1] for lora in (None, {"rank": 64, "max_loras": 8}))
    block = 32 * 2 * 4096 * 2 * 16  # layers, keys and values, width, bytes, tokens
    held = Adapters(64, 8).bytes_per_gpu(model_shape(LLAMA), Layout(1))
    assert plain.kv_blocks - adapted.kv_blocks == -(-held // block)
    assert engine_of(job({"rank": 64}, kv_blocks=1000))[1].kv_blocks == 1000


def test_a_sync_sends_the_adapter_alone() -> None:
    def moved(lora: dict[str, Any] | None) -> tuple[float, int]:
        found = transfer_of(with_changes(job(lora), {"sync.transport": "collective_broadcast"}))
        return found.model_bytes, found.tensors

    assert moved({"rank": 16, "max_loras": 4}) == (2 * 39_976_960, 448)
    assert moved(None)[0] == model_shape(LLAMA).weight_bytes()


@pytest.mark.parametrize(
    ("lora", "engine", "key"),
    [({"rank": 1024, "max_loras": 1000}, {}, "engine.lora.max_loras"), ({"rank": 8}, {"pp": 2}, "engine.pp")],
)
def test_what_cannot_be_is_told_under_its_key(lora: dict[str, Any], engine: dict[str, Any], key: str) -> None:
    scenario = job(lora, **engine)
    with pytest.raises(InputError) as caught:
        engine_of(scenario)
    assert [p.path for p in in_engine(scenario, caught.value)] == [key]


def test_a_measured_engine_has_them_in_its_seconds() -> None:
    with pytest.raises(InputError, match="says nothing of adapters"):
        job({"rank": 8}, kind="constant", instance_tok_s=500.0)
