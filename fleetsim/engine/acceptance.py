"""How many tokens an iteration with drafts brings: published curves, a law, and what age does to a drafter.

L(k) is the mean acceptance length with k drafted tokens, the certain one included. The laws and curves give it for
every k: a share by position a_j adds up to L(k) = 1 + a_1 + ... + a_k; one share p of each token whose predecessors
were accepted is a_j = p^j. A drafter that lost the share d of its acceptance in each of v weight versions has
a_j (1 - d)^(j v): each of the j tokens must be accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fleetsim.config.speculation import CURVES, MOST_SEQUENCES
from fleetsim.distributions import halved
from fleetsim.engine.speculation import Speculation
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace


def lengths_of_curve(name: str, most: int) -> tuple[float, ...]:
    """L(0) to L(most) of a published curve. Raises InputError for an unknown name or a longer draft than measured."""
    if name not in CURVES:
        raise InputError([Problem("speculation.curve", name, f"must be one of {', '.join(CURVES)}", "name a curve")])
    measured = CURVES[name].lengths
    if most > len(measured):
        rule = f"must be at most {len(measured)}: curve {name} was measured no further"
        raise InputError([Problem("speculation.num_speculative_tokens", most, rule, "draft fewer, or give acceptance")])
    return (1.0, *measured[:most])


def lengths_of_shares(shares: Sequence[float], most: int) -> tuple[float, ...]:
    """L(0) to L(most) of accepted shares by position; beyond the last they go on falling as they did at the end."""
    found = list(shares)
    before = found[-2] if len(found) > 1 else 1.0
    ratio = found[-1] / before if before > 0 else 0.0
    while len(found) < most:
        found.append(found[-1] * ratio)
    return tuple(1.0 + sum(found[:k]) for k in range(most + 1))


def lengths_of_law(share: float, most: int) -> tuple[float, ...]:
    """L(0) to L(most) where each token is accepted with one share if those before it were."""
    return lengths_of_shares([share ** (j + 1) for j in range(most)] or [share], most)


def share_of_length(length: float, k: int) -> float:
    """The share of `lengths_of_law` with which k drafts bring `length` tokens, by bisection."""
    return sum(halved(0.0, 1.0, lambda share: lengths_of_law(share, k)[-1] < length)) / 2.0


# A drafter is old when its first token is accepted no more often than this; at most so many ages are told apart.
_NOTHING_LEFT, _MOST_AGES = 1e-3, 1024


def aged(lengths: tuple[float, ...], decay: float, renewed_every: int | None) -> tuple[tuple[float, ...], ...]:
    """L(k) by the drafter's age in versions, from new to the age at which it is renewed, or nothing is left of it."""
    if decay == 0.0:
        return (lengths,)
    gains = [b - a for a, b in pairwise(lengths)]
    rows: list[tuple[float, ...]] = []
    while len(rows) < min(renewed_every or _MOST_AGES, _MOST_AGES):
        kept = (1.0 - decay) ** len(rows)
        rows.append(lengths_of(gains, kept))
        if renewed_every is None and gains and gains[0] * kept < _NOTHING_LEFT:
            break
    return tuple(rows)


def lengths_of(gains: Sequence[float], kept: float) -> tuple[float, ...]:
    """L(k) where the drafter keeps a part of its acceptance. A measured curve may fall a little: L stays 1 at least."""
    kept_gains = [g * kept ** (j + 1) for j, g in enumerate(gains)]
    return tuple(max(1.0, 1.0 + sum(kept_gains[:k])) for k in range(len(gains) + 1))


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
    """The iterations of an engine that was measured while it drafted: its seconds hold what that takes.

    shares: accepted, by position; drafted: tokens for each sequence. The kernel counts k for each decode; an n-gram
    drafter finds fewer on average, so an iteration of n decodes takes f(n (1 + drafted)) where the kernel looks up
    f(n (1 + k)): the difference, 0 or less, is added. Where prompts share the iteration, it is as it is without them.
    """
    k = len(shares)
    knots = knots_of(max_num_seqs)
    added = tuple(fewer_drafted_s(step_time, each, drafted * each / k, knots) for each in range(k + 1))
    schedule = ((MOST_SEQUENCES, k),)
    found = Speculation(schedule, (lengths_of_shares(shares, k),), knots, added, source=source)
    return replace(step_time, speculation=found)
