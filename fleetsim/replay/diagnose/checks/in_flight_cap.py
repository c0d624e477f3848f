"""Does the client's own cap bind? Then engines have room that nobody uses, and more of them would change nothing."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.replay.diagnose.checks.case import (
    FLAT,
    KV_ROOM,
    WAITING,
    WORTH,
    Case,
    Earlier,
    Reply,
    idle_words,
    metric_of,
    unseen,
)
from fleetsim.replay.observe.lengths import LARGEST_GROUP, places_when_spread
from fleetsim.replay.observe.observed import FleetView

# Engines that run more than this of their max_num_seqs have no room for more.
NEARLY_ALL = 0.9
# Of the mean in flight: what a group can be missing of a ceiling. Work that runs out between batches ebbs by more.
ROOM = 0.25
_RAISE = "raise that cap, with a staleness bound that allows it"


def check(case: Case, earlier: Earlier) -> Reply:
    """fault: what is in flight stays at a ceiling (peak / mean below FLAT, but for the room that a group waits for), or
    beside a trainer that is known to wait at a level, while nothing waits in the engines and their KV caches have room;
    without a size, and as a suspicion, where the trainer's wait is not known. unknown: the engines' load is not known.
    """
    f = case.observed.fleet
    if case.colocated:
        return Reply("in_flight_cap", "ok", "the batch is what is in flight", ("colocated: all of it starts at once",))
    if f is None:
        return unseen(case, "in_flight_cap", "requests in flight are not known", "vllm:num_requests_running")
    if f.in_flight_mean is None or f.in_flight_peak is None or f.in_flight_mean <= 0:
        title, missing = "requests in flight are not exported", metric_of(case, "running")
        return Reply("in_flight_cap", "unknown", title, (idle_words(case),), missing=missing)
    mean, peak, waiting = f.in_flight_mean, f.in_flight_peak, case.behind_share
    evidence = [f"{mean:,.0f} samples in flight on average, {peak:,.0f} at the most{_of_batch(case, peak)}"]
    if waiting is not None:
        evidence.append(f"{units.share(waiting)} of them wait in an engine")
    if f.kv_use_peak is not None:
        evidence.append(f"KV caches reach {units.share(f.kv_use_peak)}")
    if counts_groups(case.scenario, case.given) and case.gains.get("in_flight_cap", 0.0) >= WORTH:
        return _of_groups(case, evidence)
    ceiling = peak <= FLAT * (mean + _missing(case, mean))
    if not ceiling and not (case.starving and f.steady):
        return Reply("in_flight_cap", "ok", "no cap shows: the number in flight rises and falls", tuple(evidence))
    if waiting is not None and waiting > WAITING:
        return Reply("in_flight_cap", "ok", "the engines are full: their limits come first", tuple(evidence))
    if case.kv_full:
        return Reply("in_flight_cap", "ok", "the KV caches are full", tuple(evidence))
    limit = case.scenario.engine.max_num_seqs if case.says("engine.max_num_seqs") else None
    if limit is not None and f.running is not None and f.running > NEARLY_ALL * limit * f.instances:
        return Reply("in_flight_cap", "ok", f"the engines run their max_num_seqs of {limit}", tuple(evidence))
    evidence.append(idle_words(case))
    if case.kv_full is None:
        title, missing = "a ceiling, but not whether the engines have room", metric_of(case, "kv_use")
        return Reply("in_flight_cap", "unknown", title, tuple(evidence), missing=missing)
    if case.starving is False:
        return Reply("in_flight_cap", "ok", "a ceiling that costs the trainer nothing", tuple(evidence))
    more = _doubled(peak, f.kv_use_peak or KV_ROOM)
    evidence.append("inferred: a ceiling in the client, not in the engines, holds the rest back")
    if case.idle is None:
        evidence.append("an unlimited client's requests ebb and flow with the batches; these do not")
        return Reply(
            "in_flight_cap", "fault",
            f"suspected: the client keeps {peak:,.0f} samples in flight, and engines have room", tuple(evidence),
            "whether the trainer waits would make it sure, with --map trainer.wait_s=METRIC of your own; until then:\n"
            f"fleetsim replay ... --set {_cap(case, more)}",
            {}, f"the client's cap of {peak:,.0f} samples in flight seems to bind while engines have room",
        )  # fmt: skip
    idle = case.idle.value
    if not ceiling:
        return _steady(case, f, evidence, more)
    return Reply(
        "in_flight_cap", "fault", f"the client keeps {peak:,.0f} samples in flight, and engines have room",
        tuple(evidence), f"{_RAISE}:\nfleetsim replay ... --set {_cap(case, more)}",
        case.shorter(idle), f"the client's cap of {peak:,.0f} samples in flight binds while engines have room",
    )  # fmt: skip


def _steady(case: Case, f: FleetView, evidence: Sequence[str], more: int) -> Reply:
    """What is in flight keeps a level that is no sharp ceiling: a cap on groups, or a client that sends no faster."""
    kept = f"{f.in_flight_mean or 0.0:,.0f} samples in flight"
    said = f"they do not rise when a batch is trained: the client sends {f.finished_s or 0.0:,.3g} a second throughout"
    return Reply(
        "in_flight_cap", "fault", f"the client keeps about {kept}, and engines have room",
        (*evidence[:-1], said if f.finished_s else "they do not rise when a batch is trained", evidence[-1]),
        "raise the client's cap on groups or requests; if it has none, the client itself sends too slowly:\n"
        f"fleetsim replay ... --set {_cap(case, more)}",
        case.shorter(0.0 if case.idle is None else case.idle.value),
        f"the client keeps only about {kept} while engines have room",
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
    return Reply(
        "in_flight_cap", "fault", f"the client keeps {cap / group:,.0f} groups in flight, and engines have room",
        (*evidence, said), f"{_RAISE}:\nfleetsim replay ... --set {_cap(case, 2 * cap)}",
        case.shorter(0.0 if case.idle is None else case.idle.value),
        f"the client's cap of {cap / group:,.0f} groups in flight binds while engines have room",
    )  # fmt: skip


def _missing(case: Case, mean: float) -> float:
    """What is missing of a cap on average: slots free up one by one, and a client of whole groups fills them again when
    a group fits, so half a group less one sample; no more than ROOM of the mean."""
    return min((_group(case) - 1.0) / 2.0, ROOM * mean)


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


def _of_batch(case: Case, peak: float) -> str:
    """What a ceiling is in batches: a staleness window shows as a multiple of the batch."""
    batch = case.observed.trainer.batch_samples
    return "" if batch is None or batch.value <= 0 else f" ({peak / batch.value:.2f} batches)"


def _doubled(peak: float, kv_peak: float) -> int:
    """Twice the ceiling, or what fills the KV caches up to KV_ROOM if that is less."""
    room = KV_ROOM / kv_peak if kv_peak > 0 else 2.0
    return max(round(peak) + 1, round(peak * min(2.0, room)))
