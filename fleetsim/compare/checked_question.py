"""A question of `compare`, checked as a whole before anything is read or simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetsim.compare import checks
from fleetsim.compare.gate import ComparisonGate, comparison_gate
from fleetsim.compare.inputs import What, given_of, told_apart
from fleetsim.compare.question import Compare
from fleetsim.compare.spans import spans_of
from fleetsim.dataclass import dataclass
from fleetsim.errors import Problems
from fleetsim.quantities import METRICS, WINDOW_METRICS

if TYPE_CHECKING:
    from fleetsim.compare.read import HistoryPart
    from fleetsim.compare.runs import ToRun
    from fleetsim.compare.saved_result import SavedResult


@dataclass(frozen=True, slots=True)
class Checked:
    """A question that can be answered: two windows of history, or two sides of runs and what is odd about them."""

    asked: Compare
    metrics: tuple[str, ...]
    gate: ComparisonGate
    windows: tuple[HistoryPart, HistoryPart] | None = None
    sides: tuple[ToRun | SavedResult, ...] = ()
    notes: tuple[str, ...] = ()


def checked(asked: Compare) -> Checked:
    """Raises InputError with all that is wrong with the options and with what A and B are; else with what is wrong with
    their jobs and files."""
    mapped = bool(asked.framework or asked.map_)
    texts = {where: text for where, text in (("A", asked.a), ("B", asked.b)) if text is not None}
    given, wrong = told_apart(texts, lambda where, text: given_of(where, text, mapped))
    given = asked.given or given
    server = asked.prometheus is not None
    kinds: frozenset[What] = frozenset(("history",) if server else (one.what for one in given))
    there = WINDOW_METRICS if kinds == {"history"} else METRICS
    metrics = tuple(name for name in there if not asked.metric or name in asked.metric)
    problems = Problems([*checks.numbers(asked), *wrong, *checks.misplaced(asked, kinds, given, not wrong)])
    problems += checks.unknown(asked.metric or (), there)
    with problems.check():
        spans = spans_of(asked, len(given) < 2) if kinds == {"history"} else {}
    with problems.check():
        gate = comparison_gate(asked.fail_if or (), metrics, bool(asked.metric))
    problems.stop()
    if kinds == {"history"}:
        from fleetsim.compare.read import parts_of

        return Checked(asked, metrics, gate, windows=parts_of(asked, given, spans))
    from fleetsim.compare.sides import sides_of

    sides, notes = sides_of(asked, given)
    return Checked(asked, metrics, gate, sides=sides, notes=notes)
