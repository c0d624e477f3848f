"""What RL does to a server between steps, measured where the server has it: pause keeping requests, then resume.

vLLM with VLLM_SERVER_DEV_MODE=1 has POST /pause?mode=keep and /resume (vllm/entrypoints/rl/online/api_router.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import field

from fleetsim.calibrate.server.client import Client
from fleetsim.calibrate.server.play import Play, Player
from fleetsim.dataclass import dataclass
from fleetsim.errors import OutsideError

QUIET_S = 0.5  # without a token: frozen
RUN_S = 0.7
TRIES = 3


@dataclass(slots=True)
class _Arrivals:
    """When something came, while a play runs."""

    player: Player
    first_s: float = -1.0
    last_s: float = -1.0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self) -> None:
        self.last_s = self.player.now()
        if self.first_s < 0:
            self.first_s = self.last_s
        self.came.set()


async def can_pause(client: Client) -> bool:
    """Whether the server has the endpoints, and is not paused already by somebody else."""
    answer = await client.get_json(client.address.own("is_paused"))
    return isinstance(answer, dict) and answer.get("is_paused") is False


async def pause_and_resume(
    client: Client, player: Player, play: Play, deadline_s: float
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
            status, _ = await client.post(client.address.own("pause?mode=keep&clear_cache=false"))
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
            "streams": sum(a.n for a in play.asks),
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
            status, said = await client.post(client.address.own("resume"))
            if status == 200:
                return
        except OutsideError as error:
            said = str(error)
        await asyncio.sleep(0.2 * (attempt + 1))
    raise OutsideError(
        f"{client.address.shown}: is paused and does not resume ({said[:200]}); run: "
        f"curl -X POST {client.address.own('resume')}"
    )
