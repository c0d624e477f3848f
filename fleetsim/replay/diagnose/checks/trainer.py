"""Is the trainer itself healthy, and is weight sync the stall?

A trainer stalled on a collective or a bad node looks like slow rollouts. Where engines pause long per update, the
remedy is cadence or transport, not instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fleetsim import units
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.replay.diagnose.checks.case import WORTH, Case, Reply, told
from fleetsim.replay.diagnose.finding import pause_shares
from fleetsim.replay.diagnose.levers import levers_of
from fleetsim.replay.observe.interruptions import Pause, Stop
from fleetsim.replay.observe.observed import Hour
from fleetsim.replay.observe.phases import EVALUATES, UNEXPLAINED
from fleetsim.replay.observe.segments import have_rhythm

# Slower than its scenario, or at the end of the window than at its start, by more than noise and length mix explain.
SLOWER = 1.10
# Of the usual seconds: a part of the window with more was slow. A part holds dozens of steps, with a percent of noise.
SPELL = 1.2
# Slices that a drift needs: two at each end.
FEWEST_SLICES = 4
# Of a whole step: what is left of a step that mostly waits is known too roughly to drift by less.
DRIFTS = 0.05
# Of a step: what the trainer waits beside a batch, or what is in no counter, below which it is a hand-over's work.
OWN = 0.1
_PHASE = "give this phase larger batches of its own, keep its model on the GPUs, or let it run beside the generation"
_NEXT = "look for a bad node or a stalled collective (NCCL logs, GPU clocks, MFU per rank) before resizing anything"


def trainer(case: Case) -> Reply:
    """fault: computing takes longer than the scenario says, or longer at the end of the window than at its start
    although the responses did not grow; or it waits beside samples that are ready; or a part of a step is in no
    counter. unknown: nothing tells computing from waiting."""
    t = case.observed.trainer
    evidence: list[str] = []
    if t.train_s is not None and t.step_s is not None:
        step, train = units.seconds(t.step_s.value), told(t.train_s, units.seconds(t.train_s.value))
        evidence.append(f"computes {train} of a step of {step}")
    if t.mfu is not None:
        evidence.append(f"MFU {units.share(t.mfu.value)} on average")
    excess = _against_scenario(case, evidence)
    if excess is not None:
        return Reply("fault", "slower than its scenario says", evidence, _NEXT, (excess, excess),
            "the trainer computes longer than its scenario says",
        )  # fmt: skip
    own = _phase_fault(case, evidence) or _own_fault(case, evidence)
    if own is not None:
        return own
    drift, of_step = _drift(case) or (None, 0.0)
    if drift is not None and drift > SLOWER - 1.0 and of_step > DRIFTS:
        lengths = case.observed.lengths
        per_h = None if lengths is None else lengths.drift_per_h
        grown = None if per_h is None else per_h * case.observed.span_s / 3600
        text = f"seconds of a step beside wait and sync grew by {units.share(drift)} over the window"
        if grown is not None and grown >= 0.7 * drift:
            evidence += [text, f"so did the responses, by {units.share(grown)}: the workload changed, not the trainer"]
        else:
            evidence.append(text if grown is None else f"{text}, the responses only by {units.share(grown)}")
            return Reply("fault", "getting slower", evidence, _NEXT, (of_step, of_step),
                "the trainer is getting slower",
            )  # fmt: skip
    elif drift is not None:
        evidence.append(f"its seconds moved by {units.change(drift)} between the ends of the window")
    spell = _spell(case)
    if spell is not None:
        slow, usual, excess, lost = spell
        evidence.append(
            f"in {slow} of {len(case.observed.hours)} parts of the window a step took up to {units.share(excess)} more "
            f"of the trainer's own seconds than the {units.seconds(usual)} of the others"
        )
        return Reply("fault", "slow for a while", evidence, _NEXT, (lost, lost),
            "the trainer was slow for a while",
        )  # fmt: skip
    if t.train_s is None and drift is None:
        return Reply("unknown", "its compute time is not known",
            (*evidence, "neither exported nor in a run log; engines alone do not tell computing from other work"),
            "name your own metric with --map trainer.train_s=METRIC, or give the trainer's run log with --from",
            missing="--map trainer.train_s=METRIC",
        )  # fmt: skip
    steady = "steady" if drift is not None else "no sign of trouble"
    return Reply("ok", steady, evidence)


def _against_scenario(case: Case, evidence: list[str]) -> float | None:
    """The share of a step that the trainer computes beyond its scenario's seconds; None where it does not, or where
    nobody gave any."""
    from fleetsim.job.nameplate import trainer_step_s

    t = case.observed.trainer
    paths = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases")
    if t.train_s is None or t.step_s is None or not any(case.says(p) for p in paths):
        return None
    try:
        expected = trainer_step_s(case.scenario)
    except InputError:
        return None  # a scenario without compute seconds says nothing about them
    evidence.append(f"the scenario says {units.seconds(expected)} ({units.change(t.train_s.value / expected - 1)})")
    excess = (t.train_s.value - expected) / t.step_s.value
    return excess if t.train_s.value > SLOWER * expected and excess > WORTH else None


# Of an exported step, causes that its own phases show, as those of a log do.
PHASES = ("reference log-probs slow", "log-probs slow", "reward slow")


def _phase_fault(case: Case, evidence: Sequence[str]) -> Reply | None:
    """The largest phase of the trainer that takes longer than it would cost; None where none does, or is exported."""
    step = case.observed.trainer.step_s
    found = next((lever for lever in levers_of(case.observed) if lever.cause in PHASES), None)
    if found is None or step is None or step.value <= 0:
        return None
    share = found.mean / step.value
    said = f"{units.seconds(found.mean)} of a step are to be had in {found.phase}: {found.why}"
    title, ends = f"too much of a step is {found.phase}", (found.low / step.value, found.high / step.value)
    return Reply("fault", title, (*evidence, said), _PHASE, (share, share), title, ends=ends, cause=found.cause)


def _own_fault(case: Case, evidence: list[str]) -> Reply | None:
    """Waiting beside a batch that stands ready, or time that nothing accounts for, whichever takes more of a step."""
    t, q = case.observed.trainer, case.observed.queue
    if t.step_s is None or t.step_s.value <= 0:
        return None
    step, rest = t.step_s.value, _rest(case)
    if max(case.ready, rest) <= OWN:
        return None
    if case.ready >= rest:
        depth, batch = "" if q.depth is None else f", with {q.depth:,.0f} samples queued on average", t.batch_samples
        if q.depth is not None and batch is not None and batch.value > 0 and batch.source != "log":
            depth += f" ({q.depth / batch.value:.1f} batches)"  # a row of a log may hold several
        evidence.append(
            f"{units.seconds(case.ready * step)} of a step are booked as waiting while a batch stands ready{depth}"
        )
        return Reply("fault", "waits beside samples that are ready", evidence,
            "time what lies between a complete batch and its first forward pass (fetching, scoring, packing, a lock);"
            " of a trainer that waits for certain samples say so:\n"
            "fleetsim replay ... --given buffer.wait_for_oldest=true",
            (case.ready, case.ready), "the trainer waits beside samples that are ready",
        )  # fmt: skip
    evidence.append(f"{units.seconds(rest * step)} of a step ({units.share(rest)}) are neither wait, compute nor sync")
    return Reply("fault", "a part of its step is in no counter", evidence,
        "time the rest of the trainer's loop (checkpoints, evaluation, logging, data loading), and count it",
        (rest, rest), f"{units.share(rest)} of a step are the trainer's own, in no counter",
    )  # fmt: skip


def _rest(case: Case) -> float:
    """The share of a step that is in no counter, beyond the scenario's checkpoints, and what comes every few steps, as
    evaluations and checkpoints do, below a third of the time. 0 where the pools share GPUs, which take time to change
    hands, and of logs whose parts are not known to be all that they time."""
    t, saved = case.observed.trainer, case.scenario.trainer.checkpoint
    if t.rest_s is None or t.step_s is None or case.colocated:
        return 0.0
    if t.step_s.source != "exported" and t.unnamed_s is None:
        return 0.0
    stall = saved.stall_s / saved.every_steps if case.says("trainer.checkpoint") and saved.every_steps else 0.0
    hidden = None if case.observed.account is None else case.observed.account.phase(UNEXPLAINED)
    # what comes every few steps on a grid of scrapes, beside more that comes in each, is the grid's
    if hidden is not None and hidden.course.every is not None and hidden.course.usual < hidden.beyond_usual:
        stall = max(stall, hidden.beyond_usual if hidden.beyond_usual < EVALUATES * t.step_s.value else 0.0)
    return max(0.0, t.rest_s - stall) / t.step_s.value


def _drift(case: Case) -> tuple[float, float] | None:
    """By how much a step's seconds beside wait and sync grew: relative to them, and to the last steps. The last quarter
    of the window against the first; None below four slices, or where both pools take turns."""
    parts = [(s, h.step_s) for h in case.observed.hours if (s := _own_seconds(case, h)) is not None and h.step_s]
    if _turns(case) or len(parts) < FEWEST_SLICES:
        return None
    quarter = max(1, len(parts) // 4)
    first, last = fmean(s for s, _ in parts[:quarter]), fmean(s for s, _ in parts[-quarter:])
    whole = fmean(step for _, step in parts[-quarter:])
    return None if first <= 0 or whole <= 0 else (last / first - 1.0, (last - first) / whole)


def _turns(case: Case) -> bool:
    """Whether both pools take turns on the same GPUs, and nobody counts how long each of them has these."""
    t = case.observed.trainer
    return case.colocated and (t.train_s is None or t.train_s.source != "log")


def _spell(case: Case) -> tuple[int, float, float, float] | None:
    """Parts of the window in which the trainer was slow, the others' usual seconds, the most beyond them (a share), and
    what of the window's time that is; None where it was not, or where the pools take turns. What lasts to the window's
    end is a drift (`_drift`)."""
    parts = [(s, h) for h in case.observed.hours if (s := _own_seconds(case, h)) is not None]
    own = [s for s, _ in parts]
    if _turns(case) or len(own) < FEWEST_SLICES or case.observed.trend("response_tokens") is not None:
        return None
    usual = fmean(sorted(own)[: len(own) // 2])
    slow = [s for s in own if s > SPELL * usual]
    if not slow or usual <= 0 or max(own[0], own[-1]) > SLOWER * usual:
        return None
    step = case.observed.trainer.step_s
    if step is None or max(slow) - usual < DRIFTS * step.value:
        return None
    beyond = ((s - usual) / h.step_s * (h.end_s - h.start_s) for s, h in parts if h.step_s and s > SPELL * usual)
    return len(slow), usual, max(slow) / usual - 1.0, sum(beyond) / case.observed.span_s


def _own_seconds(case: Case, hour: Hour) -> float | None:
    """Seconds of a step in which the trainer neither waits for samples nor is held by weight sync."""
    if hour.step_s is None or hour.idle_fraction is None:
        return None
    held, start, end = hour.sync_fraction, hour.start_s, hour.end_s
    if held is None:  # held at least for as long as the engines stood still with work in hand
        held = sum(max(0.0, min(p.end_s, end) - max(p.start_s, start)) for p in case.observed.held)
        held = held / (end - start) if end > start else 0.0
    return hour.step_s * max(0.0, 1.0 - hour.idle_fraction - held)


# Of the window in which engines stand still, and of a step in which the trainer is held. Published systems keep sync at
# one to five percent; beyond that the sync itself is worth the work.
PAUSED, HELD = 0.05, 0.10
# Longer than the scenario's pause by more than this: an overrun.
OVERRUN = 1.5
_SECONDS = "--map trainer.sync_s=METRIC"


def sync(case: Case) -> Reply:
    """fault: engines pause, or the trainer is held, for a larger share than the limits; or pauses overrun the
    scenario's. A pause in which nothing was running is the engines out of work, not a sync."""
    o, t = case.observed, case.observed.trainer
    held = t.of_step(t.sync_s)
    paused = None if o.pauses is None or case.colocated else pause_shares(o)[0]
    if held is None and paused is None:
        return Reply("unknown", "pauses are not to be seen",
            ("the trainer exports no sync seconds, and the engines' own pattern shows no pauses",)
            if not case.colocated
            else ("colocated: engines are silent while the trainer works, which hides the sync",),
            "on a finer grid, or with --map trainer.sync_s=METRIC of your own:\nfleetsim replay ... --step 1s",
            missing=_SECONDS,
        )  # fmt: skip
    if held is None and o.rolling is None and not _is_sync(case):
        said = "no trainer and no engine counts a weight sync"
        seen = f"{len(o.held)} short stops of the engines have no rhythm: prompts, or a server that waits for something"
        grounds = (said, seen) if o.held else (said,)
        return Reply("unknown", "no weight sync is to be seen", grounds, missing=_SECONDS)
    evidence = []
    if o.rolling is not None:
        r = o.rolling
        evidence.append(
            "a rolling sync: one instance after the other stands still with work in hand while the others go on, each "
            f"{units.seconds(r.mean_s)} every {units.seconds(r.period_s)}, {units.share(r.share)} of the instances' "
            "time (inferred from each one's own stops)"
        )
    if paused is not None and o.pauses is not None and (o.rolling is None or o.held):
        n = len(o.held)
        inferred = " (inferred from the fleet's silence)" if any(p.source == "silence" for p in o.pauses.each) else ""
        each = f": {n} pauses, {units.seconds(o.pauses.mean_s)} on average" if n else ""
        together = paused - (0.0 if o.rolling is None else o.rolling.share)
        evidence.append(f"engines stand still {units.share(together)} of the time with work in hand{each}{inferred}")
    if held is not None and t.sync_s is not None:
        seconds = told(t.sync_s, units.seconds(t.sync_s.value))
        evidence.append(f"the trainer is held {seconds} of a step ({units.share(held)})")
        if held > (paused or 0.0):  # what is larger comes first
            evidence = evidence[-1:] + evidence[:-1]
    overrun = _overrun(case, evidence)
    if (paused or 0.0) <= PAUSED and (held or 0.0) <= HELD and not overrun:
        return Reply("ok", "not the stall", evidence)
    name = "weight-sync pauses overrun the scenario" if overrun else "weight sync stalls the job"
    if o.rolling is not None and not overrun:
        name = "a rolling weight sync stops each instance in turn"
    # a step is as much shorter as the trainer is held, or waits for engines that stand still
    step = max(held or 0.0, (paused or 0.0) if case.starving else 0.0)
    return Reply("fault", "longer than the scenario says" if overrun else "takes too large a share", evidence,
        _next(case), (step, max(step, paused or 0.0)), name,
    )  # fmt: skip


def _is_sync(case: Case) -> bool:
    """Whether the stops with work in hand can be weight syncs, where no trainer says so: engines count them, or sleep,
    or the stops have a rhythm, as steps have. What stops beside a trainer whose steps are counted is taken for one."""
    o = case.observed
    if o.trainer.step_s is not None and o.trainer.step_s.source != "inferred":
        return True
    return any(p.source != "silence" for p in o.held) or have_rhythm([p.start_s for p in o.held], o.step_s)


def _next(case: Case) -> str:
    """Cadence or transport; where old samples are dropped, a slower cadence drops more of them."""
    transport = "--set sync.transport=rdma_p2p"
    if case.says("admission.max_age") and case.scenario.admission.max_age is not None:
        why = "use a faster transport (syncing less often would drop more samples for their age):"
        return f"{why}\nfleetsim replay ... {transport}"
    cadence = f"sync less often:\nfleetsim replay ... --set sync.every_steps={2 * _cadence(case)}"
    return f"{cadence}\nor by a faster transport:\nfleetsim replay ... {transport}"


def _cadence(case: Case) -> int:
    """Steps between two syncs: as given, else as the pauses come."""
    if case.says("sync.every_steps"):
        return case.scenario.sync.every_steps
    rhythm, step = case.observed.rolling or case.observed.pauses, case.observed.trainer.step_s
    period = None if rhythm is None else rhythm.period_s
    return 1 if period is None or step is None or step.value <= 0 else max(1, round(period / step.value))


def _overrun(case: Case, evidence: list[str]) -> bool:
    """Whether pauses are longer than the scenario's, beyond what the scrape interval blurs."""
    o, rolling = case.observed, case.observed.rolling
    if o.pauses is None or case.colocated or not (case.says("sync.pause_s") or case.says("sync.transport")):
        return False
    each: tuple[Pause | Stop, ...] = o.held if rolling is None else rolling.stops
    if not each:
        return False
    try:
        expected = sync_times(case.scenario).pause_s
    except InputError:
        return False  # a transport without a model: nothing to hold the pauses against
    blur = 0.0 if all(isinstance(p, Pause) and p.source == "counter" for p in each) else o.step_s
    mean = sum(p.seconds for p in each) / len(each)
    evidence.append(f"the scenario's pause is {units.seconds(expected)}")
    return mean > OVERRUN * expected and mean - expected > blur
