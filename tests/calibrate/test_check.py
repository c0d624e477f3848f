"""Kept-out batches: predicted by the simulator from what the client knew, compared with what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.calibrate.build import check_batches, prefix_cache_of
from fleetsim.calibrate.engine_facts import facts_of
from fleetsim.calibrate.loads import Limits, Load, Request
from fleetsim.calibrate.order import batches
from fleetsim.calibrate.raw import Raw, raw_of
from fleetsim.config.engine_profile import BatchCheck
from fleetsim.engine import EngineLimits, StepTime, run_requests
from tests.calibrate.fake_engine import SMALL, TRUTH, FakeEngine, Weather, measured

FEW = Limits(max_num_seqs=24, max_num_batched_tokens=512, max_model_len=1024, kv_blocks=1200, block_size=16)
SWEEP = Load("decode", {"B": 2, "C": 16}, tuple(Request(i, 17, 6, cached_tokens=16) for i in range(2)), 2)


def checked(raw: Raw, step_time: StepTime = TRUTH, **given: float) -> dict[str, BatchCheck]:
    return {c.name: c for c in check_batches(raw, facts_of(raw), step_time, **given)}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Raw:
    folder = tmp_path_factory.mktemp("quiet")
    return measured(folder / "a.raw.jsonl", [SWEEP, *batches(FEW, quick=False, seed=0)], limits=FEW)


def test_every_batch_is_predicted_to_the_rounding_of_the_clock(quiet: Raw) -> None:
    found = checked(quiet)
    assert list(found) == ["rl_on", "rl_off", "rl_preempt", "rl_long"]
    for check in found.values():
        assert abs(check.makespan_error) < 1e-4  # durations are recorded in whole microseconds
        assert check.finish_error_p90 < 1e-4
        assert check.preemptions == check.predicted_preemptions
    assert found["rl_preempt"].preemptions > 0
    assert found["rl_off"].makespan_s > found["rl_on"].makespan_s


def test_a_slower_step_time_is_seen_as_such(quiet: Raw) -> None:
    slower = StepTime(
        TRUTH.knots_tokens,
        tuple(1.1 * s for s in TRUTH.knots_s),
        1.1 * TRUTH.per_seq_s,
        0.0,
        1.1 * TRUTH.per_kv_token_s,
        1.1 * TRUTH.per_attn_pair_s,
    )
    for check in checked(quiet, slower).values():
        assert check.makespan_error == pytest.approx(0.1, abs=1e-3)
        assert check.finish_error_median == pytest.approx(0.1, abs=1e-3)


def test_siblings_find_their_prompt_in_the_cache_as_the_model_says(quiet: Raw) -> None:
    found = prefix_cache_of(quiet, facts_of(quiet))
    assert found is not None
    assert found.enabled
    assert found.hit_tokens == found.expected_tokens > 0


def test_batches_that_were_cut_or_not_followed_are_no_checks(tmp_path: Path) -> None:
    on = batches(FEW, quick=True, seed=0)[0]
    raw = measured(tmp_path / "a.raw.jsonl", [SWEEP, Load("rl_on", on.label, on.requests)], limits=FEW)
    assert checked(raw) == {}
    assert prefix_cache_of(raw, facts_of(raw)) is None


def test_fewer_slots_and_a_name_for_each_repetition(tmp_path: Path) -> None:
    on = batches(FEW, quick=True, seed=0)[0]
    narrow = Load("rl_on", {**on.label, "slots": 4}, on.requests, slots=4, track=True)
    raw = measured(tmp_path / "a.raw.jsonl", [SWEEP, on, narrow], limits=FEW)
    found = checked(raw)
    assert list(found) == ["rl_on", "rl_on 2"]
    assert all(abs(c.makespan_error) < 1e-4 for c in found.values())
    assert found["rl_on 2"].makespan_s > 2 * found["rl_on"].makespan_s


def test_noise_of_iterations_averages_out_over_a_batch(tmp_path: Path) -> None:
    loads = [SWEEP, *batches(FEW, quick=True, seed=0)]
    raw = measured(tmp_path / "a.raw.jsonl", loads, limits=FEW, weather=Weather(noise=0.05))
    assert all(abs(c.makespan_error) < 0.01 for c in checked(raw).values())


# --------------------------------------------------------------------------------------------- what a client measured


def of_client(overhead_s: float, unended: int = 0) -> list[dict[str, Any]]:
    """A server's batch: 12 requests, each sent 10 ms after the one before, every time later by a fixed overhead."""
    prompt, output = np.full(12, 40), np.arange(20, 140, 10)
    submit = 5.0 + 0.01 * np.arange(12)
    limits = EngineLimits(SMALL.max_num_seqs, SMALL.max_num_batched_tokens, SMALL.kv_blocks, SMALL.block_size)
    group = np.arange(12) // 4
    ran = run_requests(TRUTH, limits, prompt, output, arrival_s=submit - 5.0, group=group, prefix_caching=True)

    def us(seconds: np.ndarray) -> list[int]:
        return [round(1e6 * s) for s in seconds]

    finish = us(ran.finish_s + 5.0 + overhead_s)
    finish[12 - unended :] = [-1] * unended
    requests = {
        "submit": us(submit),
        "first": us(ran.first_token_s + 5.0 + overhead_s),
        "finish": finish,
        "n": output.tolist(),
        "pre": [0] * 12,
        "P": prompt.tolist(),
        "want": output.tolist(),
    }
    label = {"groups": 3, "G": 4, "P": 40, "cached": True, "client": True, "length_scale": 0.5}
    segment = {"t": "seg", "ph": "rl_requests", "seg": 1, "lab": label, "wall": 9.0, "req": requests}
    return [{"t": "start", **start()}, segment]


def start() -> dict[str, Any]:
    return FakeEngine(None).start  # type: ignore[arg-type] - it writes nothing


def test_a_clients_overhead_is_added_to_the_prediction() -> None:
    check = checked(raw_of(of_client(0.2)), overhead_s=0.2)["rl_requests"]
    assert abs(check.makespan_error) < 1e-4
    assert check.finish_error_p90 < 1e-4
    assert check.length_scale == 0.5
    assert checked(raw_of(of_client(0.2)))["rl_requests"].makespan_error < -0.05


def test_requests_that_never_ended_are_left_out_on_both_sides() -> None:
    check = checked(raw_of(of_client(0.0, unended=3)))["rl_requests"]
    assert check.samples == 9
    assert check.output_tokens == sum(range(20, 110, 10))


def test_hits_that_a_server_counted_are_used() -> None:
    records = of_client(0.0)
    assert prefix_cache_of(raw_of(records), facts_of(raw_of(records))) is None  # no iterations, no count
    records[1]["hit_tokens"] = 280
    found = prefix_cache_of(raw_of(records), facts_of(raw_of(records)))
    assert found is not None
    assert (found.hit_tokens, found.expected_tokens) == (280, 9 * 32)
