"""What an answer advises, as something that can be done and checked: the command that simulates it, and its promise.

A promise is what another run of that command comes to: the mean of the long runs behind the answer, and the interval of
their seeds, widened for the seeds of the other run. What is not known of the inputs is told beside it, as doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.records import as_dict
from fleetsim.search.alternative import Alternatives

if TYPE_CHECKING:
    from fleetsim.job.base_job import Job

PROMISED = ("step_s", "cost_per_step", "trainer_idle_fraction")
# Each end of a promise is so far from its mean at least and at most, as a share of it: what some runs together, each of
# which ends when its mean is known within 2 %, leave open beside another such run; and what nobody could act on.
_LEAST, _MOST = 0.015, 0.05


class Promise(Struct, frozen=True):
    """A metric of the long run: its mean, and the ends between which another run lies."""

    mean: float
    low: float
    high: float


class Advised(Struct, frozen=True):
    """what: it, in words. scenario: the job with it. estimates: of its long runs, by metric. permission: what it asks
    of the recipe that the recipe does not allow by itself."""

    what: str
    scenario: Scenario
    estimates: Mapping[str, Estimate]
    permission: str | None = None


def promise_of(estimates: Mapping[str, Estimate]) -> dict[str, Promise]:
    """What is promised of some metrics of a job in the long run."""
    return {name: _promise(name, estimates) for name in PROMISED}


def _promise(name: str, estimates: Mapping[str, Estimate]) -> Promise:
    e = estimates[name]
    # Another run has its own seeds: the difference of two means has twice the variance of one.
    half = sqrt(2.0) * (e.ci_high - e.ci_low) / 2.0
    if name == "trainer_idle_fraction":
        # What is not idle is a share of the step, so the step's own interval moves it by as much of that.
        half = max(half, _LEAST * (1.0 - e.mean))
        return Promise(e.mean, max(0.0, e.mean - half), min(1.0, e.mean + half))
    half = min(max(half, _LEAST * e.mean), _MOST * e.mean)
    return Promise(e.mean, e.mean - half, e.mean + half)


def moves_advised(alternatives: Alternatives | None) -> list[Advised]:
    """The moves that are told, what saves most first; permissions last."""
    return [
        Advised(a.text, a.anew.scenario, a.anew.trial.estimates, a.permission)
        for a in (() if alternatives is None else alternatives.moves())
        if a.anew is not None
    ]


def advice_data(job: Job, advised: Sequence[Advised]) -> list[dict[str, Any]]:
    """As it stands in a JSON document, the recommendation first; the command runs in the folder where it was asked."""
    from fleetsim.job.command import simulate_command

    return [
        {
            "what": one.what,
            "command": list(simulate_command(job, one.scenario)),
            "promise": {name: as_dict(p) for name, p in promise_of(one.estimates).items()},
            "permission": one.permission,
        }
        for one in advised
    ]
