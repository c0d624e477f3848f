"""What `alerts` and `dashboard` start from and how they name metrics: flags that both have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.errors import InputError, Problem

if TYPE_CHECKING:
    from fleetsim.alerts.metric_names import MetricNames
    from fleetsim.cli.standing_plan import Planned
    from fleetsim.config.scenario import Scenario

PLAN, METRICS, RULES = "The plan", "The metrics", "The rules"

ScenarioArgument = Annotated[
    str | None, typer.Argument(metavar="SCENARIO", help="The plan: a scenario file, or the name of a shipped one.")
]
Preset = Annotated[str | None, typer.Option(help="A framework instead: verl-fully-async...", rich_help_panel=PLAN)]
PlanFile = Annotated[
    str | None,
    typer.Option(
        metavar="PLAN.json", help="A plan of replay, or what size --json printed, instead.", rich_help_panel=PLAN
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key of a scenario. Repeatable.", rich_help_panel=PLAN),
]
Profile = Annotated[str | None, typer.Option(help="A measured engine instead.", rich_help_panel=PLAN)]
PlanName = Annotated[
    str | None, typer.Option("--name", help="Label `plan` of all rules; else the scenario's.", rich_help_panel=RULES)
]
Engine = Annotated[
    str | None, typer.Option(help="vllm, vllm-ray or sglang; else the scenario's.", rich_help_panel=METRICS)
]
Selector = Annotated[str, typer.Option(help="""Which engines: 'job="rollout"'.""", rich_help_panel=METRICS)]
TrainerSelector = Annotated[str, typer.Option(help="""Which trainer: 'job="trainer"'.""", rich_help_panel=METRICS)]
Mapping = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="SIGNAL=METRIC", help="A metric of yours. Repeatable.", rich_help_panel=METRICS),
]


def plan_of(
    scenario: str | None, preset: str | None, plan: str | None, sets: Sequence[str], profile: str | None, what: str
) -> Planned:
    """The plan of a command line. Raises InputError when nothing is given, or two things at once."""
    from fleetsim.cli.standing_plan import Planned, planned_of
    from fleetsim.job.fields import scenario_or_preset
    from fleetsim.job.job import job_from_flags

    start = scenario_or_preset(scenario, preset)
    if plan is not None:
        also = scenario if scenario is not None else preset
        if also is not None:
            raise InputError([Problem("--plan", plan, f"{also} is given as well", "give one of the two")])
        if profile is not None:
            raise InputError([Problem("--plan", plan, "a plan names its engine", "drop --profile")])
        return planned_of(plan, sets)
    if start is None:
        remedy = "give a scenario file, --preset NAME, or --plan PLAN.json"
        raise InputError([Problem("SCENARIO", None, f"no plan to make {what} for", remedy)])
    job = job_from_flags(start, sets, {"profile": profile})
    return Planned(job.scenario, None, job.notes)


def names_of(
    scenario: Scenario, engine: str | None, selector: str, trainer_selector: str, maps: Sequence[str]
) -> MetricNames:
    """How the rules name their metrics. Raises InputError with everything that is wrong."""
    from fleetsim.alerts.metric_names import PREFIXES, MetricNames, checked

    problems = []
    mapping = {}
    for text in maps:
        signal, equals, metric = text.partition("=")
        if equals:
            mapping[signal.strip()] = metric.strip()
        else:
            problems.append(
                Problem("--map", text, "must read SIGNAL=METRIC", "for example --map trainer.steps=my_steps_total")
            )
    name = engine or scenario.engine.name
    if engine is None and name not in PREFIXES:
        rule = f"the scenario's engine, {name}, has metrics that fleetsim does not know"
        problems.append(Problem("--engine", name, rule, f"give one of {', '.join(PREFIXES)}, or map your metrics"))
    if problems:
        raise InputError(problems)
    return checked(MetricNames(name, selector.strip().strip("{}"), trainer_selector.strip().strip("{}"), mapping))
