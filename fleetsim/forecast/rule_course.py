"""What a rule that resizes the fleet does to a run: it sees the last hour only, and an instance takes time to start.

`watch` follows such a rule. Against the resize plan, which knows the whole run beforehand, it comes late; against a
count that never changes it wins where the run changes enough, and where instances start soon enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag
from fleetsim.policies.scaling import Damping, Held, damped

Floats = NDArray[np.float64]
RULE = flag("rule")
# Starts that are tried for the longest with which a rule pays: from this, doubled so often, then halved between two.
_SHORTEST_S, _DOUBLED, _HALVED = 30.0, 12, 4
# A rule that never moves costs what the fixed count does, but for the last digits of two sums.
_ROUNDED = 1e-9
# Steps that are walked for it, at most.
_MOST_WALKED = 1_000_000


class ScalingRule(Struct, frozen=True):
    """damping: how counts that are wanted become one. every_s: between two evaluations. window_s: what each one sees.
    Raises InputError for seconds that are none."""

    damping: Damping = Damping()
    every_s: float = 60.0
    window_s: float = 3600.0

    def __post_init__(self) -> None:
        wrong = [x for x in (self.every_s, self.window_s) if not (math.isfinite(x) and x >= 1.0)]
        if wrong:
            raise InputError([Problem(RULE, wrong[0], "every and window are seconds, at least 1", "give every=60")])


# A word of --rule: what it sets, and whether that counts evaluations.
_WORDS = {"up_after": int, "down_after": int, "down_share": float, "cool_down": float, "every": float, "window": float}


def rule_of(text: str | None) -> ScalingRule:
    """The rule that `up_after=2,cool_down=300` says; what is left out is as `fleetsim watch` has it. Raises
    InputError."""
    said: dict[str, float] = {}
    for part in (text or "").split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if not part.strip():
            continue
        try:
            said[name] = _WORDS[name](value)
        except (KeyError, ValueError):
            remedy = f"for example up_after=2,cool_down=300; there are {', '.join(_WORDS)}"
            raise InputError([Problem(RULE, part, "is no NAME=NUMBER of a rule", remedy)]) from None
    loop = {f"{name}_s": said.pop(name) for name in ("every", "window") if name in said}
    if "cool_down" in said:
        said["cool_down_s"] = said.pop("cool_down")
    try:
        return ScalingRule(Damping(**said), **loop)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError([Problem(RULE, text, p.rule, p.remedy) for p in error.problems]) from None


class FleetTotal(Struct, frozen=True):
    """A run with such counts: (from step, instances) in order; seconds and US dollars of all of it, resizes too."""

    counts: tuple[tuple[int, int], ...]
    seconds: float
    usd: float

    def worth(self, usd_per_s: float) -> float:
        """US dollars, with its seconds at what one is worth."""
        return self.usd + usd_per_s * self.seconds


def walked(
    rule: ScalingRule,
    counts: Sequence[int],
    start: int,
    step_s: Floats,
    score: Floats,
    usd_s: Floats,
    start_s: float,
) -> FleetTotal:
    """The run from its first step on, with the count of index `start`.

    step_s, score: seconds of each step, and what it costs in all that counts, with each count, shape (counts, steps).
    usd_s: dollars a second of each count. start_s: a new instance is paid for so long before it serves. An evaluation
    wants the count with the least score over the steps that ended within its window; it serves from the next step on.
    """
    sums = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(score, axis=1)], axis=1)
    index = {n: i for i, n in enumerate(counts)}
    held, serving, paid = Held(counts[start]), start, start
    now = due = ready_s = usd = 0.0
    ended, first = [0.0], 0
    moves = [(0, counts[start])]
    for step in range(step_s.shape[1]):
        if serving != paid and (paid < serving or now >= ready_s):
            serving = paid
            moves.append((step, counts[serving]))
        end = now + float(step_s[serving, step])
        usd += float(usd_s[paid]) * (end - now)
        while due <= end:
            while first < step and ended[first + 1] < due - rule.window_s:
                first += 1
            same = end if step == first else due  # until when an evaluation changes nothing
            if step > first:
                wanted = counts[int(np.argmin(sums[:, step] - sums[:, first]))]
                before, held = held, damped(held, wanted, counts[paid], due, rule.damping)
                new = index[held.instances or counts[paid]]
                if new != paid:
                    usd += float(usd_s[new] - usd_s[paid]) * (end - due) if new > paid else 0.0
                    paid, ready_s = new, due + start_s
                if held == before:  # nor do the next, until the window moves on or the rest after a change is over
                    rest = held.changed_s + rule.damping.cool_down_s
                    same = min(end, ended[first + 1] + rule.window_s, rest if rest > due else math.inf)
            due += rule.every_s * max(1.0, (same - due) // rule.every_s)
        now = end
        ended.append(end)
    return FleetTotal(tuple(moves), now, usd)


def longest_start(run_with: Callable[[float], float], fixed: float, steps: int) -> float | None:
    """The longest start of an instance that was tried, seconds, with which a rule is no dearer than the best fixed
    count; 0 where it never pays, None for a run too long to try.

    run_with: what counts of a run whose instances start in so many seconds. fixed: the same of the fixed count.
    """
    if steps * (_DOUBLED + _HALVED) > _MOST_WALKED:
        return None
    most = fixed * (1.0 + _ROUNDED)
    if run_with(0.0) > most:
        return 0.0
    pays, costs = 0.0, _SHORTEST_S
    for _ in range(_DOUBLED):
        if run_with(costs) > most:
            break
        pays, costs = costs, 2.0 * costs
    else:
        return pays
    for _ in range(_HALVED):
        middle = (pays + costs) / 2.0
        pays, costs = (middle, costs) if run_with(middle) <= most else (pays, middle)
    return pays
