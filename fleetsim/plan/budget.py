"""What may be bought and what is wanted: GPUs, dollars per hour, seconds of a step, and what counts first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

Objective = Literal["step", "cost", "token"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
# GPUs of the largest plan that is looked for where only a step time is asked for.
MOST_GPUS = 1024
# Two plans whose steps, or costs, differ by less are equally good.
SAME = 0.01


@dataclass(frozen=True, slots=True)
class Budget:
    """gpus: of both pools together. price_per_h: US dollars per hour, of both. step_s: seconds of a step, at most.
    Each is None where nobody asks for it. objective: what counts first."""

    gpus: int | None = None
    price_per_h: float | None = None
    step_s: float | None = None
    objective: Objective = "step"

    def gpus_of(self, usd_per_gpu_h: float) -> int:
        """The most GPUs of a type at so many dollars per hour."""
        most = MOST_GPUS if self.gpus is None else self.gpus
        if self.price_per_h is None or usd_per_gpu_h <= 0:
            return most
        # A budget of exactly so many GPUs must not lose one to the last bit of a division.
        return min(most if self.gpus is not None else 100_000, math.floor(self.price_per_h / usd_per_gpu_h + 1e-9))

    def holds(self, step_s: float) -> bool:
        """Whether a step is short enough."""
        return self.step_s is None or step_s <= self.step_s

    def badness(self, step_s: float, usd: float) -> tuple[bool, float]:
        """What is compared to recommend one plan: smaller is better; a step that is too long comes after all others,
        the shortest of them first. Dollars per step and per trained token rank alike: all train the same batch."""
        if not self.holds(step_s):
            return True, step_s
        return False, step_s if self.objective == "step" else usd
