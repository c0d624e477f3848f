"""`Finding` and `Verdict`: what the diagnosis says, in the order of the runbook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from fleetsim.records import replace
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


class CheckQuestion(Struct, frozen=True):
    """called: a check's name in a text. asks: its question."""

    called: str
    asks: str


# In the runbook's order: first what would make the rest meaningless, then throughput that is to be had for free, and
# only then the number of instances.
QUESTIONS: Mapping[Check, CheckQuestion] = {
    "data": CheckQuestion("data", "was enough read to judge?"),
    "trainer": CheckQuestion("trainer", "is the trainer healthy, or did it become slower?"),
    "sync": CheckQuestion("weight sync", "is weight sync the stall?"),
    "stragglers": CheckQuestion(
        "stragglers", "is an instance slow at its own load? A wide spread is a placement problem, not one of size"
    ),
    "prefix_cache": CheckQuestion("prefix cache", "do the siblings of a group find their prompt in the cache?"),
    "in_flight_cap": CheckQuestion("in-flight cap", "does the client keep too few samples in flight?"),
    "max_num_seqs": CheckQuestion(
        "max_num_seqs", "does the engine's own limit make requests wait while the KV cache has room?"
    ),
    "preemptions": CheckQuestion(
        "preemptions", "is the KV cache too small for what runs, so that prompts are computed again?"
    ),
    "rollout": CheckQuestion("rollout", "only then: are there too few instances?"),
    "backlog": CheckQuestion("backlog", "or too many, or a trainer that throws samples away?"),
    "model": CheckQuestion("model", "does the back-test predict the window? If not, the model is wrong somewhere"),
}


class Finding(Struct, frozen=True):
    """One thing that costs, or was ruled out.

    check: which question of the runbook. state: fault | ok | unknown (the data cannot say). title: one line. evidence:
    sentences with the numbers. gpu_h_per_day, usd_per_day: what it costs as long as it stays, None where nothing. next:
    what to change or to run, None where there is nothing to do: one line or several, those that begin with "fleetsim"
    are commands, in which "fleetsim replay ..." stands for the call at hand (`tell/next_lines.py`). missing: of an
    unknown one, the one metric, fact or flag that would answer it. step_share: of a step, what mending it saves:
    simulated, or at most, None where it costs nothing. simulated: whether the price is; step_range: the least and
    the most that it may be, where that was simulated.
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


# What is to be mended before a fleet is sized: it is throughput for nothing, or changes what the fleet has to do.
Mend = Literal["trainer", "sync", "stragglers", "prefix_cache", "in_flight_cap", "max_num_seqs", "preemptions"]
MENDS: Mapping[Mend, str] = {
    "trainer": "mend the trainer",
    "sync": "shorten the weight sync",
    "stragglers": "replace the slow instances, or spread the work evenly",
    "prefix_cache": "mend the prefix cache",
    "in_flight_cap": "raise the client's cap on what is in flight",
    "max_num_seqs": "raise max_num_seqs",
    "preemptions": "give the KV caches room",
}


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
