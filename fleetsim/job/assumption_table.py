"""What was assumed, as terminal views show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text

from fleetsim.job.assumptions import Assumption
from fleetsim.tell.terminal import grid


def assumption_table(assumptions: Iterable[Assumption], themes: Mapping[str, str]) -> Table:
    """What was assumed, a line for each part of the system, with the flags that change it.

    themes: section of a scenario -> what that part is called.
    """
    table = grid("", "", align=("left", "left"))
    parts: dict[str, list[Assumption]] = {}
    for a in assumptions:
        section = a.path.partition(".")[0]
        parts.setdefault(themes.get(section, section), []).append(a)
    for theme, assumed in parts.items():
        line = Text(", ".join(a.text for a in assumed))
        flags = [a.flag for a in assumed if not a.flag.startswith("--set")]
        if flags:
            line.append(f"  {' '.join(flags)}", style="dim")
        table.add_row(Text(theme, style="dim"), line)
    return table
