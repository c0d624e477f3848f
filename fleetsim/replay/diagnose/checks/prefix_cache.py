"""Do the siblings of a group find their prompt in the prefix cache? If not, that is configuration, not capacity.

What computing a prompt token costs an engine: for prompts computed twice, and for what a preemption loses.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim import units
from fleetsim.engine.defaults import BLOCK_SIZE
from fleetsim.errors import InputError
from fleetsim.replay.diagnose.checks.case import WORTH, Case, Earlier, Reply, metric_of, unseen
from fleetsim.replay.diagnose.cost import observed_slices
from fleetsim.replay.observe.lengths import expected_hits

# Of the reuse that is to be had: syncs that reset the cache and evictions cost some, this much they do not.
ENOUGH = 0.8
# Below this hit ratio there is too little to be had to look for.
TO_BE_HAD = 0.1


def check(case: Case, earlier: Earlier) -> Reply:
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
                "prefix_cache",
                next(iter(missing)),
                metric_of(case, "prefix_hits"),
                _stake(case),
            )
        needs = "say it with --given workload.group_size=N" if group is None else None
        pairs = _fewer_than_pairs(case, hit, caching)
        if pairs is not None:
            return pairs
        title, add = next(iter(missing.items()))
        return Reply("prefix_cache", "unknown", title, (*caching, *seen, *missing), needs, missing=add)
    prompt, block = lengths.prompt_mean, o.block_size or BLOCK_SIZE.get(o.engine or "vllm", 16)
    expected = expected_hits(group.value, prompt, block)
    evidence = [
        "prefix caching is off" if off else f"hit ratio {units.share(hit)}",
        f"groups of {group.value:g}, prompts of {prompt:,.0f} tokens, blocks of {block} allow {units.share(expected)}",
    ]
    if expected < TO_BE_HAD or hit >= ENOUGH * expected:
        title = "little to be had" if expected < TO_BE_HAD else "siblings find their prompt"
        return Reply("prefix_cache", "ok", title, tuple(evidence))
    share = _wasted(case, prompt, expected - hit, evidence)
    if share is not None and share < WORTH:
        return Reply("prefix_cache", "ok", "low hits, at little cost", tuple(evidence))
    return Reply(
        "prefix_cache", "fault", "off on a group workload" if off else "low hits on a group workload", tuple(evidence),
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
    return Reply(
        "prefix_cache", "fault", "fewer hits than groups of two would give", tuple(evidence), change,
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


@dataclass(frozen=True, slots=True)
class PromptCost:
    """seconds: of one prompt token, beside a batch of decodes. words: whose engine that is."""

    seconds: float
    words: str


def prompt_cost(case: Case) -> PromptCost | None:
    """The marginal seconds of a prompt token in a full iteration of the scenario's engine; None where it has none.

    (f(N) - f(b)) / (N - b) + per prefill token + half the prompt's attention, with N = max_num_batched_tokens and b the
    requests that ran on an instance. Prompts of an engine of kind constant are free by definition: None.
    """
    from fleetsim.sim.engines import engine_of

    try:
        step, limits = engine_of(case.scenario)
    except InputError:  # no GPU, model or profile that is known: the size stays open, the finding does not
        return None
    if step.kind == "constant":
        return None
    f = case.observed.fleet
    running = 0.0 if f is None or f.running is None or f.instances <= 0 else f.running / f.instances
    most = limits.max_num_batched_tokens
    decodes = min(int(running), most - 1)
    f_full, f_now = step.seconds(0, most) - step.per_prefill_token_s * most, step.seconds(0, decodes)
    f_now -= step.per_prefill_token_s * decodes
    lengths = case.observed.lengths
    prompt = 0.0 if lengths is None or lengths.prompt_mean is None else lengths.prompt_mean
    seconds = max(0.0, f_full - f_now) / (most - decodes) + step.per_prefill_token_s + step.attention_s(prompt / 2)
    engine = case.scenario.engine
    name = (
        f"profile {engine.profile}" if engine.kind == "measured" else f"{engine.model} on {engine.gpu} x {engine.gpus}"
    )
    said = case.says("engine.profile") or case.says("engine.model")
    return PromptCost(seconds, name if said else f"{name}, assumed")


def busy_share(case: Case, tokens_s: float, cost: PromptCost) -> float | None:
    """The share of the rollout GPUs' time that computing so many prompt tokens a second takes; None without a fleet."""
    f = case.observed.fleet
    if f is None or f.instances <= 0:
        return None
    return min(tokens_s * cost.seconds / f.instances, observed_slices(case.observed).get("busy", 1.0))
