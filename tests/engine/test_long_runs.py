"""A fleet that runs for years: the counter of iterations shares a word with sample indices, so it must start anew."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetsim.engine import EngineLimits, LinearStepTime, run_requests
from fleetsim.engine.kernel.tables import REBASE
from fleetsim.engine.limits import SCHEDULERS
from fleetsim.engine.native import advance
from fleetsim.engine.state import World
from fleetsim.errors import InputError

N = 30


def finished(scheduler: str, iterations: int) -> NDArray[np.float64]:
    """When each request ends on an instance that has run so many iterations before; the cache is short, so that some
    are preempted."""
    limits = EngineLimits(4, 64, 12, max_output_tokens=60, scheduler=scheduler, no_evict=False)
    world = World(LinearStepTime(0.01, per_kv_token_s=1e-6), limits, instances=1)
    world.set(open_loop=1, n_arrivals=N)
    world.add_samples(N)
    world.add_groups(1)
    samples = world.samples
    samples["prompt"], samples["target"], samples["group"] = 20, np.arange(20, 20 + N), 0
    world.arrival_s, world.arrival = np.zeros(N), np.arange(N, dtype=np.int32)
    world.instances["count"] = world.instances["ratio_count"] = iterations
    advance(world.bind(), 1000.0, N + 1)
    assert world.instances["count"][0] < REBASE
    out: NDArray[np.float64] = samples["finish_s"][:N].copy()
    return out


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("before", [16 * 100, int(REBASE) - 16, int(REBASE) - 16 * 20])
def test_iterations_of_the_past_change_nothing(scheduler: str, before: int) -> None:
    """Whole cycles of block_size iterations, and across the point where the counter starts anew."""
    np.testing.assert_array_equal(finished(scheduler, before), finished(scheduler, 0))
    assert np.all(finished(scheduler, before) > 0)


def test_a_request_that_would_not_fit_into_the_counter_is_refused() -> None:
    limits = EngineLimits(1, 64, 1 << 28)
    with pytest.raises(InputError, match="integers from 1 to"):
        run_requests(LinearStepTime(1.0), limits, 5, int(REBASE) + 1)
