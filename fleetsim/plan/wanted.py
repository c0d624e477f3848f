"""Which plans are still worth a look while others are found: all of the front, or only what may be the best."""

from __future__ import annotations

import math

from fleetsim.plan.budget import Budget
from fleetsim.plan.front import CLOSE, Front


class Wanted:
    """What a search is for. only_best: nothing but the best by the budget's objective. by: how much better than what
    was found a plan must be to be worth a look, in shares of one."""

    def __init__(self, budget: Budget, only_best: bool, by: float = CLOSE) -> None:
        self.budget, self.only_best, self.by = budget, only_best, by
        self._front, self._best = Front(), (True, math.inf)

    def add(self, step_s: float, usd: float) -> None:
        """One plan that was found."""
        self._front.add(step_s, usd)
        self._best = min(self._best, self.budget.badness(step_s, usd))

    def worth(self, step_s: float, usd: float) -> bool:
        """Whether a plan is worth a look whose step takes, and costs, at least so much."""
        missed, least = self._best
        if self.only_best:
            return self.budget.badness(step_s, usd) < (missed, least * (1 - self.by))
        if self.budget.step_s is not None and not missed and not self.budget.holds(step_s):
            return False
        return not self._front.beats(step_s, usd, self.by)

    def order(self, step_s: float, usd: float) -> tuple[bool, float]:
        """The smallest is looked at first."""
        if self.only_best or self.budget.step_s is not None:
            return self.budget.badness(step_s, usd)
        return False, step_s * usd
