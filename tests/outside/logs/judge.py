"""Judges fleetsim on consoles of ten frameworks, asked as its users ask it: by its command line.

    python -m tests.outside.logs.judge [--jobs 2] [--write-truth] [NAME...]

Prints a line per log: causes named, and columns whose mean over the steps is off the truth by more than a tenth of a
second and two percent (or that are missing, though the console tells them). Of all: precision (of the causes named as
faults, those that may be named) and recall (of those that must be named, those that are). What is true stands in
`truth.json`: each cause is taken away in the outside world, as in `tests/outside/truth.py`; `--write-truth` does so
anew.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

from fleetsim.history.files import read_file
from tests.outside.judge import Judged, ask, line, score
from tests.outside.logs.cases import LOGS, Log
from tests.outside.logs.lived import Step, live
from tests.outside.setting import Setting
from tests.outside.truth import MAY, MUST, remedies

OFF_S, OFF = 0.1, 0.02
SPARE = 0.01  # of a step: instances without which it is no longer are too many
KEPT = Path(__file__).with_name("truth.json")
TRUE: dict[str, Callable[[Step], float]] = {
    "step_s": lambda step: step.step_s,
    "wait_s": lambda step: step.wait_s + step.held_s,
    "train_s": lambda step: step.train_s,
    "sync_s": lambda step: step.sync_s,
    "length_mean": lambda step: step.mean,
    "samples": lambda step: len(step.lengths),
}


def truth(setting: Setting, law: str) -> dict[str, float]:
    """What share of a step each cause costs; and what a quarter fewer instances would add to it (`spare`)."""

    def worth(it: Setting) -> float:
        return it.hours * 3600 / max(len(live(it, law).steps), 1)

    now = worth(setting)
    ways = remedies(setting).items()
    saves = {cause: max((1 - worth(way) / now for way in tried), default=0.0) for cause, tried in ways}
    return saves | {"spare": worth(setting.but(instances=3 * setting.instances // 4)) / now - 1}


@cache
def kept() -> dict[str, dict[str, float]]:
    """Of every job, as truth.json keeps it."""
    return json.loads(KEPT.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def write_truth() -> None:
    """Takes each cause of each job away."""
    jobs = {f"{log.format.law}, {log.what}": log for log in LOGS}
    found = {name: truth(log.setting, log.format.law) for name, log in jobs.items()}
    rounded = {name: {cause: round(saved, 3) for cause, saved in saves.items()} for name, saves in found.items()}
    KEPT.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")


def columns_off(log: Log, path: Path, steps: list[Step]) -> list[str]:
    """Columns that the console tells and the reader has otherwise, or not."""
    told = read_file(path).steps
    if told is None:
        return ["no steps"]
    numbers = told.columns["step"]
    # what warms up is left out, and where the first row has no seconds it stands first
    of = steps[len(steps) - len(numbers) :]
    wrong = [] if len(of) >= 0.9 * len(steps) else [f"{len(of)} of {len(steps)} steps"]
    for name in sorted(log.format.tells):
        if name not in told.columns:
            wrong.append(f"{name} missing")
            continue
        some = np.isfinite(told.columns[name])
        pairs = zip(of, some, strict=True)
        true = statistics.fmean(TRUE[name](step) for step, there in pairs if there)
        read = float(np.mean(told.columns[name][some]))
        if abs(read - true) > OFF_S + OFF * abs(true):
            wrong.append(f"{name} {read:.2f} instead of {true:.2f}")
    return wrong


def judge(log: Log) -> tuple[Judged, list[str]]:
    """Lives, prints, asks, compares."""
    saves = kept()[f"{log.format.law}, {log.what}"]
    must = frozenset(c for c in log.put_in & log.format.must if saves.get(c, 0.0) >= MUST)
    may = log.put_in | {cause for cause, saved in saves.items() if saved >= MAY and cause != "spare"}
    may |= {"backlog"} if saves["spare"] <= SPARE else set()
    lived = log.live()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.log")
        path.write_text(log.text(lived), encoding="utf-8")
        code, out, err = ask(["replay", "--from", str(path), "--json"])
        try:
            told = json.loads(out)
        except json.JSONDecodeError:
            return Judged(log.name, frozenset(), must, may, None, None, f"exit {code}: {err.strip()[-300:]}"), []
        faults = [each for each in told["verdict"]["findings"] if each["state"] == "fault"]
        said = [each for each in faults if each["check"] not in ("data", "model")]
        named = frozenset(each["check"] for each in said if not each["title"].startswith("suspected"))
        return Judged(log.name, named, must, may, None, None, ""), columns_off(log, path, lived.steps)


def main() -> None:
    """Judges all, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write-truth", action="store_true")
    wanted = parser.parse_args()
    chosen = [log for log in LOGS if not wanted.names or any(name in log.name for name in wanted.names)]
    if wanted.write_truth:
        write_truth()
        return
    rows, off = [], 0
    with ProcessPoolExecutor(wanted.jobs) as pool:
        for row, wrong in pool.map(judge, chosen):
            rows.append(row)
            off += bool(wrong)
            print(line(row) + (f"; OFF {', '.join(wrong)}" if wrong else ""), flush=True)
    total = score(rows)
    print(
        f"{len(rows)} consoles: precision {total.precision:.3f}, recall {total.recall:.3f}; "
        f"columns as they were in {len(rows) - off}"
    )


if __name__ == "__main__":
    main()
