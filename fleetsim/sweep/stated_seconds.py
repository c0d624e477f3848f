"""Trainer seconds that somebody stated: they stay as they are in cells that the trainer's model gives others.

A cell is the job that `fleetsim simulate` makes of its values, so stated seconds are not scaled. Cells that differ in
the trainer's GPUs then differ in their price alone, and look as if more GPUs bought nothing.
"""

from __future__ import annotations

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trainer_scaling import course_of, time_factor
from fleetsim.sweep.design import text_of
from fleetsim.sweep.run import SweepRows

_GPUS = "trainer.gpus"
# Seconds that are nearer than this to what the model makes of the first cell's are right as they are.
_NEAR = 0.05


def stated_seconds(result: SweepRows) -> tuple[str, ...]:
    """A sentence for each key that should move the trainer's seconds and does not, or not enough: of the cells that
    differ from the first in that key alone, the last one is looked at."""
    grid = result.design.grid
    ran = [row.cell for row in result.rows if row.status == "ok"]
    notes: list[str] = []
    for axis in grid.axes:
        fixed = {**grid.values(ran[0]), axis.path: None} if ran else {}
        alone = [cell for cell in ran if {**grid.values(cell), axis.path: None} == fixed]
        if len(alone) > 1:
            first, last = alone[0], alone[-1]
            values = [text_of(grid.values(cell)[axis.path]) for cell in (first, last)]
            notes += _note(axis.path, values, result.design.scenario(first), result.design.scenario(last))
    return tuple(notes)


def _note(path: str, values: list[str], first: Scenario, last: Scenario) -> list[str]:
    now, then = mean_step_s(first), mean_step_s(last)
    if now <= 0:
        return []
    factor, by, remedies = _scaling(path, first, last)
    if abs(then / (now * factor) - 1.0) < _NEAR:
        return []

    def ends(seconds: float) -> str:
        return f"{units.seconds(now)} at {values[0]} and {units.seconds(seconds)} at {values[1]}"

    told = f"{units.seconds(now)} in every cell" if abs(then / now - 1.0) < _NEAR else ends(then)
    return [
        f"{path} does not move the trainer's seconds as it should, because they are stated: a step takes {told}; "
        f"by {by} {ends(now * factor)}; {' or '.join(remedies)}"
    ]


def _scaling(path: str, first: Scenario, last: Scenario) -> tuple[float, str, list[str]]:
    """Seconds of the last over those of the first, by what, and what to do."""
    split = ["ask fleetsim split, which scales them"] if path == _GPUS else []
    now, then = course_of(first), course_of(last)
    if now is not None and then is not None:
        factor = then(last.trainer.gpus) / now(first.trainer.gpus)
        return factor, "the trainer's model", ["leave the seconds out", *split]
    if path == _GPUS:
        return time_factor(first.trainer, last.trainer.gpus), "the law for trainers that are not known", split
    return mean_step_s(last) / mean_step_s(first), "", []
