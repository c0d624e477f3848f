"""`fleetsim alerts`, `dashboard` and `watch`: what stands beside a running fleet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fleetsim.alerts.ask import Alerts, Dashboard
from fleetsim.alerts.ask import alerts as ask_alerts
from fleetsim.alerts.ask import dashboard as ask_dashboard
from fleetsim.cli.flags import AsJson
from fleetsim.cli.terminal import say
from fleetsim.job.settings import Option
from fleetsim.watch.ask import FleetWatch, log_watch, watcher
from fleetsim.watch.ask import watch as look_once

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim.watch.watch import WallClock


# --- `fleetsim alerts`: recording and alerting rules of a plan, with thresholds from simulated runs of it.

OUTPUT = "Output"


@dataclass(frozen=True, kw_only=True)
class Files(AsJson):
    """Where the rules go."""

    output: Annotated[
        str | None, Option("The rule file; else stdout.", OUTPUT, metavar="FILE", short="-o", after="scenario")
    ] = None
    tests: Annotated[
        str | None, Option("Its tests, for promtool test rules.", OUTPUT, metavar="FILE", after="output")
    ] = None
    force: Annotated[bool, Option("Overwrite them.", OUTPUT, after="tests")] = False
    kubernetes: Annotated[bool, Option("As a PrometheusRule.", OUTPUT, after="force")] = False


def alerts(asked: Alerts, files: Files) -> None:
    """Prometheus rules for a plan: thresholds and `for:` from simulated runs of it, with and without faults.

    Examples:
    fleetsim alerts job.yaml -o rules.yaml
    fleetsim alerts job.yaml -o rules.yaml --tests tests.yaml && promtool test rules tests.yaml
    fleetsim alerts --plan PLAN.json -o rules.yaml --selector 'job="rollout"'
    fleetsim alerts --preset verl-fully-async --budget 0.2 --json

    Each alert says how often it fires without its fault, and how soon it sees it. docs/alerts.md has the method.
    """
    from os.path import relpath

    from fleetsim.cli.output import show, show_json, warn
    from fleetsim.cli.progress import progress
    from fleetsim.files import write_text

    rules, tests = _checked(asked, files)
    asked, _ = asked.ready()
    with progress("loading the simulator") as watch:
        result = ask_alerts(asked, watch)
    text = result.kubernetes() if files.kubernetes else result.rule_file()
    if tests is not None and rules is not None:
        write_text(tests, result.test_file(relpath(rules, tests.parent)))
    if rules is not None:
        write_text(rules, text)
    if files.json_:
        show_json(result.document())
    elif rules is None:
        say(text, nl=False)
    else:
        from fleetsim.alerts.facts import document
        from fleetsim.tell.terminal import draw

        show(draw(document(result.standing, str(rules), files.tests)))
    warn(result.warnings)


def _checked(asked: Alerts, files: Files) -> tuple[Path | None, Path | None]:
    """Where the rules and their tests go, before the plan is read. Raises InputError."""
    from fleetsim.errors import Problem, Problems
    from fleetsim.files import apart, new_file

    problems = Problems(asked.wrong())
    if files.tests is not None and files.output is None:
        problems.append(Problem("--tests", files.tests, "tests name their rule file", "give --output as well"))
    if files.tests is not None and files.kubernetes:
        rule = "tests name a rule file, and a PrometheusRule is none"
        problems.append(Problem("--tests", files.tests, rule, "write both files without --kubernetes, then the object"))
    problems.stop()
    apart({"--output": files.output, "--tests": files.tests})
    rules = None if files.output is None else new_file("--output", files.output, files.force)
    tests = None if files.tests is None else new_file("--tests", files.tests, files.force)
    return rules, tests


# --- `fleetsim dashboard`: a Grafana dashboard of the standing signals, predicted against observed.


@dataclass(frozen=True, kw_only=True)
class File:
    """Where the dashboard goes, and what it is held against."""

    output: Annotated[
        str | None, Option("The dashboard's JSON; else stdout.", None, metavar="FILE", short="-o", after="scenario")
    ] = None
    force: Annotated[bool, Option("Overwrite it.", None, after="output")] = False
    kubernetes: Annotated[bool, Option("As a ConfigMap that Grafana's sidecar finds.", None, after="force")] = False
    check_against: Annotated[
        str | None,
        Option(
            "A /metrics page, names a line, or a Prometheus: exit 10 if a metric is not there.",
            None,
            metavar="FILE|URL",
            after="kubernetes",
        ),
    ] = None


def dashboard(asked: Dashboard, file: File) -> None:
    """Grafana dashboard of a plan: every standing signal, with what the plan predicts and where its alert begins.

    Examples:
    fleetsim dashboard job.yaml -o dashboard.json
    fleetsim dashboard --plan PLAN.json -o dashboard.json --selector 'namespace="rl"'
    fleetsim dashboard job.yaml -o dashboard.json --check-against http://prometheus:9090

    Import it in Grafana, or put it into its provisioning folder. It asks for data source, jobs and instances.
    """
    from fleetsim.cli.output import put, stop_at, warn
    from fleetsim.cli.progress import progress
    from fleetsim.errors import Problems
    from fleetsim.files import new_file

    Problems(asked.wrong()).stop()
    place = None if file.output is None else new_file("--output", file.output, file.force)
    missing = None
    if file.check_against is not None:
        from fleetsim.alerts.dashboard import missing_at

        missing = missing_at(file.check_against)
    asked, _ = asked.ready()
    with progress("loading the simulator") as watch:
        result = ask_dashboard(asked, watch)
    then = "for kubectl apply" if file.kubernetes else "to be imported in Grafana"
    text = result.kubernetes() if file.kubernetes else result.text()
    put(place, text, f": {len(result.document['panels'])} panels, {then}")
    warn(result.warnings)
    if missing is not None:
        stop_at([f"not there: {metric}" for metric in missing(result.expressions())])


# --- `fleetsim watch`: looks at the fleet again and again, and exports what it should be.


class Stopped(BaseException):
    """SIGTERM: raised in whatever the main thread does, so that a long evaluation does not hold up the end."""


@dataclass(frozen=True, kw_only=True)
class Export(AsJson):
    """Where what is found goes."""

    listen: Annotated[
        str, Option("Where to export; without a host, loopback only.", None, metavar="[HOST]:PORT", after="prometheus")
    ] = ":9105"
    once: Annotated[bool, Option("One evaluation, printed; no export.", None)] = False


def watch(asked: FleetWatch, export: Export) -> None:
    """Looks at the fleet again and again, and exports what it should be.

    Examples:
    fleetsim watch --prometheus http://localhost:9090 --scenario job.yaml
    fleetsim watch --prometheus https://mimir/prometheus --listen 0.0.0.0:9105 --selector 'job="rollout"'
    fleetsim watch --prometheus http://localhost:9090 --once --json
    fleetsim watch --log train.log --every 30s

    Reads only, recommends from fresh data only, and changes nothing itself: KEDA or an HPA acts on
    fleetsim_recommended_instances. docs/watch.md has the rules, and both manifests.
    """
    from fleetsim.cli.output import show, show_json

    if asked.log is not None:
        follow(asked, export)
        return
    if not export.once:
        serve(asked, export.listen)
        return
    found = look_once(asked, logged)
    show_json(found.document()) if export.json_ else show(found.view())


def logged(text: str) -> None:
    """A line on stderr, with the time: it is a log. Nobody may be there to read it any longer."""
    from datetime import UTC, datetime

    with suppress(OSError):
        say(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}", err=True)


def follow(asked: FleetWatch, export: Export) -> None:
    """Follows a log until SIGTERM or Ctrl-C; nothing is exported."""
    from fleetsim.errors import InputError, Problem
    from fleetsim.watch.watch import WallClock

    if export.once:
        rule, remedy = "one look at a log is a replay", f"fleetsim replay --from {asked.log}"
        raise InputError([Problem("--once", asked.log, rule, remedy)])
    clock = WallClock()
    watching = log_watch(asked, clock, logged)
    with _ended_by_signal(clock):
        logged(f"following {asked.log}, looking every {asked.every}")
        watching.run()


@contextmanager
def _ended_by_signal(clock: WallClock) -> Iterator[None]:
    """SIGTERM ends what is under way, cleanly."""

    def end(number: int, frame: Any) -> None:
        clock.stop()
        raise Stopped

    signal.signal(signal.SIGTERM, end)
    with suppress(Stopped):
        yield
    logged("ended")


def serve(asked: FleetWatch, listen: str) -> None:
    """Exports until SIGTERM, which is a clean end, or Ctrl-C."""
    from fleetsim.watch.exporter import Exporter, is_loopback, parse_listen
    from fleetsim.watch.watch import WallClock

    clock = WallClock()
    watching = watcher(asked, clock, logged)
    host, port = parse_listen(listen)
    with _ended_by_signal(clock), Exporter(watching.status, host, port) as exporter:
        logged(f"exporting on http://{exporter.address}/metrics, looking every {watching.every_s:g} s")
        if not is_loopback(host):
            logged(f"{host} is open to others: what is exported has no secrets, and nothing can be changed through it")
        watching.run()
