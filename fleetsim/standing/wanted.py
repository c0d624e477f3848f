"""How many instances the scenario behind a window wants, sized anew only when its inputs have moved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.plan import nameplate
from fleetsim.plan.knee import knee
from fleetsim.plan.search import smallest
from fleetsim.plan.targets import targets_of
from fleetsim.plan.trials import Tell, Trials, planned
from fleetsim.replay.implied import Implied

# Decodes at which an engine's speed is compared between two windows: a nearly empty instance, and a full one.
_LOADS = (1, 64)


@dataclass(frozen=True, slots=True)
class Wanted:
    """instances: the smallest count that holds the targets; at_knee: none does, and this is where more stop paying.
    inputs: what it was sized for."""

    instances: int
    at_knee: bool
    inputs: Mapping[str, float]


def inputs_of(implied: Implied) -> dict[str, float]:
    """What the count depends on and a window measures: seconds, tokens, samples."""
    s = implied.scenario
    context = nameplate.mean_prompt_tokens(s) + nameplate.mean_output_tokens(s) / 2.0
    found = {
        "output_tokens": nameplate.mean_output_tokens(s),
        "prompt_tokens": nameplate.mean_prompt_tokens(s),
        "batch_samples": float(s.trainer.batch_samples),
        "group_size": float(s.workload.group_size),
        "trainer_step_s": nameplate.trainer_step_s(s),
        "sync_pause_s": float(s.sync.pause_s or 0.0),
        "target_idle": s.targets.trainer_idle_fraction,
    }
    if implied.engine is not None:
        t = implied.engine[0]
        for b in _LOADS:
            found[f"iteration_s_at_{b}"] = float(t.table(b)[b]) + t.per_seq_s * b + t.per_kv_token_s * b * context
    return found


def moved(before: Mapping[str, float], now: Mapping[str, float], share: float) -> tuple[str, ...]:
    """Inputs that changed by more than `share` of what they were, or came or went."""
    names = [*before, *(name for name in now if name not in before)]
    return tuple(n for n in names if not _near(before.get(n), now.get(n), share))


def _near(a: float | None, b: float | None, share: float) -> bool:
    return a is not None and b is not None and abs(a - b) <= share * max(abs(a), abs(b))


def wanted(implied: Implied, given: Collection[str] = (), tell: Tell | None = None) -> Wanted:
    """Sizes the fleet of the implied scenario against its targets on idle and step time, with the window's own engine.

    given: dotted paths that the user wrote. Raises InputError and StuckError as `size` does.
    """
    from fleetsim.analysis.metrics import metrics_of
    from fleetsim.sim.run import simulate

    def measure(scenario: Scenario, replication: int) -> Mapping[str, Any]:
        return metrics_of(simulate(scenario, replication=replication, engine=implied.engine))

    inputs = inputs_of(implied)
    job = planned(implied.scenario, given)
    helped = [t for t in targets_of(job, given) if t.helped_by_instances]
    trials, replications = Trials(job, measure, tell), job.run.replications
    now = job.fleet.instances
    most = max(4 * now, now + 8)

    def holds(count: int) -> bool:
        trial = trials.at(count, replications)
        return all(t.held_by(trial.estimates[t.metric]) for t in helped)

    found = smallest(holds, now, most, stride=max(1, now // 8))
    if found is not None:
        return Wanted(found, False, inputs)
    return Wanted(knee(job, lambda n: trials.at(n, replications).mean("step_s"), now, most), True, inputs)
