"""Engine speed read off histories that are made from a known engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from fleetsim.engine.step_time import LinearStepTime, StepTime
from fleetsim.history.history import Buckets, History, InstanceId
from fleetsim.history.openmetrics import read_openmetrics
from fleetsim.records import replace
from fleetsim.replay.implied.speed import Speed, speed_of
from fleetsim.replay.observe import paces as load_curve
from fleetsim.replay.observe.interruptions import Pause, Pauses
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed, QueueView, TrainerView
from tests.outside.cases import CASES
from tests.outside.exposition import write

TRUE = LinearStepTime(0.012, 4e-5, 1.5e-5, 3e-8)
KV_TOKENS = 400_000.0
STEP_S = 15.0


def observed(**more: object) -> Observed:
    """An observation that holds next to nothing: the speed takes the rest from the history."""
    trainer = TrainerView(*(None,) * 9)
    queue = QueueView(*(None,) * 8)
    plain = Observed(0.0, 1.0, STEP_S, "test", trainer, queue, (), (), engine="vllm")
    return replace(plain, **more)  # type: ignore[arg-type]


def history(step_time: StepTime, low: float, high: float, *, counted: bool = True, n: int = 241) -> History:
    """Four instances whose load wanders between low and high; every iteration as `step_time` says, no prompts."""
    rng = np.random.default_rng(7)
    at = STEP_S * np.arange(n)
    phase = rng.uniform(0, 2 * np.pi, (4, 1))
    period = np.array([[1200.0], [1500.0], [1800.0], [2100.0]])
    running = np.rint(low + (high - low) * 0.5 * (1 + np.sin(2 * np.pi * at / period + phase)))
    context = 800.0 + 500.0 * np.sin(2 * np.pi * at / 900.0 + 2 * phase)  # loads and contexts do not go together
    kv = running * context
    fine = 50
    inside = (np.arange(fine) + 0.5) / fine
    rate = np.zeros((4, n - 1))
    for i in range(4):
        for k in range(n - 1):
            r = running[i, k] + inside * (running[i, k + 1] - running[i, k])
            c = kv[i, k] + inside * (kv[i, k + 1] - kv[i, k])
            each = step_time.table(1)[1] + step_time.per_seq_s * r + step_time.per_kv_token_s * c
            rate[i, k] = float(np.mean(r / each))
    generated = np.concatenate([np.zeros((4, 1)), np.cumsum(rate * STEP_S, axis=1)], axis=1)
    seconds = np.concatenate(
        [np.zeros((4, 1)), np.cumsum(0.5 * (running[:, 1:] + running[:, :-1]) * STEP_S, axis=1)], axis=1
    )
    coarse = slice(0, n, 20)
    histograms = {}
    if counted:
        count = generated[:, coarse, None] / 500.0
        histograms = {
            "output_tokens": Buckets(np.array([np.inf]), at[coarse], count, generated[:, coarse]),
            "e2e_s": Buckets(np.array([np.inf]), at[coarse], count, seconds[:, coarse]),
        }
    values = {"generation_tokens": generated, "running": running, "kv_use": kv / KV_TOKENS}
    names = tuple(InstanceId(f"i{i}") for i in range(4))
    return History(at, STEP_S, names, values, {}, histograms, ({},) * 4, None, (), "test")


def found(*args: object, **more: object) -> Speed:
    speed = speed_of(*args, **more)  # type: ignore[arg-type]
    assert speed is not None
    return speed


def test_recovers_a_known_engine() -> None:
    speed = found(history(TRUE, 8, 96), observed(), None, KV_TOKENS)
    assert speed.shape == "fitted"
    assert speed.counted
    for load in (16, 48, 90):
        for context in (500.0, 1200.0):
            true = TRUE.seconds(load, kv_tokens=load * context)
            assert speed.step_time.seconds(load, kv_tokens=load * context) == pytest.approx(true, rel=0.02)
    assert speed.held_out is not None
    assert speed.held_out < 0.01


def test_the_sampled_gauge_stands_in_for_counted_seconds() -> None:
    speed = found(history(TRUE, 8, 96, counted=False), observed(), None, KV_TOKENS)
    assert not speed.counted
    assert speed.step_time.seconds(48, kv_tokens=48 * 800.0) == pytest.approx(
        TRUE.seconds(48, kv_tokens=48 * 800.0), rel=0.03
    )


def test_a_roofline_takes_one_factor() -> None:
    speed = found(history(TRUE.slower(1.3), 8, 96), observed(), TRUE, KV_TOKENS)
    assert speed.shape == "roofline"
    assert speed.factor == pytest.approx(1.3, rel=0.01)


def test_a_roofline_of_another_shape_gives_way() -> None:
    wrong = LinearStepTime(0.0005, 6e-4)
    assert found(history(TRUE, 4, 96), observed(), wrong, KV_TOKENS).shape == "fitted"


def test_one_load_cannot_tell_the_terms() -> None:
    seen = history(TRUE, 60, 62)
    speed = found(seen, observed(), None, KV_TOKENS)
    assert speed.shape == "assumed"
    assert "assumed" in speed.text
    mean = TRUE.seconds(61, kv_tokens=61 * 800.0)
    assert speed.step_time.seconds(61) == pytest.approx(mean, rel=0.05)
    assert found(seen, observed(), TRUE, KV_TOKENS).shape == "roofline"


def test_a_fit_that_leaves_nothing_fixed_is_refused_and_says_so() -> None:
    """What a thrashing engine looks like: iterations as long as there are requests. Weights are read in every one."""
    speed = found(history(LinearStepTime(1e-9, 3.15e-4), 8, 96), observed(), None, KV_TOKENS)
    assert speed.shape == "assumed"
    assert "refused: it leaves nothing of an iteration fixed" in speed.text


def test_intervals_with_preemptions_are_no_rows_and_their_requests_seconds_no_level() -> None:
    """A preempted request waits again and computes its prompt anew, which stands in no counter: its time in the engine
    is here three times the time in which it ran."""
    seen = history(TRUE, 8, 96)
    e2e = seen.histograms["e2e_s"]
    waited = {**seen.histograms, "e2e_s": replace(e2e, sums=3.0 * e2e.sums)}
    preempted = np.cumsum(np.full(seen.values["running"].shape, 40.0), axis=1)
    late = np.arange(seen.values["running"].shape[1]) * STEP_S > 1200.0
    values = {**seen.values, "preemptions": np.where(late, preempted - preempted[:, late][:, :1], 0.0)}
    speed = found(replace(seen, histograms=waited, values=values), observed(), None, KV_TOKENS)
    assert not speed.counted
    assert speed.step_time.seconds(48, kv_tokens=48 * 800.0) == pytest.approx(
        TRUE.seconds(48, kv_tokens=48 * 800.0), rel=0.05
    )
    always = found(
        replace(seen, histograms=waited, values={**values, "preemptions": preempted}), observed(), None, KV_TOKENS
    )
    assert always.shape == "assumed"
    assert "preempt requests in most intervals" in always.text


def test_the_second_half_is_held_out() -> None:
    """An engine that becomes slower at half time is fitted as it was before, and found off by as much."""
    fast, slow = history(TRUE, 8, 96), history(TRUE.slower(1.25), 8, 96)
    middle = len(fast.times) // 2
    growth = [np.diff(h.values["generation_tokens"], axis=1) for h in (fast, slow)]
    mixed = np.concatenate([growth[0][:, :middle], growth[1][:, middle:]], axis=1)
    values = {**fast.values, "generation_tokens": np.concatenate([np.zeros((4, 1)), np.cumsum(mixed, axis=1)], axis=1)}
    speed = found(replace(fast, values=values, histograms={}), observed(), None, KV_TOKENS)
    assert speed.step_time.seconds(48, kv_tokens=48 * 800.0) == pytest.approx(
        TRUE.seconds(48, kv_tokens=48 * 800.0), rel=0.03
    )
    assert speed.bias is not None
    assert speed.bias == pytest.approx(1 / 1.25 - 1, abs=0.04)


def test_pauses_are_left_out() -> None:
    """Half of every minute silent with work in hand: seconds that belong to no iteration."""
    whole = history(TRUE, 8, 96, counted=False)
    still = (np.arange(len(whole.times) - 1) // 4) % 2 == 1
    growth = np.diff(whole.values["generation_tokens"], axis=1)
    growth[:, still] = 0.0
    generated = np.concatenate([np.zeros((4, 1)), np.cumsum(growth, axis=1)], axis=1)
    values = {**whole.values, "generation_tokens": generated}
    starts = whole.times[:-1][still][::4]
    each = tuple(Pause(float(s), float(s) + 4 * STEP_S, "silence", False) for s in starts)
    paused = Pauses(each, 0.5, 4 * STEP_S, 8 * STEP_S)
    speed = found(replace(whole, values=values), observed(pauses=paused), None, KV_TOKENS)
    assert speed.step_time.seconds(48, kv_tokens=48 * 800.0) == pytest.approx(
        TRUE.seconds(48, kv_tokens=48 * 800.0), rel=0.03
    )
    ignored = found(replace(whole, values=values), observed(), None, KV_TOKENS)
    assert ignored.step_time.seconds(48, kv_tokens=48 * 800.0) > 1.5 * TRUE.seconds(48, kv_tokens=48 * 800.0)


def test_nothing_read_gives_nothing() -> None:
    seen = history(TRUE, 8, 96)
    without = {name: v for name, v in seen.values.items() if name != "running"}
    assert speed_of(replace(seen, values=without), observed()) is None
    idle = {**seen.values, "running": np.zeros_like(seen.values["running"])}
    assert speed_of(replace(seen, values=idle), observed()) is None


def test_resets_and_gaps_do_not_count() -> None:
    seen = history(TRUE, 8, 96)
    generated = seen.values["generation_tokens"].copy()
    generated[:, 60:] -= generated[:, 60:61]
    generated[:, 100:110] = np.nan
    values = {**seen.values, "generation_tokens": generated}
    speed = found(replace(seen, values=values), observed(), None, KV_TOKENS)
    assert speed.step_time.seconds(48, kv_tokens=48 * 800.0) == pytest.approx(
        TRUE.seconds(48, kv_tokens=48 * 800.0), rel=0.02
    )


@given(st.integers(0, 2**32 - 1), st.integers(12, 60), st.sampled_from((0.5, 0.7)))
def test_the_curve_of_few_rows_is_that_of_all(seed: int, count: int, quantile: float) -> None:
    """Reweighted least squares on all rows, as written down, against the triangle that stands in for them."""
    random = np.random.default_rng(seed)
    rows = random.uniform(0.1, 2.0, (count, 3))
    trust = random.uniform(0.2, 1.0, count)
    scale = rows.max(axis=0)
    weights = np.sqrt(trust)
    for _ in range(load_curve.ROUNDS):
        x, _ = nnls(rows / scale * weights[:, None], weights)
        over = rows / scale @ x - 1
        weights = np.sqrt(trust * np.where(over > 0, quantile, 1 - quantile) / np.maximum(np.abs(over), 1e-3))
    found = load_curve._least_absolute(rows, trust, quantile)
    assert found == pytest.approx(x / scale, rel=1e-6, abs=1e-9)


def test_prompts_that_come_with_the_load_are_not_taken_for_it(tmp_path: Path) -> None:
    """After each batch prompts come at once, and engines are full: of a fleet whose numbers are known."""
    job = next(case.job for case in CASES if case.name == "healthy")
    write(tmp_path / "history.om", job)
    history = read_openmetrics(tmp_path / "history.om", None)
    speed = speed_of(history, observe(history))
    assert speed is not None
    assert speed.shape == "fitted"
    assert speed.step_time.knots_s[0] == pytest.approx(job.base_s, rel=0.2)
    assert speed.step_time.per_prefill_token_s < 10 / job.prefill_tokens_per_s
