"""`fleetsim watch`: looks at the fleet again and again, and exports what it should be."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetsim.cli.history_options import (
    BasicAuthFile,
    CaFile,
    ClientCert,
    ClientKey,
    Mapping_,
    OrgId,
    Selector,
    SkipVerify,
    Step,
    Timeout,
    TokenFile,
    connect,
)
from fleetsim.cli.options import Json, ScenarioFile, Settings
from fleetsim.cli.say import say
from fleetsim.errors import InputError, Problem
from fleetsim.job.history_fields import SOURCE, AccessFields, step_of

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.job import Job
    from fleetsim.replay.change.plan_fields import Plan
    from fleetsim.watch.evaluation import Looker
    from fleetsim.watch.watch import WatchOptions

RULE = "When it recommends"


class Stopped(BaseException):
    """SIGTERM: raised in whatever the main thread does, so that a long evaluation does not hold up the end."""


def watch(
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Prometheus, Thanos, Mimir or VictoriaMetrics.", rich_help_panel=SOURCE)
    ],
    listen: Annotated[
        str, typer.Option(metavar="[HOST]:PORT", help="Where to export; without a host, loopback only.")
    ] = ":9105",
    scenario: ScenarioFile = None,
    set_: Settings = None,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN.json",
            help="Begin with this plan's count, targets and prices.",
        ),
    ] = None,
    every: Annotated[str, typer.Option(help="Time between two evaluations.", rich_help_panel=RULE)] = "60s",
    window: Annotated[str, typer.Option(help="How far back each one reads.", rich_help_panel=SOURCE)] = "1h",
    step: Step = "auto",
    selector: Selector = "",
    map_: Mapping_ = None,
    token_file: TokenFile = None,
    basic_auth_file: BasicAuthFile = None,
    org_id: OrgId = None,
    ca_file: CaFile = None,
    client_cert: ClientCert = None,
    client_key: ClientKey = None,
    insecure_skip_verify: SkipVerify = False,
    timeout: Timeout = 30.0,
    stale_after: Annotated[
        str, typer.Option(help="Age of the newest sample from which nothing is recommended.", rich_help_panel=RULE)
    ] = "5m",
    up_after: Annotated[int, typer.Option(help="Evaluations in a row for a way up.", rich_help_panel=RULE)] = 3,
    down_after: Annotated[int, typer.Option(help="And for a way down.", rich_help_panel=RULE)] = 15,
    down_share: Annotated[
        float, typer.Option(help="Share of the instances that a way down is worth.", rich_help_panel=RULE)
    ] = 0.05,
    cool_down: Annotated[str, typer.Option(help="No change for so long after one.", rich_help_panel=RULE)] = "10m",
    resize_on: Annotated[
        float, typer.Option(help="Size anew when an input moved by this share.", rich_help_panel=RULE)
    ] = 0.05,
    once: Annotated[bool, typer.Option("--once", help="One evaluation, printed; no export.")] = False,
    json_: Json = False,
) -> None:
    """Looks at the fleet again and again, and exports what it should be.

    Examples:

    [bold]fleetsim watch --prometheus http://localhost:9090 --scenario job.yaml[/bold]

    [bold]fleetsim watch --prometheus https://mimir/prometheus --listen 0.0.0.0:9105 --selector 'job="rollout"'[/bold]

    [bold]fleetsim watch --prometheus http://localhost:9090 --once --json[/bold]

    Reads only, recommends from fresh data only, and changes nothing itself: KEDA or an HPA acts on
    fleetsim_recommended_instances. docs/watch.md has the rules, and both manifests.
    """
    from fleetsim.history.mapped import parse_map
    from fleetsim.job.job import job_from_flags
    from fleetsim.replay.change.plan_fields import load_plan
    from fleetsim.replay.known import facts_of
    from fleetsim.watch.evaluation import Looker, LookOptions
    from fleetsim.watch.hysteresis import Damping
    from fleetsim.watch.watch import WatchOptions

    held = None if plan is None else load_plan(plan)
    every_s = span("--every", every)
    options = WatchOptions(
        every_s=every_s,
        stale_s=span("--stale-after", stale_after),
        damping=Damping(up_after, down_after, down_share, span("--cool-down", cool_down)),
        start=None if held is None else held.planned,
    )
    job = job_from_flags(scenario, set_ or (), {})
    base = job.scenario if scenario is not None or set_ else None
    if held is not None and scenario is None:
        base = decided(held, job)
    facts = facts_of(set_ or ())
    if "fleet.instances" in facts:
        say("fleet.instances as set is not used: a watcher counts them, they are what a resize changes")
    access = AccessFields(
        token_file, basic_auth_file, org_id, ca_file, client_cert, client_key, insecure_skip_verify, timeout
    )
    look = Looker(
        connect(prometheus, access),
        LookOptions(
            window_s=span("--window", window),
            selector=selector,
            mapping=parse_map(map_ or ()),
            step_s=step_of(step),
            base=base,
            given=job.given,
            facts=facts,
            from_file=scenario is not None,
            resize_on=resize_on,
        ),
        logged,
    )
    if once:
        print_once(look, json_)
    else:
        serve(look, options, listen)


def span(flag: str, text: str) -> float:
    """Seconds of "60s", "1h" or "90". Raises InputError."""
    from fleetsim.history.window import parse_span

    try:
        seconds = parse_span(text.strip()) if not text.strip().isdigit() else float(text)
    except ValueError:
        seconds = None
    if seconds is None:
        raise InputError([Problem(flag, text, "is no span of time", "write 60s, 5m or 1h")])
    return seconds


def logged(text: str) -> None:
    """A line on stderr, with the time: it is a log."""
    from datetime import UTC, datetime

    say(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}", err=True)


def decided(plan: Plan, job: Job) -> Scenario:
    """What the command line says, with the plan's targets and prices where it says none: no window shows them."""
    from fleetsim.config.load import with_changes

    found = {
        f"{section}.{name}": value
        for section in ("targets", "cost")
        for name, value in getattr(plan.scenario, section).model_dump().items()
    }
    return with_changes(job.scenario, {path: value for path, value in found.items() if path not in job.given})


def print_once(look: Looker, as_json: bool) -> None:
    """One evaluation on stdout."""
    import time

    from fleetsim.cli.output import show_json
    from fleetsim.watch.told import look_document, look_lines

    now = time.time()
    found = look(now)
    if as_json:
        show_json(look_document(found, now))
    else:
        say("\n".join(look_lines(found, now)))


def serve(look: Looker, options: WatchOptions, listen: str) -> None:
    """Exports until SIGTERM, which is a clean end, or Ctrl-C."""
    from fleetsim.watch.exporter import Exporter, is_loopback, parse_listen
    from fleetsim.watch.watch import WallClock, Watch

    host, port = parse_listen(listen)
    clock = WallClock()
    watching = Watch(look, clock, options, logged)

    def end(number: int, frame: Any) -> None:
        clock.stop()
        raise Stopped

    signal.signal(signal.SIGTERM, end)
    try:
        with Exporter(watching.status, host, port) as exporter:
            logged(f"exporting on http://{exporter.address}/metrics, looking every {options.every_s:g} s")
            if not is_loopback(host):
                logged(
                    f"{host} is open to others: what is exported has no secrets, and nothing can be changed through it"
                )
            watching.run()
    except Stopped:
        pass
    logged("ended")
