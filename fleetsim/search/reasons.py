"""What `size`, `split` and `plan` say beside their answers: what binds, what else would help, how sure it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.estimates import Estimate
from fleetsim.job.assumptions import Assumption
from fleetsim.job.derived_values import SLOWDOWN
from fleetsim.job.engine_choices import Drafts, Sides
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.facts import run_differs, run_step_s
from fleetsim.job.result import Later
from fleetsim.job.trials import Trials
from fleetsim.records import as_dict
from fleetsim.search.alternative import Alternatives
from fleetsim.search.change import Change
from fleetsim.search.ranges import Spread

if TYPE_CHECKING:
    from fleetsim.job.base_job import Job
    from fleetsim.job.facts import Spans


S = TypeVar("S", bound=Spread[Any])


def as_run(trials: Trials, job: Scenario, given: Collection[str], replications: int = 1) -> float | None:
    """Seconds of a step on the fleet that a run had; None where no run shows the job, nobody says its fleet, or neither
    the run nor anybody says how fast its engines are."""
    if run_step_s(job) is None or not is_given("fleet.instances", given):
        return None
    if SLOWDOWN in job.assumed and not (is_given("engine.gpu", given) and is_given("engine.model", given)):
        return None
    count = job.fleet.instances
    trial = trials.at(count, replications)
    return None if count in trials.stuck else trial.mean("step_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGrounds:
    """What every answer says beside itself. scenario: the job. profile: what the engine's speed rests on. as_run_s:
    seconds of a step, simulated, on the instances that the run of the job had; None where no run showed it, or nobody
    says how many these were."""

    scenario: Scenario
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]
    profile: EngineSource
    as_run_s: float | None = None

    @property
    def contradicted(self) -> bool:
        """Whether the job, simulated as its run was, is another than the run: then nothing is to be advised."""
        return self.as_run_s is not None and run_differs(self.scenario, self.as_run_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons(AnswerGrounds, Generic[S]):
    """Why an answer is what it is.

    alternatives: what one more instance and every other lever would buy; explanation: that in words.
    drafts: what speculative decoding does in the advised fleet, None without it; sides: what disaggregation does,
    likewise. spread: how far the answer may be off; None where no input is in doubt. change: the one that helps most;
    allow: what would help more, if the recipe allowed it.
    """

    alternatives: Alternatives
    simulations: int
    explanation_later: Later[str] = field(repr=False, compare=False)
    drafts: Drafts | None = None
    sides: Sides | None = None
    spread: S | None = None
    change: Change | None = None
    allow: Change | None = None

    @property
    def explanation(self) -> str:
        """The paragraph: levers that nobody asked for yet are simulated for it."""
        return self.explanation_later()

    @property
    def spans(self) -> Spans:
        """Between what the metrics of the advised fleet lie."""
        return None if self.spread is None else self.spread.metrics

    @property
    def in_doubt(self) -> tuple[str, ...]:
        """Paths of the inputs whose values are not certain, the dearest first."""
        return () if self.spread is None else tuple(part.path for part in self.spread.parts)

    def said(self) -> dict[str, Any]:
        """All of it but the scenario and the change, as it stands in a JSON document."""
        parts = {"drafts": self.drafts, "sides": self.sides}
        return {
            "alternatives": self.alternatives.told(),
            "explanation": self.explanation,
            "assumptions": [as_dict(a) for a in self.assumptions],
            "warnings": list(self.warnings),
            "profile": as_dict(self.profile),
            "simulations": self.simulations,
            "spread": None if self.spread is None else as_dict(self.spread),
            **{name: as_dict(part) for name, part in parts.items() if part is not None},
        }


# --- What an answer advises, as something that can be done and checked: the command that simulates it, and its
# promise.
#
# A promise is what another run of that command comes to: the mean of the long runs behind the answer, and the
# interval of their seeds, widened for the seeds of the other run. What is not known of the inputs is told beside it,
# as doubt.

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
