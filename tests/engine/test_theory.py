"""Closed forms that the kernel must meet before any golden value is worth keeping."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fleetsim.engine import EngineLimits, LinearStepTime, constant_rate, run_requests
from fleetsim.estimates import estimate

PLENTY = EngineLimits(4096, 65536, 1 << 30)


def erlang_c_wait(servers: int, arrival_rate: float, service_s: float) -> float:
    """Mean wait in an M/M/k queue (Erlang C)."""
    a = arrival_rate * service_s
    top = a**servers / math.factorial(servers) * servers / (servers - a)
    p_wait = top / (sum(a**k / math.factorial(k) for k in range(servers)) + top)
    return p_wait * service_s / (servers - a)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (4, 0.8), (16, 0.9)])
def test_mean_wait_is_erlang_c(servers: int, load: float) -> None:
    """An instance whose iterations take the same time whatever they hold is k servers behind one queue (M/M/k)."""
    iteration, mean_tokens = 0.001, 400
    service = mean_tokens * iteration
    rate = load * servers / service
    waits = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = 20_000
        arrival = np.cumsum(rng.exponential(1 / rate, n))
        tokens = rng.geometric(1 / mean_tokens, n)
        result = run_requests(
            LinearStepTime(iteration), EngineLimits(servers, 65536, 1 << 30), 1, tokens, arrival_s=arrival
        )
        waits.append(float((result.start_s - arrival)[n // 10 :].mean()))
    got, expected = estimate(waits), erlang_c_wait(servers, rate, service)
    # starts happen on iteration boundaries: up to one iteration of wait that the queue does not have
    assert got.ci_low - iteration <= expected <= got.ci_high + iteration


def test_little_law_holds_on_a_queue() -> None:
    """Requests in the system, integrated over time, are arrival rate x mean sojourn."""
    rng = np.random.default_rng(3)
    n = 5_000
    arrival = np.cumsum(rng.exponential(0.05, n))
    result = run_requests(
        LinearStepTime(0.002, 1e-5), EngineLimits(8, 4096, 4000), 100, rng.integers(1, 300, n), arrival_s=arrival
    )
    events = np.concatenate([arrival, result.finish_s])
    change = np.concatenate([np.ones(n), -np.ones(n)])
    order = np.argsort(events, kind="stable")
    inside = np.cumsum(change[order])[:-1]
    area = float((inside * np.diff(events[order])).sum())
    assert area == pytest.approx(float((result.finish_s - arrival).sum()), rel=1e-9)


def test_makespan_of_a_barrier_is_the_maximum() -> None:
    """B geometric lengths at once: E[max] = mean x H_B (order statistics of the exponential)."""
    batch, mean_tokens, iteration = 64, 2000, 0.01
    makespans = []
    for seed in range(200):
        tokens = np.random.default_rng(seed).geometric(1 / mean_tokens, batch)
        makespans.append(float(run_requests(LinearStepTime(iteration), PLENTY, 1, tokens).finish_s.max()))
    harmonic = sum(1 / k for k in range(1, batch + 1))
    got = estimate(makespans)
    assert got.ci_low <= mean_tokens * iteration * harmonic <= got.ci_high


def test_constant_rate_makes_its_rate() -> None:
    """However many samples it holds, the runbook's engine makes `tok_s` tokens per second."""
    for n in (1, 7, 300):
        result = run_requests(constant_rate(4000.0), PLENTY, 512, np.full(n, 1000))
        # the first token of each response comes with its (free) prefill
        assert result.finish_s.max() == pytest.approx(n * 999 / 4000.0, rel=1e-9)


def test_a_lone_request_costs_what_the_formula_says() -> None:
    """Prefill in chunks, then one iteration per token, each reading one more cached token."""
    base, per_seq, per_prefill, per_kv = 0.008, 2e-5, 5e-5, 3e-7
    prompt, output, chunk = 1000, 50, 256
    result = run_requests(
        LinearStepTime(base, per_seq, per_prefill, per_kv), EngineLimits(8, chunk, 1000), prompt, [output]
    )
    chunks = math.ceil(prompt / chunk)
    first = chunks * base + prompt * per_prefill
    decodes = sum(base + per_seq + per_kv * (prompt + k) for k in range(output - 1))
    assert result.first_token_s[0] == pytest.approx(first, rel=1e-12)
    assert result.finish_s[0] == pytest.approx(first + decodes, rel=1e-12)


def test_seed_arithmetic_of_the_rollout_engines_lesson() -> None:
    """8 replicas at 3 s per 8-sample group make 21 samples/s; 256 samples take 12 s (lesson "Rollout engines").

    With 5 s of training that is 17 s a step and about 5,000 steps a day.
    """
    group_s, group, replicas, samples, training = 3.0, 8, 8, 256, 5.0
    tokens = 1000
    result = run_requests(
        LinearStepTime(group_s / tokens), EngineLimits(group, 4096, 1 << 20), 1, np.full(samples, tokens), instances=8
    )
    makespan = float(result.finish_s.max())
    assert samples / makespan == pytest.approx(replicas * group / group_s, rel=1e-9)  # 21.3 samples/s
    assert makespan == pytest.approx(12.0, rel=1e-9)
    assert 86_400 / (makespan + training) == pytest.approx(5_082, abs=1)


def test_more_tokens_per_iteration_is_never_slower_for_the_batch() -> None:
    """A larger token budget cannot delay the last finish of a prefill-only batch."""
    last = math.inf
    for budget in (64, 256, 1024, 4096):
        result = run_requests(LinearStepTime(0.01, 0, 1e-5), EngineLimits(64, budget, 10_000), 300, [1] * 40)
        assert result.finish_s.max() <= last
        last = float(result.finish_s.max())
