"""What no input explains: two pairs of residuals, from published runs that are predicted anew.

    python calibration/residuals.py

Every case counts alike. The pairs are those of all cases but the batch that was sealed last: what nobody had seen when
it was predicted is what a range is for, so cases that were sealed count once a later batch is there to judge. Coverage
and score are those of cases that were kept out whole, each judged by a pair that was worked out without it, and of the
last batch. The score of a range is the logarithm of its ends' ratio, and ten times that by which an arm lies beyond it.

*Plans* (`engine/known_error.py`): how much further than its inputs explain a step may lie above and below, a logarithm.
The range that is told holds the pair of today already: it is taken out of it first. A pair for each framework, and for
whether trainer and engines share their GPUs, was the rule before: no better on cases kept out, and of sealed arms,
looked at afterwards, ranges with it held 64 % where those with one pair for all hold 76 %.
*One arm measured* (`validate/groups.py`): published over predicted, which grows with the root of how far an arm is from
the one that was measured. By how far the seconds of waiting, and of a trainer whose own are not given, are apart it was
a tenth better, but fewer sealed arms held. In proportion to a distance fewer hold.
Siblings that are more or less alike, each case fitted anew, make ranges no better, and a factor on the waiting alone,
where the trainer's seconds are given, made them wider (1.83).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median

from fleetsim.engine.known_error import RESIDUAL
from fleetsim.job.uncertainty import RERUN
from fleetsim.validate.case import load_cases
from fleetsim.validate.groups import apart
from fleetsim.validate.run import RangedArm, ranged_arms, run_cases
from fleetsim.validate.verdict import CaseResult, role

# The share of arms that may lie below a range on the cases that a pair is made of, half of what eight in ten leave;
# where the inputs alone leave fewer there, more may lie above. On cases kept out whole ranges then hold 84 and 83 %,
# 80 and 80 % where every case counts alike.
TAIL = 0.1
# What an arm beyond its range adds to the score, for each part of its distance.
PENALTY = 10.0
STEPS = [i / 100 for i in range(120)]
# The first case of the batch that was sealed last: two batches can be of one day.
LAST_BATCH = 43


@dataclass(frozen=True, slots=True)
class Seen:
    """One arm. off: published / predicted seconds of a step, less 1. up, down: how far its range explains already, as
    shares. scale: of a residual."""

    case: str
    off: float
    up: float
    down: float
    scale: float = 1.0

    def end(self, reach: float, side: int) -> float:
        """The range's end on one side, less 1, with a residual of `reach`: added as `validate/run.py` adds it."""
        return side * math.hypot(self.up if side > 0 else self.down, math.expm1(side * reach * self.scale))

    def beyond(self, reach: float, side: int) -> float:
        """By which logarithm the arm lies beyond its range on one side."""
        return max(0.0, side * math.log((1 + self.off) / (1 + self.end(reach, side))))


Pair = tuple[float, float]


def by_case(arms: Sequence[Seen], of: Callable[[Seen], float]) -> float:
    """The mean over cases of the mean over their arms."""
    cases: dict[str, list[float]] = {}
    for arm in arms:
        cases.setdefault(arm.case, []).append(of(arm))
    return fmean(map(fmean, cases.values()))


def _above(reach: float, side: int, arm: Seen) -> bool:
    return arm.beyond(reach, side) > 0.0


def pair(arms: Sequence[Seen]) -> Pair:
    """The least residuals (up, down): TAIL may lie below, and above what that leaves of twice as many."""

    def beyond(reach: float, side: int) -> float:
        return by_case(arms, partial(_above, reach, side))

    down = next(reach for reach in STEPS if beyond(reach, -1) <= TAIL)
    up = next(reach for reach in STEPS if beyond(reach, 1) <= 2 * TAIL - beyond(down, -1))
    return up, down


def kept_out(arms: Sequence[Seen]) -> str:
    """Coverage, width and score on cases that the pair did not see."""
    return held(arms, {case: pair([arm for arm in arms if arm.case != case]) for case in {arm.case for arm in arms}})


def held(arms: Sequence[Seen], pairs: Mapping[str, Pair]) -> str:
    """Coverage, width and score of arms with the pair of each case."""

    def beyond(arm: Seen) -> float:
        up, down = pairs[arm.case]
        return arm.beyond(up, 1) + arm.beyond(down, -1)

    def width(arm: Seen) -> float:
        up, down = pairs[arm.case]
        return (1 + arm.end(up, 1)) / (1 + arm.end(down, -1))

    alike, score = (
        by_case(arms, lambda a: not beyond(a)),
        by_case(arms, lambda a: math.log(width(a)) + PENALTY * beyond(a)),
    )
    plain = fmean(not beyond(arm) for arm in arms)
    return f"{plain:.0%} of the arms, {alike:.0%} by case, width {median(map(width, arms)):.2f}, score {score:.2f}"


def plans(results: Sequence[CaseResult], told: Sequence[RangedArm]) -> list[Seen]:
    """All arms, as a plan tells them, without a residual."""
    cases = {result.case.id: result.case for result in results}
    found = []
    for arm in told:
        case, p = cases[arm.case], arm.predicted
        rate = case.measure == "tok_s"
        ends = (p.high / p.value - 1, 1 - p.low / p.value)
        up, down = (
            math.sqrt(max(0.0, end**2 - math.expm1(side * of) ** 2))
            for end, side, of in zip(reversed(ends) if rate else ends, (1, -1), RESIDUAL, strict=True)
        )
        off = arm.published / p.value - 1
        found.append(Seen(case.id, -off if rate else off, up, down))
    return found


def measured(results: Sequence[CaseResult]) -> list[Seen]:
    """All arms, with one arm measured."""
    found = []
    for result in results:
        for arm in result.arms:
            if role(result, arm) == "fitted" or arm.arm.published is None:
                continue
            ratio = arm.arm.published / arm.predicted
            off = (1 / ratio if result.case.measure == "tok_s" else ratio) - 1
            found.append(Seen(result.case.id, off, RERUN, RERUN, math.sqrt(apart(result, arm))))
    return found


def but_last(arms: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
    """The arms of all cases but the batch that was sealed last, and that batch's."""

    def is_last(arm: Seen) -> bool:
        return arm.case.startswith("S") and int(arm.case[1:]) >= LAST_BATCH

    return [arm for arm in arms if not is_last(arm)], [arm for arm in arms if is_last(arm)]


def main() -> None:
    """Prints both pairs and what they hold."""
    results = run_cases(load_cases())
    for name, arms in (("plans", plans(results, ranged_arms(results))), ("one arm measured", measured(results))):
        seen, last = but_last(arms)
        found = pair(seen)
        print(f"{name}:", *found, "kept out:", kept_out(seen))
        print("  the last batch:", held(last, {arm.case: found for arm in last}))


if __name__ == "__main__":
    main()
