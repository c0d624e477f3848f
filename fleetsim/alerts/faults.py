"""The faults that the alerts are there to find, as changes of a scenario, and the scraped runs in which they begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.alerts.signal_values import Floats, Scraped, scraped_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import FleetsimError, StuckError
from fleetsim.records import replace
from fleetsim.sim.engines import engine_of
from fleetsim.sim.run import simulate

Engine = tuple[StepTime, EngineLimits]
# What `changes` of a fault needs to know of the healthy fleet.
Peak = float  # highest KV use of an instance, share of its blocks

TRAINER_SLOWDOWN, SYNC_FACTOR, ENGINE_SLOWDOWN, STRAGGLER_SLOWDOWN = 1.2, 2.0, 1.25, 1.5
# A steady run that ends too soon is begun again with more steps, so many times at most.
LENGTHENED = 3
DRIFT_PER_STEP, DROPPED_SHARE, KV_SHARE, CADENCE_FACTOR = 0.01, 0.25, 0.7, 4
# Responses grow to so many times their length, and then no longer: a run of many short steps would have no end.
MOST_DRIFT = 4.0
# Batches in a queue that nothing holds back.
DEEP_BATCHES = 64


class Fault(Struct, frozen=True):
    """One fault, told in one of two ways.

    title: in words. events: of a run in which it begins with optimizer step (first of two numbers) and lasts to another
    one. Where a run knows no such event: changes, dotted paths of the scenario that has it all the time, and limits,
    what becomes of its engine's limits. runs_away: it gets worse without end, and so does the work of simulating it.
    """

    name: str
    title: str
    events: Callable[[Scenario, int, int], list[dict[str, Any]]] | None = None
    changes: Callable[[Scenario], Mapping[str, Any]] = lambda _: {}
    limits: Callable[[EngineLimits, Peak], EngineLimits] = lambda limits, _: limits
    runs_away: bool = False


def _slower(factor: float, count: int | None) -> Callable[[Scenario], Mapping[str, Any]]:
    def changes(scenario: Scenario) -> Mapping[str, Any]:
        n = scenario.fleet.instances
        given = [*scenario.fleet.speed_factors, *([1.0] * n)][:n]
        slow = n if count is None else count
        return {"fleet.speed_factors": [f * factor for f in given[:slow]] + given[slow:]}

    return changes


def _drift(scenario: Scenario, first: int, last: int) -> list[dict[str, Any]]:
    last = min(last, first + math.ceil(math.log(MOST_DRIFT) / math.log1p(DRIFT_PER_STEP)))
    return [
        {"step": step, "length_factor": (1.0 + DRIFT_PER_STEP) ** (step - first + 1)} for step in range(first, last)
    ]


def _groups_dropped(scenario: Scenario) -> Mapping[str, Any]:
    kept = (1 - scenario.workload.filter.zero_variance_share) * (1 - DROPPED_SHARE)
    return {"workload.filter.zero_variance_share": 1 - kept}


def _no_backpressure(scenario: Scenario) -> Mapping[str, Any]:
    """Up to a queue that no plan has, for what happens beyond it takes ever longer to simulate."""
    queue = max(DEEP_BATCHES * scenario.trainer.batch_samples, 4 * (scenario.buffer.capacity_samples or 0))
    return {
        "admission.law": "unbounded",
        "buffer.capacity_samples": queue,
        "buffer.on_full": "block",
        "admission.age_action": "train_anyway",
        "admission.max_age": None,
    }


def _fewer_blocks(limits: EngineLimits, peak: Peak) -> EngineLimits:
    return replace(limits, kv_blocks=max(1, math.ceil(KV_SHARE * peak * limits.kv_blocks)))


def _event(what: str, value: Callable[[Scenario], float]) -> Callable[[Scenario, int, int], list[dict[str, Any]]]:
    return lambda scenario, first, _: [{"step": first, what: value(scenario)}]


FAULTS: tuple[Fault, ...] = (
    Fault("instance_lost", "one instance lost", _event("lose_instance", lambda s: s.fleet.instances // 2)),
    Fault("trainer_slow", "trainer 20 % slower", _event("trainer_slowdown", lambda _: TRAINER_SLOWDOWN)),
    Fault("sync_slow", "weight sync twice as long", _event("sync_slowdown", lambda _: SYNC_FACTOR)),
    Fault("lengths_drift", "responses 1 % longer with every step", _drift),
    Fault("straggler", "one instance takes half as long again", changes=_slower(STRAGGLER_SLOWDOWN, 1)),
    Fault("kv_short", "KV cache cut to 70 % of what the plan uses", limits=_fewer_blocks),
    Fault("cache_off", "prefix cache off", changes=lambda _: {"engine.prefix_caching": False}),
    Fault("groups_dropped", "a quarter of the finished groups thrown away", changes=_groups_dropped),
    Fault("no_backpressure", "nothing holds generation back", changes=_no_backpressure, runs_away=True),
    Fault(
        "weights_late",
        "weights published a quarter as often",
        changes=lambda s: {"sync.trigger": "steps", "sync.every_steps": CADENCE_FACTOR * s.sync.every_steps},
    ),
    Fault("engines_slow", "every instance a quarter slower", changes=_slower(ENGINE_SLOWDOWN, None)),
)


HEALTHY = Fault("healthy", "no fault")
BY_FAULT = {fault.name: fault for fault in FAULTS}


class Onset(Struct, frozen=True):
    """A run that is healthy until onset_s and has a fault from then on."""

    scraped: Scraped
    onset_s: float


def scraped_run(
    scenario: Scenario, replication: int, scrape_s: float, from_s: float, engine: Engine | None = None,
    *, whole: bool = False,
) -> Scraped:  # fmt: skip
    """One simulated run as it would have been scraped, without its first seconds. whole: as `scraped_of` has it."""
    records = simulate(scenario, replication=replication, engine=engine, scrape_every_s=scrape_s)
    return cut(scraped_of(records, whole=whole), from_s, math.inf)


def run_with_event(
    scenario: Scenario, fault: Fault, replication: int, scrape_s: float, first: int, engine: Engine
) -> Onset:
    """A run of `most_steps(scenario)` steps in which the fault begins with step `first`."""
    assert fault.events is not None
    events = fault.events(scenario, first, most_steps(scenario))
    changed = with_changes(scenario, {"run.events": events})
    try:
        records = simulate(changed, replication=replication, engine=engine, scrape_every_s=scrape_s)
    except StuckError:  # no step ends without the only instance
        records = simulate(scenario, replication=replication, engine=engine, scrape_every_s=scrape_s)
        onset_s = float(records.steps["start_s"][first])
        return Onset(gone(scraped_of(records), onset_s), onset_s)
    return Onset(scraped_of(records), float(records.steps["start_s"][first]))


def gone(scraped: Scraped, from_s: float) -> Scraped:
    """A scraped run whose engines are gone from some moment on; the trainer's counters and the queue stand still."""
    after = scraped.times >= from_s
    last = max(0, int(np.argmax(after)) - 1)
    return Scraped(
        scraped.times,
        {name: np.where(after, np.nan, values) for name, values in scraped.engines.items()},
        {name: np.where(after, values[last], values) for name, values in scraped.trainer.items()},
    )


def steady_run(
    scenario: Scenario,
    fault: Fault,
    replication: int,
    scrape_s: float,
    settled_steps: int,
    span_s: float,
    peak: Peak,
    engine: Engine | None = None,
    least_s: float | None = None,
) -> Scraped | None:
    """span_s seconds of a run that has the fault all the time, after its first steps; engine: None = the scenario's.

    least_s: fewer than span_s will do where its steps take less. Of a healthy run all that a scrape could see. None
    where the plan cannot have the fault, or would never get through a step.
    """
    try:
        changed = with_changes(scenario, fault.changes(scenario))
        step_time, limits = engine_of(changed) if engine is None else engine
        for _ in range(LENGTHENED):
            records = simulate(
                changed,
                replication=replication,
                engine=(step_time, fault.limits(limits, peak)),
                scrape_every_s=scrape_s,
            )
            ends = records.steps["end_s"]
            settled_s = float(ends[min(settled_steps, len(ends)) - 1])
            had_s = float(ends[-1]) - settled_s
            if had_s >= (least_s or span_s):
                break
            # the fault makes steps shorter: a trainer that waited has nothing to wait for
            more = 1.1 * span_s / max(had_s, float(ends[-1]) / len(ends))
            changed = with_changes(
                changed, {"run.steps": math.ceil(settled_steps + more * (len(ends) - settled_steps))}
            )
        return cut(scraped_of(records, whole=fault is HEALTHY), settled_s, settled_s + span_s)
    except FleetsimError:
        return None


def cut(scraped: Scraped, from_s: float, to_s: float) -> Scraped:
    """The samples between two times of the run."""
    kept = (scraped.times >= from_s) & (scraped.times < to_s)
    return Scraped(
        scraped.times[kept],
        {name: values[:, kept] for name, values in scraped.engines.items()},
        {name: values[kept] for name, values in scraped.trainer.items()},
    )


GAUGES = ("running", "kv_use", "queue.samples", "queue.oldest_age_steps")


def join(healthy: Scraped, faulty: Scraped) -> Onset:
    """The faulty run goes on where the healthy one ends, both at the end of a step; counters continue.

    What happens between the two steady states is left out.
    """
    healthy = cut(healthy, -math.inf, float(healthy.times[_step_ends(healthy)[-1]]) + 1e-6)
    faulty = cut(faulty, float(faulty.times[_step_ends(faulty)[0]]), math.inf)
    step = healthy.times[1] - healthy.times[0]
    onset = float(healthy.times[-1])
    times = np.concatenate([healthy.times, onset + step * np.arange(1, len(faulty.times))])

    def joined(name: str, before: Floats, after: Floats) -> Floats:
        if name in GAUGES:
            return np.concatenate([before, after[:, 1:]], axis=1)
        # an instance that is down at that moment comes back with new counters
        offset = np.nan_to_num(before[:, -1:] - after[:, :1])
        return np.concatenate([before, after[:, 1:] + offset], axis=1)

    engines = {name: joined(name, values, faulty.engines[name]) for name, values in healthy.engines.items()}
    trainer = {
        name: joined(name, values[None, :], faulty.trainer[name][None, :])[0]
        for name, values in healthy.trainer.items()
    }
    return Onset(Scraped(times, engines, trainer), onset)


def _step_ends(scraped: Scraped) -> NDArray[np.int64]:
    """The scrapes that are the first to see another step completed; the first and last scrape where there is none."""
    found = np.flatnonzero(np.diff(scraped.trainer["trainer.steps"]) > 0) + 1
    return found if len(found) else np.array([0, len(scraped.times) - 1])
