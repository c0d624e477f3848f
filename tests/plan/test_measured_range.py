"""Whether a plan, and a run, stay inside what a profile measured: against sums and closed forms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.config.engine_profile import Ranges
from fleetsim.job.engine_source import held_over_time, outside_as_planned, outside_as_run, peak_kv_tokens, samples_held
from fleetsim.sim.engines import engine_of
from fleetsim.sim.run import simulate
from tests import profiles

JOB = {
    "workload.output_tokens": 600,
    "workload.prompt_tokens": 256,
    "trainer.batch_samples": 64,
    "admission.law": "barrier",
    "run.steps": 6,
}


def job(folder: Path, instances: int = 2, profile: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    file = profiles.profile_file(folder, **(profile or {}))
    engine = {"engine.kind": "measured", "engine.profile": file, "fleet.instances": instances}
    return with_changes(default_scenario(), {**JOB, **engine, **changes})


def told_share(text: str) -> float:
    found = re.search(r"about ([\d.]+) %", text)
    assert found is not None
    return float(found[1])


def test_what_instances_held_adds_up_to_what_the_samples_took(tmp_path: Path) -> None:
    run = simulate(job(tmp_path))
    seconds, decodes, before, after = held_over_time(run)
    s = run.samples
    stayed = s["finish_s"] - s["start_s"]
    wrote = s["finish_s"] - s["first_token_s"]
    assert float((seconds * decodes).sum()) == pytest.approx(float(stayed.sum()), rel=1e-9)
    # a sample's context is its prompt all along, and half of its output on average while it writes
    held = s["prompt"] * stayed + s["made"] * wrote / 2.0
    assert float((seconds * (before + after) / 2).sum()) == pytest.approx(float(held.sum()), rel=1e-9)
    assert float(seconds.sum()) <= float(run.steps["busy_s"][-1]) * (1 + 1e-9)


def test_a_run_says_for_which_share_of_the_time_it_was_outside(tmp_path: Path) -> None:
    run = simulate(job(tmp_path, **{"workload.output_tokens": {"mean": 400, "cv": 0.8, "max": 2000}}))
    seconds, decodes, _, _ = held_over_time(run)
    most = float(decodes.max())
    inside = profiles.profile(ranges={"decodes": [1, most]}, points=None)
    assert outside_as_run([run], inside) == ()
    half = profiles.profile(ranges={"decodes": [1, most / 2]}, points=None)
    (told,) = outside_as_run([run], half)
    share = told_share(told)
    expected = float(seconds[decodes > most / 2].sum() / seconds.sum())
    assert share == pytest.approx(100 * expected, abs=0.051)
    assert 0 < expected < 1
    assert f"to {most:,.0f}" in told


def test_growth_inside_of_an_interval_counts_by_its_share(tmp_path: Path) -> None:
    # 32 samples grow from 256 to 856 tokens each, evenly: from 8,192 to 27,392 KV tokens
    run = simulate(job(tmp_path))
    (told,) = outside_as_run([run], profiles.profile(ranges={"kv_tokens": [8000, 17_792]}, points=None))
    share = told_share(told)
    assert share == pytest.approx(50, abs=1), "prompts take a moment before that"


def test_several_runs_are_taken_together(tmp_path: Path) -> None:
    s = job(tmp_path, **{"workload.output_tokens": {"mean": 400, "cv": 0.8, "max": 2000}})
    runs = [simulate(s, replication=r) for r in range(2)]
    profile = profiles.profile(ranges={"kv_tokens": [0, 9000]}, points=None)
    shares = [told_share(outside_as_run(of, profile)[0]) for of in (runs[:1], runs[1:], runs)]
    assert min(shares[:2]) <= shares[2] <= max(shares[:2])


def test_the_planned_peak_bounds_the_run_s_with_equal_lengths(tmp_path: Path) -> None:
    s = job(tmp_path)
    _, limits = engine_of(s)
    held = samples_held(s, limits, 2)
    assert held == 32
    planned = peak_kv_tokens(s, limits, held)
    assert planned == pytest.approx(32 * (256 + 600), rel=1e-9)
    _, _, _, after = held_over_time(simulate(s))
    assert planned * (1 + 1e-9) >= float(after.max()) >= 0.99 * planned


def test_heavy_tails_peak_where_ages_mix(tmp_path: Path) -> None:
    s = job(tmp_path, **{"workload.output_tokens": {"mean": 600, "cv": 2.0, "max": 8000}})
    _, limits = engine_of(s)
    many, few = (peak_kv_tokens(s, limits, held) / held for held in (400.0, 4.0))
    assert few > many, "three deviations of a mean weigh less the more samples there are"
    assert peak_kv_tokens(s, limits, 1e6) == limits.kv_tokens


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        ({"decodes": [1, 1024], "kv_tokens": [0, 1e6], "prefill_tokens": [1, 16384]}, []),
        ({"decodes": [1, 31]}, ["32 decodes per instance; measured: 1 to 31"]),
        ({"decodes": [33, 64]}, ["32 decodes per instance; measured: 33 to 64"]),
        ({"kv_tokens": [0, 15_000]}, ["17,792 KV tokens per instance; measured: 0 to 15,000"]),
        ({"kv_tokens": [0, 20_000]}, ["up to 27,392 KV tokens per instance; measured: 0 to 20,000"]),
        ({"prefill_tokens": [1, 512]}, ["up to 1,024 prefill tokens in an iteration per instance; measured: 1 to 512"]),
    ],
)
def test_a_plan_says_where_it_leaves_which_range(tmp_path: Path, ranges: dict[str, Any], told: list[str]) -> None:
    profile = profiles.profile().model_copy(update={"ranges": Ranges.model_validate(ranges)})
    assert outside_as_planned(job(tmp_path), profile, 2) == tuple(told)


def test_siblings_that_share_a_prompt_compute_it_once(tmp_path: Path) -> None:
    profile = profiles.profile(ranges={"prefill_tokens": [1, 512]})
    alone = outside_as_planned(job(tmp_path, **{"engine.prefix_caching": False}), profile, 2)
    assert any("up to 8,192 prefill tokens" in text for text in alone)


def test_a_context_longer_than_any_measured_one(tmp_path: Path) -> None:
    s = job(tmp_path, **{"workload.output_tokens": 40_000})
    told = outside_as_planned(s, profiles.profile(ranges={"decodes": [1, 1024]}), 2)
    assert told == ("responses reach a context of 40,256 tokens; measured: up to 32,768",)


def test_turns_are_checked_as_planned_because_records_know_no_pauses(tmp_path: Path) -> None:
    s = job(tmp_path, **{"workload.turns": {"count": 3, "tool_latency_s": 1.0, "tool_tokens": 50}})
    profile = profiles.profile(ranges={"decodes": [1, 20]}, points=None)
    run = simulate(s)
    assert outside_as_run([run], profile) == outside_as_planned(s, profile, 2) != ()


def test_limits_cap_what_an_instance_holds(tmp_path: Path) -> None:
    s = job(tmp_path, profile={"limits": {"max_num_seqs": 8, "max_num_batched_tokens": 512, "kv_blocks": 9000}})
    _, limits = engine_of(s)
    assert samples_held(s, limits, 2) == 8
    capped = with_changes(s, {"fleet.max_in_flight_samples_per_instance": 5})
    assert samples_held(capped, limits, 2) == 5
    unbounded = with_changes(s, {"admission.law": "unbounded"})
    assert np.isfinite(samples_held(unbounded, limits, 2))
