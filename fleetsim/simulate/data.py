"""What `simulate` says as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetsim.engine.transport import sync_times
from fleetsim.simulate.told import run_told
from fleetsim.tell.data import head
from fleetsim.tell.data import told as said

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.engine_source import EngineSource
    from fleetsim.simulate.run_view import RunView


def simulate_document(
    scenario: Scenario,
    metrics: Mapping[str, Any],
    replications: int,
    profile: EngineSource,
    warnings: Sequence[str],
    values: Sequence[Mapping[str, Any]],
    shown: RunView | None = None,
    advice: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The document of `fleetsim simulate --json`; `metrics` nested, with Estimate leaves, `values` flat, per run.

    shown: what is told of a run that is past its warm-up.
    """
    told: dict[str, Any] = {}
    if shown is not None:
        told = {
            "advice": advice,
            **said(run_told(shown)),
            "ranges": shown.ranges and asdict(shown.ranges),
            "change": shown.change and asdict(shown.change),
        }
    return {
        **head("simulate", scenario),
        **told,
        "replications": replications,
        "metrics": metrics,
        "values": [dict(run) for run in values],
        "sync_times": asdict(sync_times(scenario)),
        "profile": asdict(profile),
        "warnings": list(warnings),
    }
