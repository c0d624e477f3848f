"""Is the spread across instances wide? That is a straggler or a placement problem, not a sizing problem."""

from __future__ import annotations

from statistics import fmean, pstdev

from fleetsim import units
from fleetsim.replay.diagnose.checks.case import Case, Earlier, Reply, unseen
from fleetsim.replay.observe.observed import InstanceView, Observed
from fleetsim.replay.observe.paces import PEERS, piled, usual_load

# Deviation / mean of the instances' rates: round-robin and least-loaded routing of random lengths stay within a tenth.
SPREAD = 0.15
_NAMED = 4
_EVEN = "; what that gives:\nfleetsim replay ... --set 'fleet.speed_factors=[]'"
# Of the longest presence: instances that were there for less are not compared for their load.
STAYED = 0.9


def check(case: Case, earlier: Earlier) -> Reply:
    """fault: instances slower than the others at the same load, by name; or rates far apart because loads are."""
    o, f = case.observed, case.observed.fleet
    if f is None:
        tokens = "vllm:generation_tokens_total of each instance"
        return unseen(case, "stragglers", "what single instances do is not in a run log", tokens)
    if len(o.instances) < PEERS:
        n = len(o.instances)
        return Reply(
            "stragglers", "unknown", f"{units.plural(n, 'instance')}: none to compare with",
            (f"a straggler shows against the median of {PEERS} or more",), missing=f"{PEERS} instances or more",
        )  # fmt: skip
    evidence = [f"rates of {len(o.instances)} instances spread by {units.share(f.tok_s_cv)} (deviation / mean)"]
    slow = slow_instances(o)
    by_work = [i for i in slow if not i.straggler]
    if slow:
        names = ", ".join(str(i.id) for i in slow[:_NAMED])
        more = f" and {len(slow) - _NAMED} more" if len(slow) > _NAMED else ""
        evidence[:0] = [
            f"{i.id} makes {units.share(i.pace)} of the median instance's rate at its load"
            if i.straggler
            else f"{i.id} holds {i.running or 0.0:,.0f} requests, the median instance {usual_load(o.instances):,.0f}, "
            "and makes no more tokens of them (inferred: it is slow, and work piles up on it)"
            for i in slow[:_NAMED]
        ]
        lost = _lost(o.instances)
        # The samples that are stuck on it hold the batch up, whatever the others do.
        waits = max(lost, _held_up(case)) if by_work else lost
        return Reply(
            "stragglers", "fault", f"slow: {names}{more}", tuple(evidence),
            f"drain {names}{more} and start elsewhere; then look at that node's clocks, ECC errors and neighbours"
            f"{_EVEN}",
            case.shorter(waits) if case.starving else {"busy": lost}, f"{names}{more} lags behind the fleet",
        )  # fmt: skip
    # Instances that were added, lost or lent for a while had another load than those that stayed.
    stayed = [i for i in o.instances if i.present_s >= STAYED * max(j.present_s for j in o.instances)]
    spread = f.tok_s_cv if len(stayed) == len(o.instances) else _spread([i.active_tok_s for i in stayed])
    if case.says("fleet.placement") and case.scenario.fleet.placement == "colocated_lending":
        spread = 0.0  # the trainer's instances begin empty each time that they are lent
    if o.rolling is not None:
        evidence.append("a rolling weight sync stops one after the other: rates are apart while it lasts")
        spread = 0.0
    if spread > SPREAD:
        loads = [i.running for i in stayed if i.running is not None]
        if loads and min(loads) > 0:
            evidence.append(f"running requests per instance go from {min(loads):.0f} to {max(loads):.0f}")
        evidence.append("at equal load none is slow: work is spread unevenly")
        return Reply(
            "stragglers", "fault", "instances are loaded unevenly", tuple(evidence),
            "send each request to the instance with the fewest in flight; what that gives:\n"
            "fleetsim replay ... --set fleet.routing=least_loaded", {}, "work is spread unevenly over the instances",
        )  # fmt: skip
    return Reply("stragglers", "ok", "none", tuple(evidence))


def _held_up(case: Case) -> float:
    """Of a step, the share that work piled up on slow instances costs at most: all of it spread evenly, and none of
    what is queued now kept out of flight.

    A healthy instance makes r(u) tokens per second of the usual load u, and so does a slow one with more. Spread evenly
    each holds c of them, and r never grows faster than c: the fleet's rate grows by c / u at most.
    """
    views, wait = case.observed.instances, 0.0 if case.idle is None else case.idle.value
    each = (sum(i.running or 0.0 for i in views) + (case.observed.queue.depth or 0.0)) / len(views)
    return min(wait, max(0.0, 1.0 - usual_load(views) / each))


def slow_instances(observed: Observed) -> list[InstanceView]:
    """Slower than the others at the same load, or holding more work and making no more of it; slowest first."""
    # In a rolling sync work piles up on what stands, in turn.
    held = [] if observed.rolling is not None else piled(observed.instances)
    return sorted((i for i in observed.instances if i.straggler or i in held), key=lambda i: (i.pace, str(i.id)))


def _spread(rates: list[float]) -> float:
    """Deviation / mean; 0 for too few to compare."""
    mean = fmean(rates)
    return pstdev(rates) / mean if len(rates) >= PEERS and mean > 0 else 0.0


def _lost(instances: tuple[InstanceView, ...]) -> float:
    """The share of the fleet's time that the slow ones lose against the median's pace, weighted by their presence."""
    present = sum(i.present_s for i in instances)
    lost = sum(i.present_s * max(0.0, 1.0 - i.pace) for i in instances if i.straggler)
    return lost / present if present > 0 else 0.0
