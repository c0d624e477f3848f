"""`fleetsim replay --json`: one document with everything that the view shows, and what it had no room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fleetsim.replay.answers import Answers
from fleetsim.replay.backtest import Backtest
from fleetsim.replay.change.recommendation import AdvisedFleet
from fleetsim.replay.change.verification import Verification
from fleetsim.replay.diagnose.finding import Withheld
from fleetsim.replay.facts import window_facts
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.run import Replayed
from fleetsim.tell.data import told, versions


def replay_document(result: Replayed, answers: Answers, advice: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Verdict, observation, implied scenario, back-test and what was asked beyond them; null = not asked for.

    Seconds, tokens, unix seconds for times. A number that nobody exported and that cannot be inferred is null, never
    zero; the last bound of a histogram is null where it has none. advice: what can be simulated from the job's file,
    empty where none was written.
    """
    advised = answers.recommendation
    return {
        **versions("replay"),
        **told(window_facts(result, answers)),
        "phases": _phases(result.observed),
        "diagnosis": [cure.document() for cure in result.cures],
        "verdict": asdict(result.verdict),
        "priced_on_assumptions": list(result.priced),
        "observed": {**asdict(result.observed), "span_s": result.observed.span_s},
        "implied": None if result.implied is None else _implied(result.implied),
        "not_simulated": result.unsimulated,
        "backtest": None if result.backtest is None else _backtest(result.backtest),
        "advice": list(advice),
        "what_if": answers.what_if,
        "sweep": answers.sweep,
        "recommendation": None if advised is None else _recommendation(advised),
        "withheld": None if answers.withheld is None else _withheld(answers.withheld, answers.then),
        "plan": None if answers.plan is None else answers.plan.model_dump(mode="json"),
        "patch": answers.patch,
        "verification": None if answers.verification is None else _verification(answers.verification),
    }


def _phases(observed: Observed) -> list[dict[str, Any]]:
    """Where the seconds of a step go, the largest first; empty where no step was seen."""
    return [
        {"name": p.name, "seconds": p.seconds, "share": p.share, "course": p.course.kind, "since_step": p.since_step}
        for p in (() if observed.account is None else observed.account.phases)
    ]


def _recommendation(found: AdvisedFleet) -> dict[str, Any]:
    return {
        "instances": found.instances,
        "was": found.was,
        "queue_cap_samples": found.queue_cap_samples,
        "changes": dict(found.changes),
        "predicted": dict(found.predicted),
        "now": dict(found.now),
        "missed_targets": [t.name for t in found.size.missed],
        "explanation": found.size.explanation,
        "extrapolated": found.extrapolated,
    }


def _withheld(held: Withheld, then: AdvisedFleet | None) -> dict[str, Any]:
    return {**asdict(held), "then": None if then is None else _recommendation(then)}


def _verification(found: Verification) -> dict[str, Any]:
    return {**asdict(found), "ok": found.ok}


def _implied(implied: Implied) -> dict[str, Any]:
    return {
        "scenario": implied.scenario.model_dump(mode="json"),
        "engine": None if implied.engine is None else {"step_time": implied.engine[0], "limits": implied.engine[1]},
        # What was fitted is said once, with the engine.
        "speed": None
        if implied.speed is None
        else {k: v for k, v in asdict(implied.speed).items() if k != "step_time"},
        "taken": list(implied.taken),
        "assumed": list(implied.assumed),
        "differs": list(implied.differs),
        "base": implied.base,
        "resizes": [{"at_s": at, "instances": count} for at, count in implied.resizes],
    }


def _backtest(back: Backtest) -> dict[str, Any]:
    return {**asdict(back), "worst": None if back.worst is None else back.worst.quantity}
