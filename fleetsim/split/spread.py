"""How far a split advice may be off: all splits near it and the rival way in joint draws of what is uncertain
(`search/doubt.py`). A way that is within a hundredth of the best is right as well: many splits are alike, and an advice
that stays good does not move."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.input_moves import IntervalEnd
from fleetsim.job.trials import Measure
from fleetsim.job.uncertainty import CONFIDENCE
from fleetsim.search.arrangements import APART, Arrangement, Kind
from fleetsim.search.doubt import Cases, Counts, JointDoubt, laws_of, middle
from fleetsim.search.objective import price_per_s
from fleetsim.search.ranges import KnownMetrics, Spread, parts_of, ratio_around
from fleetsim.search.surface import Factors, Floats
from fleetsim.split.ways import By, Made, Outcome, Ways, like

# Ways whose measures differ by less are both right.
_ALIKE = 0.01
# Splits that are held against each other, no more than so many.
_MOST = 60
# A range whose ends are this far apart is wide.
_WIDE = 2.0
# What is to be least of a step and its price. All ways have the same GPUs: a step is as long as goodput is small.
_POWERS: Mapping[By, tuple[float, float]] = {"step_s": (1.0, 0.0), "goodput": (1.0, 0.0), "cost_per_step": (1.0, 1.0)}


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


class WaySpread(Spread[WayEnd], frozen=True, kw_only=True):
    """ways: labels of the splits that are right in `confidence` of all cases, from, to. held: whether the verdict is in
    as many. ratio: from, to of the best split beside the best colocated way, None without both."""

    ways: tuple[str, str]
    ratio: tuple[float, float] | None

    @property
    def wide(self) -> bool:
        """Whether the ends are so far apart, or the verdict so weak, that measuring comes before moving GPUs."""
        low, high = self.instances
        return not self.held or high >= _WIDE * low


class SplitCounts(Counts):
    """The splits of one set of GPUs. made: that of so many rollout instances; counts: of all splits, ascending."""

    def __init__(self, best: Arrangement, made: Made, counts: Sequence[int]) -> None:
        super().__init__(best.scenario)
        self._counts, self.way = counts, cache(lambda n: best if n == best.instances else made(n))

    def at(self, instances: int) -> Scenario:
        """The job with so many rollout instances, and the other GPUs for its trainer."""
        return self.way(instances).scenario

    def near(self, number: float) -> int:
        """The split that is nearest in ratio."""
        return min(self._counts, key=lambda n: abs(math.log(n / number)))

    def below(self, instances: int) -> int:
        """The next smaller count; 0 without one."""
        i = bisect_left(self._counts, instances)
        return self._counts[i - 1] if i else 0

    def between(self, counts: Sequence[int]) -> list[int]:
        """All splits from the least to the most; of many, some that are as far apart in ratio."""
        found = [n for n in self._counts if counts[0] <= n <= counts[-1]]
        if len(found) <= _MOST:
            return found
        return sorted({*counts, *map(self.near, np.geomspace(counts[0], counts[-1], _MOST))})

    def price(self, instances: int) -> float:
        """What a second costs."""
        return price_per_s(self.at(instances), instances)


def spread_of(
    ways: Ways,
    advised: Outcome,
    rival: Outcome | None,
    ratio: Estimate | None,
    given: Collection[str],
    measure: Measure,
) -> WaySpread | None:
    """The range of an advice; None where no input is in doubt, or where nothing is known beside the advice. rival: the
    best way of the other kind; ratio: of the verdict."""
    chosen, both = advised.arrangement, [o.arrangement for o in (advised, rival) if o is not None]
    laws = laws_of(chosen.scenario, given)
    split, shared = (next((way for way in both if way.apart == apart), None) for apart in (True, False))
    if not laws:
        return None
    of = Counts(chosen.scenario) if split is None else SplitCounts(split, like(ways.job, split, ways.gpus), ways.counts)
    rivals = [] if split is None or shared is None else [Counts(shared.scenario)]
    long = ways.allowed(ways.decided)
    steps = {way.choice.instances: way.step_s for way in long if way.choice.kind == (split or chosen).kind}
    try:
        doubt = JointDoubt(
            of, (split or chosen).instances, laws, measure, _POWERS[ways.by],
            rivals=rivals, own_is_rival=bool(rivals) and chosen is shared, alike=_ALIKE,
            long_s=dict(sorted(steps.items())),
            long_rivals_s=[way.step_s for way in long if way.choice is shared][: len(rivals)],
        )  # fmt: skip
    except StuckError:
        return None
    moves = _ratio_moves(doubt, ways.by) if rivals else None

    def right(cases: Cases, k: int) -> Arrangement:
        """What is right in a case."""
        on_line = isinstance(of, SplitCounts) and cases.row[k] < len(cases.counts) - len(rivals)
        return of.way(int(cases.best[k])) if on_line else shared or chosen

    def ending(factor: float, metrics: Mapping[str, float], cases: Cases, k: int) -> WayEnd:
        way, regret = right(cases, k), float(cases.losses[doubt.row_of(cases, doubt.instances), k])
        there = None if moves is None or ratio is None else ratio.mean * math.exp(moves(cases.f)[k])
        return WayEnd(factor, metrics, way.label, way.kind, way.instances, regret, there)

    here = (of, doubt.surface) if chosen.apart or not rivals else (rivals[0], doubt.rivals[0][0])
    n = chosen.instances
    known = KnownMetrics(chosen.scenario, doubt.told(*here), n, laws, advised.estimates)
    usd_per_h = 3600.0 * advised.mean("cost_per_step") / advised.mean("step_s")
    parts, widest = parts_of(doubt, known, usd_per_h, ending)
    on_line = doubt.cases.row < len(doubt.cases.counts) - len(rivals)
    ends, labels = (n, n), (chosen.label, chosen.label)
    if isinstance(of, SplitCounts) and chosen.apart:
        low, high = middle(doubt.cases.best[on_line], CONFIDENCE) if on_line.any() else ends
        ends = min(n, int(low)), max(n, int(high))
        labels = of.way(ends[0]).label, of.way(ends[1]).label
    return WaySpread(
        instances=ends,
        ways=labels,
        held=float(np.mean(on_line == chosen.apart)) >= CONFIDENCE,
        metrics=known.around(doubt.draws),
        ratio=None if moves is None or ratio is None else ratio_around(ratio, moves(doubt.draws)),
        parts=parts,
        expected_loss=doubt.loss(n),
        widest=None if ends[0] == ends[1] else widest,
    )


def _ratio_moves(doubt: JointDoubt, by: By) -> Callable[[Factors], Floats]:
    """By how much the logarithm of the best split's measure over that of the best colocated way moves in some cases."""
    (shared, n, _), sign = doubt.rivals[0], -1.0 if by == "goodput" else 1.0

    def apart(f: Factors) -> Floats:
        return sign * np.log(doubt.surface.step_s(doubt.instances, f) / shared.step_s(n, f))

    here = float(apart(doubt.factors(np.zeros((len(doubt.laws), 1))))[0])
    return lambda f: apart(f) - here
