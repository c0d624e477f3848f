"""One pool of sandboxes for several jobs, against a queue of all their calls that is simulated together."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import simpy

import fleetsim as fs
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError
from fleetsim.job.trials import flat
from fleetsim.pack.sandboxes import shared_out
from fleetsim.sim.processes import measured

TURNS = 5
# Of the logarithm of a call's seconds, whose deviation is their mean.
VARIANCE = float(np.log(2.0))


class Loop:
    """So many rollouts are always in flight; each is `TURNS - 1` calls of lognormal seconds, in a row."""

    def __init__(self, in_flight: int, tool_s: float, batch: int) -> None:
        self.in_flight, self.tool_s, self.batch = in_flight, tool_s, batch

    def job(self) -> fs.Job:
        """The same for fleetsim: engines and trainer take no time to speak of."""
        job = fs.load(batch=self.batch, group_size=1, len=TURNS, turns=TURNS, trainer_step_s=0.01, instances=1)
        return job.with_(instance_tok_s=1e6, steps=400, replications=1, seed=5).with_(
            {
                "workload.turns.tool_latency_s": {"kind": "lognormal", "mean": self.tool_s, "cv": 1.0},
                "fleet.max_in_flight_samples": self.in_flight,
                "admission.law": "unbounded",
                "admission.max_staleness": 0.0,
            }
        )


def steps_together(loops: Sequence[Loop], sandboxes: int, until_s: float = 40_000.0) -> list[float]:
    """Seconds of a batch of each, first come first served at one pool."""
    env, rng = simpy.Environment(), np.random.default_rng(3)
    pool, ended = simpy.Resource(env, sandboxes), [0] * len(loops)

    def rollout(which: int) -> Generator[simpy.Event, object, None]:
        while True:
            for _ in range(TURNS - 1):
                with pool.request() as place:
                    yield place
                    yield env.timeout(loops[which].tool_s * rng.lognormal(-VARIANCE / 2, VARIANCE**0.5))
            ended[which] += env.now > until_s / 10.0

    for which, loop in enumerate(loops):
        for _ in range(loop.in_flight):
            env.process(rollout(which))
    env.run(until=until_s)
    return [0.9 * until_s / n * loop.batch for n, loop in zip(ended, loops, strict=True)]


def _run(scenario: Scenario, replication: int = 0) -> Mapping[str, Any]:
    return flat(measured(scenario, replication))


@pytest.mark.slow
@pytest.mark.parametrize("sandboxes", [48, 80, 100])
@pytest.mark.parametrize("other", [Loop(32, 5.0, 32), Loop(128, 20.0, 64)])
def test_calls_in_one_queue_wait_alike(other: Loop, sandboxes: int) -> None:
    loops = [Loop(64, 20.0, 64), other]
    jobs = shared_out([loop.job().scenario for loop in loops], sandboxes, cache(_run))
    found = [float(measured(job, 0)["step_s"]) for job in jobs]
    assert found == pytest.approx(steps_together(loops, sandboxes), rel=0.06)


@pytest.mark.usefixtures("quick")
def test_jobs_in_turn_have_the_whole_pool_and_jobs_apart_share_it() -> None:
    """The pool is paid once, and more of it shortens the steps of jobs that generate at the same time."""
    a = fs.load(batch=32, len=200, max_len=400, trainer_step_s=5, trainer_gpus=1, instance_tok_s=2000, replications=1)
    a = a.with_(turns=3, tool_s=10, sandboxes=64, sandbox_price=0.5, instance_price=2, trainer_price=2)
    jobs = [a.with_({"name": "a"}), a.with_({"name": "b"})]
    scarce, plenty = (fs.pack(jobs, gpus=4, switch_s=1.0, sandboxes=n) for n in (8, 64))
    for result, n in ((scarce, 8), (plenty, 64)):
        for way in result.ways:
            own = [int(share.way.split()[-4]) for share in way.shares]
            assert max(own) <= n
            if way.kind == "apart" and n == 8:
                assert own == [4, 4]
            if way.kind in ("by_phase", "in_turn"):
                an_hour = 4 * 2 + n * 0.5
                assert way.usd_per_round == pytest.approx(an_hour * way.shares[0].step_s / 3600, rel=0.05)
    apart = [next(w for w in r.ways if w.kind == "apart" and w.label == "2 + 2") for r in (scarce, plenty)]
    assert apart[0].shares[0].step_s > 2 * apart[1].shares[0].step_s
    assert "one pool of 8 sandboxes" in str(scarce.to_dict()["facts"])


def test_a_pool_that_nobody_calls_is_refused() -> None:
    job = fs.load(batch=64, len=400, trainer_step_s=10, trainer_gpus=1)
    with pytest.raises(InputError, match="no job calls a tool"):
        fs.pack([job, job], gpus=16, sandboxes=64)
    with pytest.raises(InputError, match="1 to 1,000,000"):
        fs.pack([job, job], gpus=16, sandboxes=0)
