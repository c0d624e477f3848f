"""How large every table of the kernel is, and who guarantees that no index of it is larger.

numba checks no index, so a table that is too short is a heap that is overwritten. Each size is a function of the fleet
row, for the worst case; `state.py` refuses to show the kernel a table of another size, and the checked build
(`guard.py`) refuses every single access outside of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fleetsim.engine.kernel import tables

INT, FLOAT, SHORT = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.int32)


class TableSize(NamedTuple):
    """A table: what a row is, the least shape for a fleet row (of two axes the second is exact), and why it is enough.

    why: who guarantees that every index is one of those rows.
    """

    dtype: np.dtype[Any]
    shape: Callable[[Any], tuple[int, ...]]
    why: str


def _samples(w: Any) -> tuple[int, ...]:
    return (w["n_samples"],)


def _groups(w: Any) -> tuple[int, ...]:
    return (w["n_groups"],)


def _rows(w: Any) -> tuple[int, ...]:
    return (w["n_rows"],)


def _leaves(w: Any) -> tuple[int, ...]:
    return (2 * w["half"],)


def _calls(w: Any) -> tuple[int, ...]:
    return (w["n_calls"],)


def _drafting(w: Any) -> tuple[int, ...]:
    return (w["n_pools"] if w["speculates"] else 1, w["most_seqs"] + 1 if w["speculates"] else 1)


SIZES: dict[str, TableSize] = {
    "samples": TableSize(
        tables.SAMPLE, _samples, "rows of groups: first .. first + size - 1, drawn together with the group"
    ),
    "groups": TableSize(tables.GROUP, _groups, "dispatch sends group next_group only while it is below n_groups"),
    "prefixes": TableSize(
        tables.PREFIX, lambda w: (w["cap_prefixes"],), "new_prefix gives no row beyond cap_prefixes, but -1"
    ),
    "instances": TableSize(
        tables.INSTANCE, _rows, "routers choose leaves that hold a load; prefill engines follow the instances"
    ),
    "ends": TableSize(
        INT, lambda w: (w["n_instances"], w["most_seqs"]), "schedulers run max_num_seqs requests at most"
    ),
    "crossings": TableSize(
        INT,
        lambda w: (w["n_instances"], w["most_seqs"] if w["window"] else 1),
        "as ends; used only where there is a window",
    ),
    "residues": TableSize(SHORT, lambda w: (w["n_instances"], w["block_size"]), "indices are taken modulo block_size"),
    "clock": TableSize(FLOAT, _leaves, "leaf i of row i, half >= n_rows"),
    "loads": TableSize(FLOAT, _leaves, "leaf i of instance i, half >= n_instances"),
    "table_s": TableSize(
        FLOAT,
        lambda w: (w["n_pools"], w["most_tokens"]),
        "prompts and decodes share max_tokens, for EngineLimits holds max_num_seqs to it, and Speculation the drafts; "
        "SGLang's run apart",
    ),
    "prompt_table_s": TableSize(
        FLOAT, lambda w: (w["prompt_tokens"] + 1,), "a prefill engine takes no more than prompt_tokens (`plan_prompts`)"
    ),
    "timer_s": TableSize(FLOAT, _samples, "a sample waits for one thing: its tool, its reward or its cache"),
    "timer_key": TableSize(INT, _samples, "as timer_s"),
    "requeue": TableSize(
        SHORT, _samples, "a sample is put there when it becomes unsent, and taken out when it is sent"
    ),
    "ready": TableSize(SHORT, _groups, "a group is ready once; the buffer holds a group at least (`World.bind`)"),
    "blocked": TableSize(SHORT, _groups, "a group meets the buffer once"),
    "owed": TableSize(SHORT, _groups, "a group is lost once, and one that starts takes one out"),
    "dirty": TableSize(SHORT, _rows, "a row is put there when its flag is set, and is asked for once"),
    "stations": TableSize(
        tables.STATION, lambda w: (w["n_stations"],), "`tool_station` and `reward_station` are below it"
    ),
    "visits": TableSize(tables.VISIT, lambda w: (w["n_samples"] if w["n_stations"] else 0,), "a sample's own row"),
    "needs": TableSize(
        FLOAT,
        lambda w: (2 if w["n_stations"] else 0, int(tables.NEEDS)),
        "a share below 1 of so many; one of two lines",
    ),
    "levels": TableSize(FLOAT, lambda w: (2 * w["n_stations"], int(tables.LEVELS)), "`level_of` ends below LEVELS"),
    "warm_s": TableSize(FLOAT, lambda w: (w["n_stations"], max(1, w["most_warm"])), "`warm_next` is taken modulo warm"),
    "reward_s": TableSize(FLOAT, _samples, "a sample's own row"),
    "tool_s": TableSize(
        FLOAT, _calls, "a turn that is not the last one: the last ends at `target`, where a sample is over"
    ),
    "tool_tokens": TableSize(SHORT, _calls, "as tool_s"),
    "goals": TableSize(SHORT, lambda w: (w["n_calls"] if w["has_goals"] else 0,), "as tool_s; read where `has_goals`"),
    "arrival_s": TableSize(FLOAT, lambda w: (w["n_arrivals"],), "n_arrived stops at n_arrivals"),
    "arrival": TableSize(SHORT, lambda w: (w["n_arrivals"],), "n_arrived stops at n_arrivals"),
    "accounts": TableSize(FLOAT, lambda w: (w["n_rows"], int(tables.ACCOUNTS)), "an account is one of the ACC_ codes"),
    "drafts": TableSize(
        SHORT, _drafting, "decodes run, so they are max_num_seqs at most; read only where `speculates`"
    ),
    "draft_s": TableSize(FLOAT, _drafting, "as drafts"),
    "draft_kv_s": TableSize(FLOAT, _drafting, "as drafts"),
    "growths": TableSize(
        SHORT, lambda w: (w["ages"], w["most_drafts"]), "an age is held below `ages`; drafts are below most_drafts"
    ),
    "pools": TableSize(tables.POOL, lambda w: (w["n_pools"],), "an instance's own pool, as `World` gives it"),
    "log": TableSize(
        tables.LOG, lambda w: (w["cap_log"],), "account writes no row beyond cap_log, and counts those lost"
    ),
    "loaded_s": TableSize(FLOAT, lambda w: (w["n_samples"] if w["hosts"] else 0,), "a sample's own row"),
    "lanes": TableSize(tables.LANE, lambda w: (w["n_lanes"] + 1,), "`deal` counts to n_lanes, and 0 is nobody's"),
    "lane_of": TableSize(SHORT, _groups, "a group's own row"),
    "deadlines": TableSize(
        tables.DEADLINE,
        lambda w: (2 * w["n_samples"] if w["turn_limit"] + w["episode_limit"] > -2 else 0,),
        "a sample's two",
    ),
}
