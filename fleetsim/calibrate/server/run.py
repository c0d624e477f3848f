"""`fleetsim calibrate --url`: from a URL to raw records."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetsim.calibrate.facts import GivenFlags
from fleetsim.calibrate.server.address import address_of, key_of
from fleetsim.errors import OutsideError

if TYPE_CHECKING:
    from fleetsim.calibrate.loads import Load
    from fleetsim.calibrate.raw import RawWriter
    from fleetsim.calibrate.server.client import Client
    from fleetsim.calibrate.server.engine import ServerEngine
    from fleetsim.calibrate.server.metrics import Gauges

TIMEOUT_S = 120.0
MOST_STREAMS = 1280
PROBE_SHARE = 0.3  # of the budget, at most, for finding out what a server does not say
IN_TIME = 0.98  # of the budget: what is under way at its end takes a moment to stop
SYNC_S = 30.0  # kept for a pause, or a fifth of what is left
SPARE_FILES = 96  # descriptors that streams leave to everything else


@dataclass(frozen=True, slots=True)
class ServerRun:
    """What is measured, and how.

    given: what the user knows of the engine; what the server says of itself goes first. yes: measure although others
    may be on the server. budget_s: seconds for everything. done: keys of loads that an earlier session ended
    (fleetsim.calibrate.loads.key_of). timeout_s: without a single token, after which the server counts as hung.
    """

    url: str
    given: GivenFlags = field(default_factory=GivenFlags)
    api_key: str | None = None
    yes: bool = False
    quick: bool = False
    budget_s: float = 600.0
    done: frozenset[str] = frozenset()
    tell: Callable[[str], None] = lambda text: None
    measure_sync: bool = False
    timeout_s: float = TIMEOUT_S
    seed: int = 0


def measure_server(how: ServerRun, writer: RawWriter) -> None:
    """Measures a server and writes raw records: a `start`, `obs` and `seg` of the sweeps, kept-out batches.

    Raises InputError for a URL, key or model that cannot be, OutsideError for what the server does (refuses, dies,
    hangs, serves others) with what can be done about it. Whatever was measured before lies in the records.
    """
    address, key = address_of(how.url), key_of(how.api_key)
    try:
        import aiohttp  # noqa: F401 - the package needs both, this is where it is said how to get them
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise OutsideError(
            f"measuring a server needs {error.name}, which is not installed; pip install 'fleetsim[server]'"
        ) from None
    from fleetsim.calibrate.server.client import Client
    from fleetsim.calibrate.server.probe import measure_sync
    from fleetsim.calibrate.session import measure

    began, client = time.perf_counter(), Client(address, key, how.timeout_s)
    with asyncio.Runner() as runner:
        runner.run(client.open())
        try:
            engine, loads = runner.run(_engine(client, writer, how, runner, began))
            left_s = IN_TIME * how.budget_s - (engine.now() - began)
            sync_s = min(SYNC_S, left_s / 5) if how.measure_sync else 0.0
            measure(engine, loads, writer, budget_s=left_s - sync_s, done=how.done, tell=how.tell)
            if how.measure_sync:
                runner.run(measure_sync(client, engine, engine.now() + sync_s))
            runner.run(engine.watch.idle())  # nobody came in the last of them
        finally:
            runner.run(client.close())
    if client.limited:
        _say(how, writer, f"the server answered 429 to {client.limited} requests; they were sent again")


def _say(how: ServerRun, writer: RawWriter, text: str) -> None:
    how.tell(text)
    writer.put("note", note=text)


async def _engine(
    client: Client, writer: RawWriter, how: ServerRun, runner: asyncio.Runner, began: float
) -> tuple[ServerEngine, list[Load]]:
    """Finds out what the server is and how it wants to be asked; the loads that it is measured with."""
    from fleetsim.calibrate.server.engine import ServerEngine
    from fleetsim.calibrate.server.http_player import Dialect, HttpPlayer, Prompts
    from fleetsim.calibrate.server.identity import choose_model, identify, models_of
    from fleetsim.calibrate.server.metrics import Guard, gauges_of
    from fleetsim.calibrate.server.play import loads_in_turn
    from fleetsim.calibrate.server.probe import dialect_of, try_limits

    given, shown = how.given, client.address.shown
    how.tell(f"asking {shown} what it serves")
    served = choose_model(await models_of(client), given.model, shown)

    async def read() -> Gauges | None:
        status, _, text = await client.get(client.address.own("metrics"))
        return gauges_of(text) if status == 200 else None

    guard = Guard(read, shown, how.yes, lambda text: _say(how, writer, text))
    gauges = await guard.first()
    known = await identify(client, served, gauges)
    player = HttpPlayer(client, Dialect(served["id"], {}, Prompts(0)), guard.count, how.timeout_s)
    player.dialect = dialect = await dialect_of(client, served["id"], secrets.randbits(48), player)
    at_once = _streams_at_once()
    await try_limits(known, given, player, guard, at_once, began + PROBE_SHARE * how.budget_s, how.tell)
    known.settle(given)
    limits, cached = known.limits(), bool(known.prefix_caching)
    if dialect.ends_early:
        _say(how, writer, "the server ends responses early (it does not honour ignore_eos): lengths are what came")
    drafts = None if gauges is None else gauges.drafts
    if drafts is not None:
        text = "mixed: left out, the iterations of a server that drafts cannot be counted between two tokens"
        writer.put("note", note=text)
    before = {} if drafts is None else {"drafts": drafts.record()}  # what the server's own users had drafted
    start = {**known.start_record(), **before, "client": dialect.described()}
    engine = ServerEngine(
        player, guard, writer, limits, start, how.tell, runner.run, together=known.together, drafting=bool(drafts)
    )
    return engine, loads_in_turn(
        limits, quick=how.quick, seed=how.seed, at_once=at_once, cached=cached, mixed=drafts is None
    )


def _streams_at_once() -> int:
    """Connections that this process may hold; raises its own limit as far as it may."""
    try:
        import resource
    except ImportError:  # not on Windows, whose limit is higher
        return 400
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_STREAMS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_STREAMS if soft == resource.RLIM_INFINITY else max(8, min(MOST_STREAMS, soft - SPARE_FILES))
