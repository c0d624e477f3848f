"""Whether the fleet of a window is to be resized: one answer, which every door that recommends reads.

Health comes before size. A fleet is not sized beside a fault that the diagnosis would have changed first: it would be
sized for the fault. Nor is it sized by a window that too little was read of, by a simulation that does not predict the
window (beyond the back-test's limit, or not compared at all), or where nobody knows how long the trainer takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fleetsim import units
from fleetsim.config.tree import is_touched
from fleetsim.replay.diagnose.checks.case import Case, Reply
from fleetsim.replay.diagnose.finding import MENDS, Check, Mend, Withheld

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
        return _mend(first, by_check, trusted)
    if not trusted:
        return Withheld("model", _untrusted(case))
    if (waits := _waits_too_long(case)) is not None:
        return Withheld("model", waits)
    if case.colocated or (case.says("fleet.placement") and case.scenario.fleet.placement == "colocated"):
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


def _mend(first: tuple[Mend, ...], by_check: Mapping[Check, Reply], trusted: bool) -> Withheld:
    why = f"first {_joined(first)} ({'; '.join(by_check[check].title for check in first)})"
    return Withheld(first[0], why, first, trusted)


def _joined(first: Sequence[Mend]) -> str:
    return " and ".join(MENDS[check] for check in first)


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
