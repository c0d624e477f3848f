"""Tables of a plan: fleets side by side, the two rates of each on paper, what makes up the headroom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fleetsim import units
from fleetsim.job.grounds import worth_knowing
from fleetsim.job.input_moves import InputPart
from fleetsim.job.trials import Trial
from fleetsim.job.words import binding_words
from fleetsim.quantities import quantity
from fleetsim.size import words
from fleetsim.size.size import Sizing
from fleetsim.size.spread import CountEnd, CountSpread
from fleetsim.tell.document import SEEDS_ALONE, Cell, Section, Table, estimated
from fleetsim.tell.terminal import word_a_line

# Quantity, whether a narrow terminal shows it, and the cell; of seconds without a unit: a column of minutes does not
# compare.
_COLUMNS: tuple[tuple[str, bool, Callable[[Trial], Cell]], ...] = (
    ("trainer_idle_fraction", True, lambda t: estimated(t.estimates["trainer_idle_fraction"])),
    ("not_training_fraction", False, lambda t: units.share(t.mean("not_training_fraction"))),
    ("rollout_utilization", True, lambda t: units.share(t.mean("rollout_utilization"))),
    ("step_s", True, lambda t: f"{t.mean('step_s'):,.1f}"),
    ("staleness_steps.p99", True, lambda t: units.number(t.mean("staleness_steps.p99"))),
    ("goodput", False, lambda t: units.number(t.mean("goodput"))),
    ("cost_per_step", True, lambda t: units.number(t.mean("cost_per_step"))),
)
# The columns of a page, which has room for more, and those of them that have their intervals.
_IN_FIGURES = (
    "trainer_idle_fraction",
    "not_training_fraction",
    "rollout_utilization",
    "step_s",
    "cost_per_step",
    "staleness_steps.p99",
    "goodput",
)
_WITH_INTERVAL = ("trainer_idle_fraction", "step_s", "cost_per_step")
# A part of the headroom that would be shown as nothing.
_LEAST = 0.0005


def trials_table(trials: Iterable[Trial], recommended: int | None = None, gpus: int | None = None) -> Table:
    """Fleets side by side, the recommended one marked; for a terminal. gpus: of an instance, where counts are GPUs."""
    shown = tuple(trials)
    wide, narrow = (_trials(shown, recommended, gpus, narrow=narrow) for narrow in (False, True))
    return replace(wide, narrower=(narrow,))


def _trials(trials: Sequence[Trial], recommended: int | None, gpus: int | None, *, narrow: bool) -> Table:
    columns = [column for column in _COLUMNS if column[1] or not narrow]
    mark, each = {recommended: ">"}, gpus or 1
    rows = tuple(
        (mark.get(t.instances, ""), f"{t.instances * each:,}", *(cell(t) for _, _, cell in columns)) for t in trials
    )
    marked = frozenset(i for i, t in enumerate(trials) if t.instances == recommended)
    headings = ("", "GPUs" if gpus else "instances", *(word_a_line(name) for name, _, _ in columns))
    return Table("", headings, rows, left=0, marked=marked)


def counts_table(trials: Sequence[Trial], recommended: int) -> Table:
    """Fleets side by side in full, for a page."""
    rows = tuple(
        (
            f"{t.instances:,}" + (" (recommended)" if t.instances == recommended else ""),
            binding_words(t.binding).name,
            *(_figure(t, name) for name in _IN_FIGURES),
        )
        for t in trials
    )
    headings = ("instances", "what binds", *(quantity(name).title for name in _IN_FIGURES))
    return Table("the same in figures", headings, rows, left=2, note=SEEDS_ALONE, open=False)


def _figure(trial: Trial, name: str) -> str:
    unit = quantity(name).unit
    if name in _WITH_INTERVAL:
        return units.with_ends(trial.estimates[name], unit)
    return units.written(trial.mean(name), unit)


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
    together = "what all do together is drawn from their laws"
    return worth_knowing(spread.parts, spread.confidence, "instances", _counts_of, together)


def _counts_of(part: InputPart[CountEnd]) -> str:
    """From, to; none where no count holds the targets."""
    held = [end.instances for end in (part.low, part.high) if end.held]
    if not held:
        return "none"
    return f"{min(held):,} to {max(held):,}" if len(held) == 2 else f"{held[0]:,} to none"
