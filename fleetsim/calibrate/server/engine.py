"""A server that runs loads: an Engine of `session.measure`, played by a client that turns streams into records."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from fleetsim import units
from fleetsim.calibrate.drafts import DraftCounts
from fleetsim.calibrate.loads import Limits, Load, Ran, warm_ups
from fleetsim.calibrate.raw import RawWriter, request_columns
from fleetsim.calibrate.server.metrics import Gauges
from fleetsim.calibrate.server.observe import ObservationColumns, decode_rows, mixed_rows, prefill_rows
from fleetsim.calibrate.server.plan import longer, plays_of
from fleetsim.calibrate.server.play import Play, Played, Player
from fleetsim.calibrate.session import load_words
from fleetsim.dataclass import dataclass

BUSY_CLIENT = 0.9


class ServerWatch(Protocol):
    """Who looks whether others are on the server (metrics.Guard)."""

    async def idle(self) -> Gauges | None:
        """Waits between loads until the server is idle. Raises OutsideError where others have come."""


@dataclass(slots=True)
class ServerEngine:
    """A server that is measured.

    start: the fields of its `start` record. wait: runs a coroutine to its end. together: prompt chunks share iterations
    with decodes. drafting: an iteration brings more than a token of a stream.
    """

    player: Player
    watch: ServerWatch
    writer: RawWriter
    limits: Limits
    start: dict[str, Any]
    tell: Callable[[str], None]
    wait: Callable[[Coroutine[Any, Any, Ran]], Ran]
    together: bool = True
    drafting: bool = False
    segment: int = 0
    _warm: bool = False
    _warned: bool = False

    def now(self) -> float:
        """Seconds on the player's clock."""
        return self.player.now()

    def start_record(self) -> dict[str, Any]:
        """What the server says of itself."""
        return self.start

    def note(self, text: str) -> None:
        """Writes a note into the records."""
        self.writer.put("note", note=text)

    def run(self, load: Load, deadline_s: float) -> Ran:
        """Plays one load and records it. Raises OutsideError, LoadRefusedError where only this load cannot be had."""
        return self.wait(self._run(load, deadline_s))

    async def _run(self, load: Load, deadline_s: float) -> Ran:
        """What came before a failure is recorded, too."""
        if not self._warm:
            self._warm = True
            for warm_up in warm_ups(self.limits):
                await self.watch.idle()
                await self.player.play(plays_of(warm_up)[0], deadline_s)
        before = await self.watch.idle()
        self.segment += 1
        rows, plays = ObservationColumns(), list[Played]()
        began, cut, each_s, drafts = self.now(), True, None, None
        fields: dict[str, Any] = {} if before is None or before.kv_usage is None else {"kv_usage": before.kv_usage}
        try:
            await self._play(load, deadline_s, rows, plays)
            cut = plays[-1].cut
            counts = load.kept_out or (self.drafting and load.phase == "decode")
            after = await self.watch.idle() if counts and not cut else None
            drafts = _grown(before, after)
            if load.kept_out:
                fields |= _of_batch(plays[-1], began, before, after)
        finally:
            if len(rows) and (drafts is not None or not self.drafting or load.phase == "prefill"):
                each_s = sorted(rows.dt)[len(rows) // 2] * 1e-6
                if drafts is not None:
                    rows.drafting(drafts.tokens, drafts.each)
                self.writer.put("obs", ph=load.phase, seg=self.segment, lab=load.label, **rows.columns())
            wall = self.now() - began
            if load.kept_out:
                ends = [s.finish_s for played in plays for s in played.streams if s.ended]
                wall = max(ends, default=self.now()) - began
            cpu = max((p.client_cpu or 0.0 for p in plays), default=0.0)
            fields |= {"drafts": drafts.record()} if drafts is not None else {}
            fields |= {"iters": len(rows.of), "client_cpu": round(cpu, 3)}
            self.writer.put(
                "seg", ph=load.phase, seg=self.segment, lab=load.label, wall=round(wall, 6), cut=cut, **fields
            )
        self._watch_client(cpu, load)
        computed = sum(s.prompt_tokens - (s.cached_tokens or 0) for p in plays for s in p.streams)
        return Ran(self.now() - began, cut, each_s if load.phase == "decode" else None, computed)

    async def _play(self, load: Load, deadline_s: float, rows: ObservationColumns, plays: list[Played]) -> None:
        """Plays what the load asks for, until it is cut or does not fit into the server."""
        for play in plays_of(load):
            played = await self._observed(load, play, deadline_s, rows, plays)
            if load.phase == "decode" and not len(rows) and not played.cut:
                played = await self._observed(load, longer(play, self.limits), deadline_s, rows, plays)
            if played.crowded and not played.cut:
                self.note(f"{load.phase} {load.label}: only {played.started} streams ran at once")
            if played.cut or played.crowded:
                return

    async def _observed(
        self, load: Load, play: Play, deadline_s: float, rows: ObservationColumns, plays: list[Played]
    ) -> Played:
        played = await self.player.play(play, deadline_s)
        plays.append(played)
        budget = self.limits.max_num_batched_tokens
        if load.phase == "decode" and not played.crowded:
            decode_rows(played.base, rows)
        elif load.phase == "prefill" and not played.cut:
            prefill_rows(played.base, budget, rows)
        elif load.phase == "mixed" and not played.crowded:
            for late in played.late:
                mixed_rows(played.base, late, budget, rows, together=self.together)
        return played

    def _watch_client(self, cpu: float, load: Load) -> None:
        if cpu > BUSY_CLIENT and not self._warned:
            self._warned = True
            text = (
                f"the client itself was busy {units.share(cpu, 0)} of a core ({load_words(load.phase, load.label)}): "
                "times are blurred there; run it on an idle machine close to the server"
            )
            self.note(text)
            self.tell(text)


def _of_batch(played: Played, began: float, before: Gauges | None, after: Gauges | None) -> dict[str, Any]:
    """Per-request times of a kept-out batch, and what the server's own counters say of it, as far as it has them.

    Who was preempted is not known: the count stands with the last request.
    """
    counted = {}
    if before is not None and after is not None:
        for name, old, new in (
            ("preemptions", before.preempted, after.preempted),
            ("hit_tokens", before.hit_tokens, after.hit_tokens),
        ):
            if old is not None and new is not None:
                counted[name] = round(new - old)
    last = len(played.streams) - 1
    requests = [
        (s.submitted_s, s.first_s, s.finish_s, round(s.tokens), counted.get("preemptions", 0) * (i == last),
         s.prompt_tokens, s.ask.max_tokens)
        for i, s in enumerate(played.streams)
    ]  # fmt: skip
    return {"req": request_columns(requests, began), "gen": round(sum(s.tokens for s in played.streams)), **counted}


def _grown(before: Gauges | None, after: Gauges | None) -> DraftCounts | None:
    """What a load grew the server's counters of drafts by; None where there are none, or they cannot be read."""
    if before is None or after is None or before.drafts is None or after.drafts is None:
        return None
    counts = after.drafts.since(before.drafts)
    return counts if counts.iterations > 0 else None
