"""`fleetsim split --html`: the advice and why in words, every way in pictures, the best two step by step."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim import units
from fleetsim.job.rests_on import rests_on
from fleetsim.job.words import kind_of
from fleetsim.quantities import quantity
from fleetsim.sim.records import Records
from fleetsim.simulate.gantt import gantt
from fleetsim.size.explain import bound_by
from fleetsim.size.pictures import levers, why
from fleetsim.split import words as split_words
from fleetsim.split.candidates import By
from fleetsim.split.split import Outcome, SplitResult
from fleetsim.split.told import shown_ways
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.curve import Curve, curve_chart
from fleetsim.tell.charts.dots import Change, change_dots
from fleetsim.tell.charts.parts import Mark
from fleetsim.tell.document import Document, Section, Table, Tile, figure, pair, present
from fleetsim.tell.page import document_page

_TILES = ("step_s", "cost_per_step", "trainer_idle_fraction", "staleness_steps.p99")


def split_page(result: SplitResult, runs: Mapping[str, Records]) -> str:
    """The page. runs: label of a way -> its first replication, with its activity recorded.

    Raises OutsideError where jinja2 or plotly is missing, ValueError for a run whose activity was not recorded.
    """
    return document_page(split_story(result, runs))


def split_story(result: SplitResult, runs: Mapping[str, Records]) -> Document:
    """What the page tells, in order."""
    measures: tuple[By, ...] = (result.by, *(m for m in ("step_s", "cost_per_step") if m != result.by))
    first, *others = (way_chart(result, m) for m in measures)
    lede = (split_words.verdict(result), split_words.on_policy(result))
    stuck = "; ".join(f"{label}: {reason}" for label, reason in result.stuck)
    reasons = why(bound_by(result.chosen.binding, result.alternatives), result.alternatives, result.chosen.estimates)
    gantts = [gantt(run, f"gantt-{i}", f"{label}, step by step") for i, (label, run) in enumerate(runs.items())]
    return Document(
        kind=f"{kind_of('split', result.scenario)} · {units.plural(result.gpus, 'GPU')}",
        title=split_words.headline(result),
        lede=tuple(sentence for sentence in lede if sentence),
        tiles=_tiles(result),
        warnings=result.warnings,
        sections=(
            Section("Why", present(reasons, f"Ways that cannot run: {stuck}." if stuck else None)),
            Section(
                "Every way to use these GPUs",
                present(first, pair(*others), ratio_chart(result), ways_sheet(result), split_words.orders(result)),
            ),
            Section("The trainer's seconds", (split_words.law(result), rules_words(result))),
            Section(
                "What else would help",
                present(*levers(result.alternatives)),
            ),
            Section("The best split and the best colocated way at work", tuple(gantts)),
            rests_on(result.profile, result.assumptions, "Nothing was assumed: every value that matters was given."),
        ),
    )


def rules_words(result: SplitResult) -> str:
    """What a split had to keep to."""
    least, unit = result.rules.trainer_least or 1, result.rules.trainer_unit
    return (
        f"A split's trainer has at least {units.plural(least, 'GPU')}"
        + (f", in multiples of {unit}" if unit > 1 else "")
        + f"; {units.plural(result.splits, 'split')} of {units.plural(result.gpus, 'GPU')} keep to that."
    )


def _tiles(result: SplitResult) -> tuple[Tile, ...]:
    way, of = result.chosen.arrangement, result.chosen.estimates
    shared = way.kind != "split"
    ratio = result.ratio
    tiles: list[Tile] = [
        Tile("advised", way.label, "the same GPUs in turn" if shared else "rollout + trainer GPUs"),
        *(figure(name, of[name]) for name in _TILES),
    ]
    if ratio is not None:
        what = quantity(result.by).title
        tiles.append(Tile("best split beside best colocated", units.ratio_change(ratio).partition(" [")[0], what))
    return tuple(tiles)


def way_chart(result: SplitResult, measure: By) -> Chart | None:
    """One measure of all splits against their rollout GPUs, the colocated ways as lines across. None without splits."""
    q = quantity(measure)
    splits = sorted(
        (o for o in result.outcomes if o.arrangement.kind == "split"), key=lambda o: o.arrangement.rollout_gpus
    )
    if not splits:
        return None
    shared = [o for o in result.outcomes if o.arrangement.kind != "split"]
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
        recommended=float(chosen.rollout_gpus) if chosen.kind == "split" else None,
        star=f"advised: {chosen.label}",
        levels=lines,
    )  # fmt: skip


def _if_advised(result: SplitResult, outcome: Outcome) -> str:
    return ", advised" if outcome is result.chosen else ""


def ratio_chart(result: SplitResult) -> Chart:
    """How far each way is from the first-ranked one, run by run under the same draws."""
    name = quantity(result.by).title
    first = result.outcomes[0]
    shown = shown_ways(result)
    ties = [o.arrangement.label for o in result.outcomes[1:] if o.ties and o.replications > 1]
    said = f"Not significantly different from it: {', '.join(ties[:6])}." if ties else "None is within chance of it."
    return change_dots(
        "ratio",
        f"{units.capital(name)} beside the best way",
        f"Change of {name} against {first.arrangement.label}, replication by replication under the same draws, with 95 "
        f"% intervals; bold is what is advised. {said}",
        [Change(_way(o), (o.ratio,), strong=o is result.chosen) for o in shown],
        (name,),
        x_title=f"{name} beside {first.arrangement.label}",
    )


def _way(outcome: Outcome) -> str:
    once = "" if outcome.replications > 1 else " (one run)"
    return f"{outcome.arrangement.label}{once}: {units.ratio_change(outcome.ratio)}"


# Columns of the table of all ways: with intervals, then means alone.
_WITH_INTERVAL = ("step_s", "goodput", "cost_per_step")
_MEANS = (
    "trainer_idle_fraction",
    "trainer_idle_with_sync_fraction",
    "rollout_utilization",
    "staleness_steps.p99",
    "samples_lost.longest_tenth",
)


def ways_sheet(result: SplitResult) -> Table:
    """Every way that was simulated, ranked."""
    rows = tuple(
        (
            f"{i + 1}. {o.arrangement.label}" + (" (advised)" if o is result.chosen else ""),
            units.ratio_change(o.ratio) + (" (within chance)" if o.ties and o.replications > 1 and i else ""),
            *(units.with_ends(o.estimates[name], quantity(name).unit) for name in _WITH_INTERVAL),
            *(units.written(o.mean(name), quantity(name).unit) for name in _MEANS),
            f"{o.replications}",
        )
        for i, o in enumerate(result.outcomes)
    )
    titles = (quantity(name).title for name in (*_WITH_INTERVAL, *_MEANS))
    return Table("every way in figures", ("way", "beside the first", *titles, "runs"), rows)
