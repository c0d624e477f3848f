"""Metric names as trackers and wrappers write them: with a prefix that the framework's code does not have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

# What a tracker's or a trainer's wrapper puts before every name, also before one without a "/".
_WRAPPED = ("train/",)
# Measured on other samples than the step's.
_OTHERS = ("eval", "val", "test", "valid", "validation")


def resolved(names: Iterable[str], known: Collection[str]) -> Mapping[str, str]:
    """Known metric -> the name that the log has for it.

    A name matches itself; behind `train/`; or, if it has a "/" in it, behind any other prefix but an evaluation's
    (`rank0/timing_s/step` is `timing_s/step`). Of several the shortest prefix counts.
    """
    found: dict[str, str] = {}
    for name in names:
        metric = known_as(name, known)
        if metric is not None and (metric not in found or len(name) < len(found[metric])):
            found[metric] = name
    return found


def known_as(name: str, known: Collection[str]) -> str | None:
    """The known metric that a name of a log stands for; None where it is none."""
    if name in known:
        return name
    for prefix in _WRAPPED:
        if name.removeprefix(prefix) in known:
            return name.removeprefix(prefix)
    first, slash, rest = name.partition("/")
    while slash and first.lower() not in _OTHERS:
        if "/" in rest and rest in known:
            return rest
        first, slash, rest = rest.partition("/")
    return None
