"""Engines that draft, measured: their counters, iterations told from tokens, and what a profile does with both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.build import build_profile
from fleetsim.calibrate.engine_facts import DraftCounts, counts_in, measured_drafts
from fleetsim.calibrate.fit.design import observations_of
from fleetsim.calibrate.raw import Raw, RawWriter, raw_of, records_of
from fleetsim.calibrate.server.measure import measure_server
from fleetsim.calibrate.server.metrics import gauges_of
from fleetsim.engine import StepTime
from fleetsim.sim.engines import step_time_of
from tests.calibrate import test_server_virtual
from tests.calibrate.fake_scheduler import TRUTH, Scheduler, VirtualPlayer
from tests.calibrate.fake_server import drafts_page, serve
from tests.calibrate.test_server_virtual import START

SHARES = (0.7, 0.45, 0.3)
PAGE = (
    "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0.0\n"
    "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 0.0\n"
)


def counts(s: Scheduler) -> DraftCounts:
    found = gauges_of(PAGE + drafts_page(s))
    assert found is not None
    assert found.drafts is not None
    return found.drafts


class Counting:
    """A guard that reads the fake's own page."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    async def idle(self) -> Any:
        return gauges_of(PAGE + drafts_page(self.scheduler))


def measured(path: Path, scheduler: Scheduler, before: DraftCounts | None = None, quick: bool = False) -> Raw:
    drafts = {} if before is None else {"drafts": before.record()}
    start = {**START, "speculation": {"method": "ngram", "num_speculative_tokens": len(scheduler.accepted)}, **drafts}
    player = VirtualPlayer(scheduler=scheduler, overhead_s=0.003)
    return test_server_virtual.measured(
        path, player, budget_s=900.0, quick=quick, watch=Counting(scheduler), start=start
    )


def test_an_iteration_without_a_draft_is_one_too() -> None:
    """1,000 iterations of a sequence, 400 of which had a draft of 3: 200 kept a token, 100 a second one."""
    found = DraftCounts.counted(400, 1200, (200, 100), generated=1310, first_tokens=10)
    assert (found.iterations, found.shares, found.tokens, found.each) == (1000, (0.2, 0.1), 1.3, 1.2)
    grown = DraftCounts(1500, 1300, (300, 100)).since(found)
    assert (grown.iterations, grown.shares, grown.each) == (500, (0.2, 0.0), 0.2)


def test_a_page_without_drafts_says_none() -> None:
    found = gauges_of(PAGE)
    assert found is not None
    assert found.drafts is None


def drafting(found: float, seed: int) -> Scheduler:
    return Scheduler(accepted=SHARES, found=found, random=np.random.default_rng(seed))


def more_s(step_time: StepTime, b: int, found: float) -> float:
    """Seconds that verifying the drafts of b sequences adds to an iteration."""
    alone, drafted = step_time.curve(np.array([b, b * (1 + 3 * found)], np.float64))
    return float(drafted - alone)


@pytest.mark.parametrize("found", [1.0, 0.4])
def test_the_fit_finds_the_iterations_behind_the_tokens(tmp_path: Path, found: float) -> None:
    """TRUTH with drafts, seen through tokens that come by the handful: seconds, acceptance, batches kept out."""
    raw = measured(tmp_path / "a.raw.jsonl", drafting(found, 7))
    o = observations_of(raw)
    decode = o.decodes > 0
    assert float(np.median(o.drafted[decode] / o.decodes[decode])) == pytest.approx(3 * found, rel=0.1)
    assert not o.drafted[~decode].any()
    profile = build_profile(raw, name="drafting", raw_file=None)
    drafts = profile.speculation
    assert drafts is not None
    assert (drafts.method, drafts.num_speculative_tokens) == ("ngram", 3)
    kept = 1 + found * sum(SHARES)
    assert 1 + sum(drafts.acceptance) == pytest.approx(kept, rel=0.02)
    assert drafts.drafted_tokens == pytest.approx(3 * found, rel=0.02)
    assert any("random prompts" in text for text in profile.provenance.assumed)
    # One sequence drafts a few dozen times in all: its seconds are known to 7 %, their mean over four to 3.5 %.
    others = [
        build_profile(measured(tmp_path / f"{seed}.raw.jsonl", drafting(found, seed)), name="drafting", raw_file=None)
        for seed in ((8, 9, 10) if found < 1 else ())
    ]
    for b, context in ((1, 500), (16, 800), (64, 1500)):
        truth = TRUTH.seconds(b, 0, b * context) + more_s(TRUTH, b, found)
        fitted = [
            step_time_of(p).seconds(b, 0, b * context) + more_s(step_time_of(p), b, found) for p in (profile, *others)
        ]
        assert np.mean(fitted) == pytest.approx(truth, rel=0.05)
    assert len(profile.checks) == 2
    for check in profile.checks:
        assert abs(check.makespan_error) < 0.05, check


def test_what_its_users_had_accepted_goes_before_random_prompts(tmp_path: Path) -> None:
    theirs = DraftCounts(10_000, 24_000, (8_000, 6_000, 4_000))
    raw = measured(tmp_path / "a.raw.jsonl", Scheduler(accepted=(0.01, 0.0, 0.0)), theirs, quick=True)
    found = measured_drafts(raw)
    assert found is not None
    assert (found.acceptance, found.drafted_tokens, found.iterations) == ((0.8, 0.6, 0.4), 2.4, 10_000)
    assert found.measured_on == "requests of its users"
    assert found.swept_tokens == pytest.approx(3.0, rel=0.01)


def test_over_http(tmp_path: Path) -> None:
    """The server's own word for its method, its counters before and after, and iterations that it really had."""
    with serve(Scheduler(accepted=SHARES, found=0.5)) as fake:
        writer = RawWriter(tmp_path / "a.raw.jsonl")
        keep = Decodes()
        asked = Calibrate(url=fake.url, quick=True, budget_s=120.0)
        measure_server(asked, writer, done=keep, timeout_s=60.0)  # type: ignore[arg-type]
        writer.close()
        total = counts(fake.scheduler)
    records, _ = records_of(tmp_path / "a.raw.jsonl")
    raw = raw_of(records)
    assert raw.starts[0]["speculation"] == {"num_speculative_tokens": 3, "method": "ngram"}
    found = measured_drafts(raw)
    assert found is not None
    assert 1 + sum(found.acceptance) == pytest.approx(total.tokens, rel=0.1)
    o = observations_of(raw)
    held = np.bincount(o.of, minlength=len(o)) == 1
    lived = {b: np.median(seconds) for b, seconds in fake.lived_s.items()}
    ratio = [s / lived[int(b)] for s, b in zip(o.seconds[held], o.decodes[held], strict=True) if int(b) in lived]
    assert float(np.median(ratio)) == pytest.approx(1.0, abs=0.2)


class Decodes(frozenset[str]):
    """Keys of loads that an earlier session ended: all but six decode loads."""

    most = 6

    def __contains__(self, key: object) -> bool:
        if not str(key).startswith("decode") or self.most == 0:
            return True
        self.most -= 1
        return False


def test_a_recorder_counts_drafts_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sequences: one drafted 3 tokens and kept 2, the other found no draft; then the first ends."""
    from fleetsim.calibrate.vllm import recorder
    from fleetsim.calibrate.vllm.recorder import Recorder
    from tests.calibrate.test_recorder import Clock, output, rows, step, token
    from tests.calibrate.test_recorder import Scheduler as Played

    clock = Clock()
    monkeypatch.setattr(recorder, "perf_counter", clock)
    scheduler: Any = Played(clock)
    scheduler.num_spec_tokens = 3
    record = Recorder(scheduler, RawWriter(tmp_path / "a.raw.jsonl"), epoch=clock.now)
    record.begin("decode", {"B": 2}, warm=0)
    scheduler.running = ["a", "b"]
    step(scheduler, clock, output({"a": 4, "b": 1}, cached={"a": 40, "b": 60}), [token("a", 3), token("b")], 0.01)
    step(scheduler, clock, output({"a": 4, "b": 4}, cached={"a": 43, "b": 61}), [token("a", 4), token("b")], 0.01)
    record.flush()
    first, second = rows(tmp_path / "a.raw.jsonl")
    assert (first["nd"], first["K"], first["dr"], first["out"]) == (2, 100, 3, 4)
    assert (second["nd"], second["dr"], second["out"]) == (2, 6, 5)
    assert counts_in(record.tally.record()) == DraftCounts(4, 9, (2, 2, 1))
