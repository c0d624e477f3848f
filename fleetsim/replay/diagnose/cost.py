"""What a finding costs: GPU-hours per day and US dollars, every GPU-second charged to one finding at most.

A day of the job is divided into slices: the trainer's GPU-time into train, wait, sync and the rest (shares of an
optimizer step), the rollout GPUs' into busy, idle and paused (shares of the window). A finding claims shares of slices:

    GPU-h per day = 24 h x sum over slices (claimed share of the pool's time x GPUs of the pool)
    USD per day   = the same sum, each slice at its pool's price per GPU-hour

`settle` walks the findings in the runbook's order and gives each no more of a slice than the earlier ones have left of
what was observed there: two findings that explain the same waiting are not paid for twice, and all findings together
never cost more than the job. A claim is what removing the cause would give back at most, not what it surely does: the
same training takes so much less of both pools, without the GPUs that the remedy adds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.engine.prices import prices_of
from fleetsim.replay.observe.observed import Observed, Reading, engines_idle

# added: rollout GPUs that the remedy adds, a negative share of those that there are.
Slice = Literal["train", "wait", "sync", "rest", "busy", "idle", "paused", "added"]
Claims = Mapping[Slice, float]

_TRAINERS: tuple[Slice, ...] = ("train", "wait", "sync", "rest")
ROLLOUT: tuple[Slice, ...] = ("busy", "idle", "paused", "added")
_HOURS = 24.0


class Pools(Struct, frozen=True):
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

    def gpus(self, of: Slice) -> float:
        """The GPUs whose time a slice is. Shared GPUs that generate are at work: nobody waits, nobody is paused."""
        if self.shared:
            return 0.0 if of in ("wait", "paused") else self.rollout_gpus
        return self.trainer_gpus if of in _TRAINERS else self.rollout_gpus

    def usd_h(self, of: Slice) -> float:
        """The price of one hour of such a GPU."""
        return self.trainer_usd_h if of in _TRAINERS and not self.shared else self.rollout_usd_h


class FindingCost(Struct, frozen=True):
    """What a finding costs as long as it stays. step_share: of a step, what the trainer's claims come to."""

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


def observed_slices(observed: Observed) -> dict[Slice, float]:
    """The share of its pool's time that each slice had; a slice that nobody measured is missing, and bounded by 1."""
    t = observed.trainer
    parts: dict[Slice, Reading | None] = {"train": t.train_s, "wait": t.wait_s, "sync": t.sync_s}
    slices = {name: min(1.0, share) for name, part in parts.items() if (share := t.of_step(part)) is not None}
    if t.rest_s is not None and t.step_s is not None and t.step_s.value > 0:
        slices["rest"] = t.rest_s / t.step_s.value
    if t.idle_fraction is not None:
        slices["wait"] = min(1.0, t.idle_fraction.value)
    held, empty = pause_shares(observed)
    idle = engines_idle(observed)
    slices["paused"] = held
    if idle is not None:
        slices["idle"] = min(1.0, idle) * (1.0 - held - empty) + empty
        slices["busy"] = max(0.0, 1.0 - slices["idle"] - held)
    return slices


def shorter(share: float, slices: Mapping[Slice, float]) -> Claims:
    """What a step that is this share shorter gives back: of the trainer's GPUs their wait, of the rollout GPUs the same
    share of their time, what they stand idle first."""
    idle = min(share, slices.get("idle", 0.0))
    return {"wait": share, "idle": idle, "busy": share - idle}


def within(gain: float, *claims: Claims) -> Claims:
    """The claims, one after the other, as far as a step that is `gain` shorter gives them back: that share of a pool's
    time at most."""
    left = {True: max(0.0, gain), False: max(0.0, gain)}
    found: dict[Slice, float] = {}
    for of, share in (pair for claim in claims for pair in claim.items()):
        more = min(share, left[of in _TRAINERS])
        left[of in _TRAINERS] -= more
        found[of] = found.get(of, 0.0) + more
    return found


def settle(claims: Sequence[Claims], pools: Pools, slices: Mapping[Slice, float]) -> list[FindingCost | None]:
    """The size of every finding, in order; None for one that claims nothing, or whose pool has no GPUs."""
    left: dict[Slice, float] = dict(slices)
    whole = {True: 1.0, False: 1.0}  # of the trainer's GPUs, and of rollout's: parts that overlap count once
    sizes: list[FindingCost | None] = []
    for claim in claims:
        gpu_h = usd = step = over = 0.0
        for of, wanted in claim.items():
            wanted += over if of == "busy" else 0.0
            pool = of in _TRAINERS
            share = wanted if of == "added" else max(0.0, min(wanted, left.get(of, 1.0), whole[pool]))
            whole[pool] -= max(0.0, share)
            over = wanted - share if of == "idle" else over  # whose idle time is spoken for gives of its busy time
            left[of] = left.get(of, 1.0) - share
            gpu_h += _HOURS * share * pools.gpus(of)
            usd += _HOURS * share * pools.gpus(of) * pools.usd_h(of)
            step += share if of in _TRAINERS else 0.0
        paid = gpu_h > 0 or "added" in claim  # what costs as much as it gives back costs nothing
        sizes.append(FindingCost(max(0.0, gpu_h), max(0.0, usd), step) if paid else None)
    return sizes
