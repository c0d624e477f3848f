"""How many instances the scenario behind a window wants, sized anew only when its inputs have moved."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fleetsim.config.counted import law_of
from fleetsim.job import nameplate
from fleetsim.replay.change.recommend import recommend
from fleetsim.replay.implied.implied import Implied

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
    """What the count depends on and a window measures or implies: seconds, tokens, samples, limits."""
    s = implied.scenario
    a = s.admission
    context = nameplate.mean_prompt_tokens(s) + nameplate.mean_output_tokens(s) / 2.0
    found = {
        "output_tokens": nameplate.mean_output_tokens(s),
        "prompt_tokens": nameplate.mean_prompt_tokens(s),
        "batch_samples": float(s.trainer.batch_samples),
        "group_size": float(s.workload.group_size),
        "trainer_step_s": nameplate.trainer_step_s(s),
        "sync_pause_s": float(s.sync.pause_s or 0.0),
        "target_idle": s.targets.trainer_idle_fraction,
        "prefix_caching": float(s.engine.prefix_caching),
        "slow_instances": float(sum(f != 1.0 for f in s.fleet.speed_factors)),
        "in_flight_cap": float(s.fleet.max_in_flight_samples or 0),
        "in_flight_cap_per_instance": float(s.fleet.max_in_flight_samples_per_instance or 0),
        f"admission.{a.law}": float(law_of(s).number(a) or 0.0),
    }
    if implied.engine is not None:
        t, limits = implied.engine
        found |= {"max_num_seqs": float(limits.max_num_seqs), "kv_tokens": float(limits.kv_tokens)}
        for b in _LOADS:
            found[f"iteration_s_at_{b}"] = t.seconds(b, kv_tokens=b * context)
    return found


def moved(before: Mapping[str, float], now: Mapping[str, float], share: float) -> tuple[str, ...]:
    """Inputs that changed by more than `share` of what they were, or came or went."""
    names = [*before, *(name for name in now if name not in before)]
    return tuple(n for n in names if not _near(before.get(n), now.get(n), share))


def _near(a: float | None, b: float | None, share: float) -> bool:
    return a is not None and b is not None and abs(a - b) <= share * max(abs(a), abs(b))


def wanted(implied: Implied, given: Collection[str] = (), tell: Callable[[str], None] | None = None) -> Wanted:
    """What `fleetsim replay --recommend` says of the same window. Raises InputError and StuckError as `size` does."""
    found = recommend(implied, given=given, tell=tell)
    return Wanted(found.instances, found.size.at_knee, inputs_of(implied))
