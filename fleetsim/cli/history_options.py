"""Options that the commands which read history share: where from, which window, which metrics, how to get in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fleetsim.history.prometheus import Prometheus

SOURCE, ACCESS = "The history", "Getting in"

PrometheusUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Prometheus, Thanos, Mimir or VictoriaMetrics.", rich_help_panel=SOURCE),
]
Start = Annotated[
    str | None, typer.Option(metavar="TIME", help="-6h, -1d12h, an ISO time (UTC), unix.", rich_help_panel=SOURCE)
]
End = Annotated[str | None, typer.Option(metavar="TIME", help="As --start; or now.", rich_help_panel=SOURCE)]
Step = Annotated[
    str, typer.Option(metavar="SPAN", help="Grid, as 15s; auto = the scrape interval.", rich_help_panel=SOURCE)
]
Selector = Annotated[
    str, typer.Option(metavar="LABELS", help="""Which engines: 'job="rollout"'.""", rich_help_panel=SOURCE)
]
Mapping_ = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="SIGNAL=METRIC", help="A metric of yours. Repeatable.", rich_help_panel=SOURCE),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="Holds the bearer token (or FLEETSIM_PROMETHEUS_TOKEN).", rich_help_panel=ACCESS),
]
BasicAuthFile = Annotated[
    Path | None,
    typer.Option(help="Holds user:password (or FLEETSIM_PROMETHEUS_USER, _PASSWORD).", rich_help_panel=ACCESS),
]
OrgId = Annotated[str | None, typer.Option(help="X-Scope-OrgID, for Mimir.", rich_help_panel=ACCESS)]
CaFile = Annotated[Path | None, typer.Option(help="CA of the server's certificate.", rich_help_panel=ACCESS)]
ClientCert = Annotated[Path | None, typer.Option(help="Our certificate.", rich_help_panel=ACCESS)]
ClientKey = Annotated[Path | None, typer.Option(help="Its key.", rich_help_panel=ACCESS)]
SkipVerify = Annotated[
    bool, typer.Option("--insecure-skip-verify", help="Any certificate will do.", rich_help_panel=ACCESS)
]
Timeout = Annotated[float, typer.Option(help="Seconds for one answer.", rich_help_panel=ACCESS)]


@dataclass(frozen=True, slots=True)
class AccessFlags:
    """What a command line says about getting in."""

    token_file: Path | None = None
    basic_auth_file: Path | None = None
    org_id: str | None = None
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    skip_verify: bool = False
    timeout_s: float = 60.0


def connect(url: str, flags: AccessFlags) -> Prometheus:
    """A Prometheus, not contacted yet. Raises InputError (address, files), OutsideError without the extra."""
    from fleetsim.history.access import access_from
    from fleetsim.history.prometheus import Prometheus

    access = access_from(
        token_file=flags.token_file,
        basic_auth_file=flags.basic_auth_file,
        org_id=flags.org_id,
        ca_file=flags.ca_file,
        client_cert=flags.client_cert,
        client_key=flags.client_key,
        skip_verify=flags.skip_verify,
        timeout_s=flags.timeout_s,
    )
    return Prometheus(url, access)


def step_of(text: str, flag: str = "--step") -> float | None:
    """Seconds between values; None for auto, the scrape interval. Raises InputError."""
    from fleetsim.errors import InputError, Problem
    from fleetsim.history.window import parse_span

    if text == "auto":
        return None
    seconds = parse_span(text)
    if seconds is None or seconds <= 0:
        raise InputError([Problem(flag, text, "must be auto or a span of time", "for example 15s, 1m")])
    return seconds
