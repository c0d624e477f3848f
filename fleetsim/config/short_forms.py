"""The short form of a scenario file: read at its edge, written out, and known nowhere below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.errors import InputError, Problem

# What may be written, and what it stands for.
SHORT, LONG = "workload.reward.workers", "stations.reward.workers"


def long_path(path: str) -> str:
    """What a dotted path stands for: itself, unless it is the short form."""
    return LONG if path == SHORT else path


def written_out(raw: Mapping[str, Any], *, last_word: bool = False) -> dict[str, Any]:
    """A copy of a raw scenario without the short form. last_word: it was said later than what it stands for.

    Raises InputError where a file gives both, with different values. What is no mapping stays: the validation tells.
    """
    result = dict(raw)
    workload, stations = raw.get("workload"), raw.get("stations")
    reward = workload.get("reward") if isinstance(workload, Mapping) else None
    if isinstance(workload, Mapping) and isinstance(reward, Mapping) and "workers" in reward:
        value = reward["workers"]
        rest = {key: own for key, own in reward.items() if key != "workers"}
        result["workload"] = {**workload, "reward": rest}
        above: Any = {} if stations is None else stations
        target: Any = above.get("reward") if isinstance(above, Mapping) else above
        target = {} if target is None else target
        if isinstance(target, Mapping):
            given = target.get("workers")
            if given is not None and given != value and not last_word:
                rule = f"stands for {LONG}, which is {given}"
                raise InputError([Problem(SHORT, value, rule, "give one of them")])
            result["stations"] = {**above, "reward": {**target, "workers": value}}
    if isinstance(result.get("assumed"), (list, tuple)):
        result["assumed"] = [long_path(path) if isinstance(path, str) else path for path in result["assumed"]]
    return result
