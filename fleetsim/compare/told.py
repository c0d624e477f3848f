"""The terminal view of a comparison: the answer, what changed and by how much, what did not, what differs, notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fleetsim import units
from fleetsim.compare.compare import Change, Comparison
from fleetsim.compare.table import ChangeRow, ChangeTable, InputTable
from fleetsim.estimates import Estimate
from fleetsim.job.assumptions import short
from fleetsim.quantities import quantity
from fleetsim.tell.terminal import section

_STYLE = {"better": "bold", "worse": "bold", "changed": "bold"}
_MOST_INPUTS = 60


def compare_report(found: Comparison) -> Group:
    """Everything that `fleetsim compare` prints on stdout."""
    changed = found.significant
    same = [c for c in found.changes if c.verdict == "no significant change" and c.p_adjusted is not None]
    equal = [c for c in found.changes if c.verdict == "no significant change" and c.p_adjusted is None]
    without = [c for c in found.changes if c.verdict == "not comparable"]
    blocks: list[RenderableType] = [opening(found)]
    if changed:
        blocks.append(section(f"changed ({RATIO})", table(changed)))
    if same:
        blocks.append(section(f"no significant change ({RATIO})", table(same)))
    if equal:
        names = "; ".join(quantity(c.metric).title for c in equal)
        blocks.append(section("equal on both sides", Text(names)))
    if without:
        blocks.append(section("not comparable", *(Text(line) for line in _reasons(without))))
    blocks.append(section("inputs that differ", inputs(found)))
    if found.notes:
        blocks.append(section("notes", *(Text(note) for note in found.notes)))
    return Group(*blocks)


RATIO = "B / A, of shares B - A"


def opening(found: Comparison) -> Group:
    """The answer, who A and B are, and what the intervals rest on."""
    if found.kind == "windows":
        how = f"unpaired, {found.replications} blocks of the shorter window"
    else:
        how = f"{found.replications} replications, " + (
            "paired: the same draws on both sides" if found.paired else "unpaired"
        )
    points = f"{100.0 * found.min_change:g} point{'' if found.min_change == 0.01 else 's'}"
    smallest = f"smallest change of interest {units.limit(found.min_change)}, of shares {points}"
    return Group(
        Text(found.headline, style="bold"),
        Text(f"A: {found.a_label}", style="dim"),
        Text(f"B: {found.b_label}", style="dim"),
        Text(f"{how}; {smallest}", style="dim"),
    )


def table(changes: Sequence[Change]) -> ChangeTable:
    """Every metric with its verdict, both sides, the change and its interval."""
    return ChangeTable(tuple(_row(change) for change in changes))


def _row(change: Change) -> ChangeRow:
    metric = quantity(change.metric)
    a, b = ("" if side is None else units.beside(side.mean, metric.unit) for side in (change.a, change.b))
    word = change.verdict if change.significant else change.why
    return ChangeRow(metric.title, word, (a, b, *change_of(change)), _STYLE.get(change.verdict, "dim"))


def change_of(change: Change) -> tuple[str, str]:
    """ "0.968" and "0.964 to 0.971"; of a share "-1.1 points" and "-1.2 to -1.0"; from nothing, the difference."""
    how = quantity(change.metric).unit
    if how == "share" and change.difference is not None:
        return _interval(change.difference, units.percent_change, " points")
    if change.ratio is not None:
        return _interval(change.ratio, lambda x: f"{x:.3f}" if abs(x) < 99.5 else f"{x:,.0f}", "")
    if change.difference is not None:
        return _interval(change.difference, lambda x: f"{'+' if x > 0 else ''}{units.beside(x, how)}", "")
    return "", ""


def _interval(value: Estimate, write: Callable[[float], str], unit: str) -> tuple[str, str]:
    low, high = write(value.ci_low), write(value.ci_high)
    return f"{write(value.mean)}{unit}", "" if value.ci_low == value.ci_high else f"{low} to {high}"


def _reasons(changes: Sequence[Change]) -> list[str]:
    """Metrics by the reason why they cannot be compared."""
    by_why: dict[str, list[str]] = {}
    for change in changes:
        by_why.setdefault(change.why, []).append(quantity(change.metric).title)
    return [f"{why}: {'; '.join(titles)}" for why, titles in by_why.items()]


def inputs(found: Comparison) -> RenderableType:
    """Path, both values; what nobody gave is marked."""
    if not found.inputs:
        return Text("none")
    rows = input_table(found)
    if len(found.inputs) <= _MOST_INPUTS:
        return rows
    return Group(rows, Text(f"and {len(found.inputs) - _MOST_INPUTS} more: see --json"))


def input_table(found: Comparison) -> InputTable:
    """The inputs that differ, not too many of them."""
    shown = found.inputs[:_MOST_INPUTS]
    return InputTable(tuple((d.path, _value(d.a, d.a_assumed), _value(d.b, d.b_assumed)) for d in shown))


def _value(value: Any, assumed: bool) -> Text:
    if isinstance(value, dict) and "kind" in value and len(value) > 2:
        text = Text(", ".join(f"{k} {short(v)}" for k, v in value.items() if v is not None))
    else:
        text = Text("-" if value is None else short(value))
    if assumed:
        text.append(" (assumed)", style="dim")
    return text
