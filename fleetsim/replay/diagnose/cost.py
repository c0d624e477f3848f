"""What a finding costs: GPU-hours per day and US dollars, every GPU-second charged to one finding at most.

Removing a cause gives back shares of the time of two pools: of the trainer's GPUs (of an optimizer step), and of the
rollout GPUs'. A step that is shorter by a share gives back that share of both; more instances only the trainer's wait.

    GPU-h per day = 24 h x sum over pools (share of the pool's time x its GPUs)
    USD per day   = the same sum, each pool at its price per GPU-hour

`settle` walks the findings in the runbook's order and gives each no more of a pool than the earlier ones have left: all
findings together never cost more than the job. Where no simulation says it, a share is what removing the cause would
give back at most: the trainer's wait, or the time that something is seen to take.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.engine.prices import prices_of
from fleetsim.replay.observe.observed import Observed

Shares = tuple[float, float]
"""Of the trainer's and of the rollout GPUs' time, what removing a cause gives back."""
_HOURS = 24.0


@dataclass(frozen=True, slots=True)
class Pools:
    """Whose GPU-hours are counted.

    rollout_gpus: mean instances x tp x pp. trainer_gpus: of the trainer alone, 0 where both share (colocated). *_usd_h:
    price of one GPU-hour. assumed: what nobody gave, in words.
    """

    rollout_gpus: float
    trainer_gpus: float
    rollout_usd_h: float
    trainer_usd_h: float
    shared: bool
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FindingCost:
    """What a finding costs as long as it stays. step_share: of a step, what the trainer's share comes to."""

    gpu_h_per_day: float
    usd_per_day: float
    step_share: float = 0.0


def pools_of(observed: Observed, scenario: Scenario, given: Collection[str] = ()) -> Pools:
    """The pools of a window: instances as observed, GPUs and prices as the scenario has them.

    given: dotted paths that somebody wrote; every other value that a price rests on is listed as assumed.
    """
    shared = observed.placement == "colocated"
    instances = observed.fleet.instances if observed.fleet is not None else 0.0
    prices, each = prices_of(scenario), scenario.engine.gpus
    assumed = []
    if "engine.tp" not in given:
        assumed.append(f"{units.plural(each, 'GPU')} per instance (engine.tp)")
    if "trainer.gpus" not in given and not shared:
        assumed.append(f"{units.plural(scenario.trainer.gpus, 'trainer GPU')} (trainer.gpus)")
    if "cost.instance_price_usd_per_gpu_h" not in given:
        assumed.append(f"{units.price(prices.rollout)} a rollout GPU-hour (cost.instance_price_usd_per_gpu_h)")
    if "cost.trainer_price_usd_per_gpu_h" not in given and not shared:
        assumed.append(f"{units.price(prices.trainer)} a trainer GPU-hour (cost.trainer_price_usd_per_gpu_h)")
    return Pools(
        instances * each,
        0.0 if shared else float(scenario.trainer.gpus),
        prices.rollout,
        prices.trainer,
        shared,
        tuple(assumed),
    )


def job_usd_h(observed: Observed, scenario: Scenario, given: Collection[str] = ()) -> float | None:
    """US dollars an hour of all GPUs of a job; None where neither the window nor anybody says how many these are.

    given: dotted paths that somebody wrote.
    """
    pools = pools_of(observed, scenario, given)
    rollout, trainer = pools.rollout_gpus, pools.trainer_gpus
    if not rollout and "fleet.instances" in given:
        rollout = float(scenario.fleet.instances * scenario.engine.gpus)
    if pools.shared and not rollout and "trainer.gpus" in given:
        rollout = float(scenario.trainer.gpus)
    if not rollout or (trainer and "trainer.gpus" not in given):
        return None
    return rollout * pools.rollout_usd_h + trainer * pools.trainer_usd_h


def pause_shares(observed: Observed) -> tuple[float, float]:
    """(held, empty): shares of the window in which the fleet stood still with work in hand, and without any.

    With work in hand something stops the engines: a weight sync. Without, they have run out of it: that is idle time.
    What each instance stands by itself in a rolling sync is held as well.
    """
    alone = 0.0 if observed.rolling is None else observed.rolling.share
    if observed.pauses is None:
        return alone, 0.0
    share = min(1.0, max(0.0, observed.pauses.share))
    total = sum(p.seconds for p in observed.pauses.each)
    if total <= 0:
        return share + alone, 0.0
    held = share * sum(p.seconds for p in observed.held) / total
    return min(1.0, held + alone), share - held


def settle(given: Sequence[Shares | None], pools: Pools) -> list[FindingCost | None]:
    """The size of every finding, in order; None for one that gives nothing back, or whose pool has no GPUs."""
    left = [1.0, 1.0]
    sizes: list[FindingCost | None] = []
    for wanted in given:
        shares = [max(0.0, min(share, rest)) for share, rest in zip(wanted or (0.0, 0.0), left, strict=True)]
        left = [rest - share for rest, share in zip(left, shares, strict=True)]
        trainer, rollout = _HOURS * shares[0] * pools.trainer_gpus, _HOURS * shares[1] * pools.rollout_gpus
        usd = trainer * pools.trainer_usd_h + rollout * pools.rollout_usd_h
        sizes.append(FindingCost(trainer + rollout, usd, shares[0]) if trainer + rollout > 0 else None)
    return sizes
