"""What a prefill engine does: it computes prompts, first in first out, and hands them over.

Prompts are batched, cut and shared among siblings as the scheduler of its engine does (`plan`, `sglang`, `tensorrt`);
nothing decodes beside them. A request holds its blocks until its prompt is computed. Its first token is made there.
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel import tables
from fleetsim.engine.kernel.addresses import fleet_at, float_at, instance_at, sample_at
from fleetsim.engine.kernel.batch import start
from fleetsim.engine.kernel.blocks import context, give_back, look_up, publish, remember_turn, take, units, units_of
from fleetsim.engine.kernel.boundary import at_boundary
from fleetsim.engine.kernel.instance import account, mark, set_next
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.landing import end_turn
from fleetsim.engine.kernel.members import unlink
from fleetsim.engine.kernel.sharing import announce, prompt_done, worth_waiting
from fleetsim.engine.kernel.trees import timer_push
from fleetsim.engine.kernel.windows import prompts_in_window, see_prompt


@compiled
def prompt_chunk(fleet: int, rest: int, budget: int) -> int:
    """What `chunk_of` gives in a prefill engine, whose unit is its own: it goes with the tokens of an iteration."""
    w = fleet_at(fleet, 0)
    return rest if rest <= budget else budget - budget % w.prompt_unit


@compiled
def continue_prompt(fleet: int, row: int) -> tuple[int, float]:
    """The next chunk of the unfinished prompt: its tokens and attention pairs."""
    w = fleet_at(fleet, 0)
    engine = instance_at(w.instances, row)
    p = engine.partial
    if p < 0:
        return 0, 0.0
    S = sample_at(w.samples, p)
    done = S.computed
    chunk = prompt_chunk(fleet, context(fleet, p) - done, w.prompt_tokens)
    take(fleet, row, units_of(fleet, done + chunk) - units_of(fleet, done))
    S.computed = done + chunk
    see_prompt(fleet, row, done, chunk)
    if S.computed == context(fleet, p):
        engine.partial = -1
        if w.scheduler == tables.VLLM:
            publish(fleet, row, p)
    return chunk, chunk * done + 0.5 * chunk * (chunk + 1)


@compiled
def plan_prompts(fleet: int, row: int) -> None:
    """One iteration of a prefill engine at the boundary t0: the unfinished prompt, then waiting ones in order."""
    w = fleet_at(fleet, 0)
    engine = instance_at(w.instances, row)
    size = w.block_size
    prefill, pairs = continue_prompt(fleet, row)
    budget = w.prompt_tokens - prefill
    engine.planned = engine.epoch
    s = engine.wait_head if engine.partial < 0 else -1
    while s >= 0 and budget > 0 and engine.running < w.prompt_seqs:
        S = sample_at(w.samples, s)
        following = S.next
        if w.scheduler == tables.TENSORRT and worth_waiting(fleet, row, s):
            s = following
            continue
        length = context(fleet, s)
        found, unread = look_up(fleet, row, s)
        if units_of(fleet, length) - units(fleet, found) + unread + w.state_blocks > engine.free:
            break
        chunk = prompt_chunk(fleet, length - found * size, budget)
        if chunk == 0:
            break
        pairs += start(fleet, row, s, engine.t0, chunk, found, unread)
        S.computed = found * size + chunk
        prefill += chunk
        budget -= chunk
        if w.scheduler == tables.TENSORRT:
            announce(fleet, row, s)
        if engine.partial >= 0:
            break
        if w.scheduler == tables.VLLM:
            publish(fleet, row, s)
        s = following
    if prefill == 0:
        engine.kind = tables.IDLE
        if engine.account != tables.ACC_IDLE:
            account(fleet, row, tables.ACC_IDLE, engine.t0)
        set_next(fleet, row, math.inf)
        return
    seconds = float_at(w.prompt_table_s, prefill) + w.prompt_token_s * prefill + w.prompt_pair_s * pairs
    if w.window > 0:
        seconds += w.prompt_window_pair_s * prompts_in_window(fleet, row)
    engine.kind = tables.STEP
    engine.prefilled += prefill
    if engine.account != tables.ACC_BUSY:
        account(fleet, row, tables.ACC_BUSY, engine.t0)
    set_next(fleet, row, engine.t0 + seconds * engine.slow)


@compiled
def hand_over(fleet: int, row: int, s: int, t: float) -> None:
    """A computed prompt leaves for the instance where it decodes; a request of one token ends here."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if w.scheduler != tables.VLLM:
        prompt_done(fleet, row, s)
    if S.made + 1 == S.goal:
        S.side = tables.DECODING
        S.made += 1
        instance_at(w.instances, S.instance).generated += 1
        if S.first_token_s < 0.0:
            S.first_token_s = t
            S.first_version = instance_at(w.instances, S.instance).version
        end_turn(fleet, row, s, t)
        return
    unlink(fleet, row, s)
    if S.turn + 1 < S.turns:
        remember_turn(fleet, row, s)
    give_back(fleet, row, s)
    S.side = tables.BROUGHT
    S.status = tables.AWAY
    moved_s = t + w.transfer_s + w.transfer_token_s * context(fleet, s)
    timer_push(w.timer_s, w.timer_key, w.n_timers, moved_s, s)
    w.n_timers += 1


@compiled
def land_prompts(fleet: int, row: int, t: float) -> None:
    """The planned iteration of a prefill engine has happened."""
    w = fleet_at(fleet, 0)
    engine = instance_at(w.instances, row)
    kind = engine.kind
    engine.kind = tables.LANDING
    set_next(fleet, row, math.inf)
    if kind == tables.STEP:
        while engine.head >= 0 and engine.head != engine.partial:  # one that ends may take siblings with it
            hand_over(fleet, row, engine.head, t)
    engine.kind = tables.IDLE
    at_boundary(fleet, row, t)
    if engine.kind == tables.IDLE:
        mark(fleet, row, t)
