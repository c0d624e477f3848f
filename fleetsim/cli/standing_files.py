"""What `alerts` and `dashboard` start from and how they name metrics: flags that both have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetsim.errors import InputError, Problem

if TYPE_CHECKING:
    from fleetsim.cli.flags import Job
    from fleetsim.config.scenario import Scenario
    from fleetsim.standing.metric_names import MetricNames

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


def job_of(
    scenario: str | None, preset: str | None, plan: str | None, sets: Sequence[str], flags: dict[str, Any], what: str
) -> Job:
    """The job of a command line. Raises InputError when nothing is given, or two things at once."""
    from fleetsim.cli.flags import Job, job_from_flags
    from fleetsim.cli.start import scenario_or_preset

    start = scenario_or_preset(scenario, preset)
    if plan is not None:
        also = scenario if scenario is not None else preset
        if also is not None:
            raise InputError([Problem("--plan", plan, f"{also} is given as well", "give one of the two")])
        if flags.get("profile") is not None:
            raise InputError([Problem("--plan", plan, "a plan names its engine", "drop --profile")])
        return Job(planned_scenario(plan, sets), frozenset(), ())
    if start is None:
        remedy = "give a scenario file, --preset NAME, or --plan PLAN.json"
        raise InputError([Problem("SCENARIO", None, f"no plan to make {what} for", remedy)])
    return job_from_flags(start, sets, flags)


def planned_scenario(file: str, sets: Sequence[str] = ()) -> Scenario:
    """The scenario that a JSON document of fleetsim carries: a plan's recommended one, or the one that was sized.

    A sized scenario gets the recommended count. Raises InputError.
    """
    from fleetsim.config.files import read_text
    from fleetsim.config.load import scenario_from_mapping

    def refuse(rule: str) -> InputError:
        return InputError(
            [Problem("--plan", file, rule, "give what fleetsim replay --recommend or size --json has written")]
        )

    try:
        document = json.loads(read_text(file, "--plan", 16 * 2**20))
    except (ValueError, RecursionError) as error:
        raise refuse(f"is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise refuse("is no plan: a JSON object is wanted")
    recommended = document.get("recommended") or document.get("recommendation") or {}
    recommended = recommended if isinstance(recommended, dict) else {}
    scenario = recommended.get("scenario") or document.get("scenario")
    if not isinstance(scenario, dict):
        raise refuse("carries no scenario")
    instances = recommended.get("instances")
    if isinstance(instances, int):
        fleet = scenario.get("fleet") or {}
        scenario = {**scenario, "fleet": {**fleet, "instances": instances}}
    return scenario_from_mapping(_without_nulls(scenario), file, sets)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


def names_of(
    scenario: Scenario, engine: str | None, selector: str, trainer_selector: str, maps: Sequence[str]
) -> MetricNames:
    """How the rules name their metrics. Raises InputError with everything that is wrong."""
    from fleetsim.standing.metric_names import PREFIXES, MetricNames, checked

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
