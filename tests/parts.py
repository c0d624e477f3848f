"""Checks that are one check over many instances, and slow tests: a run takes a fifteenth, the next day another."""

from __future__ import annotations

import os
import sys
import zlib
from datetime import UTC, datetime

PARTS = 15
ALL = 0
# New examples of properties are others every time, so a third of the properties a run sees as much in three days.
NEW_PARTS = 3
# Which part, where it is not to be that of the day: 1 to PARTS, or ALL.
VARIABLE = "FLEETSIM_TESTS_PART"


def part_of_the_day() -> int:
    """What the environment says, or else the day."""
    told = os.environ.get(VARIABLE)
    return int(told) if told else 1 + datetime.now(UTC).date().toordinal() % PARTS


def takes(part: int, check: str, number: int = 0, parts: int = PARTS) -> bool:
    """Whether a part takes this instance of a check, or a slow test. Which one comes first differs from check to check,
    so that no part has all the first ones. parts: of how many; a day's part of fewer is its number, divided by them."""
    return part == ALL or part % parts == (1 + zlib.crc32(check.encode()) + number) % parts


def words(part: int) -> str:
    """Which part is taken, as it is told."""
    return "all parts" if part == ALL else f"part {part} of {PARTS}, chosen by the day; {VARIABLE}={ALL} takes all"


def main() -> None:
    """`python -m tests.parts NAME...`: those of some names that are taken now, one a line."""
    for number, name in enumerate(sys.argv[1:]):
        if takes(part_of_the_day(), "names", number):
            print(name)


if __name__ == "__main__":
    main()
