"""The KV cache of an instance: blocks, shared prefixes, what a request needs and gives back.

A request holds ceil(computed / block_size) blocks. With prefix caching the full blocks of a prompt are held once per
instance and counted by readers; the chain is system prompt, then the group's prompt, then the request's own earlier
turns. A prefix that nobody reads stays usable until its blocks are taken again: vLLM reuses free blocks in the order
in which they were freed, so it is gone once as many blocks have been taken as stood before it in that queue.
(Blocks that a hit takes from the middle of the queue count as taken before: the cache forgets a little early.)
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, group_at, instance_at, prefix_at, sample_at
from fleetsim.engine.kernel.host import make_room_on_host, put, take_out
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import TENSORRT


@compiled
def context(fleet: int, s: int) -> int:
    """Tokens that must be in the cache before the next token: prompt, tool tokens and what was generated."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    return S.prompt + S.extra + S.made


@compiled
def blocks(tokens: int, size: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + size - 1) // size


@compiled
def units(fleet: int, n: int) -> int:
    """Blocks of the cache that the first n times block_size tokens of a request take: more than n where layers with a
    window have blocks of their own, of which a request keeps so many only."""
    w = fleet_at(fleet, 0)
    if w.window_blocks == 0:
        return n
    return w.whole_blocks * n + w.window_blocks * min(n, w.near_blocks)


@compiled
def units_of(fleet: int, tokens: int) -> int:
    """The same of so many tokens."""
    return units(fleet, blocks(tokens, fleet_at(fleet, 0).block_size))


@compiled
def system_part(fleet: int, s: int) -> int:
    """Full blocks of the system prompt, if the request can share all of them.

    The last prompt token is always computed: a prompt that ends with the system prompt shares with its group only.
    """
    w = fleet_at(fleet, 0)
    return w.system_blocks if (sample_at(w.samples, s).prompt - 1) // w.block_size >= w.system_blocks else 0


@compiled
def group_part(fleet: int, s: int) -> int:
    """Full blocks of the group's prompt behind the system prompt."""
    w = fleet_at(fleet, 0)
    g = sample_at(w.samples, s).group
    if g < 0 or group_at(w.groups, g).size < 2:
        return 0
    return (sample_at(w.samples, s).prompt - 1) // w.block_size - system_part(fleet, s)


@compiled
def alive(fleet: int, i: int, p: int) -> bool:
    """Whether prefix row p can still be read on instance i."""
    w = fleet_at(fleet, 0)
    if p < 0:
        return False
    row = prefix_at(w.prefixes, p)
    instance = instance_at(w.instances, i)
    return row.instance == i and row.epoch == instance.epoch and (row.holders > 0 or instance.taken <= row.evicted_at)


@compiled
def to_front(fleet: int, g: int, before: int, p: int) -> None:
    """Row p of group g, which stands behind row `before`, becomes the first of its list."""
    if before >= 0:
        w = fleet_at(fleet, 0)
        prefix_at(w.prefixes, before).next = prefix_at(w.prefixes, p).next
        prefix_at(w.prefixes, p).next = group_at(w.groups, g).prefixes
        group_at(w.groups, g).prefixes = p


@compiled
def known_row(fleet: int, i: int, s: int) -> int:
    """The prefix row that the request found last, if it is the only one of its group on instance i; else -1."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.row < 0 or prefix_at(w.prefixes, S.row).instance != i or group_at(w.groups, S.group).twice == 1:
        return -1
    return S.row


@compiled
def group_prefix(fleet: int, i: int, s: int) -> int:
    """The prefix row of the request's group on instance i, or -1.

    The first row of an instance is the last that was written there, so no other can be alive, and it is asked for again
    at once: it comes to the front. With TensorRT-LLM an older one may be, where both were computed at the same time.
    """
    w = fleet_at(fleet, 0)
    p = known_row(fleet, i, s)
    if p >= 0:
        return p if alive(fleet, i, p) else -1
    g = sample_at(w.samples, s).group
    before, p = -1, group_at(w.groups, g).prefixes
    while p >= 0:
        row = prefix_at(w.prefixes, p)
        if row.instance == i:
            sample_at(w.samples, s).row = p
            if w.scheduler != TENSORRT:
                to_front(fleet, g, before, p)
                return p if alive(fleet, i, p) else -1
            if alive(fleet, i, p):
                return p
        before, p = p, row.next
    return -1


@compiled
def elsewhere(fleet: int, s: int) -> tuple[int, int]:
    """Blocks of the request that are counted in a prefix row, not in its own share; and what they take of the cache."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    blocks = 0
    units = 0
    for p in (S.system, S.shared):
        if p >= 0:
            blocks += prefix_at(w.prefixes, p).blocks
            units += prefix_at(w.prefixes, p).units
    return blocks, units


@compiled
def look_up(fleet: int, i: int, s: int) -> tuple[int, int]:
    """Full blocks found in the prefix cache, and what those that nobody reads take (they leave the free list)."""
    w = fleet_at(fleet, 0)
    found = 0
    unread = 0
    if w.caching == 0:
        return found, unread
    part = system_part(fleet, s)
    if part > 0:
        p = instance_at(w.instances, i).system
        if not alive(fleet, i, p):
            return found, unread
        found += part
        if prefix_at(w.prefixes, p).holders == 0:
            unread += prefix_at(w.prefixes, p).units
    part = group_part(fleet, s)
    if part > 0:
        p = group_prefix(fleet, i, s)
        if p < 0:
            return found, unread
        found += part
        if prefix_at(w.prefixes, p).holders == 0:
            unread += prefix_at(w.prefixes, p).units
    p = sample_at(w.samples, s).turn_cache
    if alive(fleet, i, p):
        part = min(prefix_at(w.prefixes, p).blocks, (context(fleet, s) - 1) // w.block_size - found)
        unread += units(fleet, found + part) - units(fleet, found)
        found += part
    return found, unread


@compiled
def new_prefix(fleet: int, i: int, n_blocks: int, taken: int) -> int:
    """A fresh prefix row with one reader, which took so many blocks of the cache for it.

    -1 if the table is full, and then nothing is shared.
    """
    w = fleet_at(fleet, 0)
    p = w.n_prefixes
    if p >= w.cap_prefixes:
        return -1
    w.n_prefixes = p + 1
    row = prefix_at(w.prefixes, p)
    row.instance = i
    row.next = -1
    row.holders = 1
    row.blocks = n_blocks
    row.units = taken
    row.epoch = instance_at(w.instances, i).epoch
    row.evicted_at = 0
    return p


@compiled
def rewrite(fleet: int, i: int, p: int) -> None:
    """A row that nobody reads is written anew by its first reader of today."""
    w = fleet_at(fleet, 0)
    row = prefix_at(w.prefixes, p)
    if w.hosts == 1:
        take_out(fleet, i, p)
    row.holders = 1
    row.epoch = instance_at(w.instances, i).epoch


@compiled
def read(fleet: int, i: int, p: int) -> None:
    """One reader more."""
    w = fleet_at(fleet, 0)
    if w.hosts == 1:
        take_out(fleet, i, p)
    prefix_at(w.prefixes, p).holders += 1


@compiled
def reuse_prefix(fleet: int, i: int, s: int) -> int:
    """A row of the group on instance i whose blocks are gone and that nobody reads: written anew, or -1."""
    w = fleet_at(fleet, 0)
    p = known_row(fleet, i, s)
    if p >= 0 and prefix_at(w.prefixes, p).holders == 0:
        rewrite(fleet, i, p)
        return p
    g = sample_at(w.samples, s).group
    before, p = -1, group_at(w.groups, g).prefixes
    while p >= 0:
        row = prefix_at(w.prefixes, p)
        if row.instance == i:
            if row.holders == 0:
                rewrite(fleet, i, p)
                if w.scheduler != TENSORRT:
                    to_front(fleet, g, before, p)
                return p
            group_at(w.groups, g).twice = 1  # at once: another is written
        before, p = p, row.next
    return -1


@compiled
def hold_found(fleet: int, i: int, s: int) -> None:
    """Makes the request a reader of every prefix that `look_up` found."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if w.caching == 0:
        return
    if w.hosts == 1 and S.turn_cache >= 0 and prefix_at(w.prefixes, S.turn_cache).instance == i:
        take_out(fleet, i, S.turn_cache)
    if system_part(fleet, s) > 0:
        p = instance_at(w.instances, i).system
        if not alive(fleet, i, p):
            return
        S.system = p
        read(fleet, i, p)
    if group_part(fleet, s) > 0:
        p = group_prefix(fleet, i, s)
        if p >= 0:
            S.shared = p
            read(fleet, i, p)


@compiled
def publish(fleet: int, i: int, s: int) -> None:
    """The whole prompt has blocks now: siblings, even later in this iteration, may read what was not cached."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if w.caching == 0:
        return
    part = system_part(fleet, s)
    if part > 0 and S.system < 0 and not alive(fleet, i, instance_at(w.instances, i).system):
        p = instance_at(w.instances, i).system
        if p >= 0 and prefix_at(w.prefixes, p).holders == 0:
            rewrite(fleet, i, p)
        else:
            p = new_prefix(fleet, i, part, units(fleet, part))
            instance_at(w.instances, i).system = p
        S.system = p
    part = group_part(fleet, s)
    if part > 0 and S.shared < 0 and group_prefix(fleet, i, s) < 0:
        p = reuse_prefix(fleet, i, s)
        if p < 0:
            before = system_part(fleet, s)
            p = new_prefix(fleet, i, part, units(fleet, before + part) - units(fleet, before))
            if p >= 0:
                prefix_at(w.prefixes, p).next = group_at(w.groups, S.group).prefixes
                group_at(w.groups, S.group).prefixes = p
        S.shared = p
        S.row = p


@compiled
def take(fleet: int, i: int, n: int) -> None:
    """n blocks leave the free list."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).free -= n
    instance_at(w.instances, i).taken += n


@compiled
def let_go(fleet: int, i: int, p: int) -> None:
    """One reader fewer; the last one leaves the prefix in the free list's tail."""
    w = fleet_at(fleet, 0)
    row = prefix_at(w.prefixes, p)
    row.holders -= 1
    if row.holders == 0:
        row.evicted_at = instance_at(w.instances, i).taken + instance_at(w.instances, i).free
        instance_at(w.instances, i).free += row.units
        if w.hosts == 1 and row.epoch == instance_at(w.instances, i).epoch:
            put(fleet, i, p, row.blocks)


@compiled
def own_row(fleet: int, i: int, s: int) -> int:
    """The row of the request's own blocks on instance i, fresh where it has none there; -1: the table is full."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.turn_cache < 0 or prefix_at(w.prefixes, S.turn_cache).instance != i:
        S.turn_cache = new_prefix(fleet, i, 0, 0)
        if S.turn_cache >= 0:
            prefix_at(w.prefixes, S.turn_cache).holders = 0
    return S.turn_cache


@compiled
def remember_turn(fleet: int, i: int, s: int) -> None:
    """A request about to give its blocks back will return: its own full blocks can be found again.

    Where prefill engines compute prompts, only what they hold themselves helps them.
    """
    w = fleet_at(fleet, 0)
    if w.caching == 0 or (w.prefills > 0 and i < w.n_instances):
        return
    S = sample_at(w.samples, s)
    full = S.computed // w.block_size - elsewhere(fleet, s)[0]
    if own_row(fleet, i, s) < 0:
        return
    row = prefix_at(w.prefixes, S.turn_cache)
    row.blocks = full
    row.epoch = instance_at(w.instances, i).epoch
    row.evicted_at = instance_at(w.instances, i).taken + instance_at(w.instances, i).free


@compiled
def give_back(fleet: int, i: int, s: int) -> None:
    """All blocks of a request are freed."""
    give_up(fleet, i, s, sample_at(fleet_at(fleet, 0).samples, s).computed)


@compiled
def give_up(fleet: int, i: int, s: int, known: int) -> None:
    """The same, where `known` of its tokens are in the engine's tree: of these the host has a copy."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    own = units_of(fleet, S.computed) - elsewhere(fleet, s)[1]
    if w.hosts == 1:
        make_room_on_host(fleet, i)  # before its copy of what runs becomes less
    instance_at(w.instances, i).free += own + w.state_blocks
    if w.hosts == 1:
        shared = system_part(fleet, s) + group_part(fleet, s)
        put(fleet, i, own_row(fleet, i, s), min(known, S.computed) // w.block_size - shared)
    if S.shared >= 0:
        let_go(fleet, i, S.shared)
        S.shared = -1
    if S.system >= 0:
        let_go(fleet, i, S.system)
        S.system = -1
    S.computed = 0
