"""What a simulated job came to: metrics, records, pages."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetsim.errors import InputError, Problem
from fleetsim.files import replace_file, unwritten
from fleetsim.job.in_python import in_python
from fleetsim.job.metrics import Metrics
from fleetsim.job.result import Result
from fleetsim.job.unchanging import unchanging

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

    from fleetsim.analysis.replicate import Replicated
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.job_face import Job, Tell
    from fleetsim.plan.engine_source import EngineSource
    from fleetsim.report.run_view import RunView
    from fleetsim.sim.records import Records

HOUR_S = 3600.0
LEAST_SCRAPE_S = 1.0


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulateResult(Result):
    """A job over its replications.

    job: as it was run. metrics: name -> Estimate over the replications. binding: what held the job up most often.
    runs: the records of each replication. profile: what the engine's speed rests on. warnings: as on stderr.
    """

    job: Job
    scenario: Scenario
    metrics: Metrics
    binding: str
    profile: EngineSource
    warnings: tuple[str, ...]
    _replicated: Replicated = field(repr=False)

    def __repr__(self) -> str:
        m = self.mean
        return (
            f"<SimulateResult {self.scenario.name!r}: step {m['step_s']:.4g} s, trainer idle "
            f"{100 * m['trainer_idle_fraction']:.1f} %, bound by {self.binding}, {len(self.runs)} replications>"
        )

    @property
    def mean(self) -> dict[str, float]:
        """Metric name -> mean over the replications."""
        return self.metrics.mean

    @property
    def runs(self) -> tuple[Records, ...]:
        """The records of each replication, numpy tables."""
        return self._replicated.runs

    def to_pandas(self) -> pd.DataFrame:
        """A row a replication, a column a metric. Needs pandas."""
        from fleetsim.job.frames import frame
        from fleetsim.plan.trials import flat

        rows = [
            {"replication": run.replication, **flat(values)}
            for run, values in zip(self.runs, self._replicated.values, strict=True)
        ]
        return frame(rows).set_index("replication")

    def table(self, name: str = "steps") -> pd.DataFrame:
        """What happened, a row a happening, over all replications: steps, samples, groups, syncs or failures.

        Columns as in fleetsim/sim/records.py: seconds and tokens. Raises InputError for another name. Needs pandas.
        """
        from fleetsim.job.frames import records_frame

        return records_frame(self.runs, name)

    def to_openmetrics(self, path: str | os.PathLike[str], *, end_s: float | None = None) -> Path:
        """Writes the first run as vLLM and a trainer would have exported it: a history that `replay` reads.

        end_s: unix seconds of its end, this hour's begin if None. The run must have been scraped (`scrape_interval_s`
        of `simulate`). An existing file is replaced. Raises InputError, OutsideError.
        """
        from fleetsim.report.openmetrics import write_openmetrics

        first = self.runs[0]
        if not len(first.scrapes):
            raise InputError(
                [Problem("to_openmetrics", str(path), "the run was not scraped", "simulate(scrape_interval_s=15)")]
            )
        end = math.floor(time.time() / HOUR_S) * HOUR_S if end_s is None else end_s
        place = Path(path)
        try:
            with place.open("w", encoding="utf-8") as file:
                write_openmetrics(first, file, end_s=end)
        except (OSError, ValueError) as error:
            raise unwritten(place, error) from None
        return place

    def to_perfetto(self, path: str | os.PathLike[str], steps: str | None = None) -> Path:
        """Writes the first run as a trace for ui.perfetto.dev and chrome://tracing; one that ends in .gz is compressed.

        steps: "20" (after warm-up), "0:9" or "all"; 20 if None. The run is simulated once more, to record it. An
        existing file is replaced. Raises InputError for steps that the run does not have, OutsideError.
        """
        from fleetsim.report.perfetto import parse_steps, record, trace_of

        first = self.runs[0]
        try:
            asked = parse_steps(steps)
            trace = trace_of(record(self.scenario, first, asked), asked)
        except InputError as error:
            raise InputError([replace(p, path="steps") for p in error.problems]) from None
        return replace_file(path, trace.data(compressed=os.fspath(path).endswith(".gz")))

    def to_parquet(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Writes the records of all runs, a file a table, as `simulate --parquet`: steps.parquet, samples.parquet, ...

        The folder is made if need be; files of these names are replaced. Returns them. Raises OutsideError without
        pyarrow, or where the folder cannot be written to.
        """
        from fleetsim.report.parquet import check_folder, write_parquet

        with in_python():
            place = check_folder(os.fspath(folder), "to_parquet")
            return tuple(write_parquet(place, self.runs))

    def _shown(self, first: Records) -> RunView:
        """What the view and the page show. first: the records of the first replication."""
        from fleetsim.plan.run_assumptions import run_assumptions
        from fleetsim.report.counted import warmups_of
        from fleetsim.report.run_view import RunView, trained_staleness

        return RunView(
            self.scenario, self.metrics, self.binding, len(self.runs), first.steps, trained_staleness(first),
            self.profile, warmups_of(self.runs), run_assumptions(self.scenario, self.job.given),
        )  # fmt: skip

    def _view(self) -> Group:
        from fleetsim.report.run_view import run_report

        return run_report(self._shown(self.runs[0]))

    def _page(self) -> str:
        from fleetsim.report.run_page import run_page
        from fleetsim.sim.run import simulate

        first = simulate(self.scenario, replication=self.runs[0].replication, activity=True)
        return run_page(self._shown(first), first, self.warnings)

    def _document(self) -> dict[str, Any]:
        from fleetsim.plan.trials import flat
        from fleetsim.report.json import simulate_document

        nested: Mapping[str, Any] = self._replicated.metrics
        values = [flat(run) for run in self._replicated.values]
        return simulate_document(self.scenario, nested, len(self.runs), self.profile, self.warnings, values)


def simulated(
    job: Job, hours: float | None, steps: int | None, scrape_interval_s: float | None, tell: Tell | None
) -> SimulateResult:
    """`Job.simulate`. steps: those that were asked for beside the hours, which is one too many."""
    from fleetsim.analysis.replicate import replicate
    from fleetsim.job.job_face import filled
    from fleetsim.plan.engine_source import engine_source
    from fleetsim.plan.trials import flat
    from fleetsim.plan.warnings import backlog_warnings, range_warnings
    from fleetsim.report.counted import early_events, warmups_of

    if scrape_interval_s is not None and not LEAST_SCRAPE_S <= scrape_interval_s <= HOUR_S:
        rule, remedy = "must be 1 to 3600 seconds", "Prometheus's own is 15"
        raise InputError([Problem("scrape_interval_s", scrape_interval_s, rule, remedy)])
    scenario = filled(job, hours, steps)

    def progress(done: int, of: int) -> None:
        if tell is not None:
            tell(f"simulating: {done} of {of} replications")

    result = replicate(scenario, progress=progress, scrape_every_s=scrape_interval_s)
    source = engine_source(scenario, scenario.fleet.instances, result.runs)
    metrics = flat(result.metrics)
    binding = str(metrics.pop("binding"))
    early, backlog = early_events(scenario, warmups_of(result.runs)), backlog_warnings(scenario, metrics)
    warnings = (*job.notes, *backlog, *early, *range_warnings(source))
    return SimulateResult(job, scenario, Metrics(metrics), binding, source, warnings, result)
