"""Two scenarios under the same draws: how they differ, run by run, so that luck cancels out.

Replication r of both saw the same groups, latencies and failures. The ratio of a metric is taken for each r. The
interval of these ratios is far narrower than the intervals of the two metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetsim.estimates import Estimate, estimate

Runs = Sequence[Mapping[str, Any]]

# Differences as small as this come from rounding.
NEGLIGIBLE = 0.0005
# Without replications there is no interval: then a difference has to be this large to be called one.
WITHOUT_INTERVAL = 0.02


def ratio_of(these: Runs, those: Runs, metric: str) -> Estimate:
    """Mean and interval of metric(these, r) / metric(those, r) over the replications that both have; flat metrics.

    A metric that is zero on both sides has not changed.
    """
    pairs = [(float(a[metric]), float(b[metric])) for a, b in zip(these, those, strict=False)]
    return estimate([1.0 if a == b else a / b if b else float("inf") for a, b in pairs])


def differs(ratio: Estimate, replications: int) -> bool:
    """Whether a ratio of paired runs is another than 1: its 95 % interval leaves 1 out, and the change matters."""
    change = abs(ratio.mean - 1.0)
    if replications < 2:
        return change > WITHOUT_INTERVAL
    return change > NEGLIGIBLE and not ratio.ci_low <= 1.0 <= ratio.ci_high
