"""Pictures of a plan: what depends on the count, what each lever buys, and where the headroom goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.job import words
from fleetsim.job.trials import Trial
from fleetsim.quantities import quantity
from fleetsim.search.alternative import Alternative, Alternatives
from fleetsim.size import words as size_words
from fleetsim.size.explain import explained
from fleetsim.size.size import Sizing
from fleetsim.tell.charts.chart import Chart, Mark
from fleetsim.tell.charts.kinds import Curve, change_rows, curve_chart, waterfall_chart
from fleetsim.tell.document import Block, Bullets, Table, pair

# A part of the headroom that would not be seen.
_LEAST = 0.0005


def curves(result: Sizing, around: Sequence[Trial], stuck: int) -> tuple[Block | None, ...]:
    """What depends on the count: idle, step time and cost beside each other, and what their whiskers are.

    stuck: how many of these counts cannot run."""
    counts = [float(t.instances) for t in around]
    runs = units.plural(result.scenario.run.replications, "replication")
    ends = (around[0], around[-1])
    limits = {t.metric: t for t in result.targets}

    def chart(id: str, metric: str) -> Chart:  # noqa: A002
        q, found = quantity(metric), limits.get(metric)
        targets = [] if found is None else [Mark(found.limit, f"target {words.target_value(found.name, found.limit)}")]
        curve = Curve(q.title, counts, [t.estimates[metric] for t in around])
        return curve_chart(
            id, units.capital(q.title), falls(metric, q.unit), [curve], x_title="instances",
            y_title=q.title, how=q.unit, recommended=float(result.instances), targets=targets, height_px=200,
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


def why(binding: str, alternatives: Alternatives, estimates: Mapping[str, Estimate]) -> Bullets:
    """What binds, what one more instance and everything else would buy, point by point."""
    return Bullets(explained(binding, alternatives, estimates))


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
            _less(a.gain_s),
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


def _less(gain_s: float) -> str:
    return units.seconds(gain_s) if gain_s >= 0 else f"-{units.seconds(-gain_s)}"


def headroom_chart(result: Sizing) -> Chart:
    """From what the fleet would make without any loss to what the trainer consumes, which may be more than that."""
    h = result.headroom
    shown = [(name, part) for name, part in sorted(h.parts.items(), key=lambda item: -item[1]) if part >= _LEAST]
    # What is too small to be seen goes to the last bar, so that the bars still meet.
    rest = max(h.computed, 1.0 - sum(part for _, part in shown))
    bars = [(size_words.PARTS.get(name, name), part) for name, part in shown]
    if h.computed > 1.0:
        bars.append(("more than the fleet makes: the trainer waits", 1.0 - sum(part for _, part in bars) - rest))
    largest = max(shown, key=lambda item: item[1], default=None)
    said = "" if largest is None else f" The largest part, {units.share(largest[1])}: {size_words.PARTS[largest[0]]}."
    return waterfall_chart(
        "headroom",
        "Headroom, part by part",
        f"Of {units.number(h.nameplate_tok_s)} tok/s without any loss {size_words.taken(h)}; "
        f"each cause was taken away alone to see its part; where they overlap, each gives way in proportion.{said}",
        ("without any loss", 1.0),
        bars,
        ("consumed by the trainer" if h.computed <= 1.0 else "consumed by a trainer that never waits", rest),
        x_title="% of the rate without any loss",
        how="share",
    )
