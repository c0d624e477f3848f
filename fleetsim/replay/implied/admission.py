"""Which admission law a fleet runs by, where nobody says: the one whose simulation holds as much in flight.

Laws are tried on the implied scenario and compared with the window in what engines and queue show: mean and peak of
the requests in flight, samples queued, share of instance-time without work, tokens per second, tokens generated per
token trained. What comes out is the nearest law, not the proven one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.engine.defaults import BLOCK_SIZE
from fleetsim.errors import FleetsimError
from fleetsim.policies.admission import laws_by_parameter
from fleetsim.replay.observe.lengths import expected_hits, places_when_spread
from fleetsim.replay.observe.observed import Observed, QueueView, value_of
from fleetsim.replay.observe.trainer import grows
from fleetsim.replay.window_view import Gauged, in_flight
from fleetsim.sim.engines import Engine
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.threads import side_by_side

# Steps of a trial, and times at which its engines are looked at.
_STEPS, _LOOKS = 16, 400
# Trials that a pool is fitted in, and batches that it holds at most.
_POOL_ROUNDS, _MOST_AHEAD = 2, 16
# Peak over mean in flight from which they are no steady pool.
_EBBS = 1.5
# So many of the nearest laws, and the variants of the best, are tried over more steps: a queue that is thrown away as
# it ages takes a few dozen steps to become what it stays, and what is left of its start tells variants apart wrongly.
_FINALISTS, _LONG_STEPS = 4, 40
# Tried on top of the nearest law, and taken where they are nearer by more than a trial's chance.
_VARIANTS: tuple[Mapping[str, Any], ...] = ({"sync.in_flight": "drain"}, {"sync.in_flight": "abort_resume"})
_PLACES: tuple[Mapping[str, Any], ...] = ({}, {"fleet.group_placement": "spread"})
# Laws that drop what is too old are tried where more than this share of the finished samples was thrown away.
_DROPS = 0.02
_CLEARLY = 0.9
# Laws whose distances differ by less than this are told apart by nothing in the window: then the one that invents the
# fewest bounds counts. A bound that does not bind here would bind in a what-if.
_ALIKE = 0.02
_BOUNDS = (
    "admission.max_staleness",
    "admission.batches_ahead",
    "admission.staleness_threshold",
    "admission.max_age",
    "fleet.max_in_flight_samples",
    "buffer.capacity_samples",
)


# Laws with a parameter: whoever gives one says which of them it is.
_READ_BY: Mapping[str, list[str]] = laws_by_parameter()


def admission_like(
    scenario: Scenario, engine: Engine | None, observed: Observed, facts: Mapping[str, Any] | None = None
) -> tuple[Mapping[str, Any], str]:
    """The law for a fleet of which only the window is known, by dotted path, and the choice in a line.

    facts: path -> value of what the user gave of it: every law is tried with them."""
    facts = facts or {}
    if "admission" in facts:
        return ({}, "admission: as set")
    own = any(path == "admission.law" or path in _READ_BY for path in facts)
    if scenario.fleet.placement != "disaggregated" and not own:
        return ({"admission.law": "barrier"}, "admission: barrier, as colocated pools take turns")
    fleet = observed.fleet
    if fleet is None or not fleet.in_flight_mean or not fleet.in_flight_peak:
        if own:
            (law,) = _with_facts([{}], facts, scenario)[:1]
            return (law, f"admission: {_words(law)}, as set")
        one = {"admission.law": "batches_ahead", "admission.batches_ahead": 1}
        return (one, "admission: one batch ahead; no requests in flight were read")
    group = scenario.workload.group_size
    if observed.trainer.step_s is None and not own:
        pool = _pool(scenario, engine, observed, fleet.in_flight_mean)
        always = {"admission.law": "fixed_pool", "admission.pool_samples": pool}
        of = f" in groups of {group}" if group > 1 else ""
        mean, peak = fleet.in_flight_mean, fleet.in_flight_peak
        ebbs = f", although observed they ebb from {peak:,.0f}" if peak > _EBBS * mean else ""
        flight = f"of which {mean:,.0f} are in flight on average as observed{ebbs}"
        text = f"admission: always {pool:,} samples{of}, {flight}; no trainer was read"
        return (always, text)
    growing = grows(observed, scenario.trainer.batch_samples) is not None
    every = _candidates(scenario, fleet.in_flight_mean, fleet.in_flight_peak, observed.queue, growing)
    tried = _with_facts(every, facts, scenario)
    if "fleet.group_placement" not in facts:
        tried = [{**law, **place} for law in tried for place in _places(scenario, observed)]

    def nearest(laws: Sequence[Mapping[str, Any]], steps: int) -> list[tuple[Mapping[str, Any], float]]:
        each = side_by_side(lambda changes: _distance(scenario, engine, observed, changes, steps), laws)
        return [(laws[i], each[i]) for i in _by_distance(laws, each)]

    steps = max(_STEPS, min(_LONG_STEPS, most_steps(scenario)))
    law, off = nearest([law for law, _ in nearest(tried, _STEPS)[:_FINALISTS]], steps)[0]
    if free := [{**law, **more} for more in _VARIANTS if not set(more) & set(facts)]:
        variant, nearer = nearest(free, steps)[0]
        if nearer < off * _CLEARLY:
            law, off = variant, nearer
    text = f"admission: {_words(law)}, of {len(tried)} laws the nearest to the requests in flight and queued"
    return (law, f"{text} ({units.share(off, 0)} off)")


def _with_facts(
    laws: Iterable[Mapping[str, Any]], facts: Mapping[str, Any], scenario: Scenario
) -> list[Mapping[str, Any]]:
    """The laws that agree with what the user gave, each with it in place; where none does, the law that was given."""
    if not facts:
        return list(laws)
    reads = [set(_READ_BY[path]) for path in facts if path in _READ_BY]
    named = {facts["admission.law"]} if "admission.law" in facts else set.intersection(*reads) if reads else None
    found: list[Mapping[str, Any]] = []
    for law in laws:
        if named is None or law["admission.law"] in named:
            mine = {**law, **{path: facts[path] for path in facts if path in law or path in _READ_BY}}
            if mine not in found:
                found.append(mine)
    if found:
        return found
    law_of = scenario.admission.law if named is None or scenario.admission.law in named else min(named)
    return [{"admission.law": law_of, **{path: facts[path] for path in facts if path in _READ_BY}}]


def _by_distance(laws: Sequence[Mapping[str, Any]], found: Sequence[float]) -> list[int]:
    """The laws' numbers, nearest first; of those that are as near as the nearest, the one with the fewest bounds, then
    with the fewest settings."""
    least = min(found) + _ALIKE

    def key(i: int) -> tuple[bool, int, int, float, int]:
        bounds, settings = (sum(path in laws[i] for path in _BOUNDS), len(laws[i])) if found[i] <= least else (0, 0)
        return found[i] > least, bounds, settings, found[i], i

    return sorted(range(len(laws)), key=key)


def _places(scenario: Scenario, observed: Observed) -> Sequence[Mapping[str, Any]]:
    """Whether a router keeps the samples of a group together or spreads them, as the hits in the prefix caches tell;
    both where they tell nothing, for a law that is near with the wrong one is wrong."""
    fleet, lengths, group = observed.fleet, observed.lengths, scenario.workload.group_size
    if group < 2:
        return _PLACES[:1]
    if fleet is None or fleet.prefix_hit is None or lengths is None or not lengths.prompt_mean:
        return _PLACES
    block = observed.block_size or BLOCK_SIZE.get(observed.engine or "vllm", 16)
    places = places_when_spread(group, scenario.fleet.instances)
    together, spread = (expected_hits(group, lengths.prompt_mean, block, d) for d in (1.0, places))
    return _PLACES[1:] if fleet.prefix_hit < 0.5 * (together + spread) else _PLACES[:1]


def _pool(scenario: Scenario, engine: Engine | None, observed: Observed, in_flight_mean: float) -> int:
    """Samples that a client keeps, for so many of them to be in flight on average: those of a group that are done wait
    for its last one, and are the client's as long."""
    group = scenario.workload.group_size
    most = scenario.trainer.batch_samples * _MOST_AHEAD
    pool = max(1, round(in_flight_mean / group)) * group
    for _ in range(_POOL_ROUNDS if group > 1 else 0):
        try:
            law = {"admission.law": "fixed_pool", "admission.pool_samples": pool}
            held = _tried(scenario, engine, observed, law, _STEPS)[1]
        except FleetsimError:
            break
        pool = min(max(1, round(pool * in_flight_mean / max(held.mean, 1.0) / group)) * group, max(most, pool))
    return pool


def _candidates(
    s: Scenario, mean: float, peak: float, view: QueueView, growing: bool = False
) -> Iterator[dict[str, Any]]:
    queue = view.depth or 0.0
    batch, groups, group = s.trainer.batch_samples, s.groups_per_step, s.workload.group_size
    ahead = peak / batch
    cap = max(1, round(peak / group)) * group
    capped: dict[str, Any] = {"admission.law": "unbounded", "fleet.max_in_flight_samples": cap}
    if growing:  # nothing bounds it; what the client keeps in flight does not grow with it
        yield capped
        return
    ks = sorted({max(1, round(ahead) + d) for d in (-1, 0, 1)} | {max(1, round((peak + queue) / batch))})
    for k in ks:
        yield {"admission.law": "batches_ahead", "admission.batches_ahead": k}
    guesses = {0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0}
    guesses |= {max(0.0, total / batch - 1.0) for total in (mean, peak, mean + queue, peak + queue)}
    for eta in sorted({round(g * groups) / groups for g in guesses if g <= ahead + queue / batch + 1.0}):
        yield {"admission.law": "version_window", "admission.max_staleness": eta}
    for threshold in (0.0, 0.1, 0.25, 0.5, 1.0):
        law = {"admission.law": "per_sync_window", "admission.staleness_threshold": threshold}
        for parts in (1, 4):
            if groups % parts == 0:
                yield {**law, "trainer.minibatches": parts, "buffer.batch_rule": "fifo"}
    # A client that keeps so many in flight, whatever the window would allow.
    yield capped
    most = view.depth_max or (1.5 * queue if queue else None)
    if most is not None:
        held = max(batch, round(most / group) * group)
        for on_full in ("block", "drop_oldest"):
            yield {**capped, "buffer.capacity_samples": held, "buffer.on_full": on_full}
    for eta in (1.0, 2.0, 4.0):
        eta = max(eta, float(round(ahead)))
        yield {"admission.law": "version_window", "admission.max_staleness": eta, "fleet.max_in_flight_samples": cap}
    if (view.dropped_share or 0.0) > _DROPS:
        # A gauge that also counts what stands before the queue reads more than the capacity, but rarely the same twice:
        # a highest reading that comes again and again is the capacity.
        shares = (1.0,) if most == view.depth_p95 else (0.75, 1.0)
        yield from _droppers(capped, None if most is None else [share * most for share in shares], batch, group)


def _droppers(
    capped: Mapping[str, Any], held: Sequence[float] | None, batch: int, group: int
) -> Iterator[dict[str, Any]]:
    """Clients that keep their fleet full and throw away what has grown too old. held: samples that their queue may
    hold, None = any number."""
    caps = {None} if held is None else {max(batch, round(most / group) * group) for most in held}
    for age in (1.0, 2.0, 4.0, 8.0):
        law = {**capped, "admission.age_action": "drop_on_dequeue", "admission.max_age": age}
        for cap in caps:
            yield law if cap is None else {**law, "buffer.capacity_samples": cap, "buffer.on_full": "block"}


def _distance(
    scenario: Scenario, engine: Engine | None, observed: Observed, changes: Mapping[str, Any], steps: int
) -> float:
    try:
        records, held = _tried(scenario, engine, observed, changes, steps)
    except FleetsimError:
        return float("inf")
    fleet, metrics = observed.fleet, metrics_of(records)
    assert fleet is not None and fleet.in_flight_mean and fleet.in_flight_peak  # noqa: PT018 - `admission_like` looked
    batch = scenario.trainer.batch_samples
    # A mean over scrapes is off by chance, which is no distance; what is counted is not.
    looks = max(1.0, observed.span_s / observed.step_s)
    chance = float(np.sqrt((fleet.in_flight_scatter or 0.0) / (fleet.in_flight_mean * looks)))
    off = [max(0.0, abs(held.mean / fleet.in_flight_mean - 1.0) - chance), held.peak / fleet.in_flight_peak - 1.0]
    if observed.queue.depth is not None and grows(observed, batch) is None:  # what grows has no level
        off.append((held.queued - observed.queue.depth) / batch)
    if fleet.idle_share is not None:
        chance = float(np.sqrt(fleet.idle_share * (1.0 - fleet.idle_share) / looks))
        off.append(max(0.0, abs(held.idle_share - fleet.idle_share) - chance))
    if fleet.tok_s:
        off.append(float(metrics["generated_tok_s"]) / fleet.tok_s - 1.0)
    if observed.queue.generated_per_trained is not None:
        off.append(float(metrics["tokens_per_trained_token"]) / observed.queue.generated_per_trained - 1.0)
    return float(np.sqrt(np.mean(np.square(off))))


def _tried(
    scenario: Scenario, engine: Engine | None, observed: Observed, changes: Mapping[str, Any], steps: int
) -> tuple[Records, Gauged]:
    """A run under a law, and what its gauges show where those of the window do."""
    fleet, step = observed.fleet, value_of(observed.trainer.step_s)
    if step is None and fleet is not None and fleet.finished_s:
        step = scenario.trainer.batch_samples / fleet.finished_s
    every = (step or observed.step_s) * steps / _LOOKS
    trial = with_changes(scenario, {**changes, "run.steps": steps})
    records = simulate(trial, engine=engine, scrape_every_s=every)
    return records, in_flight(records, in_pauses=observed.pauses is None or not observed.pauses.each)


def _words(changes: Mapping[str, Any]) -> str:
    law = changes["admission.law"]
    detail = [
        f"{path.rpartition('.')[2]} {value if isinstance(value, str) else f'{value:g}'}"
        for path, value in changes.items()
        if path != "admission.law"
    ]
    return f"{law} ({', '.join(detail)})" if detail else str(law)
