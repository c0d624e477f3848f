"""`python -m tests.golden.write [NAME...]`: runs the calls and writes their goldens anew; say in the commit why."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.golden.calls import chosen
from tests.golden.run import Workshop
from tests.golden.said import SAID, differs, golden, told, unkept


def main(names: list[str]) -> int:
    """names: of calls or commands; without any, all are written, and those of no call are removed."""
    SAID.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        workshop = Workshop(Path(root))
        for call in chosen(names):
            now = told(call, workshop)
            if differs(call.name, now):
                golden(call.name).write_text(now, encoding="utf-8")
                print(f"wrote said/{call.name}.txt")
    for name in () if names else unkept():
        (SAID / name).unlink()
        print(f"removed said/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
