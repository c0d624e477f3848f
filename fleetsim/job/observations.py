"""What a run showed of a job, as documents tell it: each value with its interval, and the flag that says otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim import units
from fleetsim.config.observation import ObservedConfig
from fleetsim.config.scenario import Scenario
from fleetsim.job.settings import typed_for
from fleetsim.tell.document import Section, Table


def record_words(record: ObservedConfig) -> str:
    """A value with its interval: "trainer seconds of 124 s (121 to 128)"."""
    unit = f" {record.unit}" if record.unit else ""
    within = f" ({_few(record.low)} to {_few(record.high)})" if record.low < record.high else ""
    return f"{record.what} of {_few(record.value)}{unit}{within}"


def observed_line(scenario: Scenario) -> str:
    """What a run showed, in a line: the names alone; "" where none did."""
    if not scenario.observed:
        return ""
    where = dict.fromkeys(record.source.partition(":")[0] for record in scenario.observed)
    return f"{units.listed([record.what for record in scenario.observed])}, in {units.listed(list(where))}"


def observed_section(scenario: Scenario) -> Section:
    """The records of a job; empty where no run showed anything."""
    return Section("Observed in a run", (_table(scenario.observed),) if scenario.observed else (), short="observed")


def _table(records: Sequence[ObservedConfig]) -> Table:
    headings = ("", "observed", "eight of ten", "steps", "in", "say otherwise with")
    rows = tuple(
        (
            record.what,
            f"{_few(record.value)}{f' {record.unit}' if record.unit else ''}",
            f"{_few(record.low)} to {_few(record.high)}",
            f"{record.steps:,}" if record.steps else "",
            record.source,
            str(typed_for(record.path, "VALUE")),
        )
        for record in records
    )
    return Table("observed in a run", headings, rows, left=1)


def _few(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
