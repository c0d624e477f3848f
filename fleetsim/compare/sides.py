"""Two sides of a comparison that are simulated, or were: made of what either face gave."""

from __future__ import annotations

import os

from fleetsim.compare.inputs import GivenSide, given_of
from fleetsim.compare.question import Compare
from fleetsim.compare.runs import ToRun
from fleetsim.compare.saved_result import SavedResult, result_of
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import History
from fleetsim.job.base_job import BaseJob, Start, load, made
from fleetsim.records import replace
from fleetsim.replay.result import ReplayResult
from fleetsim.simulate.result import SimulateResult
from fleetsim.size.ask import SizeResult

Comparable = Start | SimulateResult | SizeResult | ReplayResult | History


def given_in_python(where: str, it: Comparable) -> GivenSide:
    """A side as Python has it. Raises InputError for a text that is no side, and for a job that is none."""
    if isinstance(it, (str, os.PathLike)):
        return given_of(where, os.fspath(it), addresses=True)
    if isinstance(it, ReplayResult):
        it = it.history
    if isinstance(it, History):
        return GivenSide(where, it.source, "history", it)
    if isinstance(it, (SimulateResult, SizeResult)):
        return GivenSide(where, repr(it), "result", it.to_dict())
    return GivenSide(where, repr(it), "scenario", it if isinstance(it, BaseJob) else load(it))


def sides_of(asked: Compare, given: tuple[GivenSide, ...]) -> tuple[tuple[ToRun | SavedResult, ...], tuple[str, ...]]:
    """Both sides, and what is odd about them. given: one where both are made of it.

    Raises InputError with the problems of both.
    """
    found: list[ToRun | SavedResult] = []
    notes: list[str] = []
    problems: dict[str, tuple[Problem, ...]] = {"A": (), "B": ()}
    sides = zip("AB", (given[0], given[-1]), (asked.set_a or (), asked.set_b or ()), strict=True)
    for where, one, own in sides:
        label = asked.label(where) or ", ".join((one.text, *own))
        try:
            if one.what == "result":
                found.append(result_of(one.held, label, where))
                continue
            run = {"steps": asked.steps, "seed": asked.seed, "replications": asked.replications}
            flags = asked.job.flags() | run
            job = one.held if isinstance(one.held, BaseJob) else made(one.text, [*(asked.set_ or ()), *own], flags)
            found.append(ToRun(label, job.scenario, job.given))
            notes += [f"{where}: {note}" for note in job.notes]
        except InputError as error:
            problems[where] = error.problems
    if any(problems.values()):
        raise InputError(_told_once(problems))
    return tuple(found), tuple(notes)


def _told_once(problems: dict[str, tuple[Problem, ...]]) -> list[Problem]:
    """What is wrong with both sides, then what is wrong with one of them, which is named."""
    both = [p for p in problems["A"] if p in problems["B"]]
    single = [(where, p) for where, wrong in problems.items() for p in wrong if p not in both]
    return [*both, *(p if p.path == where else replace(p, path=text("{}: {}", where, p.path)) for where, p in single)]
