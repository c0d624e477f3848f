"""A job in a notebook: its name, what somebody said of it, and what is assumed because nobody did."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from fleetsim.config.scenario import Scenario
from fleetsim.job.assumptions import assumptions_of, short, value_at
from fleetsim.job.rests_on import assumption_list
from fleetsim.job.words import THEMES
from fleetsim.tell.terminal import drawn, grid, section

_TITLE = ("schema_version", "name", "description", "assumed")


def job_report(
    scenario: Scenario, given: Collection[str], notes: Sequence[str], keyword: Callable[[str], str]
) -> Group:
    """given: dotted paths. notes: what is odd about them. keyword: a flag as the reader says it (--len-cv: len_cv)."""
    s = scenario
    size = f"{s.fleet.instances} instances, {s.trainer.gpus} trainer GPUs"
    blocks: list[RenderableType] = [Text.assemble((s.name, "bold"), f": {size}")]
    if s.description:
        blocks.append(Text(s.description.strip()))
    said = sorted(path for path in given if path.partition(".")[0] not in _TITLE)
    table = grid("", "", align=("left", "left"))
    for path in said:
        try:
            value = value_at(s, path)
        except AttributeError:  # of a section that another choice has taken away
            continue
        table.add_row(Text(path, style="dim"), Text(short(value)))
    if table.row_count:
        blocks.append(section("given", table))
    assumed = [
        replace(a, text=keyword(a.text), flag=a.flag if a.flag.startswith("--set") else keyword(a.flag))
        for a in assumptions_of(s, given)
    ]
    if assumed:
        blocks.append(section("assumed (and the keywords that change it)", drawn(assumption_list(assumed, THEMES))))
    blocks += [Text(f"note: {note}") for note in notes]
    return Group(*blocks)
