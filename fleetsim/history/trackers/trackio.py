"""trackio: a project's database (gradio-app/trackio 0.43, sqlite_storage.py: table `metrics`, a JSON object a row)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetsim.history.history import Note
from fleetsim.history.run_log_rows import flat
from fleetsim.history.run_log_table import RunLogTable
from fleetsim.history.run_log_text import number
from fleetsim.history.trackers.database import rows_of, run_of
from fleetsim.json_text import from_loose_json

_RUN = "SELECT DISTINCT run_name, run_name FROM metrics"
_ROWS = "SELECT step, timestamp, metrics FROM metrics WHERE run_name = ? ORDER BY id"


def read_project(path: Path, run: str, wanted: Callable[[str], bool] | None) -> tuple[RunLogTable, list[Note]]:
    """The metrics of one run of a project. run: "" = the only one. Raises InputError."""
    table = RunLogTable(wanted)
    wrong = 0
    for step, moment, text in rows_of(path, _ROWS, (run_of(path, _RUN, run),)):
        try:
            metrics = from_loose_json(text)
            row = {"step": float(step), "_timestamp": number(moment), **dict(flat(metrics))}
        except (ValueError, TypeError, AttributeError):
            wrong += 1
            continue
        table.add({name: value for name, value in row.items() if value is not None})
    notes = [Note("partial", f"{wrong} rows of the project are no JSON objects, and are left out.")] if wrong else []
    return table, notes
