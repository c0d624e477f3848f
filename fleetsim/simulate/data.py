"""What `simulate` says as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetsim.engine.transport import sync_times
from fleetsim.tell.data import head

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.engine_source import EngineSource


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
