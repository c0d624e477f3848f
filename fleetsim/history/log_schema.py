"""What is read of a framework's step log, line by line: `fleetsim scenario schema --log FRAMEWORK`."""

from __future__ import annotations

from collections.abc import Iterator

from fleetsim.history.run_log import framework_of
from fleetsim.history.step_logs.columns import COLUMNS


def log_schema(name: str) -> Iterator[str]:
    """The columns with their metrics, and notes on modes. Raises InputError for an unknown name."""
    known = framework_of(name)
    yield f"{known.name}: {known.source}"
    yield from ("", f"step: {', else '.join(known.step)}")
    if known.name == "plain":
        yield from (f"{column}: {meaning}" for column, meaning in COLUMNS.items() if column != "step")
    for entry in known.entries:
        modes = f" ({', '.join(entry.modes)})" if entry.modes else ""
        yield f"{entry.column}: {str(entry).replace('`', '')}{modes}; {COLUMNS[entry.column]}"
    yield from ("", *(known.notes or {}).values())
