"""Pictures of a split advice: one measure of every way, and how far each way is from the first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fleetsim import units
from fleetsim.job.words import idle_of_both
from fleetsim.quantities import quantity
from fleetsim.split.split import Advice
from fleetsim.split.ways import By, Outcome
from fleetsim.tell.charts.chart import Chart, Mark
from fleetsim.tell.charts.kinds import Curve, change_rows, curve_chart
from fleetsim.tell.document import Cell, Table, Words

# --- The ranking of a split advice for a terminal: as much of every way as there is room for.

# Rows of the ranking that are shown; the colocated ways and the advised one always are.
_MOST_ROWS = 14
# Heading of the column that shows how idle the trainer and the instances are, one behind the other.
_IDLE = "idle t/r"


def ranking(result: Advice) -> Table:
    """Best first; what lies between the shown ones is left out and said to be.

    Where the terminal is narrow, columns go, before a name or a figure is cut in two.
    """
    rows: list[tuple[Cell, ...]] = []
    last, chosen = 0, -1
    for outcome in shown_ways(result):
        place = result.outcomes.index(outcome) + 1
        if place > last + 1:
            rows.append(_more(place - last - 1))
        if outcome is result.chosen:
            chosen = len(rows)
        last = place
        rows.append(
            (_sign(result, outcome, place), outcome.arrangement.label, *(of(outcome) for of in _FIGURES.values()))
        )
    if last < len(result.outcomes):
        rows.append(_more(len(result.outcomes) - last))
    headings = {name: _heading(name) for name in _FIGURES}
    table = Table("every way in figures", ("", "", *headings.values()), tuple(rows), left=2, marked=frozenset({chosen}))
    return table.narrowing(*(headings[name] for name in _SPARED if name != result.by))


def _more(ways: int) -> tuple[Cell, ...]:
    return "", Words(tail=f"({ways} more)"), *("" for _ in _FIGURES)


def ways_table(outcomes: Sequence[Outcome]) -> Table:
    """Ways by rank, with the runs that are behind each: for what is known before there is an advice."""
    names = ("step_s", "cost_per_step", "goodput")
    rows = tuple((o.arrangement.label, *(_FIGURES[name](o) for name in names), f"{o.replications}") for o in outcomes)
    return Table("", ("", *map(_heading, names), "runs"), rows)


def shown_ways(result: Advice) -> list[Outcome]:
    """The first few, every colocated way, and the one that is advised."""
    if len(result.outcomes) <= _MOST_ROWS + 2:
        return list(result.outcomes)
    return [
        o for i, o in enumerate(result.outcomes) if i < _MOST_ROWS - 2 or not o.arrangement.apart or o is result.chosen
    ]


def _sign(result: Advice, outcome: Outcome, place: int) -> str:
    """The advised way, and what ties with the first."""
    if outcome is result.chosen:
        return ">"
    return "=" if outcome.ties and outcome.replications > 1 and place > 1 else ""


def _interval(outcome: Outcome, metric: str) -> Words:
    """ "35.0 ±0.3", both to three figures of the mean; no interval where it is narrower, or none."""
    e = outcome.estimates[metric]
    decimals = max(0, 2 - math.floor(math.log10(abs(e.mean)))) if e.mean else 0
    half = f"{(e.ci_high - e.ci_low) / 2.0:,.{decimals}f}"
    return Words(f"{e.mean:,.{decimals}f}", f" ±{half}" if float(half.replace(",", "")) > 0 else "")


# What stands in a column. Idle is one column of two quantities.
_FIGURES: Mapping[str, Callable[[Outcome], Cell]] = {
    **{name: partial(_interval, metric=name) for name in ("step_s", "goodput", "cost_per_step")},
    _IDLE: lambda outcome: idle_of_both(outcome.mean),
    "staleness_steps.p99": lambda outcome: units.number(outcome.mean("staleness_steps.p99")),
    "samples_lost.longest_tenth": lambda outcome: units.share(outcome.mean("samples_lost.longest_tenth"), 0),
}
# What goes where the terminal is too narrow, the first one first; never the figure that the ways are ranked by.
_SPARED = ("goodput", "cost_per_step", "samples_lost.longest_tenth", "staleness_steps.p99", _IDLE, "step_s")


def _heading(name: str) -> str:
    return name if name == _IDLE else quantity(name).heading


def way_chart(result: Advice, measure: By) -> Chart | None:
    """One measure of all splits against their rollout GPUs, the colocated ways as lines across. None without splits."""
    q = quantity(measure)
    splits = sorted((o for o in result.outcomes if o.arrangement.apart), key=lambda o: o.arrangement.rollout_gpus)
    if not splits:
        return None
    shared = [o for o in result.outcomes if not o.arrangement.apart]
    values = {o.arrangement.label: o.mean(measure) for o in shared}
    advised = {result.chosen.arrangement.label: ", advised"}
    lines = [Mark(x, f"{way}: {units.written(x, q.unit)}{advised.get(way, '')}") for way, x in values.items()]
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


def ratio_chart(result: Advice) -> Chart:
    """How far each way is from the first-ranked one, run by run under the same draws."""
    name = quantity(result.by).title
    first = result.outcomes[0]
    ties = [o.arrangement.label for o in result.outcomes[1:] if o.ties and o.replications > 1]
    said = f"Not significantly different from it: {', '.join(ties[:6])}." if ties else "None is within chance of it."
    return change_rows(
        "ratio",
        f"{units.capital(name)} beside the best way",
        f"Change of {name} against {first.arrangement.label}, replication by replication under the same draws, with 95 "
        f"% intervals; bold is what is advised. {said}",
        [
            (
                f"{o.arrangement.label}{'' if o.replications > 1 else ' (one run)'}: {units.ratio_change(o.ratio)}",
                (o.ratio,),
                o is result.chosen,
            )
            for o in shown_ways(result)
        ],
        (name,),
        x_title=f"{name} beside {first.arrangement.label}",
    )
