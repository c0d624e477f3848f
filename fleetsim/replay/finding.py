"""`Finding` and `Verdict`: what the diagnosis says, in the order of the runbook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Check = Literal[
    "data",  # enough was read to judge
    "trainer",  # is the trainer healthy
    "sync",  # is weight sync the stall
    "stragglers",  # a wide spread is a placement problem
    "prefix_cache",  # is throughput to be had for free: prefix hits,
    "in_flight_cap",  # the client's cap,
    "max_num_seqs",  # the engine's limit,
    "preemptions",  # the KV cache,
    "rollout",  # only then: too few instances
    "backlog",  # or too many
    "model",  # the back-test is off: the model is wrong somewhere
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that costs, or was ruled out.

    check: which question of the runbook. state: fault | ok | unknown (the data cannot say). title: one line. evidence:
    sentences with the numbers. gpu_h_per_day, usd_per_day: what it costs as long as it stays, None where nothing. next:
    what to change or to run, None where there is nothing to do: one line or several, those that begin with "fleetsim"
    are commands, in which "fleetsim replay ..." stands for the call at hand (`report/next_lines.py`).
    """

    check: Check
    state: Literal["fault", "ok", "unknown"]
    title: str
    evidence: tuple[str, ...]
    gpu_h_per_day: float | None = None
    usd_per_day: float | None = None
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """starves: which side waits. headline: one sentence. findings: in the runbook's order, all checks. binding: the
    check of the fault to change first, which is the first one, but that a backlog comes before what would make rollout
    faster still, and faults of data or model last; None = nothing is wrong."""

    starves: Literal["trainer", "rollout", "neither", "unknown"]
    headline: str
    findings: tuple[Finding, ...]
    binding: Check | None
