"""Values that follow another one: a system whose queue holds two batches holds two of every other batch as well."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import Field
from typing_extensions import TypeIs

from fleetsim.config.base import ConfigSection
from fleetsim.config.paths import is_given
from fleetsim.config.trainer import TrainerConfig
from fleetsim.config.workload import WorkloadConfig

BATCH, GROUP = "trainer.batch_samples", "workload.group_size"
Follower = Literal[
    "fleet.max_in_flight_samples",
    "fleet.max_in_flight_samples_per_instance",
    "admission.pool_samples",
    "admission.adaptive.start_samples",
    "admission.adaptive.most_samples",
    "buffer.capacity_samples",
]
Followers = tuple[Follower, ...]


class FollowConfig(ConfigSection):
    """Values of this file that change with another batch or group size, unless they are given beside it."""

    batch: Followers = Field(
        default=(), strict=False, max_length=10, description="values in multiples of trainer.batch_samples"
    )
    group: Followers = Field(
        default=(), strict=False, max_length=10, description="values in multiples of workload.group_size"
    )
    at_least_batch: Followers = Field(
        default=(), strict=False, max_length=10, description="values of their own that hold at least one whole batch"
    )


def followed(before: Mapping[str, Any], after: Mapping[str, Any], said: Collection[str]) -> dict[str, Any]:
    """`after`, a raw scenario, with the values that follow what changed since `before`; they become assumed.

    Whole groups, rounded up. said: paths that were given for `after`: those stay. What is no number stays as well:
    the validation tells about it.
    """
    changes: dict[str, int] = {}
    follow, group = _at(after, "follow"), _count(after, GROUP)
    for kind, reference in (("batch", BATCH), ("group", GROUP), ("at_least_batch", BATCH)):
        names = follow.get(kind) if isinstance(follow, Mapping) else None
        if not names or not isinstance(names, (list, tuple)):
            continue
        old, new = _count(before, reference), _count(after, reference)
        if old is None or new is None or group is None or old == new:
            continue
        for path in names:
            value = changes.get(path, _at(after, path)) if isinstance(path, str) else None
            if _whole(value) and not is_given(path, said):
                there = max(value, new) if kind == "at_least_batch" else -(-value * new // (old * group)) * group
                if there != value:
                    changes[path] = there
    result = dict(after)
    for path, count in changes.items():
        here = result
        *above, last = path.split(".")
        for key in above:
            here[key] = dict(here[key])
            here = here[key]
        here[last] = count
    assumed = result.get("assumed") or ()
    if changes and isinstance(assumed, (list, tuple)):
        result["assumed"] = [*assumed, *(path for path in changes if path not in assumed)]
    return result


def _whole(value: Any) -> TypeIs[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _at(raw: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of a raw mapping, None where there is none."""
    value: Any = raw
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _count(raw: Mapping[str, Any], path: str) -> int | None:
    """The batch or the group size, the default where it is not given; None where it is no count."""
    value = _at(raw, path)
    if value is None:
        return TrainerConfig().batch_samples if path == BATCH else WorkloadConfig().group_size
    return value if _whole(value) else None
