"""Is the fleet too large? A backlog that grows without bound is a bug, not a buffer."""

from __future__ import annotations

import math

from fleetsim import units
from fleetsim.replay.diagnose.checks.case import Case, Earlier, Reply, faults
from fleetsim.replay.observe.trainer import grows

# Samples thrown away, of those generated; filters and aborted leftovers are counted with them where the trainer does.
DROPPED = 0.05
# Instance-time without any work, while the trainer does not wait for samples.
IDLE = 0.15
# KV caches that never fill beyond this have room for twenty times the requests: fewer instances might do.
LIGHT = 0.05
# Of the fleet beyond what the trainer needs with its headroom: less than this a simulation does not know for sure.
SPARE = 0.2
TOO_LARGE = "the fleet is larger than the trainer needs"


def check(case: Case, earlier: Earlier) -> Reply:
    """fault: the queue grows by a batch or more over the window and by more than GROWS of the production; or many
    samples are thrown away, or instances stand without work, or half of them make a step no longer (by simulation),
    while the trainer has enough. unknown: instances have next to no requests, and nobody simulated fewer."""
    q = case.observed.queue
    evidence: list[str] = []
    if q.depth is not None and q.depth_max is not None:
        evidence.append(f"{q.depth:,.0f} samples queue on average, {q.depth_max:,.0f} at the most")
    if q.oldest_age_max_steps is not None:
        evidence.append(f"the oldest is up to {units.plural(q.oldest_age_max_steps, 'step')} old{_budget(case)}")
    if q.dropped_share is not None:
        evidence.append(f"{units.share(q.dropped_share)} of the samples are thrown away")
    if q.generated_per_trained is not None:
        evidence.append(f"{q.generated_per_trained:.2f} tokens generated per token trained")
    slow = faults(earlier, "trainer")
    growth = grows(case.observed, case.scenario.trainer.batch_samples)
    if growth is not None:
        per_h, share = growth
        evidence.append(f"it grows by {per_h:,.0f} samples an hour, {units.share(share)} of what is produced")
        return Reply(
            "backlog", "fault", "the queue grows without bound" + (": the trainer is slow" if slow else ""),
            tuple(evidence), f"fleetsim replay ... --set buffer.capacity_samples={_cap(case)} --recommend",
            {"busy": share}, "the backlog grows without bound",
        )  # fmt: skip
    if case.starving:
        return Reply("backlog", "ok", "no: the trainer waits", tuple(evidence))
    idle = None if case.colocated else case.engines_idle
    if idle is not None:
        evidence.append(f"instances stand without work {units.share(idle)} of the time")
    if case.observed.fleet is None and idle is not None and slow and case.starving is False:
        left = idle - sum(d.claims.get("idle", 0.0) for d in slow)
        if left > IDLE:
            return Reply(
                "backlog", "fault", "more instances than the trainer needs", tuple(evidence),
                "with what is known of the job:\nfleetsim replay ... --scenario job.yaml --recommend",
                {"idle": left}, TOO_LARGE,
            )  # fmt: skip
    if case.starving is False and not case.colocated and not slow:
        found = _too_many(case, idle, evidence)
        if found is not None:
            return found
    if q.depth is None and idle is None:
        return Reply(
            "backlog", "unknown", "queue depth is not exported", tuple(evidence),
            "name your own metric with --map queue.samples=METRIC", missing="--map queue.samples=METRIC",
        )  # fmt: skip
    return Reply("backlog", "ok", "bounded" if q.depth is not None else "instances have work", tuple(evidence))


def _too_many(case: Case, idle: float | None, evidence: list[str]) -> Reply | None:
    """What a trainer that neither waits nor is slow says of the fleet; None where nothing is too much. idle: of the
    instances' time."""
    dropped = case.observed.queue.dropped_share
    if dropped is not None and dropped > DROPPED:
        return Reply(
            "backlog", "fault", "more is generated than trained", tuple(evidence),
            "fleetsim replay ... --recommend", {"busy": dropped, "idle": idle or 0.0},
            "the fleet generates samples that nobody trains on",
        )  # fmt: skip
    if idle is not None and idle > IDLE:
        return Reply(
            "backlog", "fault", "more instances than the trainer needs", tuple(evidence),
            "fleetsim replay ... --recommend", {"idle": idle}, TOO_LARGE,
        )  # fmt: skip
    spare = _spare(case, evidence)
    if spare > 0:
        return Reply(
            "backlog", "fault", "more instances than the trainer needs", tuple(evidence),
            "fleetsim replay ... --recommend", {"idle": idle or 0.0, "busy": max(0.0, spare - (idle or 0.0))},
            TOO_LARGE,
        )  # fmt: skip
    if _lightly_loaded(case, evidence):
        return Reply(
            "backlog", "unknown", "next to no requests per instance: fewer instances might do", tuple(evidence),
            "fleetsim replay ... --recommend", missing="a back-test that holds",
        )  # fmt: skip
    return None


def _spare(case: Case, evidence: list[str]) -> float:
    """The share of the fleet that a step does not miss, by simulation and with the targets' headroom; 0 if little."""
    f, enough = case.observed.fleet, case.enough
    if f is None or enough is None or f.instances_now < 1:
        return 0.0
    headroom = case.scenario.targets.headroom
    wanted = math.ceil(enough / headroom - 1e-9)
    spare = 1.0 - wanted / f.instances_now
    if spare <= SPARE:
        return 0.0
    evidence += _load(case)
    evidence.append(
        f"simulated, {enough} of {f.instances_now} instances make a step no longer ({wanted} with a headroom of "
        f"{headroom:g}): the trainer does not need {units.share(spare)} of the rollout GPUs' time"
    )
    return spare


def _lightly_loaded(case: Case, evidence: list[str]) -> bool:
    """Whether KV caches that stay next to empty hint at a fleet that is too large, and nobody simulated fewer."""
    f = case.observed.fleet
    if case.enough is not None or f is None or f.kv_use_peak is None or f.kv_use_peak > LIGHT or f.instances_now < 2:
        return False
    evidence += _load(case)
    return True


def _load(case: Case) -> list[str]:
    f = case.observed.fleet
    if f is None or f.running is None:
        return []
    kv = "" if f.kv_use_peak is None else f", its KV cache at {units.share(f.kv_use_peak)} at the most"
    return [f"{f.running / max(f.instances, 1e-9):,.0f} requests run on an instance{kv}"]


def _cap(case: Case) -> int:
    """A queue of one batch: what a step takes, and one step of staleness."""
    batch = case.observed.trainer.batch_samples
    return round(batch.value) if batch is not None else case.scenario.trainer.batch_samples


def _budget(case: Case) -> str:
    """The staleness budget, where somebody gave one."""
    if case.says("admission.max_staleness"):
        return f", budget {case.scenario.admission.max_staleness:g}"
    return ""
