"""Short forms of a scenario file: read at its edge, written out, and known nowhere below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.errors import InputError, Problem

# What may be written -> what it stands for.
SHORT_FORMS = {"workload.reward.workers": "stations.reward.workers"}


def long_path(path: str) -> str:
    """What a dotted path stands for: itself, unless it is a short form."""
    return SHORT_FORMS.get(path, path)


def written_out(raw: Mapping[str, Any], *, last_word: bool = False) -> dict[str, Any]:
    """A copy of a raw scenario without short forms. last_word: they were said later than what they stand for.

    Raises InputError where a file gives both, with different values. What is no mapping stays: the validation tells.
    """
    result, problems = dict(raw), []
    for short, long in SHORT_FORMS.items():
        above = _section(result, short)
        name = short.rpartition(".")[2]
        if above is None or name not in above:
            continue
        value, target = above[name], _section(result, long, made=True)
        _section(result, short, made=True).pop(name)  # type: ignore[union-attr]
        if target is None:
            continue
        given = target.get(name)
        if given is not None and given != value and not last_word:
            problems.append(Problem(short, value, f"stands for {long}, which is {given}", "give one of them"))
        target[name] = value
    if isinstance(result.get("assumed"), (list, tuple)):
        result["assumed"] = [long_path(path) if isinstance(path, str) else path for path in result["assumed"]]
    if problems:
        raise InputError(problems)
    return result


def _section(raw: dict[str, Any], path: str, *, made: bool = False) -> dict[str, Any] | None:
    """The section that holds a path; None where none is a mapping. made: copied on the way, and made where it lacks."""
    here: Any = raw
    for key in path.split(".")[:-1]:
        below: Any = here.get(key)
        if below is None and made:
            below = {}
        if not isinstance(below, Mapping):
            return None
        copy: dict[str, Any] | Any = dict(below) if made else below
        if made:
            here[key] = copy
        here = copy
    return here
