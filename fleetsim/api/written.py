"""Files that Python asks for: an existing one is replaced, and one that cannot be written is an OutsideError."""

from __future__ import annotations

import os
from pathlib import Path

from fleetsim.errors import OutsideError


def write(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Writes it, text as UTF-8. Raises OutsideError."""
    place = Path(path)
    try:
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            place.write_text(content, encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise unwritten(place, error) from None
    return place


def unwritten(place: Path, error: Exception) -> OutsideError:
    """What is told of a place that could not be written to."""
    reason = error.strerror if isinstance(error, OSError) else None
    return OutsideError(f"{str(place)!r}: cannot be written: {reason or error}")
