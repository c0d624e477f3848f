"""The terminal view of `fleetsim validate`: gates, then every arm of every case."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleetsim.report.validation_words import SIDES, fit_words, gate_rows, percent, predicted_side, role
from fleetsim.tell.document import number
from fleetsim.tell.terminal import grid, section
from fleetsim.validate.verdict import CaseResult, summary


def validation_report(results: Sequence[CaseResult]) -> Group:
    """Everything that `fleetsim validate` prints on stdout."""
    total = summary(results)
    head = f"{total.cases} published cases, {total.arms} arms; one scalar fitted per case at most, the rest predicted"
    blocks: list[RenderableType] = [Text(head, style="bold"), section("gates", gates(results))]
    for result in results:
        body: list[RenderableType] = [Text(fit_words(result)), arms(result)]
        if result.wrong_order:
            body.append(Text("wrong order: " + "; ".join(f"{a} and {b}" for a, b in result.wrong_order)))
        blocks.append(section(f"{result.case.id}  {result.case.title}", *body))
    if total.missed:
        blocks.append(section("missed", Text(", ".join(total.missed))))
    return Group(*blocks)


def gates(results: Sequence[CaseResult]) -> Table:
    """The gates of the whole validation."""
    table = grid("", "gate", "wanted", "reached", align=("left", "left", "left", "left"))
    for gate, wanted, reached, holds in gate_rows(summary(results)):
        table.add_row("ok" if holds else "MISSED", gate, wanted, reached, style="" if holds else "bold")
    return table


def arms(result: CaseResult) -> Table:
    """Predicted and published, side by side."""
    table = grid("arm", "published", "predicted", "error", "ratio", "binds",
                 align=("left", "right", "right", "right", "right", "left"))  # fmt: skip
    for arm in result.arms:
        published = SIDES.get(arm.arm.bottleneck or "", "")
        wrong = f", published {published}" if arm.bottleneck is False else ""
        fitted = role(result, arm) == "fitted"
        table.add_row(
            arm.arm.name,
            "-" if arm.arm.published is None else number(arm.arm.published),
            number(arm.predicted),
            "fitted" if fitted else percent(arm.error),
            percent(arm.ratio_error),
            predicted_side(arm) + wrong,
            style="bold" if arm in result.misses else "",
        )
    return table
