"""SGLang's estimate of what the running requests may still generate, without a walk through all of them at each plan.

A decode that may still make e tokens counts as many, CLIP_NEW_TOKENS at most, and with each token of all of them one
less. So the sum falls along a line until the first of them is no longer clipped, or has used up what it may make. It is
kept as it was at one count of tokens, and what joins and leaves is added and taken away: whole numbers, so that the sum
is the one that a walk would give.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, instance_at, pool_at, sample_at
from fleetsim.engine.kernel.jit import compiled

CLIP_NEW_TOKENS = 4096
# Later than every count.
NEVER = 1 << 62


@compiled
def max_new_tokens(fleet: int, s: int) -> int:
    """The client's cap, and no more than the cache holds: SGLang cuts it to that."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    kv_blocks = pool_at(w.pools, instance_at(w.instances, S.instance).pool).kv_blocks
    return max(0, min(w.most_output, kv_blocks * w.block_size - S.prompt - S.extra - 2))


@compiled
def left_at(fleet: int, s: int, count: int) -> int:
    """Tokens that a decode may still make when its instance has run so many, below zero beyond that."""
    S = sample_at(fleet_at(fleet, 0).samples, s)
    return max_new_tokens(fleet, s) - S.goal + S.end_count - count


@compiled
def take_back(fleet: int, i: int, s: int) -> None:
    """A running request leaves: what it promised is no longer counted."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.counted == 0:
        return
    S.counted = 0
    instance = instance_at(w.instances, i)
    left = left_at(fleet, s, instance.promised_at)
    instance.promised -= min(max(0, left), CLIP_NEW_TOKENS)
    if 0 < left <= CLIP_NEW_TOKENS:
        instance.promised_falls -= 1
    if instance.promised_last == s:
        instance.promised_last = S.prev


@compiled
def add_from(fleet: int, i: int, s: int, end: int) -> None:
    """Counts the running requests from s on, before `end` (-1: to the last)."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    while s >= 0 and s != end:
        S = sample_at(w.samples, s)
        left = left_at(fleet, s, instance.promised_at)
        instance.promised += min(max(0, left), CLIP_NEW_TOKENS)
        if left > CLIP_NEW_TOKENS:
            instance.promised_till = min(instance.promised_till, instance.promised_at + left - CLIP_NEW_TOKENS)
        elif left > 0:
            instance.promised_falls += 1
            instance.promised_till = min(instance.promised_till, instance.promised_at + left)
        S.counted = 1
        instance.promised_last = s
        s = S.next


@compiled
def promised_now(fleet: int, i: int, end: int) -> int:
    """Tokens that the decodes of an instance may still make, each clipped. end: the running request that does not
    decode, the last one; -1 = all do."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.promised_last >= 0 and instance.count <= instance.promised_till:
        add_from(fleet, i, sample_at(w.samples, instance.promised_last).next, end)
    if instance.promised_last < 0 or instance.count > instance.promised_till:
        instance.promised = 0
        instance.promised_falls = 0
        instance.promised_at = instance.count
        instance.promised_till = NEVER
        instance.promised_last = -1
        add_from(fleet, i, instance.head, end)
    return instance.promised - instance.promised_falls * (instance.count - instance.promised_at)
