"""Judges fleetsim on the histories of the outside world, asked as its users ask it: by its command line.

    python -m tests.outside.judge [--jobs 2] [NAME...]

Prints a line per history, and of all: precision (of the causes named as faults, those that may be named), recall (of
those that must be named, those that are) and the share of advised counts within one of the truth.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from fleetsim.cli.main import app
from tests.outside.cases import CASES, Case
from tests.outside.exposition import write
from tests.outside.truth import Truth, kept


@dataclass(frozen=True)
class Judged:
    """What fleetsim said of one history, beside the truth."""

    name: str
    named: frozenset[str]
    must: frozenset[str]
    may: frozenset[str]
    advised: int | None
    instances: int | None
    failed: str

    @property
    def wrong(self) -> frozenset[str]:
        """Causes named that are none."""
        return self.named - self.may - self.must

    @property
    def missed(self) -> frozenset[str]:
        """Causes that were not named."""
        return self.must - self.named


@dataclass(frozen=True)
class Score:
    """Of many histories."""

    precision: float
    recall: float
    counts: float
    counted: int


def ask(arguments: list[str]) -> tuple[int, str, str]:
    """Runs `fleetsim` in this process; exit code, stdout, stderr."""
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


def judge(case: Case, truth: Truth) -> Judged:
    """Generates the history, asks fleetsim, compares."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "history.om")
        write(path, case.job, *case.beside)
        wanted = ["replay", "--from", str(path), "--json"]
        wanted += ["--selector", case.selector] if case.selector else []
        wanted += ["--recommend"] if truth.instances else []
        code, out, err = ask(wanted)
    must, may = frozenset(truth.must), frozenset(truth.may)
    try:
        told: dict[str, Any] = json.loads(out)
    except json.JSONDecodeError:
        return Judged(case.name, frozenset(), must, may, None, truth.instances, f"exit {code}: {err.strip()[-300:]}")
    # what is only suspected is not named; what was read, and whether the model holds, are no causes in the job
    faults = [each for each in told["verdict"]["findings"] if each["state"] == "fault"]
    said = [each for each in faults if each["check"] not in ("data", "model")]
    named = frozenset(each["check"] for each in said if not each["title"].startswith("suspected"))
    advised = (told.get("recommendation") or {}).get("instances")
    return Judged(case.name, named, must, may, advised, truth.instances, "")


def score(judged: Iterable[Judged]) -> Score:
    """Precision, recall and counts of all."""
    rows = list(judged)
    named = sum(len(row.named) for row in rows)
    must = sum(len(row.must) for row in rows)
    # where replay withholds a count, it says what to mend first: that is no count that could be wrong
    sized = [row for row in rows if row.instances is not None and row.advised is not None]
    near = sum(abs((row.advised or 0) - (row.instances or 0)) <= 1 for row in sized)
    return Score(
        1 - sum(len(row.wrong) for row in rows) / max(named, 1),
        1 - sum(len(row.missed) for row in rows) / max(must, 1),
        near / max(len(sized), 1),
        len(sized),
    )


def line(row: Judged) -> str:
    """One history, in words."""
    parts = [", ".join(sorted(row.named)) or "nothing"]
    parts += [f"WRONG {', '.join(sorted(row.wrong))}"] if row.wrong else []
    parts += [f"MISSED {', '.join(sorted(row.missed))}"] if row.missed else []
    parts += [f"advises {row.advised} of {row.instances}"] if row.instances else []
    parts += [f"FAILED {row.failed}"] if row.failed else []
    return f"{row.name}: {'; '.join(parts)}"


def main() -> None:
    """Judges all, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    wanted = parser.parse_args()
    truths = kept()
    chosen = [case for case in CASES if not wanted.names or case.name in wanted.names]
    rows = []
    with ProcessPoolExecutor(wanted.jobs) as pool:
        for row in pool.map(judge, chosen, [truths[case.name] for case in chosen]):
            rows.append(row)
            print(line(row), flush=True)
    total = score(rows)
    print(
        f"{len(rows)} histories: precision {total.precision:.3f}, recall {total.recall:.3f}, "
        f"{total.counts:.0%} of {total.counted} counts within one of the truth"
    )


if __name__ == "__main__":
    main()
