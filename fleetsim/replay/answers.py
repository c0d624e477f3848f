"""What was asked of a window beyond its diagnosis, and the answers: another fleet on the same history."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleetsim.errors import FleetsimError, InputError, Problem
from fleetsim.faces import Text, flag, text
from fleetsim.replay.change.patch import Patch, patch_of
from fleetsim.replay.change.plan_fields import SavedPlan
from fleetsim.replay.change.plan_file import plan_of
from fleetsim.replay.change.recommendation import AdvisedFleet, recommend
from fleetsim.replay.change.resizing import unless_mended
from fleetsim.replay.change.verification import Verification
from fleetsim.replay.change.verification import verify as verified
from fleetsim.replay.change.what_if import KeySweep, WhatIf, changed, next_step, sweep, what_if
from fleetsim.replay.diagnose.finding import Withheld
from fleetsim.replay.diagnose.removals import mended
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.questions import Questions
from fleetsim.replay.run import Replayed

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Answers:
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
        remedy = text("give what is missing with {}, or a {}", flag("given", "KEY=VALUE"), Text("--scenario", "job"))
        raise InputError([Problem("replay", result.observed.source, rule, remedy)])
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
        deployment = replace(deployment, instances_per_replica=instances_per_pod(result.observed))
        patch = patch_of(deployment, found.instances)
    plan = plan_of(result.observed, model, found, now_s=now_s, backtest=result.backtest, deployment=deployment)
    return replace(answers, recommendation=found, plan=plan, patch=patch)


def instances_per_pod(observed: Observed) -> int:
    """Data-parallel ranks that share a pod: the usual number of engines under one name; 1 without engines."""
    pods = Counter(i.id.name for i in observed.instances)
    return Counter(pods.values()).most_common(1)[0][0] if pods else 1
