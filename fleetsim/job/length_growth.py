"""A job whose responses change from step to step, as a plan sizes it: where they are longest."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.paths import is_given
from fleetsim.config.run_length import most_steps
from fleetsim.config.scenario import Scenario
from fleetsim.workload.lengths import growth_by_the_end, mean_length, scaled_law

_FURTHER = 100


def where_longest(scenario: Scenario) -> dict[str, Any]:
    """The changes that make a drifting job steady at its longest responses: those of the last step of run.steps, or of
    the first one where they shrink. Nothing where there is no drift."""
    w = scenario.workload
    if not w.length_drift_per_step:
        return {}
    law = scaled_law(w.output_tokens, max(1.0, growth_by_the_end(scenario)))
    return {"workload.length_drift_per_step": 0.0, "workload.output_tokens": law.model_dump(exclude_none=True)}


def growth_notes(scenario: Scenario, given: Collection[str]) -> tuple[str, ...]:
    """What an answer about a drifting job rests on. given: dotted paths that somebody wrote."""
    w, steps = scenario.workload, most_steps(scenario)
    drift = w.length_drift_per_step
    if not drift:
        return ()
    start, end = (mean_length(w.output_tokens, scale=by, at_least=1.0) for by in (1.0, growth_by_the_end(scenario)))
    nobody = "" if is_given("run.steps", given) else ", which nobody gave"
    way, longest = ("grow", "last") if drift > 0 else ("shrink", "first")
    return (
        f"responses {way} by {abs(drift):.2g} of their length a step (workload.length_drift_per_step): from a mean of "
        f"{start:,.0f} tokens to {end:,.0f} after {steps:,} steps (run.steps{nobody}). A fleet is sized for the "
        f"{longest} of these steps, where they are longest; a run is simulated over all. {_FURTHER} steps more make "
        f"them {(1.0 + drift) ** _FURTHER:.2g} times as long: give the length of the job, --set run.steps=N",
    )


def as_asked(planned: Scenario, scenario: Scenario) -> Scenario:
    """What a plan made of a scenario, with the scenario's own lengths and their drift."""
    w = scenario.workload
    if not w.length_drift_per_step:
        return planned
    law = w.output_tokens.model_dump(exclude_none=True)
    changes = {"workload.length_drift_per_step": w.length_drift_per_step, "workload.output_tokens": law}
    return with_changes(planned, changes)
