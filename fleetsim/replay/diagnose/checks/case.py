"""`Case`: what a check looks at. `Reply`: what it finds, before the findings have been priced against each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.history.signals import BY_NAME
from fleetsim.policies.samples import AGE_ACTIONS, BATCH_RULES
from fleetsim.replay.backtest import Backtest
from fleetsim.replay.diagnose.finding import Check, Shares, is_shared
from fleetsim.replay.observe.observed import Observed, Reading

# The KV cache is not what holds an instance back below this: vLLM admits whole prompts while blocks are free, and a
# batch's use swings by a fifth around its mean as responses grow and end.
KV_ROOM = 0.8
# A fleet that is too small is tried with a quarter more: enough to tell, not so much that anything would help.
MORE = 1.25
# Requests that wait in an engine, of those that it has: below it they only pass through.
WAITING = 0.02
# Where caches have room and nobody gave a limit, one is inferred only where more than this wait: a few percent of the
# requests are always on their way into a batch, with prompts still to be computed.
INFERRED = 0.15
# Peak over mean of what is in flight: a ceiling, not an ebb and flow. (The 95th percentile over the median of a client
# at its cap, refilled as samples end, is 1.0 to 1.05; of a barrier that drains, above 1.5.)
FLAT = 1.10
# How the trainer's wait begins in words: the headline says it, too.
WAITS = "the trainer waits for samples"
# A cause that costs less than this share of a pool's time is not what to change first.
WORTH = 0.01


def more_than(instances: float) -> int:
    """The count with which a fleet that is too small is tried."""
    return math.ceil(MORE * instances - 1e-9)


class Gains(dict[Check, float]):
    """Check -> the share of a step that mending it saves, mean of its simulations. ranges: the least and the most.
    was, more: instances of the simulated fleet, and with how many instead "rollout" was: of a window in which some
    vanished, neither is the window's mean."""

    def __init__(self, found: Mapping[Check, float] | None = None, was: int = 1) -> None:
        super().__init__(found or {})
        self.ranges: dict[Check, tuple[float, float]] = {}
        self.was, self.more = was, more_than(was)

    @property
    def more_words(self) -> str:
        """What more instances save of a step."""
        saved = units.share(max(0.0, self["rollout"]))
        return f"simulated with {self.more:,} instances instead of {self.was:,}, a step is {saved} shorter"


class Case(Struct, frozen=True):
    """A window and what it is judged by.

    scenario: prices, targets, batch, limits, as far as anybody gave them (`given`: their dotted paths); the rest are
    defaults, and no evidence. backtest: None where none was made. gains: what removing a fault saves of a step, by
    simulation (`replay/diagnose/mending.py`); empty without a back-test that holds. ranked: the same, to compare
    causes by where the back-test is only nearly right (None = gains). tried: what the changes that a finding tells to
    try save of a step, those that were simulated. enough: instances that make a step no longer, by simulation;
    None = not simulated. unsimulated: why the window cannot be simulated; None where it can, or nobody asked. weighed:
    whether what a simulation could refute is told as found: False where there could be one and nobody wanted it.
    earlier: what the questions before this one came to.
    """

    observed: Observed
    scenario: Scenario
    given: frozenset[str] = frozenset()
    backtest: Backtest | None = None
    gains: Gains = field(default_factory=Gains)
    ranked: Gains | None = None
    enough: int | None = None
    unsimulated: str | None = None
    weighed: bool = True
    tried: Mapping[Check, float] = field(default_factory=dict)
    earlier: tuple[Reply, ...] = ()

    def faults(self, *checks: Check) -> list[Reply]:
        """The faults among the earlier findings, of these checks."""
        return [d for d in self.earlier if d.state == "fault" and d.check in checks]

    @property
    def ahead(self) -> float | None:
        """What running further ahead of the trainer saves of a step; None = not simulated."""
        return self.tried.get("rollout")

    def says(self, path: str) -> bool:
        """Whether somebody gave the value at this path, or anything below it."""
        return any(p == path or p.startswith(f"{path}.") for p in self.given)

    @property
    def idle(self) -> Reading | None:
        """The trainer's sample wait / its cycle, as far as it can be known; without what it waits beside a batch."""
        idle = self.observed.trainer.idle_fraction
        return idle if idle is None or not self.ready else Reading(idle.value - self.ready, idle.source)

    @property
    def simulated_wait(self) -> float:
        """Of a step, what the back-test's trainer waits, and so what a change gives there at most; 1 = no back-test."""
        row = None if self.backtest is None else self.backtest.row("trainer_idle")
        return 1.0 if row is None else row.predicted

    @property
    def ready(self) -> float:
        """Of a step, the share that the trainer waits although a batch stands ready; 0 where the scenario says that it
        waits for certain samples."""
        t, buffer = self.observed.trainer, self.scenario.buffer
        picks = self.says("buffer.batch_rule") and BATCH_RULES[buffer.batch_rule].reserved
        picks |= self.says("buffer.wait_for_oldest") and buffer.wait_for_oldest
        picks |= self.says("admission.age_action") and AGE_ACTIONS[self.scenario.admission.age_action].limits_age
        if picks or self.colocated or t.ready_share is None or t.idle_fraction is None:
            return 0.0
        return t.ready_share * t.idle_fraction.value

    @property
    def idle_limit(self) -> float:
        """The share of its cycle that the trainer may wait (targets.trainer_idle_fraction)."""
        return self.scenario.targets.idle_limit

    @property
    def colocated(self) -> bool:
        """Both pools are the same GPUs: the trainer's wait is the engines' work."""
        return is_shared(self.observed, self.scenario, self.given)

    @property
    def starving(self) -> bool | None:
        """Whether the trainer waits for samples more than the target allows; None = unknown. Never when colocated."""
        if self.colocated:
            return False
        return None if self.idle is None else self.idle.value > self.idle_limit

    @property
    def unhurt(self) -> bool:
        """Whether faster rollout would make no step shorter: the trainer does not wait, and has GPUs of its own."""
        return self.starving is False and not self.colocated

    @property
    def at_most(self) -> Shares | None:
        """What faster rollout gives back at most: the wait of a trainer that waits for samples."""
        return (self.idle.value, self.idle.value) if self.starving and self.idle is not None else None

    @property
    def kv_full(self) -> bool | None:
        """Whether the KV caches have no room to spare at their peak; None where it is not exported."""
        peak = None if self.observed.fleet is None else self.observed.fleet.kv_use_peak
        return None if peak is None else peak >= KV_ROOM

    @property
    def max_num_seqs(self) -> int | None:
        """The engines' limit, where somebody gave it."""
        return self.scenario.engine.max_num_seqs if self.says("engine.max_num_seqs") else None

    @property
    def waiting_share(self) -> float | None:
        """Of the requests that the engines have, those that wait; None where it is not exported, or there are none."""
        f = self.observed.fleet
        if f is None or f.waiting is None or f.running is None or f.running + f.waiting <= 0:
            return None
        return f.waiting / (f.running + f.waiting)

    @property
    def behind_share(self) -> float | None:
        """The same of engines that run others: one that stands still for a weight sync is not full."""
        f, every = self.observed.fleet, self.waiting_share
        if f is None or every is None or f.waiting_behind is None:
            return every
        return f.waiting_behind / ((f.running or 0.0) + (f.waiting or 0.0))

    @property
    def engines_idle(self) -> float | None:
        """Of the instances' time, that without work; None where neither engines nor the trainer's log say so."""
        seen = self.observed.fleet or self.observed.logged
        return None if seen is None else seen.idle_share

    @property
    def group_size(self) -> Reading | None:
        """Samples per prompt, from somewhere else than the hit ratio: as given, or as the requests ask for it."""
        if self.says("workload.group_size"):
            return Reading(float(self.scenario.workload.group_size), "log")
        found = None if self.observed.lengths is None else self.observed.lengths.group_size
        # A client that sends each sample by itself asks for n = 1 whatever its groups are.
        return found if found is not None and found.source != "inferred" and found.value > 1 else None


class Reply(Struct, frozen=True):
    """A finding without its size.

    gives: shares of the pools' time (`replay/diagnose/finding.py`) that its removal gives back at most; None = unknown.
    name: the cause in a few words, for the headline; empty unless it is a fault. missing: as in `Finding`. saves: of a
    step, as simulated; ends: the least and the most that it may be. remedy: the changes that `next` tells to try.
    check: as whoever asks the question sets it. cause: its word in `diagnosis`; empty = the first of its check.
    """

    state: Literal["fault", "ok", "unknown"]
    title: str
    evidence: Sequence[str] = ()
    next: str | None = None
    gives: Shares | None = None
    name: str = ""
    missing: str | None = None
    saves: float | None = None
    ends: tuple[float, float] | None = None
    remedy: Mapping[str, Any] = field(default_factory=dict)
    check: Check = "data"
    cause: str = ""


def unseen(case: Case, title: str, metric: str, evidence: Sequence[str] = ()) -> Reply:
    """What the engines alone could tell, where nobody reads them: it costs nothing beside a trainer that does not wait,
    and else the one metric that would tell. title: what is not known; metric: of the engines."""
    if case.unhurt:
        return Reply("ok", "not seen, and the trainer does not wait for it", (*evidence, idle_words(case)))
    then = f"one metric of the engines tells, {metric}:\nfleetsim replay --prometheus URL --selector 'job=\"rollout\"'"
    return Reply("unknown", title, evidence, then, missing=metric.partition(" ")[0])


def metric_of(case: Case, signal: str) -> str:
    """What the window's engine calls a signal; the first name that there is where it exports none."""
    names = BY_NAME[signal].metrics
    own = {"sglang": "sglang:", "tensorrt-llm": "trtllm_"}.get(case.observed.engine or "", "vllm:")
    return next((name for name in names if name.startswith(own)), names[0])


def round_count(count: float) -> int:
    """A count that is recommended: down to what people set, multiples of 32, of 8 below 128, any below 16."""
    unit = 32 if count >= 128 else 8 if count >= 16 else 1
    return int(count // unit) * unit


def told(quantity: Reading, text: str) -> str:
    """A number in words, with the word "inferred" where it was."""
    return f"{text} (inferred)" if quantity.source == "inferred" else text


def idle_words(case: Case) -> str:
    """The trainer's wait, against its limit."""
    if case.idle is None:
        return "how long the trainer waits for samples is neither exported nor to be inferred"
    share = told(case.idle, units.share(case.idle.value))
    return f"{WAITS} {share} of a step, target {units.share(case.idle_limit)}"
