"""Counts with which the job does not get stuck: where a search starts, and how far it may go."""

from __future__ import annotations

from fleetsim.errors import StuckError
from fleetsim.job.trials import Trials

# Replications of the look; what gets stuck in a later one is found by whoever makes it.
_ONCE = 1


def nearest_that_runs(trials: Trials, guess: int, most: int, unit: int = 1) -> int:
    """The count nearest to the guess that does not get stuck: beside it, then farther away by doubling distances.

    unit: instances that come and go together; guess and most are whole ones.
    Raises StuckError when no count up to `most` runs.
    """
    distances = [0, *(sign * unit << i for i in range(most.bit_length()) for sign in (1, -1))]
    beside = (n for d in distances if 1 <= (n := guess + d) <= most)
    for n in (*beside, unit, most):
        if trials.at(n, _ONCE).stuck is None:
            return n
    counts = ", ".join(f"{n:,}" for n in sorted(trials.stuck))
    error = trials.stuck[most]
    raise StuckError(f"no fleet can run this job (instances tried: {counts}): {error.what}", error.limits)


def largest_that_runs(trials: Trials, start: int, most: int, unit: int = 1) -> int:
    """A count up to `most` that does not get stuck: the largest that is found by halving the way from `start`, which
    does not get stuck either."""
    while trials.at(most, _ONCE).stuck is not None:
        most = (start + most) // (2 * unit) * unit
    return most
