"""What every scheduler does alike: serve the running requests, start a waiting one, and let the planned batch run."""

from __future__ import annotations

import math

from fleetsim.engine.kernel.addresses import (
    fetch_group,
    fetch_prefix,
    fetch_sample,
    fleet_at,
    float_at,
    instance_at,
    int64_at,
    line_at,
    pool_at,
    sample_at,
)
from fleetsim.engine.kernel.blocks import context, hold_found, take, units, units_of
from fleetsim.engine.kernel.growth import decode_tokens, iterations_for, set_growth, tokens_held
from fleetsim.engine.kernel.instance import (
    account,
    blocks_now,
    elapsed,
    iterations_that_fit,
    iterations_until,
    set_next,
)
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.loads import end_load, next_load
from fleetsim.engine.kernel.members import begin_to_run, ends_of, evict
from fleetsim.engine.kernel.tables import ACC_BUSY, ACC_IDLE, FRACTION, IDLE, JUMP, STEP
from fleetsim.engine.kernel.windows import crossings_of, prompts_in_window, see_prompt


@compiled
def chunk_of(fleet: int, rest: int, budget: int) -> int:
    """Tokens of a prompt with `rest` tokens to go that fit into the budget; a cut falls on a multiple of the unit."""
    w = fleet_at(fleet, 0)
    if rest <= budget:
        return rest
    return budget - budget % w.chunk_unit


@compiled
def partial_step(fleet: int, i: int, budget: int) -> tuple[int, int]:
    """The next chunk of the unfinished prompt and the blocks it takes."""
    w = fleet_at(fleet, 0)
    p = instance_at(w.instances, i).partial
    if p < 0:
        return 0, 0
    done = sample_at(w.samples, p).computed
    chunk = chunk_of(fleet, context(fleet, p) - done, budget)
    return chunk, units_of(fleet, done + chunk) - units_of(fleet, done)


@compiled
def continue_partial(fleet: int, i: int, chunk: int, need: int) -> float:
    """Computes the next chunk of the unfinished prompt; returns its attention pairs. Its last one makes it fresh."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    instance.fresh = -1
    instance.chunk = chunk
    if chunk == 0:
        return 0.0
    p = instance.partial
    done = sample_at(w.samples, p).computed
    take(fleet, i, need)
    see_prompt(fleet, i, done, chunk)
    if done + chunk == context(fleet, p):
        instance.fresh = p
        instance.partial = -1
    return chunk * done + 0.5 * chunk * (chunk + 1)


@compiled
def make_room(fleet: int, i: int) -> tuple[int, int, int, bool]:
    """Preempts the last admitted requests until the running ones fit.

    Returns the chunk of the unfinished prompt, its blocks, the blocks of the decodes, and whether any was preempted.
    """
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    preempted = False
    chunk, need_partial = partial_step(fleet, i, pool_at(w.pools, instance.pool).max_tokens - decode_tokens(fleet, i))
    need = blocks_now(fleet, i)
    # Of one request alone only drafts past its end may not fit: they are thrown away. Beside others that wait with what
    # came from the host, it may be in want of their blocks: then it goes, too.
    least = 0 if w.hosts == 1 and instance.loading > 0 else 1
    while need + need_partial > instance.free and instance.running > least:
        victim = instance.tail
        sample_at(w.samples, victim).preemptions += 1
        instance.preemptions += 1
        evict(fleet, i, victim)
        preempted = True
        chunk, need_partial = 0, 0
        need = blocks_now(fleet, i)
    return chunk, need_partial, need, preempted


@compiled
def fetch_waiting(fleet: int, s: int) -> None:
    """Fetches what is needed of a waiting request, and the one behind it."""
    w = fleet_at(fleet, 0)
    if s >= 0:
        S = sample_at(w.samples, s)
        fetch_group(w.groups, S.group)
        fetch_prefix(w.prefixes, S.row)
        fetch_sample(w.samples, S.next)


@compiled
def start(fleet: int, i: int, s: int, t: float, chunk: int, found: int, unread: int) -> float:
    """Moves a waiting request to the end of running and computes its first chunk; returns its attention pairs.

    found, unread: what `look_up` found. A whole prompt makes the request fresh, a part of one partial.
    """
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    S = sample_at(w.samples, s)
    size = w.block_size
    length = context(fleet, s)
    fetch_waiting(fleet, S.next)
    begin_to_run(fleet, i, s)
    if S.start_s < 0.0:
        S.start_s = t
    if w.hosts == 1 and S.computed > 0:
        end_load(fleet, i, s)
    else:
        hold_found(fleet, i, s)
    S.given = length
    hit = found * size
    take(fleet, i, unread + units_of(fleet, hit + chunk) - units(fleet, found) + w.state_blocks)
    if S.redo == 1:
        w.recomputed_tokens += length - hit
        S.redo = 0
    instance.hit_tokens += hit
    S.computed = hit
    see_prompt(fleet, i, hit, chunk)
    if hit + chunk < length:
        instance.partial = s
        instance.chunk = chunk
    elif instance.fresh < 0:
        instance.fresh = s
    return chunk * hit + 0.5 * chunk * (chunk + 1)


@compiled
def iteration_s(fleet: int, i: int, tokens: int) -> float:
    """Seconds of an iteration of so many tokens, beside what follows from its sequences and their contexts."""
    w = fleet_at(fleet, 0)
    return float_at(line_at(w.table_s, instance_at(w.instances, i).pool, w.most_tokens * 8), tokens)


@compiled
def engines_at_work(fleet: int, i: int, decodes: int) -> float:
    """Engines of an instance that have a decode: they share the decodes evenly, and run at the same time."""
    w = fleet_at(fleet, 0)
    return float(max(1, min(decodes, pool_at(w.pools, instance_at(w.instances, i).pool).decoders)))


@compiled
def decode_load(fleet: int, i: int, decodes: int) -> tuple[int, float, float, float]:
    """What `decodes` (all or none of them) put into an iteration.

    Returns its tokens, the seconds that drafts add, the seconds for each cached token, and the cached tokens.
    """
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    pool = pool_at(w.pools, instance.pool)
    if decodes == 0:
        return 0, 0.0, pool.per_kv_token_s, 0.0
    kv_token_s = pool.per_kv_token_s
    if pool.decoders > 1:
        kv_token_s /= engines_at_work(fleet, i, decodes)
    if w.speculates == 0:
        return decodes, 0.0, kv_token_s, float(instance.kv_sum)
    set_growth(fleet, i)
    bytes_each = (w.most_seqs + 1) * 8
    kv_token_s += float_at(line_at(w.draft_kv_s, instance.pool, bytes_each), decodes)
    drafts_s = float_at(line_at(w.draft_s, instance.pool, bytes_each), decodes)
    return decode_tokens(fleet, i), drafts_s, kv_token_s, tokens_held(fleet, i)


@compiled
def window_load(fleet: int, i: int, decodes: int) -> tuple[float, float]:
    """Seconds that `decodes` (all or none of them) take in layers with a window, and what an iteration adds to them."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if decodes == 0:
        return 0.0, 0.0
    token_s = pool_at(w.pools, instance.pool).window_token_s / engines_at_work(fleet, i, decodes)
    seen = instance.near_sum + instance.near * (instance.phase * FRACTION)
    return token_s * seen, token_s * instance.near * (instance.growth * FRACTION)


@compiled
def sequences_s(fleet: int, i: int, decodes: int) -> float:
    """Seconds for so many decodes beside those of their tokens and of their cache."""
    w = fleet_at(fleet, 0)
    pool = pool_at(w.pools, instance_at(w.instances, i).pool)
    seconds = pool.per_seq_s * decodes
    if pool.decoders > 1:
        seconds /= engines_at_work(fleet, i, decodes)
    return seconds


@compiled
def run_step(fleet: int, i: int, t: float, decodes: int, prefill: int, pairs: float) -> None:
    """One iteration with prompts in it, and `decodes` (all or none of them)."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    tokens, drafts_s, kv_token_s, held = decode_load(fleet, i, decodes)
    pool = pool_at(w.pools, instance.pool)
    dt = iteration_s(fleet, i, tokens + prefill) + sequences_s(fleet, i, decodes) + pool.per_prefill_token_s * prefill
    dt += kv_token_s * held + pool.per_attn_pair_s * pairs
    dt += drafts_s
    if w.window > 0:
        near_s, _ = window_load(fleet, i, decodes)
        dt += near_s + pool.window_pair_s * prompts_in_window(fleet, i)
    instance.kind = STEP
    instance.k = 1 if decodes > 0 else 0
    instance.first_s = dt * instance.slow
    if w.hosts == 1:
        instance.first_s = max(instance.first_s, instance.load_s)
        instance.load_s = 0.0
    instance.slope_s = 0.0
    instance.prefilled += prefill
    if instance.account != ACC_BUSY:
        account(fleet, i, ACC_BUSY, t)
    set_next(fleet, i, t + instance.first_s)


@compiled
def run_decodes(fleet: int, i: int, t: float, once: bool) -> None:
    """Decode iterations until the first end or until the cache is full; a single one if `once`; none: idle."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    b = instance.decodes
    if b == 0:
        instance.kind = IDLE
        if instance.account != ACC_IDLE:
            account(fleet, i, ACC_IDLE, t)
        set_next(fleet, i, next_load(fleet, i) if w.hosts == 1 else math.inf)
        return
    tokens, drafts_s, kv_token_s, held = decode_load(fleet, i, b)
    most = iterations_for(fleet, i, (int64_at(ends_of(fleet, i), 0) >> 32) - instance.count)
    first_s = iteration_s(fleet, i, tokens) + sequences_s(fleet, i, b) + kv_token_s * held
    slope_s = kv_token_s * b * (instance.growth * FRACTION)
    if w.window > 0:
        near_s, near_slope_s = window_load(fleet, i, b)
        first_s += near_s
        slope_s += near_slope_s
        if instance.crossings_n > 0:
            crossing = (int64_at(crossings_of(fleet, i), 0) >> 32) - instance.count
            most = min(most, iterations_for(fleet, i, crossing))
    instance.kind = JUMP
    instance.k = 1 if once else iterations_that_fit(fleet, i, most)
    fetch_sample(w.samples, int64_at(ends_of(fleet, i), 0) & 0xFFFFFFFF)  # the first to end
    instance.first_s = (first_s + drafts_s) * instance.slow
    instance.slope_s = slope_s * instance.slow
    if w.hosts == 1 and instance.loading > 0:
        instance.k = max(1, iterations_until(fleet, i, next_load(fleet, i)))
    if instance.account != ACC_BUSY:
        account(fleet, i, ACC_BUSY, t)
    set_next(fleet, i, t + elapsed(fleet, i, instance.k))
