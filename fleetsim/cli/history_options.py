"""Options that the commands which read history share: where from, which window, which metrics, how to get in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.job.history_fields import ACCESS, SOURCE

if TYPE_CHECKING:
    from fleetsim.history.prometheus import Prometheus
    from fleetsim.job.history_fields import AccessFields

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


def connect(url: str, fields: AccessFields) -> Prometheus:
    """A Prometheus, not contacted yet. Raises InputError (address, files), OutsideError without the extra."""
    from fleetsim.history.prometheus import Prometheus

    return Prometheus(url, fields.access())
