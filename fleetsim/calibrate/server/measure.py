"""A server measured: how it wants to be asked, limits that it does not tell, its loads, and what a pause costs.

RL pauses a server between steps, keeping requests, and resumes it. vLLM with VLLM_SERVER_DEV_MODE=1 has POST
/pause?mode=keep and /resume (vllm/entrypoints/rl/online/api_router.py).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection

import numpy as np
from msgspec import Struct, field

from fleetsim import units
from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.loads import Load, Request
from fleetsim.calibrate.order import loads_in_turn
from fleetsim.calibrate.raw import RawWriter
from fleetsim.calibrate.server.client import Client, address_of, key_of
from fleetsim.calibrate.server.engine import ServerEngine
from fleetsim.calibrate.server.http_player import HttpPlayer
from fleetsim.calibrate.server.identity import Identity, choose_model, identify, models_of
from fleetsim.calibrate.server.metrics import Gauges, Guard, gauges_of
from fleetsim.calibrate.server.play import EXTRAS, Dialect, Play, Prompts
from fleetsim.calibrate.session import LoadRefusedError, measure
from fleetsim.errors import OutsideError

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


PROBE_TOKENS, PROBE_PROMPT = 16, 24
COMMON_BUDGETS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


async def dialect_of(client: Client, model: str, nonce: int, player: HttpPlayer) -> Dialect:
    """How the server wants its completions, found by asking. Raises OutsideError where it takes none of the ways.

    Token ids first, text where they are refused or not counted as what was sent; all extras first, then fewer.
    """
    refused: OutsideError | None = None
    for text in (False, True):
        for extras in EXTRAS:
            dialect = Dialect(model, dict(extras), Prompts(nonce, text))
            player.dialect = dialect
            try:
                played = await player.play(Play((Request(1, PROBE_PROMPT, PROBE_TOKENS),)), player.now() + 3600)
            except LoadRefusedError as error:
                refused = error
                continue
            stream = played.streams[0]
            if stream.tokens <= 0:
                refused = OutsideError(f"{client.root}: a completion came back without any token")
                continue
            if not text and stream.prompt_tokens != PROBE_PROMPT:
                refused = OutsideError(f"{client.root}: counts other prompt tokens than it was sent")
                break
            dialect.ends_early = stream.tokens < PROBE_TOKENS - 0.5
            dialect.counted_by = ("usage" if player.usage_counts else player.counted_by) if stream.exact else "spread"
            if not stream.exact:
                dialect.tokens_per_chunk = max(1.0, stream.tokens / max(1, len(stream.times)))
            if text:
                dialect.prompts.tokens_per_word = max(0.25, stream.prompt_tokens / PROBE_PROMPT)
            return dialect
    raise OutsideError(
        f"{client.root}: takes no way of asking for a completion that fleetsim knows; last answer: {refused}"
    )


async def slots_of(player: HttpPlayer, at_once: int, deadline_s: float, room_tokens: int) -> tuple[int, bool] | None:
    """How many requests run at once, from how many of many short ones make tokens while none ends, and whether that
    bounds them (otherwise only the client's own number did). None where the deadline came first. room_tokens: what the
    KV cache holds, as far as known.
    """
    most, prompt = 2048, 16
    ask = min(at_once, max(1, room_tokens // (prompt + 128)))
    for n in sorted({min(64, ask), min(320, ask), ask}):
        played = await player.play(Play(tuple(Request(i, prompt, most) for i in range(n)), window=4), deadline_s)
        if played.crowded and 0 < played.started < n:
            return played.started, True
        if played.cut or played.started < n:
            return None
    return ask, False


async def budget_of(player: HttpPlayer, longest: int, key: int, deadline_s: float) -> int | None:
    """max_num_batched_tokens, from the pieces in which a long prompt is computed beside one decoding stream.

    The stream's gaps are long while a piece is computed: prompt tokens over pieces bounds the budget from below and
    above, and the common value in between is taken. None where pieces cannot be told from ordinary iterations.
    """
    length = min(longest - 2, 32768)
    most = min(longest - 32, 512)
    if length < 512 or most < 64:
        return None
    base = Play((Request(0, 16, most),), then=(Request(key, length, 1),), gap=24)
    played = await player.play(base, deadline_s)
    if len(played.base) != 1 or len(played.late) != 1 or not played.late[0].times:
        return None
    t = np.asarray(played.base[0].times)
    late = played.late[0]
    gaps, ends = np.diff(t), t[1:]
    before = gaps[ends <= late.submitted_s]
    during = gaps[(ends > late.submitted_s) & (ends <= late.first_s + 0.25 * float(np.median(gaps)))]
    if len(before) < 8 or not len(during):
        return None
    pieces = int((during > 2.5 * float(np.median(before))).sum())
    if pieces < 2:
        return None
    # The last piece may be too short to be told from an ordinary iteration.
    fits = [b for b in COMMON_BUDGETS if pieces in (length // (b - 1), -(-length // (b - 1)))]
    return fits[0] if fits else None


async def try_limits(
    known: Identity,
    given: Calibrate,
    player: HttpPlayer,
    guard: Guard,
    at_once: int,
    deadline_s: float,
    tell: Callable[[str], None],
) -> None:
    """Experiments for limits that neither the server nor the user says."""
    if known.max_num_seqs is None and given.max_num_seqs is None:
        tell("trying how many requests run at once")
        await guard.idle()
        blocks = known.kv_blocks or given.kv_blocks or 0
        size = known.block_size or given.block_size or 0
        found = await slots_of(player, at_once, deadline_s, blocks * size or 10**9)
        if found is not None:
            known.max_num_seqs, bounded = found
            what = "as many ran at once" if bounded else "so many ran at once, more were not tried"
            known.assumed.append(f"max_num_seqs={known.max_num_seqs}: the server does not say it; {what}")
    if known.max_num_batched_tokens is None and given.max_num_batched_tokens is None:
        tell("trying in which pieces a prompt is computed")
        await guard.idle()
        longest = known.max_model_len or given.max_model_len or 4096
        known.max_num_batched_tokens = budget = await budget_of(player, longest, 999_999, deadline_s)
        if budget is not None:
            what = "a prompt came in pieces of it"
            known.assumed.append(f"max_num_batched_tokens={budget}: the server does not say it; {what}")


QUIET_S = 0.5  # without a token: frozen
RUN_S = 0.7
TRIES = 3


class _Arrivals(Struct):
    """When something came, while a play runs."""

    player: HttpPlayer
    last_s: float = -1.0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self) -> None:
        self.last_s = self.player.now()
        self.came.set()


async def measure_sync(client: Client, engine: ServerEngine, deadline_s: float) -> None:
    """Writes the `phase` record "sync" of a server that can be paused, else a note.

    It has the endpoints, and is not paused already by somebody else.
    """
    answer = await client.get_json("is_paused")
    if not isinstance(answer, dict) or answer.get("is_paused") is not False:
        engine.note("sync: no /pause and /resume there (vLLM has them with VLLM_SERVER_DEV_MODE=1)")
        return
    engine.tell("pausing and resuming")
    await engine.watch.idle()
    began, most = engine.now(), min(4096, engine.limits.max_model_len - 40)
    play = Play(tuple(Request(i, 32, most) for i in range(min(64, engine.limits.max_num_seqs))))
    found = await pause_and_resume(client, engine.player, play, deadline_s)
    if found is None:
        engine.note("sync: the server did not pause, or nothing ran that could be paused")
        return
    engine.writer.put("phase", ph="sync", s=round(engine.now() - began, 3), ok=True, res=found)


async def pause_and_resume(
    client: Client, player: HttpPlayer, play: Play, deadline_s: float
) -> dict[str, float | int] | None:
    """Seconds from asking for a pause until nothing comes any more, and from resuming until the next token.

    The fields of a `phase` record named sync. None where the server refuses to pause or no stream got going. However
    this ends, the server is resumed. Raises OutsideError where it cannot be.
    """
    arrivals = _Arrivals(player)
    playing = asyncio.ensure_future(player.play(play, deadline_s, arrivals))
    playing.add_done_callback(lambda _: arrivals.came.set())
    try:
        await _next(arrivals, client.timeout_s)
        await asyncio.sleep(RUN_S)
        if playing.done():
            playing.result()
            return None
        asked, before = player.now(), arrivals.last_s
        try:
            status, _ = await client.post("pause?mode=keep&clear_cache=false")
            answered = player.now()
            if status != 200:
                return None
            while player.now() - max(arrivals.last_s, answered) < QUIET_S:
                await asyncio.sleep(QUIET_S / 5)
            frozen = max(answered, arrivals.last_s) if arrivals.last_s > before else answered
        finally:
            arrivals.came.clear()
            resumed = player.now()
            await resume(client)
        await _next(arrivals, client.timeout_s)
        next_s = arrivals.last_s if arrivals.last_s >= resumed else player.now()
        return {
            "pause_keep_s": round(frozen - asked, 6),
            "resume_to_next_result_s": round(next_s - resumed, 6),
            "streams": len(play.asks),
        }
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


async def _next(arrivals: _Arrivals, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(arrivals.came.wait(), timeout_s)
    except TimeoutError:
        raise OutsideError(f"no token for {timeout_s:g} s after resuming; is the server alive?") from None


async def resume(client: Client) -> None:
    """Resumes, whatever happened before. Raises OutsideError with the command that does it by hand."""
    said = ""
    for attempt in range(TRIES):
        try:
            status, said = await client.post("resume")
            if status == 200:
                return
        except OutsideError as error:
            said = str(error)
        await asyncio.sleep(0.2 * (attempt + 1))
    raise OutsideError(
        f"{client.root}: is paused and does not resume ({said[:200]}); run: curl -X POST {client.root}/resume"
    )
