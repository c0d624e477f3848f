"""Dotted paths of a scenario: what stands at one, which were given, which lie in which."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel


def is_at(path: str, place: str) -> bool:
    """Whether `path` is `place` or lies in it."""
    return path == place or path.startswith(f"{place}.")


def overlap(a: str, b: str) -> bool:
    """Whether one of two paths is the other or lies in it: who gives both says something twice."""
    return is_at(a, b) or is_at(b, a)


def is_given(path: str, given: Collection[str]) -> bool:
    """Whether the path, or one above it, was given: a whole `fleet.failures` gives fleet.failures.mtbf_s."""
    return any(is_at(path, other) for other in given)


def is_touched(path: str, given: Collection[str]) -> bool:
    """Whether the path was given: itself, a part of it, or above it."""
    return any(overlap(path, other) for other in given)


def given_paths(section: BaseModel, prefix: str = "") -> set[str]:
    """Dotted paths of the fields that were set, not defaulted, in a model that was just validated."""
    from pydantic import BaseModel  # here, for a command's question is made of paths and must not import it

    paths: set[str] = set()
    for name in section.model_fields_set:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            paths |= given_paths(value, f"{prefix}{name}.")
        else:
            paths.add(f"{prefix}{name}")
    return paths


def field_at(section: BaseModel, path: str) -> Any:
    """The field at a dotted path; None where there is none, as a parameter of another law."""
    value: Any = section
    for key in path.split("."):
        value = getattr(value, key, None)
    return value


def value_at(section: BaseModel, path: str) -> Any:
    """The value at a dotted path; sections and laws as plain mappings. Raises AttributeError where there is none."""
    value: Any = section
    for key in path.split("."):
        value = getattr(value, key)
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value


def put(raw: dict[str, Any], path: str, value: Any) -> None:
    """Sets the value at a dotted path of a raw scenario; sections that it lacks are made."""
    *above, last = path.split(".")
    for key in above:
        raw = raw.setdefault(key, {})
    raw[last] = value
