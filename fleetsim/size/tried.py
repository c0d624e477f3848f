"""The fleets that were tried before Ctrl-C came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.job.trials import Measure, Trial, trial_of, unit_of, with_instances
from fleetsim.sim.stop import stopping


class Tried:
    """A measure that remembers what another one measured; runs that were cut short do not count."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._runs: dict[Scenario, dict[int, Mapping[str, Any]]] = {}

    def __call__(self, scenario: Scenario, replication: int) -> Mapping[str, Any]:
        """The metrics of one run."""
        run = self._measure(scenario, replication)
        if not stopping():
            self._runs.setdefault(scenario, {})[replication] = run
        return run

    def trials(self) -> tuple[Trial, ...]:
        """The fleets of the first scenario that was measured, by count; other scenarios are variations of it."""
        found: dict[int, Trial] = {}
        alike = None
        for scenario, runs in list(self._runs.items()):
            bare = with_instances(scenario, unit_of(scenario))
            alike = alike or bare
            if bare == alike:
                n = scenario.fleet.instances
                found[n] = trial_of(n, [runs[r] for r in sorted(runs)])
        return tuple(found[n] for n in sorted(found))
