"""`fleetsim split --html`: the advice and why in words, every way in pictures, the best two step by step."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim import units
from fleetsim.plan.explain import bound_by
from fleetsim.plan.split import Outcome, SplitResult
from fleetsim.plan.ways import By
from fleetsim.report import split_words, words
from fleetsim.report.plan_pictures import levers, why
from fleetsim.report.run_gantt import gantt
from fleetsim.report.run_sections import kind_of, rests_on
from fleetsim.report.split_view import shown_ways
from fleetsim.sim.records import Records
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.curve import Curve, curve_chart
from fleetsim.tell.charts.dots import Change, change_dots, change_words
from fleetsim.tell.charts.parts import Mark, interval_words, with_interval, written
from fleetsim.tell.document import Document, Section, Table, Tile, pair, present
from fleetsim.tell.page import document_page
from fleetsim.units import number

# How a measure is called, and how its values are written.
_MEASURES: Mapping[By, tuple[str, str, str]] = {
    "step_s": ("Step time", "seconds per step", "seconds"),
    "goodput": ("Goodput", "trained tok per GPU-second", "number"),
    "cost_per_step": ("Cost", "US dollars per step", "money"),
}


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
        kind=f"{kind_of('split', result.scenario)} · {words.plural(result.gpus, 'GPU')}",
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
        f"A split's trainer has at least {words.plural(least, 'GPU')}"
        + (f", in multiples of {unit}" if unit > 1 else "")
        + f"; {words.plural(result.splits, 'split')} of {words.plural(result.gpus, 'GPU')} keep to that."
    )


def _tiles(result: SplitResult) -> tuple[Tile, ...]:
    way, of = result.chosen.arrangement, result.chosen.estimates
    shared = way.kind != "split"
    ratio = result.ratio
    tiles = [
        Tile("advised", way.label, "the same GPUs in turn" if shared else "rollout + trainer GPUs"),
        Tile("optimizer step", written(of["step_s"].mean, "seconds"), interval_words(of["step_s"], "seconds")),
        Tile("cost per step", units.money(of["cost_per_step"].mean), interval_words(of["cost_per_step"], "money")),
        Tile("trainer idle", units.share(of["trainer_idle_fraction"].mean)),
        Tile("staleness p99, steps", number(of["staleness_steps.p99"].mean)),
    ]
    if ratio is not None:
        what = _MEASURES[result.by][0].lower()
        tiles.append(Tile("best split beside best colocated", change_words(ratio).partition(" [")[0], what))
    return tuple(tiles)


def way_chart(result: SplitResult, measure: By) -> Chart | None:
    """One measure of all splits against their rollout GPUs, the colocated ways as lines across. None without splits."""
    title, y_title, how = _MEASURES[measure]
    splits = sorted(
        (o for o in result.outcomes if o.arrangement.kind == "split"), key=lambda o: o.arrangement.rollout_gpus
    )
    if not splits:
        return None
    shared = [o for o in result.outcomes if o.arrangement.kind != "split"]
    lines = [
        Mark(o.mean(measure), f"{o.arrangement.label}: {written(o.mean(measure), how)}" + _if_advised(result, o))
        for o in shared
    ]
    best = result.best_split
    told = [
        f"{o.arrangement.label}: {with_interval(o.estimates[measure], how)}" for o in (best, *shared) if o is not None
    ]
    chosen = result.chosen.arrangement
    curve = Curve("splits", [float(o.arrangement.rollout_gpus) for o in splits], [o.estimates[measure] for o in splits])
    return curve_chart(
        measure.replace("_", "-"),
        f"{title} by arrangement",
        f"Splits by how many of the {result.gpus:,} GPUs generate (the others train); dashed lines across: all "
        f"GPUs doing both in turn. Best split and colocated ways: {'; '.join(told)}.",
        [curve],
        x_title="rollout GPUs of the split",
        y_title=y_title,
        how=how,
        recommended=float(chosen.rollout_gpus) if chosen.kind == "split" else None,
        star=f"advised: {chosen.label}",
        levels=lines,
    )  # fmt: skip


def _if_advised(result: SplitResult, outcome: Outcome) -> str:
    return ", advised" if outcome is result.chosen else ""


def ratio_chart(result: SplitResult) -> Chart:
    """How far each way is from the first-ranked one, run by run under the same draws."""
    name = _MEASURES[result.by][0].lower()
    first = result.outcomes[0]
    shown = shown_ways(result)
    ties = [o.arrangement.label for o in result.outcomes[1:] if o.ties and o.replications > 1]
    said = f"Not significantly different from it: {', '.join(ties[:6])}." if ties else "None is within chance of it."
    return change_dots(
        "ratio",
        f"{name.capitalize()} beside the best way",
        f"Change of {name} against {first.arrangement.label}, replication by replication under the same draws, with 95 "
        f"% intervals; bold is what is advised. {said}",
        [Change(_way(o), (o.ratio,), strong=o is result.chosen) for o in shown],
        (name,),
        x_title=f"{name} beside {first.arrangement.label}",
    )


def _way(outcome: Outcome) -> str:
    once = "" if outcome.replications > 1 else " (one run)"
    return f"{outcome.arrangement.label}{once}: {change_words(outcome.ratio)}"


def ways_sheet(result: SplitResult) -> Table:
    """Every way that was simulated, ranked."""
    rows = tuple(
        (
            f"{i + 1}. {o.arrangement.label}" + (" (advised)" if o is result.chosen else ""),
            change_words(o.ratio) + (" (within chance)" if o.ties and o.replications > 1 and i else ""),
            with_interval(o.estimates["step_s"], "seconds"),
            with_interval(o.estimates["goodput"], "number"),
            with_interval(o.estimates["cost_per_step"], "money"),
            units.share(o.mean("trainer_idle_fraction")),
            units.share(o.mean("trainer_idle_with_sync_fraction")),
            units.share(o.mean("rollout_utilization")),
            number(o.mean("staleness_steps.p99")),
            units.share(o.mean("samples_lost.longest_tenth")),
            f"{o.replications}",
        )
        for i, o in enumerate(result.outcomes)
    )
    headings = (
        "way",
        "beside the first",
        "step",
        "goodput",
        "cost per step",
        "trainer idle",
        "with weight sync",
        "rollout utilization",
        "staleness p99",
        "long samples lost",
        "runs",
    )
    return Table("every way in figures", headings, rows)
