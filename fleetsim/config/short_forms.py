"""The short forms of a scenario file: read at its edge, written out, and known nowhere below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.errors import InputError, Problem

# What may be written, and what it stands for.
SHORT_FORMS = {"workload.reward.workers": "stations.reward.workers", "fleet.second": "fleet.pools.second"}


def long_path(path: str) -> str:
    """What a dotted path stands for: itself, unless it is a short form or lies in one."""
    for short, long in SHORT_FORMS.items():
        if path == short or path.startswith(f"{short}."):
            return long + path[len(short) :]
    return path


def written_out(raw: Mapping[str, Any], *, last_word: bool = False) -> dict[str, Any]:
    """A copy of a raw scenario without the short forms. last_word: they were said later than what they stand for.

    Raises InputError where a file gives both, with different values. What is no mapping stays: the validation tells.
    """
    result = dict(raw)
    for short, long in SHORT_FORMS.items():
        *above, last = short.split(".")
        section = _copied(result, above, known=True)
        if section is None or last not in section:
            continue
        value = section.pop(last)
        *above, last = long.split(".")
        target = _copied(result, above, known=False)
        if target is None:
            continue
        given = target.get(last)
        if given is not None and given != value and not last_word:
            rule = f"stands for {long}, which is {given}"
            raise InputError([Problem(short, value, rule, "give one of them")])
        target[last] = value
    if isinstance(result.get("assumed"), (list, tuple)):
        result["assumed"] = [long_path(path) if isinstance(path, str) else path for path in result["assumed"]]
    return result


def _copied(raw: dict[str, Any], keys: list[str], *, known: bool) -> dict[str, Any] | None:
    """The section at these keys, copied with all above it; None where one is no mapping. known: and where one is not
    there, which else is made."""
    for key in keys:
        below = raw.get(key)
        if below is None and not known:
            below = {}
        if not isinstance(below, Mapping):
            return None
        raw[key] = dict(below)
        raw = raw[key]
    return raw
