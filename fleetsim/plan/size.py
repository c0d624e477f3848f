"""The smallest rollout fleet that holds the targets, and everything one asks next.

The search. Rate matching gives the first guess. A coarse pass (few replications) brackets and bisects the smallest
count that holds the targets which more instances help (trainer idle, step time); it relies on both never getting worse
with more instances, which common random numbers make true up to rounding. A fine pass repeats the search from there
with all replications, by the rule in `targets.RULE`. Then cost and staleness are looked at.

When even a fleet with an instance for every group misses a target, more instances have stopped helping (the longest
response, the staleness window or a client cap binds). The answer is then the knee (`plan/knee.py`), reported as such,
and as infeasible when the user asked for the target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fleetsim.config.scenario import Scenario
from fleetsim.plan import nameplate
from fleetsim.plan.alternatives import Alternatives, alternatives_of
from fleetsim.plan.assumptions import Assumption, assumptions_of
from fleetsim.plan.engine_source import EngineSource, engine_source
from fleetsim.plan.explain import explanation
from fleetsim.plan.headroom import Headroom, headroom_of
from fleetsim.plan.knee import knee
from fleetsim.plan.plausible import implausible
from fleetsim.plan.queue_cap import QueueCap, queue_cap_of
from fleetsim.plan.rate import MOST_INSTANCES, RateMatching, match_rates, matched_instances
from fleetsim.plan.search import smallest
from fleetsim.plan.targets import Target, targets_of
from fleetsim.plan.trials import Measure, Tell, Trial, Trials, planned, remembered, simulated, with_instances
from fleetsim.plan.warnings import warnings_of
from fleetsim.plan.way_out import WayOut, way_out_of

# Replications of the coarse pass.
_COARSE = 1
# Replications of each other lever: paired with the recommendation's own, so few of them are enough.
_LEVERS = 3


@dataclass(frozen=True, slots=True)
class SizeResult:
    """What `size` found. Field by field the JSON document that `fleetsim size --json` prints.

    instances: the recommendation. largest: when it is only the knee, the largest fleet that was tried, else None;
    way_out: then, the staleness budget that would do, if there is one.
    missed: targets that the recommendation does not hold. candidates: the recommendation, its neighbours and the
    rate-matching count, ascending. alternatives: what one more instance and every other lever would buy at the
    recommendation, explanation: that in words.
    """

    scenario: Scenario
    instances: int
    binding: str
    largest: Trial | None
    way_out: WayOut | None
    missed: tuple[Target, ...]
    targets: tuple[Target, ...]
    rate_matching: RateMatching
    headroom: Headroom
    queue_cap: QueueCap
    candidates: tuple[Trial, ...]
    alternatives: Alternatives
    explanation: str
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]
    profile: EngineSource
    simulations: int

    @property
    def recommended(self) -> Trial:
        """The trial of the recommended count."""
        return self.candidate(self.instances)

    @property
    def at_knee(self) -> bool:
        """Whether no count holds the targets, and the answer is where more instances stop paying."""
        return self.largest is not None

    @property
    def feasible(self) -> bool:
        """Whether every target that the user gave is held; assumed ones may be missed."""
        return not any(t.given for t in self.missed)

    def candidate(self, instances: int) -> Trial:
        """The trial of one of the candidates."""
        return next(c for c in self.candidates if c.instances == instances)


def size(
    scenario: Scenario,
    *,
    given: Collection[str] = (),
    notes: Sequence[str] = (),
    measure: Measure = simulated,
    tell: Tell | None = None,
) -> SizeResult:
    """Sizes the rollout fleet of a scenario; its own `fleet.instances` is ignored.

    given: dotted paths that the user wrote, the rest is reported as assumed; targets among them are binding wishes.
    notes: warnings of the caller, put before those of the plan.
    measure: one run to its metrics, the simulator by default. tell: hears what is being simulated.

    Raises InputError for a scenario that cannot be sized and StuckError when its limits block each other.
    """
    resized = any(e.instances is not None or e.lose_instance is not None for e in scenario.run.events)
    job = planned(scenario, given)

    rate_of = nameplate.nameplate_rate(job)
    rate = match_rates(
        job.trainer.batch_samples * nameplate.mean_output_tokens(job),
        nameplate.trainer_step_s(job),
        rate_of,
        job.targets.headroom,
    )
    targets = targets_of(job, given)
    measure = remembered(measure)
    trials = Trials(job, measure, tell)
    # Where no count covers the demand on paper, the search starts from instances that are full.
    full = matched_instances(rate.consume_tok_s, rate_of(1), rate.headroom)
    guess = rate.instances if rate.covers else min(full, rate.instances)
    instances, largest = _recommend(trials, guess, targets)
    replications = job.run.replications
    chosen = trials.at(instances, replications)
    missed = tuple(t for t in targets if not t.held_by(chosen.estimates[t.metric]))
    # At the knee the trainer takes what it gets; elsewhere what it can.
    consumed = rate.consume_tok_s if largest is None else rate.batch_tokens / chosen.mean("step_s")
    headroom = headroom_of(job, instances, consumed, rate_of(instances), measure, tell)
    queue_cap = queue_cap_of(job, instances, measure, tell)
    # At the matched count: the knee of a fleet that cannot keep up is no guide to one that can.
    way_out = None if largest is None else way_out_of(job, guess, targets, measure, tell)
    counts = sorted({max(1, instances - 1), instances, instances + 1, guess})
    candidates = tuple(trials.at(n, replications) for n in counts)
    here, grown = (with_instances(job, n) for n in (instances, instances + 1))
    alternatives = alternatives_of(here, grown, min(_LEVERS, replications), measure, of_grown=replications, tell=tell)
    lost = [chosen.estimates[f"samples_lost.{of}"] for of in ("all", "longest_tenth")]
    profile = engine_source(job, instances)
    return SizeResult(
        scenario=job,
        instances=instances,
        binding=chosen.binding,
        largest=largest,
        way_out=way_out,
        missed=missed,
        targets=targets,
        rate_matching=rate,
        headroom=headroom,
        queue_cap=queue_cap,
        candidates=candidates,
        alternatives=alternatives,
        explanation=explanation(chosen.binding, alternatives, *lost),
        assumptions=assumptions_of(job, given),
        warnings=(
            *notes,
            *warnings_of(job, chosen, missed, queue_cap, profile, resized),
            *implausible(here, given),
        ),
        profile=profile,
        simulations=trials.runs,
    )


def _recommend(trials: Trials, guess: int, targets: tuple[Target, ...]) -> tuple[int, Trial | None]:
    """The recommended count; when it is only the knee, also the trial of the largest fleet that was tried."""
    helped = [t for t in targets if t.helped_by_instances]
    replications = trials.scenario.run.replications
    most = _most_useful(trials.scenario, guess)

    def holds(count: int, runs: int) -> bool:
        trial = trials.at(count, runs)
        return all(t.held_by(trial.estimates[t.metric]) for t in helped)

    found: int | None = None
    if holds(guess, _COARSE) or holds(most, _COARSE):
        found = smallest(lambda n: holds(n, _COARSE), guess, most, stride=max(1, guess // 8))
    if found is not None:
        found = smallest(lambda n: holds(n, replications), found, min(most, 2 * found + 8))
    if found is None:
        return knee(trials.scenario, lambda n: trials.at(n, _COARSE).mean("step_s"), guess, most), trials.at(
            most, _COARSE
        )
    return _affordable(trials, found, targets, replications), None


def _most_useful(scenario: Scenario, guess: int) -> int:
    """A count that no larger one beats: every group that may be in flight has an instance of its own."""
    flight = nameplate.samples_in_flight(scenario) + scenario.trainer.batch_samples
    if not math.isfinite(flight):
        flight = 4.0 * scenario.trainer.batch_samples
    units = scenario.workload.group_size if scenario.fleet.group_placement == "together" else 1
    return min(MOST_INSTANCES, max(math.ceil(flight / units), 4 * guess))


def _affordable(trials: Trials, count: int, targets: tuple[Target, ...], replications: int) -> int:
    """A smaller count where a *given* target on cost or staleness wants one and only assumed targets lose by it.

    Both get better with fewer instances as long as the trainer hardly waits. Without such a count the first answer
    stays, and the targets that it misses are reported.
    """
    priced = [t for t in targets if not t.helped_by_instances and t.given]
    firm = [t for t in targets if t.helped_by_instances and t.given]

    def all_held(n: int, wanted: list[Target]) -> bool:
        trial = trials.at(n, replications)
        return all(t.held_by(trial.estimates[t.metric]) for t in wanted)

    if not priced or all_held(count, priced):
        return count
    n = count - 1
    while n >= max(1, count // 2) and all_held(n, firm):
        if all_held(n, priced):
            return n
        n -= 1
    return count
