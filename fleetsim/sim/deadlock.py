"""A run in which nothing can ever happen again: which limits block each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fleetsim.config.judges import judges_of
from fleetsim.config.law_numbers import law_of, sizes_of
from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import G_ABORTED, G_FILTERED, G_OPEN, G_OVERFLOW, G_STALE
from fleetsim.errors import Problem, StuckError
from fleetsim.policies.law import Progress
from fleetsim.policies.samples import AGE_ACTIONS, IN_FLIGHT
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.stations import TIME_LIMITS, stations_of


def stuck_error(scenario: Scenario, fleet: Fleet, progress: Progress) -> StuckError:
    """The error for a trainer that waits for a batch while the fleet is silent."""
    batch, size = scenario.trainer.batch_samples, scenario.workload.group_size
    ready = fleet.get("n_ready") * size
    what = (
        f"step {progress.taken_groups // scenario.groups_per_step}: the trainer waits for {batch} samples, "
        f"{ready} are in the buffer, and nothing can happen any more"
    )
    return StuckError(what, list(_limits(scenario, fleet, progress)) or [_unknown(scenario)])


def _limits(scenario: Scenario, fleet: Fleet, progress: Progress) -> Iterator[Problem]:
    batch, size = scenario.trainer.batch_samples, scenario.workload.group_size
    path, capacity = "buffer.capacity_samples", scenario.buffer.capacity_samples
    if capacity is not None and capacity // size * size < batch:
        rule = f"at least trainer.batch_samples ({batch}) in whole groups of {size}: a buffer smaller than a batch "
        rule += "never holds one, and a full buffer stops generation"
        yield Problem(path, capacity, rule, f"set it to {batch} or more, or to null")
    elif fleet.get("n_blocked"):
        rule = "a full buffer stops generation while the trainer waits for samples that are not in it"
        yield Problem(path, capacity, rule, "raise it, or set on_full: drop_oldest")
    law = law_of(scenario)
    overflown = int(np.count_nonzero(fleet.world.groups["status"][: fleet.started()] == G_OVERFLOW))
    starved = law.starves(scenario.admission, sizes_of(scenario), progress)
    if overflown and law.counts_started:
        rule = f"{overflown} finished groups pushed each other out of a full buffer; a sync window replaces none"
        yield Problem(path, capacity, rule, "raise it, or set buffer.on_full: block")
    elif starved is not None:
        yield starved
    if AGE_ACTIONS[scenario.admission.age_action].drops:
        rule = "at least the age that samples have when they reach the trainer: older ones are dropped"
        remedy = "raise max_age, shorten sync.publish_s, sync more often (sync.every_steps), or train_anyway"
        yield Problem("admission.max_age", scenario.admission.max_age, rule, remedy)
    stops = scenario.sync.in_flight
    if fleet.get("halted") and IN_FLIGHT[stops].drains:
        rule = "work in flight must be able to end while nothing new is sent"
        yield Problem("sync.in_flight", stops, rule, "use keep")


def _unknown(scenario: Scenario) -> Problem:
    remedy = "loosen the in-flight caps, the buffer or the admission law one at a time"
    rule = "some limit stops all generation before a batch is complete"
    return Problem("admission.law", scenario.admission.law, rule, remedy)


def wasting_error(scenario: Scenario, fleet: Fleet) -> StuckError:
    """The error for a trainer that never gets a batch although the fleet is busy: by the largest waste so far."""
    status = fleet.world.groups["status"][: fleet.started()]
    problems = {
        int(G_STALE): _stale_problem,
        int(G_FILTERED): _filter_problem,
        int(G_OVERFLOW): _overflow_problem,
        int(G_ABORTED): _abort_problem,
        int(G_OPEN): _scoring_problem,
    }
    counts = {code: int(np.count_nonzero(status == code)) for code in problems}
    counts[int(G_OPEN)] -= len(fleet.in_generation())
    limited = scenario.stations.reward.workers is not None or judges_of(scenario)
    if limited and counts[int(G_OPEN)] > scenario.groups_per_step:
        worst = int(G_OPEN)  # what waits to be scored is behind whatever was dropped meanwhile
    else:
        worst = max(counts, key=lambda code: counts[code])
    at_stations = _station_problem(scenario, fleet) if worst == int(G_ABORTED) else None
    problem = at_stations or problems[worst](scenario, counts[worst])
    return StuckError("the trainer waits, the fleet generates, and no batch will ever be complete", [problem])


def _stale_problem(scenario: Scenario, count: int) -> Problem:
    rule = f"{count} groups were dropped as stale: samples are older than this when they reach the trainer"
    remedy = "raise max_age, shorten sync.publish_s, lower sync.every_steps, or set age_action: train_anyway"
    return Problem("admission.max_age", scenario.admission.max_age, rule, remedy)


def _filter_problem(scenario: Scenario, count: int) -> Problem:
    filtering = scenario.workload.filter
    rule = f"{count} groups were filtered (retry_limit {filtering.retry_limit}) without a batch"
    remedy = "lower zero_variance_share or raise workload.filter.retry_limit"
    return Problem("workload.filter.zero_variance_share", filtering.zero_variance_share, rule, remedy)


def _overflow_problem(scenario: Scenario, count: int) -> Problem:
    rule = f"at least trainer.batch_samples ({scenario.trainer.batch_samples}): {count} finished groups pushed each "
    rule += "other out and a batch is never complete"
    remedy = "raise it to a batch or more, or set on_full: block"
    return Problem("buffer.capacity_samples", scenario.buffer.capacity_samples, rule, remedy)


def _abort_problem(scenario: Scenario, count: int) -> Problem:
    rule = f"{count} groups were aborted: what a sync or a change of instances throws away is never finished"
    remedy = "set sync.in_flight: keep or abort_resume, or let groups get older"
    return Problem("sync.in_flight", scenario.sync.in_flight, rule, remedy)


def _station_problem(scenario: Scenario, fleet: Fleet) -> Problem | None:
    """The station that loses rollouts for good, where one does."""
    names, rows = list(stations_of(scenario)), fleet.world.stations
    lost = {name: rows[rows["home"] == k] for k, name in enumerate(names)}  # its overflow, too
    name = max(lost, key=lambda name: int(lost[name]["lost"].sum()), default=None)
    if name is None or not lost[name]["lost"].any():
        return None
    late, failed, n = (int(lost[name][kind].sum()) for kind in ("late", "failed", "lost"))
    key = "timeout_s" if late >= failed else "failure_share"
    rule, more = f"{late} calls timed out and {failed} failed", "more workers, a longer time-out or more tries"
    if name in TIME_LIMITS:
        rule, more = f"the time of {late} was over", "longer"
    rule, remedy = f"{n} rollouts were lost there: {rule}", f"give it {more}, or set stations.{name}.lost: truncated"
    return Problem(f"stations.{name}.{key}", getattr(getattr(scenario.stations, name), key), rule, remedy)


def _scoring_problem(scenario: Scenario, count: int) -> Problem:
    path, given = "stations.reward.workers", scenario.stations.reward.workers
    for name, judge in judges_of(scenario).items() if given is None else ():
        path, given = f"stations.{name}.instances", judge.instances
    rule = f"{count} groups are generated and wait for their reward: they come faster than they are scored"
    return Problem(path, given, rule, "raise it, or bound what is in flight by another admission.law")
