"""Simulated jobs with one known cause each, judged from their own exported text: prints what docs/replay.md counts.

python docs/make_verdicts.py    run them all (a minute or two) and print a line each
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its folder is on the path, not docs
from fleetsim.replay.diagnose.finding import Finding, Verdict
from fleetsim.replay.words import told_ends
from tests.replay.truth import JOBS, WAYS, Job, gain_of, history_of, judged

HEAD = "| job | its cause | removing it saves | verdict without a scenario | with its scenario |"
NOTHING = "nothing"


def judgements(job: Job, verdicts: Sequence[Verdict]) -> tuple[list[str], int]:
    """The cells of a job's verdicts, and how many of them hit."""
    cells, hits = [], 0
    for verdict in verdicts:
        found = next((f for f in verdict.findings if f.check == verdict.binding), None)
        hit = verdict.binding == job.cause and verdict.starves == job.starves
        size = "" if found is None or found.gpu_h_per_day is None else f", {hours_words(found)} GPU-h/day"
        cells.append(f"{verdict.binding or NOTHING}{size}" if hit else f"**{verdict.binding or NOTHING}**{size}")
        hits += hit
    return cells, hits


def hours_words(found: Finding) -> str:
    """A price in GPU-hours as it is told: a number, or a range."""
    least, most = told_ends(found)
    hours = found.gpu_h_per_day or 0.0
    return f"{hours:.0f}" if least == most else f"{least * hours:.0f} to {most * hours:.0f}"


def row(job: Job) -> tuple[str, int]:
    """A line of the table, and how many of its verdicts hit."""
    history = history_of(job)
    cells, hits = judgements(job, [judged(job, history, way).verdict for way in WAYS])
    gain = "-"
    if job.removal is not None:
        share, hours = gain_of(job, job.removal, 2)
        gain = f"{100 * share:.0f} % of a step, {hours:.0f} GPU-h/day"
    return f"| {job.name} | {job.cause or NOTHING} | {gain} | {' | '.join(cells)} |", hits


def _way(way: str) -> str:
    return f"{'with' if way == 'given' else 'without'} a scenario"


def section() -> list[str]:
    """The table, then the misses and their reasons."""
    rows, hits = [], 0
    for job in JOBS:
        line, hit = row(job)
        rows.append(line)
        hits += hit
    misses = [f"- {job.name}, {_way(way)}: {reason}." for job in JOBS for way, (_, reason) in job.misses.items()]
    for job in JOBS:
        for way, (changes, reason) in job.told.items():
            share, hours = gain_of(job, changes, 2)
            does = f"in the job itself it saves {100 * share:.0f} % of a step, {hours:.0f} GPU-h/day"
            misses.append(f"- {job.name}, {_way(way)}: the price is that of the change that is told; {does}. {reason}.")
    verdicts = len(WAYS) * len(JOBS)
    count = f"{hits} of {verdicts} verdicts name the cause; the others are set in bold:"
    if hits == verdicts:
        count = f"All {verdicts} verdicts name the cause."
    return [HEAD, "| --- | --- | --- | --- | --- |", *rows, "", count, *(["", *misses] if misses else [])]


if __name__ == "__main__":
    print("\n".join(section()))
