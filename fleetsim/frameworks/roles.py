"""Models beside the policy: critics, references, teachers, judges, adapters. What each does to a plan, and its GPUs.

A scenario has two pools, the trainer's and the engines'. What holds GPUs of its own beside them is counted and named:
a plan knows neither its cost nor its seconds.
"""

from __future__ import annotations

from typing import Any

from fleetsim import units
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Back, Read, one_of, times

REFERENCE, CRITIC, TUNE = "trainer.recipe.reference", "trainer.recipe.critic", "trainer.recipe.tune"
REWARD = "workload.reward.latency_s"


def judged(draft: Draft, who: str, gpus: int = 0) -> None:
    """Something that scores samples, of which no configuration says how long it takes."""
    draft.assume(REWARD, 0.0, _apart(draft, who, gpus), f"--set {REWARD}=SECONDS, from your own logs")


def passed(draft: Draft, who: str, gpus: int = 0) -> None:
    """A teacher, or a reference on GPUs of its own: its pass over every sample, as a reference of the policy's size
    makes it on the trainer's GPUs."""
    why = f"{_apart(draft, who, gpus)}; its pass is timed as one of the policy's size, on the trainer's GPUs"
    draft.assume(REFERENCE, True, why, f"--set {REFERENCE}=false --set trainer.phases=[], where it keeps up")


def critic(draft: Draft, on: Read[Any], made: bool, back: Back, gpus: int = 0) -> None:
    """A critic of the policy's size. gpus: its own, where it does not sit on the trainer's."""
    draft.could(CRITIC, made, back, False)
    if made and gpus:
        why = f"{_apart(draft, str(on), gpus)}; its passes and update are timed on the trainer's GPUs"
        draft.assume(CRITIC, True, why, f"--set {CRITIC}=false")
    elif made:
        draft.put(CRITIC, True, on, back=back)


def adapters(draft: Draft, on: Read[Any], active: bool | None = None) -> None:
    """Adapters are trained, not all weights. on: their rank, or the switch."""
    made = bool(on.value) if active is None else active
    draft.put(TUNE, "lora" if made else "full", on, why="adapters are trained", back=one_of({}), unless="full")


def nodes(draft: Draft, count: str | tuple[str, ...], each: str | tuple[str, ...], default: int = 1) -> int:
    """GPUs of a role: its nodes times the GPUs of each, where a setting says either; else 0."""
    keys = [(key,) if isinstance(key, str) else key for key in (count, each)]
    if not draft.settings.has(*keys[0], *keys[1]):
        return 0
    return times(draft.count(*keys[0], default=1), draft.count(*keys[1], default=default)).value


def _apart(draft: Draft, who: str, gpus: int) -> str:
    draft.other_gpus += gpus
    return f"{who}, on {units.plural(gpus, 'GPU')} that no pool of the plan holds" if gpus else who
