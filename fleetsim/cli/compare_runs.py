"""Scenarios and results of `fleetsim compare`: loaded, simulated where need be, and compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetsim.cli.compare_call import Question
from fleetsim.cli.compare_flags import Compare
from fleetsim.compare.inputs import Given
from fleetsim.errors import InputError, Problem
from fleetsim.job.job import Job, job_from_flags

if TYPE_CHECKING:
    from fleetsim.compare.compare import Comparison
    from fleetsim.compare.saved_result import Result
    from fleetsim.job.job import Job
    from fleetsim.job.watch import Watch


def jobs_of(call: Compare, question: Question) -> dict[str, Job]:
    """The scenarios among A and B, by letter, with their --set. Raises InputError with the problems of both."""

    problems: dict[str, list[Problem]] = {}
    jobs: dict[str, Job] = {}
    for where, given, own in (("A", question.a, call.set_a), ("B", question.b, call.set_b)):
        if given is None or given.what != "scenario":
            continue
        flags = {"steps": call.steps, "seed": call.seed, "replications": call.replications}
        try:
            jobs[where] = job_from_flags(given.text, [*(call.set_ or ()), *(own or ())], flags)
        except InputError as error:
            problems[where] = list(error.problems)
    if problems:
        both = [p for p in problems.get("A", ()) if p in problems.get("B", ())]
        single = [(where, p) for where, wrong in problems.items() for p in wrong if p not in both]
        raise InputError([*both, *(replace(p, path=f"{where}: {p.path}") for where, p in single)])
    return jobs


def results_of(question: Question) -> dict[str, Result]:
    """The results among A and B, by letter. Raises InputError with the problems of both."""
    from fleetsim.compare.saved_result import result_of

    problems: list[Problem] = []
    results: dict[str, Result] = {}
    for where, given in (("A", question.a), ("B", question.b)):
        if given is None or given.document is None:
            continue
        try:
            results[where] = result_of(given.document, given.text, where)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return results


def labels_of(call: Compare, a: Given, b: Given) -> tuple[str, str]:
    """What the two are called: the file, and what was changed in one of them alone."""
    return ", ".join((a.text, *(call.set_a or ()))), ", ".join((b.text, *(call.set_b or ())))


def compare_runs(
    call: Compare, question: Question, jobs: dict[str, Job], results: dict[str, Result], tell: Watch
) -> Comparison:
    """Two scenarios, two results, or one of each. Raises what `simulate` raises."""
    from fleetsim.compare import runs as plan

    assert question.a is not None
    assert question.b is not None
    a, b = labels_of(call, question.a, question.b)
    notes = [f"{where}: {note}" for where, job in jobs.items() for note in job.notes]
    if not results:
        job_a, job_b = jobs["A"], jobs["B"]
        most = max(job.scenario.run.replications for job in jobs.values())
        wanted = call.replications or max(plan.REPLICATIONS, most)
        return plan.compare_scenarios(
            plan.ToRun(a, job_a.scenario, job_a.given),
            plan.ToRun(b, job_b.scenario, job_b.given),
            wanted,
            min_change=call.min_change,
            metrics=question.metrics,
            notes=notes,
            progress=tell.at,
        )
    from fleetsim.compare.result_pair import compare_results

    sides: list[plan.ToRun | Result] = [
        results[where] if where in results else plan.ToRun(label, jobs[where].scenario, jobs[where].given)
        for where, label in (("A", a), ("B", b))
    ]
    return compare_results(
        sides[0], sides[1], min_change=call.min_change, metrics=question.metrics, notes=notes, tell=tell
    )
