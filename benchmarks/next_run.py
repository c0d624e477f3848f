"""Arm n + 1 from arm n's log: how far off, and in the right order? `python benchmarks/next_run.py FOLDER`

FOLDER holds console logs of verl named CASE-ARM.log, which print their configuration at their head; those behind
docs/next_run.md are in aishukamal/rl-time-slicing at 6a343557756d and carry no licence, so that they are not here.
Every arm of a case is predicted from every other arm's log and nothing of its own but the configuration that it
printed, with `fs.load(configuration, run=log).simulate()`. Printed: each prediction, and over the pairs of a case the
median error, the ninth decile, and the share of arms' pairs that were put in the right order.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np

import fleetsim as fs
from fleetsim.history.run_log import read_run_log
from fleetsim.replay.shown import printed_job

# Arms whose steps differ by less have no order.
SAME = 0.03


@dataclass(frozen=True)
class Arm:
    """name: CASE-ARM. step_s: mean seconds of its steps, warm-up left out. trainer: its trainer's GPUs."""

    name: str
    path: Path
    step_s: float
    trainer: int

    @property
    def case(self) -> str:
        """What its log's name begins with."""
        return self.name.partition("-")[0]


@dataclass(frozen=True)
class Pair:
    """One arm predicted from another's log."""

    of: Arm
    to: Arm
    step_s: float

    @property
    def error(self) -> float:
        """Relative to what was observed."""
        return self.step_s / self.to.step_s - 1.0


def arm_of(path: Path) -> Arm:
    """The arm of a log."""
    history = read_run_log(path)
    assert history.steps is not None
    job = printed_job(history, path)
    assert job is not None, f"{path}: no configuration at its head"
    return Arm(path.stem, path, float(np.nanmean(history.steps.columns["step_s"])), int(job["trainer"]["gpus"]))


def predicted(of: Arm, to: Arm, gpu: str, replications: int) -> Pair:
    """`to` from the log of `of` and its own configuration."""
    start = printed_job(read_run_log(to.path), to.path)
    job = fs.load(start, run=of.path, gpu=gpu, replications=replications, steps=16)
    return Pair(of, to, job.simulate().mean["step_s"])


def summary(name: str, pairs: Sequence[Pair]) -> str:
    """A row of the table in docs/next_run.md."""
    errors = np.abs([p.error for p in pairs])
    known = {(p.of.name, p.to.name): p.step_s for p in pairs}
    right = total = 0
    for of in {p.of.name: p.of for p in pairs}.values():
        seen = [p.to for p in pairs if p.of is of]
        for a, b in combinations(seen, 2):
            if abs(a.step_s / b.step_s - 1) >= SAME:
                total += 1
                right += (known[of.name, a.name] > known[of.name, b.name]) == (a.step_s > b.step_s)
    order = f"{right} of {total}" if total else ""
    off = " | ".join(f"{100 * x:.1f} %" for x in (np.median(errors), np.quantile(errors, 0.9), errors.max()))
    return f"| {name} | {len(pairs)} | {off} | {order} |"


def main() -> None:
    """Prints predictions and tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", default="H100")
    parser.add_argument("--replications", type=int, default=2)
    asked = parser.parse_args()
    arms = [arm_of(path) for path in sorted(asked.folder.glob("*-*.log"))]
    cases: dict[str, list[Pair]] = defaultdict(list)
    for of in arms:
        for to in arms:
            if of is not to and of.case == to.case:
                pair = predicted(of, to, asked.gpu, asked.replications)
                cases[of.case].append(pair)
                seen = f"{pair.step_s:7.1f} s predicted, {to.step_s:7.1f} s observed"
                print(f"{of.name:16s} -> {to.name:16s} {seen}, {100 * pair.error:+5.1f} %", flush=True)
    every = [pair for pairs in cases.values() for pair in pairs]
    print("\n| pairs | | median error | nine in ten within | worst | in the right order |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for case, pairs in cases.items():
        print(summary(case, pairs))
    same = [p for p in every if p.of.trainer == p.to.trainer]
    print(summary("all, the same trainer GPUs", same))
    print(summary("all, other trainer GPUs", [p for p in every if p not in same]) if len(same) < len(every) else "")
    print(summary("all", every))
    after = {(a.name, b.name) for a, b in pairwise(arms)}
    print(summary("all, each arm and the next by name", [p for p in every if (p.of.name, p.to.name) in after]))


if __name__ == "__main__":
    main()
