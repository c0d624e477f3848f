"""`sweep --out FILE`: the table, whole or not at all, and the journal beside it until it is."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.files import new_file, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetsim.job.result import Watch
    from fleetsim.sweep.design import Design
    from fleetsim.sweep.journal import Journal
    from fleetsim.sweep.run import SweepRows


class TableOutput:
    """A place for the table, checked before the work. Raises InputError."""

    def __init__(self, output: str) -> None:
        from fleetsim.sweep.table import FORMATS

        self._journal: Journal | None = None
        ending = os.path.splitext(output)[1]
        if ending not in FORMATS:
            raise InputError(
                [Problem("--out", output, f"must end in {' or '.join(FORMATS)}", "for example sweep.parquet")]
            )
        if ending == ".parquet":
            try:
                import pyarrow.parquet  # noqa: F401 - only whether it is there
            except ImportError:
                remedy = "pip install 'fleetsim[parquet]', or write .csv"
                raise OutsideError(
                    f"--out {output!r}: Parquet needs pyarrow, which is not installed; {remedy}"
                ) from None
        self.place = new_file("--out", output)

    def __enter__(self) -> TableOutput:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets go of the journal; what it holds stays until the table is written."""
        if self._journal is not None:
            self._journal.close()

    def journal(self, restart: bool, watch: Watch) -> Callable[[Design], Journal]:
        """Opens the journal beside the table for a design; that the sweep goes on from it is remarked.

        Raises InputError and OutsideError.
        """

        def opened(design: Design) -> Journal:
            from fleetsim.sweep.design import digest_of
            from fleetsim.sweep.journal import open_journal

            journal = open_journal(self.place, digest_of(design), len(design.grid), restart)
            self._journal = journal
            if journal.rows:
                watch.remark(f"going on: {len(journal.rows):,} of {len(design.grid):,} cells are in {journal.path}")
            return journal

        return opened

    def write(self, result: SweepRows) -> None:
        """Writes the table beside its place, moves it there, and drops the journal. Raises OutsideError."""
        from fleetsim.sweep.table import write_table

        beside = self.place.with_name(f".{os.getpid()}.{self.place.name}")
        try:
            write_table(result, beside)
            beside.replace(self.place)
        except OSError as error:
            kept = "" if self._journal is None else f"; the cells are kept in {self._journal.path}"
            raise OutsideError(f"--out {str(self.place)!r}: cannot be written: {reason(error)}{kept}") from None
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        if self._journal is not None:
            self._journal.discard()
