"""Keys of a sweep that did nothing: cells that differ in one of them alone came out equal, run by run."""

from __future__ import annotations

from fleetsim.config.scenario import unread_notes
from fleetsim.sweep.cell import SweepRow
from fleetsim.sweep.run import SweepRows


def idle_keys(result: SweepRows) -> tuple[str, ...]:
    """A sentence for each key with several values that changed no number of any cell, and why if that is known."""
    ran = [row for row in result.rows if row.status == "ok"]
    if not ran:
        return ()
    notes: list[str] = []
    stride = 1
    for axis in reversed(result.design.grid.axes):
        count = len(axis.values)
        if _alike(ran, stride, count):
            first, last = (unread_notes(result.design.scenario(row.cell), [axis.path]) for row in (ran[0], ran[-1]))
            plain = f"{axis.path} changes nothing here: cells that differ in it alone are equal"
            notes = [*(first if first and first == last else [plain]), *notes]
        stride *= count
    return tuple(notes)


def _alike(ran: list[SweepRow], stride: int, count: int) -> bool:
    """Whether there are cells that differ in this key alone, and all of those are equal. stride: how far apart."""
    first: dict[int, SweepRow] = {}
    compared = False
    for row in ran:
        other = first.setdefault(row.cell - row.cell // stride % count * stride, row)
        if other is not row:
            compared = True
            if other.values != row.values:
                return False
    return compared
