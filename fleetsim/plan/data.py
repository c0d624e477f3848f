"""What `plan` says as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetsim.job.metrics import CANDIDATE_METRICS
from fleetsim.plan import words
from fleetsim.plan.rows import RANGED
from fleetsim.plan.told import plan_facts
from fleetsim.tell.data import estimate, head, told

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.assumptions import Assumption
    from fleetsim.job.engine_source import EngineSource
    from fleetsim.plan.rows import PlanRow, Plans
    from fleetsim.plan.search import Found


def plan_document(
    result: Plans,
    assumptions: Sequence[Assumption],
    warnings: Sequence[str],
    profile: EngineSource,
    advice: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The document of `fleetsim plan --json`. The scenario of its head is the job as it was asked."""
    tally = result.tally
    return {
        **head("plan", result.scenario),
        "budget": asdict(result.budget),
        "allow": list(result.allowed.texts),
        "feasible": result.feasible,
        "headline": words.headline(result),
        "advice": advice,
        **told(plan_facts(result)),
        "recommendation": _row(result, result.best),
        "plans": [_row(result, row) for row in result.rows],
        "forbidden": [
            {
                "allow": b.permission,
                "plan": None if b.row is None else _row(result, b.row),
                "step_ratio": None if b.row is None else b.row.step_s / result.best.step_s,
                "cost_ratio": None if b.row is None or not result.best.usd else b.row.usd / result.best.usd,
            }
            for b in result.bought
        ],
        "searched": {
            "plans": tally.plans,
            "impossible": tally.impossible,
            "ruled_out": {"by_rate_and_trainer": tally.rough, "by_bound": tally.bound, "by_plans_alike": tally.alike},
            "simulated": tally.simulated,
            "runs": tally.runs,
            "stuck": len(tally.stuck),
        },
        "assumptions": [asdict(a) for a in assumptions],
        "warnings": list(warnings),
        "profile": asdict(profile),
    }


def so_far_document(scenario: Scenario, found: Sequence[Found], missing: str) -> dict[str, Any]:
    """The document of a `fleetsim plan --json` that was interrupted."""
    return {
        **head("plan", scenario),
        "recommendation": None,
        "plans": [
            {"scenario": f.scenario.model_dump(mode="json"), "step_s": f.step_s, "cost_per_step": f.usd} for f in found
        ],
        "warnings": [f"interrupted: {missing}"],
    }


def _row(result: Plans, row: PlanRow) -> dict[str, Any]:
    share = row.candidate.share
    return {
        "plan": words.plan_words(row, several_types=True),
        "kind": share.kind,
        "gpu": row.scenario.engine.gpu,
        "gpus": share.gpus,
        "instances": share.instances,
        "rollout_gpus": share.rollout_gpus,
        "trainer_gpus": share.trainer_gpus,
        "staleness_steps_at_most": row.age,
        "needs": list(row.candidate.needs),
        "replications": row.runs,
        "binding": row.binding,
        "usd_per_hour": row.usd_per_h,
        "usd_per_trained_token": row.usd_per_token,
        "ranges": {name: list(row.range_of(name)) for name in RANGED},
        "changes_from_recommended": words.changes_from(result.best.scenario, row.scenario),
        "command": words.command(result, row),
        "scenario": row.scenario.model_dump(mode="json"),
        **{field: estimate(row.estimates[metric]) for field, metric in CANDIDATE_METRICS.items()},
    }
