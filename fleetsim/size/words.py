"""Sentences: what a plan means, in the words that a colleague would use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError
from fleetsim.job import facts as job_facts
from fleetsim.job.command import unused_name
from fleetsim.job.facts import run_differs, run_line
from fleetsim.job.trainer_scaling import count_words, gpus_each, takes_turns
from fleetsim.job.words import target
from fleetsim.policies.samples import AGE_ACTIONS
from fleetsim.search.alternative import never_waits
from fleetsim.search.levers import ONE_MORE
from fleetsim.search.workers import Crew, counted
from fleetsim.size.headroom import FAILURES, INTERACTION, LONG_TAIL, PREFILL, SLACK, STRAGGLERS, SYNC, Headroom
from fleetsim.size.size import Sizing

# The file that commands name where the job was not saved.
JOB_FILE = "job.yaml"
# Changes of time and cost that are told as one, or as none.
_ALIKE = 0.005
PARTS: Mapping[str, str] = {
    LONG_TAIL: "the long tail of responses",
    SYNC: "weight syncs: pauses and caches lost",
    STRAGGLERS: "stragglers",
    FAILURES: "instance failures",
    PREFILL: "computing prompts",
    INTERACTION: "instances that hold fewer samples than planned",
    SLACK: "the trainer's own pace: supply that it leaves unused",
}


def headline(result: Sizing) -> str:
    """The answer in one sentence, what is missed of what somebody asked for before it."""
    fleet = _fleet(result)
    if run_differs(result.scenario, result.as_run_s):
        return f"No fleet is advised: {run_line(result.scenario, result.as_run_s)}."
    if result.missed:
        idle = takes_turns(result.scenario) and any(t.name == "trainer_idle_fraction" for t in result.missed)
        why = ", for a colocated trainer waits while its GPUs generate" if idle else ""
        return f"No fleet holds {asked(result, held=False)}{why}. The best: {fleet}."
    if result.enough is False and result.confidence is not None:
        return f"No fleet is enough in {_cases(result.confidence)}. In the likeliest: {fleet}."
    if result.targets:
        return f"{fleet}: the fewest that hold {asked(result, held=True)}."
    over = "" if result.confidence is None else ", on average over what the inputs may be"
    return f"{fleet}: the least step time x cost{_rate(result)}{over}."


def _rate(result: Sizing) -> str:
    """What step time is worth in cost, where that is not one to one."""
    worth = result.scenario.targets.worth
    return "" if worth == 1.0 else f", where 1 % of time is worth {units.limit(worth / 100)} of cost"


def _fleet(result: Sizing) -> str:
    """ "13 rollout instances for 8 trainer GPUs"; "48 GPUs (24 instances of TP 2), trainer and rollout take turns"."""
    n, s = result.instances, result.scenario
    if not takes_turns(s):
        makes = [f"{pool.instances:,} of {name} ({pool.gpu or s.engine.gpu})" for name, pool in s.fleet.pools.items()]
        own = "" if s.fleet.first is None else f" of pool {s.fleet.first} ({s.engine.gpu})"
        fleet = units.listed([f"{units.plural(n, 'rollout instance')}{own}{_likely(result)}", *makes])
        return f"{fleet} for {units.plural(s.trainer.gpus, 'trainer GPU')}"
    each = f"TP {s.engine.tp}" if s.engine.gpus == s.engine.tp else units.plural(s.engine.gpus, "GPU")
    of = f"{units.plural(n, 'instance')} of {each}"
    inside = "; ".join(filter(None, (of, _likely(result).strip(" ,()"))))
    return f"{count_words(s, n)} ({inside}), trainer and rollout take turns"


def why_infeasible(result: Sizing) -> str:
    """What no fleet does of what was asked for."""
    if result.missed:
        return f"no fleet holds {asked(result, held=False)}"
    assert result.confidence is not None  # nothing else makes a plan infeasible
    return f"no fleet is enough in {_cases(result.confidence)}"


def _likely(result: Sizing) -> str:
    """The range of the count, where it is more than one."""
    if result.confidence is not None and result.enough:
        return f", enough in {_cases(result.confidence)}," if result.targets else ""
    if result.spread is None:
        return ""
    each = gpus_each(result.scenario) or 1
    low, high = (n * each for n in result.spread.instances)
    return job_facts.likely(f"{low:,}", f"{high:,}", result.spread.wide)


def _cases(share: float) -> str:
    return f"{units.limit(share)} of cases"


def being_wrong(result: Sizing, named: str) -> str:
    """What it costs on average to stay with the answer, and which input widens its range, but for one that is named
    beside it."""
    r = result.spread
    assert r is not None
    of = "the price" if result.targets and not result.at_knee else "step x cost"
    of += " at that rate" if _rate(result) and of != "the price" else ""
    return job_facts.being_wrong(r.expected_loss, of, None if r.widest == named else r.widest)


def asked(result: Sizing, *, held: bool) -> str:
    """The targets that somebody gave and the answer holds, or misses: "a step of at most 36.0 s and ..."."""
    return " and ".join(target(t.name, t.limit) for t in result.targets if (t not in result.missed) == held)


def surplus(result: Sizing) -> str | None:
    """What a larger fleet would be good for, where it is of no use: there nothing but a smaller one helps."""
    more = result.alternatives.named(ONE_MORE)
    if not never_waits(result.recommended) or more is None or more.shortens:
        return None
    n = result.instances
    return f"A larger fleet makes more than the trainer takes, for good: reduce engines to {n:,}."


def longer(result: Sizing) -> str:
    """What the next larger fleet does where it makes a step longer, and why; "" elsewhere."""
    found, job = result.longer, result.scenario
    if found is None or (more := result.alternatives.named(ONE_MORE)) is None:
        return ""
    said = f"{count_words(job, found.instances)} make a step {units.share(more.step_ratio.mean - 1.0, 0)} longer"
    now, then = (trial.mean("queue_depth") for trial in (result.recommended, found))
    if not AGE_ACTIONS[job.admission.age_action].drops or then <= now:
        return said
    limit = job.admission.max_age
    older = "too old" if limit is None else f"older than {units.plural(limit, 'step')}"
    return f"{said}: {then:,.0f} samples wait for the trainer instead of {now:,.0f}, and grow {older} there"


def arithmetic(result: Sizing) -> str:
    """The runbook's rate matching in one line, as it is worked out on paper."""
    if takes_turns(result.scenario):
        return "trainer and rollout take turns on the same GPUs: there are no two rates to match"
    r = result.rate_matching
    consumed, rate = units.count(round(r.consume_tok_s, 1)), units.count(round(r.instance_tok_s, 1))
    if not r.covers:
        most = units.count(round(r.instances * r.instance_tok_s, 1))
        return (
            f"{consumed} tok/s consumed: no fleet covers that; the samples that may be in flight make at most {most} "
            f"tok/s x headroom {r.headroom:g}, with {units.plural(r.instances, 'instance')} or more"
        )
    each = f"({rate} tok/s per instance x headroom {r.headroom:g})"
    return f"{consumed} tok/s consumed / {each} = {units.plural(r.instances, 'instance')}"


def headroom(result: Sizing) -> str:
    """The computed headroom against the one of the arithmetic."""
    h = result.headroom
    took = "" if takes_turns(result.scenario) else f" (the arithmetic took {result.rate_matching.headroom:g})"
    return (
        f"computed headroom {h.computed:.2f}{took}: of the "
        f"{units.number(h.nameplate_tok_s)} tok/s that {units.plural(result.instances, 'instance')} would make without "
        f"any loss, {units.share(h.computed)} is what {_consumes(h)}"
    )


def taken(h: Headroom) -> str:
    """What is consumed of the rate without any loss."""
    return f"{_consumes(h)} {units.share(h.computed)}"


def _consumes(h: Headroom) -> str:
    """No trainer consumes more than there is; one that never waited would."""
    return "the trainer consumes" if h.computed <= 1.0 else "a trainer that never waits would consume"


def queue(result: Sizing) -> str:
    """The queue cap in one line."""
    q = result.queue_cap
    cost = "no step time" if q.step_cost < 0.0005 else f"{units.share(q.step_cost)} of step time"
    bound = ""
    if q.bound_samples is not None and q.budget_steps is not None:
        budget = units.plural(q.budget_steps, "step")
        bound = f"; a staleness budget of {budget} allows no more than {q.bound_samples:,} there"
        bound += ", with which the job gets stuck" if q.samples > q.bound_samples else ""
    return (
        f"cap the queue at {q.samples:,} samples ({units.plural(q.steps, 'step')}): costs {cost}, "
        f"staleness p99 {units.plural(q.staleness_p99_steps, 'step')}{bound}"
    )


def workers(result: Sizing) -> str:
    """ "96 sandboxes, 91 % in use; with the 64 given a step is 18 % longer and costs 12 % more"; "" without one."""
    return "; ".join(map(_crew, result.crews))


def _crew(crew: Crew) -> str:
    there = counted(crew.station, crew.workers)
    if crew.given is None:
        there += f" for 99 % of the time, {crew.most:,.0f} at most"
    else:
        there += " as given" if crew.said and crew.given == crew.workers else ""
        there += f", {units.share(crew.busy, 0)} in use" if crew.workers else ", all calls go to the overflow"
    if crew.fewer == crew.workers:
        return there
    fewer = f"the {crew.fewer:,} given" if crew.said and crew.fewer == crew.given else f"{crew.fewer:,}"
    return f"{there}; with {fewer} {_with_fewer(crew)}"


def _with_fewer(crew: Crew) -> str:
    """ "a step is 18 % longer and costs 12 % more"; "a step takes and costs 2.4 times as much"."""
    if crew.other.stuck is not None:
        return "no batch is ever complete"
    longer, dearer = crew.longer, crew.dearer
    if abs(longer - dearer) >= _ALIKE * (1.0 + longer):
        takes = _more(longer, "is {} longer", "is {} shorter", "takes {} times as long")
        takes = "is as long" if abs(longer) < _ALIKE else takes
        return f"a step {takes} and {_more(dearer, 'costs {} more', 'costs {} less', 'costs {} times as much')}"
    if abs(longer) < _ALIKE:
        return "a step is no longer"
    return "a step " + _more(
        longer, "is {} longer and dearer", "is {} shorter and cheaper", "takes and costs {} times as much"
    )


def _more(change: float, more: str, less: str, times: str) -> str:
    if change >= 1.0:
        return times.format(f"{1.0 + change:.3g}")
    return (less if change < 0.0 else more).format(units.share(abs(change), 0))


def next_commands(result: Sizing, call: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(command, why) pairs: what to type next. call: the words that ask the same again."""
    file = unused_name(JOB_FILE)
    found = [
        (shlex.join([*call, "--save", file]), "the job as a file, in which you change what differs"),
        (f"fleetsim simulate {file}", "where each second of a step goes, queue and staleness over the run"),
    ]
    if result.profile.kind in ("roofline", "derived"):
        model = shlex.join(["fleetsim", "calibrate", "--model", result.scenario.engine.model])
        found.append((model, "on a GPU box, in ten minutes: a profile that was measured, with its error"))
        if _may_be_a_rate(result.scenario):
            rate = f"{result.headroom.nameplate_tok_s / result.instances:.0f}"
            why = "with the rate that you measured instead of this one: the fastest way to a better answer"
            found.append((shlex.join([*call, "--instance-tok-s", rate]), why))
    return tuple(found)


def _may_be_a_rate(scenario: Scenario) -> bool:
    """Whether an engine of a constant rate can stand for the job's: it has no drafts and no sides of its own."""
    try:
        with_changes(scenario, {"engine.kind": "constant", "engine.instance_tok_s": 1.0})
    except InputError:
        return False
    return True
