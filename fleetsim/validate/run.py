"""Cases from their files to their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetsim.errors import Interrupted
from fleetsim.sim.threads import side_by_side
from fleetsim.validate.arms import figures_of
from fleetsim.validate.case import Case
from fleetsim.validate.fit import fit
from fleetsim.validate.verdict import CaseResult, judge


def run_case(case: Case) -> CaseResult:
    """Fits the case's scalar on its baseline, then simulates every arm with it. Raises InputError and StuckError."""
    fitted = fit(case)
    scalar = None if fitted is None else fitted.value
    return judge(case, fitted, {arm.name: figures_of(case, arm, scalar) for arm in case.arms})


def run_cases(cases: Sequence[Case], progress: Callable[[str], None] | None = None) -> list[CaseResult]:
    """All cases, one a core at a time; progress(id) is called after each, in their order.

    Raises Interrupted on Ctrl-C: with the results so far, None before the first.
    """
    results: list[CaseResult] = []
    try:
        for result in side_by_side(run_case, cases):
            results.append(result)
            if progress is not None:
                progress(result.case.id)
    except KeyboardInterrupt:
        raise Interrupted(results or None, f"{len(results)} of {len(cases)} cases were simulated") from None
    return results
