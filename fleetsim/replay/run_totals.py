"""The running totals of a simulated run, and the quantities of the back-test between any two of its moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetsim.replay.compared_quantities import Compared
from fleetsim.replay.window_view import GroupQueue
from fleetsim.sim.records import Records
from fleetsim.sim.window import warmup_steps


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Running totals over the time since warm-up: tokens, instance-seconds, wait; and the queue."""

    time: NDArray[np.float64]
    tokens: NDArray[np.float64]
    instance_s: NDArray[np.float64]
    wait: NDArray[np.float64]
    queue: GroupQueue

    @classmethod
    def of(cls, records: Records) -> RunTotals:
        """The totals at the end of each step after warm-up."""
        steps = records.steps
        first = warmup_steps(records.scenario, steps["end_s"] - steps["start_s"])
        zero = float(steps["start_s"][first])
        before = steps[first - 1 : first] if first else np.zeros(1, steps.dtype)
        rows = np.concatenate([before, steps[first:]])
        time = np.append(zero, steps["end_s"][first:]) - zero
        wait = np.append(0.0, np.cumsum(steps["wait_s"][first:]))
        up = rows["busy_s"] + rows["paused_s"] + rows["idle_s"]
        return cls(
            time,
            rows["generated_tokens"] - float(rows["generated_tokens"][0]),
            np.asarray(up - up[0], dtype=np.float64),
            wait,
            GroupQueue.of(records, zero),
        )

    def between(self, a: float, b: float | None) -> dict[Compared, float]:
        """The quantities from a to b seconds after warm-up; b None or beyond the run = to its end."""
        end = float(self.time[-1]) if b is None else min(b, float(self.time[-1]))
        a = min(a, 0.999 * end)
        span = end - a

        def growth(total: NDArray[np.float64]) -> float:
            low, high = np.interp([a, end], self.time, total)
            return float(high - low)

        steps = growth(np.arange(len(self.time), dtype=np.float64))
        instance_s = growth(self.instance_s)
        return {
            "tok_s": growth(self.tokens) / span,
            "instance_tok_s": growth(self.tokens) / instance_s if instance_s > 0 else 0.0,
            "step_s": span / max(steps, 1e-9),
            "trainer_idle": growth(self.wait) / span,
            "queue": self.queue.mean(a, end),
        }
