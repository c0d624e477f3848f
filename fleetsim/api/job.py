"""A job as Python holds it: what every feature needs of one (`job/base_job.py`), and each feature as a method."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from fleetsim.faces import keywords
from fleetsim.job.base_job import BaseJob
from fleetsim.job.options import Options
from fleetsim.job.result import told, unchanging
from fleetsim.job.settings import READERS

if TYPE_CHECKING:
    from fleetsim.alerts.ask import AlertsResult, DashboardResult
    from fleetsim.forecast.ask import ForecastResult
    from fleetsim.frameworks.export import Exported
    from fleetsim.frameworks.patch import ConfigPatch
    from fleetsim.history.history import History
    from fleetsim.plan.ask import PlanResult
    from fleetsim.replay.result import ReplayResult
    from fleetsim.simulate.ask import SimulateResult
    from fleetsim.size.ask import SizeResult
    from fleetsim.split.ask import SplitResult
    from fleetsim.sweep.ask import SweepResult
    from fleetsim.trainer.estimate import TrainerEstimate

Tell = Callable[[str], None]


def _read_run(*said: Any) -> Any:
    from fleetsim.replay.shown import with_run

    return with_run(*said)


READERS[:] = [_read_run]


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Job(BaseJob):
    """A scenario and how it came to be. Made by `load`.

    scenario: validated, defaults written out. given: dotted paths that somebody wrote; the rest is assumed, and results
    say so. notes: what is odd about what was said.

        >>> import fleetsim as fs
        >>> job = fs.load("async-one-step")
        >>> job["fleet.instances"], job.with_({"fleet.instances": 5})["fleet.instances"], job["fleet.instances"]
        (4, 5, 4)
    """

    @overload
    def to(self, framework: str) -> Exported: ...

    @overload
    def to(self, framework: str, config: str | os.PathLike[str]) -> ConfigPatch: ...

    def to(self, framework: str, config: str | os.PathLike[str] | None = None) -> Exported | ConfigPatch:
        """The scenario as a framework's own configuration, and what cannot be told to it.

        config: your own file of that framework: what of it must change, with its text then and the diff.

            >>> import fleetsim as fs
            >>> made = fs.load("presets/verl-fully-async").to("verl")
            >>> made.settings["async_training.staleness_threshold"], made.left_out
            (0.1, ())

        `text` is what to paste. Raises InputError for a framework that is not known or cannot run this at all.
        """
        from fleetsim.job.in_frameworks import exported, patched

        if config is not None:
            return patched(framework, self.scenario, os.fspath(config))
        return exported(framework, self.scenario, self.scenario.name or "scenario")

    @keywords()
    def simulate(
        self,
        *,
        hours: float | None = None,
        scrape_interval_s: float | None = None,
        tell: Tell | None = None,
        **options: Unpack[Options],
    ) -> SimulateResult:
        """Runs the scenario `replications` times: `fleetsim simulate`.

        hours: as many steps as fill them, instead of `steps`. scrape_interval_s: keep what a Prometheus would have
        seen of the first run, so often (1 to 3600 s), for `to_openmetrics`. tell: hears what is being done.

        Raises InputError for a scenario that cannot be simulated, StuckError where its limits block each other.
        """
        from fleetsim.simulate.ask import Simulate, simulate

        job, steps = self.with_(None, **options), options.get("steps")
        return simulate(Simulate(job=job, steps=steps, hours=hours, scrape_interval_s=scrape_interval_s), told(tell))

    @keywords()
    def forecast(
        self,
        *,
        schedule: str | Sequence[str] = (),
        resize: bool = False,
        rule: str | None = None,
        backtest: float | None = None,
        tell: Tell | None = None,
        **options: Unpack[Options],
    ) -> ForecastResult:
        """The whole run, to its last step (`steps`): `fleetsim forecast`.

        schedule: what changes, `len=0:1500,500:4000` each or a CSV file. resize: which counts from which step on.
        rule: what a controller that follows it would do instead, `up_after=1,cool_down=0`; None = as `watch` does.
        backtest: with `run`, the share of its log's steps from which its rest is forecast. Raises as `simulate`.
        """
        from fleetsim.forecast.ask import Forecast, forecast

        texts = [schedule] if isinstance(schedule, str) else list(schedule)
        steps = options.pop("steps", None)
        job = self.with_(None, **options)
        asked = Forecast(job=job, steps=steps, schedule=texts, resize=resize, rule=rule, backtest=backtest)
        return forecast(asked, told(tell))

    @keywords()
    def size(
        self, *, confidence: float | None = None, tell: Tell | None = None, **options: Unpack[Options]
    ) -> SizeResult:
        """The smallest rollout fleet that keeps the trainer busy: `fleetsim size`.

        confidence: the share of the cases that the inputs' errors leave in which the count is to hold the targets;
        without a target any share asks for the count of the least expected loss. The scenario's own count of instances
        is ignored. A fleet that cannot hold the targets is no error here: the result's `feasible` is False. Raises as
        `simulate`.
        """
        from fleetsim.size.ask import Size, size

        return size(Size(job=self.with_(None, **options), confidence=confidence), told(tell))

    @keywords()
    def split(
        self,
        gpus: int,
        *,
        by: Literal["step_s", "goodput", "cost_per_step"] = "step_s",
        allow: str | Sequence[str] = (),
        trainer_min_gpus: int | None = None,
        trainer_unit: int | None = None,
        tell: Tell | None = None,
        **options: Unpack[Options],
    ) -> SplitResult:
        """Share `gpus` GPUs between rollout and trainer, or split them, and how: `fleetsim split`.

        by: what the ways are ranked by. allow: what may change training ("staleness<=2"). trainer_min_gpus: fewest of
        the trainer, else what Adam's states need; trainer_unit: they come in multiples of it. Raises as `simulate`.
        """
        from fleetsim.split.ask import Split, split

        may = allow if isinstance(allow, str) else ",".join(allow)
        rules: Any = {"allow": may, "trainer_min_gpus": trainer_min_gpus, "trainer_unit": trainer_unit}
        return split(Split(job=self.with_(None, **options), gpus=gpus, by=by, **rules), told(tell))

    def plan(self, **options: Any) -> PlanResult:
        """`fleetsim.plan(self, **options)`: the best plans of this job within a budget."""
        from fleetsim.plan.ask import plan

        return plan(self, **options)

    @keywords()
    def trainer_step(self, **options: Unpack[Options]) -> TrainerEstimate:
        """Seconds and memory of a training step, estimated: `fleetsim profile trainer`.

        Without trainer_gpus it is the smallest trainer that fits. Raises InputError where one is too small, or for a
        model or GPU that is not known.
        """
        from fleetsim.job.derived_values import trainer_estimate

        job = self.with_(None, **options)
        return trainer_estimate(job.scenario, job.given)

    def sweep(self, grid: Mapping[str, Sequence[Any]], **options: Any) -> SweepResult:
        """`fleetsim.sweep(self, grid, **options)`: every combination of some values."""
        from fleetsim.sweep.ask import sweep

        return sweep(self, grid, **options)

    def replay(self, history: str | os.PathLike[str] | History, **options: Any) -> ReplayResult:
        """`fleetsim.replay(history, self, **options)`: this job's policies and prices on what a fleet did."""
        from fleetsim.replay.ask import replay

        return replay(history, self, **options)

    @keywords()
    def alerts(
        self, *, metrics: Mapping[str, Any] = MappingProxyType({}), tell: Tell | None = None, **rules: Any
    ) -> AlertsResult:
        """Prometheus rules that say when a fleet is no longer what this job plans: `fleetsim alerts`.

        metrics: `engine`, `selector`, `trainer_selector`, and `map_`, a list of "SIGNAL=METRIC". rules: `name`,
        `budget` (false alarms a month), `hours` (healthy ones to simulate), `interval` and `scrape_interval` (seconds),
        `runbook_url`, `engines_only`. `rule_file()` is the file, `test_file(...)` its tests. Raises as `simulate`.
        """
        from fleetsim.alerts.ask import Alerts, MetricFields, PlannedFleet, alerts

        return alerts(Alerts(of=PlannedFleet.of_job(self), metrics=MetricFields(**metrics), **rules), told(tell))

    @keywords()
    def dashboard(
        self, *, metrics: Mapping[str, Any] = MappingProxyType({}), tell: Tell | None = None, **more: Any
    ) -> DashboardResult:
        """A Grafana dashboard of what this job plans beside what is observed: `fleetsim dashboard`.

        metrics: as for `alerts`. more: `name`, `hours`. `document` is what Grafana imports. Raises as `simulate`.
        """
        from fleetsim.alerts.ask import Dashboard, MetricFields, PlannedFleet, dashboard

        return dashboard(Dashboard(of=PlannedFleet.of_job(self), metrics=MetricFields(**metrics), **more), told(tell))
