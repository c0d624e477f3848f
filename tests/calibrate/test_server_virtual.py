"""The client's view of a server, without a network and without a clock: what goes in must come out, to the digit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.calibrate.engine_facts import facts_of
from fleetsim.calibrate.fit.design import observations_of
from fleetsim.calibrate.loads import Limits, key_of
from fleetsim.calibrate.order import loads_in_turn
from fleetsim.calibrate.raw import Raw, RawWriter, read_raw
from fleetsim.calibrate.server.engine import ServerEngine
from fleetsim.calibrate.server.measure import budget_of, slots_of
from fleetsim.calibrate.session import measure
from fleetsim.engine import EngineLimits, StepTime
from fleetsim.records import replace
from tests.calibrate.fake_scheduler import LIMITS, TRUTH, Scheduler, VirtualPlayer

CLIENT_LIMITS = Limits(LIMITS.max_num_seqs, LIMITS.max_num_batched_tokens, 4096, LIMITS.kv_blocks, LIMITS.block_size)
START: dict[str, Any] = {
    "kind": "server_tokens",
    "engine": "vllm",
    "version": "0.99",
    "cache": {"num_gpu_blocks": LIMITS.kv_blocks, "block_size": LIMITS.block_size, "enable_prefix_caching": True},
    "sched": {"max_num_seqs": LIMITS.max_num_seqs, "max_num_batched_tokens": LIMITS.max_num_batched_tokens},
    "model": {"max_model_len": 4096},
}


class Nobody:
    """A guard of a server that serves nobody else."""

    async def idle(self) -> None:
        return None


def measured(
    path: Path,
    player: VirtualPlayer,
    *,
    budget_s: float = 300.0,
    done: frozenset[str] = frozenset(),
    quick: bool = True,
    watch: Any = None,
    start: dict[str, Any] = START,
) -> Raw:
    """watch: of a server that drafts."""
    writer = RawWriter(path)
    with asyncio.Runner() as runner:
        engine = ServerEngine(
            player,
            watch or Nobody(),
            writer,
            CLIENT_LIMITS,
            start,
            lambda text: None,
            runner.run,
            together=player.scheduler.mixing,
            drafting=watch is not None,
        )
        loads = loads_in_turn(CLIENT_LIMITS, quick=quick, seed=0, at_once=1000, cached=True, mixed=watch is None)
        measure(engine, loads, writer, budget_s=budget_s, done=done)
    writer.close()
    return read_raw(path)


def predicted(raw: Raw, truth: StepTime, overhead_s: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What the observations must have taken: the truth of every iteration, summed."""
    o = observations_of(raw)
    each = [
        truth.seconds(int(b), int(p), kv, a)
        for b, p, kv, a in zip(o.decodes, o.prefill_tokens, o.kv_tokens, o.attn_pairs, strict=True)
    ]
    return np.bincount(o.of, each, len(o)) + overhead_s * o.overheads


def test_every_observation_is_what_the_truth_says(tmp_path: Path) -> None:
    player = VirtualPlayer(overhead_s=0.003)
    raw = measured(tmp_path / "a.raw.jsonl", player)
    o = observations_of(raw)
    assert {raw.phase_of[s] for s in o.segment} == {"decode", "prefill", "mixed"}
    assert len(o) > 80
    assert o.seconds == pytest.approx(predicted(raw, TRUTH, 0.003), rel=1e-3)
    assert set(o.overheads[[raw.phase_of[s] == "prefill" for s in o.segment]]) == {1.0}
    assert max(o.decodes) == LIMITS.max_num_seqs
    limits = facts_of(raw).limits
    assert (limits.kv_blocks, limits.max_num_seqs) == (LIMITS.kv_blocks, LIMITS.max_num_seqs)


def test_jitter_and_chunks_of_several_tokens_move_little(tmp_path: Path) -> None:
    player = VirtualPlayer(overhead_s=0.003, jitter_s=0.0004, together=3)
    raw = measured(tmp_path / "a.raw.jsonl", player)
    o = observations_of(raw)
    off = np.abs(predicted(raw, TRUTH, 0.003 + 0.0003) / o.seconds - 1)
    kind = np.array([raw.phase_of[s] for s in o.segment])
    assert np.median(off[kind == "decode"]) < 0.02
    assert np.median(off[kind == "prefill"]) < 0.1


def test_the_fit_finds_the_truth_and_predicts_the_kept_out_batches(tmp_path: Path) -> None:
    from fleetsim.calibrate.build import check_batches
    from fleetsim.calibrate.fit.fit import fit

    raw = measured(tmp_path / "a.raw.jsonl", VirtualPlayer(overhead_s=0.003), quick=False, budget_s=900)
    found = fit(observations_of(raw))
    for b, kv, p in ((1, 500, 0), (32, 20_000, 0), (64, 100_000, 0), (16, 4_000, 512), (0, 0, 1500)):
        pairs = p * (p + 1) / 2
        assert found.step_time.seconds(b, p, kv, pairs) == pytest.approx(TRUTH.seconds(b, p, kv, pairs), rel=0.04)
    assert found.error.overhead_s == pytest.approx(0.003, abs=0.0015)
    checks = check_batches(raw, facts_of(raw), found.step_time, overhead_s=found.error.overhead_s)
    assert {c.name for c in checks} == {"rl_requests", "rl_n"}
    for check in checks:
        assert abs(check.makespan_error) < 0.02, check
        assert check.finish_error_median < 0.02, check


def test_no_rounding_decides_where_f_bends(tmp_path: Path) -> None:
    """A quick measurement bears fewer knots than there are; of those that nothing misses the same ones always go."""
    from fleetsim.calibrate.fit.fit import fit

    o = observations_of(measured(tmp_path / "a.raw.jsonl", VirtualPlayer(overhead_s=0.003, jitter_s=0.0004, seed=1)))
    random = np.random.default_rng(0)
    last_digits = 1 + 1e-14 * random.standard_normal((3, len(o)))
    found = [fit(replace(o, seconds=o.seconds * noise)).step_time for noise in last_digits]
    assert len({f.knots_tokens for f in found}) == 1
    for b, kv, p in ((1, 500, 0), (32, 20_000, 0), (64, 100_000, 0), (16, 4_000, 512), (0, 0, 1500)):
        pairs = p * (p + 1) / 2
        assert found[0].seconds(b, p, kv, pairs) == pytest.approx(TRUTH.seconds(b, p, kv, pairs), rel=0.02)


def test_a_server_that_computes_prompts_alone(tmp_path: Path) -> None:
    raw = measured(tmp_path / "a.raw.jsonl", VirtualPlayer(Scheduler(mixing=False)))
    o = observations_of(raw)
    assert "mixed" in {raw.phase_of[s] for s in o.segment}
    assert not np.any((o.decodes > 0) & (o.prefill_tokens > 0))
    assert o.seconds == pytest.approx(predicted(raw, TRUTH, 0.003), rel=1e-3)


@pytest.mark.parametrize("slots", [24, 100, 500])
def test_how_many_requests_run_at_once_is_found_out(slots: int) -> None:
    limits = EngineLimits(max_num_seqs=slots, max_num_batched_tokens=2048, kv_blocks=50_000, block_size=16)
    player = VirtualPlayer(Scheduler(limits=limits))
    assert asyncio.run(slots_of(player, 1000, 1e9, 10**9)) == (slots, True)


def test_a_server_that_runs_all_that_were_tried() -> None:
    limits = EngineLimits(max_num_seqs=2000, max_num_batched_tokens=2048, kv_blocks=50_000, block_size=16)
    assert asyncio.run(slots_of(VirtualPlayer(Scheduler(limits=limits)), 300, 1e9, 10**9)) == (300, False)
    assert asyncio.run(slots_of(VirtualPlayer(Scheduler(limits=limits)), 300, 1e9, 144 * 100)) == (100, False)


@pytest.mark.parametrize("budget", [512, 2048, 8192])
def test_the_pieces_of_a_prompt_tell_the_budget(budget: int) -> None:
    limits = EngineLimits(max_num_seqs=64, max_num_batched_tokens=budget, kv_blocks=50_000, block_size=16)
    found = asyncio.run(budget_of(VirtualPlayer(Scheduler(limits=limits)), 20_000, 1, 1e9))
    assert found == budget


def test_a_prompt_in_one_piece_tells_no_budget() -> None:
    assert asyncio.run(budget_of(VirtualPlayer(), 1900, 1, 1e9)) is None


def test_a_small_budget_scales_the_batches_and_leaves_out_points(tmp_path: Path) -> None:
    player = VirtualPlayer()
    raw = measured(tmp_path / "a.raw.jsonl", player, budget_s=14.0)
    assert player.now() <= 14.0 * 1.02
    kept = [s for s in raw.segments if s.kept_out]
    assert kept
    assert all(not s.cut and s.label["length_scale"] < 1 for s in kept)
    assert {s.phase for s in raw.segments} >= {"decode", "prefill", "mixed"}
    assert any(r.get("left_out") == "decode" for r in raw.records)


def test_a_resumed_run_repeats_nothing_that_ended(tmp_path: Path) -> None:
    first = measured(tmp_path / "a.raw.jsonl", VirtualPlayer(), budget_s=8.0)
    ended = frozenset(key_of(s.phase, s.label) for s in first.segments if not s.cut)
    assert ended
    both = measured(tmp_path / "a.raw.jsonl", VirtualPlayer(), done=ended)
    keys = [key_of(s.phase, s.label) for s in both.segments if not s.cut]
    assert len(keys) == len(set(keys))
    assert ended < set(keys)
    assert len(both.starts) == 2


def test_a_server_that_runs_fewer_at_once_gives_no_false_point(tmp_path: Path) -> None:
    small = EngineLimits(max_num_seqs=24, max_num_batched_tokens=2048, kv_blocks=20_000, block_size=16)
    raw = measured(tmp_path / "a.raw.jsonl", VirtualPlayer(Scheduler(limits=small)))
    assert max(observations_of(raw).decodes) <= 24
    assert any("only 24 streams" in str(r.get("note")) for r in raw.records)


def test_no_prompt_of_a_prefill_is_sent_twice(tmp_path: Path) -> None:
    """The second time it would lie in the server's prefix cache."""
    player = VirtualPlayer()
    measured(tmp_path / "a.raw.jsonl", player)
    sent = [a for play in player.plays for a in (*play.asks, *play.then) if a.output_tokens == 1]
    assert sent
    assert len({a.prompt for a in sent}) == len(sent)
