"""The terminal view of a plan: one function a block, built from the result alone.

The same renderables make the picture in the README (`docs/make_picture.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fleetsim import units
from fleetsim.job import words
from fleetsim.job.rests_on import assumption_list
from fleetsim.job.trials import Trial
from fleetsim.quantities import quantity
from fleetsim.size import words as size_words
from fleetsim.size.size import SizeResult
from fleetsim.tell.terminal import Fitting, drawn, grid, section, with_interval, word_a_line


def size_report(result: SizeResult) -> Group:
    """Everything that `fleetsim size` prints on stdout."""
    blocks: list[RenderableType] = [
        answer(result),
        section("candidates (> recommended; mean ± half of the 95 % interval)", candidates(result)),
    ]
    arithmetic = [Text(size_words.arithmetic(result))]
    if result.scenario.engine.kind == "constant":
        blocks.append(section("rate matching, on paper", *arithmetic, rate_table(result)))
    else:
        blocks.append(section("rate matching, on paper", *arithmetic))
    blocks.append(section("where the headroom goes", headroom(result)))
    blocks.append(section("queue", Text(size_words.queue(result))))
    if result.assumptions:
        blocks.append(
            section("assumed (and the flags that change it)", drawn(assumption_list(result.assumptions, words.THEMES)))
        )
    blocks.append(section("accuracy", Text(words.profile(result.profile))))
    blocks.append(section("next", next_commands(result)))
    return Group(*blocks)


def answer(result: SizeResult) -> RenderableType:
    """The answer, its numbers, the way out of a knee, and in plain words what binds and what else would help."""
    lines = [Text(size_words.headline(result), style="bold"), Text(size_words.verdict(result))]
    lines += [Text(line) for line in (size_words.reach(result), size_words.way_out(result), result.explanation) if line]
    return Group(*lines)


def candidates(result: SizeResult) -> Fitting:
    """The recommendation, its neighbours and the rate-matching count, side by side."""
    return trials_table(result.candidates, result.instances)


def _step(t: Trial) -> RenderableType:
    return f"{t.mean('step_s'):,.1f}"  # a column of minutes does not compare


# Quantity, whether a narrow terminal shows it, and the cell.
_COLUMNS: tuple[tuple[str, bool, Callable[[Trial], RenderableType]], ...] = (
    ("trainer_idle_fraction", True, lambda t: with_interval(t.estimates["trainer_idle_fraction"])),
    ("trainer_idle_with_sync_fraction", False, lambda t: units.share(t.mean("trainer_idle_with_sync_fraction"))),
    ("rollout_utilization", True, lambda t: units.share(t.mean("rollout_utilization"))),
    ("step_s", True, _step),
    ("staleness_steps.p99", True, lambda t: units.number(t.mean("staleness_steps.p99"))),
    ("goodput", False, lambda t: units.number(t.mean("goodput"))),
    ("cost_per_step", True, lambda t: units.number(t.mean("cost_per_step"))),
)


def trials_table(trials: Iterable[Trial], recommended: int | None = None) -> Fitting:
    """Fleets side by side, the recommended one marked."""
    shown = list(trials)

    def table(narrow: bool) -> Table:
        columns = [column for column in _COLUMNS if column[1] or not narrow]
        made = grid("", "instances", *(word_a_line(name) for name, _, _ in columns))
        for trial in shown:
            mine = trial.instances == recommended
            cells = (cell(trial) for _, _, cell in columns)
            made.add_row(">" if mine else "", f"{trial.instances:,}", *cells, style="bold" if mine else "")
        return made

    return Fitting(table(narrow=False), table(narrow=True))


def rate_table(result: SizeResult) -> Table:
    """The two signatures of a wrong fleet: an idle trainer below the match, a growing backlog above it."""
    table = grid("", "instances", quantity("trainer_idle_fraction").title, "backlog without a cap", "after 10 min")
    for row in result.rate_matching.rows:
        mine = row.instances == result.rate_matching.instances
        grows = row.queue_growth_tok_s > 0
        table.add_row(
            ">" if mine else "",
            f"{row.instances:,}",
            units.share(row.trainer_idle_fraction),
            f"+{row.queue_growth_tok_s:,.1f} tok/s" if grows else "0",
            f"{units.tokens(row.backlog_tokens)} tokens" if grows else "0",
            style="bold" if mine else "",
        )
    return table


def headroom(result: SizeResult) -> Group:
    """The computed headroom and its parts, largest first."""
    h = result.headroom
    table = grid("", "", align=("right", "left"))
    for name, part in sorted(h.parts.items(), key=lambda item: -item[1]):
        if abs(part) >= 0.0005:
            table.add_row(units.share(part), size_words.PARTS.get(name, name))
    return Group(Text(size_words.headroom(result)), table)


def next_commands(result: SizeResult) -> Group:
    """What to type next, and why."""
    lines: list[RenderableType] = []
    for command, why in size_words.next_commands(result):
        lines.append(Text(command, style="bold"))
        lines.append(Padding(Text(why), (0, 0, 0, 2)))
    return Group(*lines)
