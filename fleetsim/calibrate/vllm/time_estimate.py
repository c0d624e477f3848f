"""How long a load will take, from what has been measured so far: for budgets, not for profiles."""

from __future__ import annotations

import heapq
import math
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.calibrate.loads import Limits, Load, Ran, key_of
from fleetsim.dataclass import dataclass

MOST_DRIFT = 4.0
PREEMPTED = 1.25  # a batch in a small pool computes some of its tokens twice


@dataclass(slots=True)
class LoadPace:
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
        if self.knows:
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
    def knows(self) -> bool:
        """Whether anything was measured that an estimate can rest on."""
        return bool(self.decodes)

    def seconds(self, load: Load) -> float:
        """Seconds that a load will take, its whole responses. Needs `knows`."""
        seen = self.wall_s.get(_point(load.phase, load.label))
        if seen is not None and not load.kept_out:
            return self.drift * seen
        counts, kv = self._decoding(load)
        per_iteration, per_sequence, per_token = self._coefficients()
        seconds = float(np.sum(per_iteration * (counts > 0) + per_sequence * counts + per_token * kv))
        computed = _computed_tokens(load)
        rate = self.prefill[1] / self.prefill[0] if self.prefill[0] else per_iteration / 256.0
        factor = PREEMPTED if load.pool_blocks is not None else 1.0
        return self.drift * (factor * seconds + computed * rate)

    def _decoding(self, load: Load) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Decodes, and tokens in their caches, by iteration: first come first served into slots and blocks."""
        prompt = np.array([r.prompt_tokens for r in load.requests], np.float64)
        steps = np.array([r.output_tokens for r in load.requests], np.int64)
        pool = (load.pool_blocks or self.limits.kv_blocks) * self.limits.block_size
        held = float(np.mean(prompt) if load.label.get("cached") is False else np.mean(prompt) / 4) + np.mean(steps)
        slots = max(1, min(load.slots or self.limits.max_num_seqs, int(pool / held)))
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

    def _coefficients(self) -> NDArray[np.float64]:
        """Seconds per iteration, per sequence and per KV token: least squares on relative error, none below 0."""
        table = np.asarray(self.decodes)
        rows = np.column_stack([np.ones(len(table)), table[:, 0], table[:, 1]]) / table[:, 2:3]
        use = np.array([True, len(table) > 1, len(table) > 2])
        while True:
            found = np.zeros(3)
            found[use] = np.linalg.lstsq(rows[:, use], np.ones(len(table)), rcond=None)[0]
            if np.all(found >= 0.0):
                return found
            use[int(np.argmin(found * rows.mean(axis=0)))] = False


def _point(phase: str, label: Any) -> str:
    return key_of(phase, {k: v for k, v in label.items() if k != "pass"})


def _computed_tokens(load: Load) -> int:
    """Prompt tokens that are not found in the cache."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for r in load.requests:
        total += r.prompt_tokens - r.cached_tokens if not r.read_cache or (r.prompt, r.prompt_tokens) not in seen else 1
        seen.add((r.prompt, r.prompt_tokens))
    return total
