"""`Turnover`: what ran at both ends of every interval, and which of it came and went in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetsim.history.counters import increments
from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.intervals import Mask

FEW = 0.3  # of what ran at the start: fewer that came leave the load between both ends known


@dataclass(frozen=True, slots=True)
class Turnover:
    """Requests of I instances in the T-1 intervals, all arrays (I, T-1) and NaN where they were not read.

    left, right: running at both ends. finished: that ended in between. came: that began to run in between. prompts:
    prompt tokens computed, those that the prefix cache held aside; None where they are not counted.
    """

    left: Floats
    right: Floats
    finished: Floats
    came: Floats
    prompts: Floats | None

    @classmethod
    def of(cls, history: History) -> Turnover | None:
        """None where running or finished requests are not exported."""
        running, finished = history.values.get("running"), history.values.get("finished")
        if running is None or finished is None:
            return None
        left, right = running[:, :-1], running[:, 1:]
        ended = increments(finished, history.step_s)
        return cls(left, right, ended, np.maximum(right - left + ended, 0.0), _computed(history))

    @property
    def stayed(self) -> Floats:
        """Those that ran from end to end, at the least."""
        return np.clip(np.minimum(self.left - self.finished, self.right), 0.0, None)

    @property
    def most(self) -> Floats:
        """That can have run at once."""
        return np.maximum(self.left, self.right + self.finished)

    @property
    def calm(self) -> Mask:
        """(I, T-1): hardly any came, so that the load fell from left to right and the logarithmic mean is its own."""
        return np.asarray(self.came <= FEW * np.maximum(self.left, 1.0))

    @property
    def falling(self) -> Floats:
        """Mean load if it fell, as a batch does, by the same share every second."""
        high, low = np.maximum(self.left, self.right), np.maximum(np.minimum(self.left, self.right), 0.5)
        same = high <= 1.01 * low
        ratio = np.where(same, 2.0, high / low)
        return np.where(same, (self.left + self.right) / 2, (high - low) / np.log(ratio))

    @property
    def after(self) -> Floats:
        """Mean load if those that came did so at once, and what ended did later."""
        return self.right + self.finished / 2


def _computed(history: History) -> Floats | None:
    prompts, hits = history.values.get("prompt_tokens"), history.values.get("prefix_hits")
    if prompts is None:
        return None
    given = increments(prompts, history.step_s)
    if hits is None:
        return given
    return np.asarray(np.maximum(given - np.nan_to_num(increments(hits, history.step_s)), 0.0))
