"""What a step takes at least, from closed forms: which plans, moves and counts need no simulation.

The demand of a step on each resource, over its slots: a long run is no faster than the largest of them (operational
bounds: Denning & Buzen, "The Operational Analysis of Queueing Network Models", 1978).

A job of B samples of L tokens per step, in groups of G; I instances that each run c samples at a time, a token of each
taking t(c) seconds (never less for more samples; c / t(c), the rate, never grows faster than c); U batches may be out
at a time.

- The rate. An instance makes at most c / t(c) tokens per second, so a step has B L t(c) / (I c) seconds of generation.
- The slowest of a group. A group is out at least until its longest sample is written: E[longest of G] t seconds, of
  which the tokens beyond the mean are taken to cost t(1), for the longest may be alone at its end. By Little's law
  B / G groups a step are then out for R seconds where U B / G are at most: R <= U S. A window of eta versions of k
  steps has U = (eta + 1) k, less what is in training: its places are free again when the next version is out, so
  R + (k + 1) / 2 T + publication <= U (S - pauses), less what the trainer begins before the publication is over.
  The rate grows with c, and so does what the slowest takes: the smallest of both over c is the bound.
- Batch by batch, all B start together, and fewer and fewer are left: the sum of t(c) over the tokens of the longest, c
  being those that are not yet written.
- Where nothing bounds what is out, the rate alone counts, and only of a long run.
- Tools and rewards. W workers serve one call each at a time: B / W times the seconds of a sample's calls, with the
  starts of fresh workers; no calls begin faster than their rate. These seconds, without starts, are also seconds for
  which a group is out.
- The trainer's seconds T on a mean batch, and what the trainer waits for a sync. Apart from the rollout the longer of
  both counts, on shared GPUs their sum and the two switches.
- What interrupts generation, a sync or GPUs that are handed over, costs two iterations less than it takes: that which
  is under way goes on to its end, and prompts that are computed again bring a token each.

Prompts, stalls, imbalance, drops and preemption only add to it. It is a bound of a long run: lengths are those that its
first replication draws (the shortest of the windows that a look or the whole run may count), and `_ROOM` is left for
what is out at either end. Of 1,200 random jobs none took less in 64 steps. A short run may, by the luck of what is
trained in its window: of 1,600 jobs 2 in 16 steps, by up to 1.8 %, 19 in 8 steps, by up to 8 %. A plan that is ruled
out for that is no better in a longer run. tests/planner/test_bound.py holds it against simulations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.law_numbers import law_of, sizes_of, steps_per_version
from fleetsim.config.makes import as_first
from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.config.workload import WorkloadConfig
from fleetsim.engine.transport import SyncTimes, sync_times
from fleetsim.job.looks import look_steps
from fleetsim.job.nameplate import context_in_flight, mean_prompt_tokens, samples_in_flight
from fleetsim.policies.samples import AGE_ACTIONS
from fleetsim.records import replace
from fleetsim.sim.engines import engine_of
from fleetsim.sim.stations import loses_rollouts
from fleetsim.workload.groups import GroupSource
from fleetsim.workload.lengths import mean_length
from fleetsim.workload.streams import seed_sequence
from fleetsim.workload.turns import mean_turns

_ROOM = 0.02
# Steps of a run for each batch that is out, from which on what is trained is as long as what is sent.
_STEADY = 2.5
_CONCURRENCIES = 96
# What of the most samples may be out, in as many steps.
_SHARES = np.geomspace(1e-3, 1.0, _CONCURRENCIES)

Floats = NDArray[np.float64]
_NOTHING: Floats = np.zeros(1)
# A trainer's, of a step and of each token; its phases have them, too.
SECONDS = ("fixed_s", "per_token_s")


class DecodeLengths(Struct, frozen=True, eq=False):
    """Output tokens that the first replication of a run decodes: all but the first of each turn, which comes with the
    prompt. batches: of each step's samples, ascending, shape
    (steps, samples). first, end: of the windows of steps that may count, end excluded. mean: of a sample, of_group: of
    the longest of a group, both of the window in which they are shortest."""

    batches: Floats
    first: NDArray[np.int64]
    end: NDArray[np.int64]
    mean: float
    of_group: float

    def least(self, by_step: Floats) -> Floats:
        """The smallest mean over the steps of a window that may be counted, of each column."""
        before = np.concatenate([np.zeros((1, *by_step.shape[1:])), np.cumsum(by_step, axis=0)])
        shape = -1, *(1 for _ in by_step.shape[1:])
        found: Floats = np.min((before[self.end] - before[self.first]) / (self.end - self.first).reshape(shape), axis=0)
        return found


@lru_cache(maxsize=64)
def lengths_of(
    workload: WorkloadConfig, seed: int, groups_per_step: int, ends: tuple[int, ...], warmup: int
) -> DecodeLengths:
    """The lengths of a run. ends: after how many steps it may end. warmup: steps that are left out at least."""
    steps, windows = max(ends), [(first, n) for n in ends for first in range(min(warmup, n // 2), n // 2 + 1)]
    source = GroupSource(workload, seed_sequence(seed, 0, "workload"), groups_per_step)
    taken = source.take(steps * groups_per_step)
    drawn = taken.output_tokens.astype(np.float64) - taken.turns
    batches = np.sort(drawn.reshape(steps, -1), axis=1)
    first, end = np.array(windows, np.int64).T
    found = DecodeLengths(batches, first, end, 0.0, 0.0)
    of_groups = drawn.reshape(steps, groups_per_step, -1).max(axis=2).mean(axis=1)
    return replace(found, mean=float(found.least(batches.mean(axis=1))), of_group=float(found.least(of_groups)))


class TokenPace(Struct, frozen=True, eq=False):
    """Seconds of a token of each of c samples on one instance: `of(c)`; most: samples at once, on average."""

    concurrency: Floats
    seconds: Floats
    most: float

    def of(self, c: Floats | float) -> Floats:
        """Between the counts that were asked for, along a line; below one sample as of one."""
        return np.asarray(np.interp(c, self.concurrency, self.seconds), np.float64)


def pace_of(scenario: Scenario) -> TokenPace:
    """The pace of a scenario's engine. Raises InputError as engines do."""
    step_time, limits = engine_of(scenario)
    w, prompt = scenario.workload, mean_prompt_tokens(scenario)
    context = context_in_flight(scenario)
    shared = w.group_size if scenario.engine.prefix_caching and scenario.fleet.group_placement == "together" else 1
    held = limits.held_tokens(context - prompt + prompt / shared)
    most = min(float(limits.max_num_seqs), max(1.0, limits.kv_tokens / held))
    c = np.geomspace(1.0, most, _CONCURRENCIES) if most > 1.0 else np.ones(1)
    # A constant rate, and drafts that are switched off in larger batches, know no order: none is faster than the best.
    seconds = np.minimum.accumulate(np.asarray(step_time.mixed_s(c, context, 0.0, 0.0))[::-1])[::-1]
    fastest = min([1.0, *scenario.fleet.speed_factors])
    return TokenPace(c, fastest * seconds, most)


class PoolSizes(Struct, frozen=True, eq=False):
    """Fleets and trainers that one job may have, an entry each.

    instances: of the fleet. fixed_s, per_token_s: the trainer's seconds, phases included. syncs: between the two; the
    rough bound needs none.
    """

    instances: Floats
    fixed_s: Floats
    per_token_s: Floats
    syncs: Sequence[SyncTimes] = ()


def pools_of(scenario: Scenario) -> PoolSizes:
    """The two that a job has."""
    t = scenario.trainer
    fixed_s, per_token_s = (sum(getattr(x, name) for x in (t, *t.phases)) for name in SECONDS)
    instances, fixed, per_token = np.array([[scenario.fleet.instances], [fixed_s], [per_token_s]], np.float64)
    return PoolSizes(instances, fixed, per_token, [sync_times(scenario)])


class Bounds:
    """Lower bounds of jobs. Engines are looked at once. steady: of long runs alone; else of those, too, whose pipeline
    is deep beside them, and whose samples are those that are finished first."""

    def __init__(self, steady: bool = False) -> None:
        self._paces: dict[object, TokenPace] = {}
        self._steady = steady

    def rough_s(self, scenario: Scenario, pools: PoolSizes, ahead: float | None, *, together: bool) -> Floats:
        """Seconds that a step takes at least, by the rate and the trainer alone: before there is a scenario of its own.

        ahead: steps that generation runs ahead, None = as the scenario says. together: on the same GPUs.
        """
        lengths = _lengths(scenario)
        deep = ahead is not None and ahead + 1 > look_steps(scenario) / _STEADY
        selects = _selects(scenario) if ahead is None else deep or loses_rollouts(scenario)
        training = _training_s(scenario, lengths, pools, selects)
        generating = np.zeros(1) if selects else _LEFT * self._full_s(scenario, lengths, pools.instances)
        return training + generating if together else np.maximum(training, generating)

    def step_s(self, scenario: Scenario) -> float:
        """Seconds that a step takes at least."""
        return max(self.by_resource(scenario).values())

    def by_resource(self, scenario: Scenario) -> dict[str, float]:
        """Seconds that a step takes at least, by what takes them: trainer and rollout, or both in turn; workers."""
        return {name: float(s[0]) for name, s in self.by_pools(scenario, pools_of(scenario)).items()}

    def by_pools(self, scenario: Scenario, pools: PoolSizes) -> dict[str, Floats]:
        """The same of a job with each of some pools in the place of its own. Its law must say how far generation runs
        ahead in groups or batches: else each fleet has looks of another length."""
        lengths, law = _lengths(scenario), law_of(scenario)
        training = _training_s(scenario, lengths, pools, self._trains_shorter(scenario))
        found = {name: np.full(1, seconds) for name, seconds in _workers_s(scenario).items()}
        slower = _least(scenario, "sync_slowdown")
        syncs = [(sync.publish_s, sync.pause_s, sync.trainer_block_s) for sync in pools.syncs]
        publish, pause, block = slower * np.array(syncs, np.float64).T
        k = steps_per_version(scenario)
        # Publications a step, in the window with the fewest.
        counted = lengths.end - lengths.first
        often = float(np.min(counted // k / counted))
        fleet = scenario.fleet
        if fleet.placement == "colocated_lending" or fleet.pools or scenario.engine.disaggregation is not None:
            # what generates there is not the instances of one make alone
            alone = fleet.pools and not _chosen(scenario) and not _selects(scenario)
            full = {"rollout": _LEFT * self._full_s(scenario, lengths, pools.instances)} if alone else {}
            return found | {"trainer": training} | full
        pace = self._pace(scenario)
        if scenario.fleet.placement == "colocated" or law.waits_for_trainer:
            switches = 2 * scenario.fleet.switch_s if scenario.fleet.placement == "colocated" else 0.0
            if law.waits_for_trainer:
                rollout = _batch_s(scenario, lengths, pace, pools.instances)
            else:
                rollout = self._generation_s(scenario, lengths, pace, pools.instances, 1.0)
            complete = np.maximum(publish + pause, block)
            return found | {"both": training + switches + complete * often + _LEFT * rollout}
        paused = 0.0 * pause if scenario.sync.scope == "rolling" else pause
        held = np.zeros(1)
        if law.counts_versions:
            beside = np.minimum(training, np.maximum(0.0, publish + pause - block))
            held = np.maximum(0.0, (k + 1) / 2 * training + publish - beside / k)
        rollout = _LEFT * self._generation_s(scenario, lengths, pace, pools.instances, often, paused, held)
        return found | {"trainer": training + block * often, "rollout": rollout}

    def _trains_shorter(self, scenario: Scenario) -> bool:
        """Whether what is trained may be shorter than what is drawn. In a long run what is out is no reason, as long as
        it has an end; what is dropped is one."""
        if not self._steady:
            return _selects(scenario)
        drops = AGE_ACTIONS[scenario.admission.age_action].drops
        return _chosen(scenario) or drops or math.isinf(samples_in_flight(scenario))

    def _generation_s(
        self, scenario: Scenario, lengths: DecodeLengths, pace: TokenPace, instances: Floats, stops: float,
        pause_s: Floats = _NOTHING, held_s: Floats = _NOTHING,
    ) -> Floats:  # fmt: skip
        """Seconds of a step in which samples of several batches are out.

        stops: interruptions a step, pause_s each. held_s: how long, in a version, what is in training keeps its places.
        """
        if _chosen(scenario) or (_selects(scenario) and not self._steady):
            return np.zeros(1)
        batch, out, fleet = scenario.trainer.batch_samples, batches_out(scenario), scenario.fleet
        work = (batch * lengths.mean / instances)[:, None]
        flight = min(out * batch, fleet.max_in_flight_samples or math.inf)
        each = min(pace.most, fleet.max_in_flight_samples_per_instance or math.inf)
        c = np.minimum(each, flight / instances)[:, None] * _SHARES
        seconds = pace.of(c)
        gone = lengths.mean * seconds + (lengths.of_group - lengths.mean) * pace.seconds[0] + _beside_s(scenario)
        least = np.maximum(work * seconds / c, (gone + held_s[:, None]) / out)
        found: Floats = np.min(least + stops * (pause_s[:, None] - 2 * seconds), axis=1)
        return np.maximum(0.0, found)

    def _full_s(self, scenario: Scenario, lengths: DecodeLengths, instances: Floats) -> Floats:
        """Seconds of a step's tokens where all instances, of all makes, are full all the time."""
        tokens, own, pools = scenario.trainer.batch_samples * lengths.mean, self._pace(scenario), scenario.fleet.pools
        if not pools:
            return _rate_s(tokens / instances, own, own.most)
        paces = {name: self._pace(as_first(scenario, name)) for name in pools}
        others = sum(pools[name].instances * _full_tok_s(pace) for name, pace in paces.items())
        return tokens / (instances * _full_tok_s(own) + others)

    def _pace(self, scenario: Scenario) -> TokenPace:
        key = scenario.engine, scenario.workload, scenario.fleet.speed_factors, scenario.fleet.group_placement
        if key not in self._paces:
            self._paces[key] = pace_of(scenario)
        return self._paces[key]


_LEFT = 1.0 - _ROOM


def _lengths(scenario: Scenario) -> DecodeLengths:
    """Of a look and of a whole run: in a look of small batches the lengths may be longer than in the run, by luck."""
    run, ends = scenario.run, (look_steps(scenario), most_steps(scenario))
    return lengths_of(scenario.workload, run.seed, scenario.groups_per_step, ends, run.warmup_steps or 2)


def _training_s(scenario: Scenario, lengths: DecodeLengths, pools: PoolSizes, selects: bool) -> Floats:
    """Seconds of training on the lengths that a run draws. selects: on those that are finished first."""
    samples = scenario.trainer.batch_samples
    output = 0.0 if selects else lengths.mean
    tokens = 0.0 if loses_rollouts(scenario) else samples * (mean_prompt_tokens(scenario) + output)
    own_s = pools.fixed_s + _LEFT * tokens * pools.per_token_s if tokens else pools.fixed_s  # infinite: it does not fit
    return _least(scenario, "trainer_slowdown") * own_s


def _least(scenario: Scenario, factor: str) -> float:
    """The smallest of the factors that events multiply by."""
    told = [getattr(event, factor) for event in scenario.run.events]
    return float(min([1.0, *(x for x in told if x is not None)]))


def _selects(scenario: Scenario) -> bool:
    """Whether batches are made of what is finished first, of more than is needed: then of shorter samples.

    That is so, too, as long as a run is short beside what may be out.
    """
    return _chosen(scenario) or batches_out(scenario) > look_steps(scenario) / _STEADY


def _chosen(scenario: Scenario) -> bool:
    """Whether more is started than is trained, some are lost, or lengths drift: what is trained is then not as what is
    drawn."""
    b, drifts = scenario.buffer, any(event.length_factor is not None for event in scenario.run.events)
    return b.oversampling > 1 or b.group_oversampling > 1 or drifts or loses_rollouts(scenario)


def _workers_s(scenario: Scenario) -> dict[str, float]:
    """Seconds that the workers of tools and of rewards need for a batch; those without a limit need none.

    Where a call may end early, or go elsewhere, its seconds bound nothing.
    """
    if _chosen(scenario):
        return {}
    stations, batch, turns = scenario.stations, scenario.trainer.batch_samples, scenario.workload.turns
    calls, scores = mean_turns(scenario.workload) - 1.0, mean_length(scenario.workload.reward.latency_s, at_least=0.0)
    tools = calls * mean_length(turns.tool_latency_s, at_least=0.0)
    demand = {"tools": (calls, tools), "rewards": (1, scores)}
    if stations.reward.at == "tools":
        demand = {"tools": (calls + 1, tools + scores)}
    found = {}
    for name, (each, each_s) in demand.items():
        station = stations.tools if name == "tools" else stations.reward
        if station.timeout_s is not None or station.failure_share or station.overflow is not None:
            continue
        if station.start_s and not station.warm:
            each_s += station.start_s * (each if station.fresh_per == "call" else min(each, 1))
        by_workers = 0.0 if station.workers is None else each_s / station.workers
        by_rate = 0.0 if station.calls_per_s is None else each / station.calls_per_s
        if by_workers or by_rate:
            found[name] = _LEFT * batch * max(by_workers, by_rate)
    return found


def _beside_s(scenario: Scenario) -> float:
    """Seconds for which a sample is out and nothing is written: its tools, and its score."""
    turns = scenario.workload.turns
    tools = (mean_turns(scenario.workload) - 1.0) * mean_length(turns.tool_latency_s, at_least=0.0)
    return tools + mean_length(scenario.workload.reward.latency_s, at_least=0.0)


def _batch_s(scenario: Scenario, lengths: DecodeLengths, pace: TokenPace, instances: Floats) -> Floats:
    """Seconds until a whole batch is written, and nothing beside it."""
    if _selects(scenario):
        return np.zeros(1)
    batch, each = scenario.trainer.batch_samples, scenario.trainer.batch_samples / instances
    running = np.minimum(pace.most, np.arange(batch, 0, -1)[:, None] / instances)
    together = np.diff(lengths.batches, axis=1, prepend=0.0) @ pace.of(running)
    return np.maximum(_rate_s(each * lengths.mean, pace, each), lengths.least(together))


def batches_out(scenario: Scenario) -> float:
    """Batches that may be out at a time, sent and not yet in training; infinite where the law says no number."""
    law, a = law_of(scenario), scenario.admission
    if law.ahead is None:
        return math.inf
    sizes = sizes_of(scenario)
    unit = sizes.steps_per_version if law.ahead.unit == "versions" else sizes.round / sizes.step
    return (law.ahead.most(a) + law.ahead.and_current) * unit + a.extra_groups / sizes.step


def _full_tok_s(pace: TokenPace) -> float:
    """Tokens per second of an instance that is full."""
    return float(pace.most / pace.of(pace.most))


def _rate_s(work: Floats, pace: TokenPace, concurrency: Floats | float) -> Floats:
    """Seconds of so many tokens on an instance that runs so many samples at best."""
    c = np.minimum(pace.most, concurrency)
    return work * pace.of(c) / c
