"""Two scenarios, simulated under the same draws where that can be, as the two sides of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from fleetsim.compare.compare import PROFILE_HASH, Comparison, MetricChange, Side, assumed_of, inputs_of
from fleetsim.compare.verdicts import compare
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import Interrupted, StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.engine_source import accuracy_of
from fleetsim.job.input_moves import METRICS, Figures, Moved, in_doubt, moved_metrics, ratio_around, reach
from fleetsim.job.trials import Measure, flat, simulated
from fleetsim.quantities import RUN_METRICS, quantity
from fleetsim.records import replace
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
        return compare(
            side_a,
            side_b,
            "scenarios",
            metrics,
            pair=because is None,
            min_change=min_change,
            notes=(*notes, *said, *(() if because is None else (unpaired_note(because),))),
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


def unpaired_note(because: str) -> str:
    """What an unpaired comparison must say."""
    return f"unpaired: {because}, so luck does not cancel out and the intervals are wider (Welch's t)"


# --- What doubt about inputs does to the difference of two scenarios. An input that is in doubt on both sides (the
#     engine's speed, the trainer's seconds) is off on both alike, so most of it cancels out; one that only one side
#     assumes moves that side alone. Each input is moved alone to both ends of its interval, in a short run of either
#     side under the same draws; what the inputs do adds as squares.


def with_doubt(found: Comparison, a: ToRun, b: ToRun, measure: Measure) -> Comparison:
    """The comparison with the range of each change that eight in ten cases of what is in doubt leave; as it was where
    nothing is in doubt. measure: should remember runs."""
    sides = [(job.scenario, in_doubt(job.scenario, job.given)) for job in (a, b)]
    names = list(dict.fromkeys(u.what for _, inputs in sides for u, _ in inputs))
    if not names:
        return found
    moved = [moved_metrics(scenario, inputs, measure) for scenario, inputs in sides]
    ends = [
        dict(zip((u.what for u, _ in inputs), m.ends, strict=True)) for (_, inputs), m in zip(sides, moved, strict=True)
    ]
    return replace(found, changes=tuple(_ranged(change, names, moved, ends) for change in found.changes))


def _ranged(
    change: MetricChange,
    names: Sequence[str],
    moved: Sequence[Moved],
    ends: Sequence[Mapping[str, tuple[Figures, Figures]]],
) -> MetricChange:
    """A change with its range: of the ratio, and of a share the difference."""
    as_share = quantity(change.metric).unit == "share"
    size = change.difference if as_share else change.ratio
    if change.metric not in METRICS or size is None or (not as_share and size.mean <= 0.0):
        return change
    base_a, base_b = (m.base for m in moved)
    at = _apart(base_a[change.metric], base_b[change.metric], as_share)

    def off(name: str, end: int) -> float:
        a, b = (side.get(name, (m.base, m.base))[end][change.metric] for side, m in zip(ends, moved, strict=True))
        return _apart(a, b, as_share) - at

    moves = [[off(name, end) for end in (0, 1)] for name in names]
    return replace(change, likely=_around(size, moves) if as_share else ratio_around(size, moves))


def _apart(a: float, b: float, as_share: bool) -> float:
    """How far B is from A: the difference of shares, else the logarithm of their ratio; NaN where there is none."""
    if as_share:
        return b - a
    return math.log(b / a) if a > 0.0 and b > 0.0 else math.nan


def _around(size: Estimate, moves: Sequence[Sequence[float]]) -> tuple[float, float]:
    """A difference and its moves, with the luck of the seeds."""
    down, up = reach(moves)
    return size.mean - math.hypot(down, size.mean - size.ci_low), size.mean + math.hypot(up, size.ci_high - size.mean)
