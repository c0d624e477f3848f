"""Two sides of a comparison: scenarios, simulated under the same draws where that can be, or results of earlier runs.

A scenario beside a result is run as the result was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from fleetsim.compare.compare import PROFILE_HASH, Comparison, Kind, MetricChange, Side, assumed_of, inputs_of
from fleetsim.compare.question import Compare, GivenSide, given_of
from fleetsim.compare.saved_result import SavedResult, result_of
from fleetsim.compare.verdicts import compare
from fleetsim.config.engine_profile import seal_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, Interrupted, Problem, StuckError
from fleetsim.estimates import estimate
from fleetsim.faces import text
from fleetsim.history.history import History
from fleetsim.job.base_job import BaseJob, Start, load, made
from fleetsim.job.engine_source import accuracy_of
from fleetsim.job.grounds import backlog_warnings
from fleetsim.job.input_moves import METRICS, in_doubt
from fleetsim.job.trials import Measure, flat, simulated
from fleetsim.quantities import RUN_METRICS
from fleetsim.records import replace
from fleetsim.replay.result import ReplayResult
from fleetsim.search.doubt import DRAWS
from fleetsim.search.ranges import known_of, ratio_around, shared_draws, with_seeds
from fleetsim.sim.engines import profile_of
from fleetsim.sim.threads import side_by_side
from fleetsim.simulate.ask import SimulateResult
from fleetsim.size.ask import SizeResult
from fleetsim.units import count, plural

# Runs of each side unless somebody said how many: with fewer, a correction for two dozen metrics leaves little power.
REPLICATIONS = 10

# (seed, replication) -> flat metrics.
_Runs = dict[tuple[int, int], Mapping[str, Any]]

# What makes run r of one scenario draw other groups than run r of the other. A law with other parameters, even of
# another kind, still takes the same draws: each of its values is a quantile at the same standard-normal number
# (`workload/lengths.py`), so luck cancels out.
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


Given = ToRun | SavedResult


def steps_words(steps: int | None) -> str:
    """How long a run is."""
    return "until it was steady" if steps is None else f"{count(steps)} steps"


def _alike(a: Given, b: Given, replications: int) -> tuple[tuple[Given, Given], Sequence[int], list[str]]:
    """Both sides as they are run, the replications of those that are, and what is to be said of it.

    Two scenarios have the steps of the longer one: a run's beginning weighs on short runs. Raises InputError where one
    is to be run like a result whose scenario cannot be read.
    """
    if not (isinstance(a, ToRun) and isinstance(b, ToRun)):
        rows: Sequence[int] = ()
        said, both = [], []
        for one, other in ((a, b), (b, a)):
            if isinstance(one, ToRun):
                assert isinstance(other, SavedResult)
                rows = [r for _, r in other.side.runs] or range(other.side.replications)
                one = _like(one, other, len(rows), said)
            both.append(one)
        return (both[0], both[1]), rows, said
    shorter, longer = sorted((a.scenario.run.steps, b.scenario.run.steps), key=lambda n: (n is None, n))
    said = []
    if shorter != longer:
        long_a, long_b, long = map(steps_words, (a.scenario.run.steps, b.scenario.run.steps, longer))
        said.append(f"A would run {long_a} and B {long_b}: both ran {long} (--steps)")
    as_long = {"run.steps": longer, "run.replications": replications}
    x, y = (replace(one, scenario=with_changes(one.scenario, as_long)) for one in (a, b))
    return (x, y), range(replications), said


def _like(one: ToRun, other: SavedResult, runs: int, said: list[str]) -> ToRun:
    """The scenario, to be run as a result was."""
    if other.scenario is None:
        rule = f"is to be run as {other.side.label} was, whose scenario this version cannot read"
        raise InputError([Problem(one.label, None, rule, "write that result again with this version")])
    like = other.scenario.run
    as_it_was = f"{steps_words(like.steps)}, {plural(runs, 'replication')}, seed {like.seed}"
    said.append(f"{one.label} was run as {other.side.label} was: {as_it_was}")
    # Not the events: they are part of the job.
    changes = {"run.steps": like.steps, "run.seed": like.seed, "run.warmup_steps": like.warmup_steps}
    many = max(1, other.side.replications)
    return replace(one, scenario=with_changes(one.scenario, {**changes, "run.replications": many}))


def scenario_side(job: ToRun, runs: Mapping[tuple[int, int], Mapping[str, Any]]) -> Side:
    """A side of simulated runs: flat metrics, `binding` among them."""
    binding = [str(run["binding"]) for run in runs.values() if "binding" in run]
    numbers = {key: {m: float(v) for m, v in run.items() if m != "binding"} for key, run in runs.items()}
    inputs = inputs_of(job.scenario)
    if (profile := profile_of(job.scenario)) is not None:
        inputs[PROFILE_HASH] = seal_of(profile)
    return Side(
        job.label,
        runs=numbers,
        replications=len(runs),
        inputs=inputs,
        assumed=assumed_of(job.scenario, job.given),
        binds=max(dict.fromkeys(binding), key=binding.count, default=""),
        accuracy=accuracy_of(job.scenario),
    )


def compare_runs(
    a: Given,
    b: Given,
    replications: int = REPLICATIONS,
    *,
    min_change: float = 0.01,
    metrics: Sequence[str] = RUN_METRICS,
    notes: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, of: None,
    measure: Measure = simulated,
) -> Comparison:
    """Simulates what is no result yet, and compares both; progress(done, of) is told after each run.

    replications: of two scenarios. Raises InputError as `_alike`, what `simulate` raises, and Interrupted on Ctrl-C:
    with the Comparison of the pairs so far, None before the first.
    """
    both, rows, said = _alike(a, b, replications)
    said += [note for one in both if isinstance(one, SavedResult) for note in one.notes]
    runs: tuple[_Runs, _Runs] = ({}, {})

    def side(one: Given, found: _Runs, pairs: int) -> Side:
        return one.side if isinstance(one, SavedResult) else scenario_side(one, dict(list(found.items())[:pairs]))

    def compared(pairs: int) -> Comparison:
        """Compares the first so many runs of each side that was simulated."""
        sides = (side(both[0], runs[0], pairs), side(both[1], runs[1], pairs))
        because = _unpaired(both, sides)
        told, (a, b) = [*notes, *said], (of.runs for of in sides)
        if because is None and len(a) != len(b):
            told.append(
                f"A has {len(a)} runs and B {len(b)}: the {len(a.keys() & b.keys())} that both have are compared"
            )
        elif because is not None and a and b:
            told.append(f"unpaired: {because}, so luck does not cancel out and the intervals are wider (Welch's t)")
        for where, one, of in zip("AB", both, (a, b), strict=True):
            if isinstance(one, ToRun):
                means = {name: estimate([run[name] for run in of.values()]) for name in next(iter(of.values()))}
                told += [f"{where}: {warning}" for warning in backlog_warnings(one.scenario, means)]
        kind: Kind = "results" if any(isinstance(one, SavedResult) for one in both) else "scenarios"
        said_once = tuple(dict.fromkeys(told))
        return compare(*sides, kind, metrics, pair=because is None, min_change=min_change, notes=said_once)

    def run(job: tuple[int, int, ToRun]) -> Mapping[str, Any]:
        _, r, one = job
        try:
            return flat(measure(one.scenario, r))
        except StuckError as error:
            raise StuckError(f"{one.label}: {error.what}", error.limits) from None

    def known(i: int, metrics_of_run: Mapping[str, Any]) -> None:
        at, r, job = jobs[i]
        runs[at][job.scenario.run.seed, r] = metrics_of_run
        progress(i + 1, len(jobs))

    # In turns: whatever is known at any time is known of both.
    jobs = [(at, r, one) for r in rows for at, one in enumerate(both) if isinstance(one, ToRun)]
    try:
        side_by_side(run, jobs, each=known)
    except KeyboardInterrupt:
        pairs = min(len(found) for one, found in zip(both, runs, strict=True) if isinstance(one, ToRun))
        missing = f"{pairs} of {len(rows):,} pairs of runs were simulated"
        raise Interrupted(compared(pairs) if pairs else None, missing) from None
    return compared(len(rows))


def _unpaired(both: tuple[Given, Given], sides: tuple[Side, Side]) -> str | None:
    """Why runs of both sides are no pairs; None where they are."""
    a, b = both[0].scenario, both[1].scenario
    if not sides[0].runs or not sides[1].runs:
        return "not both sides have their single runs"
    if a is None or b is None:
        return "the scenario of one cannot be read"
    differ = [f"{path} is {of(a):g} and {of(b):g}" for path, of in _DRAWS if of(a) != of(b)]
    saved = any(isinstance(one, SavedResult) for one in both)
    if not differ and saved and len(sides[0].runs.keys() & sides[1].runs.keys()) < 2:
        return "fewer than two runs of the same seed and replication"
    return " and ".join(differ) or None


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


# --- Two sides of a comparison that are simulated, or were: made of what either face gave.

Comparable = Start | SimulateResult | SizeResult | ReplayResult | History


def given_in_python(where: str, it: Comparable) -> GivenSide:
    """A side as Python has it. Raises InputError for a text that is no side, and for a job that is none."""
    if isinstance(it, (str, os.PathLike)):
        return given_of(where, os.fspath(it), addresses=True)
    if isinstance(it, ReplayResult):
        it = it.history
    if isinstance(it, History):
        return GivenSide(where, it.source, "history", it)
    if isinstance(it, (SimulateResult, SizeResult)):
        return GivenSide(where, repr(it), "result", it.to_dict())
    return GivenSide(where, repr(it), "scenario", it if isinstance(it, BaseJob) else load(it))


def sides_of(asked: Compare, given: tuple[GivenSide, ...]) -> tuple[tuple[ToRun | SavedResult, ...], tuple[str, ...]]:
    """Both sides, and what is odd about them. given: one where both are made of it.

    Raises InputError with the problems of both.
    """
    found: list[ToRun | SavedResult] = []
    notes: list[str] = []
    problems: dict[str, tuple[Problem, ...]] = {"A": (), "B": ()}
    sides = zip("AB", (given[0], given[-1]), (asked.set_a or (), asked.set_b or ()), strict=True)
    for where, one, own in sides:
        label = asked.label(where) or ", ".join((one.text, *own))
        try:
            if one.what == "result":
                found.append(result_of(one.held, label, where))
                continue
            run = {"steps": asked.steps, "seed": asked.seed, "replications": asked.replications}
            flags = asked.job.flags() | run
            job = one.held if isinstance(one.held, BaseJob) else made(one.text, [*(asked.set_ or ()), *own], flags)
            found.append(ToRun(label, job.scenario, job.given))
            notes += [f"{where}: {note}" for note in job.notes]
        except InputError as error:
            problems[where] = error.problems
    if any(problems.values()):
        # what is wrong with both sides, then what is wrong with one of them, which is named
        wrong = [p for p in problems["A"] if p in problems["B"]]
        single = [(where, p) for where, of in problems.items() for p in of if p not in wrong]
        wrong += [p if p.path == where else replace(p, path=text("{}: {}", where, p.path)) for where, p in single]
        raise InputError(wrong)
    return tuple(found), tuple(notes)
