"""Pictures of a plan: what depends on the count, what each lever buys, and where the headroom goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fleetsim import units
from fleetsim.job.input_moves import InputPart
from fleetsim.job.trials import Trial
from fleetsim.job.words import target_value
from fleetsim.quantities import quantity
from fleetsim.search.alternative import Alternative, Alternatives
from fleetsim.size import words
from fleetsim.size.size import Sizing
from fleetsim.size.spread import CountEnd
from fleetsim.tell.charts.chart import Chart, Mark
from fleetsim.tell.charts.kinds import Curve, change_rows, curve_chart, waterfall_chart
from fleetsim.tell.document import Block, Cell, Table, estimated, pair

# A part of the headroom that would not be seen.
_LEAST = 0.0005


def curves(result: Sizing, around: Sequence[Trial], stuck: int, now: int | None = None) -> tuple[Block | None, ...]:
    """What depends on the count: idle, step time and cost beside each other, and what their whiskers are.

    stuck: how many of these counts cannot run. now: instances that there are."""
    counts = [float(t.instances) for t in around]
    runs = units.plural(result.scenario.run.replications, "replication")
    ends = (around[0], around[-1])
    limits = {t.metric: t for t in result.targets}

    def chart(id: str, metric: str) -> Chart:  # noqa: A002
        q, found = quantity(metric), limits.get(metric)
        targets = [] if found is None else [Mark(found.limit, f"target {target_value(found.name, found.limit)}")]
        curve = Curve(q.title, counts, [t.estimates[metric] for t in around])
        return curve_chart(
            id, units.capital(q.title), falls(metric, q.unit), [curve], x_title="instances",
            y_title=q.title, how=q.unit, recommended=float(result.instances), targets=targets, height_px=200,
            upright=[] if now in (None, result.instances) else [Mark(float(now or 0), "now")],
        )  # fmt: skip

    def falls(metric: str, how: units.Unit) -> str:
        first, last = (t.estimates[metric] for t in ends)
        here = result.recommended.estimates[metric]
        return (
            f"{units.with_ends(first, how)} with {ends[0].instances:,}, {units.with_ends(here, how)} with the "
            f"recommended {result.instances:,}, {units.with_ends(last, how)} with "
            f"{units.plural(ends[1].instances, 'instance')}."
        )

    left_out = f" {units.plural(stuck, 'count')} between them cannot run." if stuck else ""
    said = f"Whiskers and bands are 95 % intervals over {runs}, all under the same draws.{left_out}"
    return pair(chart("idle", "trainer_idle_fraction"), chart("step", "step_s"), chart("cost", "cost_per_step")), said


def levers(found: Alternatives) -> tuple[Block | None, ...]:
    """What each lever buys, in a picture and in figures, with what to type for it."""
    return alternatives_chart(found), alternatives_sheet(found)


def alternatives_chart(found: Alternatives) -> Chart | None:
    """What each lever does to step time and cost; the largest gain first. None where there is no lever."""
    if not found.tried:
        return None
    ranked = ranking(found)
    best = found.named(found.cheapest or "")
    said = "None of them makes a step measurably shorter without losing more samples."
    if best is not None:
        said = f"The cheapest, in bold: {best.text}, step time {units.ratio_change(best.step_ratio)}."
    return change_rows(
        "levers",
        "What each lever buys",
        "Each change alone, beside the answer under the same draws: how much longer or shorter a step becomes, and how "
        f"much dearer or cheaper, with 95 % intervals; left is less. {said}",
        [(a.text, (a.step_ratio, a.cost_ratio), a is best) for a in ranked],
        (quantity("step_s").title, quantity("cost_per_step").title),
        x_title="change of a step",
    )


def ranking(found: Alternatives) -> list[Alternative]:
    """The levers, what shortens the step most first."""
    return sorted(found.tried, key=lambda a: -a.gain_s)


def alternatives_sheet(found: Alternatives) -> Table | None:
    """The same in figures, with what each asks of the algorithm."""
    if not found.tried:
        return None
    rows = tuple(
        (
            a.text,
            a.risk or "nothing",
            units.ratio_change(a.step_ratio) + ("" if a.shortens or a.lengthens else " (within chance)"),
            units.ratio_change(a.cost_ratio),
            f"{'-' if a.gain_s < 0 else ''}{units.seconds(abs(a.gain_s))}",
            units.number(a.staleness_p99_steps),
            units.share(a.long_samples_lost),
            a.flag,
        )
        for a in ranking(found)
    )
    note = "" if not found.stuck else f"Would block the run: {', '.join(found.stuck)}."
    headings = (
        "lever",
        "asks of the algorithm",
        "step time",
        quantity("cost_per_step").title,
        "seconds off a step",
        "staleness p99",
        "long samples lost",
        "to type",
    )
    return Table("the levers in figures", headings, rows, left=2, note=note, open=False, words_last=1)


def headroom_chart(result: Sizing) -> Chart:
    """From what the fleet would make without any loss to what the trainer consumes, which may be more than that."""
    h = result.headroom
    shown = [(name, part) for name, part in sorted(h.parts.items(), key=lambda item: -item[1]) if part >= _LEAST]
    # What is too small to be seen goes to the last bar, so that the bars still meet.
    rest = max(h.computed, 1.0 - sum(part for _, part in shown))
    bars = [(words.PARTS.get(name, name), part) for name, part in shown]
    if h.computed > 1.0:
        bars.append(("more than the fleet makes: the trainer waits", 1.0 - sum(part for _, part in bars) - rest))
    largest = max(shown, key=lambda item: item[1], default=None)
    said = "" if largest is None else f" The largest part, {units.share(largest[1])}: {words.PARTS[largest[0]]}."
    return waterfall_chart(
        "headroom",
        "Headroom, part by part",
        f"Of {units.number(h.nameplate_tok_s)} tok/s without any loss {words.taken(h)}; "
        f"each cause was taken away alone to see its part; where they overlap, each gives way in proportion.{said}",
        ("without any loss", 1.0),
        bars,
        ("consumed by the trainer" if h.computed <= 1.0 else "consumed by a trainer that never waits", rest),
        x_title="% of the rate without any loss",
        how="share",
    )


# --- Tables of a plan: fleets side by side, the two rates of each on paper, what makes up the headroom.

# Quantity and its cell; of seconds without a unit: a column of minutes does not compare.
_COLUMNS: Mapping[str, Callable[[Trial], Cell]] = {
    "trainer_idle_fraction": lambda t: estimated(t.estimates["trainer_idle_fraction"]),
    "not_training_fraction": lambda t: units.share(t.mean("not_training_fraction")),
    "rollout_utilization": lambda t: units.share(t.mean("rollout_utilization")),
    "step_s": lambda t: f"{t.mean('step_s'):,.1f}",
    "staleness_steps.p99": lambda t: units.number(t.mean("staleness_steps.p99")),
    "goodput": lambda t: units.number(t.mean("goodput")),
    "cost_per_step": lambda t: units.number(t.mean("cost_per_step")),
}
# What a narrow terminal does not show.
_SPARED = ("not_training_fraction", "goodput")


def trials_table(trials: Iterable[Trial], recommended: int | None = None, gpus: int | None = None) -> Table:
    """Fleets side by side, the recommended one marked. gpus: of an instance, where counts are GPUs."""
    shown, each = tuple(trials), gpus or 1
    rows = tuple(
        (">" if t.instances == recommended else "", f"{t.instances * each:,}", *(cell(t) for cell in _COLUMNS.values()))
        for t in shown
    )
    marked = frozenset(i for i, t in enumerate(shown) if t.instances == recommended)
    headings = ("", "GPUs" if gpus else "instances", *(quantity(name).heading for name in _COLUMNS))
    table = Table("the same in figures", headings, rows, left=0, marked=marked, open=False)
    return table.narrowing(*(quantity(name).heading for name in _SPARED))


def rate_table(result: Sizing) -> Table:
    """The two signatures of a wrong fleet: an idle trainer below the match, a growing backlog above it."""
    match = result.rate_matching
    rows = tuple(
        (
            ">" if row.instances == match.instances else "",
            f"{row.instances:,}",
            units.share(row.trainer_idle_fraction),
            f"+{row.queue_growth_tok_s:,.1f} tok/s" if row.queue_growth_tok_s > 0 else "0",
            f"{units.tokens(row.backlog_tokens)} tokens" if row.queue_growth_tok_s > 0 else "0",
        )
        for row in match.rows
    )
    headings = ("", "instances", quantity("trainer_idle_fraction").title, "backlog without a cap", "after 10 min")
    marked = frozenset(i for i, row in enumerate(match.rows) if row.instances == match.instances)
    return Table("", headings, rows, left=0, marked=marked)


def headroom_table(result: Sizing) -> Table:
    """The parts of the computed headroom, largest first."""
    parts = sorted(result.headroom.parts.items(), key=lambda item: -item[1])
    rows = tuple((units.share(part), words.PARTS.get(name, name)) for name, part in parts if part >= _LEAST)
    return Table("", ("", ""), rows, left=0, words_last=1)


def counts_of(part: InputPart[CountEnd]) -> str:
    """From, to; none where no count holds the targets."""
    held = [end.instances for end in (part.low, part.high) if end.held]
    if not held:
        return "none"
    return f"{min(held):,} to {max(held):,}" if len(held) == 2 else f"{held[0]:,} to none"
