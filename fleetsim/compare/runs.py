"""Two scenarios, simulated under the same draws where that can be, as the two sides of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from fleetsim.compare.compare import PROFILE_HASH, Comparison, MetricChange, Side, assumed_of, inputs_of
from fleetsim.compare.verdicts import compare
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import Interrupted, StuckError
from fleetsim.estimates import estimate
from fleetsim.job.caveats import backlog_warnings
from fleetsim.job.engine_source import accuracy_of
from fleetsim.job.input_moves import METRICS, in_doubt
from fleetsim.job.trials import Measure, flat, simulated
from fleetsim.quantities import RUN_METRICS
from fleetsim.records import replace
from fleetsim.search.doubt import DRAWS
from fleetsim.search.ranges import known_of, ratio_around, shared_draws, with_seeds
from fleetsim.sim.threads import side_by_side
from fleetsim.units import count

# Runs of each side unless somebody said how many: with fewer, a correction for two dozen metrics leaves little power.
REPLICATIONS = 10

# (seed, replication) -> flat metrics.
_Runs = dict[tuple[int, int], Mapping[str, Any]]

# What makes run r of one scenario draw other groups than run r of the other.
_DRAWS: tuple[tuple[str, Callable[[Scenario], object]], ...] = (
    ("run.seed", lambda s: s.run.seed),
    ("workload.group_size", lambda s: s.workload.group_size),
    ("buffer.group_oversampling", lambda s: s.buffer.group_oversampling),
    ("workload.turns.count", lambda s: s.workload.turns.count),
    ("trainer.batch_samples", lambda s: s.trainer.batch_samples),
    ("run.steps", lambda s: s.run.steps or 0),
)


class ToRun(Struct, frozen=True):
    """A scenario to run. given: dotted paths that somebody wrote."""

    label: str
    scenario: Scenario
    given: Collection[str] = ()


def unpaired_because(a: Scenario, b: Scenario) -> str | None:
    """Why run r of both did not draw the same for the same steps; None where it did.

    A law with other parameters, even of another kind, still takes the same draws: each of its values is a quantile at
    the same standard-normal number (`workload/lengths.py`), so luck cancels out.
    """
    differ = [f"{path} is {of(a):g} and {of(b):g}" for path, of in _DRAWS if of(a) != of(b)]
    return " and ".join(differ) or None


def steps_words(steps: int | None) -> str:
    """How long a run is."""
    return "until it was steady" if steps is None else f"{count(steps)} steps"


def equally_long(a: Scenario, b: Scenario) -> tuple[Scenario, Scenario, tuple[str, ...]]:
    """Gives both sides the steps of the longer one: a run's beginning weighs on short runs. Returns a note, too."""
    if a.run.steps == b.run.steps:
        return a, b, ()
    steps = None if a.run.steps is None or b.run.steps is None else max(a.run.steps, b.run.steps)
    long_a, long_b, long = (steps_words(n) for n in (a.run.steps, b.run.steps, steps))
    note = f"A would run {long_a} and B {long_b}: both ran {long} (--steps)"
    return with_changes(a, {"run.steps": steps}), with_changes(b, {"run.steps": steps}), (note,)


def run_side(job: ToRun, replications: Sequence[int]) -> Side:
    """One scenario over some replications. Raises what `simulate` raises, a StuckError with the side's label."""
    found = side_by_side(lambda r: _one(job, r, simulated), replications)
    return scenario_side(job, {(job.scenario.run.seed, r): run for r, run in zip(replications, found, strict=True)})


def _one(job: ToRun, replication: int, measure: Measure) -> Mapping[str, Any]:
    """The flat metrics of one run."""
    try:
        return flat(measure(job.scenario, replication))
    except StuckError as error:
        raise StuckError(f"{job.label}: {error.what}", error.limits) from None


def scenario_side(job: ToRun, runs: Mapping[tuple[int, int], Mapping[str, Any]]) -> Side:
    """A side of simulated runs: flat metrics, `binding` among them."""
    binding = [str(run["binding"]) for run in runs.values() if "binding" in run]
    numbers = {key: {m: float(v) for m, v in run.items() if m != "binding"} for key, run in runs.items()}
    inputs = inputs_of(job.scenario)
    if (found := profile_hash(job.scenario)) is not None:
        inputs[PROFILE_HASH] = found
    return Side(
        job.label,
        runs=numbers,
        replications=len(runs),
        inputs=inputs,
        assumed=assumed_of(job.scenario, job.given),
        binds=max(dict.fromkeys(binding), key=binding.count, default=""),
        accuracy=accuracy_of(job.scenario),
    )


def profile_hash(scenario: Scenario) -> str | None:
    """Hash of the content of the profile that the scenario's engine is; None where it is none."""
    from fleetsim.config.profile_files import seal_of
    from fleetsim.sim.engines import profile_of

    profile = profile_of(scenario)
    return None if profile is None else seal_of(profile)


def compare_scenarios(
    a: ToRun,
    b: ToRun,
    replications: int = REPLICATIONS,
    *,
    min_change: float = 0.01,
    metrics: Sequence[str] = RUN_METRICS,
    notes: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, of: None,
    measure: Measure = simulated,
) -> Comparison:
    """Simulates both and compares them; progress(done, of) is told after each run.

    Raises what `simulate` raises, and Interrupted on Ctrl-C: with the Comparison of the pairs so far, None before the
    first.
    """
    scenario_a, scenario_b, said = equally_long(a.scenario, b.scenario)
    as_often = {"run.replications": replications}
    scenario_a, scenario_b = with_changes(scenario_a, as_often), with_changes(scenario_b, as_often)
    because = unpaired_because(scenario_a, scenario_b)
    both = (replace(a, scenario=scenario_a), replace(b, scenario=scenario_b))
    runs: tuple[_Runs, _Runs] = ({}, {})

    def compared(pairs: int) -> Comparison:
        """Compares the first so many runs of each side."""
        side_a, side_b = (scenario_side(job, dict(list(f.items())[:pairs])) for job, f in zip(both, runs, strict=True))
        grows = *_backlog_notes("A", scenario_a, side_a), *_backlog_notes("B", scenario_b, side_b)
        return compare(
            side_a,
            side_b,
            "scenarios",
            metrics,
            pair=because is None,
            min_change=min_change,
            notes=(*notes, *said, *(() if because is None else (unpaired_note(because),)), *grows),
        )

    def known(i: int, metrics_of_run: Mapping[str, Any]) -> None:
        side, r = jobs[i]
        runs[side][both[side].scenario.run.seed, r] = metrics_of_run
        progress(i + 1, len(jobs))

    # In turns: whatever is known at any time is known of both.
    jobs = [(side, r) for r in range(replications) for side in (0, 1)]
    try:
        side_by_side(lambda job: _one(both[job[0]], job[1], measure), jobs, each=known)
    except KeyboardInterrupt:
        pairs = min(map(len, runs))
        missing = f"{pairs} of {replications:,} pairs of runs were simulated"
        raise Interrupted(compared(pairs) if pairs else None, missing) from None
    return compared(replications)


def _backlog_notes(where: str, scenario: Scenario, side: Side) -> Iterator[str]:
    """What makes samples older than the runs of a side show."""
    metrics = {name: estimate([run[name] for run in side.runs.values()]) for name in next(iter(side.runs.values()))}
    return (f"{where}: {warning}" for warning in backlog_warnings(scenario, metrics))


def unpaired_note(because: str) -> str:
    """What an unpaired comparison must say."""
    return f"unpaired: {because}, so luck does not cancel out and the intervals are wider (Welch's t)"


# --- What doubt about inputs does to the difference of two scenarios. An input that is in doubt on both sides (the
#     engine's speed, the trainer's seconds) is off on both alike, so most of it cancels out; one that only one side
#     assumes moves that side alone.


def with_doubt(found: Comparison, a: ToRun, b: ToRun, measure: Measure) -> Comparison:
    """The comparison with the range of each change that eight in ten cases of what is in doubt leave; as it was where
    nothing is in doubt, or nothing known of it. measure: should remember runs."""
    shown = {c.metric: (c.a, c.b) for c in found.changes if c.metric in METRICS and c.a is not None and c.b is not None}
    doubtful = [i for i, job in enumerate((a, b)) if in_doubt(job.scenario, job.given)]
    known = [
        known_of(job.scenario, job.given, {metric: both[i] for metric, both in shown.items()}, measure)
        for i, job in enumerate((a, b))
        if i in doubtful
    ]
    sure = [one for one in known if one is not None]
    if not sure or len(sure) < len(doubtful):
        return found
    draws = dict(zip(doubtful, zip(sure, shared_draws(sure), strict=True), strict=True))

    def ranged(change: MetricChange) -> MetricChange:
        """A change with its range: of the ratio, and of a share the difference."""
        as_share, both = change.of_share, shown.get(change.metric)
        size = change.difference if as_share else change.ratio
        if both is None or size is None or (not as_share and size.mean <= 0.0):
            return change
        moved = [
            np.full(DRAWS, both[i].mean) if i not in draws else draws[i][0].moved(change.metric, draws[i][1])
            for i in (0, 1)
        ]
        if as_share:
            by = moved[1] - moved[0] - (both[1].mean - both[0].mean)
            return replace(change, likely=with_seeds(size, size.mean + by))
        return replace(change, likely=ratio_around(size, np.log(moved[1] / moved[0] * both[0].mean / both[1].mean)))

    return replace(found, changes=tuple(map(ranged, found.changes)))
