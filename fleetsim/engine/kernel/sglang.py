"""SGLang's scheduler: prompts run alone and before decodes, admission by estimate, retraction when the cache is full.

- A batch of prompts of at most `chunked_prefill_size` tokens runs whenever one can be formed; decodes stand still.
- A request is admitted if its prompt and its allowed output (clipped at CLIP_NEW_TOKENS) fit beside
  `new_token_ratio` times what the running ones may still generate. Once one does not, none is tried again before a
  running request has left. The ratio falls with every decode iteration.
- Decodes that find no room retract the request with the fewest generated tokens; it loses all but what its prompt left
  in the radix cache and goes to the end of the queue. The ratio rises to what the running ones have used.
- A prompt enters the radix cache when it has been computed: siblings of one batch compute it each, and then share it.

Source: sgl-project/sglang, python/sglang/srt/managers/scheduler.py (`get_next_batch_to_run`, `get_new_batch_prefill`,
`update_running_batch`), schedule_policy.py (`PrefillAdder.add_one_req`), schedule_batch.py (`retract_decode`),
scheduler_components/new_token_ratio_tracker.py, environ.py (the constants); mem_cache/radix_cache.py.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, instance_at, pool_at, sample_at
from fleetsim.engine.kernel.batch import chunk_of, continue_partial, partial_step, run_decodes, run_step, start
from fleetsim.engine.kernel.blocks import context, give_up, look_up
from fleetsim.engine.kernel.instance import blocks_now
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.loads import begin_load, behind
from fleetsim.engine.kernel.members import leave_decodes, unlink, wait_back
from fleetsim.engine.kernel.promises import CLIP_NEW_TOKENS, max_new_tokens, promised_now
from fleetsim.engine.kernel.tables import BROUGHT, INIT_RATIO

LOWEST_RATIO = INIT_RATIO * 0.14
RATIO_DECAY = (INIT_RATIO - LOWEST_RATIO) / 600
RETRACT_STEPS = 20


@compiled
def ratio_now(fleet: int, i: int) -> float:
    """new_token_ratio: falls by RATIO_DECAY with every decode iteration since it was set."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    return max(LOWEST_RATIO, instance.ratio - RATIO_DECAY * max(0, instance.count - instance.ratio_count))


@compiled
def set_ratio(fleet: int, i: int, ratio: float, since: int) -> None:
    """The ratio is `ratio` when the instance has run `since` decode iterations."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).ratio = ratio
    instance_at(w.instances, i).ratio_count = since


@compiled
def made_now(fleet: int, i: int, s: int) -> int:
    """Output tokens of a decoding request."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    return S.goal - (S.end_count - instance_at(w.instances, i).count)


@compiled
def may_generate(fleet: int, s: int, made: int) -> int:
    """Tokens that the admission estimate expects of a request with `made` output tokens, before the ratio."""
    return min(max(0, max_new_tokens(fleet, s) - made), CLIP_NEW_TOKENS)


@compiled
def prefill_batch(fleet: int, i: int) -> tuple[int, float]:
    """Admits what fits and returns the tokens and attention pairs of the prompts' batch; 0 tokens if there is none."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    size = w.block_size
    pool = pool_at(w.pools, instance.pool)
    budget = pool.max_tokens
    p = instance.partial
    chunk, need = partial_step(fleet, i, budget)
    pairs = continue_partial(fleet, i, chunk, need)
    prefill = chunk
    budget -= chunk
    if instance.full == 1 or instance.waiting == 0 or instance.partial >= 0:
        return prefill, pairs
    promised = 0  # tokens that this batch's requests may come to need beside their prompts, a page each on top
    if p >= 0:
        promised = may_generate(fleet, p, sample_at(w.samples, p).made) + size
    running_tokens = ratio_now(fleet, i) * promised_now(fleet, i, p)
    while instance.waiting > 0 and budget > 0:
        if instance.running >= pool.max_num_seqs:
            instance.full = 1
            break
        s = instance.wait_head
        if sample_at(w.samples, s).side == BROUGHT:
            break
        found, unread = look_up(fleet, i, s)
        rest = context(fleet, s) - found * size
        new = may_generate(fleet, s, sample_at(w.samples, s).made)
        room = (instance.free - unread - w.state_blocks) * size - promised - running_tokens
        if rest + new + size >= room and instance.running > 0:
            instance.full = 1
            break
        n = behind(fleet, i, s, found) if w.hosts == 1 else 0
        chunk = chunk_of(fleet, rest - n * size, budget)
        if chunk == 0:
            break
        if n > 0:
            begin_load(fleet, i, s, found, unread, n)
            found, unread = found + n, 0
        pairs += start(fleet, i, s, instance.t0, chunk, found, unread)
        prefill += chunk
        budget -= chunk
        if instance.partial >= 0:
            break
        promised += new + size
    return prefill, pairs


@compiled
def retract(fleet: int, i: int) -> None:
    """Takes decodes back, the least advanced first, until the next iteration of the others fits; one always stays."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    while instance.decodes > 1:
        victim = -1
        fewest = 0
        longest = 0
        s = instance.head
        while s >= 0:
            S = sample_at(w.samples, s)
            made = made_now(fleet, i, s)
            given = S.prompt + S.extra
            if victim < 0 or made < fewest or (made == fewest and given >= longest):
                victim = s
                fewest = made
                longest = given
            s = S.next
        leave_decodes(fleet, i, victim)
        unlink(fleet, i, victim)
        V = sample_at(w.samples, victim)
        give_up(fleet, i, victim, V.given)
        V.redo = 1
        V.preemptions += 1
        instance.preemptions += 1
        wait_back(fleet, i, victim)
        if blocks_now(fleet, i) <= instance.free:
            break
    made = RETRACT_STEPS * instance.decodes
    allowed = 1
    s = instance.head
    while s >= 0:
        made += made_now(fleet, i, s)
        allowed += max_new_tokens(fleet, s)
        s = sample_at(w.samples, s).next
    set_ratio(fleet, i, min(1.0, made / allowed), instance.count + 1)


@compiled
def plan_sglang(fleet: int, i: int) -> None:
    """A batch of prompts if one can be formed, else the decodes."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.decodes < instance.seen or instance.running == 0:
        instance.full = 0
    prefill, pairs = prefill_batch(fleet, i)
    if prefill > 0:
        instance.seen = instance.running - (1 if instance.partial >= 0 else 0)
        instance.planned = instance.epoch
        run_step(fleet, i, instance.t0, 0, prefill, pairs)
        return
    if instance.decodes == 0:
        set_ratio(fleet, i, INIT_RATIO, instance.count)
    retracted = blocks_now(fleet, i) > instance.free
    if retracted:
        retract(fleet, i)
        instance.full = 0
    instance.seen = instance.decodes
    run_decodes(fleet, i, instance.t0, retracted)
