"""Credits: how many groups the kernel may still send, by the admission law (`policies/admission.py`).

Credits are worked out anew whenever something changes: at the start, when a batch is taken, when a version is
published, when groups are dropped. A group that the filter or a full buffer throws away inside the kernel gives its
credit back at once, unless the law counts starts (per_sync_window).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.policies.law import PLENTY, EachStep, Progress
from fleetsim.sim.fleet import Fleet

# What counts against a law's limit, in groups.
_COUNTS: Mapping[str, Callable[[Fleet], int]] = {
    "outstanding": Fleet.outstanding,
    "open": Fleet.open_groups,
    "started": Fleet.started,
}


def top_up(scenario: Scenario, fleet: Fleet, progress: Progress) -> None:
    """Sets the kernel's credits to what the law allows now. Laws that allow groups with every step do so in
    `begin_step`."""
    lets_in = fleet.law.lets_in
    if isinstance(lets_in, EachStep):
        return
    limit = lets_in.limit(scenario.admission, fleet.sizes, progress)
    _grant(fleet, progress, limit - _COUNTS[lets_in.counts](fleet))


def begin_step(scenario: Scenario, fleet: Fleet, progress: Progress, step: int) -> None:
    """The trainer asks for a step's batch: a law that allows groups with every step allows them now."""
    progress.generating, progress.taken_of_round = True, 0
    lets_in = fleet.law.lets_in
    if isinstance(lets_in, EachStep):
        more = lets_in.groups(scenario.admission, fleet.sizes, step == 0)
        _grant(fleet, progress, fleet.get("credits") + more)
    top_up(scenario, fleet, progress)


def begin_window(fleet: Fleet, progress: Progress) -> None:
    """A version is published: the count of a sync window starts again from the groups that this version does not
    contain.

    These are the groups that are outstanding, and those that the trainer has taken since it made the version. verl
    counts only the first, and stops the trainer until it has counted (fully_async_trainer.py, _fit_update_weights), so
    it has none of the second kind. Where the trainer goes on meanwhile, what it took must still count: otherwise a
    later publication would let more groups start.
    """
    held = progress.taken_groups - progress.contained[progress.version]
    progress.window_start = fleet.started() - fleet.outstanding() - held


def give_back(fleet: Fleet, progress: Progress, groups: int) -> None:
    """Unfinished groups were aborted: a law that allows groups with every step no longer counts them."""
    if isinstance(fleet.law.lets_in, EachStep) and groups:
        _grant(fleet, progress, fleet.get("credits") + groups)


def _grant(fleet: Fleet, progress: Progress, free: int) -> None:
    fleet.set(credits=max(0, free))
    let_in = min(fleet.get("next_group") + max(0, free), PLENTY)
    if let_in == PLENTY:
        return  # without a limit a group is let in when it is sent
    if not progress.grants or let_in > progress.grants[-1][0]:
        progress.grants.append((let_in, progress.version))


def creation_version(progress: Progress, groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """The version that was published when admission let each group in; for groups that it never counted, the newest."""
    limits = np.array([limit for limit, _ in progress.grants], np.int64)
    versions = np.array([version for _, version in progress.grants] or [progress.triggered], np.int64)
    return versions[np.minimum(np.searchsorted(limits, groups, side="right"), len(versions) - 1)]
