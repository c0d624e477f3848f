"""What the user should know before acting on a plan: each warning with its number, its reason and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.nameplate import mean_output_tokens
from fleetsim.job.trials import unit_of

# A buffer that grows by this share of a batch with every step is a backlog, where the trainer waits for less than this.
_GROWS, _WAITS = 0.02, 0.01
# What the remedies bound the queue to: weight versions, and batches.
_VERSIONS, _BATCHES = 4, 2
# Shares of trained tokens that are written and never come to the trainer.
_LOST = tuple(f"waste.{why}" for why in ("stale", "filtered", "aborted", "lost"))
_POOR = 0.15  # an error of the profile worth a warning of its own


class Backlog(Struct, frozen=True):
    """Finished samples that pile up. per_step, per_minute: by how many. enough: the fewest instances that make what the
    trainer takes; None where no fewer do. until: samples that the buffer holds, which it comes to long after the run,
    and older: by how many steps the trained samples are then older; None and infinite where nothing bounds it."""

    per_step: float
    per_minute: float
    enough: int | None
    until: int | None = None
    older: float = math.inf

    @property
    def rate(self) -> str:
        """ "183 samples a step (520 a minute)"."""
        each = (units.count(round(x)) for x in (self.per_step, self.per_minute))
        return "{} samples a step ({} a minute)".format(*each)


def backlog_of(scenario: Scenario, metrics: Mapping[str, Estimate]) -> Backlog | None:
    """What piles up where the fleet makes more than the trainer takes and nothing bounds what is finished, or only a
    buffer of many batches that the run has not filled; else None.

    metrics: of a long run, by dotted name. What binds is the trainer; that it does is no reason to let samples grow
    old.
    """
    growth, batch = _surplus(scenario, metrics), scenario.trainer.batch_samples
    # a law without a number of batches or versions bounds what is in flight at most, and not what is finished
    most = scenario.buffer.capacity_samples
    older = math.inf if most is None else (most - metrics["queue_depth"].mean) / batch
    bounded = law_of(scenario).ahead is not None or older <= _BATCHES
    if bounded or scenario.admission.max_age is not None or growth <= _GROWS * batch:
        return None
    if metrics["trainer_idle_fraction"].mean > _WAITS:  # a full engine's samples come at once: the queue swings
        return None
    n, unit = scenario.fleet.instances, unit_of(scenario)
    enough = math.ceil(n * batch / (batch + growth) / unit) * unit
    return Backlog(growth, 60.0 * growth / metrics["step_s"].mean, enough if enough < n else None, most, older)


def _surplus(scenario: Scenario, metrics: Mapping[str, Estimate]) -> float:
    """Samples a step that the engines write beyond those that are trained or lost: what the queue grows by in the end.

    By tokens, for a buffer that full engines fill in bursts says little of it, nor does a run in which most long
    samples are still being written.
    """
    made, lost = metrics["tokens_per_trained_token"].mean, sum(metrics[name].mean for name in _LOST)
    if not made:  # a window between two bursts, in which nothing was written
        return 0.0
    written = metrics["generated_tok_s"].mean * metrics["step_s"].mean * (1.0 - lost / made)
    return written / mean_output_tokens(scenario) - scenario.trainer.batch_samples


def backlog_line(scenario: Scenario, metrics: Mapping[str, Estimate]) -> str | None:
    """The growing backlog and its remedy in a line; None where there is none."""
    found = backlog_of(scenario, metrics)
    if found is None:
        return None
    bound = (
        "without bound" if found.until is None else f"until it holds {found.until:,}, {round(found.older)} batches more"
    )
    return f"grows {bound}, by {found.rate}: {_remedy(scenario, found)}"


def backlog_warnings(scenario: Scenario, metrics: Mapping[str, Estimate]) -> tuple[str, ...]:
    """The same with how old samples are."""
    found = backlog_of(scenario, metrics)
    if found is None:
        return ()
    bound, then = "without bound", f"admission.law={scenario.admission.law} does not bound it"
    if found.until is not None:
        bound = f"until it holds {found.until:,} samples"
        then = f"When it is full, samples are {round(found.older)} steps older than told here"
    return (
        f"the backlog grows {bound}: {found.rate} more than the trainer takes, "
        f"{units.count(round(metrics['queue_depth'].mean))} in the buffer on average and the oldest trained sample "
        f"{units.count(round(metrics['staleness_steps.max'].mean))} steps old, and older with every step. "
        f"{then}: {_remedy(scenario, found)}",
    )


def _remedy(scenario: Scenario, found: Backlog) -> str:
    capacity = f"--set buffer.capacity_samples={_BATCHES * scenario.trainer.batch_samples}"
    capacity += " --set buffer.on_full=block" if scenario.buffer.on_full != "block" else ""
    fewer = "" if found.enough is None else f"; or use {units.plural(found.enough, 'instance')}, which are enough"
    return (
        f"bound the queue with --set admission.law=version_window --max-staleness {_VERSIONS}, "
        f"or with {capacity}{fewer}"
    )


def range_warnings(profile: EngineSource) -> tuple[str, ...]:
    """Where an answer leaves what its profile measured, and what to do about it."""
    return tuple(
        f"outside the range that the profile measured: {text}; measure there before trusting the answer"
        for text in profile.extrapolations or ()
    )


def error_warnings(profile: EngineSource) -> tuple[str, ...]:
    """An engine speed whose own error is large."""
    if profile.error_worst is None or profile.error_worst <= _POOR:
        return ()
    return (
        f"the {profile.kind} engine speed is itself off by up to {units.share(profile.error_worst, 0)} "
        f"({profile.error_what}): measure it again on a quiet machine before acting on the answer",
    )
