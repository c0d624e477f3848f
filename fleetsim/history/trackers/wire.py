"""Protocol buffers on the wire, as far as a message of numbers and names needs them.

The encoding is published and stable (protobuf.dev, "Encoding"); trackers' own libraries read the same files at a few
megabytes a second, or no longer at all.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are no such message, or end in the middle of one."""


def fields(data: bytes, at: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int]]:
    """(number, kind, start, end) of each field between at and end; of a varint start is its value, and end where it
    ended. Raises WireError."""
    end = len(data) if end is None else end
    while at < end:
        key, at = varint(data, at, end)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at, end)
            yield key >> 3, kind, value, at
            continue
        if kind == BYTES:
            size, at = varint(data, at, end)
        elif kind == FIXED32:
            size = 4
        elif kind == FIXED64:
            size = 8
        else:
            raise WireError(f"a field of kind {kind}")
        if at + size > end:
            raise WireError("a field that ends beyond its message")
        yield key >> 3, kind, at, at + size
        at += size


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError("a number without an end")
