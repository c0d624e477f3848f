"""`simulate`: what can be asked of a job as it is, and what it came to: metrics, records, pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Self

from fleetsim.errors import InputError, Interrupted, Problem, StuckError
from fleetsim.faces import Text, flag, text
from fleetsim.job.fields import CountedJob, ready
from fleetsim.job.result import SILENT, Later, Watch
from fleetsim.job.settings import SIMULATED, AnyJob, Lends, Option, said
from fleetsim.records import replace
from fleetsim.simulate.result import HOUR_S, SimulateResult

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.base_job import Job
    from fleetsim.job.trials import Measure
    from fleetsim.search.alternative import Alternatives
    from fleetsim.sim.replications import Replicated


LEAST_SCRAPE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Where does each second of an optimizer step go?

    steps: of the run, as said beside the hours. hours: as many steps as fill them instead. scrape_interval_s: keep what
    a Prometheus would have seen of the first run, so often. activity: keep what each instance did in the first run,
    which the page draws. check_steps: hears how many steps there will be, before they are simulated, and may refuse.
    """

    job: Annotated[AnyJob, Lends(CountedJob)]
    steps: Annotated[int | None, said("steps", after="trainer_price")] = None
    hours: Annotated[
        float | None, Option("Instead: as many steps as fill so many hours.", SIMULATED, after="steps")
    ] = None
    scrape_interval_s: float | None = None
    activity: bool = False
    check_steps: Callable[[int], None] | None = None

    def ready(self) -> Self:
        """The same question with the job itself. Raises InputError with all that is wrong with its fields."""
        return replace(self, job=ready(self.job, steps=self.steps))

    def check(self) -> None:
        """Raises InputError for a length of the run that is no length or is said twice, and for a scrape interval."""
        seconds = self.scrape_interval_s
        if seconds is not None and not LEAST_SCRAPE_S <= seconds <= HOUR_S:
            name = Text("--scrape-interval", "scrape_interval_s")
            raise InputError([Problem(name, seconds, "must be 1 to 3600 seconds", "Prometheus's own is 15")])
        if self.hours is None:
            return
        if self.steps is not None:
            rule = text("{} is given as well", flag("steps", self.steps))
            raise InputError([Problem(flag("hours"), self.hours, rule, "give one of the two")])
        if not 0 < self.hours <= 24 * 366:
            limits = "must be above 0, and a year at most"
            raise InputError([Problem(flag("hours"), self.hours, limits, "for example 6")])

    def scenario(self) -> Scenario:
        """What is simulated: the job's scenario, with as many steps as fill the hours."""
        asked = ready(self.job, steps=self.steps).scenario
        if self.hours is None:
            return asked
        from fleetsim.config.load import with_changes
        from fleetsim.sim.run import steps_for

        return with_changes(asked, {"run.steps": steps_for(asked, self.hours * HOUR_S)})


def simulate(asked: Simulate, watch: Watch = SILENT) -> SimulateResult:
    """Runs the job's replications.

    Raises InputError for what cannot be simulated, StuckError where its limits block each other, and on Ctrl-C
    Interrupted with the SimulateResult of what was finished by then, None before the first step.
    """
    from fleetsim.config.scenario import most_steps
    from fleetsim.sim.replications import replicate

    asked = asked.ready()
    asked.check()
    watch.loaded()
    job, scenario = ready(asked.job), asked.scenario()
    if asked.check_steps is not None:
        asked.check_steps(most_steps(scenario))
    try:
        result = replicate(
            scenario,
            progress=watch.replications,
            scrape_every_s=asked.scrape_interval_s,
            activity=asked.activity,
            on_step=_telling(watch, scenario) if watch.counts else None,
        )
    except Interrupted as cut:
        known = None if cut.known is None else _answer(job, cut.known, steady=not _is_warming(cut.known))
        raise Interrupted(known, cut.missing) from None
    return _answer(job, result)


def _answer(job: Job, result: Replicated, steady: bool = True) -> SimulateResult:
    from fleetsim.job.caveats import backlog_warnings, range_warnings
    from fleetsim.job.engine_source import engine_source
    from fleetsim.job.metrics import Metrics
    from fleetsim.job.trials import flat, remembered, simulated
    from fleetsim.simulate.run_view import early_events, warmups_of

    scenario = result.scenario
    source = engine_source(scenario, scenario.fleet.instances, result.runs)
    metrics = flat(result.metrics)
    binding = str(metrics.pop("binding"))
    early, backlog = early_events(scenario, warmups_of(result.runs)), backlog_warnings(scenario, metrics)
    warnings = (*job.notes, *backlog, *early, *range_warnings(source))
    others = Later(partial(alternatives_here, scenario, remembered(simulated), job.given))
    return SimulateResult(job, scenario, Metrics(metrics), binding, source, warnings, result, others, steady)


def _is_warming(cut: Replicated) -> bool:
    """Whether a run that was cut short has nothing but its warm-up."""
    from fleetsim.sim.window import least_warmup_steps

    steps = max(len(run.steps) for run in cut.runs)
    return any(run.cut for run in cut.runs) and steps <= least_warmup_steps(cut.scenario)


def _telling(watch: Watch, scenario: Scenario) -> Callable[[Mapping[int, tuple[int, float]]], None]:
    """Tells the steps that are done over all replications, and the step time so far; called from their threads."""
    from fleetsim.config.scenario import most_steps

    of = most_steps(scenario) * scenario.run.replications

    def told(reached: Mapping[int, tuple[int, float]]) -> None:
        if watch.due():
            watch("simulating, steps")
            watch.at(sum(steps for steps, _ in reached.values()), of, lambda: _step_so_far(reached))

    return told


def _step_so_far(reached: Mapping[int, tuple[int, float]]) -> str:
    """The mean step so far, warm-up included, with its interval over the replications."""
    from fleetsim.estimates import estimate
    from fleetsim.tell.terminal import with_interval

    means = [now_s / steps for steps, now_s in list(reached.values()) if steps]
    return f"step {with_interval(estimate(means), 'seconds').plain} so far" if means else ""


# Long runs of what decides, at most: a job may ask for thousands.
_MOST = 5


def alternatives_here(scenario: Scenario, measure: Measure, given: Collection[str]) -> Alternatives | None:
    """The levers of a job as it is, and its count as one of them; None where it gets stuck without its events.

    measure should remember runs. given: as in levers_of. Events of the scenario are left out, and runs are as long
    as they must be to be steady.
    """
    from fleetsim.config.load import with_changes
    from fleetsim.job.trainer_scaling import next_count
    from fleetsim.job.trials import Trials, one_more, with_instances
    from fleetsim.search.moves import alternatives_of

    job = with_changes(scenario, {"run.events": [], "run.warmup_steps": None, "run.steps": None})
    n, runs = job.fleet.instances, min(_MOST, job.run.replications)
    try:
        now = Trials(job, measure).at(n, runs)
    except StuckError:
        return None
    if now.stuck is not None:
        return None
    grown = with_instances(job, next_count(job, n))
    return alternatives_of(job, grown, 1, measure, now=now, more=one_more(job), given=given, own_count=True)
