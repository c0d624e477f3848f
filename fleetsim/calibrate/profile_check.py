"""A profile checked again: its kept-out batches as stored, and as today's simulator predicts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.text import Text

import fleetsim
from fleetsim import units
from fleetsim.config.profile import BatchCheck, Profile
from fleetsim.tell.terminal import grid, section

# Stored numbers are rounded; a simulator that changed moves them by more than this (a thousandth of a percent).
_SAME = 1e-5


@dataclass(frozen=True, slots=True)
class Rechecked:
    """A kept-out batch, predicted anew. stored: what the profile says of it, None where it does not know it."""

    now: BatchCheck
    stored: BatchCheck | None
    passed: bool


@dataclass(frozen=True, slots=True)
class Drift:
    """How far today's errors are from the stored ones, at most: of makespans, of finish times' medians."""

    makespan: float
    finish: float

    @property
    def changed(self) -> bool:
        """Whether the simulator predicts something else than when the profile was written."""
        return max(self.makespan, self.finish) > _SAME


def compared(now: Sequence[BatchCheck], stored: Sequence[BatchCheck], limit: float) -> tuple[Rechecked, ...]:
    """Each batch beside what is stored of it (by name and size); it passes if both of its errors are within `limit`."""
    known = {(c.name, c.samples): c for c in stored}
    return tuple(
        Rechecked(
            check,
            known.get((check.name, check.samples)),
            abs(check.makespan_error) <= limit and check.finish_error_median <= limit,
        )
        for check in now
    )


def drift_of(checked: Sequence[Rechecked]) -> Drift | None:
    """How far apart stored and new errors are; None where there is nothing to compare."""
    known = [(one.now, one.stored) for one in checked if one.stored is not None]
    if not known:
        return None
    return Drift(
        max(abs(now.makespan_error - stored.makespan_error) for now, stored in known),
        max(abs(now.finish_error_median - stored.finish_error_median) for now, stored in known),
    )


def check_report(profile: Profile, checked: Sequence[Rechecked], limit: float) -> Group:
    """What `fleetsim profile check` prints."""
    failed = sum(not one.passed for one in checked)
    batches = f"{len(checked)} kept-out {'batch' if len(checked) == 1 else 'batches'}"
    held = f"all of {batches}" if not failed else f"{len(checked) - failed} of {batches}"
    verdict = f"{profile.name}: {held} predicted within {units.share(limit)}"
    headings = ("batch", "measured", "predicted", "makespan", "stored", "finish", "")
    table = grid(*headings, align=("left", *("right",) * 5, "left"))
    for one in checked:
        now = one.now
        table.add_row(
            Text(now.name),
            f"{now.makespan_s:,.1f} s",
            f"{now.predicted_s:,.1f} s",
            units.change(now.makespan_error),
            "" if one.stored is None else units.change(one.stored.makespan_error),
            units.share(now.finish_error_median),
            "ok" if one.passed else "above",
            style="" if one.passed else "bold",
        )
    title = "errors: of the makespan, as stored, of the finish times (median)"
    return Group(Text(verdict, style="bold"), section(title, table), Text(), Text(drift_words(drift_of(checked))))


def drift_words(drift: Drift | None) -> str:
    """What the comparison with the stored errors says."""
    if drift is None:
        return "The profile stores no errors of these batches to compare with."
    if not drift.changed:
        return "The simulator predicts what it predicted when the profile was written."
    return (
        "The simulator has changed since the profile was written, or these are other measurements: errors differ from "
        f"the stored ones by up to {100 * drift.makespan:.2g} points (makespan) and {100 * drift.finish:.2g} "
        "points (finish times). fleetsim calibrate --from RAW writes the profile anew."
    )


def check_document(profile: Profile, checked: Sequence[Rechecked], limit: float) -> dict[str, Any]:
    """The document of `fleetsim profile check --json`."""
    drift = drift_of(checked)
    return {
        "schema_version": 1,
        "command": "profile check",
        "fleetsim_version": fleetsim.__version__,
        "profile": profile.name,
        "limit": limit,
        "passed": all(one.passed for one in checked),
        "batches": [
            {
                "passed": one.passed,
                "now": one.now.model_dump(mode="json"),
                "stored": None if one.stored is None else one.stored.model_dump(mode="json"),
            }
            for one in checked
        ],
        "drift": None if drift is None else {**asdict(drift), "changed": drift.changed},
    }
