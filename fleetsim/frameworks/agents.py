"""Rollouts of several turns: how many a trajectory has, and how many tokens it generates at most in all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, times

TURNS, _TOOL_S = "workload.turns.count", "workload.turns.tool_latency_s"
_OWN = "from your own logs"


def put_turns(draft: Draft, turns: Read[int] | None, key: str = "", marker: str = "") -> None:
    """The turns of a trajectory. A configuration says their cap; a trajectory takes all of them here.

    turns: the cap, None where no setting says it. key: where it would stand. marker: what shows that there are several
    turns; empty where nothing does.
    """
    if turns is None and not marker:
        draft.could(TURNS, 1, Read(key, 1, False).written if key else lambda _: None, 1)
    elif turns is None:
        if key:
            draft.could(TURNS, 1, Read(key, 1, False).written, 1)
        draft.assume(TURNS, 1, f"{marker}: no setting says how many turns", f"--set {TURNS}=N, {_OWN}")
        _tools(draft)
    else:
        draft.put(TURNS, turns.value, turns, why="the cap: every trajectory takes all its turns", unless=1)
        if turns.value > 1:
            draft.guesses.add(TURNS)
            _tools(draft)


def _tools(draft: Draft) -> None:
    draft.assume(_TOOL_S, 1.0, "seconds of one tool call or step of the environment", f"--set {_TOOL_S}=S, {_OWN}")


def trajectory(
    turn: Read[int], turns: Read[int] | None, whole: Read[int] | None, whole_key: str = "", *, several: bool = False
) -> Read[int]:
    """Tokens that a trajectory generates at most: the cap of a turn in each of them, within the cap of the whole.

    turn, whole: the caps, None where there is none. several: there are turns, of which no setting says how many; only
    the cap of the whole then holds. whole_key: where that would stand.
    """
    count = 1 if turns is None else turns.value
    if count == 1 and not (several and whole is not None):
        return turn
    product = math.inf if turns is None else count * turn.value

    def back(want: Any) -> Mapping[str, Any] | None:
        if not isinstance(want, int):
            return None
        each = turn.written(-(-want // count)) or {}
        rest = whole or Read(whole_key, 1, False)
        over = whole is not None and (want > whole.value or whole.value < product)
        return {**each, **(rest.written(want) or {})} if want % count or over else each

    if whole is not None and whole.value < product:
        return Read(whole.key, whole.value, whole.given, back)
    read = times(turn, turns) if turns is not None else turn
    return Read(read.key, read.value, read.given, back)
