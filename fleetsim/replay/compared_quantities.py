"""What a back-test compares, one of its rows as observed and predicted, and where to look when rows are off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.quantities import Quantity, quantity
from fleetsim.replay.implied.implied_scenario import Implied

Compared = Literal["tok_s", "instance_tok_s", "step_s", "trainer_idle", "queue", "in_flight", "request_s"]
Measure = Literal["ratio", "points", "batches"]
# How each is measured, and what it is in the catalogue: by its name there, for the words here are keys of JSON and of
# plan files, which stay as they are. What engines do that serve users, without a trainer, is no metric of a run.
_COMPARED: dict[Compared, tuple[Measure, str | Quantity]] = {
    "tok_s": ("ratio", "generated_tok_s"),
    "instance_tok_s": ("ratio", "instance_tok_s"),
    "step_s": ("ratio", "step_s"),
    "trainer_idle": ("points", "trainer_idle_fraction"),
    "queue": ("batches", "queue_depth"),
    "in_flight": (
        "ratio",
        Quantity("in_flight", "requests in flight", "number", "mean of those that run and those that wait"),
    ),
    "request_s": (
        "ratio",
        Quantity("request_s", "a request", "seconds", "mean from submission to the last token", "less"),
    ),
}
QUANTITIES: tuple[Compared, ...] = tuple(_COMPARED)
MEASURES: dict[Compared, Measure] = {name: measure for name, (measure, _) in _COMPARED.items()}


def catalogued(name: Compared) -> Quantity:
    """What the catalogue says of a quantity of the back-test."""
    found = _COMPARED[name][1]
    return quantity(found) if isinstance(found, str) else found


class ComparedRow(Struct, frozen=True):
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


REMEASURE = "re-measure per-instance throughput at true production settings (fleetsim calibrate, or a longer window)"
RECHECK_PAUSES = "re-check weight-sync pauses: their length, and how often they come"

# What decides how much an instance has to do, where nobody said or showed it: in the order of its weight.
_GUESSES = (
    "admission:",
    "trainer seconds:",
    "trainer.fixed_s:",
    "trainer.batch_samples:",
    "workload.output_tokens:",
    "workload.group_size:",
)


def look_at(rows: Sequence[ComparedRow], implied: Implied, limit: float, *, unplayed: bool = False) -> tuple[str, ...]:
    """Where the model is likely wrong, by which quantities are off: what was assumed comes before the engine's speed.

    An engine whose fitted speed predicts the half of the window that it never saw is not where to look, whatever the
    simulated rate. limit: of that prediction's error. unplayed: the window's resizes were not simulated.
    """
    off = {row.quantity: row.error for row in rows if not row.within}
    places = []
    if unplayed:
        places.append(f"resizes: {len(implied.resizes) - 1} in the window, too many steps to simulate them")
    guesses = [line for start in _GUESSES for line in implied.assumed if line.startswith(start)]
    places += [f"assumed, not read: {line}" for line in guesses]
    if guesses:
        places.append("give what was assumed: --scenario FILE, --given KEY=VALUE, or the trainer's run log with --from")
    rate = off.get("instance_tok_s", off.get("tok_s"))
    held_out = None if implied.speed is None else implied.speed.held_out
    confirmed = held_out if held_out is not None and held_out <= limit else None
    if rate is not None and confirmed is not None:
        places.append(
            f"the load: at the loads of the window the engine's speed is right ({units.share(confirmed)} off on the "
            "half that it was not fitted to), so the simulation keeps other loads: admission, batch, trainer seconds, "
            "lengths"
        )
    elif rate is not None:
        word = "faster" if rate > 0 else "slower"
        what = implied.speed.text if implied.speed is not None else "the scenario's own engine"
        places.append(f"engine speed: the model's instances are {word} by {units.share(abs(rate))} ({what})")
    if not any(row.quantity in ("tok_s", "instance_tok_s") for row in rows):
        places.append("engine speed: no throughput was read that could confirm or rule it out")
    elif "step_s" in off and rate is None:
        t = implied.scenario.trainer
        places.append(
            f"batch or trainer seconds: throughput is right and the step is not; {t.batch_samples:,} samples a step?"
        )
    if "trainer_idle" in off and rate is None:
        law = implied.scenario.admission.law
        assumed = "" if implied.base is not None else ", which is assumed: give the job's own with --scenario"
        places.append(f"admission: the trainer waits otherwise than under {law}{assumed}")
    if "queue" in off:
        places.append("the queue: what is dropped, filtered or aborted, and the cap of the buffer")
    return (*places, *(() if confirmed is not None else (REMEASURE,)), RECHECK_PAUSES)
