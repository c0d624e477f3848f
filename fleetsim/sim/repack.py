"""Tail consolidation: nearly empty instances hand their requests to fuller ones (Laminar's repack)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import CMD_MOVE
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.run_state import Process, RunState


def repack(job: RunState) -> Process:
    """Looks at the fleet every `fleet.repack.every_s`, for the whole run."""
    settings = job.scenario.fleet.repack
    assert settings.every_s is not None
    while True:
        yield job.env.timeout(settings.every_s)
        for source, to in moves(job.fleet, settings.below_kv_use, settings.up_to_kv_use):
            job.fleet.command(CMD_MOVE, source, job.now, to)


def moves(fleet: Fleet, below: float, up_to: float) -> list[tuple[int, int]]:
    """(source, destination) pairs: the emptiest instances first, each to the fullest one that stays under `up_to`.

    A source uses less than `below` of its KV blocks and will get no more work: nothing waits there, and admission lets
    nothing in, or the instance is closed. Source and destination serve the same weight version, so a response keeps its
    version. An instance that has received requests is no source.
    """
    rows = fleet.world.instances
    use = np.array([fleet.kv_use(i) for i in range(len(rows))])
    running = rows["running"].astype(np.int64)
    starved = (rows["accepting"] == 0) | (fleet.get("credits") == 0)
    idle = (rows["waiting"] > 0) | (running == 0) | ~starved
    sources: NDArray[np.int64] = np.flatnonzero(~idle & (use < below))
    out: list[tuple[int, int]] = []
    received: set[int] = set()
    for i in sources[np.argsort(use[sources], kind="stable")]:
        if i in received:
            continue
        fits = (
            (rows["version"] == rows["version"][i])
            & (running > 0)
            & (use + use[i] <= up_to)
            & (running + running[i] <= fleet.limits.max_num_seqs)
        )
        fits[i] = False
        fits[[source for source, _ in out]] = False
        if not fits.any():
            continue
        to = int(np.argmax(np.where(fits, use, -1.0)))
        use[to] += use[i]
        running[to] += running[i]
        received.add(to)
        out.append((int(i), to))
    return out
