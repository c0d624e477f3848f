"""A run log of 100,000 steps, judged by `fleetsim replay`: processor seconds and memory of the whole process.

    python benchmarks/replay_log.py

Twice: as verl's console, every line with what Ray puts before it, and as JSONL with the same metrics. Two hundred steps
of a fully async job of tests/history/verl_log.py are repeated, their numbers counted on. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, its folder is on the path and the tests are not
from tests.history.verl_log import VerlJob, console  # noqa: E402

FLEETSIM = [sys.executable, "-m", "fleetsim"]
STEPS, MADE = 100_000, 200
JOB = VerlJob(rate=4.0, window=96, train_s=10.0)
_STEP = re.compile(r"\bstep:(\d+) - ")


def console_lines() -> Iterator[str]:
    """The console: steps, and what stands between them."""
    lines = [(_STEP.search(line), line) for line in console(JOB, MADE).splitlines()]
    for begin in range(0, STEPS, MADE):
        for found, line in lines:
            if found is None:
                yield line
            else:
                yield f"{line[: found.start(1)]}{int(found[1]) + begin}{line[found.end(1) :]}"


def rows(line: str) -> dict[str, float]:
    """The metrics of a console line; empty for any other."""
    found = _STEP.search(line)
    if found is None:
        return {}
    pairs = (part.rpartition(":") for part in line[found.end() :].split(" - "))
    return {
        "step": int(found[1]),
        **{key: float(value.removeprefix("np.float64(").rstrip(")")) for key, _, value in pairs},
    }


def judged(path: Path) -> dict[str, float]:
    """One `fleetsim replay` of the log."""
    process = subprocess.Popen(
        [*FLEETSIM, "replay", "--from", str(path), "--no-backtest", "--json"], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    document = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert round(document["observed"]["trainer"]["steps"]["value"]) > 0.9 * STEPS
    return {"cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024.0}


def main() -> None:
    """Measures each form three times."""
    told: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        text, table = Path(folder, "train.log"), Path(folder, "train.jsonl")
        with text.open("w") as log, table.open("w") as jsonl:
            for line in console_lines():
                log.write(f"{line}\n")
                if row := rows(line):
                    jsonl.write(f"{json.dumps(row)}\n")
        for name, path in (("console", text), ("jsonl", table)):
            runs = [judged(path) for _ in range(3)]
            told[name] = {
                "bytes": path.stat().st_size,
                "cpu_s": [run["cpu_s"] for run in runs],
                "peak_bytes": max(run["peak_bytes"] for run in runs),
            }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
