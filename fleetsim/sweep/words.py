"""Sentences and commands of a sweep."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.quantities import quantity
from fleetsim.sweep.cell import SweepRow
from fleetsim.sweep.design import text_of
from fleetsim.sweep.objective import Objective
from fleetsim.sweep.pareto import BestCells
from fleetsim.sweep.run import SweepRows
from fleetsim.tell.document import estimated

# Reasons that are told.
_MOST_REASONS = 40


def best_words(result: SweepRows, best: BestCells) -> str:
    """ "Lowest optimizer step: 41.2 s at fleet.instances=8; 1 other cell equal to it, 3 others within luck of it"."""
    row = result.row(best.cell)
    value = _value(best.objective, row.estimates()[best.objective.metric])
    way = "Highest" if best.objective.most else "Lowest"
    lucky = len(best.tied) - len(best.equal)
    ties = [f"{units.plural(len(best.equal), 'other cell')} equal to it"] if best.equal else []
    ties += [f"{units.plural(lucky, 'other' if ties else 'other cell')} within luck of it"] if lucky else []
    told = "; " + ", ".join(ties) if ties else ""
    return f"{way} {quantity(best.objective.metric).title}: {value} at {cell_words(result, best.cell)}{told}"


def commands(result: SweepRows, call: Sequence[str]) -> tuple[str, str]:
    """The best cell of the first objective, simulated as a run of its own; and one that sizes from there."""
    sets = _sets(result, result.pareto.best[0].cell)
    words = [word for text in sets for word in ("--set", text)]
    sized = [word for text in sets if not text.startswith("fleet.instances=") for word in ("--set", text)]
    source = ("--scenario", *call) if call and not call[0].startswith("-") else call
    if "--instances" in source:  # `size` chooses them
        at = source.index("--instances")
        source = (*source[:at], *source[at + 2 :])
    return shlex.join(["fleetsim", "simulate", *call, *words]), shlex.join(["fleetsim", "size", *source, *sized])


def failures(result: SweepRows, failed: Sequence[SweepRow]) -> list[str]:
    """Each reason once, with its cells."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for row in failed:
        reasons.setdefault((row.status, row.reason), []).append(row.cell)
    lines: list[str] = []
    for (status, reason), found in list(reasons.items())[:_MOST_REASONS]:
        where = cell_words(result, found[0]) + (
            f" and {units.plural(len(found) - 1, 'other')}" if len(found) > 1 else ""
        )
        lines.append(f"{where}: {status}: {reason}")
    left = len(reasons) - _MOST_REASONS
    return [*lines, *([f"{units.plural(left, 'other reason')} not shown"] if left > 0 else [])]


def _sets(result: SweepRows, cell: int) -> list[str]:
    return [f"{path}={text_of(value)}" for path, value in result.design.grid.values(cell).items()]


def cell_words(result: SweepRows, cell: int) -> str:
    """ "fleet.instances=8, admission.max_staleness=1"."""
    return ", ".join(_sets(result, cell))


def _value(objective: Objective, value: Estimate) -> str:
    how = quantity(objective.metric).unit
    if how != "seconds" or value.mean < 60:
        return str(estimated(value, how))
    plain = estimated(value, "number")  # a column of minutes does not compare
    return f"{plain.text} s{plain.tail}"
