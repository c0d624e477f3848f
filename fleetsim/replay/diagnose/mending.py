"""What mending a fault would give, and which faults are to be mended before a fleet is sized.

A rule of thumb says that something is wrong; only the whole job says what it costs. A cheap pair of runs decides that
better: the window's own scenario, once as it is and once with the fault removed, under the same draws.

Whether the fleet of a window is to be resized has one answer, which every door that recommends reads. Health comes
before size. A fleet is not sized beside a fault that the diagnosis would have changed first: it would be sized for the
fault. Nor is it sized by a window that too little was read of, by a simulation that does not predict the window (beyond
the back-test's limit, or not compared at all), or where nobody knows how long the trainer takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.config.base import MAX_COUNT
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_touched
from fleetsim.errors import FleetsimError
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.policies.samples import AGE_ACTIONS
from fleetsim.records import replace
from fleetsim.replay.arrivals import Engine, Sent, play
from fleetsim.replay.backtest import Backtest
from fleetsim.replay.change.recommendation import runs_of
from fleetsim.replay.change.what_if import changed
from fleetsim.replay.diagnose.checks.case import KV_ROOM, Case, Gains, Reply, more_than
from fleetsim.replay.diagnose.finding import MENDS, Check, Mend, Withheld
from fleetsim.replay.implied.implied_scenario import Implied

# Steps of a run, two pairs each: the draws are the same, so that the difference is steady long before the means are.
STEPS, PAIRS = 30, 2
# Half of the fleet is enough where a step takes no more than this longer; below, it is noise.
NO_LONGER = 0.01
# A simulation that is off by more than the back-test's limit still ranks causes, as long as it is not off by this.
ROUGH = 0.4
# vLLM's own default on a large GPU.
MOST_SEQS = 1024


def removal_of(check: Check, implied: Implied) -> Mapping[str, Any] | None:
    """The changes that take a fault away; None for one that no change of the implied scenario removes."""
    s, engine = implied.scenario, implied.engine
    # Environments are so many, each for itself: neither holds without them.
    any_place = {"fleet.in_flight_unit": "samples"} if s.fleet.in_flight_unit == "environments" else {}
    caps = {"fleet.max_in_flight_samples": None, "fleet.max_in_flight_samples_per_instance": None, **any_place}
    # Where whole groups go to one instance, few of them may leave the others without work whatever the router does.
    evenly = {"fleet.routing": "least_loaded", "fleet.group_placement": "spread"}
    limits = None if engine is None else engine[1]
    changes: dict[Check, dict[str, Any] | None] = {
        "sync": {"sync.pause_s": 0.0, "sync.trainer_block_s": 0.0, "sync.publish_s": 0.0},
        "stragglers": {"fleet.speed_factors": []} if s.fleet.speed_factors else evenly,
        "prefix_cache": {
            "engine.prefix_caching": True,
            "sync.reset_prefix_cache": False,
            "fleet.group_placement": "together",
            **any_place,
        },
        # Without a scenario the law is a guess, and so is what the next bound would be.
        "in_flight_cap": caps if implied.base is not None else None,
        "rollout": {"fleet.instances": more_than(s.fleet.instances)},
        "max_num_seqs": None if limits is None else {"engine.max_num_seqs": 2 * limits.max_num_seqs},
        "preemptions": None if limits is None else {"engine.kv_blocks": min(2 * limits.kv_blocks, MAX_COUNT)},
    }
    return changes.get(check)


def tried_of(implied: Implied) -> Mapping[Check, Mapping[str, Any]]:
    """What is tried in place of a fault's removal: twice a cap that the window shows and nobody gave."""
    cap = implied.scenario.fleet.max_in_flight_samples if implied.base is None else None
    return {} if cap is None else {"in_flight_cap": {"fleet.max_in_flight_samples": 2 * cap}}


def mended(checks: Collection[Check], implied: Implied) -> Mapping[str, Any] | None:
    """The changes after which a fleet can be sized as if these faults were gone. None for what nobody knows the better
    value of: a healthy trainer's seconds, a shorter sync, larger KV caches."""
    found: dict[str, Any] = {}
    for check in checks:
        changes = None if check in ("trainer", "sync", "preemptions") else removal_of(check, implied)
        if changes is None:
            return None
        found.update(changes)
    if "max_num_seqs" in checks:
        found["engine.max_num_seqs"] = _held_by_kv(implied)
    return found


def _held_by_kv(implied: Implied) -> int:
    """So many sequences that the KV cache, not the engine's limit, says how many run; twice the limit at least, for
    that is known to bind."""
    s, engine = implied.scenario, implied.engine
    assert engine is not None  # `removal_of` has looked
    limits = engine[1]
    room = KV_ROOM * limits.kv_tokens / max(1.0, mean_prompt_tokens(s) + mean_output_tokens(s))
    return max(2 * limits.max_num_seqs, min(int(room), MOST_SEQS))


def gains_of(
    implied: Implied,
    checks: Collection[Check],
    remedies: Mapping[Check, Mapping[str, Any]] | None = None,
    *,
    sure: bool = True,
) -> Gains:
    """What mending each of these faults saves, without those that nothing mends.

    remedies: the changes of those that are not mended by `removal_of`. sure: whether the simulation predicts the
    window: then a fault that the simulated job does not have costs nothing. Nothing is counted on that gets stuck or
    does not fit. Where nobody says in which order the queue is emptied and old samples are dropped, both orders are
    tried: what is left of a batch decides how many are dropped.
    """
    found = Gains(was=implied.scenario.fleet.instances)
    before: dict[int, list[float]] = {}
    orders: list[Mapping[str, Any]] = [{}]
    if implied.base is None and AGE_ACTIONS[implied.scenario.admission.age_action].limits_age:
        orders = [{"buffer.batch_rule": rule} for rule in ("oldest_version_first", "fifo")]
    for check in checks:
        changes = (remedies or {}).get(check) or removal_of(check, implied)
        if changes is None:
            continue
        shares: list[float] = []
        for n, order in enumerate(orders):
            try:
                without, engine, _ = changed(implied, {**changes, **order, "run.steps": STEPS})
                now, own, _ = changed(implied, {**order, "run.steps": STEPS})
                if without == now:
                    shares += [0.0] if sure else []
                    continue
                before[n] = before.get(n) or _step_s(now, own)
                after = _step_s(without, engine)
            except FleetsimError:
                continue
            shares += [1.0 - b / a for a, b in zip(before[n], after, strict=True)]
        if shares:
            found[check], found.ranges[check] = sum(shares) / len(shares), (min(shares), max(shares))
    return found


def served_gains(implied: Implied, sent: Sent, checks: Collection[Check]) -> Gains:
    """Check -> the share of a request's seconds that removing it saves, where the same requests are sent again."""

    def wider(engine: Engine) -> Engine:
        seqs = 2 * engine[1].max_num_seqs
        tokens = max(seqs, engine[1].max_num_batched_tokens)
        return engine[0], replace(engine[1], max_num_seqs=seqs, max_num_batched_tokens=tokens)

    without: dict[Check, tuple[Callable[[Engine], Engine] | None, bool]] = {
        "stragglers": (None, True),
        "max_num_seqs": (wider, False),
        "preemptions": (lambda e: (e[0], replace(e[1], kv_blocks=min(2 * e[1].kv_blocks, MAX_COUNT))), False),
    }
    now = play(sent, implied, 0)
    found = Gains()
    for check in checks:
        if now is None or check not in without:
            continue
        change, alike = without[check]
        then = play(sent, implied, 0, change, alike=alike)
        if then is not None:
            found[check] = 1.0 - float((then.ended - then.came).mean()) / float((now.ended - now.came).mean())
    return found


def enough_of(implied: Implied) -> int | None:
    """The smallest fleet that makes a step no longer, by bisection. None where that cannot be simulated."""
    before = _tried(implied, {})
    if before is None:
        return None
    few, enough = 0, implied.scenario.fleet.instances
    while enough - few > 1:
        middle = (few + enough) // 2
        after = _tried(implied, {"fleet.instances": middle})
        longer = after is None or sum(b / a - 1.0 for a, b in zip(before, after, strict=True)) / PAIRS > NO_LONGER
        few, enough = (middle, enough) if longer else (few, middle)
    return enough


def _tried(implied: Implied, changes: Mapping[str, Any]) -> list[float] | None:
    """Seconds of a step with these changes; None where it gets stuck, or slow instances are named by their number."""
    try:
        scenario, engine, _ = changed(implied, {**changes, "run.steps": STEPS})
        return _step_s(scenario, engine)
    except FleetsimError:
        return None


def rough(back: Backtest | None) -> bool:
    """Whether the simulation of the window is near enough to compare causes by, if not to size them."""
    if back is None or back.verdict == "unknown":
        return False
    compared = [row for row in back.overall if row.quantity in ("step_s", "tok_s", "trainer_idle")]
    return bool(compared) and all(abs(row.error) <= ROUGH for row in compared)


def trusted(back: Backtest | None) -> bool:
    """Whether the simulation of the window predicts its step and throughput, as far as they were compared."""
    if back is None or back.verdict == "unknown":
        return False
    return all(row.within for row in back.overall if row.quantity in ("step_s", "tok_s", "trainer_idle"))


def _step_s(scenario: Scenario, engine: Engine | None) -> list[float]:
    return [float(m["step_s"]) for m in runs_of(scenario, engine, PAIRS)]


# Who sets one of these keys in a what-if asks for the fleet with that fault mended.
MENDED_BY: Mapping[Mend, tuple[str, ...]] = {
    "trainer": ("trainer",),
    "sync": ("sync",),
    "stragglers": ("fleet.speed_factors", "fleet.routing"),
    "prefix_cache": ("engine.prefix_caching", "sync.reset_prefix_cache", "fleet.group_placement"),
    "in_flight_cap": ("fleet.max_in_flight_samples", "fleet.max_in_flight_samples_per_instance", "admission"),
    "max_num_seqs": ("engine.max_num_seqs",),
    "preemptions": ("engine.kv_blocks", "engine.max_num_seqs", "fleet.max_in_flight_samples_per_instance"),
}
_SECONDS = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases")


def withheld(case: Case, drafts: Sequence[Reply], binding: Check | None) -> Withheld | None:
    """Why nothing is to be recommended, None where the fleet may be sized. binding: the fault to change first: smaller
    ones beside it do not hold a recommendation up."""
    by_check = {d.check: d for d in drafts}
    data, model = by_check["data"], by_check["model"]
    if data.state == "fault":
        return Withheld("data", data.title)
    trusted = model.state == "ok"
    first = tuple(check for check in MENDS if by_check[check].state == "fault")
    if binding in first:
        why = f"first {_joined(first)} ({'; '.join(by_check[check].title for check in first)})"
        return Withheld(first[0], why, first, trusted)
    if not trusted:
        return Withheld("model", _untrusted(case))
    if (waits := _waits_too_long(case)) is not None:
        return Withheld("model", waits)
    if case.colocated:
        return Withheld("no_plan", "colocated: the fleet has the trainer's GPUs, its size is theirs")
    if case.observed.trainer.step_s is None and not any(case.says(path) for path in _SECONDS):
        why = "nobody says how long the trainer takes: export rl_trainer_* or --map it, or give trainer.fixed_s"
        return Withheld("no_plan", why)
    return None


def unless_mended(held: Withheld, changes: Collection[str]) -> Withheld | None:
    """What is left to be mended where these paths are changed: a fault that they take away holds nothing up."""
    left = tuple(check for check in held.first if not any(is_touched(path, MENDED_BY[check]) for path in changes))
    if left == held.first:
        return held
    if left:
        return replace(held, reason=left[0], first=left, why=f"first {_joined(left)}")
    return None if held.sizable else Withheld("model", "the simulation does not predict this window")


def _joined(first: Sequence[Mend]) -> str:
    return " and ".join(MENDS[check][0] for check in first)


def _untrusted(case: Case) -> str:
    """Why the simulation is not believed, with the likeliest place to look."""
    back = case.backtest
    if back is None:
        return "no back-test was made: nothing says how well the simulation predicts this window"
    if back.verdict == "unknown":
        return "nothing of what was observed is predicted: the back-test compared nothing"
    where = f": {back.where[0]}" if back.where else ""
    return f"the back-test is off by more than {units.share(back.limit, 0)}{where}"


def _waits_too_long(case: Case) -> str | None:
    """Where the window holds the target of the trainer's wait and the simulation of the same fleet clearly does not, a
    count that makes up for it would be too large, though the back-test is within its limit."""
    row = None if case.backtest is None else case.backtest.row("trainer_idle")
    limit = case.idle_limit
    if row is None or row.observed > limit or row.predicted <= limit or row.error <= limit:
        return None
    seen, said = units.share(row.observed), units.share(row.predicted)
    return f"the simulation has the trainer wait {said} of a step, and the window shows {seen}, which holds its target"
