"""What no input explains: from `fleetsim validate --ranges --json` to the two tables of residuals.

    fleetsim validate --ranges --json > validated.json
    python calibration/residuals.py validated.json

Published and not sealed arms alone; every case counts alike. The tables are those of all cases. Coverage is that of
cases that were kept out whole: each is judged by a table that was worked out without it.

*Plans* (`engine/known_error.py`): how much further than its inputs explain a step may lie above and below, a logarithm,
by framework and by whether trainer and engines share their GPUs. Few runs of a kind are drawn to those of all.
*One arm measured* (`validate/groups.py`): published over predicted, which grows with the root of how far an arm is from
the one that was measured. Tried on cases kept out, by the score that adds ten times what lies beyond a range to its
width: 0.42; one width for all arms 0.48, one for each group of arms 0.51, in proportion to the distance 0.41 with more
misses. A factor on the waiting alone, where the trainer's own seconds are given, gave wider ranges (1.83).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from fleetsim.job.uncertainty import RERUN
from fleetsim.validate.case import load_cases
from fleetsim.validate.groups import MOST_APART

# The share of arms that may lie above a range, and below it, on the cases that a table is worked out of. On cases kept
# out the same table holds less, so that 80 % hold there.
TAIL_PLAN, TAIL_MEASURED = 0.14, 0.09
# Cases of all kinds that stand beside a kind's own.
BESIDE = 3
STEPS = [i / 100 for i in range(120)]


@dataclass(frozen=True, slots=True)
class Seen:
    """One arm. off: logarithm of published / predicted step. up, down: how far its range explains already. scale: of
    a residual."""

    case: str
    kind: tuple[str, ...]
    off: float
    up: float
    down: float
    scale: float = 1.0


Table = tuple[float, float]


def above(arm: Seen, reach: float, side: int) -> bool:
    """Whether an arm lies beyond its range on one side, with a residual of `reach`."""
    return side * arm.off > math.hypot(arm.up if side > 0 else arm.down, reach * arm.scale)


def share(arms: Iterable[Seen], test: Callable[[Seen], bool]) -> tuple[float, int]:
    """The sum over cases of the share of their arms, and how many cases there are."""
    cases: dict[str, list[bool]] = {}
    for arm in arms:
        cases.setdefault(arm.case, []).append(test(arm))
    return sum(map(fmean, cases.values())), len(cases)


def table(arms: Sequence[Seen], kind: tuple[str, ...], beside: float, tail: float) -> Table:
    """The least residuals (up, down) that leave `tail` above and below, of a kind and `beside` cases of all."""
    own = [arm for arm in arms if arm.kind == kind]
    found = []
    for side in (1, -1):
        for reach in STEPS:
            mine, n = share(own, lambda arm: above(arm, reach, side))  # noqa: B023
            every, of = share(arms, lambda arm: above(arm, reach, side))  # noqa: B023
            if (mine + beside * every / of) / (n + beside) <= tail:
                break
        found.append(reach)
    return found[0], found[1]


def kept_out(arms: Sequence[Seen], beside: float, tail: float) -> str:
    """Coverage and width on cases that the table did not see."""
    held: dict[str, list[bool]] = {}
    widths = []
    for arm in arms:
        up, down = table([a for a in arms if a.case != arm.case], arm.kind, beside, tail)
        held.setdefault(arm.case, []).append(not above(arm, up, 1) and not above(arm, down, -1))
        widths.append(math.exp(math.hypot(arm.up, up * arm.scale) + math.hypot(arm.down, down * arm.scale)))
    plain = fmean(x for case in held.values() for x in case)
    return f"{plain:.0%} of the arms, {fmean(map(fmean, held.values())):.0%} by case, width {median(widths):.2f}"


def main(path: str) -> None:
    """Prints both tables and what they hold."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    cases = {case.id: case for case in load_cases()}
    plans = []
    for row in document["ranges"]["arms"]:
        case, p = cases[row["case"]], row["predicted"]
        if case.sealed:
            continue
        place = case.arm(row["arm"]).set.get("fleet.placement", case.scenario["fleet"].get("placement", ""))
        mode = "shared" if place.startswith("colocated") else "split"
        sign = -1 if case.measure == "tok_s" else 1
        ends = sorted(sign * math.log(p[end] / p["value"]) for end in ("low", "high"))
        off = sign * math.log(row["published"] / p["value"])
        plans.append(Seen(case.id, (case.framework or "other", mode), off, ends[1], -ends[0]))
    print("plans, kept out:", kept_out(plans, BESIDE, TAIL_PLAN))
    for kind in sorted({arm.kind for arm in plans}):
        print("  ", *kind, *table(plans, kind, BESIDE, TAIL_PLAN))
    print("   any", *table(plans, (), BESIDE, TAIL_PLAN))
    fitted: dict[str, list[float]] = {}
    for row in document["arms"]:
        if row["role"] == "fitted" and not cases[row["case"]].arm(row["arm"]).reference:
            fitted.setdefault(row["case"], []).append(row["predicted"])
    measured = []
    for row in document["arms"]:
        case = cases[row["case"]]
        if case.sealed is not None or row["role"] == "fitted" or row["published"] is None:
            continue
        off = math.log(row["published"] / row["predicted"]) * (-1 if case.measure == "tok_s" else 1)
        known = [1.0] if case.arm(row["arm"]).reference else fitted.get(case.id, [])
        far = min((abs(math.log(row["predicted"] / p)) for p in known), default=1.0)
        once = math.log1p(RERUN)
        measured.append(Seen(case.id, (), off, once, once, math.sqrt(min(far, MOST_APART))))
    print(
        "one arm measured:",
        *table(measured, (), 0.0, TAIL_MEASURED),
        "kept out:",
        kept_out(measured, 0.0, TAIL_MEASURED),
    )


if __name__ == "__main__":
    main(sys.argv[1])
