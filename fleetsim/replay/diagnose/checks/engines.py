"""What engines hold back: prompts computed again, a limit of running requests, work thrown away for want of KV blocks.

Do the siblings of a group find their prompt in the prefix cache? If not, that is configuration, not capacity. Is the
limit of running requests too low, so that others wait beside an empty KV cache? A preempted request computes its prompt
and output again: what computing a prompt token costs an engine is what both lose.
"""

from __future__ import annotations

from statistics import fmean

from fleetsim import units
from fleetsim.engine.defaults import BLOCK_SIZE
from fleetsim.replay.diagnose.checks.case import (
    KV_ROOM,
    WAITING,
    WORTH,
    Case,
    Reply,
    busy_share,
    metric_of,
    prompt_cost,
    round_count,
    unseen,
)
from fleetsim.replay.diagnose.cost import Claims
from fleetsim.replay.observe.lengths import expected_hits
from fleetsim.replay.observe.observed import InstanceView

# Of the reuse that is to be had: syncs that reset the cache and evictions cost some, this much they do not.
ENOUGH = 0.8
# Below this hit ratio there is too little to be had to look for.
TO_BE_HAD = 0.1


def prefix_cache(case: Case) -> Reply:
    """fault: caching is off, or hits stay well below what group size, prompt length and block size promise, and the
    prompts computed again cost something. unknown: no hit ratio, no prompt lengths, or no group size from elsewhere."""
    o, f, lengths = case.observed, case.observed.fleet, case.observed.lengths
    hit = f.prefix_hit if f is not None else None if o.logged is None else o.logged.prefix_hit
    group = case.group_size
    off = o.prefix_caching is False
    if off:
        hit = 0.0
    prompts, told = lengths is not None and lengths.prompt_mean is not None, "--given workload.group_size=N"
    missing = {
        what: add
        for what, add, there in (
            ("the hit ratio is not exported", metric_of(case, "prefix_hits"), hit is not None),
            ("prompt lengths are not exported", metric_of(case, "prompt_length"), prompts),
            ("samples per prompt are not known from anywhere else", told, group is not None),
        )
        if not there
    }
    if hit is None or group is None or lengths is None or lengths.prompt_mean is None:
        seen = () if hit is None or off else (f"hit ratio {units.share(hit)}",)
        caching = ("prefix caching is off",) if off else ()
        if f is None and hit is None:
            return unseen(
                case,
                next(iter(missing)),
                metric_of(case, "prefix_hits"),
                _stake(case),
            )
        needs = "say it with --given workload.group_size=N" if group is None else None
        pairs = _fewer_than_pairs(case, hit, caching)
        if pairs is not None:
            return pairs
        title, add = next(iter(missing.items()))
        return Reply("unknown", title, (*caching, *seen, *missing), needs, missing=add)
    prompt, block = lengths.prompt_mean, o.block_size or BLOCK_SIZE.get(o.engine or "vllm", 16)
    expected = expected_hits(group.value, prompt, block)
    evidence = [
        "prefix caching is off" if off else f"hit ratio {units.share(hit)}",
        f"groups of {group.value:g}, prompts of {prompt:,.0f} tokens, blocks of {block} allow {units.share(expected)}",
    ]
    if expected < TO_BE_HAD or hit >= ENOUGH * expected:
        title = "little to be had" if expected < TO_BE_HAD else "siblings find their prompt"
        return Reply("ok", title, evidence)
    share = _wasted(case, prompt, expected - hit, evidence)
    if share is not None and share < WORTH:
        return Reply("ok", "low hits, at little cost", evidence)
    return Reply("fault", "off on a group workload" if off else "low hits on a group workload", evidence,
        _next(case, group.value, prompt, block, hit, off),
        {} if share is None else ({"busy": share, "wait": share} if case.starving else {"busy": share}),
        "prompts are computed again for every sample of a group",
    )  # fmt: skip


def _stake(case: Case) -> tuple[str, ...]:
    """What a run log says of the prompts that siblings share."""
    lengths, group = case.observed.lengths, case.group_size
    if lengths is None or lengths.prompt_mean is None or group is None:
        return ()
    prompt, each = lengths.prompt_mean, f"groups of {group.value:g} share a prompt of {lengths.prompt_mean:,.0f} tokens"
    return (f"{each}, {units.share(prompt / (prompt + lengths.mean))} of what a sample holds",)


def _fewer_than_pairs(case: Case, hit: float | None, caching: tuple[str, ...]) -> Reply | None:
    """A trainer's prompts come in groups, of whatever size: pairs alone would find half of them. Hits well below that
    are a fault by themselves where they cost something; None where they are not, or nobody knows."""
    o, lengths = case.observed, case.observed.lengths
    step = o.trainer.step_s
    if case.group_size is not None or hit is None or lengths is None or lengths.prompt_mean is None:
        return None
    if step is None or step.source == "inferred":
        return None  # engines that serve users share no prompts
    prompt, block = lengths.prompt_mean, o.block_size or BLOCK_SIZE.get(o.engine or "vllm", 16)
    least = expected_hits(2.0, prompt, block)
    if least < TO_BE_HAD or hit >= ENOUGH * least:
        return None
    evidence = [
        *(caching or (f"hit ratio {units.share(hit)}",)),
        f"of prompts of {prompt:,.0f} tokens in blocks of {block}, groups of only two samples would find "
        f"{units.share(least)}",
    ]
    share = _wasted(case, prompt, least - hit, evidence)
    if share is None or share < WORTH:
        return None
    change = (
        "say how many samples a prompt has (1: then all is well):\n"
        "fleetsim replay ... --given workload.group_size=N --set fleet.group_placement=together"
    )
    if caching:
        change = f"give the engines --enable-prefix-caching; {change}"
    else:
        change = f"send a group's samples to one instance, and look at what resets the cache; {change}"
    return Reply("fault", "fewer hits than groups of two would give", evidence, change,
        {"busy": share, "wait": share} if case.starving else {"busy": share},
        "prompts are computed again for the samples of a group",
    )  # fmt: skip


def _wasted(case: Case, prompt: float, missed: float, evidence: list[str]) -> float | None:
    """The share of the rollout GPUs' time in which prompts are computed that the cache could have held."""
    f, cost = case.observed.fleet, prompt_cost(case)
    if f is None or f.finished_s is None or cost is None:
        return None
    share = busy_share(case, f.finished_s * prompt * missed, cost)
    if share is not None:
        evidence.append(
            f"computing them again takes {units.share(share)} of the engines' time, at "
            f"{units.seconds(cost.seconds)} per prompt token ({cost.words})"
        )
    return share


def _next(case: Case, group: float, prompt: float, block: int, hit: float, off: bool) -> str:
    """The flag to change: caching itself, or where the siblings go."""
    if off:
        return (
            "give the engines --enable-prefix-caching; simulated:\nfleetsim replay ... --set engine.prefix_caching=true"
        )
    n = case.observed.fleet.instances if case.observed.fleet is not None else 1.0
    places = n * (1.0 - (1.0 - 1.0 / n) ** group) if n > 1 else 1.0
    if n > 1 and hit <= 1.25 * expected_hits(group, prompt, block, places) + 0.02:
        send = "send a group's samples to one instance; simulated:"
        return f"{send}\nfleetsim replay ... --set fleet.group_placement=together"
    look = "look at what resets or evicts the cache; without the reset at every sync:"
    return f"{look}\nfleetsim replay ... --set sync.reset_prefix_cache=false"


# The instances run the same number of requests to within this, when it is a limit and not their load that sets it.
SAME = 0.05
# A limit that nobody gave is inferred only where more than this wait: a few percent of the requests are always on
# their way into a batch, with prompts still to be computed.
INFERRED = 0.15
# Of the times at which requests wait: with a limit, as many run as the limit allows, but for slots being refilled.
AT_THE_TOP = 0.7
# Limits that people set; a mean just below one is that limit, with the moments in which a slot is refilled.
_USUAL = (8, 16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 2048)


def max_num_seqs(case: Case) -> Reply:
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
        return unseen(case, title, "vllm:num_requests_waiting", _in_flight(case))
    if not running or waiting is None or f.running is None:
        missing = metric_of(case, "waiting" if running else "running")
        return Reply("unknown", "running and waiting requests are not exported", missing=missing)
    mean = fmean(running)
    evidence = [f"{mean:,.0f} requests run on an instance, {units.share(waiting)} of all wait there"]
    if waiting <= WAITING:
        return Reply("ok", "nothing waits in the engines", evidence)
    if case.kv_full is None:
        title, missing = "requests wait, but KV use is not exported", metric_of(case, "kv_use")
        return Reply("unknown", title, evidence, missing=missing)
    peak = f.kv_use_peak or 0.0
    evidence.append(f"KV caches reach {units.share(peak)}")
    if case.kv_full:
        return Reply("ok", "requests wait for KV blocks, not for a slot", evidence)
    given = case.scenario.engine.max_num_seqs if case.says("engine.max_num_seqs") else None
    limit = given or _ceiling(case.observed.instances)
    spread = (max(running) - min(running)) / mean if mean > 0 else 1.0
    spread = 0.0 if limit is not None else spread
    if (given is not None and mean < 0.9 * given) or (given is None and (spread > 2 * SAME or waiting < INFERRED)):
        evidence.append(f"instances run from {min(running):,.0f} to {max(running):,.0f}: no common limit")
        return Reply("ok", "requests wait, but not at a limit", evidence)
    limit = limit or _limit(mean)
    if case.starving is False:
        evidence.append("the trainer does not wait for it")
        return Reply("ok", "requests wait for a slot, at no cost to the trainer", evidence)
    evidence.append(f"every instance runs up to {limit}: a limit of {limit}" + ("" if given else " (inferred)"))
    more = _raised(limit, peak)
    share = waiting if case.starving else 0.0
    return Reply("fault", f"engines run {limit} requests, others wait, and the KV cache has room",
        evidence,
        f"give the engines --max-num-seqs {more}; simulated:\nfleetsim replay ... --set engine.max_num_seqs={more}",
        case.shorter(share) if share else {}, f"max_num_seqs of about {limit} holds requests back",
    )  # fmt: skip


def _of_log(case: Case, running: float, waiting: float) -> Reply:
    """What the run log says of an instance's requests, on average; which limit they meet it does not."""
    share = waiting / (running + waiting)
    evidence = (f"{running:,.0f} requests run on an instance, {units.share(share)} of all wait there",)
    if share <= WAITING:
        return Reply("ok", "nothing waits in the engines", evidence)
    title = "requests wait, but not whether at a limit of the engine"
    return unseen(case, title, "vllm:num_requests_running of each instance", evidence)


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


def preemptions(case: Case) -> Reply:
    """fault: more than RARE preemptions per finished request that cost WORTH of the engines' time, or whose cost is not
    known. ok also where they are a symptom of a fleet that is too small. unknown: preemptions are not exported."""
    f, lengths = case.observed.fleet, case.observed.lengths
    if f is None:
        return unseen(case, "not known", "vllm:num_preemptions_total")
    if f.preemptions_per_s is None:
        return Reply("unknown", "not exported", missing=metric_of(case, "preemptions"))
    rate = f.preemptions_per_s
    evidence = [f"{units.count(round(rate * 3600))} preemptions an hour"]
    if f.kv_use_peak is not None:
        evidence.append(f"KV caches reach {units.share(f.kv_use_peak)}")
    if rate <= 0:
        return Reply("ok", "none", evidence)
    if f.finished_s is None or f.finished_s <= 0:
        title, missing = "how many requests finish is not exported", metric_of(case, "finished")
        return Reply("unknown", title, evidence, missing=missing)
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
        return Reply("ok", "rare" if per_request <= RARE else "at little cost", evidence)
    few = _too_few(case, evidence)
    if few:
        return Reply("ok", "a symptom: too few instances for the load", evidence)
    running = 0.0 if f.running is None or f.instances <= 0 else f.running / f.instances
    fewer = max(1, round_count(running * KV_ROOM))
    change = _remedy(case)
    if running:
        change += f":\nfleetsim replay ... --set fleet.max_in_flight_samples_per_instance={fewer}"
    claims: Claims = {} if share is None else ({"busy": share, "wait": share} if case.starving else {"busy": share})
    return Reply("fault", "engines throw running requests out", evidence,
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
