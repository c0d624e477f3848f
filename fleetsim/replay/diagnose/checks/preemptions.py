"""Do engines throw work away for want of KV blocks? A preempted request computes its prompt and output again."""

from __future__ import annotations

from fleetsim import units
from fleetsim.replay.diagnose.checks.case import KV_ROOM, WORTH, Case, Earlier, Reply, metric_of, round_count, unseen
from fleetsim.replay.diagnose.checks.prompt_cost import busy_share, prompt_cost
from fleetsim.replay.diagnose.cost import Claims

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


def check(case: Case, earlier: Earlier) -> Reply:
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
