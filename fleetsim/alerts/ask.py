"""`alerts` and `dashboard`: what can be asked of a plan that is to be watched over, and the files that do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from fleetsim.alerts.planned_fleet import AnyPlan, PlanFields, PlannedFleet
from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import flag, text
from fleetsim.job.result import SILENT, Watch, unchanging
from fleetsim.job.settings import Lends, Option
from fleetsim.records import replace

if TYPE_CHECKING:
    from fleetsim.alerts.alert_rule import Standing
    from fleetsim.alerts.rules import Writing
    from fleetsim.alerts.signals import MetricNames
    from fleetsim.config.scenario import Scenario

RULES = "The rules"


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
        from fleetsim.alerts.signals import PREFIXES, MetricNames, checked
        from fleetsim.history.selection import bare, parse_map

        name, mapping = self.engine or scenario.engine.name, parse_map(self.map_ or (), known=False)
        if self.engine is None and name not in PREFIXES:
            rule = f"the scenario's engine, {name}, has metrics that fleetsim does not know"
            known = f"give one of {', '.join(PREFIXES)}, or map your metrics"
            raise InputError([Problem(flag("engine"), name, rule, known)])
        return checked(MetricNames(name, bare(self.selector), bare(self.trainer_selector), mapping))


class PlanQuestion:
    """What is asked of a plan: `Alerts` or `Dashboard`."""

    # Of each number, the least, the most and an example.
    RANGES: ClassVar = {
        "budget": (0.001, 1000.0, "1"),
        "hours": (1.0, 24 * 366.0, "168"),
        "interval": (5.0, 300.0, "30"),
        "scrape_interval": (1.0, 60.0, "15"),
    }
    WHAT: ClassVar = ""

    def wrong(self) -> Iterator[Problem]:
        """Which of the numbers are out of their range."""
        for name, (least, most, example) in self.RANGES.items():
            value = getattr(self, name, None)
            if value is not None and not least <= value <= most:
                rule = f"must be from {least:g} to {most:g}"
                yield Problem(flag(name), value, rule, text("for example {}", flag(name, example)))

    def ready(self: Any) -> tuple[Any, PlannedFleet]:
        """The question with the plan it names, loaded, and that plan. Raises InputError, all of the question first."""
        Problems(self.wrong()).stop()
        of: PlannedFleet = self.of if isinstance(self.of, PlannedFleet) else self.of.planned(self.WHAT)
        self.metrics.names(of.scenario)
        return replace(self, of=of), of


@dataclass(frozen=True, kw_only=True)
class Alerts(PlanQuestion):
    """From when on is this plan no longer what the fleet does?"""

    of: Annotated[AnyPlan, Lends(PlanFields)]
    name: Annotated[str | None, Option("Label `plan` of all rules; else the scenario's.", RULES)] = None
    budget: Annotated[float, Option("False alarms a month, all alerts together.", RULES)] = 1.0
    hours: Annotated[float | None, Option("Healthy hours to simulate; else up to a week.", RULES)] = None
    interval: Annotated[float, Option("Seconds between evaluations.", RULES)] = 30.0
    scrape_interval: Annotated[float, Option("Seconds between scrapes.", RULES)] = 15.0
    runbook_url: Annotated[str | None, Option("Page of the alerts; #alertname is appended.", RULES)] = None
    engines_only: Annotated[bool, Option("Leave out what needs metrics of the trainer.", RULES)] = False
    metrics: Annotated[MetricFields, Lends(MetricFields)] = field(default_factory=MetricFields)
    WHAT: ClassVar = "alerts"


@dataclass(frozen=True, kw_only=True)
class Dashboard(PlanQuestion):
    """What does this plan predict, beside what is observed?"""

    of: Annotated[AnyPlan, Lends(PlanFields)]
    name: Annotated[str | None, Option("Label `plan` of all rules; else the scenario's.", RULES)] = None
    hours: Annotated[float | None, Option("Healthy hours to simulate; else up to a week.", RULES)] = None
    metrics: Annotated[MetricFields, Lends(MetricFields)] = field(default_factory=MetricFields)
    WHAT: ClassVar = "a dashboard"


@unchanging
@dataclass(frozen=True, slots=True, eq=False)
class AlertsResult:
    """Rules with their thresholds. standing: what was found of each alert. writing: how rules are written."""

    standing: Standing
    writing: Writing
    warnings: tuple[str, ...]

    def rules(self) -> dict[str, Any]:
        """The rule file as Python values."""
        from fleetsim.alerts.rules import rules_document

        return rules_document(self.standing, self.writing)

    def rule_file(self) -> str:
        """The rule file, as Prometheus reads it."""
        from fleetsim.config.yaml_text import to_yaml

        return to_yaml(self.rules())

    def kubernetes(self) -> str:
        """The same as a PrometheusRule."""
        from fleetsim.alerts.rules import prometheus_rule
        from fleetsim.config.yaml_text import to_yaml

        return to_yaml(prometheus_rule(self.rules(), self.writing.plan))

    def test_file(self, rule_file: str) -> str:
        """The tests of the rules, for promtool. rule_file: its path as seen from the tests."""
        from fleetsim.alerts.promtool_tests import tests_document
        from fleetsim.config.yaml_text import to_yaml

        return to_yaml(tests_document(self.standing, self.writing, rule_file))

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.alerts.facts import alerts_document

        return alerts_document(self.standing, self.writing, self.rules())


@unchanging
@dataclass(frozen=True, slots=True, eq=False)
class DashboardResult:
    """A dashboard. document: as Grafana imports it. plan: its name."""

    document: dict[str, Any]
    warnings: tuple[str, ...]
    plan: str = ""

    def kubernetes(self) -> str:
        """The file in a ConfigMap."""
        from fleetsim.alerts.rules import dashboard_map
        from fleetsim.config.yaml_text import to_yaml

        return to_yaml(dashboard_map(self.text(), self.plan))

    def text(self) -> str:
        """The file."""
        from fleetsim.tell.data import dumps

        return dumps(self.document) + "\n"

    def expressions(self) -> list[str]:
        """Everything that its panels ask of Prometheus."""
        from fleetsim.alerts.dashboard import expressions

        return list(expressions(self.document))


def alerts(asked: Alerts, watch: Watch = SILENT) -> AlertsResult:
    """Thresholds from simulated runs of the plan, with and without faults, and from what a run of it showed.

    Raises InputError, StuckError.
    """
    from fleetsim.alerts.rules import RUNBOOK, Writing, only

    asked, planned = asked.ready()
    standing = only(_standing(planned, asked, watch), engines_only=asked.engines_only)
    label = asked.name or planned.scenario.name
    writing = Writing(asked.metrics.names(planned.scenario), label, asked.runbook_url or RUNBOOK)
    return AlertsResult(standing, writing, tuple(planned.notes))


def dashboard(asked: Dashboard, watch: Watch = SILENT) -> DashboardResult:
    """Every standing signal, with what the plan predicts and where its alert begins. Raises InputError, StuckError."""
    from fleetsim.alerts.dashboard import dashboard as made_of
    from fleetsim.alerts.rules import Writing

    asked, planned = asked.ready()
    writing = Writing(asked.metrics.names(planned.scenario), asked.name or planned.scenario.name)
    return DashboardResult(made_of(_standing(planned, asked, watch), writing), tuple(planned.notes), writing.plan)


def _standing(planned: PlannedFleet, asked: Alerts | Dashboard, watch: Watch) -> Standing:
    """The alerts of a plan, for a dashboard those of a usual Prometheus."""
    from fleetsim.alerts.learned import learned_of
    from fleetsim.alerts.rehearsal import rehearse
    from fleetsim.alerts.thresholds import choose

    learned = None
    if planned.history is not None:
        watch("learning from the healthy hours of the run")
        learned = learned_of(planned.history, planned.scenario, planned.given)
    held = None if planned.engine is None else planned.held
    usual = asked if isinstance(asked, Alerts) else Alerts(of=planned)
    made = rehearse(
        planned.scenario,
        planned.engine,
        hours=asked.hours,
        scrape_s=usual.scrape_interval,
        interval_s=usual.interval,
        given=planned.given,
        held=held,
        tell=watch,
    )
    watch("choosing thresholds")
    return choose(made, usual.budget, learned)
