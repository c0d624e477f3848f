"""Random scenarios against the kernel that checks every index: no table is left, no fence overwritten, nothing hangs.

    FLEETSIM_KERNEL=checked python -m tests.sim.fuzz_kernel --count 20000 --seed 1

The scenarios of `random_scenarios.py`, with engines, groups, turns, caps and buffers down to the smallest that the
rules allow, and past them: what cannot run must be refused in words. Their instances may have run for years, and their
accounts may be recorded in a log that is too short. Between them the requests of `test_jump_equals_loop.py`. What fails
is printed.
"""

from __future__ import annotations

import argparse
import faulthandler
import time
from collections import Counter
from typing import Any
from unittest import mock

import yaml
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, with_changes
from fleetsim.engine.compiled import is_checked
from fleetsim.engine.kernel.tables import REBASE
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.requests import run_requests
from fleetsim.engine.step_time import StepTime
from fleetsim.engine.window import AttentionWindow
from fleetsim.errors import InputError, StuckError
from fleetsim.policies.samples import LOST
from fleetsim.records import replace
from fleetsim.sim import fleet
from fleetsim.sim.fleet import ActivityLog, Fleet
from fleetsim.sim.run import simulate
from fleetsim.sim.stations import TIME_LIMITS
from tests.engine.test_jump_equals_loop import cases
from tests.sim.random_scenarios import scenarios

# Seconds that a scenario may take, and calls of the kernel after which it has shown enough: some never get a batch.
MOST_S, MOST_MOVES = 120, 3_000


@st.composite
def engines(draw: st.DrawFn) -> dict[str, Any]:
    """Schedulers with little room: one sequence, a batch that cuts prompts, a cache that one request fills."""
    block, seqs = draw(st.sampled_from([1, 7, 16, 32])), draw(st.integers(1, 12))
    longest = 32 + 150 + 400 + 5 * 40
    return {
        "engine.name": draw(st.sampled_from(["vllm", "sglang", "tensorrt-llm"])),
        "engine.block_size": block,
        "engine.max_num_seqs": seqs,
        "engine.max_num_batched_tokens": draw(st.sampled_from([seqs, seqs + 1, 40, 256])),
        "engine.kv_blocks": -(-longest // block) + draw(st.sampled_from([0, 0, 3, 400])),
        "engine.capacity_scheduler_policy": draw(st.sampled_from(["guaranteed_no_evict", "max_utilization"])),
        "engine.speculation": draw(st.one_of(st.none(), speculations())),
    }


@st.composite
def speculations(draw: st.DrawFn) -> dict[str, Any]:
    """Drafts up to the longest, by batch size, of a tree, by a drafter that grows old."""
    k = draw(st.sampled_from([1, 3, 8, 64]))
    return {
        "method": draw(st.sampled_from(["mtp", "eagle3", "ngram", "suffix"])),
        "num_speculative_tokens": k,
        "num_draft_tokens": draw(st.sampled_from([None, None, k + 1, 2])),
        "acceptance": draw(st.sampled_from([0.0, 0.6, 1.0, [0.9, 0.2]])),
        "off_above_batch": draw(st.sampled_from([None, 1, 4])),
        "decay_per_version": draw(st.sampled_from([0.0, 0.1, 1.0])),
        "redrafted_every": draw(st.sampled_from([None, 1, 3])),
        "num_speculative_tokens_per_batch_size": draw(st.sampled_from([None, None, [[1, 2, 5], [5, 9, 1]]])),
    }


@st.composite
def turns(draw: st.DrawFn) -> dict[str, Any]:
    """As many for all, or by a law; tokens of each or of all together; caps that end turns and samples."""
    shares = {"kind": "histogram", "le": [1, 2, 5], "count": [5, 3, 2]}
    return {
        "workload.turns.count": draw(st.sampled_from([1, 2, 5, "geometric:2:5", "uniform:1:5", shares])),
        "workload.turns.output_tokens": draw(
            st.sampled_from([None, None, 3, {"kind": "lognormal", "mean": 20, "cv": 1.0, "max": 60}])
        ),
        "workload.turns.max_output_tokens": draw(st.sampled_from([None, None, 1, 15])),
        "workload.turns.max_trajectory_tokens": draw(st.sampled_from([None, None, 1, 40, 120])),
        "workload.turns.cut_turn": draw(st.sampled_from(["goes_on", "ends"])),
    }


@st.composite
def judges(draw: st.DrawFn) -> dict[str, Any]:
    """A judge at the rollout's engines."""
    return {
        "at": "rollout",
        "per": draw(st.sampled_from(["sample", "sample", "group"])),
        "votes": draw(st.integers(1, 3)),
        "prompt_tokens": draw(st.sampled_from([0, 20])),
        "reads_share": draw(st.sampled_from([0.0, 0.2, 1.0])),
        "output_tokens": draw(st.sampled_from([1, 30])),
    }


@st.composite
def other_pools(draw: st.DrawFn, blocks: int) -> dict[str, Any]:
    """Instances with more room or less, faster or slower, that are sent more or less. blocks: of one that holds all."""
    seqs = draw(st.integers(1, 20))
    return {
        "instances": draw(st.integers(1, 3)),
        "gpu": draw(st.sampled_from([None, "A100-SXM-80GB", "H200"])),
        "max_num_seqs": seqs,
        "max_num_batched_tokens": draw(st.sampled_from([seqs, 40, 300])),
        "kv_blocks": blocks + draw(st.sampled_from([0, 5, 500])),
        "weight": draw(st.sampled_from([None, 0.3, 1.0, 4.0])),
    }


@st.composite
def wild_scenarios(draw: st.DrawFn) -> Scenario:
    """Scenarios at the edges of what the rules allow. Raises InputError for some beyond them."""
    given = draw(scenarios())
    group = draw(st.sampled_from([1, 2, 3, 4, 7]))
    batch = group * draw(st.sampled_from([1, 2, 3, 4]))
    changes: dict[str, Any] = {
        "workload.group_size": group,
        **draw(turns()),
        "workload.turns.tool_tokens": {"kind": "lognormal", "mean": 15, "cv": 1.0, "max": 40},
        "workload.output_tokens.max": draw(st.sampled_from([5, 60, 400])),
        "workload.reward.workers": draw(st.sampled_from([None, 1, 2, 7])),
        "stations.tools.workers": draw(st.sampled_from([None, 1, 3])),
        "stations.tools.fresh_per": draw(st.sampled_from(["call", "episode"])),
        "stations.tools.timeout_s": draw(st.sampled_from([None, 0.7, 2.0])),
        "stations.tools.lost": draw(st.sampled_from(list(LOST))),
        **{f"stations.{of}.timeout_s": draw(st.sampled_from([None, None, 1.5, 5.0])) for of in TIME_LIMITS},
        **{f"stations.{of}.lost": draw(st.sampled_from(list(LOST))) for of in TIME_LIMITS},
        "trainer.batch_samples": batch,
        "trainer.minibatches": draw(st.sampled_from([1, 1, batch // group])),
        "buffer.capacity_samples": draw(st.sampled_from([None, group, batch, batch + 1, 1])),
        "buffer.group_oversampling": draw(st.sampled_from([1.0, 1.3, 3.0])),
        "fleet.instances": draw(st.integers(1, 9)),
        "fleet.max_in_flight_samples": draw(st.sampled_from([None, 1, group, batch])),
        "fleet.max_in_flight_samples_per_instance": draw(st.sampled_from([None, 1, group])),
        "fleet.failures.mtbf_s": draw(st.sampled_from([None, 5.0, 15.0])),
        "admission.pool_samples": group * draw(st.integers(1, 6)),
        "run.steps": draw(st.integers(1, 5)),
        "stations.judge": draw(st.one_of(st.none(), judges())),
        **draw(engines()),
    }
    if given.fleet.placement == "disaggregated" and given.engine.disaggregation is None:
        others = st.dictionaries(st.sampled_from("abc"), other_pools(changes["engine.kv_blocks"]))
        changes["fleet.pools"] = draw(others)
    if group == 1:
        changes["workload.filter.zero_variance_share"] = 0.0
    return with_changes(given, changes)


class EnoughError(Exception):
    """The run was long enough."""


@st.composite
def windows(draw: st.DrawFn) -> AttentionWindow | None:
    """Of a few tokens, or as far back as most requests go; sliding or in chunks; or none."""
    tokens = draw(st.sampled_from([0, 0, 1, 5, 40, 200]))
    return AttentionWindow(tokens, 2e-6, 1e-7, chunked=draw(st.booleans())) if tokens else None


def _with_window(limits: EngineLimits, window: AttentionWindow) -> EngineLimits:
    """Layers of a window with twice the blocks, in a cache that is as tight."""
    return replace(limits, window_tokens=window.tokens, window_blocks=2, kv_blocks=3 * limits.kv_blocks)


def run(scenario: Scenario, window: AttentionWindow | None = None, iterations: int = 0, log: int | None = None) -> None:
    """So much of a run, by engines with such a window that have run so many iterations before; its fences and sums are
    looked at in the end. log: rows of the log of accounts; None keeps none."""
    fleets: list[Fleet] = []
    begin, move, left = Fleet.__init__, Fleet._move, [MOST_MOVES]

    def remembered(self: Fleet, scenario: Scenario, step_time: StepTime, limits: EngineLimits, *args: Any) -> None:
        side = step_time.prefill
        side = None if side is None else replace(side, step_time=replace(side.step_time, window=window))
        if window is not None and not window.chunked and limits.scheduler == "vllm":
            limits = _with_window(limits, window)
            side = None if side is None else replace(side, limits=_with_window(side.limits, window))
        begin(self, scenario, replace(step_time, prefill=side, window=window), limits, *args)
        self.world.instances["count"] = self.world.instances["ratio_count"] = iterations
        fleets.append(self)

    def counted(self: Fleet, *args: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise EnoughError
        return move(self, *args)

    with (
        mock.patch.multiple(Fleet, __init__=remembered, _move=counted, close=lambda self: None),
        mock.patch.object(fleet, "ActivityLog", lambda world: ActivityLog(world, log)),
    ):
        try:
            simulate(scenario, activity=log is not None)
        finally:
            for one in fleets:
                one.world.inspect()
                rows = one.world.instances
                still = rows[rows["decodes"] == 0]
                assert not any(still[name].any() for name in ("near_sum", "near", "crossings_n", "growing"))
                assert not one.world.residues[rows["decodes"] == 0].any()
                empty = rows["running"] == 0
                assert (rows["free"] == one.kv_blocks)[empty].all(), "what a request took it gave back"


def run_case(case: dict[str, Any]) -> None:
    """Requests that arrive when they will, without a trainer."""
    run_requests(
        case["step_time"], case["limits"], case["prompt"], case["output"], arrival_s=case["arrival"],
        group=case["group"], prefix_caching=case["caching"], instances=case["instances"], routing=case["routing"],
    )  # fmt: skip


def fuzz(count: int, first: int) -> Counter[str]:
    """Runs `count` examples, the same for the same seed, and says how they ended."""
    ends: Counter[str] = Counter()

    @seed(first)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data: st.DataObject) -> None:
        faulthandler.dump_traceback_later(MOST_S, exit=True)
        kind = data.draw(st.sampled_from(["requests", "scenario", "wild", "wild"]))
        if kind == "requests":
            case = data.draw(cases(kept=data.draw(st.booleans())))
            note(str(case))
            run_case(case)
            ends["requests"] += 1
            return
        try:
            scenario = data.draw(wild_scenarios() if kind == "wild" else scenarios())
        except InputError:
            ends["refused"] += 1
            return
        window = data.draw(windows())
        # Few iterations before their counter starts anew.
        iterations = data.draw(st.sampled_from([0, 0, 0, int(REBASE) - 200]))
        log = data.draw(st.sampled_from([None, None, None, 0, 7]))
        note(f"{window}, {iterations} iterations before, log of {log} rows")
        note(yaml.safe_dump(scenario.model_dump(mode="json", exclude_defaults=True)))
        try:
            run(scenario, window, iterations, log)
        except (InputError, StuckError, EnoughError) as error:
            ends[type(error).__name__] += 1
        else:
            ends["ran"] += 1

    one()
    faulthandler.cancel_dump_traceback_later()
    return ends


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    faulthandler.enable()
    if not is_checked():
        parser.error("set FLEETSIM_KERNEL=checked: the other build does not notice what this looks for")
    began = time.monotonic()
    ends = fuzz(asked.count, asked.seed)
    if ends["ran"] < ends.total() / 4:
        raise SystemExit(f"of {ends.total()} examples {ends['ran']} ran, too few to say anything: {dict(ends)}")
    print(f"{ends.total()} examples, {dict(ends)}, {time.monotonic() - began:.0f} s: no index left its table")


if __name__ == "__main__":
    main()
