"""A run log of 100,000 steps, judged by `fleetsim replay`: processor seconds and memory of the whole process.

    python benchmarks/replay_log.py

In five forms: verl's console, every line with what Ray puts before it; JSONL and CSV with the same metrics; the
dictionaries that TRL and others print; and the console that takes longest, SkyRL's asynchronous one, with all that
stands between its steps (tests/outside/logs). Two hundred steps of a fully async job of tests/history/verl_log.py are
repeated, their numbers counted on; of SkyRL's as many as its job has. Prints one JSON object. `floor` is what Python's
own `json` takes to read the JSONL alone, and `of_floor` how often that a form takes: it says the same on a slow machine
and on a busy one.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, its folder is on the path and the tests are not
from tests.history.verl_log import VerlJob, console  # noqa: E402
from tests.outside.logs.cases import LOGS  # noqa: E402

FLEETSIM = [sys.executable, "-m", "fleetsim"]
STEPS, MADE = 100_000, 200
JOB = VerlJob(rate=4.0, window=96, train_s=10.0)
FORMS = {"console": "train.log", "jsonl": "train.jsonl", "csv": "train.csv", "dictionaries": "printed.log"}
SKYRL = "skyrl, asynchronous: fits"
FLOOR = "import json, sys; all(json.loads(line) for line in open(sys.argv[1], encoding='utf-8'))"
# What TRL calls the metrics that tell whose console it is.
_TRL = {"timing_s/step": "step_time", "response_length/mean": "completions/mean_length"}
_SKYRL_STEP = re.compile(r"(?<=Step )\d+(?=: )|(?<='trainer/global_step': )\d+")
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


def write(folder: Path) -> None:
    """The log in each of its forms. Both rows of a step are one line of CSV, and one dictionary."""
    with ExitStack() as files:
        text, jsonl, table, printed = (files.enter_context((folder / name).open("w")) for name in FORMS.values())
        whole: dict[str, float] = {}
        cells = None
        for line in console_lines():
            text.write(f"{line}\n")
            if not (row := rows(line)):
                continue
            jsonl.write(f"{json.dumps(row)}\n")
            if "timing_s/step" not in row:
                whole = row
                continue
            whole |= row
            if cells is None:
                cells = csv.DictWriter(table, list(whole))
                cells.writeheader()
            cells.writerow(whole)
            printed.write(f"{ {_TRL.get(name, name): value for name, value in whole.items()} }\n")


def write_skyrl(path: Path) -> None:
    """SkyRL's console."""
    log = next(log for log in LOGS if log.name == SKYRL)
    life = log.live()
    text = log.text(life)
    # what stands between the numbers, and the numbers
    between, numbers = _SKYRL_STEP.split(text), [int(number) for number in _SKYRL_STEP.findall(text)]
    with path.open("w") as file:
        for begin in range(0, STEPS, len(life.steps)):
            for before, number in zip(between, numbers, strict=False):
                file.write(f"{before}{number + begin}")
            file.write(between[-1])


def used(command: list[str]) -> tuple[bytes, dict[str, float]]:
    """What a process printed, and its processor seconds and memory."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return printed, {"cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024.0}


def judged(path: Path) -> dict[str, float]:
    """One `fleetsim replay` of the log."""
    printed, use = used([*FLEETSIM, "replay", "--from", str(path), "--no-backtest", "--json"])
    assert round(json.loads(printed)["observed"]["trainer"]["steps"]["value"]) > 0.9 * STEPS
    return use


def main() -> None:
    """Measures each form three times."""
    told: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        write_skyrl(Path(folder, "skyrl.log"))
        floor = [used([sys.executable, "-c", FLOOR, str(Path(folder, FORMS["jsonl"]))])[1]["cpu_s"] for _ in range(3)]
        told["floor"] = {"cpu_s": floor}
        for form, name in {**FORMS, "skyrl": "skyrl.log"}.items():
            path = Path(folder, name)
            runs = [judged(path) for _ in range(3)]
            told[form] = {
                "bytes": path.stat().st_size,
                "cpu_s": [run["cpu_s"] for run in runs],
                "of_floor": min(run["cpu_s"] for run in runs) / min(floor),
                "peak_bytes": max(run["peak_bytes"] for run in runs),
            }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
