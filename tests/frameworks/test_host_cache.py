"""Copies of KV blocks in host memory, in the words of each framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.config import load_scenario
from fleetsim.frameworks.convert import scenario_from
from fleetsim.frameworks.source import read_source

DATA = Path(__file__).parent / "data"
ENGINE = "actor_rollout_ref.rollout.engine_kwargs"


@pytest.mark.parametrize(
    ("framework", "file", "words", "path", "value"),
    [
        ("verl", "verl_sync.yaml", (), "kv_offloading_gib", None),
        ("verl", "verl_sync.yaml", (f"+{ENGINE}.vllm.kv_offloading_size=64",), "kv_offloading_gib", 64.0),
        (
            "verl", "verl_sync.yaml",
            ("actor_rollout_ref.rollout.name=sglang", f"+{ENGINE}.sglang.hicache_ratio=4"), "kv_offloading_ratio", 4.0,
        ),
        ("slime", "slime_sync.sh", ("--sglang-hicache-ratio", "3"), "kv_offloading_ratio", 3.0),
        (
            "areal", "areal.yaml", ("sglang.hicache_ratio=2.5", "sglang.disable_radix_cache=false"),
            "kv_offloading_ratio", 2.5,
        ),
        # What vLLM's connector is given is of an engine, in bytes.
        (
            "prime-rl", "prime_rl.toml", ("--inference.kv_cache_offload.cpu.num_bytes", str(96 * 2**30)),
            "kv_offloading_gib", 96.0,
        ),
        # A store's are of a node: an engine of two of its eight GPUs has a quarter.
        (
            "prime-rl", "prime_rl.toml",
            (
                "--inference.kv_cache_offload.cpu.num_bytes", str(96 * 2**30),
                "--inference.kv_cache_offload.type", "mooncake",
            ),
            "kv_offloading_gib", 24.0,
        ),
    ],
)  # fmt: skip
def test_what_a_configuration_says_of_host_memory(
    framework: str, file: str, words: tuple[str, ...], path: str, value: float | None, tmp_path: Path
) -> None:
    imported = scenario_from(framework, read_source(str(DATA / file), words), file, ())
    assert getattr(imported.scenario.engine, path) == value
    written = tmp_path / "scenario.yaml"
    written.write_text(imported.text)
    assert getattr(load_scenario(str(written)).engine, path) == value
