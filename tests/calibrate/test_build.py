"""A profile from raw measurements: a pure function of them, with everything that was measured in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetsim import __version__
from fleetsim.calibrate.build import alike, build_profile, default_name, points_of, sync_of
from fleetsim.calibrate.engine_facts import facts_of
from fleetsim.calibrate.fit.design import observations_of
from fleetsim.calibrate.loads import Load
from fleetsim.calibrate.order import loads_in_order
from fleetsim.calibrate.raw import Raw, compress, raw_of, read_raw, records_of
from fleetsim.config.engine_profile import Profile, load_profile, profile_text
from fleetsim.errors import InputError
from tests.calibrate.fake_engine import CALM, SMALL, TRUTH, Weather, measured


def loads(kept_out: bool = True) -> list[Load]:
    return [load for load in loads_in_order(SMALL, quick=True) if not load.optional and (kept_out or not load.kept_out)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("build") / "a.raw.jsonl"
    measured(path, loads(), weather=Weather(noise=0.01))
    return path


@pytest.fixture(scope="module")
def profile(path: Path) -> Profile:
    return build_profile(read_raw(path), name="fake", raw_file="a.raw.jsonl.gz")


def test_it_says_all_that_was_measured(profile: Profile) -> None:
    assert profile.kind == "measured"
    assert profile.raw == "a.raw.jsonl.gz"
    assert profile.limits.kv_blocks == SMALL.kv_blocks
    assert profile.limits.max_num_seqs == SMALL.max_num_seqs
    assert profile.fit is not None
    assert profile.fit.median < 0.02
    assert [c.name for c in profile.checks] == ["rl_on", "rl_off"]
    assert profile.error.worst == max(abs(c.makespan_error) for c in profile.checks)
    assert profile.error.worst < 0.02
    assert profile.error.what == "makespan of 2 batches kept out of the fit"
    assert profile.prefix_cache is not None
    assert profile.prefix_cache.hit_tokens == profile.prefix_cache.expected_tokens > 0
    p = profile.provenance
    assert (p.source, p.engine, p.engine_version, p.tp, p.dtype) == ("vllm", "vllm", "0.0.fake", 1, "bfloat16")
    assert (p.gpu, p.gpu_count, p.driver) == ("NVIDIA Fake 141GB HBM3e", 1, "1.2.3")
    assert (p.model, p.date, p.fleetsim_version) == ("fake/Fake-7B", "2026-01-02", __version__)
    assert p.assumed == ()


def test_the_same_measurements_give_the_same_bytes(path: Path, profile: Profile, tmp_path: Path) -> None:
    copy = tmp_path / "copy.raw.jsonl"
    copy.write_bytes(path.read_bytes())
    again = build_profile(read_raw(compress(copy)), name="fake", raw_file="a.raw.jsonl.gz")
    assert profile_text(again) == profile_text(profile)
    (tmp_path / "p.json").write_text(profile_text(profile))
    assert load_profile(tmp_path / "p.json").coefficients == profile.coefficients


def test_points_are_the_medians_of_each_load(path: Path, profile: Profile) -> None:
    kinds = {p.kind: [q for q in profile.points if q.kind == p.kind] for p in profile.points}
    asked = {(load.phase, *((k, v) for k, v in load.label.items() if k != "pass")) for load in loads()}
    assert {k: len(v) for k, v in kinds.items()} == {
        kind: sum(load[0] == kind for load in asked) for kind in ("decode", "prefill", "mixed")
    }
    raw = read_raw(path)
    assert points_of(observations_of(raw), alike(raw)) == profile.points
    for p in kinds["decode"]:
        assert p.prefill_tokens == 0
        assert p.seconds == pytest.approx(TRUTH.seconds(int(p.decodes), 0, p.kv_tokens), rel=0.02)
        assert p.p90_s is not None
        assert p.p90_s >= p.seconds
    assert all(p.decodes == 0 for p in kinds["prefill"])
    assert all(p.decodes > 0 and p.prefill_tokens > 0 for p in kinds["mixed"])


def test_without_kept_out_batches_the_error_is_not_known(tmp_path: Path) -> None:
    raw = measured(tmp_path / "a.raw.jsonl", loads(kept_out=False), weather=CALM)
    profile = build_profile(raw, name="fake", raw_file=None)
    assert profile.checks == ()
    assert profile.error.median is None
    assert "no batch was kept out" in profile.error.what
    assert profile.prefix_cache is None


def test_measurements_cut_short_give_a_profile_or_say_what_is_missing(path: Path, tmp_path: Path) -> None:
    records, _ = records_of(path)
    outcomes = set()
    for n in range(3, len(records), 12):
        short = tmp_path / "short.raw.jsonl"
        short.write_text("".join(json.dumps(r) + "\n" for r in records[:n]) + '{"t":"it","ph":"dec')
        try:
            raw = read_raw(short)
            outcomes.add(build_profile(raw, name="fake", raw_file=None).kind)
        except InputError as error:
            assert error.problems
            outcomes.add("refused")
    assert outcomes == {"measured", "refused"}


@pytest.mark.parametrize(
    ("gpu", "model", "version", "name"),
    [
        ("NVIDIA H200", "Qwen/Qwen2.5-7B", "0.26.0", "h200-qwen2.5-7b-tp1-vllm-0.26.0"),
        ("NVIDIA H100 80GB HBM3", "/models/Llama-3.1-8B/", "0.26.0", "h100-llama-3.1-8b-tp1-vllm-0.26.0"),
        ("NVIDIA A100-SXM4-80GB", "m", "1.0+cu130", "a100-m-tp1-vllm-1.0"),
        ("NVIDIA H100 PCIe", "m", "1.0", "h100-pcie-m-tp1-vllm-1.0"),
        ("", "tiny", "0.32.0+cpu", "cpu-tiny-tp1-vllm-0.32.0"),
        ("", "m", "0.32.0", "m-tp1-vllm-0.32.0"),
        ("", 5000 * "m", "0.32.0", 200 * "m"),
    ],
)
def test_a_name_from_what_was_measured(path: Path, gpu: str, model: str, version: str, name: str) -> None:
    start = dict(read_raw(path).starts[-1])
    start.update(gpu={"name": gpu}, engine_args={"model": model}, vllm=version)
    assert default_name(facts_of(raw_of([start]))) == name


def of_phase(name: str, **fields: Any) -> Raw:
    return raw_of([{"t": "phase", "ph": name, **fields}])


def test_sync_costs_from_either_shape_of_their_record() -> None:
    weights = {
        "bytes": 15_231_233_024,
        "load_from_device_s": [0.11, 0.05, 0.06],
        "load_from_pinned_host_s": [0.5, 0.4, 0.45],
        "h2d_pinned_GBs": 55.0,
    }
    fields = {"pause_keep_s": 0.01, "resume_to_next_result_s": 0.02, "weights": weights, "slowdown": 1.2}
    for raw in (of_phase("sync", **fields), of_phase("misc", ok=True, res=fields)):
        cost = sync_of(raw)
        assert cost is not None
        assert (cost.pause_s, cost.resume_s, cost.load_s, cost.load_from_host_s) == (0.01, 0.02, 0.06, 0.45)
        assert (cost.model_bytes, cost.host_bytes_s, cost.slowdown) == (15_231_233_024, 55e9, 1.2)
        assert cost.broadcast_bytes_s is None
    assert sync_of(of_phase("decode", ok=True)) is None
    assert sync_of(of_phase("sync", weights_error="no")) is None
