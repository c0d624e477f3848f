"""A window as a table of facts, from which its first lines are selected, and as the document of `--json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.records import as_dict
from fleetsim.replay import words
from fleetsim.replay.answers import Answers
from fleetsim.replay.change.recommendation import AdvisedFleet
from fleetsim.replay.compared_quantities import catalogued, error_words
from fleetsim.replay.diagnose.checks.case import WAITS
from fleetsim.replay.diagnose.cures import Cure
from fleetsim.replay.diagnose.finding import Finding, Verdict, called
from fleetsim.replay.diagnose.mending import trusted
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.run import Replayed
from fleetsim.tell.data import told, versions
from fleetsim.tell.facts import Cell, Fact, Facts, NextLines, Tone, explained, facts

# What fits beside a label in 80 columns: two lines of evidence, and one of what is fine.
_EVIDENCE, _LINE = 136, 68
_STARVES = {
    "trainer": "the trainer, for samples",
    "rollout": "the rollout fleet, for the trainer",
    "neither": "neither",
    "unknown": "not known",
}


def window_facts(result: Replayed, answers: Answers) -> Facts:
    """What one must know of a window, as a table; the answer is the verdict."""
    verdict, observed = result.verdict, result.observed
    worst, cures = verdict.first, result.cures
    account = None if observed.logs_alone or observed.account is None else observed.account.words
    wrong = result.backtest is not None and result.backtest.verdict == "wrong"
    verified, unsure = answers.verification, any(f.state == "unknown" for f in verdict.findings)
    tone: Tone = "unsure" if doubt(result) or unsure else "good"
    if (verified is not None and verified.failed) or verdict.faults:
        tone = "bad"
    caution = "The back-test misses this window: read what-ifs as directions, not as numbers." if wrong else None
    return facts(
        verdict.headline,
        Fact("doubt", doubt(result) or ""),
        Fact("seconds", account or ""),
        _told(_lines(worst, cures, result)),
        Fact("fine", _fine(verdict)),
        Fact("open", _open(verdict)),
        Fact("differs", " ".join(words.differs_words(result.implied))),
        explained("backtest", caution),
        explained("total", words.total_words(verdict)),
        explained("window", f"{observed.source}: {words.span_words(observed)}."),
        explained("fleet", f"{units.capital(words.fleet_words(observed))}."),
        explained("starves", f"Side that waits: {_STARVES[verdict.starves]}."),
        tone=tone,
    )


def _told(lines: Iterable[tuple[str, Cell | NextLines | None]]) -> Iterator[Fact]:
    """A fact a line; those of one label are counted."""
    labels: list[str] = []
    for label, said in lines:
        if said:
            labels.append(label)
            nth = labels.count(label)
            yield Fact(label if nth == 1 else f"{label}_{nth}", said, label, apart=True)


def _lines(
    worst: Finding | None, cures: Sequence[Cure], result: Replayed
) -> Iterator[tuple[str, Cell | NextLines | None]]:
    """What to change first: of a log trigger, why, what to do, how to verify and to undo; then what else there is."""
    account = result.observed.account
    if result.observed.logs_alone and account is not None and cures:
        yield from cures[0].lines(account.now_s)
        yield from (("also", f"{c.cause}: {units.seconds(c.mean_s)} of a step") for c in cures[1:])
        return
    if worst is not None:
        yield from fault_lines(worst, result.verdict.headline)
    if worst is not None and cures and worst.check != "model":
        yield from list(cures[0].lines(0.0))[3:]
    for fault in further_faults(result.verdict):
        price = words.size_words(fault)
        what = f"{called(fault.check)}: {fault.title}"
        yield "also", what if price is None else f"{what}; {price}"


def further_faults(verdict: Verdict) -> tuple[Finding, ...]:
    """The other faults, the dearest first; what is wrong with the simulation is a doubt, not a fault of the job."""
    left = (f for f in verdict.findings if f.state == "fault" and f.check not in (verdict.binding, "model"))
    return tuple(sorted(left, key=lambda f: -(f.usd_per_day or 0.0)))


def fault_lines(fault: Finding, headline: str) -> Iterator[tuple[str, Cell | NextLines | None]]:
    """Its evidence beyond the headline, its price and the one command that follows."""
    if fault.check == "model":  # the doubt has told it
        yield "look at", None if fault.next is None else NextLines("", fault.next)
        return
    known = WAITS in headline.lower()
    more = [ground for ground in fault.evidence if not (known and ground.startswith(WAITS))]
    yield "evidence", evidence_words(more or fault.evidence)
    yield "price", words.price_words(fault)
    yield "next", None if fault.next is None else NextLines("", fault.next, strong=True)


def doubt(result: Replayed) -> str | None:
    """Why the verdict may be wrong: too little was read, or the simulation does not come out as the window did."""
    few, back = words.few_words(result.observed), result.backtest
    if few is not None:
        return few
    model = next(f for f in result.verdict.findings if f.check == "model")
    if model.state != "fault" or back is None or back.worst is None:
        return None
    worst = back.worst
    seen, said = (units.written(x, catalogued(worst.quantity).unit) for x in (worst.observed, worst.predicted))
    off = f"simulated, {catalogued(worst.quantity).title} is {said}, not {seen} ({error_words(worst)})"
    if trusted(back):
        return f"{off}; step and throughput come out right"
    return f"this window is not explained: {off}; causes are by rule, prices at most"


def evidence_words(grounds: Sequence[str]) -> str:
    """As many of the first grounds as fit; the first in any case."""
    told = ""
    for ground in grounds:
        longer = f"{told}; {ground}" if told else ground
        if told and len(longer) > _EVIDENCE:
            break
        told = longer
    return told


def _fine(verdict: Verdict) -> str:
    """What is ruled out, by name as far as one line has room."""
    names = [called(f.check) for f in verdict.findings if f.state == "ok"]
    if len(", ".join(names)) <= _LINE:
        return ", ".join(names)
    few = names
    while len(told := f"{', '.join(few)} and {len(names) - len(few)} more") > _LINE or few == names:
        few = few[:-1]
    return told


def _open(verdict: Verdict) -> str:
    """Every open question with the one metric, fact or flag that would answer it; those of the same one together."""
    asked: dict[str, list[str]] = {}
    for f in verdict.findings:
        if f.state == "unknown":
            asked.setdefault(f.missing or f.title, []).append(called(f.check))
    return "; ".join(f"{', '.join(names)}: {missing}" for missing, names in asked.items())


def replay_document(result: Replayed, answers: Answers, advice: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Verdict, observation, implied scenario, back-test and what was asked beyond them; null = not asked for.

    Seconds, tokens, unix seconds for times. A number that nobody exported and that cannot be inferred is null, never
    zero; the last bound of a histogram is null where it has none. advice: what can be simulated from the job's file,
    empty where none was written.
    """
    held, verified, back, account = answers.withheld, answers.verification, result.backtest, result.observed.account
    phases = [
        {"name": p.name, "seconds": p.seconds, "share": p.share, "course": p.course.kind, "since_step": p.since_step}
        for p in (() if account is None else account.phases)
    ]
    return {
        **versions("replay"),
        **told(window_facts(result, answers)),
        "phases": phases,
        "diagnosis": [cure.document() for cure in result.cures],
        "verdict": as_dict(result.verdict),
        "priced_on_assumptions": list(result.priced),
        "observed": {**as_dict(result.observed), "span_s": result.observed.span_s},
        "implied": _implied(result.implied),
        "not_simulated": result.unsimulated,
        "backtest": None if back is None else {**as_dict(back), "worst": back.worst and back.worst.quantity},
        "advice": list(advice),
        "what_if": answers.what_if,
        "sweep": answers.sweep,
        "recommendation": _recommendation(answers.recommendation),
        "withheld": None if held is None else {**as_dict(held), "then": _recommendation(answers.then)},
        "plan": None if answers.plan is None else answers.plan.model_dump(mode="json"),
        "patch": answers.patch,
        "verification": None if verified is None else {**as_dict(verified), "ok": verified.ok},
    }


def _recommendation(found: AdvisedFleet | None) -> dict[str, Any] | None:
    if found is None:
        return None
    own = ("instances", "was", "queue_cap_samples", "changes", "predicted", "now", "extrapolated")
    missed = [t.name for t in found.size.missed]
    return {
        **{name: getattr(found, name) for name in own},
        "missed_targets": missed,
        "explanation": found.size.explanation,
    }


def _implied(implied: Implied | None) -> dict[str, Any] | None:
    if implied is None:
        return None
    step_time, limits = implied.engine or (None, None)
    speed = {} if implied.speed is None else as_dict(implied.speed)
    return {
        "scenario": implied.scenario.model_dump(mode="json"),
        "engine": None if implied.engine is None else {"step_time": step_time, "limits": limits},
        # What was fitted is said once, with the engine.
        "speed": {name: value for name, value in speed.items() if name != "step_time"} or None,
        "taken": list(implied.taken),
        "assumed": list(implied.assumed),
        "differs": list(implied.differs),
        "base": implied.base,
        "resizes": [{"at_s": at, "instances": count} for at, count in implied.resizes],
    }
