"""Results as one JSON document: sorted keys, full precision, no timestamps, no NaN. Same seed, same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetsim.engine.transport import sync_times
from fleetsim.plan.results import CANDIDATE_METRICS
from fleetsim.tell.data import estimate, head

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.plan.alternatives import Alternatives
    from fleetsim.plan.engine_source import EngineSource
    from fleetsim.plan.size import SizeResult
    from fleetsim.plan.split import Outcome, SplitResult
    from fleetsim.plan.trials import Trial


def size_document(result: SizeResult) -> dict[str, Any]:
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
            "way_out": None if result.way_out is None else asdict(result.way_out),
            "largest_tried": None if result.largest is None else _candidate(result.largest),
            "missed_targets": [t.name for t in result.missed],
        },
        "targets": [asdict(t) for t in result.targets],
        "rate_matching": asdict(result.rate_matching),
        "headroom": asdict(result.headroom),
        "queue_cap": asdict(result.queue_cap),
        "candidates": [_candidate(c) for c in result.candidates],
        "alternatives": _alternatives(result.alternatives),
        "explanation": result.explanation,
        "assumptions": [asdict(a) for a in result.assumptions],
        "warnings": list(result.warnings),
        "profile": asdict(result.profile),
        "simulations": result.simulations,
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


def _alternatives(found: Alternatives) -> dict[str, Any]:
    return {**asdict(found), "tried": [{**asdict(a), "free": a.free} for a in found.tried]}


def split_document(result: SplitResult) -> dict[str, Any]:
    """The document of `fleetsim split --json`."""
    ratio = result.ratio
    return {
        **head("split", result.scenario),
        "gpus": result.gpus,
        "by": result.by,
        "trainer_rules": asdict(result.rules),
        "recommendation": {
            "verdict": result.verdict,
            "best_split_over_best_colocated": None if ratio is None else estimate(ratio),
            "best_split": None if result.best_split is None else result.best_split.arrangement.label,
            "best_colocated": None if result.best_colocated is None else result.best_colocated.arrangement.label,
            **_outcome(result.chosen),
        },
        "arrangements": [_outcome(o) for o in result.outcomes],
        "splits": result.splits,
        "stuck": [{"arrangement": label, "reason": reason} for label, reason in result.stuck],
        "alternatives": _alternatives(result.alternatives),
        "explanation": result.explanation,
        "assumptions": [asdict(a) for a in result.assumptions],
        "warnings": list(result.warnings),
        "profile": asdict(result.profile),
        "simulations": result.simulations,
    }


def ways_document(scenario: Scenario, outcomes: Sequence[Outcome], missing: str) -> dict[str, Any]:
    """The document of a `fleetsim split --json` that was interrupted: the ways that were simulated."""
    return {
        **head("split", scenario),
        "recommendation": None,
        "arrangements": [_outcome(o) for o in outcomes],
        "warnings": [f"interrupted: {missing}"],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    way = outcome.arrangement
    return {
        "arrangement": way.label,
        "kind": way.kind,
        "instances": way.instances,
        "rollout_gpus": way.rollout_gpus,
        "trainer_gpus": way.trainer_gpus,
        "trainer_fixed_s": way.scenario.trainer.fixed_s,
        "replications": outcome.replications,
        "binding": outcome.binding,
        "ranks": dict(outcome.ranks),
        "ratio_to_first": estimate(outcome.ratio),
        "ties_with_first": outcome.ties,
        **{field: estimate(outcome.estimates[metric]) for field, metric in CANDIDATE_METRICS.items()},
    }


def simulate_document(
    scenario: Scenario,
    metrics: Mapping[str, Any],
    replications: int,
    profile: EngineSource,
    warnings: Sequence[str],
    values: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The document of `fleetsim simulate --json`; `metrics` nested, with Estimate leaves, `values` flat, per run."""
    return {
        **head("simulate", scenario),
        "replications": replications,
        "metrics": metrics,
        "values": [dict(run) for run in values],
        "sync_times": asdict(sync_times(scenario)),
        "profile": asdict(profile),
        "warnings": list(warnings),
    }
