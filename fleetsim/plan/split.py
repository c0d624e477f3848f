"""Split advice: every way to use one set of GPUs, simulated under the same draws, ranked, and a verdict.

All ways run once; of many splits some do, and then those around the best. Then they are replicated, best first, until a
budget of simulated samples is spent, but always the two colocated ones and the best few by every measure. Two ways are
compared run by run (`plan/paired.py`): the verdict is "split" only if the best split beats the better colocated way by
more than chance, because sharing the GPUs is simpler and fresher.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fleetsim.analysis.intervals import Estimate
from fleetsim.analysis.threads import side_by_side
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.plan.alternatives import Alternatives, alternatives_of
from fleetsim.plan.arrangements import (
    SWITCH_S,
    Arrangement,
    Rules,
    colocated_async,
    colocated_sync,
    gpus_per_instance,
    least_trainer_gpus,
    split_counts,
)
from fleetsim.plan.arrangements import split as split_of
from fleetsim.plan.assumptions import Assumption, is_given
from fleetsim.plan.engine_source import EngineSource, engine_source
from fleetsim.plan.explain import explanation
from fleetsim.plan.paired import differs, ratio_of
from fleetsim.plan.scaling import anchored, scaled
from fleetsim.plan.split_notes import assumed, warnings_of
from fleetsim.plan.trials import Measure, Tell, flat, remembered, simulated, trial_of, with_instances

By = Literal["step_s", "goodput", "cost_per_step"]
MEASURES: tuple[By, ...] = ("step_s", "goodput", "cost_per_step")
# Optimizer steps of a run unless the user said how many, as in `size`.
_MOST_STEPS, _FEWEST_STEPS, _SAMPLES_PER_RUN = 16, 8, 250_000
# Samples simulated over all replications, and the best few by each measure that are replicated whatever they cost.
_BUDGET, _CONTENDERS = 1_200_000, 4
_ANY_TRAINER = Rules()
# Where there are more splits than this, some of them are tried and then those around the best.
_MOST_SPLITS = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """One arrangement over its replications.

    estimates: by dotted metric name. runs: the same, run by run. ratio: of the ranking measure to the first-ranked
    one, paired (step_s and cost_per_step above 1 are worse, goodput below). ties: whether that is within chance.
    ranks: place by each measure, from 1.
    """

    arrangement: Arrangement
    estimates: Mapping[str, Estimate]
    runs: tuple[Mapping[str, Any], ...]
    binding: str
    ratio: Estimate
    ties: bool
    ranks: Mapping[str, int]

    @property
    def replications(self) -> int:
        """Runs behind the estimates."""
        return len(self.runs)

    def mean(self, metric: str) -> float:
        """The mean of one metric."""
        return self.estimates[metric].mean


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What `split` found.

    scenario: the job, with the trainer's seconds as given. outcomes: ranked by `by`, best first: the two colocated ways
    and the `splits` possible splits, or those of many that were simulated.

    verdict: split, do_not_split, or no_difference (then nothing is gained by splitting). best_split, best_colocated:
    the better of each by `by`; ratio: best split / best colocated, paired. chosen: what is advised, with its
    alternatives and their explanation. stuck: arrangements that cannot run, with the reason.
    """

    scenario: Scenario
    gpus: int
    by: By
    rules: Rules
    outcomes: tuple[Outcome, ...]
    splits: int
    stuck: tuple[tuple[str, str], ...]
    verdict: Literal["split", "do_not_split", "no_difference"]
    ratio: Estimate | None
    chosen: Outcome
    best_split: Outcome | None
    best_colocated: Outcome | None
    alternatives: Alternatives
    explanation: str
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]
    profile: EngineSource
    simulations: int

    def of(self, kind: str) -> Outcome | None:
        """The best outcome of one kind."""
        return next((o for o in self.outcomes if o.arrangement.kind == kind), None)


def split(
    scenario: Scenario,
    gpus: int,
    *,
    by: By = "step_s",
    rules: Rules = _ANY_TRAINER,
    given: Collection[str] = (),
    notes: Sequence[str] = (),
    measure: Measure = simulated,
    tell: Tell | None = None,
) -> SplitResult:
    """Ranks all ways to use `gpus` GPUs for a job; its own instances and placement are ignored.

    rules: for the trainer's GPUs. given, notes,
    measure, tell: as for `size`. Raises InputError for GPUs that cannot be split, StuckError when no way runs.
    """
    job, asked = _job(scenario, frozenset(given)), rules
    if rules.trainer_least is None:
        rules = replace(rules, trainer_least=least_trainer_gpus(job))
    counts = split_counts(job, gpus, rules)
    measure = remembered(measure)
    ways = _Ways(job, gpus, measure, tell)
    ways.explore(counts)
    if ways.runs:
        ways.replicate(_worth_replicating(ways.runs, job, by))
    if not ways.runs:
        raise next(iter(ways.stuck.values()))
    outcomes = _ranked(ways.runs, by)
    best_split = next((o for o in outcomes if o.arrangement.kind == "split"), None)
    best_colocated = _fresher([o for o in outcomes if o.arrangement.kind != "split"], by)
    verdict, ratio = _verdict(best_split, best_colocated, by)
    chosen = best_split if verdict == "split" else best_colocated
    assert chosen is not None  # _verdict answers for what there is
    alternatives = alternatives_of(
        chosen.arrangement.scenario,
        _grown(job, chosen.arrangement),
        chosen.replications,
        measure,
        more=_more(job),
        tell=tell,
    )
    profile = engine_source(chosen.arrangement.scenario, chosen.arrangement.instances)
    lost = [chosen.estimates[f"samples_lost.{of}"] for of in ("all", "longest_tenth")]
    return SplitResult(
        scenario=job,
        gpus=gpus,
        by=by,
        rules=rules,
        outcomes=outcomes,
        splits=len(counts),
        stuck=tuple((label, error.what) for label, error in ways.stuck.items()),
        verdict=verdict,
        ratio=ratio,
        chosen=chosen,
        best_split=best_split,
        best_colocated=best_colocated,
        alternatives=alternatives,
        explanation=explanation(chosen.binding, alternatives, *lost),
        assumptions=assumed(job, asked, rules, frozenset(given)),
        warnings=(*notes, *warnings_of(job, chosen.arrangement, ways.stuck, profile)),
        profile=profile,
        simulations=sum(o.replications for o in outcomes),
    )


def _job(scenario: Scenario, given: frozenset[str]) -> Scenario:
    """The scenario as it will be arranged: affordable steps, no resizes, a switch that takes time."""
    changes: dict[str, Any] = {}
    events = [e.model_copy(update={"instances": None}) for e in scenario.run.events if e.trainer_slowdown is not None]
    if any(e.instances is not None for e in scenario.run.events):
        changes["run.events"] = [e.model_dump() for e in events]
    if "run.steps" not in given and not events and scenario.run.warmup_steps is None:
        affordable = _SAMPLES_PER_RUN // scenario.trainer.batch_samples
        changes["run.steps"] = min(scenario.run.steps, max(_FEWEST_STEPS, min(_MOST_STEPS, affordable)))
    if not is_given("fleet.switch_s", given) and scenario.fleet.switch_s == 0:
        changes["fleet.switch_s"] = SWITCH_S
    return anchored(with_changes(scenario, changes) if changes else scenario, given)


Simulated = dict[Arrangement, list[dict[str, Any]]]


class _Ways:
    """Ways to use the GPUs, simulated once each and then replicated; those that get stuck are set aside."""

    def __init__(self, job: Scenario, gpus: int, measure: Measure, tell: Tell | None) -> None:
        self.job, self.gpus = job, gpus
        self.runs: Simulated = {}
        self.stuck: dict[str, StuckError] = {}
        self._measure, self._tell = measure, tell or (lambda text: None)

    def explore(self, counts: Sequence[int]) -> None:
        """The colocated ways, and the splits of `counts` instances: all, or of many those closest at the best."""
        self.add([colocated_sync(self.job, self.gpus), colocated_async(self.job, self.gpus)])
        stride = math.ceil(len(counts) / _MOST_SPLITS)
        wanted = {*range(0, len(counts), stride), len(counts) - 1}
        at: dict[int, Arrangement] = {}
        while wanted:
            new = {i: split_of(self.job, counts[i], self.gpus) for i in sorted(wanted)}
            self.add(list(new.values()))
            at |= {i: way for i, way in new.items() if way in self.runs}
            if stride == 1 or not at:
                return
            finer = max(1, stride // 4)
            best = {min(at, key=lambda i: _badness(self.runs[at[i]][0], m)) for m in MEASURES}
            near = {j for i in best for j in range(i - stride, i + stride + 1, finer)}
            wanted, stride = {j for j in near if 0 <= j < len(counts)} - at.keys(), finer

    def add(self, ways: Sequence[Arrangement]) -> None:
        """Runs each once."""
        self._tell(f"simulating {len(ways):,} ways to use the GPUs")
        for way, run in zip(ways, side_by_side(lambda way: self._one(way, 0), ways), strict=True):
            if run is not None:
                self.runs[way] = [run]

    def replicate(self, ways: Sequence[Arrangement]) -> None:
        """The other replications of these."""
        jobs = [(way, r) for way in ways for r in range(1, self.job.run.replications)]
        if jobs:
            self._tell(f"replicating the best {len(ways):,}")
        for (way, _), run in zip(jobs, side_by_side(lambda j: self._one(*j), jobs), strict=True):
            if run is None:
                self.runs.pop(way, None)
            elif way in self.runs:
                self.runs[way].append(run)

    def _one(self, way: Arrangement, replication: int) -> dict[str, Any] | None:
        try:
            return flat(self._measure(way.scenario, replication))
        except StuckError as error:
            self.stuck[way.label] = error
            return None


def _badness(run: Mapping[str, Any], measure: By) -> float:
    value = float(run[measure])
    return -value if measure == "goodput" else value


def _worth_replicating(runs: Simulated, job: Scenario, by: By) -> list[Arrangement]:
    """Best first, as many as the budget allows; the colocated ones and the best few by each measure in any case."""
    affordable = _BUDGET // max(1, job.trainer.batch_samples * job.run.steps * (job.run.replications - 1))

    def order(measure: By) -> list[Arrangement]:
        return sorted(runs, key=lambda way: _badness(runs[way][0], measure))

    must = {way for way in runs if way.kind != "split"} | {way for m in MEASURES for way in order(m)[:_CONTENDERS]}
    return [way for i, way in enumerate(order(by)) if way in must or i < affordable]


def _ranked(runs: Simulated, by: By) -> tuple[Outcome, ...]:
    """Best first by the mean of the replications; what ran only once comes after what was replicated."""
    most = max(len(found) for found in runs.values())

    def order(measure: By) -> list[Arrangement]:
        def place(way: Arrangement) -> tuple[bool, float]:
            found = runs[way]
            return len(found) < most, sum(_badness(run, measure) for run in found) / len(found)

        return sorted(runs, key=place)

    ranks: dict[Arrangement, dict[str, int]] = {way: {} for way in runs}
    for measure in MEASURES:
        for i, way in enumerate(order(measure)):
            ranks[way][measure] = i + 1
    ranked = order(by)
    found = []
    for way in ranked:
        trial = trial_of(way.instances, runs[way])
        ratio = ratio_of(runs[way], runs[ranked[0]], by)
        ties = not differs(ratio, len(runs[way]))
        found.append(Outcome(way, trial.estimates, tuple(runs[way]), trial.binding, ratio, ties, ranks[way]))
    return tuple(found)


def _fresher(colocated: Sequence[Outcome], by: By) -> Outcome | None:
    """The better colocated way; the on-policy one where the other is not better by more than chance."""
    if len(colocated) < 2:
        return next(iter(colocated), None)
    first, second = colocated
    ratio = ratio_of(second.runs, first.runs, by)
    fresh = second.arrangement.kind == "colocated_sync" and not differs(ratio, first.replications)
    return second if fresh else first


def _verdict(
    best_split: Outcome | None, best_colocated: Outcome | None, by: By
) -> tuple[Literal["split", "do_not_split", "no_difference"], Estimate | None]:
    """See the module's docstring. Without one side there is nothing to compare: the other is the answer."""
    if best_split is None:
        return "do_not_split", None
    if best_colocated is None:
        return "split", None
    ratio = ratio_of(best_split.runs, best_colocated.runs, by)
    if not differs(ratio, min(best_split.replications, best_colocated.replications)):
        return "no_difference", ratio
    split_wins = ratio.mean > 1.0 if by == "goodput" else ratio.mean < 1.0
    return ("split" if split_wins else "do_not_split"), ratio


def _grown(job: Scenario, way: Arrangement) -> Scenario:
    """The way with one instance more than the GPUs allow; colocated, the trainer gets those GPUs too."""
    grown = with_instances(way.scenario, way.instances + 1)
    if way.kind == "split":
        return grown
    return with_changes(grown, scaled(job, way.trainer_gpus + gpus_per_instance(job)))


def _more(job: Scenario) -> str:
    each = gpus_per_instance(job)
    return f"one more instance ({each} {'GPU' if each == 1 else 'GPUs'} more)"
