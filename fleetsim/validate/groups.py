"""Arms in groups that are told apart by what their predictions were given: own seconds of the trainer, none, or sealed.

A row per arm holds what was published and predicted, the range around the prediction, and the blind prediction.
Ranges are those of a job with one arm measured: errors of published arms whose case was kept out, by group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, median

from msgspec import Struct

from fleetsim import units
from fleetsim.job.uncertainty import RERUN
from fleetsim.records import replace
from fleetsim.tell.document import Table
from fleetsim.validate.case import Arm, PublishedCase
from fleetsim.validate.ledger import Ledger
from fleetsim.validate.run import RangedArm
from fleetsim.validate.verdict import BEYOND, ArmResult, CaseResult, Summary, role, summary

OWN, MODELLED, SEALED = "trainer given", "trainer not given", "sealed"
BLIND, SEALED_BLIND = "blind", "sealed, blind"
# How far a step may lie above and below its prediction, as logarithms, for an arm that is a factor of e from the one
# that was measured; with the root of the distance, up to MOST_APART. So far lie eight of ten arms of cases that were
# kept out whole, beside what a repeated run is off by (calibration/residuals.py).
ABOVE, BELOW, MOST_APART = 0.3, 0.06, 4.0
# Seconds of waiting that are less than this share of a step say nothing by their error.
_LEAST_WAIT = 0.05


class Row(Struct, frozen=True):
    """One arm. error: of the figure, relative to the baseline arm where there is one. wait_error: of the seconds that
    the trainer waits, which alone are predicted where its own are given. first: of a sealed arm, the first prediction.
    """

    case: str
    arm: str
    group: str
    role: str
    published: float | None
    predicted: float
    low: float
    high: float
    blind: float
    gated: bool
    error: float | None
    blind_error: float | None
    wait_error: float | None
    first: float | None

    @property
    def held(self) -> bool | None:
        """Whether the range holds what was published."""
        return None if self.published is None else self.low <= self.published <= self.high


class Group(Struct, frozen=True):
    """The predicted arms of a group. median, worst, beyond: of the errors' sizes, and how many are above 25 %. wait:
    median of the waits' errors. held, width: the share of ranges that hold, every case alike, and the median of their
    ends' ratio; None of blind predictions, whose range is not told."""

    name: str
    arms: int
    median: float
    worst: float
    beyond: int
    wait: float | None
    held: float | None
    width: float | None


def given_seconds(arm: Arm) -> bool:
    """Whether seconds of its own trainer are among the arm's inputs."""
    return any(path in arm.set for path in ("trainer.fixed_s", "trainer.phases"))


def group_of(case: PublishedCase, arm: Arm) -> str:
    """Which group an arm is of."""
    if case.sealed is not None:
        return SEALED
    return OWN if given_seconds(arm) else MODELLED


def rows_of(results: Sequence[CaseResult], ledger: Ledger) -> tuple[Row, ...]:
    """A row for every arm of every case."""
    return tuple(row for result in results for row in _rows(result, ledger.first(result.case.id)))


def _rows(result: CaseResult, first: dict[str, float]) -> Iterator[Row]:
    for arm, unseen in zip(result.arms, (result.blind or result).arms, strict=True):
        low, high = range_of(result, arm)
        yield Row(
            result.case.id,
            arm.arm.name,
            group_of(result.case, arm.arm),
            role(result, arm),
            arm.arm.published,
            arm.predicted,
            low,
            high,
            unseen.predicted,
            arm.arm.gated,
            arm.gated_error,
            unseen.gated_error,
            _wait_error(result.case, arm),
            first.get(arm.arm.name),
        )


def range_of(result: CaseResult, arm: ArmResult) -> tuple[float, float]:
    """Between what the published figure lies in eight of ten cases. A fitted arm is off by what a repeated run is.

    Where engines and trainer share one figure, what the arm comes to with all of it on either is in the range, too.
    """
    far = 0.0 if role(result, arm) == "fitted" else math.sqrt(apart(result, arm))
    down, up = math.hypot(-math.expm1(-BELOW * far), RERUN), math.hypot(math.expm1(ABOVE * far), RERUN)
    ends = (1 - down, 1 + up) if result.case.measure == "step_s" else (1 / (1 + up), 1 / (1 - down))
    put = (a.predicted for one in result.put for a in one.arms if a.arm.name == arm.arm.name)
    told = (*(arm.predicted * end for end in ends), *put)
    return min(told), max(told)


def apart(result: CaseResult, arm: ArmResult) -> float:
    """How far an arm is from the nearest one that was measured: the logarithm of the ratio of their predictions. Where
    another publication measured the engine, it is taken to be a factor of e."""
    if arm.arm.reference:
        return min(abs(math.log(arm.predicted)), MOST_APART)
    known = [a.predicted for a in result.arms if role(result, a) == "fitted" and not a.arm.reference]
    return min(MOST_APART, min((abs(math.log(arm.predicted / p)) for p in known), default=1.0))


def _wait_error(case: PublishedCase, arm: ArmResult) -> float | None:
    """Predicted over published waiting, less 1: the published one is what the simulated rest leaves of the step."""
    if arm.error is None or arm.arm.reference is not None:
        return None
    step_s = arm.figures.step_s
    published = step_s / (1 + arm.error) if case.measure == "step_s" else step_s * (1 + arm.error)
    wait_s = published - (step_s - arm.figures.wait_s)
    return arm.figures.wait_s / wait_s - 1 if wait_s > _LEAST_WAIT * published else None


def groups_of(rows: Sequence[Row]) -> tuple[Group, ...]:
    """The groups that have arms, and the blind predictions of the public ones and of the sealed ones."""
    predicted = [row for row in rows if row.role != "fitted" and row.error is not None]
    sealed = [r for r in predicted if r.group == SEALED]
    public = [r for r in predicted if r.group != SEALED]
    found = (
        *(_group(name, [r for r in public if r.group == name]) for name in (OWN, MODELLED)),
        _blind(BLIND, public),
        _group(SEALED, sealed),
        _blind(SEALED_BLIND, sealed),
    )
    return tuple(group for group in found if group is not None)


def summed(results: Sequence[CaseResult], rows: Sequence[Row]) -> Summary:
    """The gates of all cases, and of the sealed ones alone, with their ranges."""
    total, sealed = summary(results), [r for r in results if r.case.sealed is not None]
    group = next((g for g in groups_of(rows) if g.name == SEALED), None)
    if group is None:
        return total
    alone = summary(sealed) if len(sealed) < len(results) else None
    return replace(total, sealed=alone, held=group.held, width=group.width)


def _blind(name: str, rows: Sequence[Row]) -> Group | None:
    errors = [abs(r.blind_error) for r in rows if r.blind_error is not None]
    if not errors:
        return None
    return Group(name, len(errors), median(errors), max(errors), sum(e > BEYOND for e in errors), None, None, None)


def _group(name: str, rows: Sequence[Row]) -> Group | None:
    if not rows:
        return None
    errors = [abs(r.error) for r in rows if r.error is not None]
    waits = [abs(r.wait_error) for r in rows if r.wait_error is not None]
    return Group(
        name,
        len(rows),
        median(errors),
        max(errors),
        sum(e > BEYOND for e in errors),
        median(waits) if waits else None,
        held_share(rows),
        median(r.high / r.low for r in rows),
    )


def held_share(arms: Sequence[Row] | Sequence[RangedArm]) -> float:
    """The share of arms whose range holds what was published; every case counts alike, as its arms are much alike."""
    cases = dict.fromkeys(a.case for a in arms)
    return fmean(fmean(bool(a.held) for a in arms if a.case == case) for case in cases)


def groups_table(groups: Sequence[Group]) -> Table:
    """The groups beside each other."""
    rows = tuple(
        (
            g.name,
            str(g.arms),
            units.share(g.median),
            units.share(g.worst),
            str(g.beyond),
            "-" if g.wait is None else units.share(g.wait),
            "-" if g.held is None else units.share(g.held, 0),
            "-" if g.width is None else f"{g.width:.2f}",
        )
        for g in groups
    )
    columns = ("arms", "number", "error, median", "worst", "beyond 25 %", "waiting, median", "ranges hold", "width")
    return Table("", columns, rows)
