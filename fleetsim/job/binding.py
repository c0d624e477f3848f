"""What binds, in plain words: what sets the step time, what would lift it, and what to type next."""

from __future__ import annotations

from dataclasses import replace

from fleetsim.dataclass import dataclass
from fleetsim.policies.admission import LAWS
from fleetsim.policies.law import Looser
from fleetsim.policies.law_inputs import LawName


@dataclass(frozen=True, slots=True)
class Binding:
    """One value of the metric `binding`. `name` fits after "what binds:"."""

    name: str
    meaning: str
    lift: str


BINDINGS: dict[str, Binding] = {
    "trainer": Binding(
        "the trainer",
        "most of a step is the trainer's own time, and samples come fast enough for it",
        "a faster trainer, or a larger batch per step",
    ),
    "rollout": Binding(
        "rollout throughput",
        "the trainer waits for samples, and instances are so full that each of them makes them slowly",
        "more instances (--instances N of simulate), a faster engine, or shorter responses (--max-len)",
    ),
    "longest_response": Binding(
        "the longest responses",
        "the trainer waits for the longest responses of a batch, which take so long however many instances there are",
        "a lower --max-len, more batches ahead, or faster decoding of each response (a larger --tp, a faster --gpu)",
    ),
    "sync": Binding(
        "weight sync",
        "publishing and loading weights takes more of a step than anything else that can be changed",
        "fewer or faster syncs: --sync-pause-s, --set sync.every_steps=2",
    ),
    "in_flight_cap": Binding(
        "the client's in-flight cap",
        "the client keeps so few samples in flight that instances could make more at once",
        "a higher cap: fleet.max_in_flight_samples, or fleet.max_in_flight_samples_per_instance where that is the one",
    ),
    "staleness_window": Binding(
        "the staleness budget",
        "the fleet may run no further ahead of the trainer, so each batch waits for its slowest groups",
        "a larger --max-staleness, if the recipe tolerates it",
    ),
    "environment": Binding(
        "tools and rewards",
        "responses wait for tool calls or for their reward, while the trainer waits for them",
        "faster tools or rewards, or more reward workers (workload.reward.workers)",
    ),
}


# From this share of a step on, a trainer that binds is said to wait as well: its own seconds are then not most of it.
WAITS = 0.2


def binding_words(
    binding: str,
    law: LawName = "version_window",
    scope: str = "global",
    unit: str = "samples",
    idle: float = 0.0,
) -> Binding:
    """The words for a binding under an admission law, a sync scope and caps of that unit. A binding that is not known
    here is shown by its name. idle: share of a step for which the trainer waits."""
    words = BINDINGS.get(binding) or Binding(binding.replace("_", " "), "", "")
    if binding == "trainer" and idle >= WAITS:
        return replace(
            words,
            name="the trainer, although it also waits",
            meaning="a fifth less of the trainer's own time shortens a step by more than a fifth more of anything that "
            "it waits for",
        )
    looser, cap = LAWS[law].looser, LAWS[law].cap
    if binding == "staleness_window" and isinstance(looser, Looser):
        return replace(words, lift=f"{looser.lift}, if the recipe tolerates it")
    if binding == "in_flight_cap" and cap is not None:
        return replace(words, lift=f"more {cap.setting}")
    if binding == "in_flight_cap" and unit == "groups":
        return replace(
            words,
            meaning="the client keeps few groups in flight, and a group that waits for its last response keeps the "
            "places of all its responses",
            lift=f"{words.lift}; by whole groups (workload.group_size samples), of which alone it has room",
        )
    if binding == "sync" and scope == "rolling":
        return replace(
            words,
            meaning="instances load new weights in turn, and the last one has a version only after the next is made",
            lift="more instances at a time (sync.at_once), or all of them (sync.scope: global)",
        )
    return words
