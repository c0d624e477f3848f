"""Flags, and every keyword of the Python interface, as paths of a scenario: which path each sets, and which contradict
each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fleetsim.config.override import parse_override
from fleetsim.config.paths import is_at, is_given
from fleetsim.config.yaml_text import as_yaml
from fleetsim.errors import InputError, Problem
from fleetsim.faces import SET, flag, text
from fleetsim.job.settings import ALSO, LENGTH_FLAGS, LENGTHS, PATHS, place_of

# Each of these says where the engine's speed comes from: the last word wins, so it takes the others back.
_SPEEDS = ("profile", "instance_tok_s", "gpu", "model")


def overrides(name: str, value: Any) -> list[str]:
    """The overrides that a flag stands for. JSON is YAML, so text keeps its quotes and numbers their digits."""
    return [*ALSO.get(name, ()), override_text(PATHS[name], value)]


def override_text(path: str, value: Any) -> str:
    """The `key.path=value` of a value: text keeps its quotes and numbers their digits. Raises TypeError for an object
    that no file could hold."""
    return f"{path}={as_yaml(value)}"


def contradictions(flags: Mapping[str, Any]) -> list[Problem]:
    """Flags that name different sources for the engine's speed."""
    found = []
    if "profile" in flags:
        for name in ("instance_tok_s", "gpu", "model"):
            if name in flags:
                rule = "a profile has its own engine speed, GPU and model"
                found.append(Problem(flag(name), flags[name], rule, "drop one of the two"))
    return found


def given_twice(sets: Sequence[str], flags: Mapping[str, Any]) -> list[Problem]:
    """A path that a flag and --set both give: neither may lose in silence."""
    found = []
    for written in sets:
        try:
            path, _ = parse_override(written)
        except InputError:
            continue  # told by the load
        name = said_by(path, flags)
        if name is not None:
            rule, remedy = text("{} says the same thing", flag(name)), text("keep {} or {}", SET, flag(name))
            found.append(Problem(SET, written, rule, remedy))
    return found


def said_by(path: str, flags: Collection[str]) -> str | None:
    """The one of these flags that says what stands at a path; the flags of lengths say a law together."""
    if is_at(path, LENGTHS):
        return next((name for name in LENGTH_FLAGS if name in flags), None)
    return next((name for name in flags if PATHS.get(name) == path), None)


def merged(
    texts: Mapping[str, str], options: Mapping[str, Any], new: Mapping[str, str], said: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """`key.path=value` texts by path, and options, with what is said anew: the last word wins.

    texts, options: as they were. new, said: the same, said since.
    """
    places = {place for name in said if (place := place_of(name)) is not None}
    earlier = {path: text for path, text in texts.items() if not is_given(path, places | new.keys())}
    kept = {name: value for name, value in options.items() if not is_given(place_of(name) or "", new.keys())}
    if "profile" in said:
        kept = {name: value for name, value in kept.items() if name not in _SPEEDS}
    elif any(name in said for name in _SPEEDS):
        kept.pop("profile", None)
    return earlier | dict(new), kept | dict(said)


def unused_notes(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags that name the hardware beside a speed that was given as a number."""
    if "instance_tok_s" not in flags:
        return ()
    idle = [f"--{name}" for name in ("gpu", "model") if name in flags]
    if not idle:
        return ()
    return (f"{' and '.join(idle)} only name the instance: its speed is --instance-tok-s",)
