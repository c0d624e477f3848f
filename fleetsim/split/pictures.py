"""Pictures of a split advice: one measure of every way, and how far each way is from the first."""

from __future__ import annotations

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.split.outcomes import Outcome
from fleetsim.split.ranking import shown_ways
from fleetsim.split.split import Advice
from fleetsim.split.ways import By
from fleetsim.tell.charts.chart import Chart, Mark
from fleetsim.tell.charts.kinds import Curve, change_rows, curve_chart


def way_chart(result: Advice, measure: By) -> Chart | None:
    """One measure of all splits against their rollout GPUs, the colocated ways as lines across. None without splits."""
    q = quantity(measure)
    splits = sorted((o for o in result.outcomes if o.arrangement.apart), key=lambda o: o.arrangement.rollout_gpus)
    if not splits:
        return None
    shared = [o for o in result.outcomes if not o.arrangement.apart]
    lines = [
        Mark(
            o.mean(measure), f"{o.arrangement.label}: {units.written(o.mean(measure), q.unit)}" + _if_advised(result, o)
        )
        for o in shared
    ]
    best = result.best_split
    told = [
        f"{o.arrangement.label}: {units.with_ends(o.estimates[measure], q.unit)}"
        for o in (best, *shared)
        if o is not None
    ]
    chosen = result.chosen.arrangement
    curve = Curve("splits", [float(o.arrangement.rollout_gpus) for o in splits], [o.estimates[measure] for o in splits])
    return curve_chart(
        measure.replace("_", "-"),
        f"{units.capital(q.title)} by arrangement",
        f"Splits by how many of the {result.gpus:,} GPUs generate (the others train); dashed lines across: all "
        f"GPUs doing both in turn. Best split and colocated ways: {'; '.join(told)}.",
        [curve],
        x_title="rollout GPUs of the split",
        y_title=q.title,
        how=q.unit,
        recommended=float(chosen.rollout_gpus) if chosen.apart else None,
        star=f"advised: {chosen.label}",
        levels=lines,
    )  # fmt: skip


def _if_advised(result: Advice, outcome: Outcome) -> str:
    return ", advised" if outcome is result.chosen else ""


def ratio_chart(result: Advice) -> Chart:
    """How far each way is from the first-ranked one, run by run under the same draws."""
    name = quantity(result.by).title
    first = result.outcomes[0]
    shown = shown_ways(result)
    ties = [o.arrangement.label for o in result.outcomes[1:] if o.ties and o.replications > 1]
    said = f"Not significantly different from it: {', '.join(ties[:6])}." if ties else "None is within chance of it."
    return change_rows(
        "ratio",
        f"{units.capital(name)} beside the best way",
        f"Change of {name} against {first.arrangement.label}, replication by replication under the same draws, with 95 "
        f"% intervals; bold is what is advised. {said}",
        [(_way(o), (o.ratio,), o is result.chosen) for o in shown],
        (name,),
        x_title=f"{name} beside {first.arrangement.label}",
    )


def _way(outcome: Outcome) -> str:
    once = "" if outcome.replications > 1 else " (one run)"
    return f"{outcome.arrangement.label}{once}: {units.ratio_change(outcome.ratio)}"
