"""What `size` says as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetsim.job.metrics import CANDIDATE_METRICS
from fleetsim.size.facts import all_facts
from fleetsim.tell.data import estimate, head, told

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.trials import Trial
    from fleetsim.size.size import Sizing


def size_document(result: Sizing, advice: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of `fleetsim size --json`."""
    return {
        **head("size", result.scenario),
        "recommendation": {
            "instances": result.instances,
            "queue_cap_samples": result.queue_cap.samples,
            "queue_cap_steps": result.queue_cap.steps,
            "binding": result.binding,
            "at_knee": result.at_knee,
            "feasible": result.feasible,
            "largest_tried": None if result.largest is None else _candidate(result.largest),
            "missed_targets": [t.name for t in result.missed],
            "change": None if result.change is None else asdict(result.change),
        },
        "advice": advice,
        **told(all_facts(result)),
        "targets": [asdict(t) for t in result.targets],
        "rate_matching": asdict(result.rate_matching),
        "headroom": asdict(result.headroom),
        "queue_cap": asdict(result.queue_cap),
        "candidates": [_candidate(c) for c in result.candidates],
        "confidence": result.confidence,
        **result.said(),
    }


def tried_document(scenario: Scenario, tried: Sequence[Trial], missing: str) -> dict[str, Any]:
    """The document of a `fleetsim size --json` that was interrupted: the fleets that were tried."""
    return {
        **head("size", scenario),
        "recommendation": None,
        "candidates": [_candidate(trial) for trial in tried],
        "warnings": [f"interrupted: {missing}"],
    }


def _candidate(trial: Trial) -> dict[str, Any]:
    return {
        "instances": trial.instances,
        "replications": trial.replications,
        "binding": trial.binding,
        **{field: estimate(trial.estimates[metric]) for field, metric in CANDIDATE_METRICS.items()},
    }
