"""Text files, packed or not."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO


def open_text(path: Path, newline: str | None = None) -> IO[str]:
    """The file as UTF-8 text (a byte order mark is passed over), unpacked when it is gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline=newline)
    return path.open(encoding="utf-8-sig", newline=newline)
