"""Which metrics the expressions of `alerts` and `dashboard` read, as they are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, text
from fleetsim.job.question import Option

if TYPE_CHECKING:
    from fleetsim.alerts.metric_names import MetricNames
    from fleetsim.config.scenario import Scenario

METRICS = "The metrics"


@dataclass(frozen=True, kw_only=True)
class MetricFields:
    """Which metrics of which targets the expressions read."""

    engine: Annotated[str | None, Option("vllm, vllm-ray or sglang; else the scenario's.", METRICS)] = None
    selector: Annotated[str, Option("""Which engines: 'job="rollout"'.""", METRICS)] = ""
    trainer_selector: Annotated[str, Option("""Which trainer: 'job="trainer"'.""", METRICS)] = ""
    map_: Annotated[list[str] | None, Option("A metric of yours. Repeatable.", METRICS, metavar="SIGNAL=METRIC")] = None

    def names(self, scenario: Scenario) -> MetricNames:
        """How the expressions name their metrics. Raises InputError with everything that is wrong."""
        from fleetsim.alerts.metric_names import PREFIXES, MetricNames, checked

        problems = []
        mapping = {}
        for written in self.map_ or ():
            signal, equals, metric = written.partition("=")
            if equals:
                mapping[signal.strip()] = metric.strip()
            else:
                remedy = text("for example {}", flag("map", "trainer.steps=my_steps_total"))
                problems.append(Problem(flag("map"), written, "must read SIGNAL=METRIC", remedy))
        name = self.engine or scenario.engine.name
        if self.engine is None and name not in PREFIXES:
            rule = f"the scenario's engine, {name}, has metrics that fleetsim does not know"
            known = f"give one of {', '.join(PREFIXES)}, or map your metrics"
            problems.append(Problem(flag("engine"), name, rule, known))
        if problems:
            raise InputError(problems)
        selectors = (self.selector.strip().strip("{}"), self.trainer_selector.strip().strip("{}"))
        return checked(MetricNames(name, *selectors, mapping))
