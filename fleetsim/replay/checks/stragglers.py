"""Is the spread across instances wide? That is a straggler or a placement problem, not a sizing problem."""

from __future__ import annotations

from fleetsim import units
from fleetsim.replay.checks.case import Case, Draft, Earlier
from fleetsim.replay.observed import InstanceView

# Deviation / mean of the instances' rates: round-robin and least-loaded routing of random lengths stay within a tenth.
SPREAD = 0.15
# Fewer instances have no median to be slower than.
FEWEST = 3
_NAMED = 4


def check(case: Case, earlier: Earlier) -> Draft:
    """fault: instances slower than the others at the same load, by name; or rates far apart because loads are."""
    o, f = case.observed, case.observed.fleet
    if f is None or len(o.instances) < FEWEST:
        n = len(o.instances)
        return Draft(
            "stragglers", "unknown", f"{n} instance{'' if n == 1 else 's'}: none to compare with",
            (f"a straggler shows against the median of {FEWEST} or more",),
        )  # fmt: skip
    evidence = [f"rates of {len(o.instances)} instances spread by {units.share(f.tok_s_cv)} (deviation / mean)"]
    slow = sorted((i for i in o.instances if i.straggler), key=lambda i: (i.pace, str(i.id)))
    if slow:
        names = ", ".join(str(i.id) for i in slow[:_NAMED])
        more = f" and {len(slow) - _NAMED} more" if len(slow) > _NAMED else ""
        evidence += [
            f"{i.id} makes {units.share(i.pace)} of the median instance's rate at its load" for i in slow[:_NAMED]
        ]
        lost = _lost(o.instances)
        return Draft(
            "stragglers", "fault", f"slow: {names}{more}", tuple(evidence),
            f"drain {names}{more} and start elsewhere; then look at that node's clocks, ECC errors and neighbours",
            {"busy": lost, "wait": lost} if case.starving else {"busy": lost}, f"{names}{more} lags behind the fleet",
        )  # fmt: skip
    if f.tok_s_cv > SPREAD:
        loads = [i.running for i in o.instances if i.running is not None]
        if loads and min(loads) > 0:
            evidence.append(f"running requests per instance go from {min(loads):.0f} to {max(loads):.0f}")
        evidence.append("at equal load none is slow: work is spread unevenly")
        return Draft(
            "stragglers", "fault", "instances are loaded unevenly", tuple(evidence),
            "fleetsim replay ... --set fleet.routing=least_loaded", {}, "work is spread unevenly over the instances",
        )  # fmt: skip
    return Draft("stragglers", "ok", "none", tuple(evidence))


def _lost(instances: tuple[InstanceView, ...]) -> float:
    """The share of the fleet's time that the slow ones lose against the median's pace, weighted by their presence."""
    present = sum(i.present_s for i in instances)
    lost = sum(i.present_s * max(0.0, 1.0 - i.pace) for i in instances if i.straggler)
    return lost / present if present > 0 else 0.0
