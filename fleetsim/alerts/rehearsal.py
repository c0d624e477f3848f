"""The simulated runs behind the thresholds: the plan as it should go, and the same plan with each fault.

Healthy fleets that a plan may turn out to be: its inputs as far off as they are in doubt.

An alert is for what is no longer the plan, and not for what the plan did not know. The seconds of one run differ from
those of its repetition (`RERUN`), so that even measured ones are in some doubt. What nobody measured or gave at all has
no alert of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.random import Generator

from fleetsim.alerts.faults import (
    FAULTS,
    HEALTHY,
    Engine,
    Fault,
    Onset,
    cut,
    join,
    run_with_event,
    scraped_run,
    steady_run,
)
from fleetsim.alerts.signal_values import Expected, Floats, Scraped
from fleetsim.config.load import with_changes
from fleetsim.config.pools import PhaseConfig, TrainerConfig
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_touched
from fleetsim.config.workload import Lognormal
from fleetsim.faces import setting
from fleetsim.job.settings import LENGTHS
from fleetsim.job.uncertainty import RERUN, UNCERTAIN, Axis, FactorLaw, observed_at
from fleetsim.sim.engines import engine_of
from fleetsim.sim.run import simulate
from fleetsim.sim.threads import side_by_side
from fleetsim.workload.lengths import mean_length

# Healthy fleets that are simulated beside the plan's own.
FLEETS, SEED = 14, 20
# What eight of ten public measurements are off from a speed that nothing has confirmed.
GUESSED = FactorLaw("guess", 0.8, 1.55, "public measurements")
# Signal -> the input that its level is, by its axis.
_IS = {"trainer_pace": "trainer", "sync_seconds": "sync"}
_TIMES = {u.axis: u.times for u in reversed(UNCERTAIN)}


class Doubt(Struct, frozen=True):
    """fleets: healthy ones, first the plan's own. inputs: what is in doubt but for the differences between two runs.
    unmeasured: signal -> why nothing says what its level is."""

    fleets: tuple[Scenario, ...] = ()
    inputs: tuple[str, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)


def doubt_of(scenario: Scenario, given: Collection[str] | None, known: bool | None) -> Doubt:
    """given: paths that somebody measured or gave, None = all. known: whether the speed that the engines are given is
    confirmed, None = it is the scenario's own."""
    laws = _laws(scenario, given, known)
    # of each law's deviates one lies in each FLEETS-th part (a Latin hypercube), in an order of their own
    parts = [NormalDist().inv_cdf((k + 0.5) / FLEETS) for k in range(FLEETS)]
    random = np.random.default_rng(SEED)
    deviates = zip(*(random.permutation(parts) for _ in laws), strict=True)
    fleets = (scenario, *(_with(scenario, laws, each) for each in deviates))
    inputs = tuple(what for what, *_ in laws if what)
    return Doubt(fleets, inputs, {} if given is None else dict(_unmeasured(scenario, given)))


# What is in doubt, which input it multiplies, and by how much.
Law = tuple[str, Axis, FactorLaw]


def _laws(scenario: Scenario, given: Collection[str] | None, known: bool | None) -> list[Law]:
    """Lengths that were counted one by one have no spread that could be wider."""
    rerun = FactorLaw("rerun", 1.0 / (1.0 + RERUN), 1.0 + RERUN, "runs and their repetitions")
    axes: tuple[Axis, ...] = ("engine", "trainer", "sync")
    found: list[Law] = [("", axis, rerun) for axis in axes]
    for uncertain in UNCERTAIN:
        law = None if given is None else uncertain.law(scenario, given)
        counted = uncertain.axis == "lengths" and not isinstance(scenario.workload.output_tokens, Lognormal)
        if law is not None and not counted and (known is None or uncertain.axis != "engine"):
            found.append((uncertain.what, uncertain.axis, law))
    if known is False:
        found.append(("the engines' speed, which no back-test confirms", "engine", GUESSED))
    return found


def drawn(scenario: Scenario, given: Collection[str] | None, random: Generator) -> Scenario:
    """A healthy fleet that the plan may turn out to be: a joint draw of all that is in doubt."""
    laws = _laws(scenario, given, None)
    return _with(scenario, laws, random.normal(size=len(laws)))


def _with(scenario: Scenario, laws: Sequence[Law], deviates: Sequence[float] | Floats) -> Scenario:
    factors: dict[Axis, float] = {}
    for (_, axis, law), z in zip(laws, deviates, strict=True):
        factors[axis] = factors.get(axis, 1.0) * float(law.factors(z))
    changes: dict[str, Any] = {}
    for axis, factor in factors.items():
        changes |= _TIMES[axis](scenario, factor)
    return with_changes(scenario, changes)


def _unmeasured(scenario: Scenario, given: Collection[str]) -> Iterator[tuple[str, str]]:
    for signal, axis in _IS.items():
        uncertain = next(u for u in UNCERTAIN if u.axis == axis)
        law = uncertain.law(scenario, given)
        if law is not None and observed_at(scenario, *uncertain.seen_at) is None:
            remedy = f"settled by {uncertain.settled_by(scenario)}"
            yield signal, f"nobody measured or gave the {uncertain.what} ({law.source}); {remedy}"
    if not is_touched("fleet.instances", given):
        yield "instances", f"nobody gave the number of instances; give {setting('fleet.instances', 'N')}"
    spread = f"{LENGTHS}.cv"
    if not is_touched(LENGTHS, [p for p in given if p != spread]) and observed_at(scenario, LENGTHS) is None:
        yield "output_length", "nobody measured or gave the output lengths; give --len, or --len-from FILE"


WEEK_H = 168.0
# Samples that the healthy and the faulty runs may take; a fleet that makes more of them is watched for a shorter time.
HEALTHY_SAMPLES, FAULTY_SAMPLES = 2_500_000, 2_500_000
# And optimizer steps: those of a small job are short, and many.
HEALTHY_STEPS, FAULTY_STEPS = 20_000, 20_000
# Of these, what the fleets that the plan may turn out to be share.
OTHERS = 0.5
# Windows are these multiples of a base: five minutes, or four optimizer steps where those are longer.
MULTIPLES = (1, 2, 3, 6, 12)
# At most so many healthy runs, of so many hours at least.
HEALTHY_RUNS, RUN_H = 4, 4.0
PILOT_STEPS, STEPS_PER_WINDOW, CYCLES_PER_WINDOW = 24, 4, 2
# Steps after which a run has left its empty beginning behind.
SETTLED_STEPS = 20
# A run of a fault has so many of the longest windows: before it, and after.
SPAN_WINDOWS = 3.4
# A fault that runs away is watched for so many of the shortest windows.
RUNAWAY_WINDOWS = 3

Tell = Callable[[str], None]


class Rehearsal(Struct, frozen=True):
    """What was simulated.

    expected: what the plan says. scrape_s, interval_s: between two scrapes, and two evaluations of the rules. step_s:
    mean optimizer step. windows_s: candidates, ascending. healthy: runs without a fault; onsets: fault -> runs in which
    it begins, none where the plan cannot have it. other: healthy runs of fleets that the plan may turn out to be, first
    of its own, with the same requests; doubt: of what it is not sure.
    """

    scenario: Scenario
    expected: Expected
    scrape_s: float
    interval_s: float
    step_s: float
    windows_s: tuple[float, ...]
    healthy: tuple[Scraped, ...]
    onsets: Mapping[str, tuple[Onset, ...]]
    other: tuple[Scraped, ...] = ()
    doubt: Doubt = field(default_factory=Doubt)

    @property
    def hours(self) -> float:
        """Healthy hours, the first window of each run left out."""
        return sum(run.hours - self.windows_s[-1] / 3600.0 for run in self.healthy)

    @property
    def slowest_cycle_s(self) -> float:
        """Seconds after which the slowest healthy fleet repeats itself."""
        steps = [(run.hours * 3600.0, float(np.ptp(run.trainer["trainer.steps"]))) for run in self.other]
        slowest_s = max(self.step_s, *(seconds / max(count, 1.0) for seconds, count in steps), 0.0)
        return cycle_of(self.scenario) * slowest_s


def cycle_of(scenario: Scenario) -> int:
    """Steps after which a run repeats itself: one; of tail batching a long round, and the short ones that fill it with
    the prompts that they put off."""
    more = scenario.buffer.oversampling - 1.0
    return 1 + math.ceil(1.0 / more) if scenario.buffer.leftover == "defer" and more > 0.0 else 1


def rehearse(
    scenario: Scenario,
    engine: Engine | None = None,
    *,
    hours: float | None = None,
    replications: int = 3,
    scrape_s: float = 15.0,
    interval_s: float = 30.0,
    given: Collection[str] | None = None,
    held: bool | None = None,
    tell: Tell = lambda _: None,
) -> Rehearsal:
    """Simulates the plan for so many healthy hours, and each fault `replications` times.

    engine: speed and limits of an instance, None = the scenario's. hours: None = a week, or less where that is more
    than half of HEALTHY_SAMPLES samples or HEALTHY_STEPS. given, held: as `doubt_of` takes them. Events of the
    scenario's own run are left out. Raises what `simulate` raises.
    """
    scenario = with_changes(scenario, {"run.events": [], "run.warmup_steps": None})
    engine = engine_of(scenario) if engine is None else engine
    pilot = simulate(with_changes(scenario, {"run.steps": PILOT_STEPS}), engine=engine)
    half = pilot.steps[PILOT_STEPS // 2 :]
    step_s = float(half["end_s"][-1] - half["start_s"][0]) / len(half)
    per_hour = 3600.0 / step_s * scenario.trainer.batch_samples
    window_steps = max(STEPS_PER_WINDOW, CYCLES_PER_WINDOW * cycle_of(scenario))
    base_s = 300.0 * math.ceil(max(1.0, window_steps * step_s / 300.0))
    replications, multiples = _bounded(replications, base_s / step_s, scenario.trainer.batch_samples)
    windows_s = tuple(m * base_s for m in multiples)
    end_s = 2.0 * windows_s[-1]
    settled_s = SETTLED_STEPS * step_s
    healthy_h = min(HEALTHY_SAMPLES / per_hour, HEALTHY_STEPS * step_s / 3600.0)
    if hours is None:
        fits = (1.0 - OTHERS) * healthy_h
        hours = min(WEEK_H, max(fits, 4.0 * windows_s[-1] / 3600.0))
    runs = max(1, min(HEALTHY_RUNS, int(hours / RUN_H)))
    each_s = hours * 3600.0 / runs + windows_s[-1]
    long = with_changes(scenario, {"run.steps": math.ceil((each_s + settled_s) / step_s)})
    tell(f"simulating {hours:,.0f} healthy hours")
    healthy = tuple(side_by_side(lambda r: scraped_run(long, r, scrape_s, settled_s, engine, whole=True), range(runs)))
    peak = max(float(np.nanmax(run.engines["kv_use"])) for run in healthy)
    before = SETTLED_STEPS + math.ceil(1.2 * windows_s[-1] / step_s)
    after = math.ceil(1.1 * end_s / step_s)
    tell(f"simulating {len(FAULTS)} faults, {replications} times each")

    def faulty(task: tuple[Fault, int]) -> Onset | None:
        fault, r = task
        if fault.events is not None:
            # another step each time, so that faults begin anywhere between two scrapes and evaluations
            run = with_changes(scenario, {"run.steps": before + r + after})
            onset = run_with_event(run, fault, HEALTHY_RUNS + r, scrape_s, before + r, engine)
            return Onset(cut(onset.scraped, settled_s, onset.onset_s + end_s), onset.onset_s)
        watched_s = min(end_s, RUNAWAY_WINDOWS * windows_s[0]) if fault.runs_away else end_s
        run = with_changes(scenario, {"run.steps": SETTLED_STEPS + math.ceil(1.1 * watched_s / step_s)})
        steady = steady_run(run, fault, HEALTHY_RUNS + r, scrape_s, SETTLED_STEPS, watched_s, peak, engine)
        if steady is None:
            return None
        # some part of a healthy run, another one for each number
        before_s, times = 1.2 * windows_s[-1], healthy[r % runs].times
        start = float(times[0]) + max(0.0, float(times[-1] - times[0]) - before_s) * ((r * 0.618) % 1.0)
        return join(cut(healthy[r % runs], start, start + before_s), steady)

    tasks = [(fault, r) for fault in FAULTS for r in range(replications)]
    found = side_by_side(faulty, tasks)
    onsets = {
        fault.name: tuple(o for (f, _), o in zip(tasks, found, strict=True) if f is fault and o is not None)
        for fault in FAULTS
    }
    doubt = doubt_of(scenario, given, held)
    tell(f"simulating {len(doubt.fleets)} healthy fleets that the plan may turn out to be")

    other_s = max(end_s, min(hours, OTHERS * healthy_h) / len(doubt.fleets) * 3600.0)

    def other(fleet: Scenario) -> Scraped | None:
        run = with_changes(fleet, {"run.steps": SETTLED_STEPS + math.ceil(1.1 * other_s / step_s)})
        return steady_run(run, HEALTHY, HEALTHY_RUNS, scrape_s, SETTLED_STEPS, other_s, peak, engine, end_s)

    others = tuple(run for run in side_by_side(other, doubt.fleets) if run is not None)
    expected = expected_of(scenario)
    return Rehearsal(scenario, expected, scrape_s, interval_s, step_s, windows_s, healthy, onsets, others, doubt)


def _bounded(replications: int, steps: float, batch: int) -> tuple[int, list[int]]:
    """How often each fault is simulated, and the windows as multiples of the shortest, so that all of it ends.

    steps: in the shortest window. Fewer repetitions before windows of less than the shortest two."""

    def fits(multiple: int, times: int) -> bool:
        watched = len(FAULTS) * times * multiple * steps
        each = len(FAULTS) * times * SETTLED_STEPS
        return SPAN_WINDOWS * watched + each <= FAULTY_STEPS and (
            multiple <= 2 or 4.0 * watched * batch <= FAULTY_SAMPLES
        )

    while replications > 1 and not fits(1, replications):
        replications -= 1
    return replications, [m for m in MULTIPLES if m == 1 or fits(m, replications)]


def expected_of(scenario: Scenario) -> Expected:
    """What the plan says of the trainer's seconds and of the fleet."""
    parts: list[TrainerConfig | PhaseConfig] = [scenario.trainer, *scenario.trainer.phases]
    return Expected(
        instances=scenario.fleet.instances,
        step_s=sum(p.fixed_s for p in parts),
        token_s=sum(p.per_token_s for p in parts),
        prompt_tokens=mean_length(scenario.workload.prompt_tokens),
    )
