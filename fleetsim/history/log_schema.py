"""What is read of a framework's step log, line by line: `fleetsim scenario schema --log FRAMEWORK`."""

from __future__ import annotations

from collections.abc import Iterator

from fleetsim.history.run_log import framework_of
from fleetsim.history.run_log_columns import COLUMNS
from fleetsim.history.step_logs.shared_notes import EVERY


def log_schema(name: str) -> Iterator[str]:
    """The columns with their metrics, notes on modes, and what is not read. Raises InputError for an unknown name."""
    known = framework_of(name)
    yield f"{known.name}: {known.source}"
    yield from ("", f"step: {', else '.join(known.step)}")
    if known.name == "plain":
        yield from (f"{column}: {meaning}" for column, meaning in COLUMNS.items() if column != "step")
    for entry in known.entries:
        modes = f" ({', '.join(entry.modes)})" if entry.modes else ""
        yield f"{entry.column}: {str(entry).replace('`', '')}{modes}; {COLUMNS[entry.column]}"
    yield from ("", *(known.notes or {}).values())
    yield from ("", "Not read:")
    for why, patterns in (*known.unused, *EVERY):
        yield f"{patterns}: {why}"
