"""What `split` says as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetsim.job.metrics import CANDIDATE_METRICS
from fleetsim.split.permissions import stale
from fleetsim.split.told import split_facts
from fleetsim.tell.data import estimate, head, told

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.split.outcome import Outcome
from fleetsim.split.split import Advice


def split_document(result: Advice, advice: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
            "change": None if result.change is None else asdict(result.change),
            **_outcome(result.chosen),
        },
        "advice": advice,
        **told(split_facts(result)),
        "arrangements": [_outcome(o) for o in result.outcomes],
        "splits": result.splits,
        "staleness_steps_permitted": result.oldest,
        "forbidden": [{"allow": stale(steps), **_outcome(way)} for steps, way in result.bought],
        "stuck": [{"arrangement": label, "reason": reason} for label, reason in result.stuck],
        **result.said(),
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
