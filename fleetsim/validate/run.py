"""Cases from their files to their verdicts; and the ranges that a planner would have told of every arm."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial

from msgspec import Struct

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import given_paths
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.errors import Interrupted
from fleetsim.estimates import Ranged
from fleetsim.job.derived_values import SLOWDOWN
from fleetsim.job.input_moves import in_doubt
from fleetsim.job.uncertainty import step_off
from fleetsim.records import replace
from fleetsim.sim.threads import side_by_side
from fleetsim.validate.arms import blind_scenario_of, figures_at, figures_of, scenario_of
from fleetsim.validate.case import Arm, PublishedCase
from fleetsim.validate.verdict import CaseResult, Fitted, fit, judge


def run_case(case: PublishedCase) -> CaseResult:
    """Fits the case's scalar on its baseline, then simulates every arm with it: with all that it publishes of itself as
    inputs, and blind. Raises InputError and StuckError."""
    fitted = fit(case)
    return replace(_judged(case, fitted, scenario_of), blind=_judged(case, fitted, blind_scenario_of), put=_put(case))


def _judged(
    case: PublishedCase, fitted: Fitted | None, told: Callable[[PublishedCase, Arm, float | None], Scenario]
) -> CaseResult:
    scalar = None if fitted is None else fitted.value
    return judge(case, fitted, {arm.name: figures_of(case, arm, told(case, arm, scalar)) for arm in case.arms})


def _put(case: PublishedCase) -> tuple[CaseResult, ...]:
    """Where engines and trainer share one figure: the same with all of it put on the engines, and on the trainer."""
    if case.fit is None or case.fit.scalar != "both":
        return ()
    alone = [
        case.model_copy(update={"fit": case.fit.model_copy(update={"scalar": scalar})})
        for scalar in ("decode_slowdown", "trainer_seconds")
    ]
    found = ((one, fit(one)) for one in alone)
    return tuple(_judged(one, fitted, scenario_of) for one, fitted in found if fitted is not None and fitted.met)


def run_cases(cases: Sequence[PublishedCase], progress: Callable[[str], None] | None = None) -> list[CaseResult]:
    """All cases, one a core at a time; progress(id) is called after each, in their order.

    Raises Interrupted on Ctrl-C: with the results so far, None before the first.
    """
    results: list[CaseResult] = []

    def done(_: int, result: CaseResult) -> None:
        results.append(result)
        if progress is not None:
            progress(result.case.id)

    try:
        side_by_side(run_case, cases, each=done)
    except KeyboardInterrupt:
        raise Interrupted(results or None, f"{len(results)} of {len(cases)} cases were simulated") from None
    return results


# --- Do the ranges that plans are told hold what was published? Each arm as a planner would have told it.
# An arm is simulated with all that its publication gives as configuration or as seconds of the trainer, and with
# nothing fitted but a mean length that no source gives: the engine as its model has it, slowed by what runs of other
# cases lost inside a job, the trainer by its model where no seconds are published. The inputs in doubt
# (`job/uncertainty.py`) are moved to the ends of their intervals, one at a time, as `fleetsim size` does.

_TRAINER = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases")


class RangedArm(Struct, frozen=True):
    """An arm that publishes an absolute figure, in the case's measure."""

    case: str
    arm: str
    published: float
    predicted: Ranged

    @property
    def held(self) -> bool:
        """Whether the range holds what was published."""
        return self.predicted.holds(self.published)


def ranged(
    scenario: Scenario, given: Collection[str], figure: Callable[[Scenario], float], seconds: bool = True
) -> Ranged:
    """The figure of a scenario and its range: each input in doubt alone at both ends, the parts, and what a step is
    off by beside its inputs, added as squares. seconds: whether the figure is of seconds, not of a rate."""
    value = figure(scenario)
    down, up = (value * off for off in (step_off(scenario) if seconds else reversed(step_off(scenario))))
    for uncertain, ends in in_doubt(scenario, given):
        moved = [figure(with_changes(scenario, uncertain.times(scenario, f))) - value for f in ends if f != 1.0]
        down = math.hypot(down, max(0.0, *(-x for x in moved)))
        up = math.hypot(up, max(0.0, *moved))
    return Ranged(value, value - down, value + up)


def ranged_arms(results: Sequence[CaseResult]) -> tuple[RangedArm, ...]:
    """All arms with absolute figures, of cases whose engine is known, one case a core at a time."""
    absolute = [r for r in results if not r.case.relative and not r.case.stands_in]
    return tuple(arm for arms in side_by_side(_of_case, absolute) for arm in arms)


def _of_case(result: CaseResult) -> list[RangedArm]:
    case = result.case
    return [
        RangedArm(case.id, a.arm.name, a.arm.published, _predicted(result, a.arm))
        for a in result.arms
        if a.arm.published is not None and a.arm.reference is None
    ]


def _predicted(result: CaseResult, arm: Arm) -> Ranged:
    scenario = _planned(result, arm)
    given = given_paths(scenario) - set(scenario.assumed)
    if (arm.lengths or result.case.lengths).sigma is None:
        given = {path for path in given if path != "workload.output_tokens"} | {"workload.output_tokens.mean"}
    return ranged(scenario, given, partial(_measured, result.case, arm), result.case.measure == "step_s")


def _measured(case: PublishedCase, arm: Arm, scenario: Scenario) -> float:
    return float(getattr(figures_at(case, arm, scenario, 0), case.measure))


def _planned(result: CaseResult, arm: Arm) -> Scenario:
    """The arm's scenario with nothing fitted but its mean length."""
    case, fitted = result.case, result.fitted
    kind = None if case.fit is None else case.fit.scalar
    modelled = kind in ("trainer_seconds", "both")
    plain = scenario_of(case, arm, fitted.value if fitted and kind == "mean_tokens" else None, modelled=modelled)
    slowdown = slowdown_of(case.framework, without=case.id)
    assumed = (SLOWDOWN, *(_TRAINER if modelled else ()))
    return with_changes(plain, {SLOWDOWN: slowdown}).model_copy(update={"assumed": assumed})
