"""Only then: is the fleet too small, or too large?

Too small: the trainer waits, and nothing that costs less than instances explains it. Too large: a backlog that grows
without bound is a bug, not a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.policies.law import Looser
from fleetsim.replay.arrivals import serves
from fleetsim.replay.diagnose.checks.case import (
    WAITING,
    WORTH,
    Case,
    Gains,
    Reply,
    idle_words,
    metric_of,
    more_than,
    unseen,
)
from fleetsim.replay.diagnose.finding import MENDS, pause_shares, pools_of
from fleetsim.replay.observe.changes import changed_words, names_of, since_words, unreplaced
from fleetsim.replay.observe.observed import FleetView
from fleetsim.replay.observe.trainer import grows
from fleetsim.search.change import Typed

# Of the instances' time: idle beside a trainer that waits for samples. A fleet that is too small is never idle.
TAIL = 0.25
# Peak over mean of what is in flight, with engines that have room: the work runs out before the batch is complete.
EBBS = 1.5
# More instances shorten a step by what they are of the fleet then, where only their number binds (a quarter more by a
# fifth), or by the whole wait if that is less; where they give less than a third of that, it is not their number.
HELPS = 0.33
_NOT_AHEAD = "running further ahead gives nothing: cut the longest responses, or make each faster (a larger engine.tp)"


def rollout(case: Case) -> Reply:
    """fault: the trainer waits more than its target, and earlier faults cannot explain all of it. ok: it does not wait,
    or something else is to be mended first. unknown: nobody knows how long it waits."""
    f = case.observed.fleet
    if (late := _elsewhere(case)) is not None:
        return late
    if case.colocated:
        share = None if case.idle is None else case.idle.value
        taken = () if share is None else (f"generation takes {units.share(share)} of a step",)
        why = "the same GPUs generate and train in turn: their number is no ratio of two pools"
        gpus = max(1, round((f.instances if f is not None else 1) * case.scenario.engine.gpus))
        return Reply("ok", "colocated: nothing to match", (*taken, why), f"fleetsim split --gpus {gpus}")
    evidence = [idle_words(case), *changed_words(case.observed)]
    if serves(case.observed):
        return _of_users(case)
    if case.idle is None:
        return Reply("unknown", "whether the trainer waits is not known", evidence,
            "name your own metric with --map trainer.wait_s=METRIC, or give the trainer's run log with --from",
            missing="--map trainer.wait_s=METRIC",
        )  # fmt: skip
    if not case.starving:
        return Reply("ok", "the fleet keeps the trainer busy", evidence)
    first = case.faults(*MENDS)
    # what earlier faults make the trainer wait at most; of a slow trainer, or where nobody says, that may be all of it
    sure = [d.gives for d in first if d.check != "trainer" and d.gives is not None]
    explained = sum(trainer for trainer, _ in sure) if len(sure) == len(first) else math.inf
    if first and explained >= case.idle.value - case.idle_limit:
        later = _mended(first)
        return Reply("ok", f"not to be resized before {later}", evidence)
    if first:
        causes = ", ".join(d.check.replace("_", " ") for d in first)
        evidence.append(f"{causes} can explain at most {units.share(explained)} of a step, not all of the wait")
    if f is None:
        title, metric = "the trainer waits; what the engines do is not known", "vllm:num_requests_running"
        return unseen(case, title, metric, evidence)
    return _of_fleet(case, f, case.idle.value - (explained if first else 0.0), evidence)


# Of a step: what no engine holds while the trainer waits, below which a grid of scrapes shows it for other reasons; of
# the samples, those that come to the queue meanwhile.
ELSEWHERE, LATE = 0.1, 0.05


def _elsewhere(case: Case) -> Reply | None:
    """Samples that no engine holds any longer and the trainer does not have yet: a judge or a tool has them. None where
    that is not sure, or explains less than a third of what the trainer waits.

    Engines that are empty for a share E of the time beside a trainer that waits for W of it are both for E + W - 1 at
    the least. Without it a step is as much shorter where the sides follow one another, and by the smaller of E and W
    where they work side by side.
    """
    wait, step, late = case.idle, case.observed.trainer.step_s, case.observed.queue.came_late or 0.0
    if wait is None or wait.source != "exported" or step is None or step.value <= 0:
        return None
    empty = pause_shares(case.observed)[1]
    least, most = max(0.0, empty + wait.value - 1.0), min(empty, wait.value)
    said = []
    blur = case.observed.step_s / step.value
    if least > max(ELSEWHERE, blur):
        said.append(f"for {units.share(least)} of the time at least no engine has a request, and the trainer waits")
    if late >= LATE and case.starving and most >= HELPS * wait.value:
        said.append(f"{units.share(late)} of the samples come to the queue while no engine has a request")
    saved = least if case.colocated else most
    return Reply("fault", "finished responses are late: a judge or a tool has them",
        (idle_words(case), *said, "something else holds them meanwhile (inferred)"),
        "time what comes after a response (a judge, a reward model, a sandbox), and give it more workers",
        (saved, saved), "samples wait for a judge or a tool", ends=(max(0.0, least - blur), wait.value),
        cause="judge or tool slow",
    ) if said else None  # fmt: skip


def _of_fleet(case: Case, f: FleetView, wait: float, evidence: list[str]) -> Reply:
    """What engines that are seen say of a trainer that waits: too few instances, or the slowest responses bind. wait:
    of a step, what nothing else explains."""
    since = since_words(case.observed, count=True)
    if (thrown := _thrown(case, evidence)) is not None:
        return thrown
    if f.running is not None:
        waiting = "" if case.waiting_share is None else f", {units.share(case.waiting_share)} of all wait there"
        evidence.append(f"{f.running / max(f.instances, 1e-9):,.0f} requests run on an instance{waiting}")
    if f.idle_share is not None:
        evidence.append(f"instances stand without work {units.share(f.idle_share)} of the time")
    if not case.weighed:
        return Reply("fault", "too few instances, or the slowest responses of each batch: only the simulation tells",
            evidence, "without --no-backtest:\nfleetsim replay ...", (wait, 0.0),
            f"rollout is too slow, for want of instances or by its slowest responses{since}",
        )  # fmt: skip
    slowest, gain = _slowest(case), case.gains.get("rollout")
    tried = case.gains if gain is not None else case.ranked or Gains()
    if (freed := tried.get("rollout")) is not None:  # the simulation knows better than the pattern
        few = freed >= HELPS * min(wait, case.simulated_wait, 1.0 - tried.was / tried.more)
        slowest = None if few else slowest if gain is None else tried.more_words
    if slowest is not None:
        inferred = ": the trainer waits for the last responses of its batch (inferred)" if gain is None else ""
        evidence.append(slowest + inferred)
        ahead = Typed(_ahead(case))
        then = f"if the recipe may train on older samples:\nfleetsim replay ... {ahead} --recommend"
        then = _NOT_AHEAD if case.ahead is not None and case.ahead < WORTH else then
        return Reply("fault", "the slowest responses of each batch bind, not the number of instances",
            evidence, _back(case) + then, case.at_most,
            f"the slowest responses of each batch hold it up{since_words(case.observed, count=False)}",
            remedy=ahead.changes, cause="" if gain is None else "long tail",
        )  # fmt: skip
    open_ = [d.check for d in case.earlier if d.state == "unknown" and d.check in MENDS]
    if open_:
        evidence.append(f"not ruled out, for want of data: {', '.join(open_)}")
    gives = (wait, 0.0)
    if freed is not None:  # of the rollout GPUs more are paid for, in shorter steps
        gives = (min(freed, wait), (tried.was - (1.0 - freed) * tried.more) / f.instances)
        evidence.insert(1, f"{tried.more_words}; their cost is taken off the price")
    return Reply("fault", "too few instances", evidence, "fleetsim replay ... --recommend",
        gives, f"the fleet is too small{since}",
    )  # fmt: skip


# Samples thrown away beside those that are trained, and how far at the ends of steps, beyond which they are too old.
THROWN, AT_STEPS = 0.1, 0.2


def _thrown(case: Case, evidence: Sequence[str]) -> Reply | None:
    """The trainer waits while samples are thrown away for their age; None where few are, or for another reason."""
    q = case.observed.queue
    lost = q.dropped_share or 0.0
    if lost < THROWN * (1.0 - lost) or (q.dropped_at_steps or 0.0) < AT_STEPS:
        return None
    said = f"{units.share(lost)} of the samples are thrown away, more of them as a step ends: they are too old then"
    fewer = f"fleetsim replay ... {Typed({'admission.law': 'version_window', 'admission.max_staleness': 1})}"
    return Reply("fault", "samples are thrown away while the trainer waits for others", (*evidence, said),
        f"begin fewer ahead of the trainer, so that none is too old, or let it train older ones:\n{fewer}",
        case.at_most, f"{units.share(lost)} of the samples are thrown away, too old", cause="stale samples dropped",
    )  # fmt: skip


def _mended(first: Sequence[Reply]) -> str:
    """What is so once these faults are mended."""
    return " and ".join(then for check, (_, then) in MENDS.items() if any(d.check == check for d in first))


def _of_users(case: Case) -> Reply:
    """No trainer waits there: the fleet is too small for its users where their requests wait for an engine."""
    f, waiting = case.observed.fleet, case.waiting_share
    if f is None or waiting is None:
        title, missing = "whether requests wait is not exported", metric_of(case, "waiting")
        return Reply("unknown", title, tuple(changed_words(case.observed)), missing=missing)
    said = (*changed_words(case.observed), f"{units.share(waiting)} of the requests in the engines wait there")
    if waiting <= WAITING:
        return Reply("ok", "the fleet keeps up with what is sent to it", said)
    first = case.faults(*MENDS)
    if first:
        later = _mended(first)
        return Reply("ok", f"not to be resized before {later}", said)
    each = (f.running or 0.0) / max(f.instances, 1e-9)
    said = (*said, f"{each:,.0f} requests run on an instance, and they have room for no more")
    return Reply("fault", "too few instances for what is sent to them", said,
        f"add instances until none wait: begin with {more_than(f.instances_now)}, and replay that window",
        None, "the fleet is too small for what is sent to it",
    )  # fmt: skip


def _back(case: Case) -> str:
    """What went in the window comes first, for it is what the fleet was planned with; unless more instances do not pay.

    They do while step time x cost per step falls, as for `size` (`search/objective.py`).
    """
    gone, gain = unreplaced(case.observed.departed), case.gains.get("rollout")
    if not gone or (gain is not None and gain < WORTH):
        return ""
    if gain is not None:
        pools = pools_of(case.observed, case.scenario, case.given)
        each, trainer = case.scenario.engine.gpus * pools.rollout_usd_h, pools.trainer_gpus * pools.trainer_usd_h
        if (1.0 - gain) ** 2 * (trainer + case.gains.more * each) > trainer + case.gains.was * each:
            return f"{names_of(gone)} need not come back: more instances cost more than they save; "
    return f"start {names_of(gone)} again, or {'another one' if len(gone) == 1 else 'as many others'}; "


def _slowest(case: Case) -> str | None:
    """What shows that work runs out while the trainer waits; None where the engines are kept busy.

    Instances without work, or requests in flight that ebb although the engines would take more: none waits in them and
    their KV caches have room. A fleet that is too small is full.
    """
    f = case.observed.fleet
    if f is None:
        return None
    if f.idle_share is not None and f.idle_share > TAIL:
        return "instances without work beside a waiting trainer"
    if not f.in_flight_mean or f.in_flight_peak is None or f.in_flight_peak < EBBS * f.in_flight_mean:
        return None
    if case.waiting_share is None or case.waiting_share > WAITING or case.kv_full is not False:
        return None
    return f"in flight ebbs from {f.in_flight_peak:,.0f} to {f.in_flight_mean:,.0f} on average in engines with room"


def _ahead(case: Case) -> dict[str, Any]:
    """The changes that let the fleet run further ahead of the trainer."""
    a = case.scenario.admission
    window = {"admission.max_staleness": math.floor(a.max_staleness) + 1 if case.says("admission.max_staleness") else 2}
    law = law_of(case.scenario)
    now = law.number(a)
    if case.says("admission.max_staleness") and law.budget == "versions":
        return window
    if case.says("admission.law") and law.budget != "versions" and isinstance(law.looser, Looser) and now is not None:
        # what starts earlier is older when it is trained
        assert law.parameter is not None  # a law with a looser number has it in a setting
        older = {} if a.max_age is None else {"admission.max_age": a.max_age + 1}
        return {law.parameter: now + law.looser.more} | older
    return {"admission.law": "version_window", **window}


# Samples thrown away, of those generated; filters and aborted leftovers are counted with them where the trainer does.
DROPPED = 0.05
# Instance-time without any work, while the trainer does not wait for samples.
IDLE = 0.15
# KV caches that never fill beyond this have room for twenty times the requests: fewer instances might do.
LIGHT = 0.05
# Of the fleet beyond what the trainer needs with its headroom: less than this a simulation does not know for sure.
SPARE = 0.2
TOO_LARGE = "the fleet is larger than the trainer needs"


def backlog(case: Case) -> Reply:
    """fault: the queue grows by a batch or more over the window and by more than GROWS of the production; or many
    samples are thrown away, or instances stand without work, or half of them make a step no longer (by simulation),
    while the trainer has enough. unknown: instances have next to no requests, and nobody simulated fewer."""
    q = case.observed.queue
    evidence: list[str] = []
    if q.depth is not None and q.depth_max is not None:
        evidence.append(f"{q.depth:,.0f} samples queue on average, {q.depth_max:,.0f} at the most")
    if q.oldest_age_max_steps is not None:
        a = case.scenario.admission
        budget = f", budget {a.max_staleness:g}" if case.says("admission.max_staleness") else ""
        evidence.append(f"the oldest is up to {units.plural(q.oldest_age_max_steps, 'step')} old{budget}")
    if q.dropped_share is not None:
        evidence.append(f"{units.share(q.dropped_share)} of the samples are thrown away")
    if q.generated_per_trained is not None:
        evidence.append(f"{q.generated_per_trained:.2f} tokens generated per token trained")
    slow = case.faults("trainer")
    growth = grows(case.observed, case.scenario.trainer.batch_samples)
    if growth is not None:
        (per_h, share), seen = growth, case.observed.trainer.batch_samples
        cap = case.scenario.trainer.batch_samples if seen is None else round(seen.value)  # what a step takes
        evidence.append(f"it grows by {per_h:,.0f} samples an hour, {units.share(share)} of what is produced")
        return Reply("fault", "the queue grows without bound" + (": the trainer is slow" if slow else ""),
            evidence, f"fleetsim replay ... --set buffer.capacity_samples={cap} --recommend",
            (0.0, share), "the backlog grows without bound",
        )  # fmt: skip
    if case.starving:
        return Reply("ok", "no: the trainer waits", evidence)
    idle = None if case.colocated else case.engines_idle
    if idle is not None:
        evidence.append(f"instances stand without work {units.share(idle)} of the time")
    if case.starving is False and not case.colocated and not slow:
        found = _too_many(case, idle, evidence)
        if found is not None:
            return found
    if q.depth is None and idle is None:
        return Reply("unknown", "queue depth is not exported", evidence,
            "name your own metric with --map queue.samples=METRIC", missing="--map queue.samples=METRIC",
        )  # fmt: skip
    return Reply("ok", "bounded" if q.depth is not None else "instances have work", evidence)


def _too_many(case: Case, idle: float | None, evidence: list[str]) -> Reply | None:
    """What a trainer that neither waits nor is slow says of the fleet; None where nothing is too much. idle: of the
    instances' time."""
    dropped = case.observed.queue.dropped_share
    if dropped is not None and dropped > DROPPED:
        return Reply("fault", "more is generated than trained", evidence,
            "fleetsim replay ... --recommend", (0.0, dropped + (idle or 0.0)),
            "the fleet generates samples that nobody trains on",
        )  # fmt: skip
    f = case.observed.fleet
    # what stands idle of a small fleet may be no whole instance
    few = f is not None and math.ceil((1.0 - (idle or 0.0)) * f.instances_now - 1e-9) >= f.instances_now
    if idle is not None and idle > IDLE and not few:
        return _too_large(evidence, idle)
    if (spare := _spare(case, evidence)) > 0:
        return _too_large(evidence, max(spare, idle or 0.0))
    light = f is not None and f.kv_use_peak is not None and f.kv_use_peak <= LIGHT and f.instances_now > 1
    if light and case.enough is None:
        evidence += _load(case)
        return Reply("unknown", "next to no requests per instance: fewer instances might do", evidence,
            "fleetsim replay ... --recommend", missing="a back-test that holds",
        )  # fmt: skip
    return None


def _too_large(evidence: Sequence[str], share: float) -> Reply:
    said = "more instances than the trainer needs"
    return Reply("fault", said, evidence, "fleetsim replay ... --recommend", (0.0, share), TOO_LARGE)


def _spare(case: Case, evidence: list[str]) -> float:
    """The share of the fleet that a step does not miss, by simulation and with the targets' headroom; 0 if little."""
    f, enough = case.observed.fleet, case.enough
    if f is None or enough is None or f.instances_now < 1:
        return 0.0
    headroom = case.scenario.targets.headroom
    wanted = math.ceil(enough / headroom - 1e-9)
    spare = 1.0 - wanted / f.instances_now
    if spare <= SPARE:
        return 0.0
    evidence += _load(case)
    evidence.append(
        f"simulated, {enough} of {f.instances_now} instances make a step no longer ({wanted} with a headroom of "
        f"{headroom:g}): the trainer does not need {units.share(spare)} of the rollout GPUs' time"
    )
    return spare


def _load(case: Case) -> list[str]:
    f = case.observed.fleet
    if f is None or f.running is None:
        return []
    kv = "" if f.kv_use_peak is None else f", its KV cache at {units.share(f.kv_use_peak)} at the most"
    return [f"{f.running / max(f.instances, 1e-9):,.0f} requests run on an instance{kv}"]
