"""Judges with an overflow: engines of their own, and an API behind them.

- By hand: who goes there and when, at its rate, to a limited number of places.
- Erlang B, and M/M/c with a fixed patience: shares in closed form; M/M/(c + m): waits.
- Jumps against the loop; books that balance; what it costs, and what is said of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim import units
from fleetsim.config import default_scenario, with_changes
from fleetsim.errors import InputError
from fleetsim.estimates import Estimate
from fleetsim.job.facts import run_facts
from fleetsim.job.trials import flat
from fleetsim.job.words import reached_limits
from fleetsim.sim.judges import judges_gpus
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from tests.sim.test_judges import ENGINE, WAITING, asked_at_random, busy_judge, judged, mean_of_seeds
from tests.sim.test_overflow import with_patience
from tests.sim.test_stations import erlang_wait
from tests.sim.timelines import play

# An engine of one place that makes a hundred tokens a second, prompts for nothing: answers take a second.
OWN: dict[str, Any] = {
    "engine": {"kind": "constant", "instance_tok_s": 100.0, "max_num_seqs": 1},
    "output_tokens": 100,
    "price_usd_per_gpu_h": 2.0,
}
RENTED: dict[str, Any] = {"tok_s": 100.0, "usd_per_million_prompt_tokens": 3.0, "usd_per_million_output_tokens": 15.0}


@pytest.mark.parametrize(
    ("overflow", "votes", "ready", "there"),
    [
        # four ask at 2: one has the engine until 3, the others go there at once
        ({}, 1, (3, 3, 3, 3), 3),
        # they wait for half a second first; for three, and the engine is free again before
        ({"after_s": 0.5}, 1, (3, 3.5, 3.5, 3.5), 3),
        ({"after_s": 3.0}, 1, (3, 4, 5, 6), 0),
        # one goes there at 2, the next may at 4, when the engine is free, too: its own is first
        ({"requests_per_s": 0.5}, 1, (3, 3, 4, 5), 1),
        # the 101 tokens of one go by in three quarters of a second; the next after it finds the engine free
        ({"tokens_per_s": 101 / 0.75}, 1, (3, 3, 3.75, 4), 2),
        # one place there, and one of half the pace: at 4 both are free
        ({"concurrency": 1}, 1, (3, 3, 4, 4), 2),
        ({"concurrency": 1, "tok_s": 50.0}, 1, (3, 4, 4, 5), 1),
        # who is on the way there has the place
        ({"concurrency": 1, "first_token_s": 1.5}, 1, (3, 4, 4.5, 5), 1),
        # two votes of each stand in line, one behind the other: eight requests, two at a time
        ({"concurrency": 1}, 2, (3, 4, 5, 6), 4),
    ],
)
def test_who_goes_there_by_hand(overflow: dict[str, Any], votes: int, ready: tuple[float, ...], there: int) -> None:
    judge = {**OWN, "votes": votes, "reads_share": 0.0, "overflow": {**RENTED, **overflow}}
    changes: dict[str, Any] = {"admission__law": "barrier", "trainer__batch_samples": 4, "run__steps": 1}
    run = play([2], stations__judge=judge, **changes)
    assert np.sort(run.groups["ready_s"][:4]) == pytest.approx(ready, abs=0.05)
    own, beyond = run.judges
    assert (own["answered"], beyond["answered"]) == (4 * votes - there, there)
    told = metrics_of(run)["stations"]["judge"]
    assert told["overflow_share"] == there / (4 * votes)
    each = (1 * 3.0 + 100 * 15.0) / 1e6
    assert told["overflow_usd"] == pytest.approx(there * each)
    assert told["usd"] - told["overflow_usd"] == pytest.approx(1.0 * run.steps["end_s"][-1] / 3600 * 2.0)


def overflowed(c: int, rate: float, overflow: dict[str, Any], n: int, seed: int) -> tuple[float, float]:
    """The share of n requests that went there, and the mean wait of all; c engines of a place, exponential answers of a
    second in the mean."""
    engine = {"kind": "constant", "instance_tok_s": 500.0, "max_num_seqs": 1}
    judge = {"engine": engine, "instances": c, "output_tokens": {"kind": "gamma", "mean": 500, "cv": 1.0}}
    fleet, asked = asked_at_random(n, rate, {**judge, "overflow": {"tok_s": 500.0, **overflow}}, seed)
    ends = np.array([1e9])
    own, beyond = asked.counts(ends)[0], asked.counts_beyond(ends)[0]
    assert own["asked"] + beyond["asked"] == own["answered"] + beyond["answered"] == n
    assert all(world.get("in_flight") == 0 for world in asked.worlds)
    assert fleet.quiet()
    return float(beyond["asked"]) / n, float(own["waited_s"] + beyond["waited_s"]) / n


@pytest.mark.parametrize(("c", "rate", "after_s"), [(4, 3.2, 0.0), (1, 2.0, 0.0), (4, 3.2, 0.5), (3, 4.5, 0.3)])
def test_the_share_that_overflows_is_erlang_b_and_with_a_wait_that_of_a_fixed_patience(
    c: int, rate: float, after_s: float
) -> None:
    found = [overflowed(c, rate, {"after_s": after_s}, 8_000, seed)[0] for seed in range(8)]
    mean_of_seeds(found, with_patience(c, rate, after_s))


def test_as_many_places_there_with_one_line_are_m_m_c() -> None:
    """Two engines and two places there that serve alike: the wait of M/M/4."""
    found = [overflowed(2, 3.2, {"concurrency": 2}, 12_000, seed)[1] for seed in range(8)]
    mean_of_seeds(found, erlang_wait(4, 0.8))


BEYOND: dict[str, Any] = {"tok_s": 70.0, "concurrency": 9, "requests_per_s": 20.0, "first_token_s": 0.2}


def test_jumps_are_the_loop_with_a_line_behind_the_judge() -> None:
    """As without an overflow (`test_judges.py`): engines that batch, lack cache, and are full."""
    scenario = busy_judge(engine={**ENGINE, "max_num_seqs": 6}, votes=2, overflow={**BEYOND, "after_s": 0.05})
    jumps, loop = judged(scenario, 24), judged(scenario, 24, every_s=5e-4)
    found = [
        [f.world.groups["ready_s"][:24], *(w.samples["finish_s"] for j in f.judges for w in j.worlds)]
        for f in (jumps, loop)
    ]
    for a, b in zip(*found, strict=True):
        assert np.abs(a - b).max() < 1e-9
    ends = np.array([1e9])
    (judge,) = jumps.judges
    assert min(judge.counts(ends)["answered"][0], judge.counts_beyond(ends)["answered"][0]) > 10


def test_room_for_all_at_its_own_engines_is_no_overflow() -> None:
    """The same requests on the same engines, to the byte."""
    roomy = busy_judge(engine={**ENGINE, "max_num_seqs": 500})
    alone, beside = judged(roomy, 48), judged(with_changes(roomy, {"stations.judge.overflow": BEYOND}), 48)
    rows = [f.judges[0].world.samples for f in (alone, beside)]
    assert all(rows[0][name].tobytes() == rows[1][name].tobytes() for name in rows[0].dtype.names)


@pytest.mark.parametrize("more", [{}, {"requests_per_s": 6.0}, {"tokens_per_s": 4000.0, "after_s": 1.5}])
def test_no_engine_of_its_own_is_an_api(more: dict[str, Any]) -> None:
    """Record for record; what would wait for its own engines first reaches the API as much later."""
    api = {**RENTED, "concurrency": 12, "first_token_s": 0.5, **more}
    own = {"engine": {**ENGINE, "dp": 2}, "output_tokens": 200, "votes": 2}
    none = {**own, "instances": 0, "overflow": api}
    later_s = more.get("after_s", 0.0)
    rented = {**own, "api": {**{k: v for k, v in api.items() if k != "after_s"}, "first_token_s": 0.5 + later_s}}
    first, second = (with_changes(default_scenario(), WAITING | {"stations.judge": judge}) for judge in (none, rented))
    a, b = simulate(first), simulate(second)
    for table in ("steps", "samples", "groups", "syncs", "judges"):
        assert getattr(a, table).tobytes() == getattr(b, table).tobytes()
    assert len(a.judges) > 0
    assert metrics_of(a) == metrics_of(b)
    found = {name: Estimate(x, x, x) for name, x in flat(metrics_of(a)).items() if name != "binding"}
    assert judges_gpus(first) == 0
    for limit in reached_limits(first, found):  # a limit is named where it can be raised
        assert with_changes(first, {limit.path: 1e4 if "per_s" in limit.path else 100}) != first


def test_what_is_said_of_it() -> None:
    """The lines of judges and overflow, the bill, and what binds: while the API has room, the judge does not."""
    engine = {"kind": "constant", "instance_tok_s": 1000.0, "max_num_seqs": 4}
    told, found = {}, {}
    for name, more in {"room": {}, "full": {"requests_per_s": 1.0}}.items():
        judge = {"engine": engine, "output_tokens": 301, "overflow": {**RENTED, **more}}
        scenario = with_changes(default_scenario(), WAITING | {"stations.judge": judge})
        run = flat(metrics_of(simulate(scenario)))
        found[name] = {key: Estimate(x, x, x) for key, x in run.items() if key != "binding"}
        told[name] = {fact.name: fact.said for fact in run_facts(found[name], scenario)}
        limits = [limit.said for limit in reached_limits(scenario, found[name])]
        beyond = ["the rate limit of the overflow of the judge, 1 request per second"]
        assert limits == ([] if name == "room" else [*beyond, "1 engine of the judge, always at work"])
    share, usd = (found["room"][f"stations.judge.overflow_{what}"].mean for what in ("share", "usd"))
    assert told["room"]["overflow"] == f"{units.share(share)} of the calls of judge, {units.money(usd)} a step"
    assert told["room"]["cost_per_hour"].endswith("GPUs and the overflow of judge")
    assert found["full"]["step_s"].mean > 2 * found["room"]["step_s"].mean


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        ({"api": {}, "overflow": {}}, r"stations\.judge\.overflow: 'given': takes what the judge's own engines have no "
         r"place for, and stations\.judge is rented; leave it out, or give it engines of its own"),
        ({"at": "rollout", "overflow": {}}, r"stations\.judge\.overflow: 'given'.*is at the rollout's engines; leave"),
        ({"instances": 0}, r"stations\.judge\.instances: 0: nothing would ever be answered.*or an overflow"),
        ({"instances": 0, "at": "rollout", "overflow": {}}, r"stations\.judge\.overflow: 'given'.*is at the rollout's"),
        ({"overflow": {"tok_s": 0}}, r"stations\.judge\.overflow\.tok_s: 0: must be above 0"),
        ({"overflow": {"workers": 2}}, r"stations\.judge\.overflow\.workers: 2: unknown key"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(judge: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        with_changes(default_scenario(), {"stations.judge": judge})
