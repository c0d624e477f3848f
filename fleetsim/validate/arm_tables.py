"""The arms of a case in tables: predicted and published, side by side."""

from __future__ import annotations

from collections.abc import Iterator

from fleetsim import units
from fleetsim.tell.document import Table, Words
from fleetsim.units import number
from fleetsim.validate.pictures import percent
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


def arms_in_full(result: CaseResult) -> Table:
    """The same with the role of each arm, the trainer's waits and the inputs that were taken from it."""
    unit = {"step_s": "s per step", "tok_s": "tok/s"}[result.case.measure]
    return Table(
        "",
        (
            "arm", "", f"published, {unit}", "predicted", "error", "ratio", "blind", "waits", "binds, published",
            "predicted", "from this arm",
        ),
        tuple(_arm_in_full(result, arm, blind) for arm, blind in _both(result)),
        left=2,
        words_last=3,
    )  # fmt: skip


def _arm_in_full(result: CaseResult, arm: ArmResult, blind: ArmResult | None) -> tuple[str | Words, ...]:
    published = "-" if arm.arm.published is None else number(arm.arm.published)
    relative = f" (over {arm.arm.reference})" if arm.arm.reference else ""
    return (
        arm.arm.name + ("" if arm.arm.gated else " (not gated)"),
        role(result, arm),
        f"{published}{relative}",
        number(arm.predicted),
        percent(arm.error),
        percent(arm.ratio_error),
        percent(blind.ratio_error if blind else None),
        units.share(arm.figures.wait_share, 0),
        SIDES.get(arm.arm.bottleneck or "", "-"),
        SIDES[arm.figures.side] + (" **(wrong)**" if arm.bottleneck is False else ""),
        arm.arm.inputs or "-",
    )
