"""The measuring loop: loads in, raw records out, inside a budget. It knows no engine, only the protocol here: vLLM in
this process (`vllm/engine.py`) and a server (`server/engine.py`) speak it.

A batch whose responses do not fit into the time that is left is shortened, what does not fit even so is left out, and
both are written down. A load that fails is written down too, and the next one goes on.
"""

from __future__ import annotations

import heapq
import math
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from fleetsim.calibrate.loads import Limits, Load, Ran, key_of, scaled
from fleetsim.calibrate.raw import RawWriter, records_of
from fleetsim.errors import OutsideError
from fleetsim.least_squares import non_negative

LEAST_SCALE = 0.2  # of a batch's response lengths: below it a batch says little and is left out
UNKNOWN_SHARE = 0.4  # of the budget that batches keep while no pace is known yet
BATCH_SHARE = 0.5  # of the time left that later sweeps cannot take from batches
OVERRUN, OVERRUN_S = 1.6, 5.0  # a batch is cut this far beyond its estimate
MARGIN = 1.1  # estimates are a little short more often than long
SYNC_S = 30.0  # kept for a weight update, or a fifth of the budget
FAILURES = 3  # loads in a row that fail: the engine is broken


class EngineLostError(Exception):
    """The engine cannot go on (its device context is gone, it ran out of memory): a fresh one may do the rest."""


class LoadRefusedError(OutsideError):
    """The engine understood a load and will not run it: another one may do."""


class Engine(Protocol):
    """An engine that runs loads and writes what happened.

    limits: as the engine came up. start: the fields of its `start` record (fleetsim.calibrate.engine_facts reads it).
    now: seconds of a clock that only goes forward; deadlines are on it.
    """

    @property
    def limits(self) -> Limits:
        """What bounds its loads."""

    @property
    def start(self) -> dict[str, Any]:
        """What it says of itself."""

    def now(self) -> float:
        """Seconds on the engine's clock."""

    def run(self, load: Load, deadline_s: float) -> Ran:
        """Runs a load from an empty engine to its end, writing its `it` records and its `seg` record (raw.py).

        Past deadline_s the rest of it is aborted and its `seg` says cut. Raises EngineLostError where the engine cannot
        go on, OutsideError where nothing can (a user is told); after LoadRefusedError and any other exception it is
        empty and ready for the next load, and what ran is in the records.
        """


class LoopOutcome(Struct, frozen=True):
    """How the loop went. Counts of loads, without those that earlier sessions had ended. lost: the engine broke."""

    ran: int
    failed: int
    left_out: int
    lost: bool


def measure(
    engine: Engine,
    loads: Sequence[Load],
    writer: RawWriter,
    *,
    budget_s: float,
    done: Collection[str] = (),
    tell: Callable[[str], None] = lambda text: None,
    sync: Callable[[float], None] | None = None,
) -> LoopOutcome:
    """Runs the loads in order and writes all records, from the engine's `start` to `end`.

    budget_s: seconds from now. done: keys of loads to skip (loads.key_of). tell: told what happens, in words. sync:
    measures a weight update after all loads, until a time. Raises an engine's OutsideError when it is written down;
    every other exception of a load costs that load alone.
    """
    begin = engine.now()
    sync_s = min(SYNC_S, budget_s / 5) if sync else 0.0
    budget_s -= sync_s
    deadline = begin + budget_s
    writer.put("start", **engine.start)
    pace = LoadPace(engine.limits)
    todo = [load for load in loads if load.key not in done]
    required = sum(not load.optional for load in todo)
    ran = failed = left_out = in_a_row = 0
    lost = False
    for i, asked in enumerate(todo):
        left = deadline - engine.now()
        load, until_s = _fitted(asked, todo[i + 1 :], pace, left, budget_s)
        if load is None:
            if not asked.optional:
                left_out += 1
                writer.put("note", left_out=asked.phase, lab=asked.label, left_s=round(left, 1))
            continue
        place = 0 if load.optional else i + 1 - sum(b.optional for b in todo[:i])
        said = progress_words(load.phase, load.label, place, required, left) + pace.rate_words
        writer.put("load", ph=load.phase, lab=load.label, i=place, n=required, left_s=round(left, 1), said=said)
        tell(said)
        try:
            went = engine.run(load, engine.now() + until_s)
        except Exception as error:  # whatever an engine raises is recorded, and the next load goes on
            failed += 1
            in_a_row += not isinstance(error, LoadRefusedError)
            outside = isinstance(error, OutsideError) and not isinstance(error, LoadRefusedError)
            lost = isinstance(error, EngineLostError) or in_a_row == FAILURES or outside
            err = str(error) if isinstance(error, OutsideError) else repr(error)
            trail = traceback.format_exc()[-3000:]
            writer.put("error", ph=load.phase, lab=load.label, err=err[:400], tb=trail, lost=lost)
            if outside:
                raise
            if lost:
                break
            tell(f"a load failed and is left out: {err[:200]}")
            continue
        in_a_row = 0
        ran += 1
        pace.note(load, went)
    spent = round(engine.now() - begin, 3)
    writer.put("end", seconds=spent, ran=ran, failed=failed, left_out=left_out, lost=lost)
    if sync and not lost:
        sync(engine.now() + sync_s)
    return LoopOutcome(ran, failed, left_out, lost)


def ended(raw: Path) -> frozenset[str]:
    """What earlier sessions ended: the keys of their loads (loads.key_of)."""
    records, _ = records_of(raw)
    return frozenset(
        key_of(str(r.get("ph")), dict(r.get("lab") or {})) for r in records if r.get("t") == "seg" and not r.get("cut")
    )


def progress_words(phase: str, label: Any, i: int, n: int, left_s: float) -> str:
    """Progress in words: which load of how many (0: a repeat in time to spare), what it is, the time left."""
    place = f"{i} of {n}" if i else "once more, in time to spare"
    return f"{place}: {load_words(phase, label)}; {max(left_s, 0.0):.0f} s left"


def load_words(phase: str, label: Any) -> str:
    """What a load is, in words; what its label does not say shows as a question mark."""
    words = {
        "decode": "decodes, batch {B}, context {C}",
        "prefill": "{N} x {P} prompt tokens" + ", {budget} an iteration" * ("budget" in label),
        "mixed": "decodes, batch {B}, context {C}, beside prompts of {P}",
    }
    known = defaultdict(lambda: "?", label)
    return words.get(phase, f"batch {phase}, {{groups}} groups of {{G}}").format_map(known)


def _fitted(
    load: Load, later: Sequence[Load], pace: LoadPace, left_s: float, budget_s: float
) -> tuple[Load | None, float]:
    """The load as it fits into the time left, and the seconds that it may take; None where it does not fit."""
    batches = [b for b in later if b.kept_out and not b.optional]
    if not load.kept_out:
        if not pace.decodes:
            kept_s = UNKNOWN_SHARE * budget_s * bool(batches)
            return (load if left_s > kept_s else None), left_s - kept_s
        kept_s = min(sum(LEAST_SCALE * pace.seconds(b) for b in batches), BATCH_SHARE * left_s)
        may_s = left_s - kept_s
        return (load if MARGIN * pace.seconds(load) < may_s else None), may_s
    sweeps_s = sum(pace.seconds(s) for s in later if not s.kept_out and not s.optional)
    room_s = left_s - min(MARGIN * sweeps_s, (1.0 - BATCH_SHARE) * left_s)
    own_s = MARGIN * pace.seconds(load)
    alike = [b for b in batches if b.yields == load.yields]
    others_s = MARGIN * sum(pace.seconds(b) * LEAST_SCALE for b in batches if b.yields != load.yields)
    share = (room_s - others_s) / (own_s + MARGIN * sum(pace.seconds(b) for b in alike))
    if share < LEAST_SCALE:  # then at least this one
        share = min(LEAST_SCALE, room_s / own_s)
    scale = min(1.0, math.floor(20.0 * share + 1e-9) / 20.0)
    if scale < LEAST_SCALE:
        return None, 0.0
    shorter = scaled(load, scale, pace.limits)
    return shorter, min(left_s, OVERRUN * pace.seconds(shorter) + OVERRUN_S)


MOST_DRIFT = 4.0
GUESS_S = 0.012  # of an iteration, while nothing was measured
PREEMPTED = 1.25  # a batch in a small pool computes some of its tokens twice


class LoadPace(Struct):
    """What loads took so far. wall_s: by load, passes alike. decodes: rows of batch size, KV tokens, seconds.

    drift: how much slower than that the machine seems to be now, at least 1.
    """

    limits: Limits
    wall_s: dict[str, float] = field(default_factory=dict)
    decodes: list[tuple[float, float, float]] = field(default_factory=list)
    prefill: tuple[float, float] = (0.0, 0.0)  # tokens, seconds
    drift: float = 1.0

    def note(self, load: Load, ran: Ran) -> None:
        """Takes in how a load went."""
        if ran.cut:
            return
        if self.decodes:
            self.drift *= math.sqrt(ran.wall_s / max(self.seconds(load), 1e-9))
            self.drift = min(max(self.drift, 1.0), MOST_DRIFT)
        self.wall_s[_point(load.phase, load.label)] = ran.wall_s
        if load.phase == "decode" and ran.decode_s:
            batch = len(load.requests)
            context = load.requests[0].prompt_tokens + load.requests[0].output_tokens / 2
            self.decodes.append((batch, batch * context, ran.decode_s))
        if load.phase == "prefill":
            self.prefill = (self.prefill[0] + ran.prefill_tokens, self.prefill[1] + ran.wall_s)

    @property
    def rate_words(self) -> str:
        """The fastest decoding so far, to be added to a sentence."""
        batch, _, seconds = max(self.decodes, default=(0.0, 0.0, 0.0))
        return f"; {batch / seconds:,.0f} tok/s at batch {batch:,.0f}" if batch else ""

    def seconds(self, load: Load) -> float:
        """Seconds that a load will take, its whole responses."""
        seen = self.wall_s.get(_point(load.phase, load.label))
        if seen is not None and not load.kept_out:
            return self.drift * seen
        counts, kv = decoding(load, self.limits)
        per_iteration, per_sequence, per_token = self._coefficients()
        seconds = float(np.sum(per_iteration * (counts > 0) + per_sequence * counts + per_token * kv))
        computed = computed_tokens(load)
        rate = self.prefill[1] / self.prefill[0] if self.prefill[0] else per_iteration / 256.0
        factor = PREEMPTED if load.pool_blocks is not None else 1.0
        return self.drift * (factor * seconds + computed * rate)

    def _coefficients(self) -> NDArray[np.float64]:
        """Seconds per iteration, per sequence and per KV token: least squares on relative error, none below 0."""
        if not self.decodes:
            return np.array([GUESS_S, 0.0, 0.0])
        table = np.asarray(self.decodes)
        rows = np.column_stack([np.ones(len(table)), table[:, :2]]) / table[:, 2:3]
        use = min(3, len(table))
        return np.append(non_negative(rows[:, :use], np.ones(len(table))), np.zeros(3 - use))


def _point(phase: str, label: Any) -> str:
    return key_of(phase, {k: v for k, v in label.items() if k != "pass"})


def decoding(load: Load, limits: Limits) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Decodes, and tokens in their caches, by iteration: first come first served into slots and blocks."""
    prompt = np.array([r.prompt_tokens for r in load.requests], np.float64)
    steps = np.array([min(r.output_tokens, load.window or r.output_tokens) for r in load.requests], np.int64)
    pool = (load.pool_blocks or limits.kv_blocks) * limits.block_size
    held = float(np.mean(prompt) if load.label.get("cached") is False else np.mean(prompt) / 4) + np.mean(steps)
    slots = max(1, min(load.slots or limits.max_num_seqs, int(pool / held)))
    free = [0] * min(slots, len(steps))
    begin = np.zeros(len(steps), np.int64)
    for i, (request, n) in enumerate(zip(load.requests, steps, strict=True)):
        begin[i] = max(heapq.heappop(free), request.at)
        heapq.heappush(free, int(begin[i] + n))
    end = begin + steps
    size = int(end.max()) + 1
    counts, base = np.zeros(size), np.zeros(size)
    np.add.at(counts, begin, 1.0)
    np.add.at(counts, end, -1.0)
    np.add.at(base, begin, prompt - begin)
    np.add.at(base, end, begin - prompt)
    counts = np.cumsum(counts)
    return counts, np.cumsum(base) + counts * np.arange(size)


def computed_tokens(load: Load) -> int:
    """Prompt tokens that are not found in the cache."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for r in load.requests:
        total += r.prompt_tokens - r.cached_tokens if not r.read_cache or (r.prompt, r.prompt_tokens) not in seen else 1
        seen.add((r.prompt, r.prompt_tokens))
    return total
