"""`fleetsim dashboard`: a Grafana dashboard of the standing signals, predicted against observed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

MISSING_METRICS = 10


def dashboard(
    scenario: ScenarioArgument = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The dashboard's JSON; else stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
    check_against: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="A /metrics page, names a line, or a Prometheus: exit 10 if a metric is not there.",
        ),
    ] = None,
    preset: Preset = None,
    plan: PlanFile = None,
    set_: Settings = None,
    profile: Profile = None,
    name: PlanName = None,
    hours: Annotated[
        float | None, typer.Option(help="Healthy hours to simulate; else up to a week.", rich_help_panel=RULES)
    ] = None,
    engine: Engine = None,
    selector: Selector = "",
    trainer_selector: TrainerSelector = "",
    map_: Mapping = None,
) -> None:
    """Grafana dashboard of a plan: every standing signal, with what the plan predicts and where its alert begins.

    Examples:

    [bold]fleetsim dashboard job.yaml -o dashboard.json[/bold]

    [bold]fleetsim dashboard --plan PLAN.json -o dashboard.json --selector 'namespace="rl"'[/bold]

    [bold]fleetsim dashboard job.yaml -o dashboard.json --check-against http://prometheus:9090[/bold]

    Import it in Grafana, or put it into its provisioning folder. It asks for data source, jobs and instances.
    """
    from fleetsim.cli.output import warn
    from fleetsim.cli.progress import progress
    from fleetsim.cli.standing_files import names_of, plan_of
    from fleetsim.errors import InputError, Problem
    from fleetsim.files import new_file, write_text

    if hours is not None and not 1.0 <= hours <= 24 * 366.0:
        raise InputError([Problem("--hours", hours, "must be from 1 to 8784", "for example --hours 168")])
    place = None if output is None else new_file("--output", output, force)
    there = None if check_against is None else known_at(check_against)
    planned = plan_of(scenario, preset, plan, set_ or (), profile, "a dashboard")
    names = names_of(planned.scenario, engine, selector, trainer_selector, map_ or ())
    with progress("loading the simulator") as tell:
        from fleetsim.alerts.dashboard import dashboard as made_of
        from fleetsim.alerts.dashboard_metrics import expressions
        from fleetsim.alerts.rehearsal import rehearse
        from fleetsim.alerts.rules import Writing
        from fleetsim.alerts.thresholds import choose
        from fleetsim.tell.data import dumps

        standing = choose(rehearse(planned.scenario, planned.engine, hours=hours, guessed=planned.guessed, tell=tell))
        document = made_of(standing, Writing(names, name or planned.scenario.name))
    text = dumps(document) + "\n"
    if place is None:
        say(text, nl=False)
    else:
        write_text(place, text)
        say(f"wrote {place}: {len(document['panels'])} panels, to be imported in Grafana", err=True)
    warn(planned.notes)
    if there is not None:
        missing = there(expressions(document))
        for metric in missing:
            say(f"not there: {metric}", err=True)
        if missing:
            raise typer.Exit(MISSING_METRICS)


def known_at(place: str) -> Callable[[Iterable[str]], list[str]]:
    """What a dashboard's expressions read that is not there: on a page, or in the last minutes of a Prometheus, with
    the credentials of the environment. Raises InputError, and the function OutsideError."""
    if "://" not in place:
        from fleetsim.config.files import read_text

        page = read_text(place, "--check-against", 64 * 2**20)

        def on_page(expressions: Iterable[str]) -> list[str]:
            from fleetsim.alerts.dashboard_metrics import exposed_names, missing_metrics

            return missing_metrics(expressions, exposed_names(page))

        return on_page

    from fleetsim.cli.history_options import connect
    from fleetsim.job.history_fields import AccessFields

    prometheus = connect(place, AccessFields())

    def in_prometheus(expressions: Iterable[str]) -> list[str]:
        from time import time

        from fleetsim.alerts.dashboard_metrics import missing_metrics, unknown_metrics

        expressions = tuple(expressions)
        wanted = "|".join(unknown_metrics(expressions, ()))
        answer = prometheus.query(f'group by (__name__) ({{__name__=~"{wanted}"}})', time())
        return missing_metrics(expressions, {series.labels["__name__"] for series in answer})

    return in_prometheus
