"""MLflow: a run's folder in a file store (metrics/NAME: a line `milliseconds value step` each), and its database.

mlflow/mlflow 3.17: store/tracking/file_store.py; store/tracking/dbmodels/models.py (table `metrics`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Note
from fleetsim.history.run_log_table import RunLogTable
from fleetsim.history.trackers.database import rows_of, run_of
from fleetsim.history.trackers.scalars import Scalars

_RUN = "SELECT DISTINCT run_uuid, run_uuid FROM metrics"
_ROWS = "SELECT key, value, timestamp, step FROM metrics WHERE run_uuid = ? AND NOT is_nan ORDER BY timestamp"


def is_run(folder: Path) -> bool:
    """Whether it is a run of a file store."""
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir()


def read_run(folder: Path, wanted: Callable[[str], bool] | None) -> tuple[RunLogTable, list[Note]]:
    """The metrics of a run's folder. Raises InputError: none, or a line that is none."""
    scalars, notes = Scalars(wanted), []
    root = folder / "metrics"
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        column = scalars.of(path.relative_to(root).as_posix())
        if column is None:
            continue
        wrong = 0
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                parts = line.split()
                try:
                    time_ms, value, step = float(parts[0]), float(parts[1]), int(parts[2])
                except (ValueError, IndexError):
                    wrong += bool(parts)
                    continue
                column[0].append(step)
                column[1].append(value)
                column[2].append(time_ms / 1000.0)
        if wrong:
            text = f"{path.name}: {wrong} lines are no `milliseconds value step`, and are left out."
            notes.append(Note("partial", text))
    if not scalars.names:
        rule, remedy = "the run has no metrics", "give the folder of a run that logged"
        raise InputError([Problem("history", str(folder), rule, remedy)])
    return scalars.table(), notes


def read_database(path: Path, run: str, wanted: Callable[[str], bool] | None) -> tuple[RunLogTable, list[Note]]:
    """The metrics of one run of an MLflow database. run: "" = the only one. Raises InputError."""
    scalars = Scalars(wanted)
    for key, value, time_ms, step in rows_of(path, _ROWS, (run_of(path, _RUN, run),)):
        column = scalars.of(str(key))
        if column is not None and all(isinstance(x, int | float) for x in (value, time_ms)) and isinstance(step, int):
            column[0].append(step)
            column[1].append(float(value))
            column[2].append(time_ms / 1000.0)
    return scalars.table(), []
