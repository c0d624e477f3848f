"""Does anybody else use the server? The guard looks before every load: nobody's work is to be disturbed or measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fleetsim.calibrate.server.metrics import Gauges
from fleetsim.errors import OutsideError

SETTLE_S = 20.0  # an aborted request may take an iteration or two, a slow server more
POLL_S = 0.1
TOLERATED = 2  # requests between two looks: health checks that generate a token

Read = Callable[[], Awaitable[Gauges | None]]


class Guard:
    """Watches for work that is not ours. sent: our own requests so far, counted per choice.

    The server's counter of ended requests must not run ahead of ours by more than TOLERATED; it may lag (aborted
    requests are counted late, or never).
    """

    def __init__(
        self, read: Read, shown: str, yes: bool, say: Callable[[str], None], settle_s: float = SETTLE_S
    ) -> None:
        self._read, self._shown, self._yes, self._say, self._settle_s = read, shown, yes, say, settle_s
        self._base: float | None = None
        self.blind = False
        self.sent = 0

    async def first(self) -> Gauges | None:
        """Before anything is sent. Raises OutsideError where others are on the server, or where nobody can tell."""
        gauges = await self._read()
        if gauges is None:
            self.blind = True
            if not self._yes:
                raise OutsideError(
                    f"{self._shown}: has no /metrics with vLLM's or SGLang's names, so nobody can tell whether it "
                    "serves others; give --yes if it is yours alone"
                )
            self._say("no /metrics: whether the server serves others meanwhile cannot be told")
            return None
        if gauges.busy > 0:
            if not self._yes:
                raise OutsideError(
                    f"{self._shown}: {gauges.running:g} requests are running and {gauges.waiting:g} waiting; measure a "
                    "server that serves nobody, or give --yes to measure beside them (and to slow them down)"
                )
            self._say(f"{gauges.busy:g} requests of others are in the server")
        self._base = gauges.ended
        return gauges

    async def idle(self) -> Gauges | None:
        """Between loads, when all of ours have ended or were aborted. Raises OutsideError where others have come."""
        if self.blind:
            return None
        left, gauges = self._settle_s, await self._read()
        while gauges is not None and gauges.busy > 0 and left > 0 and not self._yes:
            await asyncio.sleep(POLL_S)
            left, gauges = left - POLL_S, await self._read()
        if gauges is None:  # a scrape that did not come back says nothing
            return None
        extra = 0.0
        if gauges.ended is not None and self._base is not None:
            extra = gauges.ended - self._base - self.sent
            if extra > 0:
                self._base += extra
        if gauges.busy > 0 or extra > TOLERATED:
            what = f"{gauges.busy:g} requests of others are in it" if gauges.busy > 0 else f"served {extra:g} of others"
            if not self._yes:
                raise OutsideError(
                    f"{self._shown}: others began to use the server ({what}); what was measured is kept: go on with "
                    "--resume when it is free, or with --yes"
                )
            self._say(f"others use the server: {what}")
        return gauges
