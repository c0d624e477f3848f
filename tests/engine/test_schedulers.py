"""Each scheduler on small timelines worked out by hand: what happens under it would not happen under the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime, RequestResult, run_requests
from fleetsim.engine.limits import SCHEDULERS
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError
from fleetsim.records import replace
from fleetsim.sim.fleet import Fleet

SECOND = LinearStepTime(1.0)  # every iteration takes a second
TOKENS = LinearStepTime(0.0, 0.0, 1.0)  # every prefill token takes a second, decodes none


def run(scheduler: str, limits: EngineLimits, prompt: Any, output: Any, step: StepTime = SECOND, **more: Any
        ) -> RequestResult:  # fmt: skip
    return run_requests(step, replace(limits, scheduler=scheduler), prompt, output, **more)


def test_prompts_run_alone_in_sglang_and_beside_decodes_elsewhere() -> None:
    """1 s an iteration and 0.1 s a prompt token. A: 10 + 4 tokens at 0 s; B: 20 + 2 tokens at 2.5 s.

    A's prompt takes 0 to 2 s, its second token 2 to 3 s, B's prompt 3 to 6 s. SGLang: A stands still meanwhile; both
    decode 6 to 7 s (B ends), A alone 7 to 8 s. The others: A's third token comes with B's prompt, both end at 7 s.
    """
    limits = EngineLimits(8, 1000, 10_000, 1, max_output_tokens=4)
    step = LinearStepTime(1.0, 0.0, 0.1)
    finish = {s: run(s, limits, [10, 20], [4, 2], step, arrival_s=[0, 2.5]).finish_s.tolist() for s in SCHEDULERS}
    assert finish["sglang"] == pytest.approx([8.0, 7.0])
    assert finish["vllm"] == finish["tensorrt-llm"] == pytest.approx([7.0, 7.0])


def test_who_may_start_beside_a_running_request() -> None:
    """130 tokens of cache, a client's cap of 50. A: 20 + 10 tokens at 0 s, ends at 10 s. B: the same, at 4.5 s.

    vLLM: B's prompt fits at 5 s. SGLang: A has 5 tokens and 24 in the cache; 106 are free, A may want 45 x 0.696 more,
    B 20 + 50 and a page: 71 < 106 - 31.3, so B starts at 5 s too, but not beside A in the first batch, where
    A counts in full: 71 >= 110 - 51. TensorRT-LLM keeps 70 for A until it ends: 60 < 70, B starts at 10 s.
    """
    limits = EngineLimits(8, 1000, 130, 1, max_output_tokens=50)
    later = {s: run(s, limits, 20, [10, 10], arrival_s=[0, 4.5]).start_s.tolist() for s in SCHEDULERS}
    assert later == {"vllm": [0, 5], "sglang": [0, 5], "tensorrt-llm": [0, 10]}
    at_once = {s: run(s, limits, 20, [10, 10]).start_s.tolist() for s in SCHEDULERS}
    assert at_once == {"vllm": [0, 0], "sglang": [0, 10], "tensorrt-llm": [0, 10]}


def test_sglang_tries_again_only_when_a_request_has_left() -> None:
    """As above at once, but with C in the queue's place of B at 4.5 s: B's failure at 0 s shuts the door for C too."""
    limits = EngineLimits(8, 1000, 130, 1, max_output_tokens=50)
    got = run("sglang", limits, [20, 20, 1], [10, 10, 1], arrival_s=[0, 0, 4.5])
    assert got.start_s.tolist() == [0, 10, 10]


def test_sglang_retracts_the_least_advanced_and_the_longest_prompt_of_those() -> None:
    """Ten of 1 + 20 tokens run (221 tokens of cache); at their second token D (3 + 20) and E (1 + 20) are let in.

    The ten's estimate was 0.7 of what they take, so the cache is full before they end. D and E have the fewest tokens.
    SGLang takes D back, which has the longer prompt; vLLM preempts E, which came last.
    """
    limits = EngineLimits(16, 1000, 221, 1, max_output_tokens=20)
    prompt, arrival = [1] * 10 + [3, 1], [0.0] * 10 + [1.5, 1.6]
    assert run("sglang", limits, prompt, [20] * 12, arrival_s=arrival).preemptions.tolist() == [0] * 10 + [1, 0]
    assert run("vllm", limits, prompt, [20] * 12, arrival_s=arrival).preemptions.tolist() == [0] * 10 + [0, 1]
    assert not run("tensorrt-llm", limits, prompt, [20] * 12, arrival_s=arrival).preemptions.any()


def test_siblings_of_one_batch() -> None:
    """8 siblings of 300 prompt tokens, a second each; blocks of 32 hold 288 of them, SGLang's pages are tokens.

    vLLM's siblings read the first one's blocks at once: 300 + 7 x 12 tokens in one iteration. TensorRT-LLM's wait
    until it is done at 300 s, then compute 12 each. SGLang's compute everything; one that comes later computes 1.
    """
    limits = EngineLimits(16, 4096, 10_000, 32, max_output_tokens=1)
    group = {"group": [0] * 8, "prefix_caching": True}
    assert run("vllm", limits, 300, [1] * 8, TOKENS, **group).finish_s.tolist() == [384.0] * 8
    assert run("tensorrt-llm", limits, 300, [1] * 8, TOKENS, **group).finish_s.tolist() == [300.0] + [384.0] * 7
    pages = replace(limits, block_size=1)
    arrival = [0.0] * 7 + [2000.0]
    sglang = run("sglang", pages, 300, [1] * 8, TOKENS, arrival_s=arrival, **group)
    assert sglang.finish_s.tolist() == [2100.0] * 7 + [2101.0]


def test_tensorrt_passes_siblings_over_and_takes_what_is_behind_them() -> None:
    """Two groups of two, 64 prompt tokens each: both first siblings compute, then both second ones, 32 tokens each."""
    limits = EngineLimits(16, 4096, 1000, 32, max_output_tokens=1)
    got = run("tensorrt-llm", limits, 64, [1] * 4, TOKENS, group=[0, 0, 1, 1], prefix_caching=True)
    assert got.start_s.tolist() == [0.0, 128.0, 0.0, 128.0]
    assert got.finish_s.tolist() == [128.0, 192.0, 128.0, 192.0]


def test_no_evict_runs_in_waves_where_the_others_preempt() -> None:
    """32 blocks of 32, 8 requests of 64 + 192 tokens: 8 blocks each. Four at a time take 192 iterations."""
    limits = EngineLimits(16, 2048, 32, 32, max_output_tokens=192)
    waves = run("tensorrt-llm", limits, [64] * 8, [192] * 8)
    assert waves.finish_s.tolist() == [192.0] * 4 + [384.0] * 4
    assert not waves.preemptions.any()
    assert run("tensorrt-llm", replace(limits, no_evict=False), [64] * 8, [192] * 8).preemptions.sum() == 4
    assert run("vllm", limits, [64] * 8, [192] * 8).preemptions.sum() == 4


def test_tensorrt_cuts_prompts_at_blocks() -> None:
    """A prompt of 100 tokens under a budget of 50: 32 + 32 + 36 in blocks of 32, 50 + 50 in vLLM."""
    limits = EngineLimits(4, 50, 100, 32, max_output_tokens=1)
    assert run("tensorrt-llm", limits, 100, [1]).finish_s.tolist() == [3.0]
    assert run("vllm", limits, 100, [1]).finish_s.tolist() == [2.0]


def test_a_state_of_fixed_size_takes_blocks_from_every_running_request() -> None:
    """10 blocks of 16; requests of 16 + 16 tokens hold 2 blocks and a state of 3: two at a time instead of five."""
    limits = EngineLimits(8, 1000, 10, 16, state_blocks=3)
    assert run("vllm", limits, 16, [16] * 4).start_s.tolist() == [0, 0, 16, 16]
    assert run("vllm", replace(limits, state_blocks=0), 16, [16] * 4).start_s.tolist() == [0, 0, 0, 0]
    with pytest.raises(InputError, match="at least 5"):
        run("vllm", replace(limits, kv_blocks=4), 16, [16])


def fleet_of(scheduler: str, turns: int, groups: int, size: int) -> Fleet:
    scenario = with_changes(
        default_scenario(),
        {
            "workload.group_size": 1,
            "workload.prompt_tokens": {"kind": "constant", "value": 100},
            "workload.output_tokens": {"kind": "constant", "value": 40},
            "workload.turns": {"count": turns, "tool_latency_s": 0.5, "tool_tokens": 10},
            "workload.shared_prefix_tokens": 64,
            "fleet.instances": 1,
            "trainer.batch_samples": groups,
        },
    )
    limits = EngineLimits(8, 4096, 10_000, size, max_output_tokens=40, scheduler=scheduler)
    fleet = Fleet(scenario, LinearStepTime(0.01, 1e-4), limits, 0)
    fleet.set(credits=groups)
    return fleet


@pytest.mark.parametrize(
    ("scheduler", "size", "second"),
    # turn one leaves 119 tokens in the cache; turn two has 100 + 20 + 10, of which the cached full blocks are found
    [("sglang", 1, 130 - 119), ("vllm", 16, 130 - 112), ("tensorrt-llm", 32, 130 - 96)],
)
def test_a_returning_request_finds_its_own_tokens(scheduler: str, size: int, second: int) -> None:
    fleet = fleet_of(scheduler, turns=2, groups=1, size=size)
    fleet.advance(np.inf)
    assert fleet.world.instances["prefilled"][0] == 100 + second


@pytest.mark.parametrize(
    ("scheduler", "size", "computed"),
    # four groups at once that share 64 tokens of system prompt
    [("vllm", 16, 100 + 3 * 36), ("sglang", 1, 4 * 100), ("tensorrt-llm", 32, 100 + 3 * 36)],
)
def test_groups_share_the_system_prompt(scheduler: str, size: int, computed: int) -> None:
    fleet = fleet_of(scheduler, turns=1, groups=4, size=size)
    fleet.advance(np.inf)
    assert fleet.world.instances["prefilled"][0] == computed
    fleet.set(credits=2)  # two more find it in the cache under every scheduler
    fleet.advance(np.inf)
    assert fleet.world.instances["prefilled"][0] == computed + 2 * 36
    assert fleet.world.instances["free"][0] == 10_000


def test_a_flush_while_prompts_are_computed_leaves_nothing_to_find() -> None:
    from fleetsim.engine.kernel.tables import CMD_NEW_EPOCH

    for scheduler, size in (("sglang", 1), ("tensorrt-llm", 32)):
        fleet = fleet_of(scheduler, turns=1, groups=1, size=size)
        fleet.advance(0.001)  # inside the prompt's iteration
        fleet.command(CMD_NEW_EPOCH)
        fleet.advance(np.inf)
        fleet.set(credits=1)
        fleet.advance(np.inf)
        assert fleet.world.instances["prefilled"][0] == 200, scheduler
        assert fleet.world.instances["free"][0] == 10_000


def test_an_unknown_scheduler_is_an_input_error() -> None:
    with pytest.raises(InputError, match="one of vllm, sglang, tensorrt-llm"):
        EngineLimits(1, 1, 1, scheduler="orca")
