"""Simulated fleets, remembered: every (instance count, replication) is run at most once. And a job run in several ways.

All counts and ways see the same draws (common random numbers: seed + replication, one stream per cause), so the
difference between two of them is the difference of the fleets, not of their luck.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, has_large_steps
from fleetsim.errors import InputError, StuckError
from fleetsim.estimates import Estimate, differs, ratio_of
from fleetsim.job.lengths import where_longest
from fleetsim.job.looks import check_search, looked
from fleetsim.job.trainer_scaling import count_words, counted, next_count, takes_turns, trainer_gpus
from fleetsim.quantities import WHOLE
from fleetsim.sim.processes import begin, begun, elsewhere, measured, some_free
from fleetsim.sim.stop import stopping
from fleetsim.sim.threads import beside, side_by_side

# One run of a scenario: its metrics. The planner sees the simulator through this alone.
Measure = Callable[[Scenario, int], Mapping[str, Any]]
Tell = Callable[[str], None]
# Metrics of a step that count for what it trains whole; so much counts of a batch nearly all of which is cut.
PER_STEP, _LEAST_WHOLE = ("step_s", "cost_per_step"), 0.01
# Long runs of a count, where each takes long.
_FEW = 3


def simulated(scenario: Scenario, replication: int) -> Mapping[str, Any]:
    """The metrics of one simulated run. Where it is one of several side by side, a process that is free makes it."""
    found = elsewhere(scenario, replication) if beside() else None
    return measured(scenario, replication) if found is None else found


# By this name a measure is known to be the simulator, whose runs a job's bounds bound.
_SIMULATOR = simulated


class Memo:
    """A measure that remembers what another one measured, by scenario and replication; runs that were cut short do not
    count. simulates: whether that is the simulator, so that bounds of a job bound its runs."""

    def __init__(self, measure: Measure) -> None:
        self._measure, self.simulates = measure, measure is _SIMULATOR
        self._runs: dict[tuple[Scenario, int], Mapping[str, Any]] = {}
        self._ahead: dict[tuple[Scenario, int], Future[Mapping[str, Any] | None]] = {}

    def ahead(self, scenario: Scenario, replication: int) -> None:
        """Has a process that is free make a run that may be asked for next; a run that nobody asks for is none."""
        key = (scenario, replication)
        if self.simulates and some_free() and key not in self._runs and key not in self._ahead:
            self._ahead[key] = begun(scenario, replication)

    def __call__(self, scenario: Scenario, replication: int) -> Mapping[str, Any]:
        """The metrics of one run."""
        key = (scenario, replication)
        found = self._runs.get(key)  # asked once: a scenario is hashed anew each time
        if found is None:
            found = self._ahead.pop(key).result() if key in self._ahead else None
            found = self._measure(scenario, replication) if found is None else found
            if not stopping():
                self._runs[key] = found
        return found

    def trials(self) -> tuple[Trial, ...]:
        """The fleets of the first scenario that was measured, by count; other scenarios are variations of it."""
        found: dict[int, dict[int, Mapping[str, Any]]] = {}
        alike = None
        for (scenario, replication), run in list(self._runs.items()):
            bare = with_instances(scenario, unit_of(scenario))
            alike = alike or bare
            if bare == alike:
                found.setdefault(scenario.fleet.instances, {})[replication] = run
        return tuple(trial_of(n, [runs[r] for r in sorted(runs)]) for n, runs in sorted(found.items()))


def remembered(measure: Measure) -> Memo:
    """The same, but a scenario that was run before is not run again. Who asks will make many runs: processes for them
    are begun."""
    if measure is _SIMULATOR:
        begin()
    return measure if isinstance(measure, Memo) else Memo(measure)


def run_ahead(measure: Measure, scenario: Scenario, replication: int = 0) -> None:
    """Has a run made elsewhere that is needed soon, where a process is free and the measure remembers it."""
    if isinstance(measure, Memo):
        measure.ahead(scenario, replication)


def flat(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested metrics with dotted names: {"waste": {"stale": x}} -> {"waste.stale": x}."""
    result: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


def planned(scenario: Scenario, given: Collection[str]) -> Scenario:
    """The scenario as a plan runs it: no resize events, lengths that drift where they are longest, and runs that end
    when they are steady.

    given: dotted paths that the user wrote; steps that are among them stay, but for lengths that drift.
    """
    # A resize event would undo the count that is being tried, and a lost instance names one of another fleet; what
    # becomes slower or longer stays.
    without = {"instances": None, "lose_instance": None}
    stay = ("trainer_slowdown", "sync_slowdown", "length_factor")
    events = [
        e.model_copy(update=without) for e in scenario.run.events if any(getattr(e, name) is not None for name in stay)
    ]
    # Of lengths that drift run.steps says where they end, and no longer how many steps are run.
    changes = where_longest(scenario)
    told = "run.steps" in given and not changes
    if any(getattr(e, name) is not None for e in scenario.run.events for name in without):
        changes["run.events"] = [e.model_dump() for e in events]
    if not told and scenario.run.steps is not None:
        changes["run.steps"] = None
    if has_large_steps(scenario) and "run.replications" not in given:
        changes["run.replications"] = min(_FEW, scenario.run.replications)
    job = with_changes(scenario, changes) if changes else scenario
    check_search(job)
    return job


def unit_of(scenario: Scenario) -> int:
    """Instances that come and go together: the data-parallel ranks of one engine."""
    return scenario.engine.dp


def one_more(scenario: Scenario) -> str:
    """The next larger fleet in words."""
    if takes_turns(scenario):
        return f"a fleet of {count_words(scenario, next_count(scenario, scenario.fleet.instances))}"
    unit = unit_of(scenario)
    return "one more instance" if unit == 1 else f"one more engine of {unit} instances"


@lru_cache(maxsize=64)
def with_instances(scenario: Scenario, instances: int) -> Scenario:
    """The scenario with another fleet size, which then counts as chosen, not as assumed. Speed factors beyond it are
    dropped; a trainer on the same GPUs has theirs. Remembered: searches from one job ask for the same counts again."""
    changes = counted(scenario, instances, trainer_gpus(scenario, instances))
    if "fleet.instances" in scenario.assumed:
        changes["assumed"] = [path for path in changes.get("assumed", scenario.assumed) if path != "fleet.instances"]
    return with_changes(scenario, changes)


class Trial(Struct, frozen=True):
    """What the replications of one fleet came to. `estimates`: by dotted metric name.

    verdicts: what binds in each of them, as text once it is read. stuck: why such a fleet gets stuck. Then no estimate
    is known: each is infinite, and no target is held.
    """

    instances: int
    replications: int
    estimates: Mapping[str, Estimate]
    verdicts: tuple[object, ...] = ()
    stuck: StuckError | None = None

    @property
    def binding(self) -> str:
        """What binds in most replications, the first of equals; empty for a fleet that gets stuck."""
        return Counter(map(str, self.verdicts)).most_common(1)[0][0] if self.verdicts else ""

    def mean(self, metric: str) -> float:
        """The mean of one metric over the replications."""
        return self.estimates[metric].mean

    def whole(self, metric: str) -> float:
        """The mean seconds, or dollars, of a step's worth of whole samples."""
        known = WHOLE.name in self.estimates
        return self.mean(metric) / (max(_LEAST_WHOLE, self.mean(WHOLE.name)) if known else 1.0)


class Trials:
    """Runs of one scenario at any instance count. stuck: counts that get stuck, with the reason."""

    def __init__(
        self, scenario: Scenario, measure: Measure = simulated, tell: Tell | None = None, look_of: Trials | None = None
    ) -> None:
        self.scenario, self._measure, self._tell = scenario, measure, tell
        self._looks = look_of is not None
        self._runs: dict[tuple[int, int], Mapping[str, Any]] = {}
        self._trials: dict[tuple[int, int], Trial] = {}
        self.stuck: dict[int, StuckError] = {} if look_of is None else look_of.stuck

    @cached_property
    def looks(self) -> Trials:
        """The same counts in runs of few steps, which guide a search. What gets stuck there or here is stuck."""
        short = self.scenario if self._looks else looked(self.scenario)
        return self if short == self.scenario else Trials(self.scenario, self._measure, self._tell, self)

    @property
    def simulates(self) -> bool:
        """Whether the simulator makes the runs: then a job's bounds bound them."""
        return self._measure is _SIMULATOR or (isinstance(self._measure, Memo) and self._measure.simulates)

    @property
    def runs(self) -> int:
        """Simulations so far."""
        return len(self._runs)

    def counts(self) -> tuple[int, ...]:
        """The counts that were run, ascending."""
        return tuple(sorted({n for n, _ in self._runs}))

    def replications(self, instances: int) -> int:
        """How often a count was run."""
        return sum(n == instances for n, _ in self._runs)

    def at(self, instances: int, replications: int) -> Trial:
        """The fleet of `instances` over the first `replications` replications; those that are missing are simulated.

        A count that gets stuck in one of them counts as stuck and is not tried again.
        """
        if instances in self.stuck:
            return never(instances, replications, self.stuck[instances])
        key = (instances, replications)
        if key not in self._trials:
            self._run(instances, replications)
            if instances in self.stuck:
                return never(instances, replications, self.stuck[instances])
            self._trials[key] = trial_of(instances, [self._runs[instances, r] for r in range(replications)])
        return self._trials[key]

    @property
    def idle(self) -> bool:
        """Whether a run could be made elsewhere meanwhile."""
        return self.simulates and some_free()

    def ahead(self, instances: int, replication: int = 0) -> None:
        """Has a run made meanwhile, where `idle`: the search is likely to need it next."""
        if self.idle and instances not in self.stuck and (instances, replication) not in self._runs:
            run_ahead(self._measure, self._at(instances), replication)

    def _at(self, instances: int) -> Scenario:
        """The job with so many instances, as it is run."""
        scenario = with_instances(self.scenario, instances)
        return looked(scenario) if self._looks else scenario

    def _run(self, instances: int, replications: int) -> None:
        """Makes the runs that are missing, or learns that the count gets stuck."""
        missing = [r for r in range(replications) if (instances, r) not in self._runs]
        if missing:
            scenario = self._at(instances)
            self._said(instances, 0, len(missing))
            try:
                runs = side_by_side(
                    lambda r: self._measure(scenario, r),
                    missing,
                    each=lambda i, _: self._said(instances, i + 1, len(missing)),
                )
            except StuckError as error:
                self.stuck[instances] = error
                return
            self._runs |= {(instances, r): run for r, run in zip(missing, runs, strict=True)}

    def _said(self, instances: int, done: int, of: int) -> None:
        if self._tell is not None:
            self._tell(f"simulating {units.plural(instances, 'instance')}: {done} of {units.plural(of, 'run')}")


def never(instances: int, replications: int, error: StuckError) -> Trial:
    """The trial of a fleet that gets stuck."""
    unknown = Estimate(math.inf, math.inf, math.inf)
    return Trial(instances, replications, defaultdict(lambda: unknown), stuck=error)


def trial_of(instances: int, runs: Sequence[Mapping[str, Any]]) -> Trial:
    """The estimates of some runs of the same fleet, nested metrics each."""
    from fleetsim.sim.replications import combine

    numbers = tuple({name: value for name, value in run.items() if name != "binding"} for run in runs)
    return Trial(instances, len(runs), flat(combine(numbers)), tuple(run["binding"] for run in runs))


def per_whole_step(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """A run whose seconds and dollars are those of a step's worth of whole samples (`search/objective.py`)."""
    share = run.get(WHOLE.name, 1.0)
    return run if share == 1.0 else {**run, **{name: run[name] / max(_LEAST_WHOLE, share) for name in PER_STEP}}


Way = TypeVar("Way")
Runs = Sequence[Mapping[str, Any]]


def whole_ratio(runs: Runs, base: Runs, metric: str) -> Estimate:
    """A metric over that of the job as it is, paired, of what each trains whole."""
    return ratio_of([*map(per_whole_step, runs)], [*map(per_whole_step, base)], metric)


def runs_of(ways: Mapping[Way, Scenario], replications: int, measure: Measure) -> Mapping[Way, Runs]:
    """Flat metrics of each replication of each way, in the order of the ways. A run that gets stuck, or that cannot be
    made, is left out."""

    def run(job: tuple[Way, int]) -> dict[str, Any] | None:
        try:
            return flat(measure(ways[job[0]], job[1]))
        except (StuckError, InputError):  # the way may have no room for its longest request
            return None

    jobs = [(way, r) for way in ways for r in range(replications)]
    runs: dict[Way, list[dict[str, Any]]] = {way: [] for way in ways}
    for (way, _), made in zip(jobs, side_by_side(run, jobs), strict=True):
        if made is not None:
            runs[way].append(made)
    return runs


def step_beside(runs: Runs, base: Runs) -> tuple[float, Estimate, bool]:
    """Mean seconds of a step, the ratio of what each trains whole to that of the job as it is, paired, and whether it
    is more than chance."""
    ratio = whole_ratio(runs, base, "step_s")
    step_s = sum(float(run["step_s"]) for run in runs) / len(runs)
    return step_s, ratio, differs(ratio, min(len(runs), len(base)))
