"""Engines that serve users: no trainer, no weight sync, a limit of requests that is reached now and then."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fleetsim.config.scenario import Scenario
from fleetsim.records import replace
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.diagnose.finding import Finding
from fleetsim.replay.observe.interruptions import Pause, Pauses
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from tests.replay.independent import Job, run

SWINGS = tuple((300.0 * k, 7.5 if k % 2 else 2.5) for k in range(8))  # requests/s; one engine does 5.5


@cache
def served(instances: int) -> Observed:
    rates = tuple((at, rate * instances) for at, rate in SWINGS)
    job = Job(arrivals=rates, instances=instances, max_num_seqs=128)
    return observe(run(job, 0.6, scrape_s=1.0).history())


def finding(observed: Observed, check: str) -> Finding:
    return next(f for f in diagnose(observed, Scenario()).findings if f.check == check)


@pytest.mark.parametrize("instances", [1, 2])
def test_the_limit_is_the_one_that_is_reached(instances: int) -> None:
    """Half of the time fewer run, so that the mean stands below a lower usual limit."""
    observed = served(instances)
    assert observed.fleet is not None
    assert observed.fleet.running is not None
    assert observed.fleet.running / instances < 120
    found = finding(observed, "max_num_seqs")
    assert found.state == "fault"
    assert "engines run 128 requests" in found.title


def test_stops_without_a_rhythm_are_no_weight_sync() -> None:
    rng = np.random.default_rng(0)
    starts = served(1).start_s + np.sort(rng.uniform(10.0, 2000.0, 18))
    stops = tuple(Pause(float(t), float(t) + 6.0, "silence", False) for t in starts)
    window = replace(served(1), pauses=Pauses(stops, 0.06, 6.0, 110.0))
    found = finding(window, "sync")
    assert (found.state, found.title) == ("unknown", "no weight sync is to be seen")
    even = tuple(Pause(served(1).start_s + 110.0 * k, served(1).start_s + 110.0 * k + 6.0, "silence", False)
                 for k in range(1, 19))  # fmt: skip
    assert finding(replace(window, pauses=Pauses(even, 0.06, 6.0, 110.0)), "sync").state == "fault"


def test_lost_prefix_hits_are_found_without_a_group_size() -> None:
    lost = Job(prompt_tokens=5000, hits=0.04, instances=3, prefill_s=6e-5, kv_tokens=2e6)
    found = finding(observe(run(lost, 1.0).history()), "prefix_cache")
    assert found.state == "fault", found
    assert "groups of only two samples" in " ".join(found.evidence)
    kept = replace(lost, hits=None)
    assert finding(observe(run(kept, 1.0).history()), "prefix_cache").state != "fault"
    assert finding(served(1), "prefix_cache").state != "fault"
