"""Tables of a plan: fleets side by side, the two rates of each on paper, what makes up the headroom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fleetsim import units
from fleetsim.job.grounds import worth_knowing
from fleetsim.job.input_moves import InputPart
from fleetsim.job.trials import Trial
from fleetsim.quantities import quantity
from fleetsim.size import words
from fleetsim.size.size import Sizing
from fleetsim.size.spread import CountEnd, CountSpread
from fleetsim.tell.document import Cell, Section, Table, estimated

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
# A part of the headroom that would be shown as nothing.
_LEAST = 0.0005


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


def how_sure(spread: CountSpread) -> Section:
    """What each uncertain input does to a plan alone."""
    return worth_knowing(spread.parts, spread.confidence, "instances", _counts_of)


def _counts_of(part: InputPart[CountEnd]) -> str:
    """From, to; none where no count holds the targets."""
    held = [end.instances for end in (part.low, part.high) if end.held]
    if not held:
        return "none"
    return f"{min(held):,} to {max(held):,}" if len(held) == 2 else f"{held[0]:,} to none"
