"""GPUs of an instance that nobody gave: the size with the cheapest tokens among those that hold the job's samples."""

from __future__ import annotations

from typing import Any

import pytest

import fleetsim as fs
from fleetsim.config import with_changes
from fleetsim.errors import InputError
from fleetsim.job.job import job_from_flags
from fleetsim.job.nameplate import nameplate_rate
from fleetsim.sim.engines import engine_of


def tp_of(**flags: Any) -> int:
    return job_from_flags(None, [], {"batch": 512, "len": 1536, **flags}).scenario.engine.tp


@pytest.mark.parametrize(
    ("model", "gpu", "tp"),
    [
        ("Qwen/Qwen2.5-7B", "H100", 1),
        ("Qwen/Qwen2.5-32B", "H100", 4),  # 61 GiB of weights leave 7 GiB for the cache of one GPU
        ("meta-llama/Llama-3.1-70B", "H100", 4),  # two GPUs hold the weights and 5 samples
        ("meta-llama/Llama-3.1-70B", "MI300X", 2),
        ("deepseek-ai/DeepSeek-V3", "H20", 8),
        ("deepseek-ai/DeepSeek-V3", "H100", 16),  # 671 GB in fp8 fit no eight of 80 GB
    ],
)
def test_the_size_follows_the_model_and_the_gpu(model: str, gpu: str, tp: int) -> None:
    assert tp_of(model=model, gpu=gpu) == tp


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-14B", "Qwen/Qwen2.5-32B", "Qwen/Qwen3-30B-A3B"])
@pytest.mark.parametrize("gpu", ["H100", "L40S", "B200"])
def test_no_other_size_is_cheaper_by_more_than_what_more_gpus_must_pay(model: str, gpu: str) -> None:
    """Tokens per second and GPU of every size, by the nameplate's own arithmetic."""
    job = job_from_flags(None, [], {"batch": 512, "len": 1536, "gpu": gpu, "model": model}).scenario
    rates = {}
    for tp in (1, 2, 4, 8):
        try:
            rates[tp] = nameplate_rate(with_changes(job, {"engine.tp": tp}))(1) / tp
        except InputError:
            continue
    assert max(rates.values()) <= 1.03 * rates[job.engine.tp]
    assert job.engine.tp == min(tp for tp in rates if rates[tp] >= rates[job.engine.tp])


def test_what_is_given_stays_and_what_is_chosen_is_told_with_its_flag() -> None:
    assert tp_of(model="Qwen/Qwen2.5-32B", tp=2) == 2
    assert job_from_flags({"engine": {"model": "Qwen/Qwen2.5-32B", "tp": 1}}, [], {}).scenario.engine.tp == 1
    # 64 samples and a batch ahead do not fill the cache of four GPUs.
    found = fs.load(batch=64, model="Qwen/Qwen2.5-32B", steps=6).size(replications=1)
    assert "TP2 (2 GPUs per instance: the cheapest that fits)" in " ".join(found.explained.split())
    assert any(a["path"] == "engine.tp" and a["flag"] == "--tp" for a in found.to_dict()["assumptions"])


def test_a_longer_job_takes_the_size_that_holds_its_longest_sample() -> None:
    """One H100 holds 27,000 tokens beside the weights of 32B: fewer than a sample of 32,000."""
    long = {"model": "Qwen/Qwen2.5-32B", "len": 8000, "max_len": 32_000}
    job = job_from_flags(None, [], {"batch": 8, "group_size": 8, **long}).scenario
    assert engine_of(job)[1].kv_tokens > 32_512
    assert engine_of(with_changes(job, {"engine.tp": 1}))[1].kv_tokens < 32_512


def test_a_model_that_fits_no_four_servers_is_refused_for_a_whole_one() -> None:
    with pytest.raises(InputError, match="L4 x8"):
        tp_of(model="deepseek-ai/DeepSeek-V3", gpu="L4")


def test_stages_that_are_given_share_the_server() -> None:
    job = job_from_flags({"engine": {"model": "Qwen/Qwen2.5-32B", "pp": 4}}, [], {"batch": 512, "len": 1536})
    assert job.scenario.engine.tp * 4 <= 8


def test_a_model_that_fits_no_server_takes_the_fewest_that_hold_it() -> None:
    assert tp_of(model="deepseek-ai/DeepSeek-V3", gpu="H100") == 16
    assert tp_of(model="deepseek-ai/DeepSeek-V3", gpu="H100", dtype="bfloat16") == 32


def test_a_measured_or_constant_engine_keeps_its_own() -> None:
    assert job_from_flags(None, [], {"instance_tok_s": 4000.0}).scenario.engine.tp == 1
