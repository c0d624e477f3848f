"""What every instance does when: each change of the account to which its GPU-seconds are booked.

The kernel writes the changes into a table of fixed size and returns when the table is nearly full. It is emptied here,
and the run goes on. Nothing else in the run changes, so all other records stay the same to the byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import LOG
from fleetsim.engine.state import World
from fleetsim.sim.records import ACTIVITY

ROWS = 1 << 16
# Changes of one instance until the kernel next looks how full the log is: an iteration ends, the instance is held or
# dies, and its next iteration is planned.
MOST_CHANGES = 16


class ActivityLog:
    """The log of one fleet, from now on. It begins with a row for every instance."""

    def __init__(self, world: World, rows: int = ROWS) -> None:
        n = len(world.instances)
        self.world = world
        self.room = rows + MOST_CHANGES * (n + 1)
        world.log = np.zeros(self.room, LOG)
        world.set(cap_log=self.room, most_log=rows)
        world.bind()
        begin = np.zeros(n, ACTIVITY)
        begin["time_s"], begin["instance"] = world.instances["since"], np.arange(n)
        begin["account"] = world.instances["account"]
        self.parts = [begin]

    def empty(self) -> None:
        """Takes what the log holds. Raises RuntimeError when something found no room: never, by its size."""
        n = self.world.get("n_log")
        if n > self.room:
            raise RuntimeError(f"the log of accounts lost {n - self.room} rows")
        rows = self.world.log[:n]
        part = np.zeros(n, ACTIVITY)
        for name in ACTIVITY.names or ():
            part[name] = rows[name]
        self.parts.append(part)
        self.world.set(n_log=0)

    def empty_if_full(self) -> None:
        """The same, when the log is nearly full."""
        if self.world.get("n_log") > self.world.get("most_log"):
            self.empty()

    def table(self) -> NDArray[Any]:
        """All changes so far (dtype ACTIVITY), in the order of time; those of one moment in the order they came."""
        self.empty()
        rows = np.concatenate(self.parts)
        self.parts = [rows]
        out: NDArray[Any] = rows[np.argsort(rows["time_s"], kind="stable")]
        return out
