"""Is the engine's own limit of running requests too low? Then requests wait beside an empty KV cache."""

from __future__ import annotations

from statistics import fmean

from fleetsim import units
from fleetsim.replay.diagnose.checks.case import KV_ROOM, WAITING, Case, Earlier, Reply, metric_of, round_count, unseen
from fleetsim.replay.observe.observed import InstanceView

# The instances run the same number of requests to within this, when it is a limit and not their load that sets it.
SAME = 0.05
# A limit that nobody gave is inferred only where more than this wait: a few percent of the requests are always on
# their way into a batch, with prompts still to be computed.
INFERRED = 0.15
# Of the times at which requests wait: with a limit, as many run as the limit allows, but for slots being refilled.
AT_THE_TOP = 0.7
# Limits that people set; a mean just below one is that limit, with the moments in which a slot is refilled.
_USUAL = (8, 16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 2048)


def check(case: Case, earlier: Earlier) -> Reply:
    """fault: requests wait in the engines, KV caches have room, and every instance runs the same number of requests
    (or the limit that the scenario gives). unknown: waiting, running or KV use is not exported."""
    f = case.observed.fleet
    running = [i.running for i in case.observed.instances if i.running is not None]
    waiting = case.waiting_share
    if f is None:
        logged = case.observed.logged
        if logged is not None and logged.running and logged.waiting is not None:
            return _of_log(case, logged.running, logged.waiting)
        title = "running and waiting requests are not exported"
        return unseen(case, "max_num_seqs", title, "vllm:num_requests_waiting", _in_flight(case))
    if not running or waiting is None or f.running is None:
        missing = metric_of(case, "waiting" if running else "running")
        return Reply("max_num_seqs", "unknown", "running and waiting requests are not exported", missing=missing)
    mean = fmean(running)
    evidence = [f"{mean:,.0f} requests run on an instance, {units.share(waiting)} of all wait there"]
    if waiting <= WAITING:
        return Reply("max_num_seqs", "ok", "nothing waits in the engines", tuple(evidence))
    if case.kv_full is None:
        title, missing = "requests wait, but KV use is not exported", metric_of(case, "kv_use")
        return Reply("max_num_seqs", "unknown", title, tuple(evidence), missing=missing)
    peak = f.kv_use_peak or 0.0
    evidence.append(f"KV caches reach {units.share(peak)}")
    if case.kv_full:
        return Reply("max_num_seqs", "ok", "requests wait for KV blocks, not for a slot", tuple(evidence))
    given = case.scenario.engine.max_num_seqs if case.says("engine.max_num_seqs") else None
    limit = given or _ceiling(case.observed.instances)
    spread = (max(running) - min(running)) / mean if mean > 0 else 1.0
    spread = 0.0 if limit is not None else spread
    if (given is not None and mean < 0.9 * given) or (given is None and (spread > 2 * SAME or waiting < INFERRED)):
        evidence.append(f"instances run from {min(running):,.0f} to {max(running):,.0f}: no common limit")
        return Reply("max_num_seqs", "ok", "requests wait, but not at a limit", tuple(evidence))
    limit = limit or _limit(mean)
    if case.starving is False:
        evidence.append("the trainer does not wait for it")
        return Reply("max_num_seqs", "ok", "requests wait for a slot, at no cost to the trainer", tuple(evidence))
    evidence.append(f"every instance runs up to {limit}: a limit of {limit}" + ("" if given else " (inferred)"))
    more = _raised(limit, peak)
    share = waiting if case.starving else 0.0
    return Reply(
        "max_num_seqs", "fault", f"engines run {limit} requests, others wait, and the KV cache has room",
        tuple(evidence),
        f"give the engines --max-num-seqs {more}; simulated:\nfleetsim replay ... --set engine.max_num_seqs={more}",
        case.shorter(share) if share else {}, f"max_num_seqs of about {limit} holds requests back",
    )  # fmt: skip


def _of_log(case: Case, running: float, waiting: float) -> Reply:
    """What the run log says of an instance's requests, on average; which limit they meet it does not."""
    share = waiting / (running + waiting)
    evidence = (f"{running:,.0f} requests run on an instance, {units.share(share)} of all wait there",)
    if share <= WAITING:
        return Reply("max_num_seqs", "ok", "nothing waits in the engines", evidence)
    title = "requests wait, but not whether at a limit of the engine"
    return unseen(case, "max_num_seqs", title, "vllm:num_requests_running of each instance", evidence)


def _in_flight(case: Case) -> tuple[str, ...]:
    """What a run log says of the engines' load."""
    logged = case.observed.logged
    if logged is None or logged.in_flight is None:
        return ()
    return (f"{logged.in_flight:,.0f} samples in generation on average, on all instances",)


def _ceiling(instances: tuple[InstanceView, ...]) -> int | None:
    """What every instance runs at the most, where those that have requests waiting mostly run as many; None where they
    do not."""
    peaks = [i.running_peak for i in instances if i.running_peak is not None]
    full = [i.full_share for i in instances if i.full_share is not None]
    if not peaks or not full or max(peaks) - min(peaks) > SAME * max(peaks) or fmean(full) < AT_THE_TOP:
        return None
    return round(max(peaks))


def _limit(mean: float) -> int:
    """The usual limit that the mean stands just below, else the mean itself."""
    return next((u for u in _USUAL if u * (1 - 2 * SAME) <= mean <= u), round(mean))


def _raised(limit: int, kv_peak: float) -> int:
    """Twice the limit, or what fills the KV cache up to KV_ROOM if that is less, in a round number."""
    room = KV_ROOM / kv_peak if kv_peak > 0 else 2.0
    more = limit * min(2.0, room)
    return round_count(more) if round_count(more) > limit else max(limit + 1, int(more))
