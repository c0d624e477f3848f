"""How work is put on the instances: is one slow, or the spread wide, and does the client's own cap bind?

A wide spread is a straggler or a placement problem, not a sizing problem. Where the client's cap binds, engines have
room that nobody uses, and more of them would change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean, pstdev

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.replay.diagnose.checks.case import (
    FLAT,
    INFERRED,
    KV_ROOM,
    WAITING,
    WORTH,
    Case,
    Reply,
    idle_words,
    metric_of,
    unseen,
)
from fleetsim.replay.observe.lengths import LARGEST_GROUP, places_when_spread
from fleetsim.replay.observe.observed import FleetView, InstanceView, Observed
from fleetsim.replay.observe.paces import PEERS, piled, usual_load

# Deviation / mean of the instances' rates: round-robin and least-loaded routing of random lengths stay within a tenth.
SPREAD = 0.15
_NAMED = 4
_EVEN = "; what that gives:\nfleetsim replay ... --set 'fleet.speed_factors=[]'"
# Of the longest presence, and of the most scrapes that one answered: instances that were there for less, or that come
# and go, as those that a trainer lends, are not compared for their load.
STAYED = 0.9


def stragglers(case: Case) -> Reply:
    """fault: instances slower than the others at the same load, by name; or rates far apart because loads are."""
    o, f = case.observed, case.observed.fleet
    if f is None:
        tokens = "vllm:generation_tokens_total of each instance"
        return unseen(case, "what single instances do is not in a run log", tokens)
    if len(o.instances) < PEERS:
        n = len(o.instances)
        return Reply("unknown", f"{units.plural(n, 'instance')}: none to compare with",
            (f"a straggler shows against the median of {PEERS} or more",), missing=f"{PEERS} instances or more",
        )  # fmt: skip
    evidence = [f"rates of {len(o.instances)} instances spread by {units.share(f.tok_s_cv)} (deviation / mean)"]
    slow = slow_instances(o)
    by_work = [i for i in slow if not i.straggler]
    if slow:
        names = units.few([str(i.id) for i in slow], _NAMED)
        evidence[:0] = [
            f"{i.id} makes {units.share(i.pace)} of the median instance's rate at its load"
            if i.straggler
            else f"{i.id} holds {i.running or 0.0:,.0f} requests, the median instance {usual_load(o.instances):,.0f}, "
            "and makes no more tokens of them (inferred: it is slow, and work piles up on it)"
            for i in slow[:_NAMED]
        ]
        # of the fleet's time, what the slow ones lose against the median's pace
        present = sum(i.present_s for i in o.instances)
        lost = sum(i.present_s * max(0.0, 1.0 - i.pace) for i in o.instances if i.straggler) / max(present, 1e-9)
        return Reply("fault", f"slow: {names}", evidence,
            f"drain {names} and start elsewhere; then look at that node's clocks, ECC errors and neighbours"
            f"{_EVEN}",
            # the samples that are stuck on it hold the batch up, whatever the others do
            (max(lost, _held_up(case)) if by_work and case.starving else lost if case.starving else 0.0, lost),
            f"{names} lags behind the fleet",
        )  # fmt: skip
    # Instances that were added, lost or lent for a while had another load than those that stayed.
    longest, most = STAYED * max(i.present_s for i in o.instances), STAYED * max(i.scraped for i in o.instances)
    stayed = [i for i in o.instances if i.present_s >= longest and i.scraped >= most]
    rates = [i.active_tok_s for i in stayed]
    spread = pstdev(rates) / max(fmean(rates), 1e-9) if len(rates) >= PEERS else 0.0
    spread = f.tok_s_cv if len(stayed) == len(o.instances) else spread
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
        return Reply("fault", "instances are loaded unevenly", evidence,
            "send each request to the instance with the fewest in flight; what that gives:\n"
            "fleetsim replay ... --set fleet.routing=least_loaded --set fleet.group_placement=spread", None,
            "work is spread unevenly over the instances",
        )  # fmt: skip
    return Reply("ok", "none", evidence)


def _held_up(case: Case) -> float:
    """Of a step, the share that work piled up on slow instances costs at most: all of it spread evenly, and none of
    what is queued now kept out of flight. A healthy instance makes r(u) tokens per second of the usual load u, and so
    does a slow one with more. Spread evenly each holds c of them, and r never grows faster than c."""
    views, wait = case.observed.instances, 0.0 if case.idle is None else case.idle.value
    each = (sum(i.running or 0.0 for i in views) + (case.observed.queue.depth or 0.0)) / len(views)
    return min(wait, max(0.0, 1.0 - usual_load(views) / each))


def slow_instances(observed: Observed) -> list[InstanceView]:
    """Slower than the others at the same load, or holding more work and making no more of it; slowest first."""
    # In a rolling sync work piles up on what stands, in turn.
    held = [] if observed.rolling is not None else piled(observed.instances)
    return sorted((i for i in observed.instances if i.straggler or i in held), key=lambda i: (i.pace, str(i.id)))


# Engines that run more than this of their max_num_seqs have no room for more.
NEARLY_ALL = 0.9
# Of the mean in flight: what a group can be missing of a ceiling. Work that runs out between batches ebbs by more.
ROOM = 0.25
_RAISE = "raise that cap, with a staleness bound that allows it"


def in_flight_cap(case: Case) -> Reply:
    """fault: what is in flight stays at a ceiling (peak / mean below FLAT, but for the room that a group waits for), or
    beside a trainer that is known to wait at a level, while nothing waits in the engines and their KV caches have room;
    without a size, and as a suspicion, where the trainer's wait is not known. unknown: the engines' load is not known.
    """
    f = case.observed.fleet
    if case.colocated:
        return Reply("ok", "the batch is what is in flight", ("colocated: all of it starts at once",))
    if f is None:
        return unseen(case, "requests in flight are not known", "vllm:num_requests_running")
    if f.in_flight_mean is None or f.in_flight_peak is None or f.in_flight_mean <= 0:
        title, missing = "requests in flight are not exported", metric_of(case, "running")
        return Reply("unknown", title, (idle_words(case),), missing=missing)
    mean, peak, waiting = f.in_flight_mean, f.in_flight_peak, case.behind_share
    batch = case.observed.trainer.batch_samples  # a staleness window shows as a multiple of it
    batches = "" if batch is None or batch.value <= 0 else f" ({peak / batch.value:.2f} batches)"
    evidence = [f"{mean:,.0f} samples in flight on average, {peak:,.0f} at the most{batches}"]
    if waiting is not None:
        evidence.append(f"{units.share(waiting)} of them wait in an engine")
    if f.kv_use_peak is not None:
        evidence.append(f"KV caches reach {units.share(f.kv_use_peak)}")
    if counts_groups(case.scenario, case.given) and case.gains.get("in_flight_cap", 0.0) >= WORTH:
        return _of_groups(case, evidence)
    # Slots free up one by one, and a client of whole groups fills them again when a group fits: half a group less one
    # sample is missing of a cap on average.
    ceiling = peak <= FLAT * (mean + min((_group(case) - 1.0) / 2.0, ROOM * mean))
    if not ceiling and not (case.starving and f.steady):
        return Reply("ok", "no cap shows: the number in flight rises and falls", evidence)
    limit = case.max_num_seqs
    # what is known to wait behind others, and at no limit, is on its way
    passing = limit is None and case.kv_full is False and f.waiting_behind is not None
    if waiting is not None and waiting > (INFERRED if passing else WAITING):
        return Reply("ok", "the engines are full: their limits come first", evidence)
    if case.kv_full:
        return Reply("ok", "the KV caches are full", evidence)
    if limit is not None and f.running is not None and f.running > NEARLY_ALL * limit * f.instances:
        return Reply("ok", f"the engines run their max_num_seqs of {limit}", evidence)
    evidence.append(idle_words(case))
    if case.kv_full is None:
        title, missing = "a ceiling, but not whether the engines have room", metric_of(case, "kv_use")
        return Reply("unknown", title, evidence, missing=missing)
    if case.starving is False:
        return Reply("ok", "a ceiling that costs the trainer nothing", evidence)
    # twice the ceiling, or what fills the KV caches up to KV_ROOM if that is less
    more = max(round(peak) + 1, round(peak * min(2.0, KV_ROOM / (f.kv_use_peak or KV_ROOM))))
    evidence.append("inferred: a ceiling in the client, not in the engines, holds the rest back")
    if case.idle is None:
        evidence.append("an unlimited client's requests ebb and flow with the batches; these do not")
        return Reply("fault",
            f"suspected: the client keeps {peak:,.0f} samples in flight, and engines have room", evidence,
            "whether the trainer waits would make it sure, with --map trainer.wait_s=METRIC of your own; until then:\n"
            f"fleetsim replay ... --set {_cap(case, more)}",
            None, f"the client's cap of {peak:,.0f} samples in flight seems to bind while engines have room",
        )  # fmt: skip
    if not ceiling:
        return _steady(case, f, evidence, more)
    return Reply("fault", f"the client keeps {peak:,.0f} samples in flight, and engines have room",
        evidence, f"{_RAISE}:\nfleetsim replay ... --set {_cap(case, more)}",
        case.at_most, f"the client's cap of {peak:,.0f} samples in flight binds while engines have room",
    )  # fmt: skip


def _steady(case: Case, f: FleetView, evidence: Sequence[str], more: int) -> Reply:
    """What is in flight keeps a level that is no sharp ceiling: a cap on groups, or a client that sends no faster."""
    kept = f"{f.in_flight_mean or 0.0:,.0f} samples in flight"
    said = f"they do not rise when a batch is trained: the client sends {f.finished_s or 0.0:,.3g} a second throughout"
    return Reply("fault", f"the client keeps about {kept}, and engines have room",
        (*evidence[:-1], said if f.finished_s else "they do not rise when a batch is trained", evidence[-1]),
        "raise the client's cap on groups or requests; if it has none, the client itself sends too slowly:\n"
        f"fleetsim replay ... --set {_cap(case, more)}",
        case.at_most, f"the client keeps only about {kept} while engines have room",
    )  # fmt: skip


def counts_groups(scenario: Scenario, given: Collection[str]) -> bool:
    """Whether somebody says that the client caps groups: those hold their place until their last sample ends, so that
    what is in flight is no ceiling, and only a simulation tells whether the cap binds."""
    fleet = scenario.fleet
    caps = fleet.max_in_flight_samples or fleet.max_in_flight_samples_per_instance
    return fleet.in_flight_unit == "groups" and caps is not None and "fleet.in_flight_unit" in given


def _of_groups(case: Case, evidence: Sequence[str]) -> Reply:
    """The cap on groups that somebody gave binds, by simulation."""
    fleet, group = case.scenario.fleet, case.scenario.workload.group_size
    cap = fleet.max_in_flight_samples or (fleet.max_in_flight_samples_per_instance or 0) * fleet.instances
    said = f"the client allows {cap / group:,.0f} groups, each until its last sample ends"
    return Reply("fault", f"the client keeps {cap / group:,.0f} groups in flight, and engines have room",
        (*evidence, said), f"{_RAISE}:\nfleetsim replay ... --set {_cap(case, 2 * cap)}",
        case.at_most, f"the client's cap of {cap / group:,.0f} groups in flight binds while engines have room",
    )  # fmt: skip


def _group(case: Case) -> float:
    """Samples of a group: as given, exported or inferred from siblings that share an engine; else as many as would hit
    as often where they are spread over all of them. 1 where nothing tells."""
    f, lengths = case.observed.fleet, case.observed.lengths
    known = case.group_size or (None if lengths is None else lengths.group_size)
    if known is not None:
        return known.value
    if f is None or f.prefix_hit is None:
        return 1.0
    hits = ((g, 1.0 - places_when_spread(g, f.instances) / g) for g in range(2, LARGEST_GROUP + 1))
    return float(min(hits, key=lambda pair: abs(pair[1] - (f.prefix_hit or 0.0)), default=(1, 0.0))[0])


def _cap(case: Case, more: int) -> str:
    """The cap that somebody gave, raised to so many samples in flight; else the fleet's."""
    fleet = case.scenario.fleet
    if case.says("fleet.max_in_flight_samples_per_instance") and fleet.max_in_flight_samples_per_instance is not None:
        count = case.observed.fleet.instances if case.observed.fleet is not None else fleet.instances
        return f"fleet.max_in_flight_samples_per_instance={math.ceil(more / max(1.0, count))}"
    return f"fleet.max_in_flight_samples={more}"
