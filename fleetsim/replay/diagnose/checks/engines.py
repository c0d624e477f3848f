"""What engines hold back: prompts computed again, a limit of running requests, work thrown away for want of KV blocks.

Do the siblings of a group find their prompt in the prefix cache? If not, that is configuration, not capacity. Is the
limit of running requests too low, so that others wait beside an empty KV cache? A preempted request computes its prompt
and output again. What any of it costs a step, simulation says.
"""

from __future__ import annotations

from statistics import fmean

from fleetsim import units
from fleetsim.engine.defaults import BLOCK_SIZE
from fleetsim.replay.diagnose.checks.case import (
    INFERRED,
    KV_ROOM,
    WAITING,
    WORTH,
    Case,
    Reply,
    metric_of,
    round_count,
    unseen,
)
from fleetsim.replay.diagnose.finding import Shares
from fleetsim.replay.observe.lengths import expected_hits, places_when_spread
from fleetsim.replay.observe.paces import SAME, ceiling_of
from fleetsim.search.change import Typed

# Of the reuse that is to be had: syncs that reset the cache and evictions cost some, this much they do not.
ENOUGH = 0.8
# Below this hit ratio there is too little to be had to look for.
TO_BE_HAD = 0.1


def prefix_cache(case: Case) -> Reply:
    """fault: the trainer waits, and caching is off, or hits stay well below what group size, prompt length and block
    size promise; below what pairs would find, where nobody says the size of a group: a trainer's prompts come in
    groups, of whatever size. unknown: no hit ratio, no prompt lengths, or no group size from elsewhere."""
    o, f, lengths, group = case.observed, case.observed.fleet, case.observed.lengths, case.group_size
    hit = f.prefix_hit if f is not None else None if o.logged is None else o.logged.prefix_hit
    off, prompt = o.prefix_caching is False, None if lengths is None else lengths.prompt_mean
    hit = 0.0 if off else hit
    missing = {
        what: add
        for what, add, there in (
            ("the hit ratio is not exported", metric_of(case, "prefix_hits"), hit is not None),
            ("prompt lengths are not exported", metric_of(case, "prompt_length"), prompt is not None),
            ("samples per prompt are not known from anywhere else", "--given workload.group_size=N", group is not None),
        )
        if not there
    }
    title, add = next(iter(missing.items()), ("", ""))
    stake: tuple[str, ...] = ()
    if lengths is not None and prompt is not None and group is not None:
        share = units.share(prompt / (prompt + lengths.mean))
        stake = (f"groups of {group.value:g} share a prompt of {prompt:,.0f} tokens, {share} of what a sample holds",)
    if f is None and hit is None:
        return unseen(case, title, metric_of(case, "prefix_hits"), stake)
    evidence = ["prefix caching is off"] if off else [] if hit is None else [f"hit ratio {units.share(hit)}"]
    # engines that serve users share no prompts
    trained = o.trainer.step_s is not None and o.trainer.step_s.source != "inferred"
    size = group.value if group is not None else 2.0 if trained else None
    block = o.block_size or BLOCK_SIZE.get(o.engine or "vllm", 16)
    expected = None if prompt is None or size is None else expected_hits(size, prompt, block)
    low = hit is not None and expected is not None and expected >= TO_BE_HAD and hit < ENOUGH * expected
    if (
        hit is None
        or lengths is None
        or prompt is None
        or expected is None
        or (group is None and (not low or case.unhurt))
    ):
        needs = "say it with --given workload.group_size=N" if group is None else None
        return Reply("unknown", title, (*evidence, *missing), needs, missing=add)
    # Of all tokens those of prompts computed again; of the time less, as a prompt's are computed together.
    again = prompt * (expected - hit) / (prompt * (1.0 - hit) + lengths.mean)
    gives = None if case.at_most is None else (min(again, case.at_most[0]), min(again, case.at_most[1]))
    if group is None:
        return _fewer_than_pairs(case, evidence, prompt, block, expected, gives)
    allow = f"groups of {group.value:g}, prompts of {prompt:,.0f} tokens, blocks of {block} allow"
    evidence.append(f"{allow} {units.share(expected)}")
    if not low:
        return Reply("ok", "little to be had" if expected < TO_BE_HAD else "siblings find their prompt", evidence)
    if case.unhurt or again < WORTH:
        return Reply("ok", f"low hits, at {'no cost to the trainer' if case.unhurt else 'little cost'}", evidence)
    return Reply("fault", "off on a group workload" if off else "low hits on a group workload", evidence,
        _next(case, group.value, prompt, block, hit, off), gives,
        "prompts are computed again for every sample of a group",
    )  # fmt: skip


def _fewer_than_pairs(
    case: Case, evidence: list[str], prompt: float, block: int, least: float, gives: Shares | None
) -> Reply:
    """Hits below those of pairs: least."""
    said = f"of prompts of {prompt:,.0f} tokens in blocks of {block}, groups of only two samples would find"
    off = case.observed.prefix_caching is False
    first = "give the engines --enable-prefix-caching"
    first = first if off else "send a group's samples to one instance, and look at what resets the cache"
    change = (
        f"{first}; say how many samples a prompt has (1: then all is well):\n"
        "fleetsim replay ... --given workload.group_size=N --set fleet.group_placement=together"
    )
    return Reply("fault", "fewer hits than groups of two would give", (*evidence, f"{said} {units.share(least)}"),
        change, gives, "prompts are computed again for the samples of a group",
    )  # fmt: skip


def _next(case: Case, group: float, prompt: float, block: int, hit: float, off: bool) -> str:
    """The flag to change: caching itself, or where the siblings go."""
    if off:
        return (
            "give the engines --enable-prefix-caching; simulated:\nfleetsim replay ... --set engine.prefix_caching=true"
        )
    n = case.observed.fleet.instances if case.observed.fleet is not None else 1.0
    if n > 1 and hit <= 1.25 * expected_hits(group, prompt, block, places_when_spread(group, n)) + 0.02:
        send = "send a group's samples to one instance; simulated:"
        return f"{send}\nfleetsim replay ... --set fleet.group_placement=together"
    look = "look at what resets or evicts the cache; without the reset at every sync:"
    return f"{look}\nfleetsim replay ... --set sync.reset_prefix_cache=false"


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
        flying = None if logged is None else logged.in_flight
        seen = () if flying is None else (f"{flying:,.0f} samples in generation on average, on all instances",)
        return unseen(case, title, "vllm:num_requests_waiting", seen)
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
    given = case.max_num_seqs
    limit = given or ceiling_of(case.observed.instances)
    spread = (max(running) - min(running)) / mean if mean > 0 else 1.0
    spread = 0.0 if limit is not None else spread
    if (given is not None and mean < 0.9 * given) or (given is None and (spread > 2 * SAME or waiting < INFERRED)):
        evidence.append(f"instances run from {min(running):,.0f} to {max(running):,.0f}: no common limit")
        return Reply("ok", "requests wait, but not at a limit", evidence)
    limit = limit or next((u for u in _USUAL if u * (1 - 2 * SAME) <= mean <= u), round(mean))
    if case.starving is False:
        evidence.append("the trainer does not wait for it")
        return Reply("ok", "requests wait for a slot, at no cost to the trainer", evidence)
    evidence.append(f"every instance runs up to {limit}: a limit of {limit}" + ("" if given else " (inferred)"))
    # twice the limit, or what fills the KV cache up to KV_ROOM if that is less, in a round number
    most = limit * min(2.0, KV_ROOM / peak if peak > 0 else 2.0)
    more = round_count(most) if round_count(most) > limit else max(limit + 1, int(most))
    return Reply("fault", f"engines run {limit} requests, others wait, and the KV cache has room",
        evidence,
        f"give the engines --max-num-seqs {more}; simulated:\nfleetsim replay ... --set engine.max_num_seqs={more}",
        case.at_most, f"max_num_seqs of about {limit} holds requests back",
    )  # fmt: skip


def _of_log(case: Case, running: float, waiting: float) -> Reply:
    """What the run log says of an instance's requests, on average; which limit they meet it does not."""
    share = waiting / (running + waiting)
    evidence = (f"{running:,.0f} requests run on an instance, {units.share(share)} of all wait there",)
    if share <= WAITING:
        return Reply("ok", "nothing waits in the engines", evidence)
    title = "requests wait, but not whether at a limit of the engine"
    return unseen(case, title, "vllm:num_requests_running of each instance", evidence)


# Preemptions per finished request: a rare one is the price of a full cache, more is thrashing.
RARE = 0.05
# What an engine calls the share of its GPU's memory that the KV cache may take.
MEMORY = {
    "vllm": "--gpu-memory-utilization",
    "sglang": "--mem-fraction-static",
    "tensorrt-llm": "kv_cache_config.free_gpu_memory_fraction",
}


def preemptions(case: Case) -> Reply:
    """fault: more than RARE preemptions per finished request while the trainer waits. unknown: not exported."""
    f = case.observed.fleet
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
    if per_request <= RARE or case.unhurt:
        return Reply("ok", "rare" if per_request <= RARE else "at no cost to the trainer", evidence)
    running = 0.0 if f.running is None or f.instances <= 0 else f.running / f.instances
    fewer = max(1, round_count(running * KV_ROOM))
    # by the name that the engine at hand has for it
    memory = MEMORY.get(case.observed.engine or "vllm", MEMORY["vllm"])
    change, cap = f"give the KV caches more memory ({memory})", Typed({})
    if case.tried.get("preemptions", WORTH) >= WORTH:  # fewer at a time may cost more than they save
        change += ", or the client a lower cap on what is in flight"
        if running:
            cap = Typed({"fleet.max_in_flight_samples_per_instance": fewer})
            change += f":\nfleetsim replay ... {cap}"
    return Reply("fault", "engines throw running requests out", evidence,
        change, case.at_most, "engines preempt requests for want of KV blocks", remedy=cap.changes,
    )  # fmt: skip
