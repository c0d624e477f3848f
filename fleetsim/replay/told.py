"""The terminal view of `fleetsim replay`: the verdict first, then its grounds, then what the window shows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fleetsim.replay import words
from fleetsim.replay.answers import Answers
from fleetsim.replay.backtest_view import backtest_view
from fleetsim.replay.diagnose.finding import Finding, Verdict
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observed_view import observed_blocks
from fleetsim.replay.run import Replayed
from fleetsim.replay.what_if_view import (
    changes_words,
    recommendation_view,
    sweep_view,
    verification_view,
    what_if_view,
    withheld_view,
)
from fleetsim.tell.next_lines import NextLines
from fleetsim.tell.terminal import grid, section

NOTHING = Answers()
_MOST_NOTES = 12
_MARK = max(map(len, words.MARKS.values()))
_CHECK = max(map(len, words.CHECKS.values()))


def replay_report(result: Replayed, answers: Answers = NOTHING) -> Group:
    """Everything that `fleetsim replay` prints on stdout."""
    blocks: list[RenderableType] = [opening(result)]
    if answers.verification is not None:
        blocks.append(section("verification, in the runbook's order", verification_view(answers.verification)))
    blocks += findings(result.verdict)
    if answers.what_if is not None:
        blocks.append(section("what if (same draws before and after)", what_if_view(answers.what_if)))
    if answers.sweep is not None:
        others = {} if answers.what_if is None else answers.what_if.changes
        beside = f" with {changes_words(others)}" if others else ""
        blocks.append(section(f"what if, over {answers.sweep.key}{beside} (> now)", sweep_view(answers.sweep)))
    if answers.recommendation is not None:
        blocks.append(section("recommendation", recommendation_view(answers)))
    if answers.withheld is not None:
        blocks.append(section("recommendation", withheld_view(answers)))
    blocks += observed_blocks(result.observed)
    if result.backtest is not None:
        blocks.append(section("back-test: the window, simulated", backtest_view(result.backtest)))
    if result.unsimulated is not None:
        blocks.append(section("not simulated", Text(result.unsimulated)))
    model = result.implied
    if model is not None and (result.backtest is not None or answers != NOTHING):
        blocks.append(section("taken from the window", _lines(model.taken)))
    assumed = (*(model.assumed if model is not None else ()), *result.priced)
    if assumed:
        blocks.append(section("assumed (change with --given KEY=VALUE, or --scenario FILE)", _lines(assumed)))
    if result.observed.notes:
        blocks.append(section("notes on the data", notes(result.observed)))
    return Group(*blocks)


def opening(result: Replayed) -> Group:
    """The verdict in one sentence, what to change first, what was looked at."""
    lines: list[RenderableType] = [Text(result.verdict.headline, style="bold")]
    few = words.few_words(result.observed)
    if few is not None:
        lines.append(Text(few, style="bold"))
    first = words.first_change(result.verdict)
    if first is not None:
        lines.append(NextLines(f"{words.first_title(result.verdict)}: ", first, style="bold"))
    if result.backtest is not None and result.backtest.verdict == "wrong":
        lines.append(Text("The back-test misses this window: read what-ifs as directions, not as numbers."))
    total = words.total_words(result.verdict)
    if total is not None:
        lines.append(Text(total))
    lines += [Text(line) for line in words.differs_words(result.implied)]
    lines += [
        Text(f"{result.observed.source}: {words.span_words(result.observed)}", style="dim"),
        Text(words.fleet_words(result.observed), style="dim"),
    ]
    return Group(*lines)


def findings(verdict: Verdict) -> list[RenderableType]:
    """Every question: its mark, what was found, its size, the evidence and what to do next, which stands outside the
    table: a table would cut commands."""
    blocks: list[RenderableType] = [Text(f"\n{words.FINDINGS}", style="dim")]
    for finding in words.ordered(verdict):
        style = "bold" if finding.state == "fault" else ""
        table = grid("", "", "", align=("left", "left", "left"))
        table.columns[0].width, table.columns[1].width = _MARK, _CHECK
        table.add_row(
            Text(words.MARKS[finding.state], style=style),
            Text(words.CHECKS[finding.check], style=style),
            _grounds(finding),
        )
        blocks.append(Padding(table, (0, 0, 0, 2)))
        if finding.next is not None:
            blocks.append(NextLines("next: ", finding.next, indent=2 + _MARK + 2, style=style))
    return blocks


def _grounds(finding: Finding) -> Group:
    fault = finding.state == "fault"
    lines = [Text(finding.title, style="bold" if fault else "")]
    size = words.size_words(finding)
    if size is not None:
        lines.append(Text(size))
    if fault:
        lines += [Text(f"- {line}", style="dim") for line in finding.evidence]
    elif finding.evidence:
        lines.append(Text("; ".join(finding.evidence), style="dim"))
    return Group(*lines)


def notes(observed: Observed) -> Table:
    """What the reader must know of the data."""
    table = grid("", "", align=("left", "left"))
    for note in observed.notes[:_MOST_NOTES]:
        table.add_row(Text(note.kind, style="dim"), words.note_words(note))
    if len(observed.notes) > _MOST_NOTES:
        table.add_row("", f"and {len(observed.notes) - _MOST_NOTES} more (--json has all)")
    return table


def _lines(texts: tuple[str, ...]) -> Group:
    return Group(*(Text(text) for text in texts))
