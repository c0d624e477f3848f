"""Tables of policies: one entry for each name that a scenario file may give."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar, get_args

Name = TypeVar("Name", bound=str)
Record = TypeVar("Record")


def complete(names: Any, entries: Mapping[Name, Record]) -> Mapping[Name, Record]:
    """The entries, read only, in the order of `names`, a Literal. Raises TypeError at import where one has no entry."""
    missing = [name for name in get_args(names) if name not in entries]
    if missing:
        raise TypeError(f"a policy has a name and no entry in its table: {', '.join(missing)}")
    return MappingProxyType({name: entries[name] for name in get_args(names)})


def listed(names: list[str]) -> str:
    """Names in a sentence: "a", "a or b", "a or b or c"."""
    return " or ".join(names)
