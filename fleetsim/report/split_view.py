"""The terminal view of a split advice."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleetsim.plan.split import Outcome, SplitResult
from fleetsim.report import split_words, words
from fleetsim.report.blocks import assumption_table, grid, section

# Rows of the ranking that are shown; the colocated ways and the advised one always are.
_MOST_ROWS = 14


def split_report(result: SplitResult) -> Group:
    """Everything that `fleetsim split` prints on stdout."""
    blocks: list[RenderableType] = [
        answer(result),
        section("every way (rollout + trainer GPUs; mean ± half of the 95 % interval)", ranking(result)),
        section("the trainer's seconds", Text(split_words.law(result))),
    ]
    if result.assumptions:
        blocks.append(
            section("assumed (and the flags that change it)", assumption_table(result.assumptions, words.THEMES))
        )
    blocks.append(section("accuracy", Text(words.profile(result.profile))))
    return Group(*blocks)


def answer(result: SplitResult) -> RenderableType:
    """The advice, its reason, what it costs in freshness, and what else would help."""
    lines = [Text(split_words.headline(result), style="bold"), Text(split_words.verdict(result))]
    fresh = split_words.on_policy(result)
    if fresh is not None:
        lines.append(Text(fresh))
    lines.append(Text(result.explanation))
    return Group(*lines)


def ranking(result: SplitResult) -> Group:
    """Best first; what lies between the shown ones is left out and said to be."""
    table = grid("", "", "step, s", "tok/GPU-s", "$/step", "idle t/r", "stale", "lost", align=_ALIGN)
    shown = _shown(result)
    last = 0
    for outcome in shown:
        place = result.outcomes.index(outcome) + 1
        if place > last + 1:
            table.add_row("", f"({place - last - 1} more)", *[""] * 6, style="dim")
        last = place
        _row(table, result, outcome, place)
    if last < len(result.outcomes):
        table.add_row("", f"({len(result.outcomes) - last} more)", *[""] * 6, style="dim")
    notes = (
        "idle: the trainer's share / the instances'; stale: p99 in steps; lost: share of the longest tenth of the "
        "samples that is dropped or aborted"
    )
    return Group(table, Text(split_words.orders(result)), Text(notes, style="dim"))


_ALIGN = ("left", "left", *("right",) * 6)


def _shown(result: SplitResult) -> list[Outcome]:
    """The first few, every colocated way, and the one that is advised."""
    if len(result.outcomes) <= _MOST_ROWS + 2:
        return list(result.outcomes)
    return [
        o
        for i, o in enumerate(result.outcomes)
        if i < _MOST_ROWS - 2 or o.arrangement.kind != "split" or o is result.chosen
    ]


def _row(table: Table, result: SplitResult, outcome: Outcome, place: int) -> None:
    chosen = outcome is result.chosen
    sign = ">" if chosen else "=" if outcome.ties and outcome.replications > 1 and place > 1 else ""
    idle = [100 * outcome.mean(f"{pool}_idle_fraction") for pool in ("trainer", "rollout")]
    table.add_row(
        sign,
        outcome.arrangement.label,
        _interval(outcome, "step_s"),
        _interval(outcome, "goodput"),
        _interval(outcome, "cost_per_step"),
        f"{idle[0]:.0f}/{idle[1]:.0f} %",
        f"{outcome.mean('staleness_steps.p99'):.3g}",
        f"{100 * outcome.mean('samples_lost.longest_tenth'):.0f} %",
        style="bold" if chosen else "",
    )


def _interval(outcome: Outcome, metric: str) -> Text:
    """ "35.0 ±0.3", both to three figures of the mean; no interval where it is narrower or there is none."""
    e = outcome.estimates[metric]
    decimals = max(0, 2 - math.floor(math.log10(abs(e.mean)))) if e.mean else 0
    text = Text(f"{e.mean:,.{decimals}f}")
    half = f"{(e.ci_high - e.ci_low) / 2.0:,.{decimals}f}"
    if float(half.replace(",", "")) > 0:
        text.append(f" ±{half}", style="dim")
    return text
