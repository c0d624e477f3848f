"""A real vLLM server on the CPU, measured over HTTP: groups, n > 1, pause and resume, a kept-out batch predicted."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.build import build_profile
from fleetsim.calibrate.engine_facts import facts_of
from fleetsim.calibrate.fit.design import observations_of
from fleetsim.calibrate.loads import key_of
from fleetsim.calibrate.raw import Raw, RawWriter, raw_of, read_raw, records_of
from fleetsim.calibrate.server.measure import measure_server
from tests.real_vllm.attempts import LIMIT, shown_bias
from tests.real_vllm.serving import BLOCK, SLOTS

pytestmark = pytest.mark.timed

SWEEPS, BATCHES = {"decode", "prefill", "mixed"}, {"rl_requests", "rl_n"}
BUDGETS_S = (55.0, 110.0, 220.0)


@pytest.fixture(scope="module")
def sessions(server: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Raw]:
    """The measurements of a calibration, by its seed; each is made once."""
    folder = tmp_path_factory.mktemp("raw")
    return cache(lambda seed: whole_session(server, folder, seed))


@pytest.fixture(scope="module")
def measured(sessions: Callable[[int], Raw]) -> Raw:
    """The first of them."""
    return sessions(0)


def whole_session(server: str, folder: Path, seed: int) -> Raw:
    """A calibration that got through its loads, or the longest one that was tried.

    A calibration has seconds and leaves out what it has no time for. How many it needs depends on what else this
    machine does; a minute is enough where nothing does.
    """
    for budget_s in BUDGETS_S:
        writer = RawWriter(folder / f"{seed}-{budget_s:.0f}.raw.jsonl")
        writer.put("meta", source="server", date="2026-11-21T00:00:00Z")
        try:
            measure_server(Calibrate(url=server, quick=True, budget_s=budget_s, measure_sync=True, seed=seed), writer)
        finally:
            writer.close()
        raw = read_raw(writer.path)
        if is_whole(raw):
            break
    return raw


def is_whole(raw: Raw) -> bool:
    """Whether every sweep got from its smallest to its largest load, and both batches to their end."""
    o = observations_of(raw)
    phases = {raw.phase_of[s] for s in o.segment}
    ended = {s.phase for s in raw.segments if s.kept_out and not s.cut}
    return phases == SWEEPS and ended == BATCHES and all(_alone(raw, b).any() for b in (1, SLOTS))


def test_the_server_says_what_it_is(measured: Raw) -> None:
    facts = facts_of(measured)
    p, limits = facts.provenance, facts.limits
    assert (p.engine, p.engine_version, p.model, p.tp) == ("vllm", "0.32.0", "tiny", 1)
    assert (limits.max_num_seqs, limits.max_num_batched_tokens, limits.block_size) == (SLOTS, 2048, BLOCK)
    assert limits.kv_blocks == 2**30 // (BLOCK * 2 * 2 * 2 * 32 * 2) - 1  # layers, k and v, heads, size, bytes
    assert measured.starts[0]["model"]["max_model_len"] == 2048
    assert (facts.prefix_caching, p.dtype) == (True, "bfloat16")
    assert facts.graph_sizes == ()
    assert not p.assumed
    way = measured.starts[0]["client"]
    assert way["prompts"] == "token_ids"
    assert way["counted_by"] == "usage"
    assert not way["ends_early"]


def test_sweeps_and_batches_are_there(measured: Raw) -> None:
    o = observations_of(measured)
    assert {measured.phase_of[s] for s in o.segment} == SWEEPS
    assert (o.decodes.min(), o.decodes.max()) == (0, SLOTS)
    batches = [s for s in measured.segments if s.kept_out and not s.cut]
    assert {s.phase for s in batches} == BATCHES
    for s in batches:
        assert s.requests is not None
        assert s.requests["n"] == s.requests["want"]
        assert s.record["preemptions"] == 0


def test_a_batch_is_slower_than_one_request_and_worth_it(sessions: Callable[[int], Raw]) -> None:
    """In the first session, or in the median of three: the two loads are minutes of a shared machine apart."""
    slower = [_slower(sessions(0))]
    if not 1 < slower[0] < SLOTS:
        slower += [_slower(sessions(seed)) for seed in (1, 2)]
    assert 1 < float(np.median(slower)) < SLOTS, slower


def _slower(raw: Raw) -> float:
    """Seconds of an iteration of all slots / of one."""
    seconds = observations_of(raw).seconds
    one, all_ = (float(np.median(seconds[_alone(raw, b)])) for b in (1, SLOTS))
    return all_ / one


def _alone(raw: Raw, b: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    o = observations_of(raw)
    decode = np.array([raw.phase_of[s] == "decode" for s in o.segment])
    first = np.searchsorted(o.of, np.arange(len(o)))
    return np.asarray(decode & (o.decodes[first] == b))


def test_siblings_hit_the_prefix_cache_as_the_model_says(measured: Raw) -> None:
    """Separate requests and n = 8 in one request alike: all full blocks but the last token's, for all but the first."""
    batches = [s for s in measured.segments if s.kept_out and not s.cut]
    assert batches
    for s in batches:
        groups, siblings, prompt = s.label["groups"], s.label["G"], s.label["P"]
        assert s.record["hit_tokens"] == groups * (siblings - 1) * ((prompt - 1) // BLOCK * BLOCK)


def test_pause_and_resume_are_timed_and_leave_the_server_running(measured: Raw, server: str) -> None:
    sync = next(r for r in measured.records if r.get("t") == "phase" and r.get("ph") == "sync")
    assert 0 < sync["res"]["pause_keep_s"] < 30
    assert 0 < sync["res"]["resume_to_next_result_s"] < 30
    with urllib.request.urlopen(f"{server}/is_paused", timeout=10) as answer:
        assert answer.read() == b'{"is_paused":false}'


def test_the_kept_out_batches_are_predicted(sessions: Callable[[int], Raw]) -> None:
    """What `calibrate --url` does: the API server, the engine and this client share the machine's few cores."""
    profile, error = shown_bias(lambda seed: build_profile(sessions(seed), name="tiny-server", raw_file=None))
    assert profile.provenance.source == "server"
    assert len(profile.checks) == 2
    assert error <= LIMIT


def test_a_second_session_repeats_nothing(measured: Raw, server: str, tmp_path: Path) -> None:
    done = frozenset(key_of(s.phase, s.label) for s in measured.segments if not s.cut)
    writer = RawWriter(tmp_path / "b.raw.jsonl")
    measure_server(Calibrate(url=server, quick=True, budget_s=10.0), writer, done=done)
    writer.close()
    again = raw_of(*records_of(tmp_path / "b.raw.jsonl"))
    assert len(again.starts) == 1
    assert not {key_of(s.phase, s.label) for s in again.segments} & done
