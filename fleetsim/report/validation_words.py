"""Words that the terminal and the page share when they tell how predictions compare with publications."""

from __future__ import annotations

from fleetsim.report.words import plural
from fleetsim.tell.document import number
from fleetsim.validate.verdict import (
    ABSOLUTE,
    RATIO_MEDIAN,
    RATIO_WORST,
    SAME,
    ArmResult,
    CaseResult,
    Summary,
)

SIDES = {"trainer": "trainer", "generation": "generation", "in_flight_cap": "in-flight cap"}
SCALARS = {
    "decode_slowdown": "decode slowdown",
    "mean_tokens": "mean output tokens",
    "trainer_seconds": "trainer's seconds, as a multiple of the stated ones",
}
FIGURES = {
    "step_s": "seconds of a step",
    "tok_s": "trained tokens per second",
    "wait_s": "seconds that the trainer waits in a step",
    "gen_s": "seconds of generation in a step",
    "wait_share": "share of a step that the trainer waits",
}


def percent(error: float | None) -> str:
    """A signed error, or a dash."""
    return "-" if error is None else f"{100 * error:+.1f} %"


def role(result: CaseResult, arm: ArmResult) -> str:
    """fitted on | predicted | its ratio to a fitted arm is known."""
    if arm.fitted:
        return "fitted"
    if result.case.fit is not None and arm.arm.name == result.case.fit.against:
        return "fitted"
    return "predicted"


def fit_words(result: CaseResult) -> str:
    """One sentence: what was fitted, on which arm, against which figure, and what it came to."""
    task, fitted = result.case.fit, result.fitted
    if task is None or fitted is None:
        return "Nothing is fitted: everything that the simulation needs is published or a stated assumption."
    of = f" over those of {task.against}" if task.against else ""
    what = f"{SCALARS[task.scalar]} = {number(fitted.value)}"
    met = "" if fitted.met else f", met to {abs(fitted.figure / task.value - 1):.1%}"
    if task.against:
        return f"Fitted: {what}, so that the {FIGURES[task.figure]} of {task.arm}{of} come to {task.value:.3g}{met}."
    return (
        f"Fitted: {what}, on {task.arm} alone, so that its {FIGURES[task.figure]} come to {number(task.value)} as "
        f"published{met}."
    )


def gate_rows(summary: Summary) -> list[tuple[str, str, str, bool]]:
    """(gate, wanted, reached, holds) of the whole validation."""
    rows = [
        (
            "order of the arms",
            f"right wherever publications differ by over {SAME:.0%}",
            f"{plural(summary.orders_wrong, 'pair')} wrong",
            summary.orders_wrong == 0,
        ),
        (
            "bottleneck",
            "right in every arm that has one",
            f"{summary.bottlenecks_right} of {summary.bottlenecks}",
            summary.bottlenecks_right == summary.bottlenecks,
        ),
    ]
    if summary.ratio_median is not None and summary.ratio_worst is not None:
        rows += [
            (
                "ratio error, median",
                f"at most {RATIO_MEDIAN:.0%}",
                f"{summary.ratio_median:.1%}",
                summary.ratio_median <= RATIO_MEDIAN,
            ),
            (
                "ratio error, worst",
                f"at most {RATIO_WORST:.0%}",
                f"{summary.ratio_worst:.1%}",
                summary.ratio_worst <= RATIO_WORST,
            ),
        ]
    if summary.absolute_worst is not None:
        worst = summary.absolute_worst
        rows.append(("absolute error, C01 and C08", f"at most {ABSOLUTE:.0%}", f"{worst:.1%}", worst <= ABSOLUTE))
    return rows


def predicted_side(arm: ArmResult) -> str:
    """What binds in the simulation, in the publications' words."""
    return SIDES[arm.figures.side]
