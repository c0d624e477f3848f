"""The verdict on simulated jobs whose one root cause was written down first (`truth.py`): hits, and honest misses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from fleetsim.config.load import parse_override
from fleetsim.replay.diagnose.finding import Finding
from fleetsim.replay.run import Replayed
from fleetsim.replay.words import told_ends
from tests.replay.truth import JOBS, OTHERS, WAYS, Job, gain_of, history_of, judged

NAMES = [job.name for job in JOBS]
BY_NAME: Mapping[str, Job] = dict(zip(NAMES, JOBS, strict=True))
CAUSED = [job.name for job in JOBS if job.removal is not None]
# A finding is what its removal gives back at most, and counts each GPU-second once: it may exceed the simulated gain by
# a half and a few GPU-hours of what the scrape interval blurs, and is no tenth of it.
MOST, SLACK_GPU_H, LEAST = 1.5, 10.0, 0.1


@cache
def replayed(name: str, way: str) -> Replayed:
    return judged(BY_NAME[name], _history(name), way)


@cache
def _history(name: str) -> Any:
    return history_of(BY_NAME[name])


def binding(result: Replayed) -> Finding | None:
    verdict = result.verdict
    return next((f for f in verdict.findings if f.check == verdict.binding), None)


def the_truth_is_the_truth(name: str) -> None:
    """By simulation: no other change that costs no GPU gives more step time back than removing the cause."""
    job = BY_NAME[name]
    assert job.removal is not None
    share, hours = gain_of(job, job.removal)
    if job.cause == "backlog":  # too many GPUs: fewer do as well
        assert share > -0.03
        assert hours > 0
        return
    assert share > 0.03
    for check, changes in OTHERS.items():
        if check != job.cause:
            other, _ = gain_of(job, changes)
            assert other <= share + 0.01, check


def the_verdict_names_the_cause(name: str, way: str) -> None:
    job, verdict = BY_NAME[name], replayed(name, way).verdict
    expected, reason = job.misses.get(way, (job.cause, ""))
    assert verdict.binding == expected, verdict.headline
    assert verdict.starves == job.starves
    if way in job.misses:
        assert expected != job.cause  # a miss that has been mended is no longer one
        assert reason


def the_next_step_is_the_remedy_and_its_size_is_its_gain(name: str, way: str) -> None:
    job, found = BY_NAME[name], binding(replayed(name, way))
    if way in job.misses:
        return
    assert found is not None
    assert job.next in (found.next or "")
    assert found.gpu_h_per_day is not None
    assert job.removal is not None
    change, reason = job.told.get(way, (job.removal, "it is the removal"))
    assert reason
    _, hours = gain_of(job, change)
    least, most = (end * found.gpu_h_per_day for end in told_ends(found))
    if job.cause != "rollout" or "instances" not in str(job.removal):  # more GPUs are paid for with what they give
        assert LEAST * hours <= most
        assert least <= MOST * max(hours, 0.0) + SLACK_GPU_H


def the_next_command_runs_and_helps(name: str) -> None:
    """What follows --set in the first of the next commands, applied to the job itself."""
    found = binding(replayed(name, "given"))
    assert found is not None
    first = next(line for line in (found.next or "").splitlines() if line.startswith("fleetsim replay "))
    changes = dict(parse_override(text) for text in re.findall(r"--set (\S+)", first))
    assert changes
    share, _ = gain_of(BY_NAME[name], changes)
    assert share > 0.02


@pytest.mark.parts
@pytest.mark.parametrize("name", NAMES)
def test_verdict(name: str) -> None:
    """One test for all of a job: what is simulated for it is used by every part."""
    for way in WAYS:
        the_verdict_names_the_cause(name, way)
    if name in CAUSED:
        the_truth_is_the_truth(name)
        for way in WAYS:
            the_next_step_is_the_remedy_and_its_size_is_its_gain(name, way)
        if "." in BY_NAME[name].next:
            the_next_command_runs_and_helps(name)
