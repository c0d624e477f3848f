"""The state of one fleet as a few tables: one row per sample, group, prefix, instance.

The design asked for one array per field. One record per row is as columnar from outside (`samples["finish_s"]` is a
numpy view), keeps everything that one event touches in one or two cache lines, and lets a function take one
argument, the fleet row, which holds the addresses of all the other tables (see `addresses.py`).
"""

from __future__ import annotations

import numpy as np


def _codes(n: int) -> list[np.int64]:
    """0..n-1 as typed integers: a plain Python constant would make numba compile its callee once per value."""
    return [np.int64(i) for i in range(n)]


# sample status
UNSENT, WAITING, RUNNING, AWAY, SCORING, DONE, GONE = _codes(7)
# group status
G_NEW, G_OPEN, G_READY, G_BLOCKED, G_TRAINED, G_FILTERED, G_STALE, G_OVERFLOW, G_ABORTED = _codes(9)
# in the column zero_variance: its samples are an evaluation's, which nobody trains; or requests of a judge that the
# rollout's own engines answer
EVALUATED, ASKED = np.int64(2), np.int64(3)
# what an instance is doing until next_s
IDLE, JUMP, STEP, WAKE, DOWN, LANDING = _codes(6)
# where its GPU-seconds go
ACC_IDLE, ACC_BUSY, ACC_PAUSED, ACC_DOWN, ACC_OFF = _codes(5)
ACCOUNTS = np.int64(5)
# on which side of a disaggregated instance a request is: the decode engines' own, prefill, or under way with its cache
DECODING, PREFILLING, BROUGHT = _codes(3)
# what is to happen at its next iteration boundary (bits)
NOTHING, DO_DISCARD, DO_RECOMPUTE, _, DO_KILL = _codes(5)
DO_MOVE = np.int64(8)
# where a call of a tool or a reward is, how it ends, and what becomes of a rollout whose last try was in vain
NOWHERE, QUEUED, IN_SERVICE = _codes(3)
SERVED, FAILED, LATE = _codes(3)
DROPPED, TRUNCATED, RETRIED = _codes(3)
# lines of `needs`: seconds of calls that are made again
TOOL_NEEDS, REWARD_NEEDS = _codes(2)
NEEDS = np.int64(4096)
# counts and milliseconds by size, see `level_of`; of each station two lines of `levels`: of its workers, of its waits
LEVELS = np.int64(384)
# times that a rollout starts again from its prompt before it is dropped
RESTARTS = np.int64(3)
# whose scheduler plans an iteration
VLLM, SGLANG, TENSORRT = _codes(3)
INIT_RATIO = 0.7  # SGLang's new_token_ratio when an engine starts or has run empty
# routing
ROUND_ROBIN, LEAST_LOADED, PREFIX_AFFINITY = _codes(3)
# what a judge reads
OF_SAMPLES, OF_GROUPS, OF_NOTHING = _codes(3)
# why `advance` returned
AT_LIMIT, BATCH_READY, NOTHING_MOVES, NEED_GROUPS, EMPTY, OUT_OF_PATIENCE, LOG_FULL, TOO_FULL = _codes(8)
# a sample more, a sample less
MORE, LESS = np.int64(1), np.int64(-1)
FIRST = np.int64(0)
# tokens at which an instance's counter of them starts anew; no request makes more
REBASE = np.int64(1 << 30)
# what a run may ask of the fleet
(
    CMD_HOLD, CMD_RESUME, CMD_RECOMPUTE, CMD_DISCARD, CMD_NEW_EPOCH, CMD_KILL, CMD_CLOSE, CMD_REOPEN, CMD_SWITCH_OFF,
    CMD_REVIVE, CMD_TOTALS, CMD_VERSION, CMD_MOVE, CMD_BLOCKS, CMD_START,
) = _codes(15)  # fmt: skip
# a token, in the unit in which the growth of decodes is counted: 2^-20 of one (`growth.py`)
SHIFT = np.int64(20)
ONE = np.int64(1 << 20)
FRACTION = 2.0**-20
# every instance
ALL = np.int64(-1)

# First what is needed of a request whenever it is stopped and sent again: two lines of memory instead of three.
SAMPLE = np.dtype(
    [
        ("prompt", "i8"),  # tokens of the first turn's prompt
        ("made", "i8"),  # output tokens so far (while decoding: read through `made_now`)
        ("goal", "i8"),  # output tokens at which the current turn ends
        ("extra", "i8"),  # tool tokens that joined the context
        ("computed", "i8"),  # tokens in the KV cache (while decoding: context - 1)
        ("group", "i8"),
        ("prev", "i8"),
        ("next", "i8"),
        ("shared", "i8"),  # prefix row held: the group's prompt
        ("row", "i8"),  # prefix row of its group that it found last
        ("turn_cache", "i8"),  # prefix row of its own earlier turns
        ("end_count", "i8"),  # decode counter at which the current turn ends
        ("given", "i4"),  # tokens of its context when its prompt was last computed
        ("status", "i1"),
        ("redo", "i1"),  # its next prefill repeats work
        ("side", "i1"),  # DECODING, PREFILLING or BROUGHT
        ("counted", "i1"),  # SGLang: it is in its instance's `promised`
        ("start_s", "f8"),
        ("system", "i8"),  # prefix row held: the system prompt
        ("target", "i4"),  # output tokens over all turns
        ("prefill", "i4"),  # row of the prefill engine that computed its prompt last; -1 = none
        ("instance", "i8"),
        ("preemptions", "i4"),
        ("turn", "i2"),
        ("first_version", "i4"),  # weight version that made its first token
        ("pending", "i1"),  # judges that have not answered; so of a group
        ("turns", "i2"),
        ("first_call", "i4"),  # row of the call after its first turn; the others follow
        (
            "asks",
            "i4",
        ),  # first request of the judge that reads it; of such a request: the sample that it reads; -1 = none
        ("sent_s", "f8"),  # when its instance got it: from the client, or from another instance
        ("first_token_s", "f8"),
        ("finish_s", "f8"),
    ],
    align=True,
)

GROUP = np.dtype(
    [
        ("first", "i8"),  # its samples are first .. first + size - 1
        ("size", "i8"),
        ("need", "i4"),  # samples that make it complete; the rest of them is then aborted
        ("scored", "i4"),
        ("dropped", "i4"),  # samples that were lost at a station
        ("twice", "i1"),  # some instance has two rows in the list of its prefix rows
        ("prefixes", "i8"),  # head of the list of its prefix rows
        ("version", "i4"),  # weight version at submission, the oldest of its samples
        ("target", "i4"),  # optimizer step that it is reserved for (law target_step)
        ("trained_step", "i4"),
        ("status", "i1"),
        ("zero_variance", "i1"),
        ("doomed", "i1"),  # the next CMD_DISCARD aborts it
        ("pending", "i1"),
        ("submit_s", "f8"),
        ("ready_s", "f8"),
        ("left_s", "f8"),  # when it left the buffer: trained, stale or pushed out
    ],
    align=True,
)

PREFIX = np.dtype(
    [
        ("instance", "i8"),
        ("next", "i8"),
        ("holders", "i8"),  # running requests that read it
        ("blocks", "i8"),  # of block_size tokens
        ("units", "i8"),  # blocks of the cache that they take
        ("epoch", "i4"),  # valid while the instance's epoch is the same; -1 - epoch while it is being computed
        ("host", "i4"),  # blocks, from the first on, of the copy in the host's list (`host.py`)
        ("older", "i4"),  # its neighbours there
        ("newer", "i4"),
        ("evicted_at", "i8"),  # instance's `taken` counter beyond which its blocks have been reused
    ],
    align=True,
)

INSTANCE = np.dtype(
    [
        ("t0", "f8"),  # when the current jump or step began
        ("first_s", "f8"),  # seconds of its first iteration
        ("slope_s", "f8"),  # seconds each further iteration takes more
        ("k", "i8"),  # iterations in it
        ("pool", "i8"),  # whose engine it is
        ("count", "i8"),  # tokens that each decode has grown by so far, modulo block_size (`rebase`)
        ("growth", "i8"),  # tokens that each decode grows by in an iteration, in 2^-20
        ("phase", "i8"),  # what it has grown by beyond `count`, in 2^-20
        ("kv_sum", "i8"),  # K: tokens in the cache over all decodes
        ("near_sum", "i8"),  # the same within the window of layers that look back so far only
        ("near", "i8"),  # decodes that see more of it with each token
        ("crossings_n", "i8"),  # decodes that will cross the window
        ("near_pairs", "f8"),  # query-key pairs within the window, of the prompts in the iteration that is planned
        ("free", "i8"),  # KV blocks free (cached prefixes nobody reads count as free)
        ("taken", "i8"),  # blocks ever taken from the free list
        ("slow", "f8"),  # iteration time multiplier
        ("hold_until", "f8"),
        ("since", "f8"),  # start of the current account
        ("generated", "i8"),
        ("prefilled", "i8"),
        ("hit_tokens", "i8"),
        ("preemptions", "i8"),
        ("running", "i8"),
        ("decodes", "i8"),
        ("growing", "i8"),  # blocks of the cache that they all take when each grows by block_size tokens
        ("heap_n", "i8"),
        ("head", "i8"),
        ("tail", "i8"),
        ("fresh", "i8"),  # first running request whose prefill ends with this step
        ("partial", "i8"),  # the request with an unfinished prompt (always the last admitted)
        ("chunk", "i8"),  # its tokens in this step
        ("waiting", "i8"),
        ("wait_head", "i8"),
        ("wait_tail", "i8"),
        ("load", "i8"),  # samples sent to it that have not finished
        ("epoch", "i4"),
        ("version", "i4"),  # weight version that it serves
        ("move_to", "i4"),  # where its requests go at the next boundary; -1 = to the client, who sends them anew
        ("system", "i8"),  # prefix row of the system prompt
        ("kind", "i1"),
        ("account", "i1"),
        ("accepting", "i1"),
        ("draining", "i1"),  # `advance` returns when it is empty
        ("todo", "i1"),
        ("dirty", "i1"),
        ("seen", "i8"),  # SGLang: requests that decode, or were to decode, when it last planned
        ("ratio", "f8"),  # SGLang: new_token_ratio when `count` was `ratio_count`
        ("ratio_count", "i8"),
        ("planned", "i4"),  # SGLang: epoch when it last planned
        ("full", "i1"),  # SGLang: nothing is admitted before a running request has left
        ("promised", "i8"),  # SGLang: tokens that running requests may still make, when `count` was `promised_at`
        ("promised_at", "i8"),
        ("promised_falls", "i8"),  # by how much it falls with each further token of all, until `count` is this
        ("promised_till", "i8"),
        ("promised_last", "i8"),  # the last running request in it; -1 = not added up
        ("block_s", "f8"),  # KV blocks in use, integrated over the iterations
        ("decode_s", "f8"),  # seconds between tokens, summed over the decodes, by the end of the last iteration
        ("landed_s", "f8"),  # when that was
        ("host_used", "i8"),  # blocks of the host that hold what no running request reads
        ("host_tokens", "i8"),  # of `hit_tokens` those that came from the host
        ("loading", "i8"),  # waiting requests with blocks that come, or have come, from the host
        ("reserved", "i8"),  # blocks that these lack
        ("link_s", "f8"),  # when the link is free again
        ("load_s", "f8"),  # SGLang: seconds of the loads of the iteration that is planned
        ("host_oldest", "i4"),  # prefix rows, the list's ends
        ("host_newest", "i4"),
        ("host_epoch", "i4"),  # of which the list is
    ],
    align=True,
)

# Engines of one make: seconds of an iteration, and what one of them may hold.
POOL = np.dtype(
    [
        ("per_seq_s", "f8"),
        ("per_prefill_token_s", "f8"),
        ("per_kv_token_s", "f8"),
        ("per_attn_pair_s", "f8"),
        ("window_token_s", "f8"),  # of the layers that look back so far only, for each cached token and each pair
        ("window_pair_s", "f8"),
        ("max_num_seqs", "i8"),
        ("max_tokens", "i8"),
        ("kv_blocks", "i8"),
        ("decoders", "i8"),  # engines of an instance, evenly loaded
        ("weight", "f8"),  # samples that it is sent for one that an instance of weight 1 is sent
        ("host_blocks", "i8"),  # that the host holds
        ("load_block_s", "f8"),  # seconds of the link for each
    ],
    align=True,
)

STATION = np.dtype(
    [
        ("workers", "i8"),
        ("start_s", "f8"),  # until a fresh worker begins with what it is asked
        ("warm", "i8"),  # fresh workers that are kept started; one that is taken is replaced in start_s
        ("warm_next", "i8"),  # of them the one that is ready first
        ("gap_s", "f8"),  # between the beginnings of two calls, at least
        ("open_s", "f8"),  # when the next call may begin
        ("timeout_s", "f8"),  # of a call: waiting, start-up and service together
        ("failure_share", "f8"),
        ("tries", "i8"),  # of a call, the first one included
        ("episode", "i1"),  # a worker stays with its rollout; else each call takes a fresh one
        ("policy", "i1"),  # DROPPED, TRUNCATED or RETRIED
        ("head", "i8"),  # of the calls that wait: first come, first served
        ("tail", "i8"),
        ("waiting", "i8"),
        ("serving", "i8"),
        ("used", "i8"),  # workers taken: by a call, or kept by a rollout
        ("since", "f8"),  # until when the next three are added up
        ("waited_s", "f8"),
        ("served_s", "f8"),
        ("used_s", "f8"),
        ("calls", "i8"),  # that were made; that ended, in each of three ways
        ("served", "i8"),
        ("failed", "i8"),
        ("late", "i8"),
        ("lost", "i8"),  # rollouts
        ("home", "i8"),  # whose calls come here: itself, or the station whose overflow this row is
        ("overflow", "i8"),  # row of the workers who take what its own are too few for; 0 = there are none
        ("after_s", "f8"),  # they take a call that has waited so long
    ],
    align=True,
)

# The call of a sample: one at a time.
VISIT = np.dtype(
    [
        ("came_s", "f8"),
        ("need_s", "f8"),  # of service
        ("due_s", "f8"),  # when its service ends
        ("next", "i8"),  # the call behind it
        ("calls", "i8"),  # so far
        ("station", "i8"),  # whose workers it has: after it waited, those of an overflow
        ("tries", "i4"),
        ("restarts", "i1"),
        ("where", "i1"),
        ("outcome", "i1"),
        ("holds", "i1"),  # a worker of `station` is its own
    ],
    align=True,
)

# Environments that play the same groups, one place for each sample of one: they have their own share of what is let in.
LANE = np.dtype(
    [
        ("free", "i8"),  # places
        ("begun", "i8"),  # groups, those that were lost left out
        ("group", "i8"),  # the last one
        ("left", "i8"),  # of its samples, those that are not sent yet
    ],
    align=True,
)

# An instance's account changed; written only where there is room for it (`cap_log`).
LOG = np.dtype([("time_s", "f8"), ("instance", "i4"), ("account", "i1")], align=True)

# The tables that the fleet row holds the addresses of; `sizes.py` says how large each is.
ADDRESSES = (
    "samples", "groups", "prefixes", "instances", "ends", "crossings", "residues", "clock", "loads", "table_s",
    "prompt_table_s", "timer_s", "timer_key", "requeue", "ready", "blocked", "owed", "dirty", "stations", "visits",
    "needs", "levels", "warm_s", "reward_s", "tool_s", "tool_tokens", "goals", "arrival_s", "arrival", "accounts",
    "drafts", "draft_s", "draft_kv_s", "growths", "pools", "log", "loaded_s", "lanes", "lane_of",
)  # fmt: skip

FLEET = np.dtype(
    [
        *((name, "i8") for name in ADDRESSES),
        ("now", "f8"),
        ("window", "i8"),  # tokens that some layers look back; 0 = all layers see everything
        ("chunked", "i1"),  # to the last multiple of `window` instead
        ("prompt_window_pair_s", "f8"),  # the latter of a prefill engine
        ("credits", "i8"),  # groups that may still start
        ("floor", "i8"),  # groups start without credits while fewer than this are unfinished
        ("in_flight", "i8"),  # samples submitted and not generated
        ("cap", "i8"),  # most samples in flight
        ("cap_instance", "i8"),
        ("cap_groups", "i8"),  # most groups in generation or scoring
        ("n_lanes", "i8"),  # rows of the table of lanes behind its first, which is nobody's; 0 = no such environments
        ("begun", "i8"),  # groups of all of them together
        ("ready_cap", "i8"),  # groups the buffer holds
        ("next_group", "i8"),  # first group not yet (wholly) sent
        ("sent", "i8"),  # samples of it that were sent (group placement "spread")
        ("robin", "i8"),
        ("half", "i8"),  # leaves of the tournament trees
        ("n_instances", "i8"),
        ("n_rows", "i8"),  # of the table of instances: behind them stand their prefill engines
        ("prefills", "i8"),  # prefill engines of an instance; 0 = its engines compute prompts themselves
        ("prompt_seqs", "i8"),  # of a prefill engine: requests, tokens in an iteration
        ("prompt_tokens", "i8"),
        ("prompt_unit", "i8"),  # its prompts are cut at multiples of so many tokens
        ("prompt_token_s", "f8"),  # its seconds for each prompt token beside the table's, and for each pair
        ("prompt_pair_s", "f8"),
        ("transfer_s", "f8"),  # until a computed prompt is where it decodes, and for each of its tokens
        ("transfer_token_s", "f8"),
        ("n_samples", "i8"),  # drawn
        ("n_groups", "i8"),
        ("n_requeued", "i8"),  # samples that lost their instance
        ("n_ready", "i8"),  # groups in the buffer
        ("n_blocked", "i8"),  # finished groups that found the buffer full
        ("n_timers", "i8"),
        ("n_arrivals", "i8"),
        ("n_arrived", "i8"),
        ("n_prefixes", "i8"),
        ("cap_prefixes", "i8"),  # rows of the prefix table
        ("n_dirty", "i8"),
        ("n_owed", "i8"),  # targets of groups that were lost: what starts next takes them
        ("target_groups", "i8"),  # groups per target step; 0 = groups have no target
        ("next_target", "i8"),
        ("target_left", "i8"),  # groups still to be reserved for it
        ("n_draining", "i8"),
        ("open_loop", "i1"),  # requests arrive by themselves: no groups, no credits
        ("halted", "i1"),  # nothing is sent while set
        ("until_empty", "i1"),  # `advance` returns when nothing is in flight
        ("counts_open", "i1"),  # credits return when a group completes
        ("returns", "i1"),  # credits return when a group is filtered or pushed out
        ("drop_oldest", "i1"),
        ("together", "i1"),
        ("routing", "i1"),
        ("caching", "i1"),
        ("hosts", "i1"),  # the host of some engine holds KV blocks
        ("has_rewards", "i1"),
        ("imbalance", "i4"),
        ("system_blocks", "i4"),
        ("block_size", "i8"),
        ("n_pools", "i8"),
        ("most_seqs", "i8"),  # max_num_seqs of any pool
        ("most_tokens", "i8"),  # columns of `table_s`
        ("n_stations", "i8"),
        ("most_warm", "i8"),  # of any station
        ("tool_station", "i8"),  # where tools are called and rewards are computed; -1 = nowhere: nothing limits them
        ("reward_station", "i8"),
        ("late_s", "f8"),  # when the next call that waits is timed out, or goes to an overflow; so of a judge
        ("chance", "i8"),  # the seed of failures
        ("turns", "i8"),  # 1 = of every sample
        ("n_calls", "i8"),  # of tools, drawn
        ("own_votes", "i8"),  # requests of the judge whose engines are the rollout's, of each that it reads; 0 = none
        ("own_reads", "i8"),  # OF_SAMPLES or OF_GROUPS
        ("own_share", "f8"),  # of their tokens
        ("has_goals", "i8"),  # `goals` says what each turn generates; else a response is spread evenly over its turns
        ("holds_slot", "i1"),  # a sample is in flight until it is scored
        # Judges (`judges.py`): fleet rows of their own, each with the address of the next one; 0 = no more
        ("judges", "i8"),
        ("next_judge", "i8"),
        ("asked_by", "i8"),  # of a judge: the fleet whose rollouts it reads; the next fields are a judge's, too
        ("reads", "i1"),  # OF_SAMPLES or OF_GROUPS
        ("reads_share", "f8"),  # of a rollout's tokens
        ("gate_s", "f8"),  # when the next request may begin, by the limit on its rate
        ("gate_request_s", "f8"),  # between a request and the next one: for itself, and for each of its tokens
        ("gate_token_s", "f8"),
        ("reach_s", "f8"),  # until a request is there
        ("beyond", "i8"),  # fleet row of a judge's overflow, which holds the same requests once more; 0 = none
        ("behind", "i8"),  # of an overflow: the judge
        ("after_s", "f8"),  # it takes a request that has waited so long for a place
        ("line_head", "i8"),  # requests that wait for a place at a judge with an overflow, first come, first served
        ("line_tail", "i8"),
        ("aborted_tokens", "i8"),
        ("lost_tokens", "i8"),
        ("recomputed_tokens", "i8"),
        ("completed_groups", "i8"),
        ("aborted_groups", "i8"),
        ("patience", "i8"),  # `advance` returns when so many groups have been completed or aborted
        ("wake", "i8"),  # and, as for a batch, when so many have been
        ("whole_blocks", "i8"),  # blocks that block_size tokens take in layers that keep all of them
        ("window_blocks", "i8"),  # and in those that keep the last `near_blocks` times block_size tokens only
        ("near_blocks", "i8"),
        ("state_blocks", "i8"),  # blocks that a running request holds whatever its length (linear attention)
        ("chunk_unit", "i8"),  # a prompt is cut at multiples of so many tokens
        ("most_output", "i8"),  # the client's cap on output tokens: all that a scheduler knows of a length
        ("scheduler", "i1"),
        ("no_evict", "i1"),  # TensorRT-LLM: admitted only if its longest output fits
        ("speculates", "i1"),  # decodes may grow by more than a token
        ("redrafts", "i1"),  # the drafter is young again after `ages` versions; else it stays as old as that
        ("most_drafts", "i8"),  # lengths of a line of `growths`: one for each number of drafted tokens, 0 included
        ("ages", "i8"),  # lines of `growths`: one for each weight version
        # The law that follows the caches (`steering.py`)
        ("steer_s", "f8"),  # its next look
        ("steer_every", "f8"),  # seconds between two; 0 = there are none
        ("steer_pool", "f8"),  # samples that may be in flight, and at most
        ("steer_most", "f8"),
        ("steer_turned", "i8"),  # completed groups when the pool last grew
        ("steer_group", "i8"),  # samples of a group
        ("steer_grow", "f8"),  # factor of a step up
        ("steer_target", "f8"),  # share of the cache that a trimmed pool aims at
        ("grow_below", "f8"),  # shares of the fullest cache: where the pool grows, is trimmed, and is cut
        ("trim_above", "f8"),
        ("cancel_above", "f8"),
        ("calm_s", "f8"),  # before then no cache is so full that the pool is trimmed
        ("full", "i8"),  # an instance that was too full for the pool to grow at the last look, if one was
        # Of all instances together, when they were last added up (CMD_TOTALS)
        ("up", "i8"),  # that serve or stand still
        ("running", "i8"),  # requests, those of prefill engines too; so the next three
        ("waiting", "i8"),
        ("prefilled", "i8"),
        ("hit_tokens", "i8"),
        ("host_tokens", "i8"),
        ("kv_sum", "i8"),
        ("kv_used", "i8"),  # blocks
        ("generated", "i8"),
        ("preemptions", "i8"),
        ("busy_s", "f8"),  # instance-seconds in each account
        ("paused_s", "f8"),
        ("idle_s", "f8"),
        ("down_s", "f8"),
        ("off_s", "f8"),
        ("n_log", "i8"),  # rows of the log, those that found no room counted too
        ("cap_log", "i8"),  # rows that it has room for; 0 = accounts are not logged
        ("most_log", "i8"),  # `advance` returns when it has more rows than this
    ],
    align=True,
)
