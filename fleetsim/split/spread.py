"""How far a split advice may be off: the errors of its inputs, carried through to the way, the step and the cost.

Each uncertain input is moved alone to the two ends of its interval, with the same draws. There the splits around the
advised one are looked at again, by one short run each, and the better colocated way beside them. A way that is within
a hundredth of the best is right as well: many splits are alike, and an advice that stays good does not move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct

from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.input_moves import (
    Figures,
    InputPart,
    IntervalEnd,
    in_doubt,
    moved,
    moved_metrics,
    ratio_around,
    reach,
)
from fleetsim.job.trials import Measure, looked
from fleetsim.job.uncertainty import CONFIDENCE, Uncertain, law_name
from fleetsim.search.arrangements import APART, Arrangement, Kind
from fleetsim.split.outcomes import Outcome
from fleetsim.split.ways import Ways, like

# Ways whose measures differ by less are both right.
_ALIKE = 0.01
# Splits are looked at down to this share of the rollout instances.
_FINE = 8
# A range whose ends are this far apart is wide.
_WIDE = 2.0


class WayEnd(IntervalEnd, frozen=True):
    """way, kind: the label and the kind of what would be right at this end, with so many instances; regret: the share
    by which the advised way is worse. ratio: the best split beside the best colocated way there, None without both."""

    way: str
    kind: Kind
    instances: int
    regret: float
    ratio: float | None

    @property
    def apart(self) -> bool:
        """Whether that has GPUs of its own for either pool."""
        return self.kind in APART


class WaySpread(Struct, frozen=True):
    """ways: labels of the splits that are right in `confidence` of all cases, from, to; instances: of them. held:
    whether every input alone leaves the verdict. metrics: name -> from, to of the advised way. ratio: from, to of the
    best split beside the best colocated way, None without both. parts: the dearest first; an input costs the share by
    which the advised way is worse, of what the GPUs cost."""

    confidence: float
    ways: tuple[str, str]
    instances: tuple[int, int]
    held: bool
    metrics: Mapping[str, tuple[float, float]]
    ratio: tuple[float, float] | None
    parts: tuple[InputPart[WayEnd], ...]

    @property
    def wide(self) -> bool:
        """Whether the ends are so far apart, or the verdict so weak, that measuring comes before moving GPUs."""
        low, high = self.instances
        return not self.held or high >= _WIDE * low


class _Doubt:
    """The ways to use the GPUs of one job, looked at again where its inputs are off.

    chosen: the advised way; rival: the best of the other kind.
    """

    def __init__(self, ways: Ways, chosen: Arrangement, rival: Arrangement | None) -> None:
        self._counts, self._by, self._chosen, self._rival = ways.counts, ways.by, chosen, rival
        best = next((way for way in (chosen, rival) if way is not None and way.apart), None)
        self._split = like(ways.job, best or chosen, ways.gpus)
        self._start = None if best is None else self._counts.index(best.instances)

    def end(self, uncertain: Uncertain, factor: float, figures: Figures, measure: Measure) -> WayEnd:
        """One input at one end. figures: of the advised way there."""
        cost = self._cost(moved(measure, uncertain, factor))
        way, regret = (self._chosen, 0.0) if factor == 1.0 else self._right(cost)
        return WayEnd(factor, figures, way.label, way.kind, way.instances, regret, self._ratio(cost))

    def ratio(self, measure: Measure) -> float | None:
        """The best split beside the best colocated way, in short runs of both; None where one of them has none."""
        return self._ratio(self._cost(measure))

    def _right(self, cost: Callable[[Arrangement], float]) -> tuple[Arrangement, float]:
        """The way that is right by these costs, and the share by which the advised one is worse."""
        own = cost(self._chosen)
        others = [self._best_split(cost)] if self._start is not None else []
        others += [self._rival] if self._rival is not None and not self._rival.apart else []
        best = min(others, key=cost, default=self._chosen)
        if not cost(best) < own * (1.0 - _ALIKE):
            return self._chosen, 0.0
        return best, 1.0 - cost(best) / own if math.isfinite(own) else 1.0

    def _ratio(self, cost: Callable[[Arrangement], float]) -> float | None:
        if self._rival is None or self._rival.apart == self._chosen.apart:
            return None
        split, shared = (self._chosen, self._rival) if self._chosen.apart else (self._rival, self._chosen)
        of, beside = (cost(shared), cost(split)) if self._by == "goodput" else (cost(split), cost(shared))
        return of / beside if math.isfinite(of) and 0.0 < beside < math.inf else None

    def _cost(self, measure: Measure) -> Callable[[Arrangement], float]:
        """What is to be small of a way, by one short run; infinite for one that gets stuck."""
        known: dict[Arrangement, float] = {}

        def cost(way: Arrangement) -> float:
            if way not in known:
                try:
                    value = float(measure(looked(way.scenario), 0)[self._by])
                except StuckError:
                    value = 0.0 if self._by == "goodput" else math.inf
                known[way] = (1.0 / value if value else math.inf) if self._by == "goodput" else value
            return known[way]

        return cost

    def _best_split(self, cost: Callable[[Arrangement], float]) -> Arrangement:
        """The best split around the start: in strides that are halved where neither side is better."""
        assert self._start is not None

        def at(i: int) -> Arrangement:
            return self._split(self._counts[i])

        ways = {self._start: at(self._start)}
        best, stride = self._start, max(1, (self._start + 1) // 3)
        while stride >= max(1, (best + 1) // _FINE):
            near = [i for i in (best - stride, best + stride) if 0 <= i < len(self._counts)]
            ways |= {i: at(i) for i in near if i not in ways}
            better = min((best, *near), key=lambda i: cost(ways[i]))
            if better == best and stride == 1:
                break
            best, stride = better, stride if better != best else stride // 2
        return ways[best]

    def around(self, parts: Sequence[InputPart[WayEnd]]) -> tuple[Arrangement, Arrangement]:
        """The splits that are right with the inputs together: the logarithms of their instances add as squares."""
        n = self._chosen.instances
        down, up = reach([math.log(e.instances / n) for e in (p.low, p.high) if e.apart] for p in parts)
        wanted = (n * math.exp(-down), n * math.exp(up))
        near = [min(self._counts, key=lambda count: abs(math.log(count / w))) for w in wanted]
        low, high = (self._chosen if k == n else self._split(k) for k in near)
        return low, high


def spread_of(
    ways: Ways,
    advised: Outcome,
    rival: Outcome | None,
    ratio: Estimate | None,
    given: Collection[str],
    measure: Measure,
) -> WaySpread | None:
    """The range of an advice; None where no input is in doubt. rival: the best way of the other kind; ratio: of the
    verdict."""
    chosen, estimates = advised.arrangement, advised.estimates
    inputs = in_doubt(chosen.scenario, given)
    if not inputs:
        return None
    doubt = _Doubt(ways, chosen, None if rival is None else rival.arrangement)
    found = moved_metrics(chosen.scenario, inputs, measure)
    usd_per_h = 3600.0 * estimates["cost_per_step"].mean / estimates["step_s"].mean
    parts = []
    for (u, factors), figures in zip(inputs, found.told(estimates), strict=True):
        low, high = (doubt.end(u, factor, at, measure) for factor, at in zip(factors, figures, strict=True))
        stake = usd_per_h * (low.regret + high.regret) / 2
        why, law = u.why(chosen.scenario, factors), law_name(factors)
        parts.append(InputPart(u.what, u.path, why, u.settled_by(chosen.scenario), low, high, stake, law))
    # where nothing is at stake, what moves the step most comes first
    parts.sort(key=lambda p: (-p.usd_per_h, p.step_s[0] - p.step_s[1]))
    ends = doubt.around(parts) if chosen.apart else (chosen, chosen)
    here = doubt.ratio(measure)
    each = [[math.log(e.ratio / here) for e in (p.low, p.high) if e.ratio] for p in parts] if here else []
    return WaySpread(
        confidence=CONFIDENCE,
        ways=(ends[0].label, ends[1].label),
        instances=(ends[0].instances, ends[1].instances),
        held=all(end.apart == chosen.apart for part in parts for end in (part.low, part.high)),
        metrics=found.around(estimates),
        ratio=None if ratio is None or here is None else ratio_around(ratio, each),
        parts=tuple(parts),
    )
