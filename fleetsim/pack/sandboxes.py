"""One pool of sandboxes for all jobs: what of it each has.

Jobs that take turns with the rollout GPUs take turns with the pool, too: each has all of it. Jobs that generate at the
same time share one queue, so their calls wait alike. The kernel's pool serves one job, so each is simulated by itself
with a part of it: where nobody waits, with what the others leave in the mean; else with the part with which its calls
wait as long as theirs (a mean field, as `together.py` has it for the cache). Steps are within 6 % of those of a queue
of all calls, simulated together (tests/pack/test_sandboxes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.search.workers import with_workers, workers_of
from fleetsim.sim.stations import timed_stations

TOOLS = "tools"
# Rounds; by which power of its wait beside the mean one a job's part grows from round to round; and a wait
# of less than this share of a step is none.
_ROUNDS, _BENT, _NO_WAIT = 12, 0.5, 0.005

Run = Callable[[Scenario], Mapping[str, Any]]


def calls_tools(scenario: Scenario) -> bool:
    """Whether it needs sandboxes."""
    return TOOLS in timed_stations(scenario)


def within(scenario: Scenario, sandboxes: int) -> Scenario:
    """The job with no more than the whole pool."""
    own = scenario.stations.tools.workers
    enough = not calls_tools(scenario) or (own is not None and own <= sandboxes)
    return scenario if enough else with_workers(scenario, {TOOLS: sandboxes})


def pool_usd_per_h(scenarios: Sequence[Scenario], sandboxes: int) -> float:
    """Dollars of the pool in an hour, at the dearest price of a job."""
    return sandboxes * max(s.stations.tools.worker_price_usd_per_h for s in scenarios)


def own_pool_usd_per_h(scenario: Scenario) -> float:
    """What the sandboxes that a job has would cost in an hour, were they its own."""
    tools = scenario.stations.tools
    return tools.worker_price_usd_per_h * (tools.workers or 0)


def shared_out(scenarios: Sequence[Scenario], sandboxes: int, run: Run) -> list[Scenario]:
    """The jobs, each with what it has of the pool while all run. run: the metrics of a long run of one, remembered."""
    users = [i for i, s in enumerate(scenarios) if calls_tools(s)]
    found = [with_workers(s, {TOOLS: sandboxes}) if i in users else s for i, s in enumerate(scenarios)]
    if len(users) < 2:
        return found
    parts: dict[int, float] = {}
    for _ in range(_ROUNDS):
        seen = {i: run(found[i]) for i in users}
        # a start-up holds its sandbox, too
        held = {i: float(seen[i][f"stations.{TOOLS}.busy_fraction"]) * workers_of(found[i])[TOOLS] for i in users}
        least = _NO_WAIT * min(float(seen[i]["step_s"]) for i in users)
        waits = {i: float(seen[i][f"stations.{TOOLS}.wait_s"]) + least for i in users}
        mean = sum(waits.values()) / len(users)
        parts = {i: (parts[i] if parts else held[i]) * (waits[i] / mean) ** _BENT for i in users}
        whole = sum(parts.values())
        parts = {i: part / whole for i, part in parts.items()}
        left = {i: sandboxes - sum(held[j] for j in users if j != i) for i in users}
        for i in users:
            n = max(1, min(sandboxes, round(max(parts[i] * sandboxes, left[i]))))
            found[i] = with_workers(found[i], {TOOLS: n})
    return found
