"""JSON documents with their long lists cut down to what tells them apart."""

from __future__ import annotations

import json
import math
import zlib
from typing import Any

MOST = 60


def shortened(value: Any, most: int = MOST) -> Any:
    """The same document; a list of more than `most` things is told by its count, ends, sum and a sum of its words."""
    if isinstance(value, dict):
        return {key: shortened(item, most) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) <= most:
        return [shortened(item, most) for item in value]
    told: dict[str, Any] = {"count": len(value), "first": value[0], "last": value[-1]}
    found, said = numbers_in(value), strings_in(value)
    if found:
        told |= {"numbers": len(found), "sum": math.fsum(found)}
    if said:
        told |= {"texts": len(said), "crc": zlib.crc32("\n".join(said).encode())}
    return told


def numbers_in(value: Any) -> list[float]:
    """All finite numbers of the document, in its order."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [float(value)] if math.isfinite(value) else []
    return [found for item in _items(value) for found in numbers_in(item)]


def strings_in(value: Any) -> list[str]:
    """All texts of the document, in its order, keys left out."""
    return [value] if isinstance(value, str) else [found for item in _items(value) for found in strings_in(item)]


def _items(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def json_text(text: str) -> str:
    """A JSON document as it stands; where it has long lists, laid out anew without them."""
    document = json.loads(text)
    short = shortened(document)
    return text if short == document else json.dumps(short, indent=1, ensure_ascii=False)
