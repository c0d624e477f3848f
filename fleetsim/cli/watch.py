"""`fleetsim watch`: looks at the fleet again and again, and exports what it should be."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

from fleetsim.cli.lines import say
from fleetsim.dataclass import dataclass
from fleetsim.job.question import Option
from fleetsim.job.settings import RUN
from fleetsim.watch.ask import FleetWatch, log_watch, watcher

if TYPE_CHECKING:
    from fleetsim.watch.ask import Watcher
    from fleetsim.watch.watch import WallClock


class Stopped(BaseException):
    """SIGTERM: raised in whatever the main thread does, so that a long evaluation does not hold up the end."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Where what is found goes."""

    listen: Annotated[
        str,
        Option("Where to export; without a host, loopback only.", None, metavar="[HOST]:PORT", after="prometheus"),
    ] = ":9105"
    once: Annotated[bool, Option("One evaluation, printed; no export.", None)] = False
    json_: Annotated[bool, Option("One JSON document.", RUN)] = False


def watch(asked: FleetWatch, export: Export) -> None:
    """Looks at the fleet again and again, and exports what it should be.

    Examples:

    [bold]fleetsim watch --prometheus http://localhost:9090 --scenario job.yaml[/bold]

    [bold]fleetsim watch --prometheus https://mimir/prometheus --listen 0.0.0.0:9105 --selector 'job="rollout"'[/bold]

    [bold]fleetsim watch --prometheus http://localhost:9090 --once --json[/bold]

    [bold]fleetsim watch --log train.log --every 30s[/bold]

    Reads only, recommends from fresh data only, and changes nothing itself: KEDA or an HPA acts on
    fleetsim_recommended_instances. docs/watch.md has the rules, and both manifests.
    """
    from fleetsim.cli.output import show, show_json

    if asked.log is not None:
        follow(asked, export)
        return
    found = watcher(asked, logged)
    if not export.once:
        serve(found, export.listen)
    elif export.json_:
        show_json(found.once().document())
    else:
        show(found.once().view())


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
    logged("ended")


@contextmanager
def _ended_by_signal(clock: WallClock) -> Iterator[None]:
    """SIGTERM ends what is under way, cleanly."""

    def end(number: int, frame: Any) -> None:
        clock.stop()
        raise Stopped

    signal.signal(signal.SIGTERM, end)
    with suppress(Stopped):
        yield


def serve(found: Watcher, listen: str) -> None:
    """Exports until SIGTERM, which is a clean end, or Ctrl-C."""
    from fleetsim.watch.exporter import Exporter, is_loopback, parse_listen
    from fleetsim.watch.watch import WallClock

    host, port = parse_listen(listen)
    clock = WallClock()
    watching = found.watch(clock)

    with _ended_by_signal(clock), Exporter(watching.status, host, port) as exporter:
        logged(f"exporting on http://{exporter.address}/metrics, looking every {found.options.every_s:g} s")
        if not is_loopback(host):
            logged(f"{host} is open to others: what is exported has no secrets, and nothing can be changed through it")
        watching.run()
    logged("ended")
