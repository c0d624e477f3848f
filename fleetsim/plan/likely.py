"""What a step is likely to take, from plans that are alike: by how much the simulator was above the bound there.

Bounds leave out tails, imbalance and the order of samples. What they leave out hardly changes from a plan to one with a
few GPUs more of either pool, on the same engines and under the same staleness. So the bound of a plan, times what the
nearest plan of its kind took over its own, is near its step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fleetsim.plan.shares import Candidate

# Plans are alike whose counts of instances and trainer GPUs differ together by less than this, as logarithms.
_NEAR = 0.3
# No step of a thousand simulated plans of Qwen3-32B on up to 512 GPUs was below this share of the guess.
_SURE = 0.9


@dataclass(slots=True)
class Likely:
    """Simulated plans by kind: instances and trainer GPUs as logarithms, and steps over their bounds."""

    _seen: dict[object, list[tuple[float, float, float]]] = field(default_factory=dict)

    def add(self, candidate: Candidate, over_bound: float) -> None:
        """One simulated plan."""
        self._seen.setdefault(candidate.kind, []).append((*_place(candidate), over_bound))

    def factor(self, candidate: Candidate) -> float:
        """What its bound is to be multiplied by, so that it is still short; 1 where nothing is known."""
        instances, trainer = _place(candidate)
        seen = self._seen.get(candidate.kind, [])
        far, over = min(((abs(n - instances) + abs(t - trainer), r) for n, t, r in seen), default=(math.inf, 1.0))
        return max(1.0, _SURE * over) if far < _NEAR else 1.0


def _place(candidate: Candidate) -> tuple[float, float]:
    return math.log(candidate.share.instances), math.log(candidate.share.trainer_gpus)
