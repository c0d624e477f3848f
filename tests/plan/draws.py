"""Every uncertain input of a job off at once, as a draw has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.job.uncertainty import Uncertain


def all_off(scenario: Scenario, factors: Iterable[tuple[Uncertain, float]]) -> Scenario:
    """The job with each input off by its factor. No input reads what another one changes, so that all are changed, and
    validated, at once."""
    changes: dict[str, Any] = {}
    for uncertain, factor in factors:
        own = uncertain.times(scenario, factor)
        assert not changes.keys() & own.keys()
        changes |= own
    return with_changes(scenario, changes)
