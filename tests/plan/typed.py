"""What somebody types who takes an advice: its flags, as changes and options of a job."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any


def typed(flags: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(dotted path -> value, option -> value) of "--set sync.every_steps=2 --len 1453"."""
    pairs = list(pairwise(flags.split()))
    sets = dict(word.split("=", 1) for before, word in pairs if before == "--set")
    options = {name[2:].replace("-", "_"): json.loads(v) for name, v in pairs if name[:2] == "--" and name != "--set"}
    return {path: _value(written) for path, written in sets.items()}, options


def _value(written: str) -> Any:
    try:
        return json.loads(written)
    except ValueError:
        return written  # a name
