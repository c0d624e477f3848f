"""`fleetsim serve`: a page to type into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fleetsim.cli.terminal import say
from fleetsim.job.settings import Option


@dataclass(frozen=True, kw_only=True)
class Served:
    """Where the page is served."""

    listen: Annotated[str, Option("Where to serve; without a host, loopback only.", None, metavar="[HOST]:PORT")] = (
        ":8765"
    )


def serve(asked: Served) -> None:
    """A page to type into: the job as a form, the answer and its curve while a slider moves.

    Examples:
    fleetsim serve
    fleetsim serve --listen 0.0.0.0:8765

    A link to the page holds the whole job. The server writes nothing and reads no file of this machine. Ctrl-C ends it.
    """
    import asyncio
    import signal

    from fleetsim.serve.app import Site
    from fleetsim.serve.app import serve as run
    from fleetsim.watch.exporter import is_loopback, parse_listen

    host, port = parse_listen(asked.listen)
    loopback = is_loopback(host)
    if not loopback:
        say(f"{host} is open to others: whoever reaches it can have jobs simulated here", err=True)

    async def until_ended() -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        await run(Site(loopback), host, port, lambda at: say(f"open {at}", err=True), ended)

    asyncio.run(until_ended())
