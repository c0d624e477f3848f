"""`fleetsim alerts`: recording and alerting rules of a plan, with thresholds from simulated runs of it."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetsim.cli.say import say
from fleetsim.cli.standing_files import (
    RULES,
    Engine,
    Mapping,
    PlanFile,
    PlanName,
    Preset,
    Profile,
    ScenarioArgument,
    Selector,
    Settings,
    TrainerSelector,
)

OUTPUT = "Output"


def alerts(
    scenario: ScenarioArgument = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The rule file; else stdout.", rich_help_panel=OUTPUT),
    ] = None,
    tests: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Its tests, for promtool test rules.", rich_help_panel=OUTPUT),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite them.", rich_help_panel=OUTPUT)] = False,
    preset: Preset = None,
    plan: PlanFile = None,
    set_: Settings = None,
    profile: Profile = None,
    name: PlanName = None,
    budget: Annotated[
        float, typer.Option(help="False alarms a month, all alerts together.", rich_help_panel=RULES)
    ] = 1.0,
    hours: Annotated[
        float | None, typer.Option(help="Healthy hours to simulate; else up to a week.", rich_help_panel=RULES)
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between evaluations.", rich_help_panel=RULES)] = 30.0,
    scrape_interval: Annotated[float, typer.Option(help="Seconds between scrapes.", rich_help_panel=RULES)] = 15.0,
    runbook_url: Annotated[
        str | None, typer.Option(help="Page of the alerts; #alertname is appended.", rich_help_panel=RULES)
    ] = None,
    engines_only: Annotated[
        bool, typer.Option("--engines-only", help="The trainer exports nothing.", rich_help_panel=RULES)
    ] = False,
    engine: Engine = None,
    selector: Selector = "",
    trainer_selector: TrainerSelector = "",
    map_: Mapping = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Prometheus rules for a plan: thresholds and `for:` from simulated runs of it, with and without faults.

    Examples:

    [bold]fleetsim alerts job.yaml -o rules.yaml[/bold]

    [bold]fleetsim alerts job.yaml -o rules.yaml --tests tests.yaml && promtool test rules tests.yaml[/bold]

    [bold]fleetsim alerts --plan PLAN.json -o rules.yaml --selector 'job="rollout"'[/bold]

    [bold]fleetsim alerts --preset verl-fully-async --budget 0.2 --json[/bold]

    Each alert says how often it will cry wolf and how soon it sees its fault. docs/alerts.md has the method.
    """
    from fleetsim.cli.output import show, show_json, warn
    from fleetsim.cli.progress import progress
    from fleetsim.cli.standing_files import names_of, plan_of
    from fleetsim.config.yaml_text import to_yaml
    from fleetsim.errors import InputError, Problem
    from fleetsim.files import apart, new_file, write_text

    problems = [
        Problem(flag, value, f"must be from {least:g} to {most:g}", f"for example {flag} {example}")
        for flag, value, least, most, example in (
            ("--budget", budget, 0.001, 1000.0, "1"),
            ("--hours", hours, 1.0, 24 * 366.0, "168"),
            ("--interval", interval, 5.0, 300.0, "30"),
            ("--scrape-interval", scrape_interval, 1.0, 60.0, "15"),
        )
        if value is not None and not least <= value <= most
    ]
    if tests is not None and output is None:
        problems.append(Problem("--tests", tests, "tests name their rule file", "give --output as well"))
    if problems:
        raise InputError(problems)
    apart({"--output": output, "--tests": tests})
    rule_file = None if output is None else new_file("--output", output, force)
    test_file = None if tests is None else new_file("--tests", tests, force)
    planned = plan_of(scenario, preset, plan, set_ or (), profile, "alerts")
    names = names_of(planned.scenario, engine, selector, trainer_selector, map_ or ())
    with progress("loading the simulator") as tell:
        from fleetsim.alerts.promtool_tests import tests_document
        from fleetsim.alerts.rehearsal import rehearse
        from fleetsim.alerts.rules import RUNBOOK, Writing, only, rules_document
        from fleetsim.alerts.thresholds import choose

        writing = Writing(names, name or planned.scenario.name, runbook_url or RUNBOOK)
        made = rehearse(
            planned.scenario,
            planned.engine,
            hours=hours,
            scrape_s=scrape_interval,
            interval_s=interval,
            guessed=planned.guessed,
            tell=tell,
        )
        tell("choosing thresholds")
        standing = only(choose(made, budget), "engines" if engines_only else "trainer")
        document = rules_document(standing, writing)
        text = to_yaml(document)
        if test_file is not None and rule_file is not None:
            from os.path import relpath

            write_text(test_file, to_yaml(tests_document(standing, writing, relpath(rule_file, test_file.parent))))
        if rule_file is not None:
            write_text(rule_file, text)
    if json_:
        from fleetsim.alerts.data import alerts_document

        show_json(alerts_document(standing, writing, document))
    elif rule_file is None:
        say(text, nl=False)
    else:
        from fleetsim.alerts.told import alerts_report

        show(alerts_report(standing, str(rule_file), None if test_file is None else str(test_file)))
    warn(planned.notes)
