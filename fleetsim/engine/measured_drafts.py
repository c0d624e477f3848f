"""Drafts of an engine that was measured while it drafted: its seconds hold what drafting and verifying take.

The kernel counts k drafted tokens for each decode. An n-gram drafter finds fewer on average, so an iteration of n
decodes takes f(n (1 + drafted)) where the kernel looks up f(n (1 + k)): the difference is added, and is 0 or less.
Where prompts share the iteration, the difference is taken as it is without them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetsim.config.speculation import MOST_SEQUENCES
from fleetsim.engine.acceptance import lengths_of_shares
from fleetsim.engine.speculation import Speculation
from fleetsim.engine.step_time import StepTime
from fleetsim.records import replace


def knots_of(max_num_seqs: int) -> tuple[float, ...]:
    """Numbers of sequences at which the seconds of drafts are worked out: powers of two."""
    return tuple(float(2**i) for i in range(max(1, max_num_seqs).bit_length()))


def fewer_drafted_s(step_time: StepTime, k: int, drafted: float, sequences: Sequence[float]) -> tuple[float, ...]:
    """Seconds beside those of k drafted tokens, by sequences, where only `drafted` of them are on average."""
    n = np.asarray(sequences, np.float64)
    return tuple((step_time.curve(n * (1.0 + drafted)) - step_time.curve(n * (1.0 + k))).tolist())


def with_measured_drafts(
    step_time: StepTime, shares: Sequence[float], drafted: float, max_num_seqs: int, source: str
) -> StepTime:
    """The iterations of an engine as it drafted. shares: accepted, by position; drafted: tokens for each sequence."""
    k = len(shares)
    knots = knots_of(max_num_seqs)
    added = tuple(fewer_drafted_s(step_time, each, drafted * each / k, knots) for each in range(k + 1))
    schedule = ((MOST_SEQUENCES, k),)
    found = Speculation(schedule, (lengths_of_shares(shares, k),), knots, added, source=source)
    return replace(step_time, speculation=found)
