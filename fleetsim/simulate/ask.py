"""`simulate`: what can be asked of a job as it is, and what it came to: metrics, records, pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from fleetsim import units
from fleetsim.errors import InputError, Interrupted, Problem, StuckError
from fleetsim.faces import Text, flag, keywords, text
from fleetsim.job.fields import CountedJob, ready
from fleetsim.job.result import SILENT, Briefed, Later, Watch, unchanging
from fleetsim.job.settings import SIMULATED, AnyJob, Lends, Option, said
from fleetsim.records import replace

if TYPE_CHECKING:
    import pandas as pd

    from fleetsim.config.scenario import Scenario
    from fleetsim.job.base_job import Job
    from fleetsim.job.engine_source import EngineSource
    from fleetsim.job.input_moves import MetricRanges
    from fleetsim.job.metrics import Metrics
    from fleetsim.job.trials import Measure
    from fleetsim.search.alternative import Alternatives
    from fleetsim.sim.records import Records
    from fleetsim.sim.replications import Replicated
    from fleetsim.simulate.run_view import RunView
    from fleetsim.tell.document import Document


HOUR_S = 3600.0


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulateResult(Briefed):
    """A job over its replications.

    job: as it was run. metrics: name -> Estimate over the replications. binding: what held the job up most often.
    runs: the records of each replication. profile: what the engine's speed rests on. warnings: as on stderr.
    steady: False where Ctrl-C came in the warm-up, so that no metric says anything yet.
    """

    _index: ClassVar[str | None] = "replication"
    job: Job
    scenario: Scenario
    metrics: Metrics
    binding: str
    profile: EngineSource
    warnings: tuple[str, ...]
    _replicated: Replicated = field(repr=False)
    _alternatives: Later[Alternatives | None] = field(repr=False)
    steady: bool = True

    def __repr__(self) -> str:
        m = self.mean
        return (
            f"<SimulateResult {self.scenario.name!r}: step {m['step_s']:.4g} s, trainer idle "
            f"{units.share(m['trainer_idle_fraction'])}, bound by {self.binding}, "
            f"{units.plural(len(self.runs), 'replication')}>"
        )

    @property
    def mean(self) -> dict[str, float]:
        """Metric name -> mean over the replications."""
        return self.metrics.mean

    def numbers(self) -> dict[str, float]:
        """What --fail-if can ask: the means."""
        return self.mean

    @property
    def runs(self) -> tuple[Records, ...]:
        """The records of each replication, numpy tables."""
        return self._replicated.runs

    def rows(self) -> list[dict[str, Any]]:
        """The replications, as under -o csv."""
        from fleetsim.job.trials import flat

        return [
            {"replication": run.replication, **flat(values)}
            for run, values in zip(self.runs, self._replicated.values, strict=True)
        ]

    def table(self, name: str = "steps") -> pd.DataFrame:
        """What happened, a row a happening, over all replications: steps, samples, groups, syncs or failures.

        Columns as in fleetsim/sim/records.py: seconds and tokens. Raises InputError for another name. Needs pandas.
        """
        from fleetsim.job.metrics import records_frame

        return records_frame(self.runs, name)

    def to_openmetrics(self, path: str | os.PathLike[str], *, end_s: float | None = None) -> Path:
        """Writes the first run as vLLM and a trainer would have exported it: a history that `replay` reads.

        end_s: unix seconds of its end, this hour's begin if None. The run must have been scraped (`scrape_interval_s`
        of `simulate`). An existing file is replaced. Raises InputError, OutsideError.
        """
        from fleetsim.export.openmetrics import write_history

        first = self.runs[0]
        if not len(first.scrapes):
            raise InputError(
                [Problem("to_openmetrics", str(path), "the run was not scraped", "simulate(scrape_interval_s=15)")]
            )
        place = Path(path)
        write_history(first, place, end_s)
        return place

    @keywords()
    def to_perfetto(self, path: str | os.PathLike[str], steps: str | None = None) -> Path:
        """Writes the first run as a trace for ui.perfetto.dev and chrome://tracing; one that ends in .gz is compressed.

        steps: "20" (after warm-up), "0:9" or "all"; 20 if None. The run is simulated once more, to record it. An
        existing file is replaced. Raises InputError for steps that the run does not have, OutsideError.
        """
        from fleetsim.export.perfetto import write_trace
        from fleetsim.export.perfetto.tracks import parse_steps

        place = Path(path)
        write_trace(self.runs[0], place, parse_steps(steps))
        return place

    def to_parquet(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Writes the records of all runs, a file a table, as `simulate --parquet`: steps.parquet, samples.parquet, ...

        The folder is made if need be; files of these names are replaced. Returns them. Raises OutsideError without
        pyarrow, or where the folder cannot be written to.
        """
        from fleetsim.export.parquet import check_folder, write_parquet

        return tuple(write_parquet(check_folder(os.fspath(folder), "to_parquet"), self.runs))

    def _ranges(self) -> MetricRanges | None:
        """How far the metrics may be off, looked at in a few short runs without the events of the scenario."""
        from fleetsim.config.load import with_changes
        from fleetsim.job.trials import remembered, simulated
        from fleetsim.search.ranges import known_of, ranges_of

        plain = with_changes(self.scenario, {"run.events": [], "run.warmup_steps": None})
        return ranges_of(known_of(plain, self.job.given, self.metrics, remembered(simulated)))

    @property
    def alternatives(self) -> Alternatives | None:
        """What another count and every lever would do, without the events of the scenario; None where it gets stuck."""
        return self._alternatives()

    @property
    def advice(self) -> list[dict[str, Any]]:
        """The moves, what saves most first, and the job as it is: what, the command that simulates it, its promise."""
        from fleetsim.search.reasons import Advised, advice_data, moves_advised

        found = moves_advised(self.alternatives)
        return advice_data(self.job, [*found, Advised("the job as it is", self.scenario, self.metrics)])

    def _shown(self, first: Records) -> RunView:
        """What is told of it. first: the records of the first replication."""
        from fleetsim.job.assumptions import run_assumptions
        from fleetsim.simulate.run_view import RunView, trained_staleness, warmups_of

        view = RunView(
            self.scenario, self.metrics, self.binding, len(self.runs), first.steps, trained_staleness(first),
            self.profile, warmups_of(self.runs), run_assumptions(self.scenario, self.job.given),
            self._ranges() if self.steady else None,
        )  # fmt: skip
        if not self.steady or (others := self.alternatives) is None:
            return view
        change, allow = others.change(counted=True), others.allow(counted=True)
        return replace(view, change=change, allow=allow, enough=others.enough, on_demand=others.beside_on_demand)

    def told(self) -> Document:
        """What there is to say of it; of a run that was cut off in its warm-up no metric."""
        from fleetsim.simulate.facts import document, warm_up

        shown = self._shown(self.runs[0])
        return document(shown) if self.steady else warm_up(shown)

    def page(self, watch: Watch = SILENT) -> str:
        """The page of --html; the first run is simulated again unless its activity was kept."""
        from fleetsim.sim.run import simulate as run_of
        from fleetsim.simulate.facts import document
        from fleetsim.tell.page import document_page

        first = self.runs[0]
        if not len(first.activity):
            first = run_of(self.scenario, replication=first.replication, activity=True)
        return document_page(document(self._shown(first), self.warnings, first))

    def document(self) -> dict[str, Any]:
        """The document of --json; of a run that was cut off in its warm-up without metrics."""
        from fleetsim.job.trials import flat
        from fleetsim.simulate.facts import simulate_document

        about = self.scenario, len(self.runs), self.profile, self.warnings
        if not self.steady:
            return simulate_document(*about)
        values = [flat(run) for run in self._replicated.values]
        return simulate_document(*about, self._replicated.metrics, values, self._shown(self.runs[0]), self.advice)

    def noting(self, note: str) -> SimulateResult:
        """The same result with one warning more, after what is odd about the job itself."""
        n = len(self.job.notes)
        return replace(self, warnings=(*self.warnings[:n], note, *self.warnings[n:]))


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
        if cut.known is None:
            raise
        from fleetsim.sim.window import least_warmup_steps

        runs = cut.known.runs
        steps = max(len(run.steps) for run in runs)
        warming = any(run.cut for run in runs) and steps <= least_warmup_steps(cut.known.scenario)
        raise Interrupted(_answer(job, cut.known, steady=not warming), cut.missing) from None
    return _answer(job, result)


def _answer(job: Job, result: Replicated, steady: bool = True) -> SimulateResult:
    from fleetsim.job.engine_source import engine_source
    from fleetsim.job.grounds import backlog_warnings, range_warnings
    from fleetsim.job.metrics import Metrics
    from fleetsim.job.trials import flat, remembered, simulated
    from fleetsim.simulate.run_view import early_events, unsettled, warmups_of

    scenario = result.scenario
    source = engine_source(scenario, scenario.fleet.instances, result.runs)
    metrics = flat(result.metrics)
    binding = str(metrics.pop("binding"))
    early, backlog = early_events(scenario, warmups_of(result.runs)), backlog_warnings(scenario, metrics)
    warnings = (*job.notes, *backlog, *early, *unsettled(result.runs), *range_warnings(source))
    others = Later(partial(alternatives_here, scenario, remembered(simulated), job.given))
    return SimulateResult(job, scenario, Metrics(metrics), binding, source, warnings, result, others, steady)


def _telling(watch: Watch, scenario: Scenario) -> Callable[[Mapping[int, tuple[int, float]]], None]:
    """Tells the steps that are done over all replications, and the mean step so far, warm-up included, with its
    interval over them; called from their threads."""
    from fleetsim.config.scenario import most_steps
    from fleetsim.estimates import estimate
    from fleetsim.tell.terminal import with_interval

    of = most_steps(scenario) * scenario.run.replications

    def told(reached: Mapping[int, tuple[int, float]]) -> None:
        if watch.due():
            means = [now_s / steps for steps, now_s in list(reached.values()) if steps]
            so_far = f"step {with_interval(estimate(means), 'seconds').plain} so far" if means else ""
            watch("simulating, steps")
            watch.at(sum(steps for steps, _ in reached.values()), of, lambda: so_far)

    return told


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
