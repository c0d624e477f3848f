"""Sections that the pages of a plan and of a run share: the run itself, and what all of it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.job import words
from fleetsim.job.assumptions import Assumption
from fleetsim.job.engine_source import EngineSource
from fleetsim.sim.records import Records
from fleetsim.simulate.gantt import gantt
from fleetsim.simulate.pictures import (
    lengths_chart,
    queue_chart,
    seconds_chart,
    staleness_chart,
    waste_chart,
    waste_words,
)
from fleetsim.tell.document import Block, Section, Table, pair, present


def kind_of(command: str, scenario: Scenario) -> str:
    """What stands above the title: the command, and the scenario's name where it has one of its own."""
    named = scenario.name != Scenario.model_fields["name"].default
    return f"fleetsim {command}" + (f" · {scenario.name}" if named else "")


def over_time(
    records: Records, metrics: Mapping[str, Estimate], title: str, told: str = "", cap: int | None = None
) -> Section:
    """One run in pictures. metrics: flat, over all replications. told: a paragraph before them. cap: as advised.

    Raises ValueError for a run whose activity was not recorded.
    """
    waste = waste_chart(metrics)
    return Section(
        title,
        present(
            told,
            gantt(records),
            seconds_chart(records),
            pair(queue_chart(records, cap), staleness_chart(records, metrics)),
            pair(lengths_chart(records), waste),
            waste_words(metrics) if waste is None else None,
        ),
    )


def rests_on(source: EngineSource, assumed: Sequence[Assumption], nothing_assumed: str, *more: Block | None) -> Section:
    """Where the engine's speed comes from and how far off it may be; what was assumed."""
    accuracy = words.profile(source)
    outside = source.extrapolations or ()
    told = [units.sentence(accuracy)]
    if outside:
        told.append(f"The answer leaves what was measured: {'; '.join(outside)}.")
    sheet = assumption_sheet(assumed) if assumed else nothing_assumed
    return Section("What this rests on", present(" ".join(told), sheet, *more))


def assumption_sheet(assumed: Sequence[Assumption]) -> Table:
    """What nobody said, with the flag that says otherwise."""
    rows = []
    last = ""
    for a in assumed:
        part = a.path.partition(".")[0]
        theme = words.THEMES.get(part, part)
        rows.append(("" if theme == last else theme, a.text, a.flag))
        last = theme
    return Table("assumed, because nobody said otherwise", ("", "assumed", "say otherwise with"), tuple(rows), left=3)
