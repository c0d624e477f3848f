"""Which steps of a run its metrics count, and events that happen before them."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim.config.scenario import Scenario
from fleetsim.sim.records import Records
from fleetsim.sim.window import warmup_steps


def warmups_of(runs: Sequence[Records]) -> tuple[int, ...]:
    """Steps that are left out of the metrics of each run, from its first on."""
    return tuple(warmup_steps(run.scenario, run.steps["end_s"] - run.steps["start_s"]) for run in runs)


def counted_words(warmups: Sequence[int], steps: int) -> str:
    """ "counted: steps 15 to 29 (the rest is warm-up)"; where replications differ, from when on each counts. steps: of
    the first replication."""
    first, last = warmups[0], steps - 1
    if not any(warmups):
        return "counted: all steps (no warm-up)"
    low, high = min(warmups), max(warmups)
    others = "" if low == high else f", {low} to {high} steps by replication"
    return f"counted: steps {first} to {last} (the rest is warm-up{others})"


def early_events(scenario: Scenario, warmups: Sequence[int]) -> tuple[str, ...]:
    """A warning for each event of the warm-up: no counted step was there before it, so no metric shows what it did.

    An event at step 0 is how a run begins: there is no before.
    """
    found = []
    for event in scenario.run.events:
        hidden = sum(event.step < first for first in warmups)
        if not event.step or not hidden:
            continue
        what = ", ".join(f"{k} {v:g}" for k, v in event.model_dump(exclude_none=True).items() if k != "step")
        where = "the warm-up" if hidden == len(warmups) else f"the warm-up of {hidden} of {len(warmups)} replications"
        found.append(
            f"run.events: step {event.step} ({what}) is in {where}, so the metrics do not show what it did; let it "
            "happen later, or count from an earlier step with --set run.warmup_steps=N"
        )
    return tuple(found)
