"""What was asked of a window beyond its diagnosis, and the answers: another fleet on the same history.

The job of a window as files that other commands take, and what was asked as advice on that job: what is promised of
another fleet comes from runs of these files, as they are what the command of the advice simulates.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.config.engine_profile import profile_text
from fleetsim.config.load import dump_short, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import sync_times
from fleetsim.errors import FleetsimError, InputError, Problem
from fleetsim.files import replace_file
from fleetsim.job.base_job import load
from fleetsim.job.trials import Trials
from fleetsim.records import replace
from fleetsim.replay.change.patch import Patch, patch_of
from fleetsim.replay.change.plan import SavedPlan, plan_of
from fleetsim.replay.change.recommendation import AdvisedFleet, recommend
from fleetsim.replay.change.verification import Verification
from fleetsim.replay.change.verification import verify as verified
from fleetsim.replay.change.what_if import KeySweep, WhatIf, changed, next_step, sweep, what_if
from fleetsim.replay.diagnose.finding import Withheld
from fleetsim.replay.diagnose.mending import mended, unless_mended
from fleetsim.replay.implied.implied_scenario import Implied, measured_by
from fleetsim.replay.questions import SAY_MORE, Questions
from fleetsim.replay.run import Replayed
from fleetsim.replay.words import changes_words
from fleetsim.search.reasons import Advised, advice_data

Progress = Callable[[str], None]


class Answers(Struct, frozen=True):
    """None = not asked. withheld: why nothing is recommended although it was asked for; then: the fleet once what is to
    be mended first is, where that can be simulated. plan: the recommendation with its baseline, targets and rollback;
    patch: for the deployment; both None where it is withheld."""

    what_if: WhatIf | None = None
    sweep: KeySweep | None = None
    recommendation: AdvisedFleet | None = None
    withheld: Withheld | None = None
    then: AdvisedFleet | None = None
    plan: SavedPlan | None = None
    patch: Patch | None = None
    verification: Verification | None = None


def answer(
    questions: Questions,
    result: Replayed,
    given: Collection[str] = (),
    progress: Progress = lambda text: None,
    now_s: float | None = None,
) -> Answers:
    """Simulates what was asked.

    given: dotted paths that the user gave; targets among them bind the recommendation. now_s: unix seconds for the
    plan's date, None = now. Raises InputError where the window does not say enough to simulate it, or a change does not
    fit; StuckError.
    """
    verification = None if questions.plan is None else verified(questions.plan, result.observed)
    if not questions.simulates:
        return Answers(verification=verification)
    model = result.implied
    if model is None:
        rule = f"cannot be simulated: {result.unsimulated}"
        raise InputError([Problem("replay", result.observed.source, rule, SAY_MORE)])
    answers = Answers(verification=verification)
    if questions.changes:
        progress("what if: before and after")
        effects = what_if(model, questions.changes)
        step = result.observed.trainer.step_s
        if model.logged is not None and step is not None:
            effects = replace(effects, next=next_step(step.value, effects))
        answers = replace(answers, what_if=effects)
    if questions.swept is not None:
        key, values = questions.swept
        start = on_top(model, {path: x for path, x in questions.changes.items() if path != key})
        swept = sweep(start, key, values, progress=lambda done, of: progress(f"sweep: {done} of {of} values"))
        answers = replace(answers, sweep=swept)
    if questions.recommend:
        others = {path: x for path, x in questions.changes.items() if path != "fleet.instances"}
        model = on_top(model, others)
        held = result.verdict.withheld
        held = None if held is None else unless_mended(held, others)
        if held is not None:
            return replace(answers, withheld=held, then=once_mended(held, model, {*given, *others}, progress))
        found = recommend(model, given={*given, *others}, tell=progress)
        found = replace(found, changes={**others, **found.changes})
        answers = _planned(answers, questions, result, model, found, time.time() if now_s is None else now_s)
    return answers


def once_mended(
    held: Withheld, model: Implied, given: Collection[str], progress: Progress = lambda text: None
) -> AdvisedFleet | None:
    """The fleet that the job should have once what holds the recommendation up is mended; None where nobody knows what
    it would do then."""
    changes = mended(held.first, model) if held.first and held.sizable else None
    if changes is None:
        return None
    try:
        found = recommend(on_top(model, changes), given={*given, *changes}, tell=progress)
    except FleetsimError:  # the job with that change gets stuck, or does not fit
        return None
    return replace(found, changes={**changes, **found.changes})


def on_top(model: Implied, changes: Mapping[str, Any]) -> Implied:
    """The implied scenario with the changes in it, for what is asked beyond them."""
    if not changes:
        return model
    scenario, engine, _ = changed(model, changes)
    return replace(model, scenario=scenario, engine=engine, speed=model.speed if engine is not None else None)


def _planned(
    answers: Answers, questions: Questions, result: Replayed, model: Implied, found: AdvisedFleet, now_s: float
) -> Answers:
    """The recommendation as a plan, and as a patch where it is known for whom."""
    deployment, patch = questions.deployment, None
    if deployment is not None:
        # data-parallel ranks that share a pod: the usual number of engines under one name
        pods = Counter(i.id.name for i in result.observed.instances)
        ranks = Counter(pods.values()).most_common(1)[0][0] if pods else 1
        deployment = replace(deployment, instances_per_replica=ranks)
        patch = patch_of(deployment, found.instances)
    plan = plan_of(result.observed, model, found, now_s=now_s, backtest=result.backtest, deployment=deployment)
    return replace(answers, recommendation=found, plan=plan, patch=patch)


# What would follow from the model where a file does not say it: the window has shown it.
_SAID = (
    *("engine.model", "engine.tp", "engine.slowdown", "fleet.instances", "trainer.gpus", "trainer.batch_samples"),
    *("trainer.fixed_s", "trainer.per_token_s", "sync.publish_s", "sync.pause_s", "sync.trainer_block_s"),
)


def profile_beside(job_file: str) -> str:
    """Where the engine of a job file stands: job.profile.json beside job.yaml."""
    return str(Path(job_file).with_suffix(".profile.json"))


def write_job(implied: Implied, job_file: str) -> tuple[str, ...]:
    """Writes the window's job as a scenario, and its engine beside it where the window showed one. Returns the files.

    Existing files are replaced. Raises OutsideError.
    """
    scenario, profile = _job(implied, job_file)
    written = [job_file]
    replace_file(job_file, dump_short(scenario, _SAID))
    if profile is not None:
        written.append(profile_beside(job_file))
        replace_file(written[-1], profile)
    return tuple(written)


def window_advice(implied: Implied, answers: Answers, job_file: str) -> list[dict[str, Any]]:
    """The recommended fleet, the change that was asked for, and the fleet as it is. job_file: as `write_job` wrote it.

    What gets stuck is left out: there is nothing to promise of it.
    """
    job = load(job_file)
    advised = []
    for what, changes in _asked(answers):
        scenario, _ = _job(on_top(implied, changes), job_file)
        trial = Trials(scenario).at(scenario.fleet.instances, scenario.run.replications)
        if trial.stuck is None:
            advised.append(Advised(what, scenario, trial.estimates))
    return advice_data(job, advised)


def _asked(answers: Answers) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is advised, in words, and the changes that make it."""
    found = answers.recommendation
    if found is not None:
        yield units.plural(found.instances, "instance"), {**found.changes, "fleet.instances": found.instances}
    if answers.what_if is not None:
        yield changes_words(answers.what_if.changes), answers.what_if.changes
    yield "the fleet as it is", {}


def _job(implied: Implied, job_file: str) -> tuple[Scenario, str | None]:
    """The job with its engine from the file beside it, and that file's text. Its runs end when they are steady."""
    scenario, profile = measured_by(replace(implied, scenario=implied.settling), profile_beside(job_file))
    if scenario.sync.transport is None:
        times = sync_times(scenario)
        seconds = {"publish_s": times.publish_s, "pause_s": times.pause_s, "trainer_block_s": times.trainer_block_s}
        scenario = with_changes(scenario, {f"sync.{name}": value for name, value in seconds.items()})
    return scenario, None if profile is None else profile_text(profile)
