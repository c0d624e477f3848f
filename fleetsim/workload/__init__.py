"""Length laws, prompt groups and named random streams, as arrays."""

from __future__ import annotations

from fleetsim.workload.groups import Groups, GroupSource
from fleetsim.workload.lengths import mean_length, quantile_length, sample_latencies, sample_lengths
from fleetsim.workload.streams import seed_sequence, stream

__all__ = [
    "GroupSource",
    "Groups",
    "mean_length",
    "quantile_length",
    "sample_latencies",
    "sample_lengths",
    "seed_sequence",
    "stream",
]
