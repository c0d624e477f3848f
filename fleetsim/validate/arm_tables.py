"""The arms of a case in tables: predicted and published, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetsim import units
from fleetsim.tell.document import Table
from fleetsim.units import number
from fleetsim.validate.pictures import percent
from fleetsim.validate.ranges import RangedArm
from fleetsim.validate.verdict import ArmResult, CaseResult, role

SIDES = {"trainer": "trainer", "generation": "generation", "in_flight_cap": "in-flight cap"}
_UNITS = {"step_s": "seconds of a step", "tok_s": "trained tokens per second"}


def arms(result: CaseResult) -> Table:
    """Predicted and published, side by side."""
    return Table(
        f"{result.case.id}, {_UNITS[result.case.measure]}",
        ("arm", "published", "predicted", "error", "ratio", "blind", "binds"),
        tuple(_arm(result, arm, blind) for arm, blind in _both(result)),
        words_last=1,
        marked=frozenset(i for i, arm in enumerate(result.arms) if arm in result.misses),
    )


def _both(result: CaseResult) -> Iterator[tuple[ArmResult, ArmResult | None]]:
    """Every arm, and as it was predicted blind."""
    for i, arm in enumerate(result.arms):
        yield arm, None if result.blind is None else result.blind.arms[i]


def _arm(result: CaseResult, arm: ArmResult, blind: ArmResult | None) -> tuple[str, ...]:
    wrong = f", published {SIDES.get(arm.arm.bottleneck or '', '')}" if arm.bottleneck is False else ""
    error = "fitted" if role(result, arm) == "fitted" else percent(arm.error)
    return (
        arm.arm.name,
        "-" if arm.arm.published is None else number(arm.arm.published),
        number(arm.predicted),
        error,
        percent(arm.ratio_error),
        percent(blind.ratio_error if blind else None),
        SIDES[arm.figures.side] + wrong,
    )


def in_short(results: Sequence[CaseResult], ranged: Sequence[RangedArm]) -> Table:
    """A line a case: how many arms are predicted, how far off they are at most, and how many ranges hold."""
    held = {case: [arm.held for arm in ranged if arm.case == case] for case in {arm.case for arm in ranged}}
    rows = [
        (
            result.case.id,
            result.case.title.partition(":")[0],
            str(len([arm for arm in result.arms if role(result, arm) != "fitted"])),
            _worst(result.ratio_errors),
            _worst(result.blind.ratio_errors if result.blind else ()),
            f"{sum(held[case])} of {len(held[case])}" if (case := result.case.id) in held else "-",
        )
        for result in results
    ]
    columns = ("case", "what was run", "arms predicted", "worst ratio", "worst, blind", "ranges held")
    return Table("", columns, tuple(rows), left=2)


def _worst(errors: Sequence[float]) -> str:
    return units.share(max(errors), 0) if errors else "-"
