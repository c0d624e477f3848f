"""The verdict on a window: the runbook's questions in the runbook's order, what each finding costs, what to do next.

What the account of a run log says to each question that its levers answer: no threshold of one check decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.records import replace
from fleetsim.replay.arrivals import serves
from fleetsim.replay.backtest import Backtest
from fleetsim.replay.diagnose.checks.case import WORTH, Case, Gains, Reply, idle_words, told
from fleetsim.replay.diagnose.checks.engines import max_num_seqs, preemptions, prefix_cache
from fleetsim.replay.diagnose.checks.fleet import TOO_LARGE, backlog, rollout
from fleetsim.replay.diagnose.checks.load import in_flight_cap, stragglers
from fleetsim.replay.diagnose.checks.reading import data, model
from fleetsim.replay.diagnose.checks.trainer import sync, trainer
from fleetsim.replay.diagnose.cures import CAUSES_OF, cure_of
from fleetsim.replay.diagnose.finding import MENDS, Check, Finding, FindingCost, Verdict, pools_of, settle
from fleetsim.replay.diagnose.levers import StepLever, levers_of, pace_words
from fleetsim.replay.diagnose.mending import withheld
from fleetsim.replay.implied.stretch import own_paces
from fleetsim.replay.observe.changes import changed_words, missed_words, unreplaced
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.paces import piled
from fleetsim.replay.observe.phases import Account, plain

Starves = Literal["trainer", "rollout", "neither", "unknown"]

CHECKS: Mapping[Check, Callable[[Case], Reply]] = {
    "data": data,
    "trainer": trainer,
    "sync": sync,
    "stragglers": stragglers,
    "prefix_cache": prefix_cache,
    "in_flight_cap": in_flight_cap,
    "max_num_seqs": max_num_seqs,
    "preemptions": preemptions,
    "rollout": rollout,
    "backlog": backlog,
    "model": model,
}
# A wrong model is where to look, not what to change in the job.
_NOT_A_CHANGE: tuple[Check, ...] = ("data", "model")
# A fault that explains less than this of what the trainer waits is not what to change first where the fleet is too
# small as well: the runbook's order is for causes of a size.
_TELLS = 0.1
# Simulated, what costs nothing now is no fault; a slow instance is one whether or not anybody waits for it.
COSTS_OR_NOT: tuple[Check, ...] = ("prefix_cache", "in_flight_cap", "max_num_seqs", "preemptions")
# Of the trainer's wait: where removing a fault gives back less, and more instances more, the fleet is too small for the
# load, and the fault a symptom of that.
LITTLE = 1 / 3
# Of two faults that are both to be mended, the later one in the runbook comes first where it costs so many times more.
DEARER = 1.25
SUSPECTED = "suspected: "
# Rollout GPUs without work for more than this of their time starve; less is the tail of responses.
ROLLOUT_IDLE = 0.15


def diagnose(
    observed: Observed,
    scenario: Scenario,
    backtest: Backtest | None = None,
    *,
    given: Collection[str] = (),
    **simulated: Any,
) -> Verdict:
    """Which side starves, what to change first, and every question with its evidence and its size.

    simulated: what simulations say of the window, and the other fields of `Case`.
    """
    case = Case(observed, scenario, frozenset(given), backtest, **simulated)
    drafts = _drafts(case)
    order = [d for d in drafts if d.state == "fault"]
    settled = settle([d.gives for d in order], pools_of(observed, scenario, case.given))
    size_of = {d.check: size for d, size in zip(order, settled, strict=True)}
    sizes = [size_of.get(d.check) for d in drafts]
    findings = tuple(
        Finding(
            *(d.check, d.state, d.title, tuple(d.evidence)),
            *((None, None) if size is None else (size.gpu_h_per_day, size.usd_per_day)),
            *(d.next, d.missing),
            d.saves if d.saves is not None else None if size is None else size.step_share,
            d.saves is not None,
            d.ends,
            (d.cause or CAUSES_OF.get(d.check, ("",))[0] or None) if d.state == "fault" else None,
        )
        for d, size in zip(drafts, sizes, strict=True)
    )
    causes = [lever.cause for lever in levers_of(observed)] if observed.logs_alone else []
    levers = (d for d in order if d.title in causes)  # of a log the one that gives back most
    first = min(levers, key=lambda d: causes.index(d.title), default=None) or _dearest(
        case, _first(case, order), order, size_of
    )
    sized = [(size.usd_per_day, d) for d, size in zip(drafts, sizes, strict=True) if size is not None]
    most = max(sized, key=lambda pair: pair[0])[1] if sized else None
    starves = _starves(case, drafts)
    headline = _headline(case, starves, first, most, drafts)
    binding = None if first is None else first.check
    return Verdict(starves, headline, findings, binding, withheld(case, drafts, binding))


def remedies_of(case: Case) -> Mapping[Check, Mapping[str, Any]]:
    """Check -> the changes that its fault tells to try; without those that tell none, as where it is only the count."""
    return {d.check: d.remedy for d in _drafts(case) if d.remedy}


def _drafts(case: Case) -> list[Reply]:
    drafts: list[Reply] = []
    for name, check in CHECKS.items():
        decided = case.observed.logs_alone and name in ANSWERS
        reply = accounted(case, name) if decided else check(replace(case, earlier=tuple(drafts)))
        if name == "backlog" and case.observed.logs_alone and reply.name == TOO_LARGE:
            reply = Reply("ok", reply.title, reply.evidence)  # a lever says what a faster trainer gives
        reply = _weighed(case, replace(reply, check=name))
        drafts.append(replace(reply, check=name))
    return drafts


def _weighed(case: Case, draft: Reply) -> Reply:
    """A fault with what its removal gives by simulation: as its size, or as the reason why it is none."""
    gain = case.gains.get(draft.check)
    if draft.check == "rollout" and draft.state == "fault" and case.ahead is not None:
        return _run_ahead(case, draft, case.ahead)
    # A fault that a simulation may say is none; which of its two it is the rollout check leaves open.
    refutable = draft.check in COSTS_OR_NOT or (draft.check == "stragglers" and draft.gives is None)
    if draft.state == "fault" and not case.weighed and refutable:
        title = f"{SUSPECTED}{draft.title.removeprefix(SUSPECTED)}"
        said = (*draft.evidence, "whether it costs anything only a simulation tells: leave out --no-backtest")
        return replace(draft, title=title, evidence=said, name=f"perhaps {draft.name}")
    if draft.check == "in_flight_cap" and not case.given:
        return draft  # of a cap that nobody gave, twice as much is tried: what it gives at the least
    if draft.state == "fault" and refutable and case.starving and case.idle is not None:
        draft = _ranked(case, draft, case.idle.value)
    if draft.state != "fault" or gain is None or draft.check == "rollout":
        return draft
    views = case.observed.instances
    paced = any(pace != 1.0 for pace in own_paces(views).values()) or bool(piled(views))
    if draft.check == "stragglers" and draft.gives and not paced:  # the simulation has no slow instance
        return draft
    what = "a request" if serves(case.observed) else "a step"
    said = (*draft.evidence, f"simulated without it, {what} is {units.share(max(0.0, gain))} shorter")
    if draft.check == "stragglers" and draft.gives and gain < WORTH:
        # Its GPUs lose their pace although no step is longer for it.
        return replace(draft, evidence=said, gives=(0.0, draft.gives[1]))
    # Engines that stop for weights while the trainer is busy and does not wait: a rolling sync that costs no step.
    held = case.observed.trainer.of_step(case.observed.trainer.sync_s)
    unheld = draft.check == "sync" and case.starving is False and held is not None and held < WORTH
    if gain < WORTH and (refutable or unheld):
        return Reply("ok", f"{draft.title}; that costs nothing now", said)
    if serves(case.observed):
        return replace(draft, evidence=said)
    ends = case.gains.ranges.get(draft.check)
    return replace(draft, evidence=said, gives=(gain, gain), saves=max(0.0, gain), ends=ends)


def _ranked(case: Case, draft: Reply, idle: float) -> Reply:
    """A fault that holds rollout back, beside a trainer that waits, against more instances: where a simulation that is
    only nearly right, or one of preemptions, has both. idle: of a step, the trainer's wait."""
    ranked = case.gains if case.ranked is None and draft.check == "preemptions" else case.ranked or Gains()
    freed, more = ranked.get(draft.check), ranked.get("rollout")
    if freed is None or more is None:
        return draft
    said = f"simulated without it, a step is {units.share(max(0.0, freed))} shorter; {ranked.more_words}"
    if freed < LITTLE * idle and (freed < more or freed < WORTH):
        symptom = "a symptom: too few instances for the load"
        return Reply(
            "ok", symptom if freed < more else f"{draft.title}; that costs nothing now", (*draft.evidence, said)
        )
    return draft if case.ranked is None else replace(draft, evidence=(*draft.evidence, said), gives=(freed, freed))


def _run_ahead(case: Case, draft: Reply, gain: float) -> Reply:
    """Slow responses with what the remedy gives: their price at least, as the wait at most. A remedy that gives nothing
    has no price."""
    if not draft.remedy:
        return draft
    said = (*draft.evidence, f"simulated with this change, a step is {units.share(max(0.0, gain))} shorter")
    if gain < WORTH:
        return replace(draft, evidence=said, gives=None)
    if case.idle is None:
        return replace(draft, evidence=said)
    return replace(draft, evidence=said, gives=(gain, gain), saves=gain, ends=(gain, max(gain, case.idle.value)))


def _first(case: Case, order: Sequence[Reply]) -> Reply | None:
    """What to change first: the first fault that is a change, without those that tell next to nothing of the wait."""
    changes = [d for d in order if d.check not in _NOT_A_CHANGE]
    if case.starving and case.idle is not None and any(d.check == "rollout" for d in changes):
        # a suspicion that leaves something of the wait open comes later
        least = case.idle.value * (_TELLS if case.weighed else 1.0)
        small = {d.check for d in changes if d.check in COSTS_OR_NOT and d.gives and d.gives[0] < least}
        changes = [d for d in changes if d.check not in small & {"prefix_cache", *case.gains}]
    return changes[0] if changes else (order[0] if order else None)


def _dearest(
    case: Case, first: Reply | None, order: Sequence[Reply], size_of: Mapping[Check, FindingCost | None]
) -> Reply | None:
    """Of what is to be mended before the fleet is sized, the dearest, where it is that by DEARER; else the first."""
    if first is None or first.check not in MENDS:
        return first

    unseen = {check for check in COSTS_OR_NOT if (case.ranked or case.gains).get(check, 0.0) < WORTH}

    def usd(draft: Reply) -> float:
        size = size_of.get(draft.check)
        if size is None or (draft.saves is None and draft.check in unseen):
            return 0.0  # what may be all of the wait proves nothing
        return size.usd_per_day

    most = max((d for d in order if d.check in MENDS), key=usd)
    return most if usd(most) > DEARER * usd(first) else first


def _starves(case: Case, drafts: Sequence[Reply]) -> Starves:
    """The side that waits: the trainer by its sample wait, the rollout GPUs by their time without work.

    A growing backlog is rollout's work that nobody takes: then the trainer is the slower side, and rollout's output
    starves for it, as it does beside a trainer that computes longer than it did, where a bound keeps the queue from
    growing. Sharing GPUs, neither waits for the other.
    """
    if case.colocated:
        return "neither"
    if case.starving:
        return "trainer"
    if any(d.state == "fault" and d.check in ("backlog", "trainer") for d in drafts):
        return "rollout"
    if case.engines_idle is not None and case.engines_idle > ROLLOUT_IDLE and case.starving is False:
        return "rollout"
    return "unknown" if case.starving is None else "neither"


def _headline(case: Case, starves: Starves, first: Reply | None, most: Reply | None, drafts: Sequence[Reply]) -> str:
    """One sentence: who waits and how much, the cause to begin with, and the one that costs most if that is another."""
    idle, account = case.idle, case.observed.account
    if case.observed.logs_alone and account is not None:
        return _accounted(case, account, first)
    if starves == "trainer" and idle is not None:
        who = f"The trainer waits for samples {told(idle, units.share(idle.value))} of every step"
    elif starves == "rollout" and all(d.name != TOO_LARGE for d in drafts):
        who = "Rollout makes more than the trainer takes"
    elif starves == "rollout":
        who = "Rollout GPUs idle beside a trainer that does not wait for them"
    elif starves == "neither" and case.colocated:
        who = "Both pools take turns on the same GPUs"
    elif starves == "neither":
        share = "" if idle is None else f" ({told(idle, units.share(idle.value))} of a step waited)"
        who = f"The two sides keep pace{share}"
    else:
        who = "Which side waits cannot be told from this window"
    if first is not None:
        other = "" if most is None or most is first else f"; most is lost because {most.name}"
        left = unreplaced(case.observed.departed) if case.starving and "vanished" not in first.name else ()
        happened = f"{missed_words(left)} " if left else ""  # what befell the window, before what it is like throughout
        return f"{happened}{who}: {first.name}{other}."
    unknown = [d.check for d in drafts if d.state == "unknown"]
    gone = ", ".join(str(d.id) for d in case.observed.departed if d.replaced_by is None)
    missed = f", although {gone} vanished" if gone else ""
    if not unknown:
        return f"{who}{missed}, and nothing is wrong." if not gone else f"{who}{missed}; no fault was found."
    return f"{who}{missed}; no fault was found, {len(unknown)} of {len(drafts)} questions stay open."


def _accounted(case: Case, account: Account, first: Reply | None) -> str:
    """Where the seconds of a log's step go, and what would give most of them back."""
    levers = levers_of(case.observed)
    if levers:
        since = "" if levers[0].since_step is None else f" since step {levers[0].since_step}"
        return f"{account.words}: {levers[0].cause} costs {plain(levers[0].mean)}{since}."
    if first is not None:
        return f"{account.words}: {first.name}."
    over = (
        p for p in account.phases if p.over and abs((p.course.before or 0.0) - p.course.usual) >= WORTH * account.now_s
    )
    if (past := next(over, None)) is not None and past.over is not None:
        way = "more" if (past.course.before or 0.0) > past.course.usual else "fewer"
        then = f"{past.name} took {way} seconds from step {past.over[0]} to {past.over[1]} alone"
        return f"{account.words}; no fault was found now: {then}."
    return f"{account.words}; no fault was found{pace_words(case.observed)}."


# What the account of a log decides: check -> columns that must be there to rule it out, and what of the engines would
# tell else.
ANSWERS: Mapping[Check, tuple[tuple[str, ...], str]] = {
    "trainer": (("train_s",), "--map trainer.train_s=METRIC"),
    "sync": (("sync_s",), "--map trainer.sync_s=METRIC"),
    "stragglers": (("sample_s_max", "group_s_max"), "vllm:generation_tokens_total"),
    "in_flight_cap": (("in_flight_cap_samples",), "vllm:num_requests_running"),
    "preemptions": (("preemptions",), "vllm:num_preemptions_total"),
    "rollout": (("wait_s", "trainer_idle", "generate_s"), "--map trainer.wait_s=METRIC"),
}


def accounted(case: Case, check: Check) -> Reply:
    """The largest lever that answers a question; else whether it is ruled out, or cannot be told."""
    account = case.observed.account
    assert account is not None  # a log alone has one
    found = [lever for lever in levers_of(case.observed) if lever.cause in CAUSES_OF[check]]
    if found:
        return _fault(case, check, found)
    columns, metric = ANSWERS[check]
    seen = next((c for c in columns if c in account.present or account.phase(c) is not None), None)
    if seen is None and check not in ("trainer", "rollout") and case.starving is False and not case.colocated:
        return Reply("ok", "not seen, and the trainer does not wait for it", (idle_words(case),))
    if seen is None:
        then = f"one metric tells: {metric}"
        return Reply("unknown", "not in the log", (), then, missing=metric)
    said = account.phase(seen)
    evidence = () if said is None else (f"{plain(said.course.usual)} of a step are {said.name}",)
    return Reply("ok", "no seconds to be had", evidence)


def _fault(case: Case, check: Check, found: list[StepLever]) -> Reply:
    """The first of a check's levers as its finding; the others stand in its evidence."""
    first, step_s = found[0], max(1e-9, case.observed.trainer.step_s.value if case.observed.trainer.step_s else 1e-9)
    since = "" if first.since_step is None else f" since step {first.since_step}"
    range_words = f"{plain(first.low)} to {plain(first.high)}"
    evidence = (
        f"{plain(first.mean)} of a step{since} ({range_words}), in {first.phase}",
        first.why,
        *(changed_words(case.observed) if check == "rollout" else ()),
        *(f"{lever.cause}: {plain(lever.mean)} of a step" for lever in found[1:]),
    )
    share = min(1.0, sum(lever.mean for lever in found) / step_s)
    told = dict(cure_of(first, case.observed).lines(step_s))
    then = "\n".join((*told["do"].split("; "), f"verify: {told['verify']}", f"undo: {told['undo']}"))
    return Reply("fault", first.cause, evidence, then, (share, share), first.cause, cause=first.cause)
