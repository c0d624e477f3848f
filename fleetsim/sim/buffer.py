"""The buffer between fleet and trainer: which finished groups the trainer takes next, and which are too old for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import DONE, G_ABORTED, G_BLOCKED, G_READY, G_STALE, G_TRAINED
from fleetsim.policies.law import Progress
from fleetsim.policies.samples import AGE_ACTIONS, BATCH_RULES, IN_FLIGHT
from fleetsim.sim.admission import creation_version
from fleetsim.sim.fleet import Fleet

Ids = NDArray[np.int64]
YOUNG = 1 << 30


def reference_versions(scenario: Scenario, fleet: Fleet, progress: Progress, groups: Ids) -> Ids:
    """The weight version that each group's age is counted from. A group without any token yet never gets too old.

    With adapters that stay resident (finish_on_old_weights) a group's oldest token is of the version at its submission.
    """
    kind = scenario.admission.age_reference
    submitted: Ids = fleet.world.groups["version"][groups].astype(np.int64)
    if kind == "creation":
        # the kernel itself replaces what it filters: such a group was let in no later than it was sent
        return np.minimum(creation_version(progress, groups), submitted)
    if kind == "submission" or IN_FLIGHT[scenario.sync.in_flight].keeps_version or len(groups) == 0:
        return submitted
    samples = fleet.world.samples.take(fleet.samples_of(groups))
    versions = np.where(samples["first_token_s"] >= 0, samples["first_version"], YOUNG)
    size = fleet.world.groups["size"][groups]
    return np.minimum.reduceat(versions, np.cumsum(size) - size).astype(np.int64)


def too_old(scenario: Scenario, fleet: Fleet, progress: Progress, groups: Ids, version: int) -> NDArray[np.bool_]:
    """Whether `version` - reference > max_age for each group; never without an age limit."""
    limit = scenario.admission.max_age
    if limit is None or len(groups) == 0:
        return np.zeros(len(groups), bool)
    out: NDArray[np.bool_] = version - reference_versions(scenario, fleet, progress, groups) > limit
    return out


def version_order(fleet: Fleet, ready: Ids) -> Ids:
    """Oldest weight version first, then as they came in."""
    return ready[np.argsort(fleet.world.groups["version"][ready], kind="stable")]


def ready_groups(fleet: Fleet) -> Ids:
    """Groups in the buffer in the order in which they were completed."""
    return fleet.world.ready[: fleet.get("n_ready")].astype(np.int64)


def pick(scenario: Scenario, fleet: Fleet, progress: Progress, want: int, step: int) -> tuple[Ids, Ids]:
    """The next `want` groups, and the groups that were found too old; the first is empty when there are not enough.

    A group is too old when versions made - its reference > max_age, under an action that drops. A rule of reserved
    groups takes only the groups of this step. wait_for_oldest stops before the first group that is younger than an
    unfinished one. Under `wait`, groups that the next version would make too old come first, and nothing is taken while
    one of them is unfinished.
    """
    rule, order = BATCH_RULES[scenario.buffer.batch_rule], ready_groups(fleet)
    if rule.order == "version":
        order = version_order(fleet, order)
    if rule.reserved:
        order = order[fleet.world.groups["target"][order] == step]
    if scenario.buffer.wait_for_oldest:
        order = _older_than_unfinished(fleet, order)
    action = AGE_ACTIONS[scenario.admission.age_action]
    if action.waits:
        due = too_old(scenario, fleet, progress, order, progress.triggered + 1)
        order = np.concatenate([order[due], order[~due]])
        if too_old(scenario, fleet, progress, fleet.unfinished(), progress.triggered + 1).any():
            return order[:0], order[:0]
    if not action.drops:
        return order[: want if len(order) >= want else 0], order[:0]
    old = too_old(scenario, fleet, progress, order, progress.triggered)
    enough = np.cumsum(~old) >= want
    if not enough.any():
        return order[:0], order[old]
    last = int(np.argmax(enough))
    taken = order[: last + 1]
    return taken[~old[: last + 1]], taken[old[: last + 1]]


def _older_than_unfinished(fleet: Fleet, order: Ids) -> Ids:
    versions = fleet.world.groups["version"]
    unfinished = fleet.unfinished()
    if len(unfinished) == 0:
        return order
    older: Ids = order[versions[order] <= versions[unfinished].min()]
    return older


def take(fleet: Fleet, batch: Ids, step: int, now: float) -> None:
    """The trainer takes a batch."""
    groups = fleet.world.groups
    groups["trained_step"][batch] = step
    _leave(fleet, batch, int(G_TRAINED), now)


def drop(fleet: Fleet, old: Ids, now: float) -> None:
    """Groups too old to train are thrown away."""
    fleet.owe(old)
    _leave(fleet, old, int(G_STALE), now)


def abort(fleet: Fleet, late: Ids, now: float) -> None:
    """Finished groups that a first-finished batch did not need are thrown away; their tokens count as aborted."""
    _leave(fleet, late, int(G_ABORTED), now)
    samples = fleet.world.samples.take(fleet.samples_of(late))
    tokens = int(samples["made"][samples["status"] == DONE].sum())
    fleet.set(aborted_tokens=fleet.get("aborted_tokens") + tokens)


def _leave(fleet: Fleet, out: Ids, status: int, now: float) -> None:
    """Groups leave the buffer, or the queue before a full one; groups of that queue then come in, in order."""
    if len(out) == 0:
        return
    world = fleet.world
    state = world.groups["status"]
    state[out] = status
    world.groups["left_s"][out] = now
    inside, waiting = world.ready[: fleet.get("n_ready")], world.blocked[: fleet.get("n_blocked")]
    kept = inside[state[inside] == G_READY]
    at_door = waiting[state[waiting] == G_BLOCKED]
    enter = min(len(at_door), max(0, fleet.get("ready_cap") - len(kept)))
    world.ready[: len(kept)] = kept
    if len(at_door):
        state[at_door[:enter]] = G_READY
        world.ready[len(kept) : len(kept) + enter] = at_door[:enter]
        world.blocked[: len(at_door) - enter] = at_door[enter:]
    fleet.set(n_ready=len(kept) + enter, n_blocked=len(at_door) - enter)
