"""Copies of KV blocks in the host's memory, between turns and at preemption: timelines by hand, and what always holds.

One request runs at a time. A token takes 0.01 s, a prompt's token 0.01 s more, and a block holds one token, so a turn
of a hundred tokens takes a second, and so does its context where it has to be computed again.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime, run_requests
from fleetsim.errors import InputError, StuckError
from fleetsim.records import replace
from fleetsim.sim.engines import engine_of
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.metrics import numbers_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from tests.sim.random_scenarios import scenarios
from tests.sim.timelines import Engine, done, play

INFINITE = 1 << 40
# Two turns, four seconds between them.
TURNS: dict[str, Any] = {"workload__turns__count": 2, "workload__turns__tool_latency_s": 4.0}


def engine(kv_blocks: int, scheduler: str = "vllm", seqs: int = 1, **host: Any) -> Engine:
    """An engine of so many blocks, with what its host holds."""
    cap = {"max_output_tokens": 400}
    return LinearStepTime(0.01, 0.0, 0.01), EngineLimits(seqs, 4096, kv_blocks, 1, scheduler=scheduler, **cap, **host)


@pytest.mark.parametrize("scheduler", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("kv_blocks", "host_blocks", "ends", "within"),
    [
        (1000, 0, 6.0, 6.0),  # what the first turn computed is still there: one token is computed, a hundred generated
        (350, 0, 7.0, 7.0),  # the other samples' first turns have taken its place: a second of prompt
        (350, 1000, 8.0, 8.0),  # all hundred come from the host, 0.02 s each
        (350, 320, 7.2, 6.8),  # the host has room for twenty beside the others': 0.4 s, and 81 are computed
        (350, 300, 7.0, 7.0),  # and here for the others' alone
    ],
)
def test_a_second_turn_finds_its_context(
    kv_blocks: int, host_blocks: int, ends: float, within: float, scheduler: str
) -> None:
    """Four samples, one after the other: the first one's second turn begins at 5 s. SGLang computes what it lacks while
    the rest comes."""
    host = {"host_blocks": host_blocks, "load_block_s": 0.02}
    run = play([2], engine=engine(kv_blocks, scheduler, **host), fleet__max_in_flight_samples=4, **TURNS)
    assert done(run, 0)[0] == pytest.approx(within if scheduler == "sglang" else ends, abs=0.05)


@pytest.mark.parametrize(("scheduler", "ends"), [("vllm", (9.51, 9.52)), ("sglang", (9.48505, 10.49505))])
def test_vllm_loads_beside_the_others_and_sglang_within_an_iteration(scheduler: str, ends: tuple[float, float]) -> None:
    """A prompt of 100 that only the host has, 99 blocks of it, begins to come at 8.5 s and takes 0.98505 s, while a
    request has made 49 of its 150 tokens. vLLM makes 99 more meanwhile; with the next, the 100th token of the prompt is
    computed (0.02 s), and one is left. SGLang's batch of prompts takes as long as the copies, and 101 tokens are left.
    """
    host = {"host_blocks": INFINITE, "load_block_s": 0.00995}
    run = run_requests(
        LinearStepTime(0.01, 0.0, 0.01),
        EngineLimits(4, 4096, 600, 1, max_output_tokens=150, scheduler=scheduler, **host),
        [100, 590, 1, 100], [1, 1, 150, 1], arrival_s=[0, 1.2, 8, 8.495], group=[0, 1, 2, 0], prefix_caching=True,
    )  # fmt: skip
    assert (run.finish_s[3], run.finish_s[2]) == pytest.approx(ends)


def resumed(scheduler: str, **host: Any) -> np.ndarray[Any, Any]:
    """Two requests of 10 + 100 tokens share 150 blocks; both end."""
    limits = EngineLimits(2, 4096, 150, 1, max_output_tokens=100, scheduler=scheduler, **host)
    run = run_requests(LinearStepTime(0.01, 0.0, 0.01), limits, [10, 10], [100, 100], group=[0, 1], prefix_caching=True)
    assert run.preemptions.tolist() == [0, 1]
    return run.finish_s


def test_a_preempted_request_comes_back_from_the_host() -> None:
    """After 0.21 s for both prompts each token takes 0.01 s. With 66 tokens each, 75 of them in the cache, there is no
    block left; the second goes, the first ends at 1.2 s. Then 76 tokens are computed again (0.77 s), or 75 come from
    the host and one is computed (0.02 s); 33 more are to be made."""
    assert resumed("vllm") == pytest.approx([1.2, 1.2 + 0.77 + 0.33])
    assert resumed("vllm", host_blocks=INFINITE) == pytest.approx([1.2, 1.2 + 0.02 + 0.33])
    assert resumed("vllm", host_blocks=INFINITE, load_block_s=0.002) == pytest.approx([1.2, 1.2 + 0.15 + 0.02 + 0.33])
    # At 1.2 s the first one has 109 blocks in the cache, and so has the host, before any of the second's.
    assert resumed("vllm", host_blocks=109) == pytest.approx([1.2, 1.2 + 0.77 + 0.33])
    assert resumed("vllm", host_blocks=150) == pytest.approx([1.2, 1.2 + 0.77 - 0.41 + 0.33])


def test_a_weight_sync_empties_the_host() -> None:
    """At most two samples are in flight, six seconds between their turns. The first step's batch is there at 8 s and
    trained until 12 s; the third sample's first turn ends at 10 s and its second begins at 16 s."""
    case: dict[str, Any] = {
        "workload__turns__count": 2,
        "workload__turns__tool_latency_s": 6.0,
        "trainer__batch_samples": 1,
        "fleet__max_in_flight_samples": 2,
    }
    held = engine(210, host_blocks=INFINITE)
    assert done(play([2], engine=held, sync__reset_prefix_cache=False, **case), 0, 1, 2) == (8.0, 9.0, 17.0)
    assert done(play([2], engine=held, sync__reset_prefix_cache=True, **case), 0, 1, 2) == (8.0, 9.0, 18.0)


lengths = st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=6)


def computed(records: Records) -> int:
    """Prompt tokens that were computed until the last step."""
    return int(records.steps["prefilled_tokens"][-1])


@settings(max_examples=25, deadline=None)
@given(lengths, st.sampled_from(["vllm", "sglang"]), st.sampled_from([2, 3, 5]))
def test_an_endless_host_with_an_endless_link_is_an_engine_that_never_loses_its_cache(
    seconds: list[int], scheduler: str, turns: int
) -> None:
    changes = {**TURNS, "workload__turns__count": turns, "sync__reset_prefix_cache": False}
    tight = play(seconds, engine=engine(800, scheduler, host_blocks=INFINITE), **changes)
    roomy = play(seconds, engine=engine(1 << 24, scheduler), **changes)
    assert tight.samples["finish_s"].tobytes() == roomy.samples["finish_s"].tobytes()
    assert computed(tight) == computed(roomy)


@settings(max_examples=25, deadline=None)
@given(lengths, st.sampled_from(["vllm", "sglang"]), st.sampled_from([2, 3, 5]), st.integers(0, 40))
def test_a_larger_host_computes_no_more_again(seconds: list[int], scheduler: str, turns: int, step: int) -> None:
    """One instance, first in, first out."""
    changes = {**TURNS, "workload__turns__count": turns}
    again = [
        computed(play(seconds, engine=engine(400, scheduler, host_blocks=blocks), **changes))
        for blocks in (0, 300 + step, 500 + step, 900 + step, INFINITE)
    ]
    assert again == sorted(again, reverse=True)


@settings(max_examples=25, deadline=None)
@given(scenarios(), st.sampled_from([0.0, 0.003]))
def test_a_host_that_holds_nothing_is_none(scenario: Any, load_block_s: float) -> None:
    step_time, limits = engine_of(scenario)
    if limits.scheduler == "tensorrt-llm" or limits.state_blocks or limits.window_blocks:
        return
    with_none = step_time, replace(limits, host_blocks=0, load_block_s=load_block_s)
    try:
        without = simulate(scenario, engine=(step_time, limits))
    except StuckError as stuck:
        with pytest.raises(StuckError, match=re.escape(str(stuck).splitlines()[0])):
            simulate(scenario, engine=with_none)
        return
    none = simulate(scenario, engine=with_none)
    assert none.steps.tobytes() == without.steps.tobytes()
    assert none.samples["finish_s"].tobytes() == without.samples["finish_s"].tobytes()


AGENTS: dict[str, Any] = {
    "workload.turns.count": 10,
    "workload.turns.tool_latency_s": 20.0,
    "workload.turns.tool_tokens": 500,
    "workload.output_tokens": {"kind": "lognormal", "mean": 6000, "cv": 0.6, "max": 16_000},
    "engine.kv_blocks": 20_000,
    "fleet.instances": 2,
    "trainer.batch_samples": 256,
    "trainer.fixed_s": 60.0,
    "run.steps": 6,
}


def agents(**changes: Any) -> dict[str, Any]:
    """The metrics of agents whose contexts do not all fit; a double underscore stands for a dot."""
    scenario = with_changes(default_scenario(), AGENTS | {k.replace("__", "."): v for k, v in changes.items()})
    return numbers_of(simulate(scenario))


def test_what_comes_from_the_host_is_told() -> None:
    without, half, all_of_it = (agents(engine__kv_offloading_gib=gib) for gib in (None, 40, 400))
    assert "host_hit" not in without
    assert 0.0 < half["host_hit"] < all_of_it["host_hit"]
    assert all_of_it["host_hit"] + all_of_it["cache_hit"] < 1.0
    assert without["step_s"] > half["step_s"] > all_of_it["step_s"]
    # The same in multiples of the cache: 20,000 blocks of 16 tokens of 57,344 bytes are 17 GiB.
    same = agents(engine__kv_offloading_ratio=40 * 2**30 / (20_000 * 16 * 57_344))
    assert same == half
    slow = agents(engine__kv_offloading_gib=400, engine__host_link_gb_s=0.05)
    assert slow["step_s"] > all_of_it["step_s"]


def test_the_link_of_each_gpu_carries_its_part() -> None:
    """Qwen2.5-7B has 28 layers of 4 heads of 128: 57,344 bytes a token. An H100 reaches 50 GB/s of its host."""
    for changes, seconds, blocks in (
        ({}, 16 * 57_344 / 50e9, 64 * 2**30 // (16 * 57_344)),
        ({"engine.tp": 2}, 16 * 57_344 / 2 / 50e9, 64 * 2**30 // (16 * 57_344)),
        ({"engine.pp": 2}, 16 * 57_344 / 2 / 50e9, 64 * 2**30 // (16 * 57_344)),
        ({"engine.gpu": "A100"}, 16 * 57_344 / 25e9, 64 * 2**30 // (16 * 57_344)),
        ({"engine.host_link_gb_s": 10}, 16 * 57_344 / 10e9, 64 * 2**30 // (16 * 57_344)),
        ({"engine.kv_dtype": "fp8"}, 8 * 57_344 / 50e9, 64 * 2**30 // (8 * 57_344)),
    ):
        limits = engine_of(with_changes(default_scenario(), {"engine.kv_offloading_gib": 64} | changes))[1]
        assert (limits.load_block_s, limits.host_blocks) == (pytest.approx(seconds), blocks)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"engine.kv_offloading_ratio": 2}, "one size"),
        ({"engine.name": "tensorrt-llm"}, "vLLM and SGLang"),
        ({"engine.prefix_caching": False}, "prefix cache"),
        ({"engine.disaggregation": {"prefill": 1}}, "compute their prompts"),
        ({"engine.kind": "constant", "engine.instance_tok_s": 1000}, "how large a block"),
        ({"engine.model": "openai/gpt-oss-20b"}, "keep all tokens"),
    ],
)
def test_what_a_host_cannot_hold_is_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError) as error:
        engine_of(with_changes(default_scenario(), {"engine.kv_offloading_gib": 64} | changes))
    assert any(rule in p.rule and p.remedy for p in error.value.problems), error.value


@settings(max_examples=60, deadline=None)
@given(scenarios(), st.sampled_from([100, 400, 1 << 40]), st.sampled_from([0.0, 0.01, 0.3]), st.integers(0, 60))
def test_blocks_come_back_whatever_happens_to_what_waits_for_the_host(
    scenario: Any, host_blocks: int, load_block_s: float, room: int
) -> None:
    """Samples are discarded, moved, lost and computed again at syncs while copies are on their way to them."""
    limits = EngineLimits(4, 256, 700 // 8 + room, 8, host_blocks=host_blocks, load_block_s=load_block_s)
    held = with_changes(scenario, {"engine.kind": "roofline", "engine.name": "vllm", "engine.speculation": None})
    fleets: list[Fleet] = []
    begin = Fleet.__init__

    def remembered(self: Fleet, *args: Any) -> None:
        begin(self, *args)
        fleets.append(self)

    kept = mock.patch.multiple(Fleet, __init__=remembered, close=lambda self: None)
    with kept, contextlib.suppress(StuckError):
        simulate(held, engine=(LinearStepTime(0.01, 0.0, 0.001), limits))
    rows = fleets[0].world.instances
    assert ((rows["free"] >= 0) & (rows["free"] <= limits.kv_blocks)).all()
    empty = (rows["running"] == 0) & (rows["waiting"] == 0)
    assert (rows["free"][empty] == limits.kv_blocks).all()
    assert (rows["loading"][empty] == 0).all()
    assert (rows["reserved"][empty] == 0).all()
