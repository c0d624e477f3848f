"""Clients with one request at a time, held against an engine that is stepped by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fleetsim.calibrate.clients import DIRECT, RequestPath, closed_load, request_path
from fleetsim.engine import EngineLimits, LinearStepTime, run_requests
from fleetsim.engine.operators.curves import shipped_curves
from fleetsim.errors import InputError

STEP_S = 0.01
LIMITS = EngineLimits(64, 8192, 10_000)


def stepped(output: list[int], clients: int, request_s: float) -> tuple[list[float], float]:
    """Seconds to every first token, and the end, of an engine whose iterations all take STEP_S and hold everything."""
    waiting = [(request_s, i, 0.0) for i in range(clients)]  # reaches the engine, which, sent
    following = clients
    running: dict[int, int] = {}
    sent_at: dict[int, float] = {}
    first: dict[int, float] = {}
    now = 0.0
    while waiting or running:
        if not running:
            now = max(now, min(at for at, _, _ in waiting))
        for at, i, sent in [w for w in waiting if w[0] <= now + 1e-12]:
            waiting.remove((at, i, sent))
            running[i], sent_at[i] = 0, sent
        now += STEP_S
        for i in sorted(running):
            running[i] += 1
            first.setdefault(i, now - sent_at[i])
            if running[i] == output[i]:
                del running[i]
                if following < len(output):
                    waiting.append((now + request_s, following, now))
                    following += 1
    return [first[i] for i in range(len(output))], now


@pytest.mark.parametrize("request_s", [0.0, 0.0035, 0.027, 0.31])
@pytest.mark.parametrize("clients", [1, 2, 7, 40])
def test_closed_load_is_what_an_engine_stepped_by_hand_does(clients: int, request_s: float) -> None:
    output = np.random.default_rng(clients).integers(20, 90, size=10 * clients)
    first, end = stepped(output.tolist(), clients, request_s)
    seen = closed_load(LinearStepTime(STEP_S), LIMITS, 1, output, clients, RequestPath(request_s))
    assert seen.first_s.mean() == pytest.approx(np.mean(first), rel=0.01)
    assert seen.finish_s.max() == pytest.approx(end, rel=0.01)
    assert seen.later_s == pytest.approx(STEP_S)


def test_iterations_that_were_planned_come_on_top() -> None:
    output = np.full(30, 50)
    at_once, planned = (
        closed_load(LinearStepTime(STEP_S), LIMITS, 1, output, 3, RequestPath(0.004, n)) for n in (0.0, 2.5)
    )
    assert planned.first_s == pytest.approx(at_once.first_s + 2.5 * STEP_S)


def test_the_first_wave_is_in_the_mean_and_not_in_the_median() -> None:
    """Sixteen prompts of 2,048 tokens take four iterations of 8,192; later ones come one by one."""
    step_time = LinearStepTime(0.01, 1e-4)
    output = np.random.default_rng(0).integers(400, 500, size=160)
    seen = closed_load(step_time, LIMITS, 2048, output, 16)
    assert seen.sent_s[:16].max() == 0
    assert seen.first_s[:16].mean() > 2 * np.median(seen.first_s)
    assert seen.first_s.mean() > 1.1 * np.median(seen.first_s)


def test_without_a_path_it_is_a_queue_for_as_many_places() -> None:
    output = np.random.default_rng(1).integers(20, 90, size=50)
    seen = closed_load(LinearStepTime(STEP_S), LIMITS, 100, output, 5, DIRECT)
    queued = run_requests(LinearStepTime(STEP_S), EngineLimits(5, 8192, 10_000), 100, output)
    assert seen.finish_s.tolist() == queued.finish_s.tolist()


def test_a_server_of_every_engine_has_a_path() -> None:
    for engine, host in shipped_curves().hosts.items():
        path = request_path(engine, held=5.0)
        assert path == RequestPath(host.request_s, 6.0)
        assert 0.002 < path.request_s < 0.3


@pytest.mark.parametrize("clients", [0, -1, True, 2.5])
def test_no_clients_are_refused(clients: object) -> None:
    with pytest.raises(InputError, match="clients"):
        closed_load(LinearStepTime(STEP_S), LIMITS, 1, 10, clients)  # type: ignore[arg-type]
