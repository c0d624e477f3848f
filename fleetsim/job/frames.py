"""Results as pandas tables. pandas is imported here only, and only when a table is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetsim.errors import InputError, OutsideError, Problem

if TYPE_CHECKING:
    import pandas as pd

    from fleetsim.estimates import Estimate
    from fleetsim.sim.records import Records


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A table of these rows. Raises OutsideError where pandas is missing."""
    return _pandas().DataFrame(list(rows))


def with_intervals(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """The cells of one row: every metric's mean under its name, and the ends of its interval beside it."""
    cells: dict[str, float] = {}
    for name, e in estimates.items():
        cells |= {name: e.mean, f"{name}.ci_low": e.ci_low, f"{name}.ci_high": e.ci_high}
    return cells


def records_frame(runs: Iterable[Records], name: str) -> pd.DataFrame:
    """The rows of one of the records' tables over all runs, with a column `replication`. Raises
    InputError for a table that is none, OutsideError where pandas is missing."""
    pd, parts = _pandas(), []
    for run in runs:
        tables = run.tables()
        if name not in tables:
            raise InputError([Problem("table", name, "no such table", f"one of {', '.join(tables)}")])
        part = pd.DataFrame({column: tables[name][column] for column in tables[name].dtype.names or ()})
        part.insert(0, "replication", run.replication)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        remedy = "pip install 'fleetsim[pandas]'"
        raise OutsideError(f"a table needs pandas, which is not installed; {remedy}") from None
    return pandas
