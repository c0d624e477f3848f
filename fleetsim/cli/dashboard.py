"""`fleetsim dashboard`: a Grafana dashboard of the standing signals, predicted against observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fleetsim.alerts.ask import Dashboard
from fleetsim.alerts.ask import dashboard as ask
from fleetsim.cli.lines import say
from fleetsim.dataclass import dataclass
from fleetsim.job.question import Option

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim.alerts.ask import DashboardResult


@dataclass(frozen=True, kw_only=True)
class File:
    """Where the dashboard goes, and what it is held against."""

    output: Annotated[
        str | None, Option("The dashboard's JSON; else stdout.", None, metavar="FILE", short="-o", after="scenario")
    ] = None
    force: Annotated[bool, Option("Overwrite it.", None, after="output")] = False
    check_against: Annotated[
        str | None,
        Option(
            "A /metrics page, names a line, or a Prometheus: exit 10 if a metric is not there.",
            None,
            metavar="FILE|URL",
            after="force",
        ),
    ] = None


def dashboard(asked: Dashboard, file: File) -> None:
    """Grafana dashboard of a plan: every standing signal, with what the plan predicts and where its alert begins.

    Examples:

    [bold]fleetsim dashboard job.yaml -o dashboard.json[/bold]

    [bold]fleetsim dashboard --plan PLAN.json -o dashboard.json --selector 'namespace="rl"'[/bold]

    [bold]fleetsim dashboard job.yaml -o dashboard.json --check-against http://prometheus:9090[/bold]

    Import it in Grafana, or put it into its provisioning folder. It asks for data source, jobs and instances.
    """
    from fleetsim.cli.output import stop_at, warn
    from fleetsim.cli.progress import progress
    from fleetsim.errors import InputError
    from fleetsim.files import new_file

    if problems := list(asked.wrong()):
        raise InputError(problems)
    place = None if file.output is None else new_file("--output", file.output, file.force)
    missing = None
    if file.check_against is not None:
        from fleetsim.alerts.dashboard_metrics import missing_at

        missing = missing_at(file.check_against)
    asked = asked.ready()
    with progress("loading the simulator") as watch:
        result = ask(asked, watch)
    _put(place, result)
    warn(result.warnings)
    if missing is not None:
        stop_at([f"not there: {metric}" for metric in missing(result.expressions())])


def _put(place: Path | None, result: DashboardResult) -> None:
    """The dashboard in its file, or on stdout. Raises OutsideError."""
    from fleetsim.files import write_text

    if place is None:
        say(result.text(), nl=False)
        return
    write_text(place, result.text())
    say(f"wrote {place}: {len(result.document['panels'])} panels, to be imported in Grafana", err=True)
