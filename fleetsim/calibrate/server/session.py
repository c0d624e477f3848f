"""A calibration of one server, load by load: plays them, turns streams into records, keeps to its budget."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Any, Protocol

from fleetsim import units
from fleetsim.calibrate.drafts import DraftCounts
from fleetsim.calibrate.loads import Limits, key_of
from fleetsim.calibrate.server.metrics import Gauges
from fleetsim.calibrate.server.observe import ObservationColumns, decode_rows, mixed_rows, prefill_rows, requests_of
from fleetsim.calibrate.server.plan import BatchPlan, Item, Keys, LoadSweep, batch_seconds
from fleetsim.calibrate.server.play import Ask, Play, Played, Player
from fleetsim.dataclass import dataclass
from fleetsim.errors import OutsideError

SCALES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
BUSY_CLIENT = 0.9
BATCH_SHARE = 0.2  # of the budget, for the first kept-out batch, however late it is
LEAST = 3  # loads of each sweep that are run in any case


class Writer(Protocol):
    """Where records go (raw.RawWriter)."""

    def put(self, t: str, **fields: Any) -> None:
        """Writes one record."""


class ServerWatch(Protocol):
    """Who looks whether others are on the server (guard.Guard)."""

    async def idle(self) -> Gauges | None:
        """Waits between loads until the server is idle. Raises OutsideError where others have come."""


@dataclass(slots=True)
class CalibrationSession:
    """One calibration under way.

    together: prompt chunks share iterations with decodes. caching: prompts computed once are found again. drafting: an
    iteration brings more than a token of a stream. refusals: errors after which the next load may do. decode_s:
    measured seconds of a stream's token by batch size. prefill_tok_s: prompt tokens per second. warmed: by context, how
    many prompts lie in the prefix cache. seg: number of the last segment.
    """

    player: Player
    watch: ServerWatch
    writer: Writer
    limits: Limits
    tell: Callable[[str], None]
    done: frozenset[str]
    began_s: float
    budget_s: float
    together: bool = True
    caching: bool = True
    drafting: bool = False
    refusals: tuple[type[Exception], ...] = ()
    decode_s: dict[int, float] = field(default_factory=dict)
    prefill_tok_s: float = 2000.0
    warmed: dict[int, int] = field(default_factory=dict)
    seg: int = 0
    warned: bool = False

    def until(self, share: float) -> float:
        """The moment at which this share of the budget is spent."""
        return self.began_s + share * self.budget_s

    @property
    def deadline_s(self) -> float:
        """When everything must have ended."""
        return self.until(0.98)

    def note(self, text: str) -> None:
        """Writes a note into the records."""
        self.writer.put("note", note=text)

    async def warm_up(self, sweep: LoadSweep) -> None:
        """Plays of which nothing is recorded."""
        for play in sweep.warm_up:
            self.tell("warming up")
            await self.watch.idle()
            await self.player.play(play, self.deadline_s)

    async def items(self, name: str, items: tuple[Item, ...], until_s: float, *, again: bool = False) -> None:
        """Loads of the sweep in turn, as many as end before `until_s`; without LEAST there is nothing to fit."""
        left_out = 0
        for i, item in enumerate(items):
            if key_of(item.phase, item.label) in self.done:
                continue
            bound = until_s if i >= LEAST or again else self.deadline_s
            if self.player.now() + self._guess(item) > bound:
                left_out += 1
                continue
            self._tell(f"{name} {i + 1} of {len(items)}: {_words(item.label)}")
            await self.item(item)
        if left_out:
            self.note(f"{name}: {left_out} of {len(items)} loads left out, no time for them")

    async def item(self, item: Item) -> None:
        """One load of the sweep: its observations, then its segment. What came before a failure is recorded."""
        gauges = await self.watch.idle()
        self.seg += 1
        rows, began, cut, cpu = ObservationColumns(), self.player.now(), True, 0.0
        drafts: DraftCounts | None = None
        try:
            for play in item.plays:
                played = await self._play(item.phase, play)
                if played is None:
                    return
                cpu = max(cpu, played.client_cpu or 0.0)
                self._observe(item, played, rows)
                if not len(rows) and item.phase == "decode" and not played.cut:
                    played = await self._play(item.phase, _longer(play, self.limits))
                    if played is not None:
                        self._observe(item, played, rows)
                if played is None or played.cut:
                    return
                if played.crowded:
                    self.note(f"{item.phase} {item.label}: only {played.started} streams ran at once")
                    break
            if self.drafting and item.phase == "decode":
                drafts = _grown(gauges, await self.watch.idle())
            cut = False
        finally:
            if len(rows) and (drafts is not None or not self.drafting or item.phase == "prefill"):
                self._learn(item, rows)
                if drafts is not None:
                    rows.drafting(drafts.tokens, drafts.each)
                self.writer.put("obs", ph=item.phase, seg=self.seg, lab=item.label, **rows.columns())
            fields: dict[str, Any] = {"drafts": drafts.record()} if drafts is not None else {}
            fields |= {} if gauges is None or gauges.kv_usage is None else {"kv_usage": gauges.kv_usage}
            wall = self.player.now() - began
            self._segment(item.phase, item.label, wall, cut, iters=len(rows.of), client_cpu=round(cpu, 3), **fields)
        self._watch_client(cpu, item)

    async def run(
        self,
        loads: LoadSweep,
        kept_out: tuple[BatchPlan, BatchPlan],
        between: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Everything in its order, each part within its share of the budget. between: done halfway."""
        await self.warm_up(loads)
        await self.items("prefill", loads.prefill, self.until(0.15))
        await self.items("decode", loads.decode[0], self.until(0.38))
        late = self.player.now() + BATCH_SHARE * self.budget_s
        await self.batch(kept_out[0], loads.keys, max(self.until(0.62), late))
        if self.drafting:
            self.note("mixed: left out, the iterations of a server that drafts cannot be counted between two tokens")
        else:
            await self.items("mixed", loads.mixed, self.until(0.70))
        if between is not None:
            await between()
        for items in loads.decode[1:]:
            await self.items("decode again", items, self.until(0.80), again=True)
        await self.batch(kept_out[1], loads.keys, self.until(0.97))
        await self.watch.idle()

    async def batch(self, plan: BatchPlan, keys: Keys, until_s: float) -> None:
        """A kept-out batch, its lengths scaled down to the time there is."""
        if key_of(plan.phase, plan.label) in self.done:
            return
        before = await self.watch.idle()
        left = min(until_s, self.deadline_s) - self.player.now()
        samples = len(plan.lengths)
        prefill_s = samples / (plan.label["G"] if plan.label["cached"] else 1) * plan.prompt_tokens / self.prefill_tok_s
        for scale in SCALES:
            wants = plan.scaled(scale)
            guess = batch_seconds(wants, self.limits.max_num_seqs, self.decode_s, prefill_s)
            if 1.15 * guess <= left:
                break
        else:
            self.note(f"{plan.phase}: needs about {guess:.0f} s, {max(left, 0):.0f} are left for it")
            return
        label = {**plan.label, "length_scale": scale, "tokens": sum(wants), "est": round(guess, 1)}
        self._tell(f"batch {plan.phase}: {samples} samples, {sum(wants):,} tokens, about {guess:.0f} s")
        self.seg += 1
        began, cut, played = self.player.now(), True, None
        try:
            played = await self._play(plan.phase, plan.play(scale, keys), 1.6 * guess + 5)
            cut = played is None or played.cut
        finally:
            fields: dict[str, Any] = {}
            wall = self.player.now() - began
            if played is not None:
                ends = [s.finish_s for s in played.streams if s.ended]
                wall = max(ends, default=self.player.now()) - began
                after = None if cut else await self.watch.idle()
                counted = _counted(before, after)
                fields = {
                    "req": requests_of(played.streams, began, counted.get("preemptions", 0)),
                    "gen": round(sum(s.tokens for s in played.streams)),
                    "client_cpu": round(played.client_cpu or 0.0, 3),
                    **counted,
                }
                drafts = None if cut else _grown(before, after)
                if drafts is not None:
                    fields["drafts"] = drafts.record()
            self._segment(plan.phase, label, wall, cut, **fields)
        if played is not None:
            self._watch_client(played.client_cpu or 0.0, Item(plan.phase, plan.label, ()))

    async def _play(self, phase: str, play: Play, most_s: float = math.inf) -> Played | None:
        """One play; None where the server refused it, which is recorded."""
        try:
            return await self.player.play(play, min(self.deadline_s, self.player.now() + most_s))
        except self.refusals as error:
            self.writer.put("error", ph=phase, err=str(error)[:400])
            self.tell(f"{phase}: left out: {error}")
            return None
        except OutsideError as error:
            self.writer.put("error", ph=phase, err=str(error)[:400])
            raise

    def _observe(self, item: Item, played: Played, rows: ObservationColumns) -> None:
        budget = self.limits.max_num_batched_tokens
        if item.phase == "decode" and not played.crowded:
            decode_rows(played.base, rows)
        elif item.phase == "prefill" and not played.cut:
            prefill_rows(played.base, budget, rows)
        elif item.phase == "mixed" and not played.crowded:
            for late in played.late:
                mixed_rows(played.base, late, budget, rows, together=self.together)

    def _learn(self, item: Item, rows: ObservationColumns) -> None:
        """What later guesses of time rest on."""
        seconds = sorted(rows.dt)[len(rows) // 2] * 1e-6
        if item.phase == "decode":
            self.decode_s[item.label["B"]] = seconds
            self.warmed[item.label["C"]] = max(self.warmed.get(item.label["C"], 0), item.label["B"])
        elif item.phase == "prefill":
            self.prefill_tok_s = max(self.prefill_tok_s, item.label["N"] * item.label["P"] / max(seconds, 1e-6))

    def _guess(self, item: Item) -> float:
        """Seconds that a load will take."""
        computed = item.computed
        if item.phase == "decode" and self.caching:
            computed -= min(item.label["B"], self.warmed.get(item.label["C"], 0)) * item.label["C"]
        near = min(self.decode_s, key=lambda b: abs(b - item.label.get("B", 1)), default=None)
        each = self.decode_s[near] if near is not None else 0.02
        steps = 0 if item.phase == "prefill" else 100 + item.label["B"] // 4
        return computed / self.prefill_tok_s + 0.1 * len(item.plays) + steps * each

    def _segment(self, phase: str, label: dict[str, Any], wall: float, cut: bool, **fields: Any) -> None:
        self.writer.put("seg", ph=phase, seg=self.seg, lab=label, wall=round(wall, 6), cut=cut, **fields)

    def _tell(self, text: str) -> None:
        left = max(0.0, self.deadline_s - self.player.now())
        most = max(self.decode_s, default=0)
        speed = f", {most / self.decode_s[most]:,.0f} tok/s at {most} sequences" if most else ""
        self.tell(f"{text}{speed}, {left:.0f} s left")

    def _watch_client(self, cpu: float, item: Item) -> None:
        if cpu > BUSY_CLIENT and not self.warned:
            self.warned = True
            text = (
                f"the client itself was busy {units.share(cpu, 0)} of a core ({_words(item.label)}): times are blurred "
                "there; run it on an idle machine close to the server"
            )
            self.note(text)
            self.tell(text)


def _counted(before: Gauges | None, after: Gauges | None) -> dict[str, int]:
    """What the server's own counters say of a batch, as far as it has them."""
    if before is None or after is None:
        return {}
    pairs = {"preemptions": (before.preempted, after.preempted), "hit_tokens": (before.hit_tokens, after.hit_tokens)}
    return {name: round(new - old) for name, (old, new) in pairs.items() if old is not None and new is not None}


def _grown(before: Gauges | None, after: Gauges | None) -> DraftCounts | None:
    """What a load grew the server's counters of drafts by; None where there are none, or they cannot be read."""
    if before is None or after is None or before.drafts is None or after.drafts is None:
        return None
    counts = after.drafts.since(before.drafts)
    return counts if counts.iterations > 0 else None


def _longer(play: Play, limits: Limits) -> Play:
    """The play with twice the tokens, for a server that starts streams slowly."""
    asks = tuple(
        Ask(a.prompt, a.prompt_tokens, min(2 * a.max_tokens, limits.max_model_len - a.prompt_tokens - 1), a.n)
        for a in play.asks
    )
    return Play(asks, play.window, play.then, play.gap)


def _words(label: dict[str, Any]) -> str:
    """A load in words."""
    b, c, p = label.get("B"), label.get("C"), label.get("P")
    if b is not None and p is not None:
        return f"{b} sequences and prompts of {p}"
    if b is not None:
        return f"{b} sequences of {c} tokens"
    return f"{label.get('N') or label.get('groups')} prompts of {p} tokens"
