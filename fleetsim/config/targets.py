"""The `targets` section: what a recommended fleet must hold."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleetsim.config.base import ConfigSection, Fraction, PositiveSeconds

# The share of its cycle that the runbook lets a trainer wait.
RUNBOOK_IDLE = 0.05


class TargetsConfig(ConfigSection):
    """What a recommended fleet must hold; null = not asked for."""

    trainer_idle_fraction: Fraction | None = Field(default=None, description="sample-wait / cycle, at most")
    staleness_p99_steps: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None, description="99th percentile of the trained samples' staleness in steps, at most"
    )
    step_s: PositiveSeconds | None = Field(default=None, description="seconds per optimizer step, at most")
    cost_per_step: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="US dollars per optimizer step, at most"
    )
    worth: Annotated[float, Field(ge=0, le=10)] = Field(
        default=1.0,
        description="per cent of a step's cost that one per cent of its time is worth, where counts are held "
        "against each other",
    )
    headroom: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.8, description="the runbook's derate of an instance's rate, for the rate-matching arithmetic"
    )

    @property
    def idle_limit(self) -> float:
        """The share of its cycle that a trainer may wait before it is worth a word: the target, else the runbook's."""
        return RUNBOOK_IDLE if self.trainer_idle_fraction is None else self.trainer_idle_fraction
