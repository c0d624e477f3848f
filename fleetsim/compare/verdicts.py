"""`compare`: two sides against each other, metric by metric, and what may be said of each.

A metric changed if the change is told from the band around none at all: its test against the edge of the band stays
below 5 % after Holm's correction for the number of metrics. The band is a ratio of 1 / (1 + min_change) to
1 + min_change; of a share (trainer idle, waste) it is min_change points either way, because a share of next to nothing
may double and mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from pydantic import ValidationError

from fleetsim.compare.compare import (
    BY_ITSELF,
    EQUAL,
    Comparison,
    InputDifference,
    Kind,
    MetricChange,
    Side,
    Verdict,
    band_of,
    headline_of,
    input_differences,
)
from fleetsim.config.sections import CostConfig
from fleetsim.contrast import Mean, holm, mean_of, paired, unpaired
from fleetsim.job.derived_values import PRICE, price_notes
from fleetsim.quantities import RARE_METRICS, quantity
from fleetsim.records import replace

ALPHA = 0.05
SAME: Verdict = "no significant change"
ONE_RUN = "one run has no interval: take more replications"


class _Judged(Struct, frozen=True):
    """A change before the number of metrics is known. above: B is rather above A than below. p_value: of this metric
    alone, None where there is nothing to test."""

    change: MetricChange
    above: bool = False
    p_value: float | None = None


def compare(
    a: Side, b: Side, kind: Kind, metrics: Sequence[str], *, pair: bool, min_change: float, notes: Sequence[str] = ()
) -> Comparison:
    """metrics: names of `quantities.py`, in their order. pair: runs of the same seed and replication drew the
    same. min_change: smallest relative change of interest, 0.01 = 1 % (of shares: 1 point)."""
    common = [key for key in a.runs if key in b.runs] if pair else []
    there = {name for side in (a, b) for known in (side.means, *side.runs.values()) for name in known}
    metrics = [name for name in metrics if name not in RARE_METRICS or name in there]
    judged = [_judged(a, b, name, common, min_change) for name in metrics]
    tested = [j for j in judged if j.p_value is not None]
    adjusted = holm([j.p_value for j in tested if j.p_value is not None])
    p_adjusted = {j.change.metric: p for j, p in zip(tested, adjusted, strict=True)}
    changes = tuple(_decided(j, p_adjusted.get(j.change.metric), min_change) for j in judged)
    replications = len(common) or min(len(side.runs) or side.replications for side in (a, b))
    inputs = input_differences(a.inputs, b.inputs, a.assumed, b.assumed)
    said = (*notes, *_notes(a, b, inputs, changes, len(tested), kind))
    found = Comparison(a.label, b.label, kind, bool(common), replications, changes, inputs, "", said, min_change)
    return replace(found, headline=headline_of(found))


def _notes(
    a: Side, b: Side, inputs: Sequence[InputDifference], changes: Sequence[MetricChange], tested: int, kind: Kind
) -> Iterator[str]:
    """What a reader of the changes must know."""
    batch = next((d for d in inputs if d.path == "trainer.batch_samples"), None)
    if batch is not None and isinstance(batch.a, int) and isinstance(batch.b, int):  # a damaged result has anything
        of = f"a step of A trains {batch.a:,} samples and one of B {batch.b:,}"
        yield f"{of}: what is per step is of other work; goodput is per token"
    for who, accuracy in {"A and B": a.accuracy, "A": a.accuracy, "B": b.accuracy}.items():
        if accuracy and (a.accuracy == b.accuracy) == (who == "A and B"):
            yield f"{who}: {accuracy}"
    yield from price_notes(_fleets(a, b), "give each its own: --set-a and --set-b " + f"{PRICE}=DOLLARS")
    if a.binds and b.binds and a.binds != b.binds:
        yield f"what limits the step: {a.binds} in A, {b.binds} in B"
    if tested > 1:
        yield (
            f"{tested} metrics are tested at once: the chance that luck makes any of them look changed is below 5 % "
            "(Holm's correction); each interval is of 95 % by itself"
        )
    if any(c.why == BY_ITSELF for c in changes):
        text = f"{BY_ITSELF}: its own interval leaves the smallest change of interest, but among so many metrics that"
        more = "; more --replications may tell, or --metric for one alone" if kind == "scenarios" else ""
        yield f"{text} may be luck{more}"


def _fleets(*sides: Side) -> Iterator[tuple[str, CostConfig]]:
    """GPU type and prices of both sides, where they are scenarios."""
    for side in sides:
        engine, cost = side.inputs.get("engine"), side.inputs.get("cost")
        if isinstance(engine, Mapping) and isinstance(cost, Mapping):
            try:
                yield str(engine.get("gpu")), CostConfig.model_validate(cost)
            except ValidationError:  # a damaged result has anything
                continue


def _judged(a: Side, b: Side, name: str, common: Sequence[tuple[int, int]], min_change: float) -> _Judged:
    left, right = _mean(a, name, common), _mean(b, name, common)
    own = tuple(None if isinstance(mean, str) else mean.estimate() for mean in (left, right))
    change = MetricChange(name, own[0], own[1], None, None, "not comparable")
    if isinstance(left, str) or isinstance(right, str):
        reasons = {side: m for side, m in (("A", left), ("B", right)) if isinstance(m, str)}
        same = len(reasons) == 2 and len(set(reasons.values())) == 1
        why = str(left) if same else "; ".join(f"{side}: {m}" for side, m in reasons.items())
        return _Judged(replace(change, why=why))
    if not left.freedom or not right.freedom:
        difference = Mean(right.value - left.value, 0.0, 0.0).estimate()
        if left.value == right.value:
            return _Judged(replace(change, difference=difference, verdict=SAME, why=EQUAL))
        return _Judged(replace(change, difference=difference, why=ONE_RUN))
    if common:
        contrast = paired([a.runs[key][name] for key in common], [b.runs[key][name] for key in common])
    else:
        contrast = unpaired(left, right)
    change = replace(change, ratio=contrast.ratio(), difference=contrast.difference(), verdict=SAME)
    if contrast.difference_error == 0.0 and contrast.b.value == contrast.a.value:
        return _Judged(replace(change, why=f"{EQUAL} in every run"))
    # One-sided p-values: of no more than the band above, of no less than the band below.
    if change.of_share:
        up, down = contrast.beyond(1.0, min_change, True), contrast.beyond(1.0, -min_change, False)
    else:
        least, most = 1.0 / (1.0 + min_change), 1.0 + min_change
        up, down = contrast.beyond(most, 0.0, True), contrast.beyond(least, 0.0, False)
    return _Judged(change, up < down, min(1.0, 2.0 * min(up, down)))


def _mean(side: Side, name: str, common: Sequence[tuple[int, int]]) -> Mean | str:
    """A side's own mean, or why it has none."""
    if side.runs:
        values = [side.runs[key].get(name) for key in (common or side.runs)]
        known = [v for v in values if v is not None and math.isfinite(v)]
        if len(known) < len(values):
            return side.missing.get(name, f"no number in {len(values) - len(known)} of {len(values)} runs")
        return mean_of(known)
    found = side.means.get(name)
    return side.missing.get(name, "not there") if found is None or not math.isfinite(found.value) else found


def _decided(judged: _Judged, p_adjusted: float | None, min_change: float) -> MetricChange:
    """The verdict, now that it is known how many metrics there are."""
    change = judged.change
    if p_adjusted is None or judged.p_value is None:
        return change
    better, why = quantity(change.metric).better, ""
    verdict: Verdict = SAME
    if p_adjusted < ALPHA:
        verdict = "changed" if better is None else "better" if (better == "more") == judged.above else "worse"
    elif judged.p_value < ALPHA:
        why = BY_ITSELF
    else:
        seen, low, high = change.ratio, 1.0 / (1.0 + min_change), 1.0 + min_change
        if change.of_share:
            seen, low, high = change.difference, -min_change, min_change
        # within it, the change is shown to be small, not only not shown
        within = seen is not None and low <= seen.ci_low and seen.ci_high <= high
        why = f"{'within' if within else 'not shown to exceed'} {band_of(min_change, change.of_share)}"
        why = why if min_change else "not told from none"
    return replace(change, p_adjusted=p_adjusted, verdict=verdict, why=why)
