"""Is weight sync the stall? If engines pause long per update, the remedy is cadence or transport, not instances."""

from __future__ import annotations

from fleetsim import units
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.replay.diagnose.checks.case import Case, Earlier, Reply, told
from fleetsim.replay.diagnose.cost import Claims, pause_shares
from fleetsim.replay.observe.interruptions import Pause, Stop, have_rhythm

# Of the window in which engines stand still, and of a step in which the trainer is held. Published systems keep sync at
# one to five percent; beyond that the sync itself is worth the work.
PAUSED, HELD = 0.05, 0.10
# Longer than the scenario's pause by more than this: an overrun.
OVERRUN = 1.5
_SECONDS = "--map trainer.sync_s=METRIC"


def check(case: Case, earlier: Earlier) -> Reply:
    """fault: engines pause, or the trainer is held, for a larger share than the limits; or pauses overrun the
    scenario's. A pause in which nothing was running is the engines out of work, not a sync."""
    o, t = case.observed, case.observed.trainer
    held = None if t.sync_s is None or t.step_s is None or t.step_s.value <= 0 else t.sync_s.value / t.step_s.value
    paused = None if o.pauses is None or case.colocated else pause_shares(o)[0]
    if held is None and paused is None:
        return Reply(
            "sync", "unknown", "pauses are not to be seen",
            ("the trainer exports no sync seconds, and the engines' own pattern shows no pauses",)
            if not case.colocated
            else ("colocated: engines are silent while the trainer works, which hides the sync",),
            "on a finer grid, or with --map trainer.sync_s=METRIC of your own:\nfleetsim replay ... --step 1s",
            missing=_SECONDS,
        )  # fmt: skip
    if held is None and o.rolling is None and not _is_sync(case):
        stops = [p for p in o.pauses.each if not p.empty] if o.pauses is not None else []
        said = "no trainer and no engine counts a weight sync"
        seen = f"{len(stops)} short stops of the engines have no rhythm: prompts, or a server that waits for something"
        grounds = (said, seen) if stops else (said,)
        return Reply("sync", "unknown", "no weight sync is to be seen", grounds, missing=_SECONDS)
    evidence = []
    if o.rolling is not None:
        r = o.rolling
        evidence.append(
            "a rolling sync: one instance after the other stands still with work in hand while the others go on, each "
            f"{units.seconds(r.mean_s)} every {units.seconds(r.period_s)}, {units.share(r.share)} of the instances' "
            "time (inferred from each one's own stops)"
        )
    if paused is not None and o.pauses is not None and (o.rolling is None or any(not p.empty for p in o.pauses.each)):
        n = sum(not p.empty for p in o.pauses.each)
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
        return Reply("sync", "ok", "not the stall", tuple(evidence))
    name = "weight-sync pauses overrun the scenario" if overrun else "weight sync stalls the job"
    if o.rolling is not None and not overrun:
        name = "a rolling weight sync stops each instance in turn"
    claims: Claims = {"sync": held or 0.0, "paused": paused or 0.0, "wait": (paused or 0.0) if case.starving else 0.0}
    if not case.starving:  # a step is as much shorter as the trainer is held, and the rollout GPUs' time with it
        more = max(0.0, (held or 0.0) - (paused or 0.0))
        claims = {**claims, **{of: x for of, x in case.shorter(more).items() if of != "wait"}}
    return Reply(
        "sync", "fault", "longer than the scenario says" if overrun else "takes too large a share", tuple(evidence),
        _next(case),
        claims, name,
    )  # fmt: skip


def _is_sync(case: Case) -> bool:
    """Whether the stops with work in hand can be weight syncs, where no trainer says so: engines count them, or sleep,
    or the stops have a rhythm, as steps have. What stops beside a trainer whose steps are counted is taken for one."""
    o = case.observed
    if o.trainer.step_s is not None and o.trainer.step_s.source != "inferred":
        return True
    stops = [] if o.pauses is None else [p for p in o.pauses.each if not p.empty]
    return any(p.source != "silence" for p in stops) or have_rhythm([p.start_s for p in stops], o.step_s)


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
    pauses, step = case.observed.pauses, case.observed.trainer.step_s
    rolling = case.observed.rolling
    period = rolling.period_s if rolling is not None else None if pauses is None else pauses.period_s
    return 1 if period is None or step is None or step.value <= 0 else max(1, round(period / step.value))


def _overrun(case: Case, evidence: list[str]) -> bool:
    """Whether pauses are longer than the scenario's, beyond what the scrape interval blurs."""
    pauses = case.observed.pauses
    if pauses is None or case.colocated or not (case.says("sync.pause_s") or case.says("sync.transport")):
        return False
    rolling = case.observed.rolling
    each: list[Pause | Stop] = [p for p in pauses.each if not p.empty] if rolling is None else [*rolling.stops]
    if not each:
        return False
    try:
        expected = sync_times(case.scenario).pause_s
    except InputError:
        return False  # a transport without a model: nothing to hold the pauses against
    blur = 0.0 if all(isinstance(p, Pause) and p.source == "counter" for p in each) else case.observed.step_s
    mean = sum(p.seconds for p in each) / len(each)
    evidence.append(f"the scenario's pause is {units.seconds(expected)}")
    return mean > OVERRUN * expected and mean - expected > blur
