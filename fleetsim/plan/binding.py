"""What binds, in plain words: what sets the step time, what would lift it, and what to type next."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Binding:
    """One value of the metric `binding`. `name` fits after "what binds:"."""

    name: str
    meaning: str
    lift: str


BINDINGS: dict[str, Binding] = {
    "trainer": Binding(
        "the trainer",
        "samples are nearly always ready when the trainer asks for them",
        "a faster trainer, or a larger batch per step",
    ),
    "rollout": Binding(
        "rollout throughput",
        "the trainer waits while every instance is busy",
        "more instances (--set fleet.instances=N), a faster engine, or shorter responses (--max-len)",
    ),
    "longest_response": Binding(
        "the longest responses",
        "the trainer waits for a few long responses while most instances have nothing left to do",
        "a lower --max-len, more batches ahead, or faster decoding of each response (a larger --tp, a faster --gpu)",
    ),
    "sync": Binding(
        "weight sync",
        "publishing and loading weights takes the time that is missing",
        "fewer or faster syncs: --sync-pause-s, --set sync.every_steps=2",
    ),
    "in_flight_cap": Binding(
        "the client's in-flight cap",
        "the client keeps too few samples in flight to fill the instances, so more of them stay idle",
        "a higher fleet.max_in_flight_samples",
    ),
    "staleness_window": Binding(
        "the staleness budget",
        "the fleet may run no further ahead of the trainer, so each batch waits for its slowest groups",
        "a larger --max-staleness, if the recipe tolerates it",
    ),
}


# What holds the fleet back under each admission law.
_BUDGETS = {
    "version_window": "a larger --max-staleness",
    "target_step": "a larger --max-staleness",
    "batches_ahead": "more admission.batches_ahead",
    "per_sync_window": "a larger admission.staleness_threshold",
    "cumulative_ratio": "a larger admission.async_ratio",
    "fixed_pool": "a larger admission.pool_samples",
}


def binding_words(binding: str, law: str = "version_window", scope: str = "global") -> Binding:
    """The words for a binding under an admission law and sync scope; one not known here stands for itself."""
    words = BINDINGS.get(binding) or Binding(binding.replace("_", " "), "", "")
    if binding == "staleness_window" and law in _BUDGETS:
        return replace(words, lift=f"{_BUDGETS[law]}, if the recipe tolerates it")
    if binding == "sync" and scope == "rolling":
        return replace(
            words,
            meaning="instances load new weights in turn, and the last one has a version only after the next is made",
            lift="more instances at a time (sync.at_once), or all of them (sync.scope: global)",
        )
    return words
