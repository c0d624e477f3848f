"""The measuring loop: loads in, raw records out, inside a budget. It knows no engine, only the protocol here.

A batch whose responses do not fit into the time that is left is shortened, what does not fit even so is left out, and
both are written down. A load that fails is written down too, and the next one goes on.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from fleetsim.calibrate.batches import scaled
from fleetsim.calibrate.loads import Limits, Load, Ran
from fleetsim.calibrate.raw import RawWriter
from fleetsim.calibrate.vllm.time_estimate import LoadPace
from fleetsim.dataclass import dataclass

__all__ = ["Engine", "EngineLostError", "LoopOutcome", "Ran", "measure"]

LEAST_SCALE = 0.2  # of a batch's response lengths: below it a batch says little and is left out
UNKNOWN_SHARE = 0.4  # of the budget that batches keep while no pace is known yet
BATCH_SHARE = 0.5  # of the time left that later sweeps cannot take from batches
OVERRUN, OVERRUN_S = 1.6, 5.0  # a batch is cut this far beyond its estimate
MARGIN = 1.1  # estimates are a little short more often than long
FAILURES = 3  # loads in a row that fail: the engine is broken


class EngineLostError(Exception):
    """The engine cannot go on (its device context is gone, it ran out of memory): a fresh one may do the rest."""


class Engine(Protocol):
    """An engine that runs loads and writes what happened.

    limits: as the engine came up. now: seconds of a clock that only goes forward; deadlines are on it.
    """

    @property
    def limits(self) -> Limits:
        """What bounds its loads."""

    def now(self) -> float:
        """Seconds on the engine's clock."""

    def start_record(self) -> dict[str, Any]:
        """The fields of its `start` record (fleetsim.calibrate.facts reads it)."""

    def run(self, load: Load, deadline_s: float) -> Ran:
        """Runs a load from an empty engine to its end, writing its `it` records and its `seg` record (raw.py).

        Past deadline_s the rest of it is aborted and its `seg` says cut. Raises EngineLostError where the engine cannot
        go on; after any other exception it is empty and ready for the next load, and what ran is in the records.
        """


@dataclass(frozen=True, slots=True)
class LoopOutcome:
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
) -> LoopOutcome:
    """Runs the loads in order and writes all records, from the engine's `start` to `end`.

    budget_s: seconds from now. done: keys of loads to skip (loads.key_of). tell: told what happens, in words.
    """
    begin = engine.now()
    deadline = begin + budget_s
    writer.put("start", **engine.start_record())
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
        writer.put("load", ph=load.phase, lab=load.label, i=place, n=required, left_s=round(left, 1))
        tell(progress_words(load.phase, load.label, place, required, left))
        try:
            went = engine.run(load, engine.now() + until_s)
        except Exception as error:  # noqa: BLE001 - whatever an engine raises is recorded, and the next load goes on
            failed += 1
            in_a_row += 1
            lost = isinstance(error, EngineLostError) or in_a_row == FAILURES
            trail = traceback.format_exc()[-3000:]
            writer.put("error", ph=load.phase, lab=load.label, err=repr(error)[:400], tb=trail, lost=lost)
            if lost:
                break
            continue
        in_a_row = 0
        ran += 1
        pace.note(load, went)
    spent = round(engine.now() - begin, 3)
    writer.put("end", seconds=spent, ran=ran, failed=failed, left_out=left_out, lost=lost)
    return LoopOutcome(ran, failed, left_out, lost)


def progress_words(phase: str, label: Any, i: int, n: int, left_s: float) -> str:
    """Progress in words: which load of how many (0: a repeat in time to spare), what it is, the time left."""
    words = {
        "decode": "decodes, batch {B}, context {C}",
        "prefill": "{N} x {P} prompt tokens, {budget} an iteration",
        "mixed": "decodes, batch {B}, context {C}, beside prompts of {P}",
    }
    what = words.get(phase, f"batch {phase}, {{groups}} groups of {{G}}")
    place = f"{i} of {n}" if i else "once more, in time to spare"
    return f"{place}: {what.format_map(_Known(label))}; {max(left_s, 0.0):.0f} s left"


class _Known(dict[str, Any]):
    """A label in which what is missing shows as a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"


def _fitted(
    load: Load, later: Sequence[Load], pace: LoadPace, left_s: float, budget_s: float
) -> tuple[Load | None, float]:
    """The load as it fits into the time left, and the seconds that it may take; None where it does not fit."""
    batches = [b for b in later if b.kept_out and not b.optional]
    if not load.kept_out:
        if not pace.knows:
            kept_s = UNKNOWN_SHARE * budget_s * bool(batches)
            return (load if left_s > kept_s else None), left_s - kept_s
        kept_s = min(sum(LEAST_SCALE * pace.seconds(b) for b in batches), BATCH_SHARE * left_s)
        may_s = left_s - kept_s
        return (load if MARGIN * pace.seconds(load) < may_s else None), may_s
    if not pace.knows:
        return None, 0.0
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
