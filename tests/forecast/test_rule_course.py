"""A rule that resizes the fleet: against a walk by hand, against hindsight, and against one simulation of it all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.errors import InputError
from fleetsim.forecast import resizing_plan
from fleetsim.forecast.ask import Forecast, forecast
from fleetsim.forecast.resizing_plan import FleetTotal, ScalingRule, _cheapest_way, longest_start, rule_of, walked
from fleetsim.policies.scaling import Damping, Held, damped
from fleetsim.sim.run import simulate

AT_ONCE = ScalingRule(Damping(1, 1, 0.0, 0.0), every_s=10.0, window_s=10.0)
COUNTS, USD_S = (1, 2, 4), np.array([1.0, 2.0, 4.0])


def _work(work: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of work / n, 10 s at least, and dollars + one dollar a second."""
    step_s = np.maximum(10.0, np.array(work)[None, :] / np.array(COUNTS)[:, None])
    return step_s, step_s * (USD_S[:, None] + 1.0)


def test_a_walk_by_hand() -> None:
    # Step 0 takes 10 s; then the work is 40 s: 40 s with one instance, 10 s with four. The evaluation at 10 s sees
    # nothing but step 0, that at 20 s the same. At 50 s step 1 has ended: four are wanted, and paid from then on.
    step_s, score = _work([10.0, 40.0, 40.0, 40.0, 40.0])
    found = walked(AT_ONCE, COUNTS, 0, step_s, score, USD_S, start_s=0.0)
    assert found.counts == ((0, 1), (3, 4))
    assert found.seconds == 10.0 + 40.0 + 40.0 + 10.0 + 10.0
    # The step in which they are asked for ends at 90 s; they are paid for from the evaluation at 60 s on.
    assert found.usd == 90.0 * 1.0 + (90.0 - 60.0) * 3.0 + 20.0 * 4.0
    # With a start of 35 s, ready at 95 s, they serve a step later.
    late = walked(AT_ONCE, COUNTS, 0, step_s, score, USD_S, start_s=35.0)
    assert late.counts == ((0, 1), (4, 4))
    assert late.seconds == 10.0 + 3 * 40.0 + 10.0
    assert late.usd == 90.0 + 30.0 * 3.0 + 40.0 * 4.0 + 10.0 * 4.0


def test_a_fleet_shrinks_from_the_next_step_on() -> None:
    step_s, score = _work([40.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0])
    found = walked(AT_ONCE, COUNTS, 2, step_s, score, USD_S, start_s=1000.0)
    assert found.counts[0] == (0, 4)
    assert found.counts[-1][1] == 1
    assert found.seconds == 70.0


works = st.lists(st.sampled_from([10.0, 20.0, 30.0, 40.0, 60.0]), min_size=2, max_size=40)
rules = st.builds(
    ScalingRule,
    st.builds(Damping, st.integers(1, 4), st.integers(1, 6), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 60.0])),
    st.sampled_from([5.0, 60.0]),
    st.sampled_from([10.0, 300.0]),
)


@given(works, rules, st.integers(0, 2), st.sampled_from([0.0, 30.0, 500.0]))
def test_no_rule_is_better_than_hindsight(work: list[float], rule: ScalingRule, start: int, start_s: float) -> None:
    step_s, score = _work(work)
    run = walked(rule, COUNTS, start, step_s, score, USD_S, start_s)
    way = _cheapest_way(score, np.zeros((len(COUNTS), len(COUNTS))))
    at = np.arange(len(work))
    assert run.usd + run.seconds >= score[way, at].sum() - 1e-6
    assert run.seconds >= step_s.min(axis=0).sum() - 1e-6
    assert [n for _, n in run.counts] == [n for n in [n for _, n in run.counts] if n in COUNTS]
    assert all(a < b and m != n for (a, m), (b, n) in zip(run.counts, run.counts[1:], strict=False))


def test_evaluations_that_change_nothing_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One a second over steps of 20 to 1,000 s is no more work than a few a step, and comes to the same."""
    asked = []

    def counted(*given: Any) -> Held:
        asked.append(given)
        return damped(*given)

    monkeypatch.setattr(resizing_plan, "damped", counted)
    step_s, score = _work([20.0, 1000.0, 500.0] * 100)
    rule = ScalingRule(Damping(3, 5, 0.0, 90.0), every_s=1.0, window_s=300.0)
    assert walked(rule, COUNTS, 0, step_s, score, USD_S, 30.0) == each_evaluation(rule, step_s, score, 0, 30.0)
    assert len(asked) < 20 * step_s.shape[1]


def each_evaluation(rule: ScalingRule, step_s: Any, score: Any, start: int, start_s: float) -> FleetTotal:
    """The walk of every evaluation, one after the other."""
    held, serving, paid = Held(COUNTS[start]), start, start
    now = ready_s = usd = 0.0
    k, ended, moves = 0, [0.0], [(0, COUNTS[start])]
    for step in range(step_s.shape[1]):
        if serving != paid and (paid < serving or now >= ready_s):
            serving = paid
            moves.append((step, COUNTS[serving]))
        end = now + float(step_s[serving, step])
        usd += float(USD_S[paid]) * (end - now)
        while k * rule.every_s <= end:
            due = k * rule.every_s
            seen = [s for s in range(step) if ended[s + 1] >= due - rule.window_s]
            if seen:
                wanted = int(np.argmin(score[:, seen].sum(axis=1)))
                held = damped(held, COUNTS[wanted], COUNTS[paid], due, rule.damping)
                new = COUNTS.index(held.instances or COUNTS[paid])
                if new != paid:
                    usd += float(USD_S[new] - USD_S[paid]) * (end - due) if new > paid else 0.0
                    paid, ready_s = new, due + start_s
            k += 1
        now = end
        ended.append(end)
    return FleetTotal(tuple(moves), now, usd)


@given(works, rules, st.integers(0, 2), st.sampled_from([0.0, 30.0, 500.0]))
def test_a_walk_is_that_of_every_evaluation(work: list[float], rule: ScalingRule, start: int, start_s: float) -> None:
    step_s, score = _work(work)
    assert walked(rule, COUNTS, start, step_s, score, USD_S, start_s) == each_evaluation(
        rule, step_s, score, start, start_s
    )


def test_a_run_that_stays_as_it_is_is_left_alone() -> None:
    step_s, score = _work([20.0] * 50)
    best = int(np.argmin(score.sum(axis=1)))
    run = walked(ScalingRule(), COUNTS, best, step_s, score, USD_S, 300.0)
    assert run.counts == ((0, COUNTS[best]),)
    assert (run.seconds, run.usd) == (step_s[best].sum(), pytest.approx((step_s[best] * USD_S[best]).sum()))


def test_the_longest_start_is_where_the_two_are_alike() -> None:
    assert longest_start(lambda start_s: 100.0 + start_s, 1000.0, 100) == pytest.approx(900.0, rel=0.05)
    assert longest_start(lambda start_s: 100.0 + start_s, 99.0, 100) == 0.0
    assert longest_start(lambda start_s: 100.0, 101.0, 100) == 30.0 * 2**11
    assert longest_start(lambda start_s: 100.0, 101.0, 1_000_000) is None
    # A rule that never moves is the fixed count, whatever the last digit of its sum is.
    assert longest_start(lambda start_s: 100.0 + 1e-12, 100.0, 100) == 30.0 * 2**11


def test_a_rule_is_read_and_what_it_leaves_out_is_that_of_watch() -> None:
    assert rule_of(None) == rule_of("") == ScalingRule()
    assert rule_of("up_after=1, cool_down=0,every=30") == ScalingRule(Damping(up_after=1, cool_down_s=0.0), 30.0)


@pytest.mark.parametrize("text", ["up=1", "up_after=x", "up_after=0", "every=0", "window=nan", "down_share=1", "3"])
def test_a_wrong_rule_is_told(text: str) -> None:
    with pytest.raises(InputError, match="--rule"):
        rule_of(text)


def test_a_rule_without_a_resize_is_refused() -> None:
    with pytest.raises(InputError, match="say --resize, too"):
        forecast(Forecast(job=fs.load("async-one-step"), steps=10, rule="up_after=1"))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["up_after=1,down_after=2,cool_down=0", "up_after=3,cool_down=600"])
def test_one_simulation_with_these_resizes_takes_as_long(rule: str) -> None:
    steps = 250
    changes: dict[str, Any] = {"workload.length_drift_per_step": 0.005, "fleet.instances": 5}
    job = fs.load("async-one-step", changes, replications=1)
    plan = job.forecast(steps=steps, resize=True, rule=rule).resizes
    assert plan is not None
    assert len(plan.by_rule.counts) > 1
    assert plan.regret > 0.0
    events = [{"step": step, "instances": n} for step, n in plan.by_rule.counts if step]
    whole = simulate(job.with_({"run.steps": steps, "run.warmup_steps": 0, "run.events": events}).scenario)
    assert whole.steps["end_s"][-1] == pytest.approx(plan.by_rule.seconds, rel=0.03)
