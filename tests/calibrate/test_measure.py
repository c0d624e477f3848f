"""The measuring loop against an engine with virtual time: budgets, failures, resuming."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleetsim.calibrate.fit.design import observations_of
from fleetsim.calibrate.loads import Limits, Load, Ran, Request
from fleetsim.calibrate.order import batches, decodes, loads_in_order
from fleetsim.calibrate.raw import RawWriter, read_raw, records_of
from fleetsim.calibrate.session import EngineLostError, LoadPace, LoadRefusedError, ended, measure, progress_words
from fleetsim.errors import OutsideError
from tests.calibrate.fake_engine import SMALL, FakeEngine

LIMITS = Limits(max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=2048, kv_blocks=8192, block_size=16)


@dataclass
class Failing(FakeEngine):
    """raises: what happens in the load of that number, counted from 0."""

    raises: dict[int, Exception] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def run(self, load: Load, deadline_s: float) -> Ran:
        self.seen.append(load.key)
        error = self.raises.get(len(self.seen) - 1)
        if error is not None:
            raise error
        return super().run(load, deadline_s)


def engine(path: Path, **options: Any) -> Failing:
    return Failing(RawWriter(path), limits=LIMITS, **options)


def run(
    path: Path,
    budget_s: float,
    quick: bool = True,
    done: frozenset[str] = frozenset(),
    first: int | None = None,
    **options: Any,
) -> Any:
    """first: of the program's loads; None = all."""
    fake = engine(path, **options)
    began = fake.now()
    went = measure(fake, loads_in_order(LIMITS, quick=quick)[:first], fake.writer, budget_s=budget_s, done=done)
    fake.writer.close()
    return went, fake, fake.now() - began


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, float]:
    """Everything, as there is time for it: where it is written, how it went, its seconds."""
    path = tmp_path_factory.mktemp("whole") / "a.raw.jsonl"
    went, _, took_s = run(path, 1e6)
    return path, went, took_s


def records(path: Path, kind: str) -> list[dict[str, Any]]:
    return [r for r in records_of(path)[0] if r["t"] == kind]


def test_everything_runs_where_there_is_time(whole: tuple[Path, Any, float]) -> None:
    path, went, took_s = whole
    loads = loads_in_order(LIMITS, quick=True)
    assert (went.ran, went.failed, went.left_out, went.lost) == (len(loads), 0, 0, False)
    raw = read_raw(path)
    assert len(raw.starts) == 1
    assert [s.phase for s in raw.segments if s.kept_out] == ["rl_on", "rl_off"]
    assert all(s.label["length_scale"] == 1.0 for s in raw.segments if s.kept_out)
    assert len(observations_of(raw)) > 200
    assert ended(path) == {load.key for load in loads}
    assert records(path, "end")[0]["seconds"] == pytest.approx(took_s, abs=0.01)


# Time for a few sweeps; for a shortened batch; for batches of which one is cut; of the long program likewise.
@pytest.mark.parametrize(("budget_s", "quick"), [(2.0, True), (10.0, True), (20.0, True), (10.0, False), (40.0, False)])
def test_a_budget_is_kept_and_what_it_costs_is_written_down(tmp_path: Path, budget_s: float, quick: bool) -> None:
    path = tmp_path / "a.raw.jsonl"
    went, _, took_s = run(path, budget_s, quick)
    assert took_s <= budget_s * 1.02 + 0.2, "at most one iteration beyond it"
    notes = [n for n in records(path, "note") if "left_out" in n]
    assert len(notes) == went.left_out
    cut = {s["seg"] for s in records(path, "seg") if s["cut"]}
    asked = [load for load in loads_in_order(LIMITS, quick=quick) if not load.optional]
    done = ended(path)
    ran = [load for load in asked if load.key in done]
    assert len(ran) + len(notes) + len(cut) >= len(asked)


def test_responses_become_shorter_before_a_batch_is_left_out(tmp_path: Path, whole: tuple[Path, Any, float]) -> None:
    path = tmp_path / "a.raw.jsonl"
    run(path, 0.65 * sum(s["wall"] for s in records(whole[0], "seg") if s["lab"].get("pass") != 3))
    batches_run = [s for s in records(path, "seg") if s["ph"].startswith("rl_")]
    assert [s["ph"] for s in batches_run] == ["rl_on", "rl_off"]
    for s in batches_run:
        assert not s["cut"]
        assert 0.2 <= s["lab"]["length_scale"] < 1.0
        assert sum(s["req"]["n"]) == s["lab"]["tokens"]


def test_a_long_budget_repeats_the_sweeps(whole: tuple[Path, Any, float]) -> None:
    passes = {s["lab"]["pass"] for s in records(whole[0], "seg") if s["ph"] == "decode"}
    assert len(passes) >= 4


def test_a_load_that_fails_is_written_down_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.jsonl"
    went, fake, _ = run(path, 1e6, first=20, raises={3: ValueError("no such kernel"), 9: RuntimeError("odd")})
    assert (went.failed, went.lost) == (2, False)
    assert len(fake.seen) == 20
    errors = records(path, "error")
    assert [e["err"] for e in errors] == ["ValueError('no such kernel')", "RuntimeError('odd')"]
    assert "Traceback" in errors[0]["tb"]
    assert fake.seen[3] not in ended(path)
    assert went.ran == len(fake.seen) - 2


def test_a_lost_engine_ends_the_loop_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.jsonl"
    went, fake, _ = run(path, 1e6, raises={4: EngineLostError("CUDA error")})
    assert went.lost
    assert len(fake.seen) == 5
    assert records(path, "error")[0]["lost"]
    assert records(path, "end")[0]["ran"] == 4
    assert read_raw(path).segments


@pytest.mark.parametrize("lost", [False, True])
def test_a_weight_update_comes_last_in_time_that_is_kept_for_it(tmp_path: Path, lost: bool) -> None:
    fake = engine(tmp_path / "a.raw.jsonl", raises={0: EngineLostError("CUDA error")} if lost else {})
    until: list[float] = []
    measure(fake, loads_in_order(LIMITS, quick=True), fake.writer, budget_s=20.0, sync=until.append)
    fake.writer.close()
    assert until == ([] if lost else [pytest.approx(fake.now() + 4.0)])
    assert fake.now() <= 100.0 + 1.02 * 16.0  # the clock of a fake begins at 100


def test_loads_that_keep_failing_are_an_engine_that_is_lost(tmp_path: Path) -> None:
    went, fake, _ = run(tmp_path / "a.raw.jsonl", 1e6, raises={i: ValueError("x") for i in range(2, 9)})
    assert went.lost
    assert len(fake.seen) == 5


def test_a_load_that_is_refused_says_nothing_of_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.jsonl"
    refused = {i: LoadRefusedError("n must be 1") for i in range(2, 9)}
    went, fake, _ = run(path, 1e6, first=20, raises=refused)
    assert (went.failed, went.lost, len(fake.seen)) == (7, False, 20)
    assert {e["err"] for e in records(path, "error")} == {"n must be 1"}


def test_what_a_user_is_told_of_the_engine_ends_it_and_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.jsonl"
    with pytest.raises(OutsideError, match="the server died"):
        run(path, 1e6, raises={4: OutsideError("the server died")})
    assert [(e["err"], e["lost"]) for e in records(path, "error")] == [("the server died", True)]
    assert len(ended(path)) == 4


def test_an_interrupt_goes_through(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(path, 1e6, raises={5: KeyboardInterrupt()})  # type: ignore[dict-item]
    assert len(ended(path)) == 5


def test_a_second_session_does_what_the_first_did_not(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.jsonl"
    _, first, _ = run(path, 1e6, first=24, raises={12: EngineLostError("gone")})
    done = ended(path)
    _, second, _ = run(path, 1e6, first=24, done=done)
    assert not done & set(second.seen)
    assert first.seen[12] == second.seen[0]
    assert ended(path) == {load.key for load in loads_in_order(LIMITS, quick=True)[:24]}
    raw = read_raw(path)
    assert len(raw.starts) == 2
    assert len(raw.segments) == len({s.id for s in raw.segments})


def test_progress_says_what_runs_now_and_how_long_it_may(tmp_path: Path) -> None:
    said: list[str] = []
    fake = engine(tmp_path / "a.raw.jsonl")
    measure(fake, loads_in_order(LIMITS, quick=True)[:20], fake.writer, budget_s=1e6, tell=said.append)
    assert said[0].startswith("1 of ")
    assert any("decodes, batch 64, context 256;" in text for text in said)
    assert (
        progress_words("rl_on", {"groups": 8, "G": 4, "P": 512}, 3, 9, -1.0)
        == "3 of 9: batch rl_on, 8 groups of 4; 0 s left"
    )
    assert progress_words("other", {}, 1, 1, 2.0) == "1 of 1: batch other, ? groups of ?; 2 s left"


def test_estimates_come_close(tmp_path: Path) -> None:
    fake = FakeEngine(RawWriter(tmp_path / "a.raw.jsonl"), limits=SMALL)
    pace = LoadPace(SMALL)
    for load in loads_in_order(SMALL, quick=True):
        if load.kept_out or load.label["pass"] == 1:
            if load.kept_out:
                estimate_s = pace.seconds(load)
                assert estimate_s == pytest.approx(fake.run(load, 1e9).wall_s, rel=0.35)
            else:
                pace.note(load, fake.run(load, 1e9))


def test_a_machine_that_slows_down_is_noticed() -> None:
    pace = LoadPace(LIMITS)
    loads = decodes(LIMITS, coarse=True)
    for load in loads:
        pace.note(load, Ran(0.2, decode_s=0.01))
    before = [pace.seconds(load) for load in loads]
    for load in loads[:3]:
        pace.note(load, Ran(0.6, decode_s=0.03))
    assert pace.seconds(loads[-1]) > 1.5 * before[-1]
    for load in loads[:3] * 3:
        pace.note(load, Ran(0.2, decode_s=0.01))
    assert pace.seconds(loads[-1]) < 1.2 * before[-1]


def test_a_batch_waits_for_slots_and_blocks_in_its_estimate() -> None:
    pace = LoadPace(LIMITS)
    for load in decodes(LIMITS, coarse=True):
        pace.note(load, Ran(0.2, decode_s=0.01))
    batch = batches(LIMITS, quick=True, seed=0)[0]
    few = Load("rl_on", batch.label, batch.requests, slots=4, track=True)
    assert pace.seconds(few) > 5 * pace.seconds(batch)
    request = Load("rl_on", {}, (Request(0, 16, 100),), track=True)
    assert pace.seconds(request) == pytest.approx(1.0, rel=0.1)


def test_progress_tells_the_pace_of_the_largest_batch() -> None:
    pace = LoadPace(LIMITS)
    assert pace.rate_words == ""
    for batch in (2, 8, 4):
        load = Load("decode", {"B": batch}, tuple(Request(i, 17, 9) for i in range(batch)))
        pace.note(load, Ran(1.0, decode_s=0.004))
    assert pace.rate_words == "; 2,000 tok/s at batch 8"
