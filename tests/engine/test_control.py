"""What a run does to its fleet: hold, recompute, discard, kill, revive, in any order, and nothing is lost or leaked.

Invariants, each with its reason:
- conservation: every sample is sent, in flight, done or gone; a simulator that loses one still prints a step time.
- KV back to 0: an empty fleet has all its blocks; a leak would look like preemptions much later.
- GPU time: busy + idle + paused + down + off = wall for every instance; idle fractions are shares of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine.kernel import tables as t
from fleetsim.engine.limits import SCHEDULERS, EngineLimits
from fleetsim.engine.step_time import LinearStepTime
from fleetsim.sim.fleet import Fleet
from tests.engine.reference import run_reference

ACTIONS = (
    "hold",
    "resume",
    "recompute",
    "discard",
    "kill",
    "revive",
    "epoch",
    "credits",
    "take",
    "move",
    "send_back",
    "doom",
)


@st.composite
def scripts(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "actions": draw(
            st.lists(st.tuples(st.sampled_from(ACTIONS), st.floats(0.001, 0.6), st.integers(0, 2)), max_size=25)
        ),
        "together": draw(st.booleans()),
        "cap": draw(st.sampled_from([None, 6, 20])),
        "cap_instance": draw(st.sampled_from([None, 4, 9])),
        "turns": draw(st.sampled_from([1, 3])),
        "kv": draw(st.sampled_from([16, 60, 5000])),
        "caching": draw(st.booleans()),
        "routing": draw(st.sampled_from(["round_robin", "least_loaded", "prefix_affinity"])),
        "workers": draw(st.sampled_from([None, 2])),
        "seed": draw(st.integers(0, 5)),
        "scheduler": draw(st.sampled_from(SCHEDULERS)),
        "no_evict": draw(st.booleans()),
        "state": draw(st.sampled_from([0, 2])),
    }


def make_fleet(script: dict[str, Any]) -> Fleet:
    scenario = with_changes(
        default_scenario(),
        {
            "workload.group_size": 4,
            "workload.prompt_tokens": {"kind": "lognormal", "mean": 40, "cv": 0.5, "max": 100},
            "workload.output_tokens": {"kind": "lognormal", "mean": 30, "cv": 1.0, "max": 90},
            "workload.turns": {"count": script["turns"], "tool_latency_s": 0.05, "tool_tokens": 7},
            "workload.reward": {"latency_s": 0.02, "workers": script["workers"]},
            "workload.shared_prefix_tokens": 32,
            "workload.filter.zero_variance_share": 0.2,
            "engine.prefix_caching": script["caching"],
            "fleet.instances": 3,
            "fleet.group_placement": "together" if script["together"] else "spread",
            "fleet.routing": script["routing"],
            "fleet.max_in_flight_samples": script["cap"],
            "fleet.max_in_flight_samples_per_instance": script["cap_instance"],
            "trainer.batch_samples": 32,
            "run.seed": script["seed"],
        },
    )
    limits = EngineLimits(
        5, 48, script["kv"] + script.get("state", 0), 16,
        state_blocks=script.get("state", 0),
        max_output_tokens=90,
        scheduler=script.get("scheduler", "vllm"),
        no_evict=script.get("no_evict", True),
    )  # fmt: skip
    return Fleet(scenario, LinearStepTime(0.004, 1e-4, 2e-5, 1e-6), limits, 0)


def play(fleet: Fleet, script: dict[str, Any]) -> float:
    fleet.set(credits=12)
    now = 0.0
    for action, wait, which in script["actions"]:
        now += wait
        fleet.advance(now)
        assert fleet.now <= now
        if action == "hold":
            fleet.hold(now, now + 0.3)
        elif action == "resume":
            fleet.command(t.CMD_RESUME, at=now)
        elif action == "recompute":
            fleet.command(t.CMD_RECOMPUTE, at=now)
        elif action == "discard":
            fleet.discard(np.arange(fleet.started()), now)
        elif action == "doom":
            fleet.discard(fleet.unfinished()[::3], now)
        elif action in ("move", "send_back"):
            to = (which + 1) % 3 if action == "move" else -1
            if to < 0 or fleet.world.instances["kind"][to] != t.DOWN:
                fleet.command(t.CMD_MOVE, which, now, to)
        elif action == "epoch":
            fleet.command(t.CMD_NEW_EPOCH)
        elif action == "credits":
            fleet.set(credits=fleet.get("credits") + 5)
        elif action == "kill" and fleet.world.instances["kind"][which] != t.DOWN:
            fleet.command(t.CMD_KILL, which, now)
        elif action == "revive" and fleet.world.instances["kind"][which] == t.DOWN:
            fleet.command(t.CMD_REVIVE, which, now)
        check_books(fleet)
    for i in range(3):  # everything that was started must be able to end
        fleet.advance(now := now + 1.0)
        if fleet.world.instances["kind"][i] == t.DOWN:
            fleet.command(t.CMD_REVIVE, i, now)
    fleet.command(t.CMD_RESUME, at=now)
    fleet.set(credits=0)
    return now


def check_books(fleet: Fleet) -> None:
    rows = fleet.world.instances
    assert np.all(rows["free"] >= 0), "KV within capacity"
    assert np.all(rows["running"] <= fleet.limits.max_num_seqs)
    assert np.all(rows["load"] >= rows["running"] + rows["waiting"])
    assert fleet.get("in_flight") == rows["load"].sum()


@settings(max_examples=150, deadline=None)
@given(scripts())
def test_nothing_is_lost_and_nothing_leaks(script: dict[str, Any]) -> None:
    fleet = make_fleet(script)
    now = play(fleet, script)
    fleet.advance(np.inf)
    rows, samples, groups = fleet.world.instances, fleet.world.samples, fleet.world.groups
    n = fleet.started()
    assert fleet.get("in_flight") == 0
    assert fleet.get("n_requeued") == 0
    assert np.all(rows["load"] == 0)
    assert np.all(rows["free"] == fleet.limits.kv_blocks), "KV back to 0"
    assert not fleet.world.residues.any()
    assert np.all(rows["kv_sum"] == 0)
    assert np.all(np.isin(groups["status"][:n], [t.G_READY, t.G_FILTERED, t.G_ABORTED]))
    status = samples["status"][: n * 4].reshape(n, 4)
    finished = groups["status"][:n] != t.G_ABORTED
    assert np.all(status[finished] == t.DONE), "samples conserved"
    # tokens conserved: what the engines made is in a finished sample, aborted or lost
    kept = int(samples["made"][: n * 4].reshape(n, 4)[finished].sum())
    assert rows["generated"].sum() == kept + fleet.get("aborted_tokens") + fleet.get("lost_tokens")
    assert np.all(
        samples["made"][: n * 4].reshape(n, 4)[finished] == samples["target"][: n * 4].reshape(n, 4)[finished]
    )
    end = max(now, fleet.now)
    wall = fleet.world.accounts.sum(axis=1) + (end - rows["since"])
    np.testing.assert_allclose(wall, end, rtol=1e-9)


def run_with_pauses(pauses: list[tuple[float, float]]) -> tuple[np.ndarray, Fleet]:
    script = {
        "turns": 1, "together": True, "caching": False, "routing": "round_robin", "cap": None, "cap_instance": None,
        "workers": None, "kv": 5000, "seed": 1,
    }  # fmt: skip
    fleet = make_fleet(script)
    fleet.set(credits=6)
    for start, until in pauses:
        fleet.advance(start)
        fleet.hold(start, until)
    fleet.advance(np.inf)
    return fleet.world.samples[: fleet.started() * 4], fleet


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.001, 0.2), st.floats(0.001, 0.3)), max_size=4))
def test_pauses_inside_jumps_equal_the_loop(gaps: list[tuple[float, float]]) -> None:
    """A pause lands on the first iteration boundary at or after it; the loop looks at every boundary."""
    pauses, at = [], 0.0
    for gap, length in gaps:
        pauses.append((at + gap, at + gap + length))
        at += gap + length
    samples, fleet = run_with_pauses(pauses)
    expected, _, engines = run_reference(
        LinearStepTime(0.004, 1e-4, 2e-5, 1e-6),
        fleet.limits,
        samples["prompt"].tolist(),
        samples["target"].tolist(),
        # group k went to instance k mod 3 at time 0
        group=[g % 3 for g in samples["group"].tolist()],
        instances=3,
        routing="by_group",
        pauses=pauses,
    )
    np.testing.assert_allclose(samples["finish_s"], [r.finish for r in expected], rtol=1e-9)
    busy = [fleet.world.accounts[i, t.ACC_BUSY] for i in range(3)]
    np.testing.assert_allclose(busy, [e.busy for e in engines], rtol=1e-6)


def test_an_instance_closed_by_mistake_is_seen_again_at_once() -> None:
    """A resize back before the instance was given back: its work goes on, its cache is warm, routers see it."""
    fleet = make_fleet(
        {
            "turns": 1, "together": True, "caching": True, "routing": "least_loaded", "cap": None,
            "cap_instance": None, "workers": None, "kv": 5000, "seed": 1,
        }
    )  # fmt: skip
    fleet.set(credits=6)
    fleet.advance(0.05)
    row, half = fleet.world.instances[0], fleet.get("half")
    epoch, load = int(row["epoch"]), int(row["load"])
    assert load > 0
    fleet.command(t.CMD_CLOSE, 0)
    assert fleet.world.loads[half] == np.inf
    fleet.command(t.CMD_REOPEN, 0, fleet.now)
    assert fleet.world.loads[half] == load
    assert fleet.world.instances["epoch"][0] == epoch


def test_a_failed_instance_beyond_the_new_size_leaves_the_bill() -> None:
    fleet = make_fleet(
        {
            "turns": 1, "together": True, "caching": False, "routing": "least_loaded", "cap": None,
            "cap_instance": None, "workers": None, "kv": 5000, "seed": 1,
        }
    )  # fmt: skip
    fleet.command(t.CMD_KILL, 2, 0.0)
    fleet.advance(1.0)
    fleet.command(t.CMD_CLOSE, 2)
    fleet.command(t.CMD_SWITCH_OFF, 2, 1.0)
    fleet.advance(5.0)
    assert fleet.world.accounts[2, t.ACC_DOWN] == 1.0
    assert fleet.world.instances["account"][2] == t.ACC_OFF
