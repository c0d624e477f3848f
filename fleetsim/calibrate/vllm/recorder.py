"""One row per iteration of a live vLLM V1 scheduler.

`schedule()` says what an iteration holds, `update_from_output()` that its result is there. With asynchronous scheduling
the next schedule() comes before the last result, so a duration runs from result to result: durations add up to the wall
time, and what the CPU does while the GPU computes is not counted twice.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from time import perf_counter
from typing import Any

from msgspec import Struct, field

from fleetsim.calibrate.engine_facts import DraftCounts
from fleetsim.calibrate.raw import COLUMNS, RawWriter

S, DS, DU, DV, DT, IDLE, WARM, ND, K, NPF, NP, A, KP, HIT, ADM, OUT, FIN, PRE, RUN, WAIT, BLK, DR = range(len(COLUMNS))
ROWS = 500  # per record: what a crash loses at most, and a few milliseconds to write


def us(seconds: float) -> int:
    """Whole microseconds."""
    return round(seconds * 1e6)


class Tracked(Struct):
    """A request whose times are wanted. Clock values; first and finish None until they happen."""

    request: Any
    submit: float
    first: float | None = None
    finish: float | None = None
    preemptions: int = 0
    tokens: int = 0


class Tally(Struct):
    """A segment's sums over its iterations so far. own_s: what recording took. each_s: seconds of those that only
    decoded. accepted_at: drafts of which so many tokens were accepted; empty where the engine makes none."""

    iterations: int = 0
    tokens: int = 0
    prefill_tokens: int = 0
    seconds: float = 0.0
    own_s: float = 0.0
    each_s: list[float] = field(default_factory=list)
    decoded: int = 0
    drafted: int = 0
    accepted_at: list[int] = field(default_factory=list)

    @property
    def decode_s(self) -> float | None:
        """Median seconds of an iteration of decodes only, None where there was none."""
        return statistics.median(self.each_s) if self.each_s else None

    def add(self, row: list[int]) -> None:
        """Takes in an iteration."""
        self.iterations += 1
        self.decoded += row[ND]
        self.drafted += row[DR]
        self.tokens += row[OUT]
        self.prefill_tokens += row[NP]
        self.seconds += row[DT] * 1e-6
        if row[ND] and not row[NP] and not row[WARM] and not row[IDLE]:
            self.each_s.append(row[DT] * 1e-6)

    def accept(self, accepted: list[int]) -> None:
        """Drafted tokens that each sequence kept in an iteration, -1 of one that only ended."""
        for most in accepted:
            for place in range(min(most, len(self.accepted_at))):
                self.accepted_at[place] += 1

    def record(self) -> dict[str, Any]:
        """The fields of a `seg` record."""
        drafts = DraftCounts(self.decoded, self.drafted, tuple(self.accepted_at))
        return {
            "iters": self.iterations,
            "gen": self.tokens,
            "prefill": self.prefill_tokens,
            "sum_dt": round(self.seconds, 6),
            "rec_s": round(self.own_s, 6),
            "decode_s": self.decode_s and round(self.decode_s, 6),
            **({"drafts": drafts.record()} if self.accepted_at else {}),
        }


class Recorder(Struct):
    """Wraps a scheduler's methods for good; rows go to the writer under the phase, label and number of `begin`.

    tally: of the segment. scheduled: its iterations so far. tracked: by request id, those whose times are wanted. last,
    last_decodes: clock value of the last result, and the decodes in it. held_blocks: KV blocks that are kept from the
    engine. _pending: by id of a schedule's output, its row and the requests whose prompts it ends. _prefilling: by
    request id, the tokens that must be in the cache before it decodes.
    """

    scheduler: Any
    writer: RawWriter
    epoch: float = field(default_factory=perf_counter)
    phase: str = ""
    label: dict[str, Any] = field(default_factory=dict)
    segment: int = 0
    scheduled: int = 0
    tracked: dict[str, Tracked] = field(default_factory=dict)
    last: float = 0.0
    last_decodes: int = 0
    held_blocks: int = 0
    _warm: int = 0
    _rows: list[list[int]] = field(default_factory=list)
    _pending: dict[int, tuple[list[int], float, list[str]]] = field(default_factory=dict)
    _prefilling: dict[str, int] = field(default_factory=dict)
    _preempted: int = 0
    tally: Tally = field(default_factory=Tally)
    _schedule: Any = None
    _update: Any = None
    _preempt: Any = None
    _pool: Any = None

    def __post_init__(self) -> None:
        scheduler = self.scheduler
        self._schedule, scheduler.schedule = scheduler.schedule, self._on_schedule
        self._update, scheduler.update_from_output = scheduler.update_from_output, self._on_result
        self._preempt, scheduler._preempt_request = scheduler._preempt_request, self._on_preemption
        self._pool = scheduler.kv_cache_manager.block_pool

    def begin(self, phase: str, label: dict[str, Any], warm: int) -> None:
        """The next segment: its first `warm` iterations are marked as warm-up."""
        self.flush()
        self.phase, self.label, self._warm = phase, label, warm
        self.segment += 1
        self.scheduled = 0
        self.tally = Tally(accepted_at=[0] * int(getattr(self.scheduler, "num_spec_tokens", 0) or 0))
        self._pending.clear()
        self._prefilling.clear()
        self.tracked = {}

    def flush(self) -> None:
        """Writes the rows that are there."""
        if self._rows:
            rows, self._rows = self._rows, []
            columns = {name: list(values) for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True)}
            self.writer.put("it", ph=self.phase, seg=self.segment, lab=self.label, e=round(self.epoch, 6), c=columns)

    def _on_schedule(self, *args: Any, **kwargs: Any) -> Any:
        scheduler = self.scheduler
        idle = not scheduler.running and not self._pending
        self._preempted = 0
        start = perf_counter()
        output = self._schedule(*args, **kwargs)
        end = perf_counter()
        row = [0] * len(COLUMNS)
        row[S], row[DS], row[IDLE] = us(start - self.epoch), us(end - start), int(idle)
        row[WARM] = int(self.scheduled < self._warm)
        ended = self._contents(output, row)
        row[PRE], row[RUN] = self._preempted, len(scheduler.running)
        row[WAIT] = len(scheduler.waiting) + len(getattr(scheduler, "skipped_waiting", ()))
        # one is the null block
        row[BLK] = self._pool.num_gpu_blocks - 1 - self._pool.get_num_free_blocks() - self.held_blocks
        self._pending[id(output)] = (row, start, ended)
        self.scheduled += 1
        self.tally.own_s += perf_counter() - end
        return output

    def _contents(self, output: Any, row: list[int]) -> list[str]:
        """Fills in what the iteration holds. Returns the ids of requests whose prompts end in it."""
        cached, new, tokens = output.scheduled_cached_reqs, output.scheduled_new_reqs, output.num_scheduled_tokens
        resumed = cached.resumed_req_ids
        if not new and not resumed and not self._prefilling and output.total_num_scheduled_tokens == len(tokens):
            row[ND], row[K] = len(tokens), sum(cached.num_computed_tokens)
            return []
        ended = []
        scheduled = [(r.req_id, r.num_computed_tokens, True) for r in new]
        scheduled += [(i, c, i in resumed) for i, c in zip(cached.req_ids, cached.num_computed_tokens, strict=True)]
        for request_id, computed, admitted in scheduled:
            chunk = tokens.get(request_id, 0)
            if admitted:
                row[ADM] += 1
                row[HIT] += computed
                self._prefilling[request_id] = self.scheduler.requests[request_id].num_tokens
            whole = self._prefilling.get(request_id)
            if whole is None:
                row[ND] += 1
                row[K] += computed
                row[DR] += chunk - 1
                continue
            row[NPF] += 1
            row[NP] += chunk
            row[KP] += computed
            row[A] += chunk * computed + chunk * (chunk + 1) // 2
            if computed + chunk >= whole:
                del self._prefilling[request_id]
                ended.append(request_id)
        return ended

    def _on_result(self, output: Any, *args: Any, **kwargs: Any) -> Any:
        now = perf_counter()
        results = self._update(output, *args, **kwargs)
        end = perf_counter()
        row, start, ended = self._pending.pop(id(output), (None, 0.0, ()))
        if row is not None:
            for request_id in ended:
                if (tracked := self.tracked.get(request_id)) is not None and tracked.first is None:
                    tracked.first = now
            for batch in (results or {}).values():
                row[OUT] += sum([len(o.new_token_ids) for o in batch.outputs])  # a list: faster than a generator
                if row[DR]:
                    self.tally.accept([len(o.new_token_ids) - 1 for o in batch.outputs])
                gone = [o.request_id for o in batch.outputs if o.finish_reason is not None]
                row[FIN] += len(gone)
                for request_id in gone:
                    self._prefilling.pop(request_id, None)
                    if (tracked := self.tracked.get(request_id)) is not None:
                        tracked.finish, tracked.tokens = now, tracked.request.num_output_tokens
            row[DT] = us(now - (start if row[IDLE] or self.last < self.epoch else self.last))
            row[DU], row[DV] = us(now - start), us(end - now)
            self._rows.append(row)
            self.tally.add(row)
            self.last_decodes = row[ND]
        self.last = now
        if len(self._rows) >= ROWS:
            self.flush()
        self.tally.own_s += perf_counter() - end
        return results

    def _on_preemption(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._preempted += 1
        self._prefilling.pop(request.request_id, None)
        if (tracked := self.tracked.get(request.request_id)) is not None:
            tracked.preemptions += 1
        return self._preempt(request, *args, **kwargs)


def request_rows(tracked: Iterable[Tracked]) -> list[tuple[float, float | None, float | None, int, int, int, int]]:
    """What `raw.request_columns` makes columns of."""
    return [
        (t.submit, t.first, t.finish, t.tokens if t.finish is not None else t.request.num_output_tokens, t.preemptions,
         t.request.num_prompt_tokens, t.request.max_tokens)
        for t in tracked
    ]  # fmt: skip
