"""`forecast`: what can be asked of a whole run, and what it came to: hours, GPU-hours, dollars, tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag
from fleetsim.forecast.totals import WholeRun
from fleetsim.job.fields import CountedJob, ready
from fleetsim.job.result import SILENT, Gated, Watch, unchanging
from fleetsim.job.settings import SIMULATED, AnyJob, Lends, Option
from fleetsim.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleetsim.config.scenario import Scenario
    from fleetsim.forecast.schedule import RunCourse, Schedule
    from fleetsim.job.base_job import Job
    from fleetsim.job.trials import Measure
    from fleetsim.tell.document import Document

# What --fail-if can name.
NUMBERS = ("hours", "gpu_hours", "usd", "trained_tokens", "generated_tokens", "trained_samples")
MOST_STEPS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ForecastJob(CountedJob):
    """The job whose run is forecast."""

    to_do = "forecast"


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What will the whole run take?"""

    job: Annotated[AnyJob, Lends(ForecastJob)]
    steps: Annotated[
        int | None, Option("Optimizer steps of the whole run (run.steps).", SIMULATED, after="trainer_price")
    ] = None
    schedule: Annotated[
        list[str] | None,
        Option(
            "What changes: len=0:1500,500:4000 (or max_len, batch, filter, turns, instances), or a CSV. Repeatable.",
            SIMULATED,
            metavar="NAME=STEP:VALUE,...",
            after="steps",
        ),
    ] = None
    resize: Annotated[bool, Option("Which counts from which step on.", SIMULATED, after="schedule")] = False
    rule: Annotated[
        str | None,
        Option(
            "With --resize, the rule that is followed: up_after, down_after, down_share, cool_down, every, window (as "
            "watch has them).",
            SIMULATED,
            metavar="NAME=NUMBER,...",
            after="resize",
        ),
    ] = None
    backtest: Annotated[
        float | None,
        Option("With --run LOG: the rest of that run from this share of it, e.g. 0.2.", SIMULATED, after="rule"),
    ] = None

    def ready(self) -> Self:
        """The same question with the job itself. Raises as `checked`."""
        asked = replace(self, job=ready(self.job))
        asked.checked()
        return asked

    def checked(self) -> tuple[Job, int, Schedule]:
        """The job, its steps, and what changes. Raises InputError, OutsideError for a CSV that cannot be read."""
        from fleetsim.forecast.resizing_plan import rule_of
        from fleetsim.forecast.schedule import schedule_of

        job = ready(self.job)
        if self.rule is not None and not self.resize:
            raise InputError([Problem(flag("rule"), self.rule, "resizes the fleet", f"say {flag('resize')}, too")])
        rule_of(self.rule)
        if self.backtest is not None and not 0 < self.backtest < 1:
            rule = "must be between 0 and 1: a share of the log's steps"
            raise InputError([Problem(flag("backtest"), self.backtest, rule, "for example 0.2")])
        steps = job.scenario.run.steps if self.steps is None else self.steps
        if steps is None or not 1 <= steps <= MOST_STEPS:
            rule = "nobody said how many steps the run has" if steps is None else f"must be 1 to {MOST_STEPS:,}"
            raise InputError([Problem(flag("steps"), steps, rule, "for example 2000")])
        return job, steps, schedule_of(self.schedule or ())


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ForecastResult(WholeRun, Gated):
    """A whole run, as it is read in a terminal, on a page and as JSON."""

    def __repr__(self) -> str:
        t = self.totals
        return f"<ForecastResult: {self.course.steps:,} steps in {t.hours:,.1f} h, {units.money(t.usd)}>"

    @property
    def hours(self) -> float:
        """Of the whole run."""
        return self.totals.hours

    @property
    def usd(self) -> float:
        """Of the whole run, US dollars."""
        return self.totals.usd

    def numbers(self) -> dict[str, float]:
        """What --fail-if can ask."""
        return {name: float(getattr(self.totals, name)) for name in NUMBERS}

    def told(self) -> Document:
        """What there is to say of it."""
        from fleetsim.forecast.facts import document

        return document(self)

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.forecast.facts import forecast_document

        return forecast_document(self)


def forecast(asked: Forecast, watch: Watch = SILENT) -> ForecastResult:
    """The whole run of a job, in a few long runs.

    Raises InputError for what cannot be simulated, StuckError where its limits block each other.
    """
    from fleetsim.forecast.recovery import interval_of, recovery_of
    from fleetsim.forecast.resizing_plan import resize_plan, rule_of
    from fleetsim.forecast.totals import backtest_of, totals_of, trend_of
    from fleetsim.job.engine_source import engine_source
    from fleetsim.job.grounds import range_warnings
    from fleetsim.job.trials import remembered, simulated
    from fleetsim.search.ranges import known_of, ranges_of

    asked = asked.ready()
    job, steps, schedule = asked.checked()
    watch.loaded()
    measure = remembered(simulated)
    if job._heard is not None and job._heard.history.steps is not None and "len" not in schedule.columns:
        schedule = schedule.beside(trend_of(job._heard.history.steps, steps))
    warnings = (*job.notes, *left_out(job.scenario, schedule))
    schedule = schedule.beside(own_schedule(job, steps))
    course = _course(job, schedule, steps, measure, watch)
    middle = course.middle()
    ranges = ranges_of(known_of(middle.scenario, job.given, middle.metrics, measure))
    recovery = recovery_of(middle.scenario)
    interval = None
    if recovery is not None:
        watch("failing and beginning again")
        calm = course.metric("step_s") * (1.0 - course.metric("checkpoint_fraction"))
        interval = interval_of(recovery, calm, middle.scenario.trainer.checkpoint.every_steps, job.scenario.run.seed)
    source = engine_source(middle.scenario, middle.scenario.fleet.instances)
    return ForecastResult(
        job, job.scenario, schedule, course, totals_of(course, ranges, interval), ranges, source,
        (*warnings, *range_warnings(source)), interval,
        resize_plan(course, measure, watch, rule_of(asked.rule)) if asked.resize else None,
        None if asked.backtest is None
        else backtest_of(job, asked.backtest, partial(_course, measure=measure, watch=watch)),
    )  # fmt: skip


def _course(job: Job, schedule: Schedule, steps: int, measure: Measure, watch: Watch) -> RunCourse:
    from fleetsim.forecast.schedule import course_of

    schedule = schedule.beside(own_schedule(job, steps))
    return course_of(scene_of(job, schedule.at(0)), schedule, steps, job.scenario.run.replications, measure, watch)


def scene_of(job: Job, first: Mapping[str, Any] | None = None) -> Callable[[Mapping[str, Any]], Scenario]:
    """The scenario of a step's scheduled values: the job as if they had been said by its flags.

    first: the values at which somebody measured the trainer's seconds, if so; None = the job's own.
    """
    from fleetsim.config.workload import ConstantTokens, Gamma, Lognormal
    from fleetsim.forecast.schedule import SCHEDULED
    from fleetsim.job.trainer_scaling import followed
    from fleetsim.workload.lengths import mean_length, scaled_law

    steady = {"run.events": [], "run.steps": None, "run.warmup_steps": None, "workload.length_drift_per_step": 0.0}
    law = job.scenario.workload.output_tokens
    by_flag = isinstance(law, Lognormal | Gamma)

    def said(values: Mapping[str, Any]) -> Scenario:
        changes: dict[str, Any] = dict(steady)
        options: dict[str, Any] = {}
        for name, value in values.items():
            what = SCHEDULED[name]
            if name == "len" and isinstance(law, ConstantTokens):
                options["len"] = float(round(value))
            elif name == "len" and not by_flag:
                factor = value / mean_length(law, at_least=1.0)
                changes["workload.output_tokens"] = scaled_law(law, factor).model_dump(exclude_none=True)
            elif what.option:
                options[what.option] = value
            else:
                changes[what.path] = value
        if "len" in options and "max_len" not in options and not isinstance(law, ConstantTokens):
            options["max_len"] = getattr(law, "max", None)
        return job.with_(changes, **options).scenario

    measured = said(first or {})
    return lambda values: followed(said(values), measured)


def own_schedule(job: Job, steps: int) -> Schedule:
    """What the scenario itself says of later steps: lengths that drift, and events that resize the fleet."""
    from fleetsim.forecast.schedule import Points, Schedule, drifting
    from fleetsim.workload.lengths import mean_length

    w, columns = job.scenario.workload, dict[str, Points]()
    if w.length_drift_per_step:
        columns["len"] = drifting(
            lambda scale: mean_length(w.output_tokens, scale=scale, at_least=1.0), w.length_drift_per_step, steps
        )
    counts = tuple((e.step, float(e.instances)) for e in job.scenario.run.events if e.instances is not None)
    if counts:
        columns["instances"] = tuple(sorted(dict(counts).items()))  # of two at one step the last counts
    return Schedule(columns, dict.fromkeys(columns, "the scenario"))


def left_out(scenario: Scenario, schedule: Schedule) -> tuple[str, ...]:
    """What a forecast does not follow: other events, and seconds of a trainer that nobody said per token."""
    from fleetsim.job.assumptions import is_estimated
    from fleetsim.job.trainer_scaling import follows_model

    found = []
    names = {k for e in scenario.run.events for k in e.model_dump(exclude_none=True)} - {"step", "instances"}
    if names:
        found.append(f"run.events: {', '.join(sorted(names))} are not in a forecast; --schedule says what changes")
    t, moves = scenario.trainer, [name for name in ("len", "batch", "turns") if name in schedule.columns]
    if not moves or is_estimated(scenario):
        return tuple(found)
    if follows_model(scenario):
        found.append(
            f"the trainer's {t.fixed_s:g} s are those of the first step; with {' and '.join(moves)} they change as the "
            "trainer's model says"
        )
    elif t.fixed_s and not t.per_token_s:
        found.append(
            f"the trainer's {t.fixed_s:g} s a step stay as they are, whatever {' and '.join(moves)} may be; "
            "give --set trainer.per_token_s=SECONDS instead, or leave them to the model"
        )
    return tuple(found)
