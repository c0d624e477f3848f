"""When a fleet is resized: from the counts that single evaluations want to one count that does not flap.

It goes up when `up_after` evaluations in a row want at least one instance more, and down when `down_after` in a row
want at least max(1, down_share of it) fewer; it goes to the count nearest to the present one that they all agree on.
After a change there is none for `cool_down_s`. An evaluation that agrees with the present count, or points the other
way, starts the count anew. Down is slower than up because an instance too many costs its price, and one too few holds
the whole trainer up. `watch` follows the rule, `forecast` says what it would do to a run.
"""

from __future__ import annotations

import math

from msgspec import Struct

from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag


class Damping(Struct, frozen=True):
    """Evaluations in a row that move the recommendation up or down, the share of it that a way down is worth, and the
    seconds after a change without another. Raises InputError for values that damp nothing or forever."""

    up_after: int = 3
    down_after: int = 15
    down_share: float = 0.05
    cool_down_s: float = 600.0

    def __post_init__(self) -> None:
        problems = [
            Problem(flag(name), value, "counts evaluations, at least 1", "give a whole number of 1 or more")
            for name, value in (("up_after", self.up_after), ("down_after", self.down_after))
            if value < 1
        ]
        if not 0 <= self.down_share < 1:
            problems.append(
                Problem(
                    flag("down_share"), self.down_share, "is a share of the recommendation", "give 0 or more, below 1"
                )
            )
        if not (math.isfinite(self.cool_down_s) and self.cool_down_s >= 0):
            problems.append(Problem(flag("cool_down"), self.cool_down_s, "is a time", "give 0 or more seconds"))
        if problems:
            raise InputError(problems)

    def margin_down(self, instances: int) -> int:
        """How many fewer than `instances` a way down must want."""
        return max(1, math.ceil(self.down_share * instances))


class Held(Struct, frozen=True):
    """instances: the recommendation; None = not yet. wanted: what the last evaluations in a row wanted, all in one
    direction. changed_s: when the recommendation last moved (unix seconds)."""

    instances: int | None = None
    wanted: tuple[int, ...] = ()
    changed_s: float = -math.inf


def damped(held: Held, wanted: int, current: int, now_s: float, damping: Damping) -> Held:
    """What is held after one more evaluation, which wants `wanted` instances while `current` are present."""
    if held.instances is None:
        return _first(held, wanted, current, now_s, damping)
    direction = _direction(wanted, held.instances, damping)
    if direction == 0:
        return Held(held.instances, (), held.changed_s)
    same = [w for w in held.wanted if _direction(w, held.instances, damping) == direction]
    after = damping.up_after if direction > 0 else damping.down_after
    row = (*(same if len(same) == len(held.wanted) else ()), wanted)[-after:]
    if len(row) < after or now_s - held.changed_s < damping.cool_down_s:
        return Held(held.instances, row, held.changed_s)
    return Held(min(row) if direction > 0 else max(row), (), now_s)


def _direction(wanted: int, present: int, damping: Damping) -> int:
    """+1 up, -1 down, 0 where it is not worth a change."""
    if wanted > present:
        return 1
    return -1 if wanted <= present - damping.margin_down(present) else 0


def _first(held: Held, wanted: int, current: int, now_s: float, damping: Damping) -> Held:
    row = (*held.wanted, wanted)
    if len(row) < damping.up_after:
        return Held(None, row, held.changed_s)
    if all(w > current for w in row):
        return Held(min(row), (), now_s)
    # Those that want fewer count on: the way down has begun.
    down = row if all(_direction(w, current, damping) < 0 for w in row) else ()
    return Held(current, down, held.changed_s)
