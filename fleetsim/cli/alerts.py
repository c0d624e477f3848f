"""`fleetsim alerts`: recording and alerting rules of a plan, with thresholds from simulated runs of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fleetsim.alerts.ask import Alerts
from fleetsim.alerts.ask import alerts as ask
from fleetsim.cli.lines import say
from fleetsim.dataclass import dataclass
from fleetsim.job.question import Option

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim.alerts.ask import AlertsResult

OUTPUT = "Output"


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where the rules go."""

    output: Annotated[
        str | None, Option("The rule file; else stdout.", OUTPUT, metavar="FILE", short="-o", after="scenario")
    ] = None
    tests: Annotated[
        str | None, Option("Its tests, for promtool test rules.", OUTPUT, metavar="FILE", after="output")
    ] = None
    force: Annotated[bool, Option("Overwrite them.", OUTPUT, after="tests")] = False
    json_: Annotated[bool, Option("One JSON document.", OUTPUT)] = False


def alerts(asked: Alerts, files: Files) -> None:
    """Prometheus rules for a plan: thresholds and `for:` from simulated runs of it, with and without faults.

    Examples:

    [bold]fleetsim alerts job.yaml -o rules.yaml[/bold]

    [bold]fleetsim alerts job.yaml -o rules.yaml --tests tests.yaml && promtool test rules tests.yaml[/bold]

    [bold]fleetsim alerts --plan PLAN.json -o rules.yaml --selector 'job="rollout"'[/bold]

    [bold]fleetsim alerts --preset verl-fully-async --budget 0.2 --json[/bold]

    Each alert says how often it fires without its fault, and how soon it sees it. docs/alerts.md has the method.
    """
    from fleetsim.cli.output import show, show_json, warn
    from fleetsim.cli.progress import progress

    places = _checked(asked, files)
    asked = asked.ready()
    with progress("loading the simulator") as watch:
        result = ask(asked, watch)
        places.write(result)
    if files.json_:
        show_json(result.document())
    elif places.rules is None:
        say(result.rule_file(), nl=False)
    else:
        from fleetsim.alerts.told import document
        from fleetsim.tell.terminal import draw

        show(draw(document(result.standing, str(places.rules), None if places.tests is None else str(places.tests))))
    warn(result.warnings)


@dataclass(frozen=True, slots=True)
class RuleFiles:
    """The rule file and its tests, each None where it is not asked for; no tests without rules."""

    rules: Path | None
    tests: Path | None

    def write(self, result: AlertsResult) -> None:
        """Writes what is asked for. Raises OutsideError."""
        from os.path import relpath

        from fleetsim.files import write_text

        if self.rules is None:
            return
        if self.tests is not None:
            write_text(self.tests, result.test_file(relpath(self.rules, self.tests.parent)))
        write_text(self.rules, result.rule_file())


def _checked(asked: Alerts, files: Files) -> RuleFiles:
    """Where the rules go, before the plan is read. Raises InputError."""
    from fleetsim.errors import InputError, Problem
    from fleetsim.files import apart, new_file

    problems = list(asked.wrong())
    if files.tests is not None and files.output is None:
        problems.append(Problem("--tests", files.tests, "tests name their rule file", "give --output as well"))
    if problems:
        raise InputError(problems)
    apart({"--output": files.output, "--tests": files.tests})
    rules = None if files.output is None else new_file("--output", files.output, files.force)
    tests = None if files.tests is None else new_file("--tests", files.tests, files.force)
    return RuleFiles(rules, tests)
