"""Records of runs as Parquet files, one a table: whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.files import reason, whole

if TYPE_CHECKING:
    from fleetsim.sim.records import Records


def check_folder(folder: str, asked: str) -> Path:
    """The folder, created if need be, before any work is done for it. asked: by which flag, or function.

    Raises InputError when the path is no folder, OutsideError without pyarrow or when it cannot be written to.
    """
    try:
        import pyarrow.parquet  # noqa: F401 - only whether it is there
    except ImportError:
        raise OutsideError(f"{asked} needs pyarrow, which is not installed; pip install 'fleetsim[parquet]'") from None
    if folder == "-":
        raise InputError([Problem(asked, folder, "is no folder: stdout is for the answer", "give a folder")])
    path = Path(folder)
    try:
        if path.exists() and not path.is_dir():
            raise InputError([Problem(asked, folder, "is no folder", "give a folder, one file a table goes there")])
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except (OSError, ValueError) as error:
        raise OutsideError(f"{asked} {folder!r}: cannot be written to: {reason(error)}") from None


def write_parquet(folder: Path, runs: Iterable[Records]) -> list[Path]:
    """steps.parquet, samples.parquet, ... with the rows of all runs and a column `replication`.

    Each file is written beside its place and moved there when it is complete. Raises OutsideError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables: dict[str, list[Any]] = {}
    for run in runs:
        for name, rows in run.tables().items():
            columns = {column: pa.array(rows[column]) for column in rows.dtype.names or ()}
            replication = pa.array([run.replication] * len(rows), pa.int32())
            tables.setdefault(name, []).append(pa.table({"replication": replication, **columns}))
    written = []
    for name, parts in tables.items():
        place = folder / f"{name}.parquet"
        with whole(place) as beside:
            pq.write_table(pa.concat_tables(parts), beside)
        written.append(place)
    return written
