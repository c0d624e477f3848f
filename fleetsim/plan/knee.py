"""Where more instances stop paying: the answer when no count holds a target.

The runbook's own test of a rebalance: "if throughput rose but cost per step rose faster, the rebalance bought the wrong
thing". One more instance makes a step shorter and dearer at once; as long as the step time falls by a larger share than
the cost per step rises, it pays. The knee is where that ends: the count that minimises

    step time * cost per step  =  step time^2 * price of both pools per second
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fleetsim.config.scenario import Scenario

# Local descents end within a few counts of the fit; the limit only guards against a flat and noisy valley.
_MOST_MOVES = 24


def price_per_s(scenario: Scenario, instances: int) -> float:
    """What both pools cost per second, in GPU prices; in GPUs where all prices are zero."""
    gpus, trainer = instances * scenario.engine.tp, scenario.trainer.gpus
    if scenario.fleet.placement == "colocated":
        gpus = max(0, gpus - trainer)
    rollout_price = scenario.cost.instance_price_usd_per_gpu_h
    trainer_price = scenario.cost.trainer_price_usd_per_gpu_h
    if rollout_price <= 0:
        # Free rollout GPUs would make every further one pay; they count as much as the trainer's.
        rollout_price = trainer_price or 1.0
    return gpus * rollout_price + trainer * trainer_price


def knee(scenario: Scenario, step_s: Callable[[int], float], low: int, high: int) -> int:
    """The knee between 1 and `high`, from the step times at few counts; `step_s` should remember its answers.

    Fits step time = a / n + b through the counts `low` and `high`, solves for the minimum in closed form, and walks
    from there to the nearest local minimum.
    """

    def dear(n: int) -> float:
        return step_s(n) ** 2 * price_per_s(scenario, n)

    n = min(max(1, _fitted(scenario, step_s, low, high)), high)
    for _ in range(_MOST_MOVES):
        better = min((m for m in (n - 1, n + 1) if 1 <= m <= high), key=dear, default=n)
        if dear(better) >= dear(n):
            break
        n = better
    return n


def _fitted(scenario: Scenario, step_s: Callable[[int], float], low: int, high: int) -> int:
    """Minimum of (a/n + b)^2 (n + c): b n^2 - a n - 2 a c = 0, with c = trainer price / price of one instance."""
    if low >= high:
        return low
    a = (step_s(low) - step_s(high)) / (1.0 / low - 1.0 / high)
    b = step_s(high) - a / high
    one = price_per_s(scenario, 2 + scenario.trainer.gpus) - price_per_s(scenario, 1 + scenario.trainer.gpus)
    if a <= 0 or b <= 0 or one <= 0:
        return low
    c = scenario.trainer.gpus * scenario.cost.trainer_price_usd_per_gpu_h / one
    return round((a + math.sqrt(a * a + 8.0 * a * b * c)) / (2.0 * b))
