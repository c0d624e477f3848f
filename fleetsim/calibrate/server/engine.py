"""A server that runs loads: an Engine of `session.measure`, played by a client that turns streams into records."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.calibrate.engine_facts import DraftCounts
from fleetsim.calibrate.loads import Limits, Load, Ran, prompt_chunks, warm_ups
from fleetsim.calibrate.raw import RawWriter, request_columns
from fleetsim.calibrate.server.play import Play, Played, Stream, longer, plays_of
from fleetsim.calibrate.session import load_words

if TYPE_CHECKING:
    from fleetsim.calibrate.server.http_player import HttpPlayer
    from fleetsim.calibrate.server.metrics import Gauges, Guard

# --- From arrival times to observations: which iterations must have lain between two moments that a client saw.
# Pure functions of streams. A server sends the tokens of one iteration together, so moments are taken at arrivals, and
# every figure is the median over the streams: a late packet of one of them moves nothing.

STRETCH = 8  # iterations per observation of a decode window


# Observations: seconds, whether a client's fixed cost lies in them, and (decodes, KV tokens, prefill tokens, attention
# pairs) of each of their iterations.
Rows = list[tuple[float, bool, list[tuple[float, ...]]]]


def columns_of(rows: Rows, drafts: DraftCounts | None) -> dict[str, list[Any]]:
    """The fields of an `obs` record: dt in microseconds, and what their iterations held.

    drafts: of a server that makes some. Seconds per token of a stream then become seconds per iteration, which brings
    several tokens of each decode, and verifies those drafted.
    """
    tokens, drafted = (1.0, 0.0) if drafts is None else (drafts.tokens, drafts.each)
    held = [[round(float(v), 3) for v in iteration] for _, _, iterations in rows for iteration in iterations]
    named = dict(zip(("nd", "K", "np", "A"), map(list, zip(*held, strict=True)), strict=True))
    return {
        "dt": [round(seconds * 1e6 * tokens) for seconds, _, _ in rows],
        "ovh": [int(overhead) for _, overhead, _ in rows],
        "of": [i for i, (_, _, iterations) in enumerate(rows) for _ in iterations],
        **named,
        "dr": [round(nd * drafted, 3) for nd in named["nd"]],
    }


def decode_rows(streams: Sequence[Stream], rows: Rows) -> None:
    """Stretches in which exactly these streams decode: from the last one's first token to the first one's end.

    Each gives the mean of its iterations: seconds per token of a stream, the KV tokens that they read on average.
    Adds nothing where the streams never all decoded at once for two iterations.
    """
    if not streams or any(len(s.times) < 3 for s in streams):
        return
    series = [(np.asarray(s.times), np.asarray(s.counts)) for s in streams]
    opened, closed = max(s.times[0] for s in streams), min(s.times[-1] for s in streams)
    gap = float(np.median([(t[-1] - t[0]) / max(c[-1] - c[0], 1.0) for t, c in series]))
    opened += 1.5 * gap  # the last one's first token came with an iteration that held its prompt
    inside = np.median([c[_at(t, closed)] - c[_at(t, opened)] for t, c in series]) if closed > opened else 0
    pieces = max(1, int(inside // STRETCH))
    while pieces and not _stretches(streams, series, np.linspace(opened, closed, pieces + 1), rows):
        pieces //= 2  # so much came at once that longer stretches are needed


def _stretches(
    streams: Sequence[Stream],
    series: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    edges: NDArray[np.float64],
    rows: Rows,
) -> bool:
    """A row per stretch in which at least half of the streams had two arrivals. Returns whether there was one."""
    before = len(rows)
    for left, right in pairwise(edges):
        per, kv = [], []
        for (t, c), s in zip(series, streams, strict=True):
            i, j = _at(t, left), _at(t, right)
            made = c[j] - c[i]
            if made >= 2:
                per.append((t[j] - t[i]) / made)
                kv.append(s.prompt_tokens - 1 + (c[i] + c[j] - 1) / 2)
        if 2 * len(per) >= len(streams):
            rows.append((float(np.median(per)), False, [(len(streams), float(np.mean(kv)) * len(streams), 0, 0)]))
    return len(rows) > before


def prefill_rows(streams: Sequence[Stream], budget: int, rows: Rows) -> None:
    """The time to the last first token of prompts sent together to an idle server, in which nothing decodes.

    Several prompts do not arrive as one: the first is computed alone, the others are there when it is done. The
    client's fixed cost of a request lies in it (ovh). Adds nothing where a prompt was found in the prefix cache.
    """
    if not streams or any(not s.times or s.cached_tokens for s in streams):
        return
    order = sorted(streams, key=lambda s: s.times[0])
    lengths = [s.prompt_tokens for s in order]
    parts = prompt_chunks(lengths[:1], budget) + prompt_chunks(lengths[1:], budget)
    seconds = max(s.times[0] for s in streams) - min(s.submitted_s for s in streams)
    rows.append((seconds, True, [(0, 0, tokens, pairs) for tokens, pairs in parts]))


def mixed_rows(streams: Sequence[Stream], late: Stream, budget: int, rows: Rows, *, together: bool = True) -> bool:
    """The gap in decoding streams while a prompt is computed: from their last tokens before it was sent to its first.

    together: chunks share iterations with the decodes (vLLM), which take their part of the budget first; otherwise
    they run alone in between (SGLang without mixed chunks). Returns whether there was something to observe: not where
    the streams' iterations cannot be told apart.
    """
    if not late.times or late.cached_tokens:
        return False
    found = []
    for s in streams:
        t, c = np.asarray(s.times), np.asarray(s.counts)
        before = t <= late.submitted_s
        usual_s = float(np.median(np.diff(t))) if len(t) > 1 else 0.0
        if not before.any() or t[-1] < late.first_s - 0.5 * usual_s:
            continue
        i, j = int(before.sum()) - 1, int(np.argmin(np.abs(t - late.first_s)))
        found.append((round(float(c[j] - c[i])), float(t[j] - t[i]), s.prompt_tokens - 1 + float(c[i])))
    if len(found) < max(1, len(streams) // 2):
        return False
    made = np.array([n for n, _, _ in found])
    n = int(np.bincount(np.maximum(made, 0)).argmax())
    seconds = float(np.median([d for m, d, _ in found if m == n]))
    kv = float(np.mean([k for _, _, k in found])) * len(streams)
    b = len(streams)
    parts = prompt_chunks([late.prompt_tokens], max(1, budget - b) if together else budget)
    alone = n - len(parts) if together else n
    if alone < 0 or n == 0 or seconds <= 0:
        return False
    iterations: list[tuple[float, ...]] = [(b, kv + k * b, 0.0, 0.0) for k in range(alone)]
    iterations += [(b, kv + (alone + k) * b, *part) if together else (0.0, 0.0, *part) for k, part in enumerate(parts)]
    rows.append((seconds, False, iterations))
    return True


def _at(times: NDArray[np.float64], moment: float) -> int:
    """The first arrival at or after a moment, the last one past the end."""
    return min(int(np.searchsorted(times, moment)), len(times) - 1)


BUSY_CLIENT = 0.9


class ServerEngine(Struct):
    """A server that is measured.

    start: the fields of its `start` record. wait: runs a coroutine to its end. together: prompt chunks share iterations
    with decodes. drafting: an iteration brings more than a token of a stream.
    """

    player: HttpPlayer
    watch: Guard
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
        rows, plays = Rows(), list[Played]()
        began, cut, each_s, drafts = self.now(), True, None, None
        fields: dict[str, Any] = {}
        try:
            await self._play(load, deadline_s, rows, plays)
            cut = plays[-1].cut
            counts = load.kept_out or (self.drafting and load.phase == "decode")
            after = await self.watch.idle() if counts and not cut else None
            drafts = _grown(before, after)
            if load.kept_out:
                fields |= _of_batch(plays[-1], began, before, after)
        finally:
            which = {"ph": load.phase, "seg": self.segment, "lab": load.label}
            if rows and (drafts is not None or not self.drafting or load.phase == "prefill"):
                each_s = sorted(seconds for seconds, _, _ in rows)[len(rows) // 2]
                self.writer.put("obs", **which, **columns_of(rows, drafts))
            wall = self.now() - began
            if load.kept_out:
                ends = [s.finish_s for played in plays for s in played.streams if s.ended]
                wall = max(ends, default=self.now()) - began
            cpu = max((p.client_cpu or 0.0 for p in plays), default=0.0)
            fields |= {"drafts": drafts.record()} if drafts is not None else {}
            fields |= {"iters": sum(len(iterations) for _, _, iterations in rows), "client_cpu": round(cpu, 3)}
            self.writer.put("seg", **which, wall=round(wall, 6), cut=cut, **fields)
        if cpu > BUSY_CLIENT and not self._warned:
            self._warned = True
            what = f"{units.share(cpu, 0)} of a core ({load_words(load.phase, load.label)})"
            text = f"the client itself was busy {what}: times are blurred there; "
            text += "run it on an idle machine close to the server"
            self.note(text)
            self.tell(text)
        computed = sum(s.prompt_tokens - (s.cached_tokens or 0) for p in plays for s in p.streams)
        return Ran(self.now() - began, cut, each_s if load.phase == "decode" else None, computed)

    async def _play(self, load: Load, deadline_s: float, rows: Rows, plays: list[Played]) -> None:
        """Plays what the load asks for, until it is cut or does not fit into the server."""
        for play in plays_of(load):
            played = await self._observed(load, play, deadline_s, rows, plays)
            if load.phase == "decode" and not rows and not played.cut:
                played = await self._observed(load, longer(play, self.limits), deadline_s, rows, plays)
            if played.crowded and not played.cut:
                self.note(f"{load.phase} {load.label}: only {played.started} streams ran at once")
            if played.cut or played.crowded:
                return

    async def _observed(self, load: Load, play: Play, deadline_s: float, rows: Rows, plays: list[Played]) -> Played:
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


def _of_batch(played: Played, began: float, before: Gauges | None, after: Gauges | None) -> dict[str, Any]:
    """Per-request times of a kept-out batch, and what the server's own counters say of it, as far as it has them.

    Who was preempted is not known: the count stands with the last request.
    """
    counted = {}
    for name, counter in (("preemptions", "preempted"), ("hit_tokens", "hit_tokens")):
        old, new = getattr(before, counter, None), getattr(after, counter, None)
        if old is not None and new is not None:
            counted[name] = round(new - old)
    last = len(played.streams) - 1
    requests = [
        (s.submitted_s, s.first_s, s.finish_s, round(s.tokens), counted.get("preemptions", 0) * (i == last),
         s.prompt_tokens, s.ask.output_tokens)
        for i, s in enumerate(played.streams)
    ]  # fmt: skip
    return {"req": request_columns(requests, began), "gen": round(sum(s.tokens for s in played.streams)), **counted}


def _grown(before: Gauges | None, after: Gauges | None) -> DraftCounts | None:
    """What a load grew the server's counters of drafts by; None where there are none, or they cannot be read."""
    if before is None or after is None or before.drafts is None or after.drafts is None:
        return None
    counts = after.drafts.since(before.drafts)
    return counts if counts.iterations > 0 else None
