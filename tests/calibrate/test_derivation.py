"""Profiles from other tools' results: they predict a load that no file held, and say what they rest on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.derivation import LEAST_SIGMA, derive_profile, estimate_profile, roofline_prior
from fleetsim.calibrate.sources import read_source
from fleetsim.calibrate.sources.source import Source
from fleetsim.config.engine_profile import Profile, load_profile, profile_text
from fleetsim.engine import EngineLimits, StepTime, roofline, run_requests
from fleetsim.engine.gpus import gpu_spec
from fleetsim.engine.known_error import KnownError, domain_of, known_error
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.profile_fields import coefficients_of
from fleetsim.errors import InputError
from tests.calibrate.bench import TRUTH, Request, guidellm_benchmark, play, serve_result
from tests.calibrate.test_tables import lengths, write

H200 = Calibrate(gpu="H200", model="Qwen/Qwen2.5-7B", max_num_seqs=256, max_num_batched_tokens=8192)


def error_of(gpu: str, model: str) -> KnownError:
    """What is known of the roofline for one engine under vLLM, as the checkpoint is stored."""
    return known_error(domain_of(gpu_spec(gpu), model_shape(model), "auto", "vllm"))


def step_time_of(profile: Profile) -> StepTime:
    c = profile.coefficients
    linear = (c.per_seq_s, c.per_prefill_token_s, c.per_kv_token_s, c.per_attn_pair_s)
    return StepTime(c.knots_tokens, c.knot_seconds, *(e.value for e in linear))


def makespan_error(profile: Profile, requests: list[Request], concurrency: int) -> float:
    """Of the simulated run over the one that the client saw."""
    limits = EngineLimits(concurrency, 8192, 10**6)
    result = run_requests(step_time_of(profile), limits, [r.prompt for r in requests], [r.output for r in requests])
    return float(result.finish_s.max() / max(r.tokens[-1] for r in requests) - 1.0)


@pytest.fixture(scope="module")
def runs() -> dict[int, list[Request]]:
    return {c: play(TRUTH, c, lengths(max(8, 10 * c), seed=c)) for c in (1, 4, 16, 48, 128)}


HELD_OUT = 48


def sources(tmp_path: Path, runs: dict[int, list[Request]], *, detailed: bool = False) -> list[Source]:
    return [
        read_source(write(tmp_path / f"{c}.json", serve_result(r, c, detailed=detailed)), H200)
        for c, r in runs.items()
        if c != HELD_OUT
    ]


def test_benchmarks_at_some_concurrencies_predict_another(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    profile = derive_profile(sources(tmp_path, runs), H200, name="derived")
    assert abs(makespan_error(profile, runs[HELD_OUT], HELD_OUT)) < 0.08
    assert profile.kind == "derived"
    assert profile.checks == ()
    assert (
        profile.error.what
        == "iteration times in the files, each predicted by a fit that left out one benchmark run of 4"
    )
    assert profile.error.median is not None
    assert profile.error.median < 0.15


def test_detailed_benchmarks_predict_it_better(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    profile = derive_profile(sources(tmp_path, runs, detailed=True), H200, name="derived")
    assert abs(makespan_error(profile, runs[HELD_OUT], HELD_OUT)) < 0.04


def test_guidellm_predicts_it_too(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    report = {"benchmarks": [guidellm_benchmark(r, c) for c, r in runs.items() if c != HELD_OUT]}
    source = read_source(write(tmp_path / "benchmarks.json", report), H200)
    assert abs(makespan_error(derive_profile([source], H200, name="d"), runs[HELD_OUT], HELD_OUT)) < 0.1


def test_a_derived_profile_says_what_it_rests_on(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    profile = derive_profile(sources(tmp_path, runs), H200, name="derived")
    p = profile.provenance
    assert p.source.startswith(f"vllm bench serve: {tmp_path / '1.json'}")
    assert (p.gpu, p.model, p.tp, p.engine, p.date) == ("H200", "Qwen/Qwen2.5-7B", 1, "vllm", "2026-11-20")
    notes = "\n".join(p.assumed)
    for part in (
        "prefix cache",
        "mean iteration per run",
        "kv_blocks",
        "block_size 16",
        "a roofline of Qwen/Qwen2.5-7B",
    ):
        assert part in notes
    assert (profile.limits.max_num_seqs, profile.limits.max_num_batched_tokens) == (256, 8192)
    assert profile.raw is None
    assert all(point.seconds > 0 for point in profile.points)


def test_the_same_files_give_the_same_bytes(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    texts = {profile_text(derive_profile(sources(tmp_path, runs), H200, name="d")) for _ in range(2)}
    assert len(texts) == 1
    path = write(tmp_path / "d.profile.json", texts.pop())
    assert load_profile(path).kind == "derived"


def grid(tmp_path: Path, rows: list[tuple[int, int, int]], name: str = "grid.csv") -> str:
    """A CSV of the truth's iterations (decodes, context, prefill)."""
    lines = ["batch,context,prefill,step_s"]
    for b, c, p in rows:
        lines.append(f"{b},{c},{p},{TRUTH.seconds(b, p, b * c, p * (p + 1) / 2)!r}")
    return write(tmp_path / name, "\n".join(lines))


DECODES = [(b, c, 0) for b in (1, 2, 8, 32, 64, 128, 256) for c in (128, 1024, 4096)]
PREFILLS = [(0, 0, p) for p in (64, 128, 256, 512, 1024, 2048, 4096, 8192)]
LIMITS = Calibrate(max_num_seqs=256, max_num_batched_tokens=8192, kv_blocks=100_000, block_size=16)


def test_a_complete_table_needs_no_gpu_and_no_prior(tmp_path: Path) -> None:
    profile = derive_profile([read_source(grid(tmp_path, DECODES + PREFILLS))], LIMITS, name="grid")
    step = step_time_of(profile)
    for b, c in ((4, 500), (100, 2000), (200, 300)):
        assert step.seconds(b, kv_tokens=b * c) == pytest.approx(TRUTH.seconds(b, kv_tokens=b * c), rel=0.02)
    assert step.seconds(0, 3000, 0, 3000 * 3001 / 2) == pytest.approx(
        TRUTH.seconds(0, 3000, 0, 3000 * 3001 / 2), rel=0.02
    )
    assert not any("roofline" in note for note in profile.provenance.assumed)
    assert "left out a twelfth of 29 points" in profile.error.what


def test_a_roofline_fills_in_the_prefill(tmp_path: Path) -> None:
    profile = derive_profile([read_source(grid(tmp_path, DECODES))], H200, name="decodes")
    step, (expected, _) = step_time_of(profile), roofline("H200", "Qwen/Qwen2.5-7B")
    p = 4096
    assert step.seconds(0, p, 0, p * p / 2) == pytest.approx(expected.seconds(0, p, 0, p * p / 2), rel=0.25)
    assert step.seconds(64, kv_tokens=64 * 1000) == pytest.approx(TRUTH.seconds(64, kv_tokens=64_000), rel=0.02)
    assert any("per_attn_pair_s: from a roofline" in note for note in profile.provenance.assumed)
    assert profile.ranges.prefill_tokens is None


def test_what_is_missing_names_the_flags(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"prefill_tokens.*add --gpu and --model, so that a roofline fills it in"):
        derive_profile([read_source(grid(tmp_path, DECODES))], LIMITS, name="d")
    with pytest.raises(InputError) as caught:
        derive_profile([read_source(grid(tmp_path, DECODES))], Calibrate(max_num_seqs=8), name="d")
    assert [p.path for p in caught.value.problems] == ["max_num_batched_tokens", "kv_blocks"]
    assert caught.value.problems[1].remedy == "add --gpu and --model, or --kv-blocks"
    with pytest.raises(InputError, match="--from"):
        derive_profile([], H200, name="d")


def test_the_model_may_come_from_the_file(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    source = read_source(write(tmp_path / "a.json", serve_result(runs[16], 16)))
    profile = derive_profile([source], Calibrate(gpu="H200"), name="d")
    assert profile.provenance.model == "Qwen/Qwen2.5-7B"
    assert profile.error.median is None
    assert profile.error.what.startswith("unknown: 1 point, at least 3")


def test_contradictions_are_refused(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    a = {**serve_result(runs[4], 4), "max_num_seqs": 64}
    b = {**serve_result(runs[16], 16), "max_num_seqs": 128}
    files = [read_source(write(tmp_path / f"{i}.json", d)) for i, d in enumerate((a, b))]
    with pytest.raises(InputError, match=r"measured with different ones.*derive a profile from each"):
        derive_profile(files, Calibrate(gpu="H200"), name="d")
    with pytest.raises(InputError, match=r"--max-num-seqs: 256: .*measured with 64; leave the flag out"):
        derive_profile(files[:1], H200, name="d")


def test_three_points_are_enough_to_leave_one_out(tmp_path: Path) -> None:
    profile = derive_profile([read_source(grid(tmp_path, DECODES[:3]))], H200, name="d")
    assert profile.error.what.endswith("left out one point of 3")


def test_the_prior_covers_what_the_engine_may_hold() -> None:
    limits = EngineLimits(256, 8192, 60_000)
    prior = roofline_prior("H200", "Qwen/Qwen2.5-7B", 1, "auto", limits)
    o, (step, _) = (
        prior.observations,
        roofline("H200", "Qwen/Qwen2.5-7B", max_num_seqs=256, max_num_batched_tokens=8192),
    )
    assert o.decodes.max() == 256
    assert o.prefill_tokens.max() == 8192
    assert o.kv_tokens.max() <= limits.kv_tokens
    rows = zip(o.decodes, o.prefill_tokens, o.kv_tokens, o.attn_pairs, strict=True)
    assert o.seconds.tolist() == [step.seconds(*map(float, row)) for row in rows]  # type: ignore[arg-type]
    assert prior.relative_sigma == max(LEAST_SIGMA, error_of("H200", "Qwen/Qwen2.5-7B").sigma)


@pytest.mark.parametrize(("gpu", "model", "tp"), [("H100", "Qwen/Qwen2.5-7B", 1), ("H200", "Qwen/Qwen3-30B-A3B", 4)])
def test_an_estimate_is_the_roofline_to_the_last_bit(tmp_path: Path, gpu: str, model: str, tp: int) -> None:
    profile = estimate_profile(gpu, model, tp)
    path = write(tmp_path / "e.profile.json", profile_text(profile))
    back = load_profile(path)
    step, limits = roofline(gpu, model, tp=tp)
    assert step_time_of(back).table(20_000).tolist() == step.table(20_000).tolist()
    per_unit = ("per_seq_s", "per_prefill_token_s", "per_kv_token_s", "per_attn_pair_s")
    assert [getattr(step_time_of(back), n) for n in per_unit] == [getattr(step, n) for n in per_unit]
    assert back.limits.model_dump() == {name: getattr(limits, name) for name in back.limits.model_dump()}
    assert (back.kind, back.provenance.source, back.provenance.tp) == ("derived", "roofline", tp)
    known = error_of(gpu, model)
    assert (back.error.median, back.error.p90, back.error.worst) == (known.median, known.p90, None)
    assert back.ranges.decodes is None


def test_an_estimate_says_what_it_guesses() -> None:
    profile = estimate_profile("H100", "Qwen/Qwen2.5-7B", name="mine")
    assert profile.name == "mine"
    assert (
        sum(note.startswith(("max_num_seqs", "max_num_batched", "kv_blocks")) for note in profile.provenance.assumed)
        == 3
    )
    with pytest.raises(InputError, match="did you mean"):
        estimate_profile("H10", "Qwen/Qwen2.5-7B")


def test_any_step_time_survives_a_profile() -> None:
    rng = np.random.default_rng(7)
    knots = np.cumsum(rng.uniform(0.1, 100, 20))
    truth = StepTime(
        tuple(knots.tolist()), tuple(np.cumsum(rng.uniform(0, 1e-3, 20)).tolist()), *rng.uniform(0, 1e-5, 4)
    )
    fields = json.loads(coefficients_of(truth).model_dump_json())
    assert tuple(k["value"] for k in fields["knots_s"]) == truth.knots_s
    assert tuple(fields["knots_tokens"]) == truth.knots_tokens
    assert fields["per_attn_pair_s"]["value"] == truth.per_attn_pair_s


def test_a_models_folder_is_its_config(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 1000}
    write(tmp_path / "config.json", {**config, "intermediate_size": 1024, "model_type": "llama"})
    given = Calibrate(gpu="H200", model=str(tmp_path))
    derived = derive_profile([read_source(grid(tmp_path, DECODES[:3]))], given, name="d")
    assert derived.limits == estimate_profile("H200", str(tmp_path)).limits
