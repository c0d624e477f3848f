"""`fleetsim calibrate --url`: from a URL to raw records."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from fleetsim.calibrate.engine_flags import GivenFlags
from fleetsim.calibrate.server.address import Address, Key, address_of, key_of
from fleetsim.dataclass import dataclass
from fleetsim.errors import OutsideError

if TYPE_CHECKING:
    from fleetsim.calibrate.raw import RawWriter
    from fleetsim.calibrate.server.client import Client
    from fleetsim.calibrate.server.guard import Guard
    from fleetsim.calibrate.server.http_player import HttpPlayer
    from fleetsim.calibrate.server.identity import Identity
    from fleetsim.calibrate.server.metrics import Gauges
    from fleetsim.calibrate.server.session import CalibrationSession

TIMEOUT_S = 120.0
MOST_STREAMS = 1280
PROBE_SHARE = 0.3  # of the budget, at most, for finding out what a server does not say
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
    asyncio.run(_measure(address, key, writer, how))


async def _measure(address: Address, key: Key, writer: RawWriter, how: ServerRun) -> None:
    from fleetsim.calibrate.server.client import Client, RefusedError
    from fleetsim.calibrate.server.dialect import Dialect
    from fleetsim.calibrate.server.guard import Guard
    from fleetsim.calibrate.server.http_player import HttpPlayer
    from fleetsim.calibrate.server.identity import choose_model, identify, models_of
    from fleetsim.calibrate.server.metrics import gauges_of
    from fleetsim.calibrate.server.plan import batches, sweep
    from fleetsim.calibrate.server.probe import dialect_of
    from fleetsim.calibrate.server.prompts import Prompts
    from fleetsim.calibrate.server.session import CalibrationSession

    given = how.given

    def say(text: str) -> None:
        how.tell(text)
        writer.put("note", note=text)

    async with Client(address, key, how.timeout_s) as client:
        began = asyncio.get_running_loop().time()
        how.tell(f"asking {address.shown} what it serves")
        served = choose_model(await models_of(client), given.model, address.shown)

        async def read() -> Gauges | None:
            status, _, text = await client.get(address.own("metrics"))
            return gauges_of(text) if status == 200 else None

        guard = Guard(read, address.shown, how.yes, say)
        gauges = await guard.first()
        known = await identify(client, served, gauges)

        def count(choices: int) -> None:
            guard.sent += choices

        player = HttpPlayer(client, Dialect(served["id"], {}, Prompts(0)), count, how.timeout_s)
        dialect = await dialect_of(client, served["id"], secrets.randbits(48), player)
        player.dialect = dialect
        at_once = _streams_at_once()
        began += player.now() - asyncio.get_running_loop().time()  # on the player's clock from here on
        await _probe(known, given, player, guard, at_once, began + PROBE_SHARE * how.budget_s, how.tell)
        known.settle(given)
        limits = known.limits()
        writer.put("start", **known.start_record(), **_drafts_before(gauges), client=dialect.described())
        if dialect.ends_early:
            say("the server ends responses early (it does not honour ignore_eos): lengths are what came")
        drafting = gauges is not None and gauges.drafts is not None
        session = CalibrationSession(
            player, guard, writer, limits, how.tell, how.done, began, how.budget_s, together=known.together,
            caching=bool(known.prefix_caching), drafting=drafting, refusals=(RefusedError,),
        )  # fmt: skip
        loads = sweep(limits, quick=how.quick, seed=how.seed, at_once=at_once)
        kept_out = batches(limits, quick=how.quick, seed=how.seed, at_once=at_once, cached=bool(known.prefix_caching))

        async def sync() -> None:
            await _sync(client, player, session, limits.max_num_seqs)

        await session.run(loads, kept_out, sync if how.measure_sync else None)
        if client.limited:
            say(f"the server answered 429 to {client.limited} requests; they were sent again")


def _drafts_before(gauges: Gauges | None) -> dict[str, Any]:
    """What the server's own users had drafted before, for its `start` record."""
    return {} if gauges is None or gauges.drafts is None else {"drafts": gauges.drafts.record()}


async def _probe(
    known: Identity,
    given: GivenFlags,
    player: HttpPlayer,
    guard: Guard,
    at_once: int,
    deadline_s: float,
    tell: Callable[[str], None],
) -> None:
    """Experiments for limits that neither the server nor the user says."""
    from fleetsim.calibrate.server.probe import budget_of, slots_of

    if known.max_num_seqs is None and given.max_num_seqs is None:
        tell("trying how many requests run at once")
        await guard.idle()
        blocks, size = (
            (known.num_gpu_blocks or known.kv_blocks or given.kv_blocks),
            known.block_size or given.block_size,
        )
        room = blocks * size if blocks and size else 10**9
        found = await slots_of(player, at_once, deadline_s, room)
        if found is not None:
            known.max_num_seqs, bounded = found
            what = "as many ran at once" if bounded else "so many ran at once, more were not tried"
            known.assumed.append(f"max_num_seqs={known.max_num_seqs}: the server does not say it; {what}")
    if known.max_num_batched_tokens is None and given.max_num_batched_tokens is None:
        tell("trying in which pieces a prompt is computed")
        await guard.idle()
        longest = known.max_model_len or given.max_model_len or 4096
        budget = await budget_of(player, longest, 999_999, deadline_s)
        if budget is not None:
            known.max_num_batched_tokens = budget
            known.assumed.append(
                f"max_num_batched_tokens={budget}: the server does not say it; a prompt came in pieces of it"
            )


async def _sync(client: Client, player: HttpPlayer, session: CalibrationSession, slots: int) -> None:
    from fleetsim.calibrate.server.control import can_pause, pause_and_resume
    from fleetsim.calibrate.server.play import Ask, Play

    if not await can_pause(client):
        session.note("sync: no /pause and /resume there (vLLM has them with VLLM_SERVER_DEV_MODE=1)")
        return
    session.tell("pausing and resuming")
    await session.watch.idle()
    streams = min(64, slots)
    most = min(4096, session.limits.max_model_len - 40)
    began = player.now()
    play = Play(tuple(Ask(i, 32, most) for i in range(streams)))
    found = await pause_and_resume(client, player, play, session.deadline_s)
    if found is None:
        session.note("sync: the server did not pause, or nothing ran that could be paused")
        return
    session.writer.put("phase", ph="sync", s=round(player.now() - began, 3), ok=True, res=found)


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
