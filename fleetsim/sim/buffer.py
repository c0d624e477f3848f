"""The buffer between fleet and trainer: which finished groups make the next batch, and which are too old for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import G_ABORTED, G_READY, G_STALE, G_TRAINED
from fleetsim.sim.fleet import Fleet

Ids = NDArray[np.int64]


def completion_order(fleet: Fleet, ready: Ids) -> Ids:
    """As they came in."""
    return ready


def version_order(fleet: Fleet, ready: Ids) -> Ids:
    """Oldest weight version first, then as they came in."""
    return ready[np.argsort(fleet.world.groups["version"][ready], kind="stable")]


RULES: dict[str, Callable[[Fleet, Ids], Ids]] = {
    "fifo": completion_order,
    "first_finished": completion_order,
    "oldest_version_first": version_order,
}


def ready_groups(fleet: Fleet) -> Ids:
    """Groups in the buffer in the order in which they were completed."""
    return fleet.world.ready[: fleet.get("n_ready")].astype(np.int64)


def pick(scenario: Scenario, fleet: Fleet, trainer_version: int) -> tuple[Ids, Ids]:
    """The next batch, and what was found too old on the way; empty batch when there is not enough.

    A group is too old when trainer version - its version > max_age (only under drop_on_dequeue).
    """
    order = RULES[scenario.buffer.batch_rule](fleet, ready_groups(fleet))
    if scenario.admission.age_action == "drop_on_dequeue":
        limit = scenario.admission.max_age or 0.0
        old = trainer_version - fleet.world.groups["version"][order] > limit
    else:
        old = np.zeros(len(order), bool)
    enough = np.cumsum(~old) >= scenario.groups_per_step
    if not enough.any():
        return order[:0], order[old]
    last = int(np.argmax(enough))
    taken = order[: last + 1]
    return taken[~old[: last + 1]], taken[old[: last + 1]]


def take(fleet: Fleet, batch: Ids, step: int, now: float) -> None:
    """The trainer takes a batch."""
    groups = fleet.world.groups
    groups["trained_step"][batch] = step
    _leave(fleet, batch, int(G_TRAINED), now)


def drop(fleet: Fleet, old: Ids, now: float) -> None:
    """Groups too old to train are thrown away."""
    _leave(fleet, old, int(G_STALE), now)


def abort(fleet: Fleet, late: Ids, now: float) -> int:
    """Finished groups that a first-finished batch did not need are thrown away; returns their output tokens."""
    _leave(fleet, late, int(G_ABORTED), now)
    return sum(int(fleet.world.samples["made"][_samples(fleet, g)].sum()) for g in late)


def _samples(fleet: Fleet, g: int) -> slice:
    first = int(fleet.world.groups["first"][g])
    return slice(first, first + fleet.group_size)


def _leave(fleet: Fleet, out: Ids, status: int, now: float) -> None:
    """Groups leave the buffer; those waiting at its door come in, in order."""
    if len(out) == 0:
        return
    world, n = fleet.world, fleet.get("n_ready")
    world.groups["status"][out] = status
    world.groups["left_s"][out] = now
    kept = world.ready[:n][world.groups["status"][world.ready[:n]] == G_READY]
    waiting = fleet.get("n_blocked")
    enter = min(waiting, max(0, fleet.get("ready_cap") - len(kept)))
    world.ready[: len(kept)] = kept
    world.ready[len(kept) : len(kept) + enter] = world.blocked[:enter]
    world.groups["status"][world.blocked[:enter]] = G_READY
    world.blocked[: waiting - enter] = world.blocked[enter:waiting].copy()
    fleet.set(n_ready=len(kept) + enter, n_blocked=waiting - enter)
