"""What engines hold back: is their limit of running requests too low, so that others wait beside an empty KV cache?

And do they throw work away for want of KV blocks? A preempted request computes its prompt and output again.
"""

from __future__ import annotations

from statistics import fmean

from fleetsim import units
from fleetsim.replay.diagnose.checks.case import (
    KV_ROOM,
    WAITING,
    WORTH,
    Case,
    Earlier,
    Reply,
    metric_of,
    round_count,
    unseen,
)
from fleetsim.replay.diagnose.checks.prefix_cache import busy_share, prompt_cost
from fleetsim.replay.diagnose.cost import Claims
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


def max_num_seqs(case: Case, earlier: Earlier) -> Reply:
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


# Preemptions per finished request: a rare one is the price of a full cache, more is thrashing.
RARE = 0.05
# What an engine calls the share of its GPU's memory that the KV cache may take.
MEMORY = {
    "vllm": "--gpu-memory-utilization",
    "sglang": "--mem-fraction-static",
    "tensorrt-llm": "kv_cache_config.free_gpu_memory_fraction",
}
# Of the trainer's wait: where removing every preemption gives back less, and more instances more, the KV caches are too
# small for the load only because the fleet is.
LITTLE = 1 / 3


def preemptions(case: Case, earlier: Earlier) -> Reply:
    """fault: more than RARE preemptions per finished request that cost WORTH of the engines' time, or whose cost is not
    known. ok also where they are a symptom of a fleet that is too small. unknown: preemptions are not exported."""
    f, lengths = case.observed.fleet, case.observed.lengths
    if f is None:
        return unseen(case, "preemptions", "not known", "vllm:num_preemptions_total")
    if f.preemptions_per_s is None:
        return Reply("preemptions", "unknown", "not exported", missing=metric_of(case, "preemptions"))
    rate = f.preemptions_per_s
    evidence = [f"{units.count(round(rate * 3600))} preemptions an hour"]
    if f.kv_use_peak is not None:
        evidence.append(f"KV caches reach {units.share(f.kv_use_peak)}")
    if rate <= 0:
        return Reply("preemptions", "ok", "none", tuple(evidence))
    if f.finished_s is None or f.finished_s <= 0:
        title, missing = "how many requests finish is not exported", metric_of(case, "finished")
        return Reply("preemptions", "unknown", title, tuple(evidence), missing=missing)
    per_request = rate / f.finished_s
    evidence.append(f"{per_request:.2f} per finished request")
    share, cost = None, prompt_cost(case)
    if lengths is not None and cost is not None:
        lost = (lengths.prompt_mean or 0.0) * (1.0 - (f.prefix_hit or 0.0)) + lengths.mean / 2.0
        share = busy_share(case, rate * lost, cost)
        if share is not None:
            evidence += [
                f"each computes up to {units.tokens(lost)} tokens again (prompt not cached; assumed, half its output)",
                f"that takes {units.share(share)} of the engines' time, at {units.seconds(cost.seconds)} per token "
                f"({cost.words})",
            ]
    if per_request <= RARE or (share is not None and share < WORTH):
        return Reply("preemptions", "ok", "rare" if per_request <= RARE else "at little cost", tuple(evidence))
    few = _too_few(case, evidence)
    if few:
        return Reply("preemptions", "ok", "a symptom: too few instances for the load", tuple(evidence))
    running = 0.0 if f.running is None or f.instances <= 0 else f.running / f.instances
    fewer = max(1, round_count(running * KV_ROOM))
    change = _remedy(case)
    if running:
        change += f":\nfleetsim replay ... --set fleet.max_in_flight_samples_per_instance={fewer}"
    claims: Claims = {} if share is None else ({"busy": share, "wait": share} if case.starving else {"busy": share})
    return Reply(
        "preemptions", "fault", "engines throw running requests out", tuple(evidence),
        change, claims, "engines preempt requests for want of KV blocks",
    )  # fmt: skip


def _remedy(case: Case) -> str:
    """By the name that the engine at hand has for it."""
    memory = MEMORY.get(case.observed.engine or "vllm", MEMORY["vllm"])
    return f"give the KV caches more memory ({memory}), or the client a lower cap on what is in flight"


def _too_few(case: Case, evidence: list[str]) -> bool:
    """Whether the trainer waits for instances, not for the tokens that preempted requests compute again."""
    freed, more = case.ranked.get("preemptions"), case.ranked.get("rollout")
    if not case.starving or case.idle is None or freed is None or more is None:
        return False
    if freed >= LITTLE * case.idle.value or freed >= more:
        return False
    evidence.append(
        f"simulated, KV caches of twice the size make a step {units.share(max(0.0, freed))} shorter, a quarter more "
        f"instances {units.share(more)}"
    )
    return True
