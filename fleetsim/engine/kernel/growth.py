"""By how many tokens the decodes of an instance grow in an iteration: one, or with speculative decoding a few.

An iteration verifies the k tokens that a drafter proposed for each decode and keeps those up to the first refusal, and
one more: L tokens on average. All decodes of an instance grow by L together: the instance keeps what is beyond the last
whole token as `phase`, so that j iterations bring floor(phase + j L) tokens whoever counts them, in one jump or singly.
k depends on how many decodes there are (`drafts`), L on k and on the age of the drafter (`growths`). Lengths and phase
are counted in 2^-20 tokens: whole numbers add up exactly.

What is not kept: that some requests are luckier than others. docs/layouts.md gives the error.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, instance_at, int32_at, line_at
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import FRACTION, ONE, SHIFT


@compiled
def drafted(fleet: int, i: int) -> int:
    """Tokens that the next iteration drafts for each decode."""
    w = fleet_at(fleet, 0)
    if w.speculates == 0:
        return 0
    instance = instance_at(w.instances, i)
    return int32_at(line_at(w.drafts, instance.pool, (w.most_seqs + 1) * 4), instance.decodes)


@compiled
def decode_tokens(fleet: int, i: int) -> int:
    """Tokens that the decodes put into the next iteration: one each, and the drafts to be verified."""
    w = fleet_at(fleet, 0)
    return instance_at(w.instances, i).decodes * (1 + drafted(fleet, i))


@compiled
def set_growth(fleet: int, i: int) -> None:
    """The growth of iterations with the decodes and the weights that the instance has now."""
    w = fleet_at(fleet, 0)
    if w.speculates == 0:
        return
    instance = instance_at(w.instances, i)
    age = instance.version
    if age >= w.ages:
        age = age % w.ages if w.redrafts == 1 else w.ages - 1
    instance.growth = int32_at(line_at(w.growths, age, w.most_drafts * 4), drafted(fleet, i))


@compiled
def grown(fleet: int, i: int, k: int) -> int:
    """Whole tokens by which each decode grows in k iterations."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    return (instance.phase + k * instance.growth) >> SHIFT


@compiled
def keep_phase(fleet: int, i: int, k: int) -> None:
    """What k iterations leave beyond the last whole token."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    instance.phase = (instance.phase + k * instance.growth) & (ONE - 1)


@compiled
def iterations_for(fleet: int, i: int, tokens: int) -> int:
    """The fewest iterations in which each decode grows by so many tokens at least."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.growth == ONE:
        return tokens
    return ((tokens << SHIFT) - instance.phase + instance.growth - 1) // instance.growth


@compiled
def iterations_within(fleet: int, i: int, tokens: int) -> int:
    """The most iterations in which each decode grows by so many tokens at most."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.growth == ONE:
        return tokens
    return (((tokens + 1) << SHIFT) - 1 - instance.phase) // instance.growth


@compiled
def tokens_held(fleet: int, i: int) -> float:
    """Tokens in the cache over all decodes, those beyond the last whole one included."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    return instance.kv_sum + instance.decodes * (instance.phase * FRACTION)
