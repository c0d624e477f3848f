"""plain: a table whose columns have the names of `StepLog`."""

from __future__ import annotations

from fleetsim.history.run_log_columns import COLUMNS, Entry, FrameworkLog

PLAIN = FrameworkLog(
    "plain",
    "columns named as in the table above",
    ("step_s", "wait_s", "train_s"),
    ("step", "_step", "Step"),
    tuple(Entry(column, (column,)) for column in COLUMNS if column not in ("step", "time_s")),
)
