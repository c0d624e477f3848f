"""What `fleetsim size --batch 512 --len 1536` runs through: files and functions of fleetsim, without lambdas.

    python benchmarks/walk.py [fleetsim's arguments]

Counted are functions with a name that were called at least once, and the files that they are in.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
CASE = ("size", "--batch", "512", "--len", "1536")


def walk(arguments: tuple[str, ...]) -> tuple[int, int]:
    """(files, functions) that a command runs through in this process, its threads included."""
    called: set[CodeType] = set()

    def hear(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.add(frame.f_code)

    from fleetsim.cli.main import app

    threading.setprofile(hear)
    sys.setprofile(hear)
    try:
        app(list(arguments))
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    package = str(ROOT / "fleetsim")
    own = [code for code in called if code.co_filename.startswith(package) and not code.co_name.startswith("<")]
    return len({code.co_filename for code in own}), len(own)


if __name__ == "__main__":
    files, functions = walk(tuple(sys.argv[1:]) or CASE)
    print(f"{files} files, {functions} functions", file=sys.stderr)
