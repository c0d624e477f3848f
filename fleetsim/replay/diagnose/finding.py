"""`Finding` and `Verdict`: what the diagnosis says, in the order of the runbook, and what each finding costs.

Every GPU-second is charged to one finding at most. Removing a cause gives back shares of the time of two pools: of the
trainer's GPUs (of an optimizer step), and of the rollout GPUs'. A step that is shorter by a share gives back that share
of both; more instances only the trainer's wait.

    GPU-h per day = 24 h x sum over pools (share of the pool's time x its GPUs)
    USD per day   = the same sum, each pool at its price per GPU-hour

Where no simulation says it, a share is what removing the cause would give back at most: the trainer's wait, or the time
that something is seen to take.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.engine.prices import prices_of
from fleetsim.records import replace
from fleetsim.replay.observe.observed import Observed
from fleetsim.tell.next_lines import resolved

Check = Literal[
    "data",
    "trainer",
    "sync",
    "stragglers",
    "prefix_cache",
    "in_flight_cap",
    "max_num_seqs",
    "preemptions",
    "rollout",
    "backlog",
    "model",
]


# In the runbook's order: first what would make the rest meaningless, then throughput that is to be had for free, and
# only then the number of instances.
QUESTIONS: Mapping[Check, str] = {
    "data": "was enough read to judge?",
    "trainer": "is the trainer healthy, or did it become slower?",
    "sync": "is weight sync the stall?",
    "stragglers": "is an instance slow at its own load? A wide spread is a placement problem, not one of size",
    "prefix_cache": "do the siblings of a group find their prompt in the cache?",
    "in_flight_cap": "does the client keep too few samples in flight?",
    "max_num_seqs": "does the engine's own limit make requests wait while the KV cache has room?",
    "preemptions": "is the KV cache too small for what runs, so that prompts are computed again?",
    "rollout": "only then: are there too few instances?",
    "backlog": "or too many, or a trainer that throws samples away?",
    "model": "does the back-test predict the window? If not, the model is wrong somewhere",
}


def called(check: Check) -> str:
    """The name of a check in a text."""
    own = {"sync": "weight sync", "prefix_cache": "prefix cache", "in_flight_cap": "in-flight cap"}
    return own.get(check, check)


class Finding(Struct, frozen=True):
    """One thing that costs, or was ruled out.

    check: which question of the runbook. state: fault | ok | unknown (the data cannot say). title: one line. evidence:
    sentences with the numbers. gpu_h_per_day, usd_per_day: what it costs as long as it stays, None where nothing. next:
    what to change or to run, None where there is nothing to do: one line or several, those that begin with "fleetsim"
    are commands, in which "fleetsim replay ..." stands for the call at hand (`tell/next_lines.py`). missing: of an
    unknown one, the one metric, fact or flag that would answer it. step_share: of a step, what mending it saves:
    simulated, or at most, None where it costs nothing. simulated: whether the price is; step_range: the least and
    the most that it may be, where that was simulated. cause: of a fault, its word in `diagnosis`.
    """

    check: Check
    state: Literal["fault", "ok", "unknown"]
    title: str
    evidence: tuple[str, ...]
    gpu_h_per_day: float | None = None
    usd_per_day: float | None = None
    next: str | None = None
    missing: str | None = None
    step_share: float | None = None
    simulated: bool = False
    step_range: tuple[float, float] | None = None
    cause: str | None = None


# What is to be mended before a fleet is sized: it is throughput for nothing, or changes what the fleet has to do.
Mend = Literal["trainer", "sync", "stragglers", "prefix_cache", "in_flight_cap", "max_num_seqs", "preemptions"]
MENDS: Mapping[Mend, tuple[str, str]] = {
    "trainer": ("mend the trainer", "the trainer is healthy"),
    "sync": ("shorten the weight sync", "the sync is shorter"),
    "stragglers": ("replace the slow instances, or spread the work evenly", "the stragglers are gone"),
    "prefix_cache": ("mend the prefix cache", "siblings find their prompt"),
    "in_flight_cap": ("raise the client's cap on what is in flight", "the in-flight cap is raised"),
    "max_num_seqs": ("raise max_num_seqs", "max_num_seqs is raised"),
    "preemptions": ("give the KV caches room", "preemptions are rare"),
}
"""What to do, and what is so once it is done."""


class Withheld(Struct, frozen=True):
    """Why a fleet is not to be resized by this window. reason: the fault to mend first, or data | model | no_plan. why:
    a sentence without its end. first: what is to be mended before, in the runbook's order. sizable: whether the
    simulation predicts the window, so that it can say what the fleet would be afterwards."""

    reason: Mend | Literal["data", "model", "no_plan"]
    why: str
    first: tuple[Mend, ...] = ()
    sizable: bool = False


class Verdict(Struct, frozen=True):
    """What the diagnosis comes to.

    starves: which side waits. headline: one sentence. findings: of all checks, in the runbook's order. binding: the
    check of the fault to change first; None = nothing is wrong. It is the first fault, with three exceptions: of those
    to be mended before the fleet is sized the dearest counts; a backlog comes before what would make rollout faster
    still; faults of data or model come last. withheld: why nothing is to be recommended of this window; None = its
    fleet may be sized (`replay/diagnose/mending.py`).
    """

    starves: Literal["trainer", "rollout", "neither", "unknown"]
    headline: str
    findings: tuple[Finding, ...]
    binding: Check | None
    withheld: Withheld | None = None

    @property
    def first(self) -> Finding | None:
        """What to change first; None where nothing is wrong."""
        return next((f for f in self.findings if f.check == self.binding), None)

    @property
    def faults(self) -> list[Check]:
        """The questions that a fault answers, in the runbook's order."""
        return [f.check for f in self.findings if f.state == "fault"]


def addressed(verdict: Verdict, call: Sequence[str]) -> Verdict:
    """The verdict with every next command as one that repeats this call: `fleetsim replay` and its own words."""
    findings = (f if f.next is None else replace(f, next=resolved(f.next, call)) for f in verdict.findings)
    return replace(verdict, findings=tuple(findings))


Shares = tuple[float, float]
"""Of the trainer's and of the rollout GPUs' time, what removing a cause gives back."""
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


class FindingCost(Struct, frozen=True):
    """What a finding costs as long as it stays. step_share: of a step, what the trainer's share comes to."""

    gpu_h_per_day: float
    usd_per_day: float
    step_share: float = 0.0


def is_shared(observed: Observed, scenario: Scenario, given: Collection[str]) -> bool:
    """Whether both pools are the same GPUs: as said (`given`: dotted paths that somebody wrote), or as it looks.

    Engines stand empty beside a synchronous trainer with GPUs of its own, too: where it is said how many GPUs each pool
    has, pools of unlike size are not the same.
    """
    if "fleet.placement" in given:
        return scenario.fleet.placement == "colocated"
    sizes = scenario.fleet.instances * scenario.engine.gpus, scenario.trainer.gpus
    apart = {"fleet.instances", "engine.tp", "trainer.gpus"} <= set(given) and sizes[0] != sizes[1]
    return observed.placement == "colocated" and not apart


def pools_of(observed: Observed, scenario: Scenario, given: Collection[str] = ()) -> Pools:
    """The pools of a window: instances as observed, GPUs and prices as the scenario has them.

    given: dotted paths that somebody wrote; every other value that a price rests on is listed as assumed.
    """
    shared = is_shared(observed, scenario, given)
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
    """The size of every finding, in order; None for one that gives nothing back, or whose pool has no GPUs. What mends
    it may need more GPUs: a share below 0; what costs as much as it gives back costs nothing."""
    left = [1.0, 1.0]
    sizes: list[FindingCost | None] = []
    for wanted in given:
        shares = [min(share, rest) for share, rest in zip(wanted or (0.0, 0.0), left, strict=True)]
        left = [rest - max(0.0, share) for rest, share in zip(left, shares, strict=True)]
        trainer, rollout = _HOURS * shares[0] * pools.trainer_gpus, _HOURS * shares[1] * pools.rollout_gpus
        usd = trainer * pools.trainer_usd_h + rollout * pools.rollout_usd_h
        sized = FindingCost(max(0.0, trainer + rollout), max(0.0, usd), max(0.0, shares[0]))
        sizes.append(sized if sized.gpu_h_per_day > 0 or min(shares) < 0 else None)
    return sizes
