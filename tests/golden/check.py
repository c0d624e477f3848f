"""`python -m tests.golden.check [NAME...]`: runs the calls, prints what differs from their goldens, exit code 1."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.golden.calls import chosen
from tests.golden.run import Workshop
from tests.golden.said import differs, told, unkept


def main(names: list[str]) -> int:
    """Compares to the last digit. names: of calls or commands, all if there are none."""
    found = [] if names else [f"said/{name} belongs to no call" for name in unkept()]
    with tempfile.TemporaryDirectory() as root:
        workshop = Workshop(Path(root))
        calls = chosen(names)
        found += [text for call in calls if (text := differs(call.name, told(call, workshop)))]
    print("\n\n".join(found) or f"{len(calls)} goldens are as they were")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
