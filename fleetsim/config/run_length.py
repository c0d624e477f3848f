"""How many optimizer steps a run has: those that somebody said, else as many as its mean needs."""

from __future__ import annotations

from fleetsim.config.sections import Sections

# A run that nobody gave a length ends when it is steady (`sim/steady.py`), or here: after so many steps, or samples and
# turns of samples, but never before it has a beginning and something behind it.
_LEAST, _MOST, _MOST_TURNS = 32, 400, 400_000
# Where something happens on the way, no step stands for another: so many, and so many after the last event.
_EVENTFUL, _AFTER = 30, 10


def settles(scenario: Sections) -> bool:
    """Whether a run of the scenario ends when it is steady: nobody said its steps, and nothing changes on the way."""
    run = scenario.run
    return run.steps is None and not run.events and not scenario.workload.length_drift_per_step


def most_steps(scenario: Sections) -> int:
    """Optimizer steps of a run, at most."""
    run, w = scenario.run, scenario.workload
    if run.steps is not None:
        return run.steps
    if not settles(scenario):
        return max(_EVENTFUL, *(event.step + _AFTER for event in run.events), 1)
    warm = run.warmup_steps or 0
    return warm + max(_LEAST, min(_MOST, _MOST_TURNS // (scenario.trainer.batch_samples * w.turns.count)))
