"""The frameworks' own parsers, each in a process that lives as long as the tests; skipped, loudly, where there is none.

tests/frameworks/parsers/install.sh fetches the packages. With FLEETSIM_REQUIRE_PARSERS=1 missing ones are a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# (framework, words of a command, text of a file) -> its settings as the framework has them, or why it refuses.
Parse = Callable[[str, Sequence[str], str], dict[str, Any]]
# A script is run by bash; what it would start is written down instead.
_RECORD = """
for name in python3 uv trl accelerate; do
  eval "$name() { printf '%s\\0' $name \\"\\$@\\" > \\"$STARTED/$name.\\$BASHPID\\"; }"
done
. "$SCRIPT"
wait
"""


@pytest.fixture(scope="session")
def own_parser() -> Iterator[Parse]:
    """Asks a framework's own parser."""
    if not (HERE / ".packages").is_dir():
        reason = "FRAMEWORKS' OWN PARSERS NOT RUN: tests/frameworks/parsers/install.sh fetches them"
        if os.environ.get("FLEETSIM_REQUIRE_PARSERS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    running: dict[str, subprocess.Popen[str]] = {}

    def ask(framework: str, words: Sequence[str], text: str) -> dict[str, Any]:
        if framework not in running:
            command = [sys.executable, str(HERE / "own.py"), framework]
            pipe = subprocess.PIPE
            running[framework] = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
        process = running[framework]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"words": words, "text": text}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"{framework}'s parser ended: {process.wait()}"
        return dict(json.loads(answer))

    yield ask
    for process in running.values():
        process.communicate("", timeout=60)


def commands(script: str, folder: Path) -> list[list[str]]:
    """The words of every command that a script starts, as bash hands them over; the main one last."""
    started = folder / "started"
    started.mkdir(exist_ok=True)
    for old in started.iterdir():
        old.unlink()
    file = folder / "run.sh"
    file.write_text(script, encoding="utf-8")
    known = {**os.environ, "SCRIPT": str(file), "STARTED": str(started)}
    subprocess.run(["bash", "-c", _RECORD], check=True, capture_output=True, env=known)
    found = [made.read_text(encoding="utf-8").split("\0")[:-1] for made in started.iterdir()]
    return sorted(found, key=lambda words: "vllm-serve" not in words)
