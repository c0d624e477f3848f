"""What every record can do, be it a msgspec Struct, as nearly all are, or a dataclass, as the records of flags are; and
tables of records that are written as text.

A Struct is made in a thirtieth of the time of a dataclass, and a copy of one in a tenth.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, structs

T = TypeVar("T")


def replace(record: T, /, **changes: Any) -> T:
    """A copy with other values, as Python 3.13's `copy.replace` makes one. Raises TypeError for a name it has not."""
    if isinstance(record, Struct):
        return structs.replace(record, **changes)
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]


def field_names(record: object) -> tuple[str, ...]:
    """The fields of a record or of its class, in their order; of anything else none."""
    names: tuple[str, ...] = getattr(record, "__struct_fields__", ())
    return tuple(f.name for f in dataclasses.fields(record)) if dataclasses.is_dataclass(record) else names


def as_dict(record: object) -> dict[str, Any]:
    """Its values by name; records in it, in lists, tuples and mappings too, become dictionaries as well."""
    return {name: _plain(getattr(record, name)) for name in field_names(record)}


def _plain(value: Any) -> Any:
    if field_names(value) and not isinstance(value, type):
        return as_dict(value)
    if isinstance(value, list):
        return [_plain(below) for below in value]
    if isinstance(value, tuple):
        return tuple(_plain(below) for below in value)
    if isinstance(value, dict):
        return {key: _plain(below) for key, below in value.items()}
    return value


def table_rows(table: str) -> Iterator[list[str]]:
    """The cells of a table of records that is written as text: a row a line, | between its cells.

    A line that begins with a blank goes on with the last one; one that begins with # is a comment.
    """
    table = re.sub(r"\n +", " ", re.sub(r"^#.*\n", "", table, flags=re.MULTILINE))
    yield from ([cell.strip() for cell in row.split("|")] for row in table.splitlines() if row)


def tables_of(path: Path) -> dict[str, list[list[str]]]:
    """The tables of a file that ships with the code: name -> rows. `[name]` begins each."""
    found: dict[str, list[list[str]]] = {}
    for row in table_rows(path.read_text(encoding="utf-8")):
        if len(row) == 1 and row[0].startswith("["):
            rows = found[row[0][1:-1]] = []
        else:
            rows.append(row)
    return found
