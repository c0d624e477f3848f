"""Checks that are one check over many instances, and slow tests: a run takes a fifteenth, the next day another. Of the
long ones among the quick tests it takes a fifth."""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

PARTS = 15
ALL = 0
# New examples of properties are others every time, so a third of the properties a run sees as much in three days.
NEW_PARTS = 3
# Of quick tests the longest, which `--longest` writes: some hundred of six thousand take most of the time.
LONG_PARTS = 5
LONGEST = Path(__file__).with_name("longest.txt")
_MOST_OF_THE_TIME = 0.62
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


def longest(durations: str) -> list[str]:
    """The tests that take most of the time that `pytest --durations=0 -vv -m "not slow"` told, by name."""
    took: Counter[str] = Counter()
    for seconds, test in re.findall(r"^ *([0-9.]+)s (?:call|setup) +tests/([^\[\n]+)", durations, re.MULTILINE):
        took[test] += float(seconds)
    left, found = _MOST_OF_THE_TIME * took.total(), []
    for test, seconds in took.most_common():
        left -= seconds
        found.append(test)
        if left <= 0.0:
            break
    return sorted(found)


def main() -> None:
    """`python -m tests.parts [--of PARTS] NAME...`: those of some names that are taken now, one a line. `--longest F`
    writes `tests/longest.txt` from what pytest printed."""
    asked, parts = sys.argv[1:], PARTS
    if asked[:1] == ["--longest"]:
        LONGEST.write_text("\n".join(longest(Path(asked[1]).read_text())) + "\n")
        return
    if asked[:1] == ["--of"]:
        parts, asked = int(asked[1]), asked[2:]
    for number, name in enumerate(asked):
        if takes(part_of_the_day(), "names", number, parts):
            print(name)


if __name__ == "__main__":
    main()
