"""What a step takes at least, from closed forms: which plans need no simulation.

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
- The trainer's seconds T on a mean batch, and what the trainer waits for a sync. Apart from the rollout the longer of
  both counts, on shared GPUs their sum and the two switches.
- What interrupts generation, a sync or GPUs that are handed over, costs two iterations less than it takes: that which
  is under way goes on to its end, and prompts that are computed again bring a token each.

Prompts, stalls, imbalance, drops and preemption only add to it. It is a bound of a long run: lengths are those that its
first replication draws (the shortest of the windows that may be counted), and `_ROOM` is left for what is out at either
end. Of 1,200 random jobs none took less in 64 steps. A short run may, by the luck of what is trained in its window: of
1,600 jobs 2 in 16 steps, by up to 1.8 %, 19 in 8 steps, by up to 8 %. A plan that is ruled out for that is no better in
a longer run. tests/planner/test_bound.py holds it against simulations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.law_numbers import law_of, sizes_of, steps_per_version
from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import WorkloadConfig
from fleetsim.dataclass import dataclass
from fleetsim.engine.transport import sync_times
from fleetsim.job.nameplate import context_in_flight, mean_prompt_tokens
from fleetsim.job.trials import look_steps
from fleetsim.plan.shares import Candidate
from fleetsim.sim.engines import engine_of
from fleetsim.workload.groups import GroupSource
from fleetsim.workload.streams import seed_sequence

_ROOM = 0.02
# Steps of a run for each batch that is out, from which on what is trained is as long as what is sent.
_STEADY = 2.5
_CONCURRENCIES = 96
# What of the most samples may be out, in as many steps.
_SHARES = np.geomspace(1e-3, 1.0, _CONCURRENCIES)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class DecodeLengths:
    """Output tokens that the first replication of a run decodes: all but the first of each turn, which comes with the
    prompt. batches: of each step's samples, ascending, shape
    (steps, samples). first: steps that may be the first that count. mean: of a sample, of_group: of the longest of a
    group, both of the window in which they are shortest."""

    batches: Floats
    first: range
    mean: float
    of_group: float

    def least(self, by_step: Floats) -> float:
        """The smallest mean over the steps of a window that may be counted."""
        return float(min(by_step[first:].mean() for first in self.first))


@lru_cache(maxsize=64)
def lengths_of(workload: WorkloadConfig, seed: int, groups_per_step: int, steps: int, warmup: int) -> DecodeLengths:
    """The lengths of a run. warmup: steps that are left out at least."""
    source = GroupSource(workload, seed_sequence(seed, 0, "workload"), groups_per_step)
    drawn = source.take(steps * groups_per_step).output_tokens.astype(np.float64) - workload.turns.count
    batches = np.sort(drawn.reshape(steps, -1), axis=1)
    found = DecodeLengths(batches, range(min(warmup, steps // 2), steps // 2 + 1), 0.0, 0.0)
    of_groups = drawn.reshape(steps, groups_per_step, -1).max(axis=2).mean(axis=1)
    return replace(found, mean=found.least(batches.mean(axis=1)), of_group=found.least(of_groups))


@dataclass(frozen=True, slots=True, eq=False)
class TokenPace:
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
    c = np.unique(np.geomspace(1.0, max(1.0, most), _CONCURRENCIES))
    # A constant rate, and drafts that are switched off in larger batches, know no order: none is faster than the best.
    seconds = np.minimum.accumulate(np.asarray(step_time.mixed_s(c, context, 0.0, 0.0))[::-1])[::-1]
    fastest = min([1.0, *scenario.fleet.speed_factors])
    return TokenPace(c, fastest * seconds, most)


class Bounds:
    """Lower bounds of the plans of one job, in a long run. Engines are looked at once."""

    def __init__(self) -> None:
        self._paces: dict[object, TokenPace] = {}

    def rough_s(self, candidate: Candidate) -> float:
        """Seconds that a step takes at least, by the rate and the trainer alone: before there is a scenario. Infinite
        for a trainer that does not fit."""
        engines, share = candidate.engines, candidate.share
        seconds = engines.trainer(share)
        if seconds is None:
            return math.inf
        s = engines.scenario
        lengths, pace = _lengths(s), self._pace(s)
        steps = candidate.ahead.steps
        selects = _selects(s) if steps is None else steps + 1 > look_steps(s) / _STEADY
        training = _training_s(s, lengths, seconds["trainer.fixed_s"], _per_token_s(seconds), selects)
        work = 0.0 if selects else s.trainer.batch_samples * lengths.mean / share.instances
        generating = _LEFT * _rate_s(work, pace, pace.most)
        return float(max(training, generating) if share.kind == "split" else training + generating)

    def step_s(self, scenario: Scenario) -> float:
        """Seconds that a step takes at least."""
        lengths, t, law = _lengths(scenario), scenario.trainer, law_of(scenario)
        per_token = t.per_token_s + sum(p.per_token_s for p in t.phases)
        training = _training_s(
            scenario, lengths, t.fixed_s + sum(p.fixed_s for p in t.phases), per_token, _selects(scenario)
        )
        sync = sync_times(scenario).slower(_least(scenario, "sync_slowdown"))
        k = steps_per_version(scenario)
        # Publications a step, in the window with the fewest.
        counted = (len(lengths.batches) - first for first in lengths.first)
        often = min(n // k / n for n in counted)
        pace = self._pace(scenario)
        if scenario.fleet.placement == "colocated" or law.waits_for_trainer:
            switches = 2 * scenario.fleet.switch_s if scenario.fleet.placement == "colocated" else 0.0
            whole = law.waits_for_trainer
            found = _batch_s(scenario, lengths, pace) if whole else _generation_s(scenario, lengths, pace, 1.0)
            return training + switches + sync.complete_s * often + _LEFT * found
        paused = 0.0 if scenario.sync.scope == "rolling" else sync.pause_s
        held = 0.0
        if law.counts_versions:
            beside = min(training, max(0.0, sync.publish_s + sync.pause_s - sync.trainer_block_s))
            held = max(0.0, (k + 1) / 2 * training + sync.publish_s - beside / k)
        generation = _LEFT * _generation_s(scenario, lengths, pace, often, paused, held)
        return max(training + sync.trainer_block_s * often, generation)

    def _pace(self, scenario: Scenario) -> TokenPace:
        key = scenario.engine, scenario.workload, scenario.fleet.speed_factors, scenario.fleet.group_placement
        if key not in self._paces:
            self._paces[key] = pace_of(scenario)
        return self._paces[key]


_LEFT = 1.0 - _ROOM


def _lengths(scenario: Scenario) -> DecodeLengths:
    run, seed = scenario.run, scenario.run.seed
    return lengths_of(scenario.workload, seed, scenario.groups_per_step, look_steps(scenario), run.warmup_steps or 2)


def _training_s(scenario: Scenario, lengths: DecodeLengths, fixed_s: float, per_token_s: float, selects: bool) -> float:
    """Seconds of training on the lengths that a run draws. selects: on those that are finished first."""
    samples = scenario.trainer.batch_samples
    output = 0.0 if selects else lengths.mean
    tokens = samples * (mean_prompt_tokens(scenario) + output)
    return _least(scenario, "trainer_slowdown") * (fixed_s + _LEFT * tokens * per_token_s)


def _per_token_s(seconds: Mapping[str, Any]) -> float:
    """Of changes that give a trainer its seconds; the fixed ones of its phases are left out."""
    return float(seconds["trainer.per_token_s"] + sum(p["per_token_s"] for p in seconds["trainer.phases"]))


def _least(scenario: Scenario, factor: str) -> float:
    """The smallest of the factors that events multiply by."""
    told = [getattr(event, factor) for event in scenario.run.events]
    return float(min([1.0, *(x for x in told if x is not None)]))


def _selects(scenario: Scenario) -> bool:
    """Whether batches are made of what is finished first, of more than is needed: then of shorter samples.

    That is so, too, as long as a run is short beside what may be out.
    """
    chosen = scenario.buffer.oversampling > 1 or scenario.buffer.group_oversampling > 1
    return chosen or batches_out(scenario) > look_steps(scenario) / _STEADY


def _batch_s(scenario: Scenario, lengths: DecodeLengths, pace: TokenPace) -> float:
    """Seconds until a whole batch is written, and nothing beside it."""
    if _selects(scenario):
        return 0.0
    batch, each = scenario.trainer.batch_samples, scenario.trainer.batch_samples / scenario.fleet.instances
    running = np.minimum(pace.most, np.arange(batch, 0, -1) / scenario.fleet.instances)
    together = np.diff(lengths.batches, axis=1, prepend=0.0) @ pace.of(running)
    return max(_rate_s(each * lengths.mean, pace, each), lengths.least(together))


def _generation_s(
    scenario: Scenario, lengths: DecodeLengths, pace: TokenPace, stops: float, pause_s: float = 0.0, held_s: float = 0.0
) -> float:
    """Seconds of a step in which samples of several batches are out.

    stops: interruptions a step, pause_s each. held_s: how long, in a version, what is in training keeps its places.
    """
    if _selects(scenario):
        return 0.0
    batch, instances = scenario.trainer.batch_samples, scenario.fleet.instances
    work, out = batch * lengths.mean / instances, batches_out(scenario)
    flight = min(out * batch, scenario.fleet.max_in_flight_samples or math.inf)
    most = min(pace.most, flight / instances, scenario.fleet.max_in_flight_samples_per_instance or math.inf)
    c = most * _SHARES
    seconds = pace.of(c)
    gone = lengths.mean * seconds + (lengths.of_group - lengths.mean) * pace.seconds[0]
    least = np.maximum(work * seconds / c, (gone + held_s) / out) + stops * (pause_s - 2 * seconds)
    return max(0.0, float(np.min(least)))


def batches_out(scenario: Scenario) -> float:
    """Batches that may be out at a time, sent and not yet in training; infinite where the law says no number."""
    law, a = law_of(scenario), scenario.admission
    if law.ahead is None:
        return math.inf
    sizes = sizes_of(scenario)
    unit = sizes.steps_per_version if law.ahead.unit == "versions" else sizes.round / sizes.step
    return (law.ahead.most(a) + law.ahead.and_current) * unit + a.extra_groups / sizes.step


def _rate_s(work: float, pace: TokenPace, concurrency: float) -> float:
    """Seconds of so many tokens on an instance that runs so many samples at best."""
    c = min(pace.most, concurrency)
    return float(work * pace.of(c) / c)
