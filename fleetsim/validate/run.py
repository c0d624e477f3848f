"""Cases from their files to their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fleetsim.config.scenario import Scenario
from fleetsim.errors import Interrupted
from fleetsim.sim.threads import side_by_side
from fleetsim.validate.arms import blind_scenario_of, figures_of, scenario_of
from fleetsim.validate.case import Arm, PublishedCase
from fleetsim.validate.fit import fit
from fleetsim.validate.verdict import CaseResult, judge


def run_case(case: PublishedCase) -> CaseResult:
    """Fits the case's scalar on its baseline, then simulates every arm with it: with all that it publishes of itself as
    inputs, and blind. Raises InputError and StuckError."""
    fitted = fit(case)
    scalar = None if fitted is None else fitted.value

    def judged(case: PublishedCase, told: Callable[[PublishedCase, Arm, float | None], Scenario]) -> CaseResult:
        return judge(case, fitted, {arm.name: figures_of(case, arm, told(case, arm, scalar)) for arm in case.arms})

    return replace(judged(case, scenario_of), blind=judged(_ungated(case), blind_scenario_of))


def _ungated(case: PublishedCase) -> PublishedCase:
    """Without a gate for arms that something decides which only their own seconds tell."""
    arms = [arm.model_copy(update={"gated": arm.gated and not arm.unpublished}) for arm in case.arms]
    return case.model_copy(update={"arms": tuple(arms)})


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
