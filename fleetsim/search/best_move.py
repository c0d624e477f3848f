"""The one change of a job that helps most, with the fleet that is then right."""

from __future__ import annotations

from fleetsim.search.alternative import Alternative, Alternatives
from fleetsim.search.change import Change


def change_of(alternatives: Alternatives, mends: bool = False, counted: bool = False) -> Change | None:
    """The change that saves most of step time x cost per step, None where none saves some. What the recipe does not
    allow comes after what it allows.

    mends: no fleet holds the targets as the job is: a change with which one does comes first. counted: it is told to a
    command that is told its count of instances.
    """
    moves = alternatives.moves()
    if mends:
        holding = [a for a in alternatives.tried if a.anew is not None and a.anew.holds and a.may_be_advised]
        if holding:
            return _change(min(holding, key=_cost), counted, mends=True)
    return _change(moves[0], counted) if moves else None


def _change(a: Alternative, counted: bool, *, mends: bool = False) -> Change:
    own = a.anew
    assert own is not None  # only those with a count of their own are moves
    step_s = own.trial.mean("step_s")
    flag = a.flag.counted if counted else a.flag.own
    return Change(
        a.text, flag, own.instances, own.instead_of.instances, own.saves_usd, own.saves_s, step_s, a.risk, mends,
        a.permission, bool(a.flag.options),
    )  # fmt: skip


def _cost(a: Alternative) -> float:
    return a.anew.trial.mean("cost_per_step") if a.anew is not None else float("inf")
