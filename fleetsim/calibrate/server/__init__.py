"""A running OpenAI-compatible server, measured from outside: vLLM, SGLang, TensorRT-LLM, or what speaks like them.

    client -> identity, probe -> loads_in_turn -> calibrate/session.py -> engine -> http_player -> records

A client sees no iterations, only when tokens arrive. Three things follow from that: a decode iteration is the time
between two tokens of a stream while exactly b streams decode; a prompt is the time to its first token, in which the
request's own fixed cost lies as well (`ovh`); a mixture is the gap in the others' streams while a new prompt is
computed.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from fleetsim import units
from fleetsim.errors import OutsideError

if TYPE_CHECKING:
    from fleetsim.calibrate.ask import Calibrate
    from fleetsim.calibrate.loads import Load
    from fleetsim.calibrate.raw import RawWriter
    from fleetsim.calibrate.server.client import Client
    from fleetsim.calibrate.server.engine import ServerEngine
    from fleetsim.calibrate.server.metrics import Gauges

TIMEOUT_S = 120.0
MOST_STREAMS = 1280
PROBE_SHARE = 0.3  # of the budget, at most, for finding out what a server does not say
IN_TIME = 0.98  # of the budget: what is under way at its end takes a moment to stop
SPARE_FILES = 96  # descriptors that streams leave to everything else

Tell = Callable[[str], None]


def measure_server(
    asked: Calibrate,
    writer: RawWriter,
    *,
    done: Collection[str] = (),
    tell: Tell = lambda text: None,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Measures a server and writes raw records: a `start`, `obs` and `seg` of the sweeps, kept-out batches.

    done: keys of loads that an earlier session ended (fleetsim.calibrate.loads.key_of). timeout_s: without a single
    token, after which the server counts as hung. Raises InputError for a URL, key or model that cannot be, OutsideError
    for what the server does (refuses, dies, hangs, serves others) with what can be done about it. Whatever was measured
    before lies in the records.
    """
    try:
        import aiohttp  # noqa: F401 - the package needs both, this is where it is said how to get them
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise OutsideError(
            f"measuring a server needs {error.name}, which is not installed; pip install 'fleetsim[server]'"
        ) from None
    from fleetsim.calibrate.server.client import Client, address_of, key_of
    from fleetsim.calibrate.server.probe import measure_sync
    from fleetsim.calibrate.session import measure

    def say(text: str) -> None:
        tell(text)
        writer.put("note", note=text)

    address, key = address_of(str(asked.url)), key_of(asked.api_key)
    began, client = time.perf_counter(), Client(address, key, timeout_s)
    with asyncio.Runner() as runner:
        runner.run(client.open())
        try:
            engine, loads = runner.run(_engine(client, writer, asked, tell, say, runner, began))
            left_s = IN_TIME * asked.seconds - (engine.now() - began)

            def sync(until_s: float) -> None:
                runner.run(measure_sync(client, engine, until_s))

            measure(
                engine, loads, writer, budget_s=left_s, done=done, tell=tell, sync=sync if asked.measure_sync else None
            )
            runner.run(engine.watch.idle())  # nobody came in the last of them
        finally:
            runner.run(client.close())
    if client.limited:
        say(f"the server answered 429 to {units.plural(client.limited, 'request')}, sent again")


async def _engine(
    client: Client, writer: RawWriter, asked: Calibrate, tell: Tell, say: Tell, runner: asyncio.Runner, began: float
) -> tuple[ServerEngine, list[Load]]:
    """Finds out what the server is and how it wants to be asked; the loads that it is measured with."""
    from fleetsim.calibrate.order import loads_in_turn
    from fleetsim.calibrate.server.engine import ServerEngine
    from fleetsim.calibrate.server.http_player import HttpPlayer
    from fleetsim.calibrate.server.identity import choose_model, identify, models_of
    from fleetsim.calibrate.server.metrics import Guard, gauges_of
    from fleetsim.calibrate.server.probe import dialect_of, try_limits

    shown = client.root
    tell(f"asking {shown} what it serves")
    served = choose_model(await models_of(client), asked.model, shown)

    async def read() -> Gauges | None:
        status, _, text = await client.get("metrics")
        return gauges_of(text) if status == 200 else None

    guard = Guard(read, shown, asked.yes, say)
    gauges = await guard.first()
    known = await identify(client, served, gauges)
    player = HttpPlayer(client, guard.count)
    player.dialect = dialect = await dialect_of(client, served["id"], secrets.randbits(48), player)
    at_once = _streams_at_once()
    await try_limits(known, asked, player, guard, at_once, began + PROBE_SHARE * asked.seconds, tell)
    known.settle(asked)
    if dialect.ends_early:
        say("the server ends responses early (it does not honour ignore_eos): lengths are what came")
    drafts = None if gauges is None else gauges.drafts
    if drafts is not None:
        text = "mixed: left out, the iterations of a server that drafts cannot be counted between two tokens"
        writer.put("note", note=text)
    before = {} if drafts is None else {"drafts": drafts.record()}  # what the server's own users had drafted
    start = {**known.start_record(), **before, "client": dialect.described()}
    limits, cached = known.limits(), bool(known.prefix_caching)
    engine = ServerEngine(
        player, guard, writer, limits, start, tell, runner.run, together=known.together, drafting=bool(drafts)
    )
    loads = loads_in_turn(
        limits, quick=asked.quick, seed=asked.seed, at_once=at_once, cached=cached, mixed=drafts is None
    )
    return engine, loads


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
