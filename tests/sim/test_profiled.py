"""A scenario takes its profile's facts, says nothing against them, and runs with what the profile has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError
from fleetsim.job.profile_facts import as_profiled
from fleetsim.sim.engines import engine_of, profile_of, step_time_of
from tests import profiles


def scenario(file: str, **changes: Any) -> Scenario:
    return with_changes(default_scenario(), {"engine.kind": "measured", "engine.profile": file, **changes})


def two_gpus(folder: Path) -> str:
    return profiles.profile_file(
        folder,
        provenance=profiles.provenance(tp=2),
        prefix_cache={"enabled": False, "hit_tokens": 0, "expected_tokens": 0},
        limits={"max_num_seqs": 256, "max_num_batched_tokens": 8192, "kv_blocks": 9000, "block_size": 32},
    )


def test_what_the_scenario_does_not_say_comes_from_the_profile(tmp_path: Path) -> None:
    found = as_profiled(scenario(two_gpus(tmp_path)), {"engine.kind", "engine.profile"})
    e = found.scenario.engine
    assert (e.tp, e.block_size, e.prefix_caching) == (2, 32, False)
    assert (e.gpu, e.model, e.dtype) == ("NVIDIA H200", "Qwen/Qwen2.5-7B", "bfloat16")
    assert found.facts == {"engine.tp"}
    assert found.notes == ()
    _, limits = engine_of(found.scenario)
    assert (limits.max_num_seqs, limits.kv_blocks, limits.block_size) == (256, 9000, 32)


def test_what_it_says_wins_where_it_may(tmp_path: Path) -> None:
    given = {"engine.prefix_caching", "engine.tp", "engine.gpu", "engine.model"}
    s = scenario(two_gpus(tmp_path), **{"engine.tp": 2, "engine.gpu": "B200", "engine.model": "local/qwen2.5-7b/"})
    found = as_profiled(s, given)
    assert found.scenario.engine.prefix_caching is True
    assert len(found.notes) == 1, "the model is the same by its last part"
    assert "engine.gpu B200 is not used" in found.notes[0]
    assert "NVIDIA H200" in found.notes[0]


@pytest.mark.parametrize(
    ("name", "measured", "same"),
    [
        ("H100-SXM", "NVIDIA H100 80GB HBM3", True),
        ("A100-SXM-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("H100-SXM", "NVIDIA H200", False),
        ("L40S", "NVIDIA L40", False),
        ("cpu", "", True),
    ],
)
def test_gpus_are_the_same_by_their_chip(tmp_path: Path, name: str, measured: str, same: bool) -> None:
    file = profiles.profile_file(tmp_path, provenance=profiles.provenance(gpu=measured))
    found = as_profiled(scenario(file, **{"engine.gpu": name}), {"engine.gpu"})
    assert bool(found.notes) is not same


def test_contradictions_are_told_all_at_once(tmp_path: Path) -> None:
    s = scenario(two_gpus(tmp_path), **{"engine.tp": 4, "engine.block_size": 16})
    with pytest.raises(InputError) as caught:
        as_profiled(s, {"engine.tp", "engine.block_size"})
    assert [p.path for p in caught.value.problems] == ["engine.tp", "engine.block_size"]
    assert "use tp 2" in caught.value.problems[0].remedy


def test_nobody_runs_a_profile_on_another_number_of_gpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="measured with 2 GPUs per instance"):
        engine_of(scenario(two_gpus(tmp_path)))
    silent = profiles.profile_file(tmp_path, "silent.json", provenance=profiles.provenance(tp=None))
    engine_of(scenario(silent, **{"engine.tp": 4}))


def test_a_scenario_without_a_profile_stays_as_it_is() -> None:
    s = default_scenario()
    assert as_profiled(s, ()).scenario is s
    assert profile_of(s) is None


def test_a_profile_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    file = profiles.profile_file(tmp_path)
    s = scenario(file)
    first = profile_of(s)
    assert profile_of(s) is first
    place = Path(file)
    place.write_text(json.dumps({**profiles.mapping(), "name": "another"}))
    os.utime(place, ns=(1, 1))
    again = profile_of(s)
    assert again is not None
    assert again.name == "another"
    place.unlink()
    with pytest.raises(InputError, match="no such file"):
        profile_of(s)


def test_the_step_time_is_the_profile_s_numbers() -> None:
    t = step_time_of(profiles.profile())
    assert isinstance(t, StepTime)
    for load in ((8, 0, 4096.0, 0.0), (0, 2048, 0.0, 2e6), (256, 512, 1e6, 1e5), (5000, 20_000, 0.0, 0.0)):
        b, p, kv, pairs = load
        assert t.seconds(b, p, kv, pairs) == pytest.approx(profiles.seconds(b, kv, p, pairs), rel=1e-12)
