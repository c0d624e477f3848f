"""Small experiments before the sweep: the server's dialect, and limits that it does not tell."""

from __future__ import annotations

import numpy as np

from fleetsim.calibrate.server.client import Client, RefusedError
from fleetsim.calibrate.server.dialect import EXTRAS, Dialect
from fleetsim.calibrate.server.http_player import HttpPlayer
from fleetsim.calibrate.server.play import Ask, Play, Player
from fleetsim.calibrate.server.prompts import Prompts
from fleetsim.errors import OutsideError

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
                played = await player.play(Play((Ask(1, PROBE_PROMPT, PROBE_TOKENS),)), player.now() + 3600)
            except RefusedError as error:
                refused = error
                continue
            stream = played.streams[0]
            if stream.tokens <= 0:
                refused = OutsideError(f"{client.address.shown}: a completion came back without any token")
                continue
            if not text and stream.prompt_tokens != PROBE_PROMPT:
                refused = OutsideError(f"{client.address.shown}: counts other prompt tokens than it was sent")
                break
            dialect.ends_early = stream.tokens < PROBE_TOKENS - 0.5
            dialect.counted_by = ("usage" if player.usage_counts else player.counted_by) if stream.exact else "spread"
            if not stream.exact:
                dialect.tokens_per_chunk = max(1.0, stream.tokens / max(1, len(stream.times)))
            if text:
                dialect.prompts.tokens_per_word = max(0.25, stream.prompt_tokens / PROBE_PROMPT)
            return dialect
    raise OutsideError(
        f"{client.address.shown}: takes no way of asking for a completion that fleetsim knows; last answer: {refused}"
    )


async def slots_of(player: Player, at_once: int, deadline_s: float, room_tokens: int) -> tuple[int, bool] | None:
    """How many requests run at once, from how many of many short ones make tokens while none ends, and whether that
    bounds them (otherwise only the client's own number did). None where the deadline came first. room_tokens: what the
    KV cache holds, as far as known.
    """
    most, prompt = 2048, 16
    ask = min(at_once, max(1, room_tokens // (prompt + 128)))
    for n in sorted({min(64, ask), min(320, ask), ask}):
        played = await player.play(Play(tuple(Ask(i, prompt, most) for i in range(n)), window=4), deadline_s)
        if played.crowded and 0 < played.started < n:
            return played.started, True
        if played.cut or played.started < n:
            return None
    return ask, False


async def budget_of(player: Player, longest: int, key: int, deadline_s: float) -> int | None:
    """max_num_batched_tokens, from the pieces in which a long prompt is computed beside one decoding stream.

    The stream's gaps are long while a piece is computed: prompt tokens over pieces bounds the budget from below and
    above, and the common value in between is taken. None where pieces cannot be told from ordinary iterations.
    """
    length = min(longest - 2, 32768)
    most = min(longest - 32, 512)
    if length < 512 or most < 64:
        return None
    base = Play((Ask(0, 16, most),), then=(Ask(key, length, 1),), gap=24)
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
