"""Rows of a scheduler that is played by hand, with vLLM's own field names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Some
from typing import Any

import pytest

from fleetsim.calibrate.raw import COLUMNS, RawWriter, records_of, request_columns
from fleetsim.calibrate.vllm import description, recorder
from fleetsim.calibrate.vllm.recorder import Recorder, Tracked, request_rows
from fleetsim.errors import OutsideError


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scheduler:
    """Hands out the outputs that a test prepared. took: seconds that schedule() takes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.running: list[Any] = []
        self.waiting: list[Any] = []
        self.requests: dict[str, Any] = {}
        self.outputs: list[Any] = []
        self.during: Callable[[], object] = lambda: None
        pool = Some(num_gpu_blocks=101, get_num_free_blocks=lambda: 60)
        self.kv_cache_manager = Some(block_pool=pool)

    def schedule(self, throttle: bool = False) -> Any:
        self.during()
        self.clock.now += 0.001
        return self.outputs.pop(0)

    def update_from_output(self, output: Any, result: Any) -> Any:
        self.clock.now += 0.002
        return {0: Some(outputs=result)}

    def _preempt_request(self, request: Any, moment: float = 0.0) -> str:
        return f"preempted {request.request_id}"


def output(tokens: dict[str, int], new: dict[str, int] | None = None, cached: dict[str, int] | None = None,
           resumed: tuple[str, ...] = ()) -> Any:  # fmt: skip
    """A SchedulerOutput: tokens by request, computed tokens of new and of known requests."""
    return Some(
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        scheduled_new_reqs=[Some(req_id=i, num_computed_tokens=c) for i, c in (new or {}).items()],
        scheduled_cached_reqs=Some(
            req_ids=list(cached or {}), num_computed_tokens=list((cached or {}).values()), resumed_req_ids=set(resumed)
        ),
    )


def token(request_id: str, n: int = 1, finish: str | None = None) -> Any:
    return Some(request_id=request_id, new_token_ids=[7] * n, finish_reason=finish)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(recorder, "perf_counter", found)
    return found


@pytest.fixture
def played(tmp_path: Path, clock: Clock) -> tuple[Scheduler, Recorder, Path]:
    scheduler = Scheduler(clock)
    path = tmp_path / "a.raw.jsonl"
    return scheduler, Recorder(scheduler, RawWriter(path), epoch=clock.now), path


def rows(path: Path) -> list[dict[str, int]]:
    found = []
    for record in records_of(path)[0]:
        if record["t"] == "it":
            found += [dict(zip(COLUMNS, values, strict=True)) for values in zip(*record["c"].values(), strict=True)]
    return found


def step(scheduler: Scheduler, clock: Clock, out: Any, result: list[Any], seconds: float) -> None:
    """One synchronous iteration whose model takes `seconds`."""
    scheduler.outputs.append(out)
    scheduled = scheduler.schedule()
    clock.now += seconds
    scheduler.update_from_output(scheduled, result)


def test_a_prompt_in_chunks_beside_decodes(played: tuple[Scheduler, Recorder, Path], clock: Clock) -> None:
    scheduler, record, path = played
    record.begin("mixed", {"B": 2}, warm=1)
    scheduler.running = ["a", "b"]
    scheduler.requests = {"c": Some(num_tokens=100)}
    step(scheduler, clock, output({"a": 1, "b": 1}, cached={"a": 40, "b": 60}), [token("a"), token("b")], 0.010)
    chunk = output({"a": 1, "b": 1, "c": 50}, new={"c": 32}, cached={"a": 41, "b": 61})
    step(scheduler, clock, chunk, [token("a"), token("b")], 0.020)
    rest = output({"a": 1, "b": 1, "c": 18}, cached={"a": 42, "b": 62, "c": 82})
    step(scheduler, clock, rest, [token("a"), token("b", finish="length"), token("c")], 0.030)
    step(scheduler, clock, output({"a": 1, "c": 1}, cached={"a": 43, "c": 100}), [token("a"), token("c")], 0.010)
    record.flush()
    first, second, third, fourth = rows(path)
    assert (first["nd"], first["K"], first["np"], first["warm"]) == (2, 100, 0, 1)
    assert (second["nd"], second["K"], second["npf"], second["np"]) == (2, 102, 1, 50)
    assert (second["hit"], second["adm"], second["Kp"]) == (32, 1, 32)
    assert second["A"] == sum(range(33, 83)), "each token of the chunk sees itself and all before it"
    assert (third["np"], third["Kp"], third["A"]) == (18, 82, sum(range(83, 101)))
    assert (third["out"], third["fin"]) == (3, 1)
    assert (fourth["nd"], fourth["K"], fourth["npf"]) == (2, 143, 0)
    assert fourth["blk"] == 40
    tally = record.tally
    assert (tally.iterations, tally.tokens, tally.prefill_tokens) == (4, 9, 68)
    assert tally.decode_s == pytest.approx(0.013)


def test_durations_run_from_result_to_result(played: tuple[Scheduler, Recorder, Path], clock: Clock) -> None:
    """Two iterations under way at once: the second is scheduled while the first still runs."""
    scheduler, record, path = played
    record.begin("decode", {}, warm=0)
    start = clock.now
    scheduler.outputs = [output({"a": 1}, cached={"a": 10 + i}) for i in range(4)]
    first = scheduler.schedule()
    scheduler.running = ["a"]
    second = scheduler.schedule()
    clock.now += 0.020
    scheduler.update_from_output(first, [token("a")])
    third = scheduler.schedule()
    clock.now += 0.020
    scheduler.update_from_output(second, [token("a")])
    clock.now += 0.020
    scheduler.update_from_output(third, [token("a")])
    end = clock.now - 0.002  # the last result came before the update
    record.flush()
    found = rows(path)
    assert [r["idle"] for r in found] == [1, 0, 0]
    assert [r["K"] for r in found] == [10, 11, 12]
    assert sum(r["dt"] for r in found) == round(1e6 * (end - start)), "durations add up to the wall time"
    assert found[1]["du"] > found[1]["dt"], "it was scheduled long before the last result"


def test_after_a_pause_of_the_engine_the_clock_starts_anew(
    played: tuple[Scheduler, Recorder, Path], clock: Clock
) -> None:
    scheduler, record, path = played
    record.begin("prefill", {}, warm=0)
    for _ in range(2):
        scheduler.requests = {"a": Some(num_tokens=8)}
        step(scheduler, clock, output({"a": 8}, new={"a": 0}), [token("a", finish="length")], 0.010)
        clock.now += 5.0
    record.flush()
    assert [r["dt"] for r in rows(path)] == [11000, 11000]
    assert [r["A"] for r in rows(path)] == [36, 36]


def test_a_preempted_request_computes_its_tokens_again(played: tuple[Scheduler, Recorder, Path], clock: Clock) -> None:
    scheduler, record, path = played
    request = Some(request_id="b", num_output_tokens=0, num_prompt_tokens=20, max_tokens=5)
    record.begin("rl_preempt", {}, warm=0)
    record.tracked["b"] = Tracked(request, clock.now)
    scheduler.running = ["a", "b"]
    scheduler.requests = {"b": Some(num_tokens=25)}
    scheduler.during = lambda: scheduler._preempt_request(request)
    step(scheduler, clock, output({"a": 1}, cached={"a": 9}), [token("a")], 0.010)
    scheduler.during = lambda: None
    again = output({"a": 1, "b": 9}, cached={"a": 10, "b": 16}, resumed=("b",))
    request.num_output_tokens = 5
    step(scheduler, clock, again, [token("a"), token("b", finish="length")], 0.010)
    record.flush()
    first, second = rows(path)
    assert (first["pre"], second["pre"]) == (1, 0)
    assert (second["nd"], second["npf"], second["np"], second["hit"], second["adm"]) == (1, 1, 9, 16, 1)
    columns = request_columns(request_rows([record.tracked["b"]]), 1000.0)
    assert columns["pre"] == [1]
    assert columns["n"] == [5]
    assert columns["first"] == columns["finish"]
    assert columns["first"][0] == round(1e6 * (clock.now - 0.002 - 1000.0))


def test_requests_that_never_ended_say_so(played: tuple[Scheduler, Recorder, Path], clock: Clock) -> None:
    request = Some(request_id="x", num_output_tokens=3, num_prompt_tokens=20, max_tokens=50)
    columns = request_columns(request_rows([Tracked(request, clock.now, first=clock.now + 1.0)]), clock.now)
    assert columns == {"submit": [0], "first": [10**6], "finish": [-1], "n": [3], "pre": [0], "P": [20], "want": [50]}


def test_rows_are_written_before_many_can_be_lost(played: tuple[Scheduler, Recorder, Path], clock: Clock) -> None:
    scheduler, record, path = played
    record.begin("rl_on", {}, warm=0)
    scheduler.running = ["a"]
    for i in range(recorder.ROWS + 1):
        step(scheduler, clock, output({"a": 1}, cached={"a": i}), [token("a")], 0.001)
    assert len(rows(path)) == recorder.ROWS
    record.begin("decode", {}, warm=0)
    assert [r["ph"] for r in records_of(path)[0]] == ["rl_on", "rl_on"]
    assert len(rows(path)) == recorder.ROWS + 1


def test_segments_keep_their_own_sums(played: tuple[Scheduler, Recorder, Path], clock: Clock) -> None:
    scheduler, record, _ = played
    scheduler.running = ["a"]
    for _ in range(2):
        record.begin("decode", {}, warm=2)
        for i in range(5):
            step(scheduler, clock, output({"a": 1}, cached={"a": i}), [token("a")], 0.010)
        tally = record.tally
        assert (tally.iterations, tally.tokens) == (5, 5)
        assert tally.seconds == pytest.approx(5 * 0.013, abs=0.003)
    assert record.segment == 2


def test_a_release_built_differently_is_named() -> None:
    with pytest.raises(OutsideError, match=r"LLM has no 'llm_engine'.*tested with 0\.26\.0 and 0\.32\.0.*--url"):
        description.core_of(type("LLM", (), {})())
    scheduler = Some(kv_cache_manager=Some(block_pool=Some()))
    names = dict.fromkeys(description.NEEDED["engine core"].split())
    core = Some(**{**names, "scheduler": scheduler})
    with pytest.raises(OutsideError, match=r"its scheduler has no 'schedule'"):
        description.core_of(Some(llm_engine=Some(engine_core=Some(engine_core=core))))


def test_what_is_published_holds_no_paths_and_no_secrets() -> None:
    fields = {
        "log": ["compiled in /root/.cache/vllm/torch_compile_cache/ab12/rank_0 took 3 s, 12/16 blocks, http://a/b"],
        "config": "model='/data/models/Qwen2.5-7B', hf_token=hush-1",
    }
    args = {"model": "/data/models/Qwen2.5-7B", "hf_token": "hush-1", "max_num_batched_tokens": 8192}
    found = description.published(fields, args, {"VLLM_API_KEY": 'hu"sh-2', "VLLM_CACHE_ROOT": "/tmp/x/cache"})
    assert found["engine_args"] == {"model": "Qwen2.5-7B", "hf_token": "***", "max_num_batched_tokens": 8192}
    assert found["env"] == {"VLLM_API_KEY": "***", "VLLM_CACHE_ROOT": "cache"}
    assert found["log"] == ["compiled in rank_0 took 3 s, 12/16 blocks, http://a/b"]
    assert found["config"] == "model='Qwen2.5-7B', hf_token=***"
