"""Addresses, keys, events, metrics pages, the guard: the pieces of measuring a server, one by one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.calibrate.loads import Limits, Request, prompt_chunks
from fleetsim.calibrate.order import loads_in_turn, served_batches
from fleetsim.calibrate.server.client import address_of, key_of
from fleetsim.calibrate.server.http_player import BrokenStreamError, EventReader, Response
from fleetsim.calibrate.server.metrics import Gauges, Guard, gauges_of
from fleetsim.calibrate.server.play import Prompts, Stream, plays_of
from fleetsim.errors import InputError, OutsideError


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/", "http://h:8000"),
        ("http://h:8000/v1", "http://h:8000"),
        ("http://h:8000/v1/v1/", "http://h:8000"),
        ("https://h/gate/v1/completions", "https://h/gate"),
        ("http://h/v1/chat/completions?x=1", "http://h"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_an_address_with_and_without_v1(url: str, root: str) -> None:
    assert address_of(url) == root


@pytest.mark.parametrize(
    "url", ["h:8000", "localhost", "ftp://h", "file:///etc/passwd", "http://", "http://h:99999", "http://a b", ""]
)
def test_no_address(url: str) -> None:
    with pytest.raises(InputError, match="--url"):
        address_of(url)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="--api-key") as caught:
        address_of("http://me:hunter2@h:8000")
    assert "hunter2" not in str(caught.value)


@given(st.text())
def test_any_url_is_an_address_or_an_input_error(url: str) -> None:
    try:
        assert address_of(url).startswith(("http://", "https://"))
    except InputError as error:
        assert error.problems


def test_where_the_key_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETSIM_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    unasked = key_of(None)
    assert unasked.headers() == {}  # it is somebody else's key until this server asks for one
    assert unasked.use_spare()
    assert unasked.headers() == {"Authorization": "Bearer sk-openai"}
    assert not unasked.use_spare()
    monkeypatch.setenv("FLEETSIM_API_KEY", "mine")
    assert key_of(None).headers() == {"Authorization": "Bearer mine"}
    assert key_of("flag").headers() == {"Authorization": "Bearer flag"}
    with pytest.raises(InputError) as caught:
        key_of("a\r\nX-Evil: 1")
    assert "Evil" not in str(caught.value)


STREAM = (
    b'data: {"choices":[{"index":0,"text":"a"}]}\n\n'
    b": comment\n\n"
    b"event: x\r\ndata: one\r\ndata: two\r\n\r\n"
    b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_however_the_bytes_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    reader, found = EventReader(), []
    for a, b in pairwise(edges):
        found += reader.feed(STREAM[a:b])
    assert found == ['{"choices":[{"index":0,"text":"a"}]}', "one\ntwo", "[DONE]"]


def test_what_is_no_stream() -> None:
    with pytest.raises(BrokenStreamError, match="no server-sent event"):
        EventReader().feed(b"<html>hello</html>\n\n")
    for data in ("{half", "[1]", '{"id": 1}', '{"choices": [7]}', '{"error": {"message": "out of memory"}}'):
        with pytest.raises(BrokenStreamError):
            response(f"data: {data}\n\n")


def response(*events: str, made: float = 0.0) -> tuple[Response, list[float]]:
    """A response of one stream after these events, and the tokens that each read brought. made: per chunk unknown."""
    found = Response([Stream(Request(1, 4, 99))], made)
    return found, [tokens for event in events for _, tokens in found.read(event.encode())]


def chunk(**fields: Any) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def test_tokens_of_a_chunk_by_ids_or_usage() -> None:
    one = {"index": 0, "text": "ab", "finish_reason": None}
    by_ids, tokens = response(chunk(choices=[{**one, "token_ids": [1, 2, 3]}], usage={"completion_tokens": 9}))
    assert (tokens, by_ids.counted_by) == ([3.0], "token_ids")
    by_usage, tokens = response(
        chunk(choices=[one], usage={"completion_tokens": 4}),
        chunk(choices=[one], usage={"completion_tokens": 9, "prompt_tokens": 4}),
    )
    assert (tokens, by_usage.counted_by, by_usage.streams[0].prompt_tokens) == ([4.0, 5.0], "usage", 4)
    unknown, tokens = response(chunk(choices=[one], usage=None), made=2.5)
    assert (tokens, unknown.streams[0].exact) == ([2.5], False)  # never taken for one token
    last = chunk(choices=[], usage={"completion_tokens": 12, "prompt_tokens": 4})
    spread, tokens = response(chunk(choices=[one]), last, made=2.5)
    spread.settle()
    assert tokens == [2.5]


VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 4.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 1.0
vllm:request_success_created{engine="0",finished_reason="stop",model_name="m"} 1.79e+09
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 128.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="100"} 1.0
"""


def test_a_metrics_page_of_vllm() -> None:
    g = gauges_of(VLLM)
    assert g is not None
    assert (g.family, g.running, g.waiting, g.busy, g.ended) == ("vllm", 3, 2, 5, 5)
    assert (g.hit_tokens, g.engines) == (128, 1)
    assert (g.cache["num_gpu_blocks"], g.cache["block_size"]) == ("100", "16")


def test_names_of_other_times_and_places() -> None:
    old = VLLM.replace("prefix_cache", "gpu_prefix_cache")
    ray = VLLM.replace("vllm:", "ray_vllm_")
    bare = VLLM.replace("_total{", "{")
    for page in (old, ray, bare):
        g = gauges_of(page)
        assert g is not None
        assert (g.running, g.hit_tokens, g.ended) == (3, 128, 5)


def test_a_metrics_page_of_sglang_counts_ranks_once() -> None:
    page = "".join(
        f'sglang:num_running_reqs{{model_name="m",tp_rank="{r}"}} 4\n'
        f'sglang:num_queue_reqs{{model_name="m",tp_rank="{r}"}} 1\n'
        f'sglang:max_total_num_tokens{{model_name="m",tp_rank="{r}"}} 9000\n'
        for r in (0, 1)
    )
    g = gauges_of(page)
    assert g is not None
    assert (g.family, g.running, g.waiting, g.total_kv_tokens, g.engines) == ("sglang", 4, 1, 9000, 1)


def test_data_parallel_engines_are_counted() -> None:
    more = VLLM + 'vllm:num_requests_running{engine="1",model_name="m"} 1.0\n'
    g = gauges_of(more)
    assert g is not None
    assert (g.engines, g.running) == (2, 4)


@pytest.mark.parametrize(
    "page", ["", "<html></html>", "other_metric 1\n", "[{}]", "vllm:num_requests_running{ 1", "\0"]
)
def test_no_metrics_page(page: str) -> None:
    assert gauges_of(page) is None


@given(st.text(max_size=200))
def test_any_page_is_a_reading_or_none(page: str) -> None:
    assert gauges_of(page) is None or gauges_of(page) is not None


def gauges(running: float = 0, ended: float = 0) -> Gauges:
    return Gauges("vllm", running, 0, ended, 0, 0, None, {}, 1)


def guarded(readings: list[Gauges | None], yes: bool, said: list[str]) -> Guard:
    async def read() -> Gauges | None:
        return readings.pop(0) if len(readings) > 1 else readings[0]

    return Guard(read, "http://h", yes, said.append, settle_s=0.25)


def test_a_guard_refuses_a_busy_server_unless_told() -> None:
    said: list[str] = []
    with pytest.raises(OutsideError, match=r"2 requests are running.*--yes"):
        asyncio.run(guarded([gauges(2)], False, said).first())
    assert asyncio.run(guarded([gauges(2)], True, said).first()) is not None
    assert "2 requests of others" in said[0]
    with pytest.raises(OutsideError, match=r"no /metrics.*--yes"):
        asyncio.run(guarded([None], False, said).first())
    assert asyncio.run(guarded([None], True, said).first()) is None


def test_a_guard_waits_for_our_own_requests_to_go_and_then_stops() -> None:
    async def look(readings: list[Gauges | None], sent: int) -> None:
        guard = guarded([gauges(), *readings], False, [])
        await guard.first()
        guard.sent = sent
        await guard.idle()

    asyncio.run(look([gauges(3), gauges(1), gauges(0, ended=8)], sent=8))
    asyncio.run(look([gauges(0, ended=10)], sent=8))  # two more: a health check that generates
    asyncio.run(look([None], sent=8))  # a scrape that did not come back says nothing
    with pytest.raises(OutsideError, match="others began to use"):
        asyncio.run(look([gauges(3)], sent=8))
    with pytest.raises(OutsideError, match=r"served 12 of others.*--resume"):
        asyncio.run(look([gauges(0, ended=20)], sent=8))


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=8), st.integers(1, 4096))
def test_chunks_hold_every_token_and_every_pair(prompts: list[int], budget: int) -> None:
    found = prompt_chunks(prompts, budget)
    assert sum(q for q, _ in found) == sum(prompts)
    assert sum(a for _, a in found) == sum(p * (p + 1) / 2 for p in prompts)
    assert all(q == budget for q, _ in found[:-1])


@given(
    st.integers(1, 2048), st.integers(32, 32768), st.integers(1, 10**6), st.sampled_from([1, 16, 128]), st.booleans()
)
def test_any_server_gets_loads_that_fit_it(slots: int, longest: int, blocks: int, block: int, quick: bool) -> None:
    limits = Limits(slots, max(2048, slots), longest, blocks, block)
    for load in loads_in_turn(limits, quick=quick, seed=0, at_once=1000, cached=True, mixed=True):
        for play in plays_of(load):
            asks = (*play.asks, *play.then)
            assert all(a.prompt_tokens >= 1 and a.output_tokens >= 1 for a in asks)
            assert all(a.prompt_tokens + a.output_tokens <= longest for a in asks)
            if load.kept_out:
                assert play.n * len(asks) == load.label["groups"] * 8
                continue
            assert len(play.asks) <= max(1, min(slots, 1000))
            tokens = sum(a.prompt_tokens + a.output_tokens for a in asks)
            assert tokens <= limits.kv_tokens or load.phase == "prefill"


def test_siblings_in_one_request_are_equally_long_and_have_prompts_of_their_own() -> None:
    limits = Limits(64, 2048, 4096, 20_000, 16)
    one, siblings = served_batches(limits, quick=False, seed=0, at_once=1000, cached=True)
    (each,), (together,) = plays_of(one), plays_of(siblings)
    assert each.n == 1
    assert together.n == 8
    assert len(each.asks) == 8 * len(together.asks)
    assert not {a.prompt for a in each.asks} & {a.prompt for a in together.asks}


def test_prompts_by_key() -> None:
    ids = Prompts(7)
    assert ids.prompt(1, 50) == ids.prompt(1, 50) != ids.prompt(2, 50)
    assert ids.prompt(1, 50) != Prompts(8).prompt(1, 50)
    assert all(
        isinstance(i, int) and 3 < i < 256 for i in ids.prompt(3, 500)
    )  # in every vocabulary: another id may kill an engine
    text = Prompts(7, text=True, tokens_per_word=1.5).prompt(1, 300)
    assert isinstance(text, str)
    assert len(text.split()) == 200


def test_the_entry_imports_no_http_library_until_it_measures() -> None:
    code = "import sys, fleetsim.calibrate.run; print([m for m in ('aiohttp', 'numba', 'scipy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
