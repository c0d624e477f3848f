"""Which group may start: each admission law is a number of groups that may be outstanding, as a plain function.

Outstanding = sent and neither trained nor thrown away. Credits (groups that the kernel may still send) are topped up
to it whenever something changes: at the start, when a batch is taken, when a version is published, when groups are
dropped. What the filter or a full buffer throws away inside the kernel returns its credit there and then, unless the
law counts starts (per_sync_window).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.sim.fleet import Fleet

PLENTY = 1 << 40


@dataclass(slots=True)
class Progress:
    """How far the run is.

    version: published weight version, the oldest that any instance serves. triggered: versions that the trainer has
    made; updates[v], contained[v]: optimizer steps and groups contained in version v. taken_groups: taken to train,
    taken_of_round: of the current step. generating: whether a barrier's round is open. round_groups: groups of that
    round, None = the law's own number. window_start: groups started before the current sync window, less those that
    its version left to be trained. grants: (groups that admission had let in, version then), in order.
    """

    version: int = 0
    triggered: int = 0
    updates: list[float] = field(default_factory=lambda: [0.0])
    contained: list[int] = field(default_factory=lambda: [0])
    taken_groups: int = 0
    taken_of_round: int = 0
    generating: bool = False
    round_groups: int | None = None
    window_start: int = 0
    grants: list[tuple[int, int]] = field(default_factory=list)


def round_groups(scenario: Scenario) -> int:
    """Groups started for one batch: oversampling x B / G, rounded up."""
    return math.ceil(scenario.buffer.oversampling * scenario.groups_per_step - 1e-9)


def groups_per_version(scenario: Scenario) -> int:
    """Groups trained between two publications."""
    sync, step = scenario.sync, scenario.groups_per_step
    if sync.trigger == "pulls":
        return (sync.every_pulls or 1) * step // scenario.trainer.minibatches
    if sync.trigger == "samples":
        return math.ceil((sync.every_samples or 1) / scenario.trainer.batch_samples) * step
    return sync.every_steps * step


def barrier(scenario: Scenario, progress: Progress) -> int:
    """One batch, started when the trainer is done with the last one and has published."""
    if not progress.generating:
        return 0
    whole = round_groups(scenario) if progress.round_groups is None else progress.round_groups
    return whole - progress.taken_of_round


def batches_ahead(scenario: Scenario, progress: Progress) -> int:
    """k batches beyond the one being trained (OpenRLHF's semaphore, one-step-off for k = 1)."""
    return scenario.admission.batches_ahead * round_groups(scenario)


def version_window(scenario: Scenario, progress: Progress) -> int:
    """(eta + v + 1) * B - accepted (AReaL), B the groups trained per published version."""
    window = (scenario.admission.max_staleness + progress.version + 1) * groups_per_version(scenario)
    return math.floor(window + 1e-9) - progress.taken_groups


def sync_window(scenario: Scenario) -> int:
    """Groups that may start in one sync window, those in flight and queued at its begin included (verl)."""
    return math.floor(groups_per_version(scenario) * (1 + scenario.admission.staleness_threshold) + 1e-9)


def unbounded(scenario: Scenario, progress: Progress) -> int:
    """Whatever the engines can hold."""
    return PLENTY


LAWS: dict[str, Callable[[Scenario, Progress], int]] = {
    "barrier": barrier,
    "batches_ahead": batches_ahead,
    "version_window": version_window,
    "target_step": version_window,
    "unbounded": unbounded,
    "adaptive": unbounded,
}


def top_up(scenario: Scenario, fleet: Fleet, progress: Progress) -> None:
    """Sets the kernel's credits to what the law allows now; a cumulative ratio grants by the step (`begin_step`)."""
    law = scenario.admission.law
    if law == "cumulative_ratio":
        return
    if law == "fixed_pool":
        free = (scenario.admission.pool_samples or 0) // scenario.workload.group_size - fleet.open_groups()
    elif law == "per_sync_window":
        free = progress.window_start + sync_window(scenario) - fleet.started()
    else:
        free = LAWS[law](scenario, progress) - fleet.outstanding()
    _grant(fleet, progress, free)


def begin_step(scenario: Scenario, fleet: Fleet, progress: Progress, step: int) -> None:
    """The trainer asks for a step's batch: a cumulative ratio lets B more groups in, alpha * B more at the start."""
    progress.generating, progress.taken_of_round = True, 0
    if scenario.admission.law == "cumulative_ratio":
        ahead = math.ceil(scenario.admission.async_ratio * scenario.groups_per_step - 1e-9) if step == 0 else 0
        _grant(fleet, progress, fleet.get("credits") + scenario.groups_per_step + ahead)
    top_up(scenario, fleet, progress)


def begin_window(fleet: Fleet, progress: Progress) -> None:
    """A version is published: the count of a sync window restarts at what that version does not contain.

    That is what is outstanding and what the trainer has taken since it made the version. verl counts the first alone,
    and holds the trainer until it has counted (fully_async_trainer.py, _fit_update_weights): there is no second. Where
    the trainer goes on meanwhile, what it took must not make room: a later publication would let more groups start.
    """
    held = progress.taken_groups - progress.contained[progress.version]
    progress.window_start = fleet.started() - fleet.outstanding() - held


def give_back(scenario: Scenario, fleet: Fleet, progress: Progress, groups: int) -> None:
    """Unfinished groups were aborted: a cumulative ratio counts them no more."""
    if scenario.admission.law == "cumulative_ratio" and groups:
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
