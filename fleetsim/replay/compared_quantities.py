"""What a back-test compares: its quantities, and one of them as it was observed and predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.quantities import Quantity, quantity

Compared = Literal["tok_s", "instance_tok_s", "step_s", "trainer_idle", "queue", "in_flight", "request_s"]
Measure = Literal["ratio", "points", "batches"]
MEASURES: dict[Compared, Measure] = {
    "tok_s": "ratio",
    "instance_tok_s": "ratio",
    "step_s": "ratio",
    "trainer_idle": "points",
    "queue": "batches",
    "in_flight": "ratio",
    "request_s": "ratio",
}
QUANTITIES: tuple[Compared, ...] = tuple(MEASURES)
# What each is in the catalogue. The words above are keys of JSON and of plan files, which stay as they are.
_CATALOGUED: dict[Compared, str] = {
    "tok_s": "generated_tok_s",
    "instance_tok_s": "instance_tok_s",
    "step_s": "step_s",
    "trainer_idle": "trainer_idle_fraction",
    "queue": "queue_depth",
}
# What engines do that serve users, without a trainer: no metric of a run.
_SERVED: dict[Compared, Quantity] = {
    "in_flight": Quantity("in_flight", "requests in flight", "number", "mean of those that run and those that wait"),
    "request_s": Quantity("request_s", "a request", "seconds", "mean from submission to the last token", "less"),
}


def catalogued(name: Compared) -> Quantity:
    """What the catalogue says of a quantity of the back-test."""
    return _SERVED[name] if name in _SERVED else quantity(_CATALOGUED[name])


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One quantity: tok_s (fleet), instance_tok_s, step_s, trainer_idle (share of the step), queue (samples); of
    engines that serve users in_flight (requests) and request_s.

    predicted: mean over replications, interval: with its 95 % interval. measure: of error; ratio = predicted / observed
    - 1, points = predicted - observed, batches = (predicted - observed) / the larger of the batch and observed; for all
    three the limit is the same number. within: |error| <= limit.
    """

    quantity: Compared
    observed: float
    predicted: float
    interval: Estimate
    error: float
    measure: Measure
    within: bool


def error_words(row: ComparedRow, short: bool = False) -> str:
    """ "+3.1 %", "+1.2 points" or "-0.10 batches"; short: in fewer letters, for a table whose heading says the rest."""
    if row.measure == "ratio":
        return units.change(row.error)
    if row.measure == "points":
        return units.points(row.error, short=True) if short else units.points(row.error)
    return f"{row.error:+.2f} b" if short else f"{row.error:+.2f} batches"
