"""One key of a scenario, several values: `KEY=LO:HI[:STEP]` or `KEY=A,B,C` on the command line, a mapping in Python.

For `replay --sweep` and `sweep --grid`.
"""

from __future__ import annotations

import math
from typing import Any

from fleetsim.config.load import parse_override
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError, Problem

MOST_VALUES = 200
_FORM = "must read KEY=LO:HI, KEY=LO:HI:STEP or KEY=A,B,C"


def parse_sweep(text: str, flag: str = "--sweep", most: int = MOST_VALUES) -> tuple[str, tuple[Any, ...]]:
    """ "fleet.instances=8:12:2" -> ("fleet.instances", (8, 10, 12)); the upper end belongs to the range.

    Whole numbers from LO to HI in steps of 1, unless STEP says otherwise; anything else in a list of YAML values.
    Raises InputError for an unknown key, an empty or endless range, more than `most` values, under the flag's name.
    """

    def refuse(rule: str, remedy: str) -> InputError:
        return InputError([Problem(flag, text, rule, remedy)])

    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise refuse(_FORM, "for example fleet.instances=8:14")
    path, _ = parse_override(f"{key}=null")
    parts = values.split(":")
    if len(parts) == 1 or any(c in values for c in "[{,'\""):
        listed = from_yaml(f"[{values}]", f"{flag} {path}")
        if not listed or len(listed) > most:
            raise refuse(f"1 to {most:,} values", "list the values that matter")
        return path, tuple(listed)
    if len(parts) > 3:
        raise refuse(_FORM, "for example fleet.instances=8:14")
    try:
        low, high = float(parts[0]), float(parts[1])
        step = float(parts[2]) if len(parts) == 3 else 1.0
    except ValueError:
        raise refuse(
            "a range has numbers at its ends", "for example fleet.instances=8:14, or list the values"
        ) from None
    if not all(map(math.isfinite, (low, high, step))) or step <= 0 or high < low:
        raise refuse("a range goes up, by a step above 0", "for example fleet.instances=8:14:2")
    steps = (high - low) / step  # infinite where the ends are far apart and the step is tiny
    if steps >= most:
        found = f"{math.floor(steps) + 1:,}" if steps < 1e15 else "over 10^15"
        raise refuse(f"{found} values, at most {most:,}", "give a larger STEP")
    count = math.floor(steps + 1e-9) + 1
    whole = all(x == int(x) for x in (low, step))
    numbers = (low + k * step for k in range(count))
    # Twelve digits: 0.1 + 2 * 0.1 is meant to be 0.3.
    return path, tuple(round(x) if whole else float(f"{x:.12g}") for x in numbers)
