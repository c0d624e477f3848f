"""JSON in: what every reader of a file or of an answer starts from, with no number that later arithmetic cannot hold.

Python's own reader takes `NaN`, `Infinity` and `1e999` (which becomes infinite), and integers of any length, which no
float and no numpy column can hold. All of them are refused here, once, so that no reader has to think of them.
"""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

# Wider integers fit no numpy column; up to here they stay exact.
_WIDEST = 2**63
_MANY_DIGITS, _MANY_DIGITS_IN_BYTES = re.compile(r"[0-9]{19}"), re.compile(rb"[0-9]{19}")


def from_json(text: str | bytes, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of a JSON text; every number in it is finite, every integer one of 64 bits, signed.

    pairs: makes a mapping from its pairs, as json's object_pairs_hook. Raises ValueError, as its kind
    json.JSONDecodeError where the text is no JSON.
    """
    return _read(text, _refuse, pairs, _wide(text))


def from_long_json(text: bytes) -> Any:
    """The same of millions of small integers, which Python reads by itself: the reader looks at them again, as floats.

    Nothing in it is thrown away before it is read whole, so nothing is looked for to be thrown away.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _LONG.decode(text.decode(json.detect_encoding(text)))
    except RecursionError:
        raise ValueError("is nested too deep") from None
    finally:
        if collects:
            gc.enable()


def from_loose_json(text: str | bytes) -> Any:
    """The same of what others wrote, where a metric that came out as no number is nothing unusual: it is NaN.

    For logs, and for readers that name the field or the row of each wrong value.
    """
    if isinstance(text, bytes):
        return _read(text, _no_number, None, True)
    try:
        value = _QUICK.decode(text)
        return _LOOSE.decode(text) if _overflows(value) else value
    except RecursionError:
        raise ValueError("is nested too deep") from None


def _overflows(value: Any) -> bool:
    """Whether a number in it was beyond a float's reach, as hardly any ever is."""
    if not isinstance(value, (dict, list)):
        return value in (math.inf, -math.inf)
    items = value.values() if isinstance(value, dict) else value
    return math.inf in items or -math.inf in items or any(_overflows(i) for i in items if isinstance(i, (dict, list)))


def _numbers(wrong: Callable[[str], float], **otherwise: Any) -> dict[str, Any]:
    """How json's reader makes numbers. wrong: what becomes of one beyond reach; raises, or NaN."""

    def real(digits: str) -> float:
        value = float(digits)
        return value if math.isfinite(value) else wrong(digits)

    def whole(digits: str) -> float:
        value = int(digits) if len(digits) < 30 else _WIDEST
        return value if -_WIDEST < value < _WIDEST else wrong(digits)

    return {"parse_constant": wrong, "parse_float": real, "parse_int": whole, **otherwise}


def _wide(text: str | bytes) -> bool:
    """Whether an integer in it may be beyond 64 bits, as hardly any is: else Python's reader makes them all by itself.
    Bytes with zeros among them are UTF-16 or UTF-32, whose digits do not stand side by side."""
    if isinstance(text, bytes):
        return b"\0" in text or _MANY_DIGITS_IN_BYTES.search(text) is not None
    return _MANY_DIGITS.search(text) is not None


def _read(text: str | bytes, wrong: Callable[[str], float], pairs: Any, wide: bool) -> Any:
    numbers = _numbers(wrong) if wide else _numbers(wrong, parse_int=None)
    try:
        return json.loads(text, object_pairs_hook=pairs, **numbers)
    except RecursionError:
        raise ValueError("is nested too deep") from None


def _no_number(_written: str) -> float:
    return math.nan


def _refuse(written: str) -> NoReturn:
    shown = written if len(written) <= 40 else f"{written[:36]} ..."
    wide = "is too large: whole numbers must be below 2^63"
    raise ValueError(f"{shown} {wide if written.lstrip('-').isdigit() else 'is not a finite number'}")


# Logs have a hundred thousand lines: their reader is made once.
_LOOSE = json.JSONDecoder(**_numbers(_no_number))
_QUICK = json.JSONDecoder(**_numbers(_no_number, parse_float=None))
_LONG = json.JSONDecoder(**_numbers(_refuse, parse_int=None))
