"""What the user should know before acting on a plan: each warning with its number, its reason and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.job.engine_source import EngineSource

# A buffer that grows by this share of a batch with every step is a backlog.
_GROWS = 0.05
_POOR = 0.15  # an error of the profile worth a warning of its own


def backlog_warnings(scenario: Scenario, metrics: Mapping[str, Estimate]) -> tuple[str, ...]:
    """A fleet that makes more than the trainer takes, where nothing bounds what is finished: the buffer grows for ever.

    metrics: by dotted name. What binds is the trainer; that it does is no reason to let samples grow old.
    """
    a, growth = scenario.admission, metrics["queue_growth"].mean
    # a law without a number of batches or versions bounds what is in flight at most, and not what is finished
    bounded = (
        law_of(scenario).ahead is not None or scenario.buffer.capacity_samples is not None or a.max_age is not None
    )
    if bounded or growth <= _GROWS * scenario.trainer.batch_samples:
        return ()
    return (
        f"the backlog grows without bound: {units.count(round(growth))} samples a step more than the trainer takes, "
        f"{units.count(round(metrics['queue_depth'].mean))} in the buffer on average and the oldest trained sample "
        f"{units.count(round(metrics['staleness_steps.max'].mean))} steps old, and older with every step. "
        f"admission.law={a.law} does not bound it: use fewer instances, --set admission.law=version_window --set "
        "admission.max_staleness=N, or --set buffer.capacity_samples=N",
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
