"""The fleet that the window's job should have: `plan.size` on the implied scenario, with the engine speed it showed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.profile_files import profile_text
from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.job.trials import Trial, trial_of, with_instances
from fleetsim.replay.change.extrapolation import Extrapolated, context_of, extrapolated, running_per_instance, widened
from fleetsim.replay.implied.implied_scenario import Implied, measured_by
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.sim.threads import side_by_side
from fleetsim.size.size import Sizing, size


@dataclass(frozen=True, slots=True)
class AdvisedFleet:
    """What to deploy. instances: the fleet; was: now. queue_cap_samples: buffer capacity that costs next to no step
    time. changes: dotted paths to set, empty where the fleet is right as it is. predicted: metrics with that fleet,
    now: with the fleet as it is (same draws). size: everything that sizing found.
    extrapolated: the recommended fleet's load, where the window never saw it.
    """

    instances: int
    was: int
    queue_cap_samples: int
    changes: Mapping[str, Any]
    predicted: Mapping[str, Estimate]
    now: Mapping[str, Estimate]
    size: Sizing
    extrapolated: Extrapolated | None = None

    @property
    def resized(self) -> bool:
        """Whether the fleet should change."""
        return self.instances != self.was


def recommend(
    implied: Implied, *, given: Collection[str] = (), tell: Callable[[str], None] | None = None
) -> AdvisedFleet:
    """Sizes the fleet of the window's job. given: dotted paths that the user wrote (targets among them bind).

    Slow instances keep their numbers: an added one has the normal pace. Raises InputError and StuckError as `size`.
    """
    with tempfile.TemporaryDirectory(prefix="fleetsim-") as folder:
        scenario = _with_profile(implied, folder)
        result = size(scenario, given=given, tell=tell)
        queue_cap = result.queue_cap.samples  # looked for now, while the profile is there
        now = _now(implied, result)
    beyond = _beyond(implied, result)
    was = implied.scenario.fleet.instances
    changes: dict[str, Any] = {} if result.instances == was else {"fleet.instances": result.instances}
    return AdvisedFleet(
        result.instances,
        was,
        queue_cap,
        changes,
        widened(result.recommended.estimates, _at_the_ends(implied, result, beyond)),
        now.estimates,
        replace(result, scenario=implied.scenario),
        beyond,
    )


def _beyond(implied: Implied, result: Sizing) -> Extrapolated | None:
    """Whether the recommended fleet runs at a load that the window never saw: by one run of it."""
    if implied.engine is None or implied.speed is None:
        return None
    scenario = with_instances(implied.scenario, result.instances)
    step_s = result.recommended.mean("step_s")
    return extrapolated(implied.speed, running_per_instance(scenario, implied.engine, step_s), context_of(scenario))


def _at_the_ends(implied: Implied, result: Sizing, beyond: Extrapolated | None) -> list[Mapping[str, Estimate]]:
    """What the recommended fleet does at both ends of the doubt about its engines' speed."""
    if beyond is None or implied.engine is None:
        return []
    scenario = with_instances(
        with_changes(implied.scenario, {"run.steps": result.scenario.run.steps}), result.instances
    )
    found = []
    for engine in beyond.engines(implied.engine):
        runs = side_by_side(lambda r, e=engine: metrics_of(simulate(scenario, replication=r, engine=e)), range(2))
        found.append(trial_of(result.instances, list(runs)).estimates)
    return found


def _with_profile(implied: Implied, folder: str) -> Scenario:
    """The scenario with the window's engine as a profile file in `folder`: what `size` can read."""
    path = os.path.join(folder, "window.json")
    scenario, profile = measured_by(implied, path)
    if profile is not None:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(profile_text(profile))
    return scenario


def _now(implied: Implied, result: Sizing) -> Trial:
    """The fleet as it is, as many steps and replications as the recommendation had."""
    known = next((c for c in result.candidates if c.instances == implied.scenario.fleet.instances), None)
    if known is not None:
        return known
    scenario = with_changes(implied.scenario, {"run.steps": result.scenario.run.steps})
    runs = list(
        side_by_side(
            lambda r: metrics_of(simulate(scenario, replication=r, engine=implied.engine)),
            range(scenario.run.replications),
        )
    )
    return trial_of(scenario.fleet.instances, runs)
