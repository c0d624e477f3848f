"""Where the seconds of a step go, what would give them back, and the contract of `diagnosis`."""

from __future__ import annotations

import heapq
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.history.files import read_file
from fleetsim.history.history import StepLog
from fleetsim.history.step_logs.frameworks import FRAMEWORKS
from fleetsim.replay.ask import replay
from fleetsim.replay.diagnose.cures import cure_of, remedy_for
from fleetsim.replay.diagnose.levers import CAUSES, levers_of, pace_words
from fleetsim.replay.observe.account import by_lengths, mode_of
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.segments import course_of

STEPS = 60
RANDOM = np.random.default_rng(7)


def _log(folder: Path, lengths: Any = 900.0, **changes: Any) -> Path:
    """A synchronous verl log of 60 steps: 30 s generation, 40 s update, 3 s log-probs, 2 s weights; changes: timers
    (`ref=80.0`), each a number or one per step."""
    timers = {"gen": 30.0, "update_actor": 40.0, "old_log_prob": 3.0, "update_weights": 2.0, **changes}
    rows = []
    for n in range(STEPS):
        one = {name: float(np.broadcast_to(value, STEPS)[n]) for name, value in timers.items()}
        seconds = {f"timing_s/{name}": s * float(RANDOM.normal(1, 0.02)) for name, s in one.items() if s}
        row = {
            "timing_s/step": sum(seconds.values()) + 0.3,
            "response_length/mean": float(np.broadcast_to(lengths, STEPS)[n]),
            "response_length/max": 3072.0,
        }
        rows.append({"step": n + 1, "data": {**seconds, **row, "response_length/clip_ratio": 0.02}})
    path = folder / "run.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def _seen(folder: Path, **changes: Any) -> Observed:
    return observe(read_file(_log(folder, **changes)))


def test_every_second_belongs_to_a_phase(tmp_path: Path) -> None:
    account = _seen(tmp_path, ref=80.0).account
    assert account is not None
    assert sum(p.seconds for p in account.phases) == pytest.approx(account.step_s, rel=1e-6)
    assert re.match(r"15\d s a step: 80 s reference log-probs \(5\d %\), 40 s update, 30 s generation", account.words)


def test_a_healthy_job_is_left_alone_also_with_evaluations_checkpoints_and_jitter(tmp_path: Path) -> None:
    every_tenth = np.where(np.arange(STEPS) % 10 == 9, 150.0, 0.0)
    for changes in ({}, {"testing": every_tenth}, {"save_checkpoint": every_tenth / 2}):
        assert levers_of(_seen(tmp_path, **changes)) == ()
    jitter = 40.0 * np.random.default_rng(3).normal(1, 0.1, STEPS)
    assert levers_of(_seen(tmp_path, update_actor=jitter)) == ()


ROWS = np.arange(STEPS)


def test_what_was_slow_for_a_while_is_told_as_over_in_every_sentence(tmp_path: Path) -> None:
    phases = (("gen", "generation", 30.0), ("ref", "reference log-probs", 8.0), ("update_actor", "update", 40.0))
    for timer, name, usual in phases:
        result = replay(_log(tmp_path, **{timer: np.where((ROWS >= 30) & (ROWS < 36), 110.0, usual)}))
        assert result.document()["diagnosis"] == []
        assert re.search(rf"{name} \((\d+ %, )?\d+ s from step 31 to 36\)", result.verdict.headline)
        assert f"no fault was found now: {name} took more seconds from step 31 to 36" in result.verdict.headline


@pytest.mark.parametrize("line", [True, False])
def test_what_takes_longer_with_its_responses_is_not_slow(tmp_path: Path, line: bool) -> None:
    grown = np.linspace(1.0, 3.0, STEPS) if line else np.where(ROWS < 30, 1.0, 2.0)
    changes = {"gen": 30.0 * grown, "update_actor": 40.0 * grown, "old_log_prob": 3.0 * grown}
    log = _log(tmp_path, lengths=900.0 * grown, **changes)
    assert levers_of(observe(read_file(log))) == ()
    as_long = levers_of(_seen(tmp_path, **changes))
    assert {lever.cause for lever in as_long} == {"rollout slow", "trainer slow"}


@pytest.mark.parametrize(("timer", "cause"), [("gen", "rollout slow"), ("update_actor", "trainer slow")])
def test_a_phase_that_is_slow_every_third_step_is_named(tmp_path: Path, timer: str, cause: str) -> None:
    (lever,) = levers_of(_seen(tmp_path, **{timer: np.where(ROWS % 3 == 0, 100.0, 40.0)}))
    assert (lever.cause, lever.mean) == (cause, pytest.approx(20.0, rel=0.05))


@pytest.mark.parametrize(
    ("changes", "cause", "seconds", "since"),
    [
        ({"ref": 80.0}, "reference log-probs slow", 70.0, None),
        ({"old_log_prob": 60.0}, "log-probs slow", 50.0, None),
        ({"reward": 60.0}, "reward slow", 60.0, None),
        ({"update_weights": 40.0}, "weight sync slow", 37.7, None),
        ({"gen": 90.0}, "rollout slow", 47.3, None),  # beside 42.7 s of log-probs, reference and update
        ({"update_actor": np.where(np.arange(STEPS) < 30, 40.0, 90.0)}, "trainer slow", 50.0, 31),
        ({"gen": np.where(np.arange(STEPS) < 30, 30.0, 42.0)}, "rollout slow", 12.0, 31),  # as of an instance lost
        ({"reward": np.where(np.arange(STEPS) < 30, 0.5, 50.0)}, "reward slow", 49.5, 31),
        ({"update_actor": np.linspace(40.0, 120.0, STEPS)}, "trainer slow", 40.0, None),  # the run's mean
        ({"reward": np.where(np.arange(STEPS) % 5 == 4, 121.0, 1.0)}, "reward slow", 25.0, None),
        ({"update_weights": np.where(np.arange(STEPS) % 4 == 3, 91.0, 1.0)}, "weight sync slow", 21.2, None),
    ],
)
def test_a_cause_is_named_with_its_seconds(
    tmp_path: Path, changes: dict[str, Any], cause: str, seconds: float, since: int | None
) -> None:
    first = levers_of(_seen(tmp_path, **changes))[0]
    assert (first.cause, first.since_step) == (cause, since)
    assert first.mean == pytest.approx(seconds, rel=0.03)
    assert first.low <= first.mean <= first.high


def test_the_largest_of_two_causes_comes_first(tmp_path: Path) -> None:
    found = levers_of(_seen(tmp_path, ref=90.0, reward=30.0))
    assert [lever.cause for lever in found] == ["reference log-probs slow", "reward slow"]


@pytest.mark.parametrize(("before", "now", "since", "seconds"), [(2.0, 40.0, 31, 38.0), (30.0, 40.0, None, 32.7)])
def test_what_was_slow_before_it_rose_a_little_counts_with_all_its_seconds(
    tmp_path: Path, before: float, now: float, since: int | None, seconds: float
) -> None:
    (lever,) = levers_of(_seen(tmp_path, update_weights=np.where(np.arange(STEPS) < 30, before, now)))
    assert (lever.cause, lever.since_step) == ("weight sync slow", since)
    assert lever.mean == pytest.approx(seconds, rel=0.05)


def test_the_contract_of_diagnosis(tmp_path: Path) -> None:
    told = replay(_log(tmp_path, ref=80.0)).document()
    assert sum(p["share"] for p in told["phases"]) == pytest.approx(1.0, rel=1e-6)
    one = told["diagnosis"][0]
    assert one["cause"] in CAUSES
    assert one["phase"] == "reference log-probs"
    assert one["verify"]["metric"] == "timing_s/ref"
    assert one["verify"]["low"] <= 10.0 <= one["verify"]["high"] < 80.0
    assert all("=" in setting for setting in one["do"])
    assert one["undo"]
    assert one["verify"]["after_steps"] >= 3
    json.dumps(told)
    assert one["usd_per_day"] is None  # nobody says what it runs on
    assert replay(_log(tmp_path)).document()["diagnosis"] == []


def test_seconds_are_dollars_where_gpus_and_prices_are_known(tmp_path: Path) -> None:
    given = {"fleet.instances": 4, "engine.tp": 2, "trainer.gpus": 8}
    prices = {"cost.instance_price_usd_per_gpu_h": 3.0, "cost.trainer_price_usd_per_gpu_h": 3.0}
    log = _log(tmp_path, ref=80.0)
    one = replay(log, given=given | prices, backtest=False).document()["diagnosis"][0]
    account = observe(read_file(log)).account
    assert account is not None
    a_day = 24.0 * 3.0 * 8 / account.step_s  # both sides take turns on the same 8 GPUs
    for end in ("low", "mean", "high"):
        assert one["usd_per_day"][end] == pytest.approx(one["seconds_per_step"][end] * a_day, rel=0.01)


def test_one_segmentation_tells_constant_rising_periodic_and_since_apart() -> None:
    noise = np.random.default_rng(1).normal(0, 1, STEPS)
    assert course_of(40 + noise).kind == "constant"
    since = course_of(np.where(np.arange(STEPS) < 20, 40, 60) + noise)
    assert (since.kind, since.at) == ("since", 20)
    assert since.excess == pytest.approx(20, abs=1)
    over = course_of(
        np.where((np.arange(STEPS) >= 20) & (np.arange(STEPS) < 40), 60, 40) + noise
    )  # a fault that is over
    assert (over.kind, over.over, over.excess) == ("over", (20, 39), 0.0)
    assert (over.usual, over.before) == (pytest.approx(40, abs=1), pytest.approx(60, abs=1))
    two = course_of(np.where(np.isin(np.arange(STEPS) // 10, (1, 4)), 60, 40) + noise)
    assert (two.over, two.usual) == ((40, 49), pytest.approx(40, abs=1))
    rest = course_of(np.repeat([40, 90, 60], STEPS // 3) + noise)  # not quite over
    assert (rest.kind, rest.at, rest.excess) == ("since", 40, pytest.approx(20, abs=1))
    third = course_of(np.where(np.arange(STEPS) % 3 == 0, 100, 40) + 4 * noise)
    assert (third.every, third.usual) == (3, pytest.approx(40, abs=2))
    assert course_of(np.linspace(40, 80, STEPS) + noise).kind == "rising"
    spiked = course_of(40 + noise + np.where(np.arange(STEPS) % 10 == 9, 150, 0))
    assert (spiked.kind, spiked.every) == ("periodic", 10)
    assert spiked.usual == pytest.approx(40, abs=0.5)
    assert spiked.mean == pytest.approx(55, abs=1)


def test_rare_spikes_are_found_beside_small_ones() -> None:
    values = np.full(STEPS, 0.2)
    values[[9, 17]], values[[19, 39, 59]] = (1.0, 2.6), 90.0
    found = course_of(values)
    assert (found.kind, found.every) == ("periodic", 20)
    assert found.usual < 0.5


@pytest.mark.parametrize("steps", [8, 16, STEPS])
def test_noise_is_seldom_a_change(steps: int) -> None:
    drawn = np.random.default_rng(5).normal(40, 4, (300, steps))
    found = sum(course_of(row).kind != "constant" for row in drawn)
    assert found <= 0.01 * len(drawn)  # and what is no larger than a twentieth of a step is no cause


def test_generation_without_a_timer_is_told_by_its_lengths() -> None:
    random = np.random.default_rng(2)
    longest = random.uniform(8000, 16000, STEPS)
    step_s = 40 + 0.007 * longest + random.normal(0, 1, STEPS)
    columns = {"step_s": step_s, "length_max": longest, "length_mean": random.normal(900, 30, STEPS)}
    found = by_lengths(columns)
    assert found is not None
    assert found.mean() == pytest.approx(0.007 * longest.mean(), rel=0.1)
    assert by_lengths({**columns, "step_s": 40 + random.normal(0, 1, STEPS)}) is None


def test_the_load_and_the_longest_response_each_explain_their_part() -> None:
    random = np.random.default_rng(2)
    mean, longest = random.normal(1000, 40, STEPS), random.normal(4000, 300, STEPS)
    step_s = 50 + 0.03 * mean + 0.009 * longest + random.normal(0, 0.3, STEPS)
    found = by_lengths({"step_s": step_s, "length_mean": mean, "length_max": longest})
    assert found is not None
    assert found.mean() == pytest.approx(66.0, rel=0.1)


@pytest.mark.parametrize("seed", range(6))
def test_a_generation_that_no_timer_has_is_not_taken_for_longer_than_it_is(seed: int) -> None:
    """Eight engines, which take 8 ms a token and 0.2 ms more for each response beside it, until the last is done."""
    random = np.random.default_rng(seed)
    lengths = np.minimum(random.lognormal(math.log(1000.0) - 0.2, 0.63, (STEPS, 8, 32)), 4000.0)
    tokens = np.diff(np.sort(lengths, axis=2), axis=2, prepend=0.0)
    made = (tokens * (0.008 + 0.0002 * np.arange(32, 0, -1))).sum(axis=2).max(axis=1)
    step_s = made + 42.0 * random.normal(1, 0.01, STEPS)
    longest = lengths.max(axis=(1, 2))
    found = by_lengths({"step_s": step_s, "length_mean": lengths.mean(axis=(1, 2)), "length_max": longest})
    assert found is None or found.mean() < 1.2 * made.mean()


def test_rollout_is_slow_where_a_log_without_timers_shows_it(tmp_path: Path) -> None:
    random, rows = np.random.default_rng(2), []
    for n in range(STEPS):  # as TRL prints it
        mean, longest = random.normal(1000, 40), random.normal(4000, 300)
        row = {"step_time": 40 + 0.05 * mean + 0.02 * longest + random.normal(0, 0.3), "step": n + 1}
        rows.append(row | {"completions/mean_length": mean, "completions/max_length": longest})
    (lever,) = levers_of(_lines(tmp_path, rows))
    assert (lever.cause, lever.phase) == ("rollout slow", "generation")
    assert lever.mean == pytest.approx(130.0 - 40.0, rel=0.1)
    assert lever.low == 0.0  # it may be the trainer whose passes take longer with its responses
    assert "a trainer whose passes take longer" in lever.why


def test_a_trainer_that_takes_longer_with_its_responses_is_held_against_batches_as_long(tmp_path: Path) -> None:
    rows = []
    for n, tokens in enumerate(np.linspace(400.0, 1600.0, STEPS)):  # as AReaL writes it: rollout keeps up throughout
        seconds = {"timeperf/rollout": 30.0 if n == 0 else 0.5, "timeperf/train_step": 0.05 * tokens}
        counts = {"ppo_actor/n_seqs": 512.0, "ppo_actor/n_valid_tokens": 512.0 * tokens, "timeperf/update_weights": 1.0}
        rows.append({"global_step": n + 1, **seconds, **counts, "version_stats/sample_staleness_theta_avg": 1.0})
    assert levers_of(_lines(tmp_path, rows)) == ()


def _asynchronous(folder: Path, train: float, age: float = 1.0, **timed: float) -> Observed:
    """A log of ROLL whose trainer never waits. age: versions that pass meanwhile; timed: what its samples take."""
    random = np.random.default_rng(5)
    rows = []
    for n in range(STEPS):
        update = train * random.normal(1, 0.02)
        row = {"time/step_generate": 0.0, "time/step_train": update, "time/step_total": update + 2.0}
        row |= {"math_rule/scheduler/off_policy_ratio": age, "system/batch_size": 512.0}
        row |= {f"math_rule/scheduler/math_rule/time/generate/{name}": value for name, value in timed.items()}
        rows.append({"step": n, **row})
    return _lines(folder, rows)


@pytest.mark.parametrize(("train", "seconds"), [(200.0, 132.0), (75.0, None)])
def test_a_trainer_that_never_waits_is_held_against_what_its_samples_take(
    tmp_path: Path, train: float, seconds: float | None
) -> None:
    levers = levers_of(_asynchronous(tmp_path, train, mean=30.0, max=70.0))
    assert [lever.cause for lever in levers] == ([] if seconds is None else ["trainer slow"])
    if seconds is not None:
        assert levers[0].mean == pytest.approx(seconds, rel=0.05)


def test_a_batch_that_rollout_makes_in_advance_takes_it_between_its_share_of_the_window_and_its_samples(
    tmp_path: Path,
) -> None:
    """Engines that are no fuller with a window of four batches in the making bring one in a quarter of what a sample
    takes; engines that are full with one batch need all of that. The log tells neither: the geometric middle."""
    (lever,) = levers_of(_asynchronous(tmp_path, 200.0, age=3.0, mean=30.0, max=70.0))
    assert lever.cause == "trainer slow"
    assert lever.mean == pytest.approx(200.0 - math.sqrt(70.0 * 70.0 / 4.0), rel=0.05)
    assert lever.low <= 200.0 - 70.0
    assert lever.high >= 200.0 - 70.0 / 4.0


def test_a_trainer_that_never_waits_sets_the_pace_of_a_log_that_times_no_sample(tmp_path: Path) -> None:
    seen = _asynchronous(tmp_path, 200.0)
    assert levers_of(seen) == ()
    assert "saves at most 199 s" in pace_words(seen)
    assert pace_words(_seen(tmp_path)) == ""


@pytest.mark.parametrize(("train", "first", "seconds"), [(90.0, 88.0, 39.2), (40.0, 88.0, None), (90.0, 2.0, None)])
def test_a_trainer_beside_rollout_that_nothing_times_is_held_against_the_first_batch(
    tmp_path: Path, train: float, first: float, seconds: float | None
) -> None:
    path = tmp_path / "run.jsonl"
    with path.open("w") as file:
        for n in range(STEPS):
            wait = 0.0 if n else first  # two more batches are in the making while the first one is waited for
            timing = {"exposed_generation": wait, "policy_training": train, "weight_sync": 1.0}
            row = {f"timing/train/{name}": value for name, value in timing.items()}
            row |= {"timing/train/total_step_time": wait + train + 6.0, "train/avg_trajectory_age": 2.0}
            # what is done first is short
            row |= {
                "train/mean_gen_tokens_per_sample": 1500.0 if n else 900.0,
                "train/max_gen_tokens_per_sample": 8000.0,
            }
            file.write(json.dumps({"step": n + 1, **row}) + "\n")
    found = levers_of(observe(read_file(path)))
    assert [lever.cause for lever in found] == ([] if seconds is None else ["trainer slow"])
    if seconds is not None:  # beyond 88 s / sqrt(3)
        assert found[0].mean == pytest.approx(seconds, abs=0.1)


def test_a_slow_instance_costs_its_seconds_beside_a_trainer_that_takes_as_long(tmp_path: Path) -> None:
    samples = {"agent_loop/generate_sequences/mean": 16.5, "agent_loop/generate_sequences/max": 92.0}
    rows = [json.loads(line) for line in _log(tmp_path, gen=92.0, update_actor=80.0).read_text().splitlines()]
    for row in rows:
        row["data"] |= {f"timing_s/{name}": value for name, value in samples.items()}
    path = tmp_path / "straggler.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    (lever,) = levers_of(observe(read_file(path)))
    assert lever.cause == "straggler"
    assert lever.mean == pytest.approx(46.0, rel=0.1)  # it is 1.6 times as long as its length makes it


@pytest.mark.parametrize(
    ("train", "causes"), [(120.0, ["trainer slow"]), (44.0, []), (20.0, ["rollout slow"]), (5.0, ["rollout slow"])]
)
def test_of_a_log_that_times_the_generation_alone_the_side_is_slow_that_the_steps_follow(
    tmp_path: Path, train: float, causes: list[str]
) -> None:
    random, end_s, rows = np.random.default_rng(3), 1.7e9, []
    for n in range(STEPS):  # a batch is generated while the one before is trained
        made = float(random.normal(40.0, 3.0))
        end_s += max(made, train * random.normal(1, 0.02)) + 2.0
        rows.append({"train/global_step": n + 1, "train/wall_clock/generate_s": made, "_timestamp": end_s})
    found = levers_of(_lines(tmp_path, rows))
    assert [lever.cause for lever in found] == causes
    if causes:
        assert found[0].low <= abs(train - 40.0) <= found[0].high
    if causes == ["trainer slow"]:
        assert found[0].mean == pytest.approx(train - 40.0, rel=0.05)


def _roll(folder: Path, *, beside: bool, train: float) -> Observed:
    """An agentic log of ROLL, which does not say whether its generation runs beside the trainer; if so, a batch comes
    every 60 s, and else a generation takes 25 s."""
    path, random, left = folder / "roll.jsonl", np.random.default_rng(2), train
    with path.open("w") as file:
        for n in range(STEPS):
            wait = max(0.2, 60.0 + random.normal(0, 2.0) - left) if beside else 25.0 + random.normal(0, 2.0)
            left = train * random.normal(1, 0.05)
            row = {"time/step_rollout": wait, "time/step_train": left, "time/step_total": wait + left}
            file.write(json.dumps({"step": n, **row, "tokens/response_length/max": 3000.0}) + "\n")
    return observe(read_file(path))


@pytest.mark.parametrize(
    ("beside", "train", "mode", "causes"),
    [
        (False, 150.0, "synchronous", ["trainer slow"]),
        (True, 40.0, "asynchronous", ["rollout slow"]),
        (True, 70.0, "asynchronous", []),  # a wait of 0.2 s generates no response of 3,000 tokens
    ],
)
def test_waits_tell_whether_generation_runs_beside_the_trainer(
    tmp_path: Path, beside: bool, train: float, mode: str, causes: list[str]
) -> None:
    seen = _roll(tmp_path, beside=beside, train=train)
    assert seen.account is not None
    assert seen.account.mode == mode
    assert [lever.cause for lever in levers_of(seen)] == causes


def test_seconds_of_judges_that_a_log_times_are_no_slow_instance(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with path.open("w") as file:
        for n in range(STEPS):
            timing = {
                "agent/model/mean": 20.0,
                "agent/model/max": 200.0,
                "agent/harness/mean": 0.0,
                "scoring/mean": 80.0,
            }
            row = {f"train/agg/effective/agent/timing/{name}": value for name, value in timing.items()}
            lengths = {"mean": 1500.0, "max": 8000.0, "p90": 2900.0}
            row |= {f"train/agg/effective/num_output_tokens/{name}": value for name, value in lengths.items()}
            row |= {"time/step": 160.0, "time/wait_for_batch": 115.0 + n % 3, "time/forward_backward": 42.0}
            file.write(json.dumps({"step": n, **row, "progress/rollouts": 512}) + "\n")
    assert [lever.cause for lever in levers_of(observe(read_file(path)))] == ["judge or tool slow"]


def test_what_comes_now_and_then_costs_its_mean_and_is_verified_by_it(tmp_path: Path) -> None:
    every_fourth = np.where(np.arange(STEPS) % 4 == 3, 320.0, 0.0)
    seen = _seen(tmp_path, testing=every_fourth)
    (lever,) = levers_of(seen)
    assert (lever.cause, lever.mean) == ("evaluation", pytest.approx(80.0, rel=0.05))
    cure = cure_of(lever, seen)
    assert cure.do == ("trainer.test_freq=8",)
    # half as often it takes half of that, which is seen after two of its turns
    assert cure.verify.metric == "timing_s/testing"
    assert cure.verify.low < 40.0 < cure.verify.high < 80.0
    assert cure.verify.after_steps == 16


def test_what_rose_is_verified_by_what_it_takes_now_whatever_rhythm_its_highest_rows_have(tmp_path: Path) -> None:
    steps = np.arange(STEPS)
    before = 70.0 + np.where(steps % 2 == 0, 10.0, -10.0)
    high = np.isin(steps, STEPS - np.array([3, 8, 13]))
    seen = _seen(tmp_path, reward=np.where(steps < STEPS - 15, before, np.where(high, 330.0, 200.0)))
    lever = levers_of(seen)[0]
    verify = cure_of(lever, seen).verify
    assert (lever.cause, lever.since_step) == ("reward slow", STEPS - 14)
    assert 70.0 < verify.high < 200.0
    assert verify.after_steps < 10


def _lines(folder: Path, rows: list[dict[str, float]]) -> Observed:
    path = folder / "run.jsonl"
    path.write_text("\n".join(json.dumps({"step": n, **row}) for n, row in enumerate(rows)))
    return observe(read_file(path))


def test_what_no_timer_has_and_comes_every_few_steps_is_named(tmp_path: Path) -> None:
    """slime, synchronous: its evaluation has no timer and lies in the trainer's wait."""
    rows = []
    for n in range(STEPS):
        rollout, other = 38.0 + RANDOM.normal(0, 1), 300.0 if n % 4 == 3 else 0.0
        timers = {"rollout_time": rollout, "train_wait_time": rollout + 2.0 + other, "train_time": 47.0}
        timers |= {"actor_train_time": 36.0, "update_weights_time": 1.5, "step_time": rollout + 49.0 + other}
        rows.append({f"perf/{name}": value for name, value in timers.items()})
    (lever,) = levers_of(_lines(tmp_path, rows))
    assert (lever.cause, lever.mean) == ("unexplained time", pytest.approx(75.0, rel=0.05))
    assert "every 4 steps" in lever.why
    # where an evaluation was logged before each of these steps, that is what they hold
    rows = [row | ({"eval/step": float(n)} if n % 4 == 3 else {}) for n, row in enumerate(rows)]
    (lever,) = levers_of(_lines(tmp_path, rows))
    assert (lever.cause, lever.mean) == ("evaluation", pytest.approx(75.0, rel=0.05))


def test_an_evaluation_in_the_wait_makes_no_synchronous_step(tmp_path: Path) -> None:
    """slime, one step off: the wait is nothing, but where an evaluation lies in it."""
    rows = []
    for n in range(STEPS):
        wait = 240.0 if n % 4 == 3 else 0.1
        timers = {"rollout_time": 44.0 + RANDOM.normal(0, 2), "train_wait_time": wait + 1.5, "train_time": 47.0}
        timers |= {"actor_train_time": 36.0, "update_weights_time": 1.5, "step_time": wait + 48.5}
        rows.append({f"perf/{name}": value for name, value in timers.items()})
    seen = _lines(tmp_path, rows)
    assert seen.account is not None
    assert seen.account.mode == "one step off"
    (lever,) = levers_of(seen)
    assert (lever.cause, lever.phase) == ("evaluation", "waiting for samples")
    assert lever.mean == pytest.approx(60.0, rel=0.05)
    assert cure_of(lever, seen).do == ("--eval-interval 8",)


def test_a_trainer_that_waits_every_other_step_waits(tmp_path: Path) -> None:
    waits = [90.0 * (n % 2) + float(RANDOM.uniform(0, 1)) if n >= STEPS // 2 else 0.1 for n in range(STEPS)]
    rows = [{"time/step": w + 90.0, "time/wait_for_batch": w, "time/forward_backward": 88.0} for w in waits]
    (lever,) = levers_of(_lines(tmp_path, rows))
    assert (lever.cause, lever.since_step) == ("rollout slow", STEPS // 2 + 1)
    assert lever.mean == pytest.approx(45.0, rel=0.1)


@pytest.mark.parametrize(("waits", "cause"), [(44.0, "rollout slow"), (0.0, "trainer slow")])
def test_open_instruct_says_which_side_waits(tmp_path: Path, waits: float, cause: str) -> None:
    """Groups that wait for a place in an engine take as long as those of a slow judge: neither is told by the log."""
    rows = []
    for n in range(STEPS):
        wait = waits and waits + float(RANDOM.normal(0, 2))
        other = 0.0 if waits else 100.0 + float(RANDOM.normal(0, 2))
        row = {"time/total": wait + 181.0, "time/training": wait + 180.0, "time/trainer_waiting_for_data": wait}
        row |= {"time/generation_waiting_for_trainer": other, "time/weight_sync": 0.5, "time/weight_sync_max": 0.5}
        row |= {"val/sequence_lengths": 1500.0, "val/sequence_lengths_max": 6000.0, "episode": 512.0 * n}
        row |= {"val/total_reward_groups": 64.0, "time/group_generation_mean": 150.0}
        rows.append(row | {"time/group_generation_max": 190.0})
    assert [lever.cause for lever in levers_of(_lines(tmp_path, rows))] == [cause]


@pytest.mark.parametrize(("judge_s", "off"), [(40.0, 0.45), (80.0, 0.2), (160.0, 0.2)])
def test_the_seconds_of_a_judge_are_those_that_groups_would_be_complete_earlier(
    tmp_path: Path, judge_s: float, off: float
) -> None:
    """Groups of 8 that are complete with their last judged sample, drawn. Their mean and their longest hardly tell a
    judge that takes as long as a response from a slower one."""
    random = np.random.default_rng(4)
    tokens = np.minimum(random.lognormal(math.log(1500.0) - 0.25, 0.7, (STEPS, 64, 8)), 8192.0)
    judged = 0.02 * tokens + random.gamma(4.0, judge_s / 4.0, tokens.shape)
    rows = []
    for lengths, seconds in zip(tokens, judged.max(axis=2), strict=True):
        row = {"timing_s/step": 180.0, "timing_s/gen": 139.0 + random.normal(), "timing_s/update_actor": 38.0}
        row |= {"fully_async/processing_time/avg": seconds.mean(), "fully_async/processing_time/max": seconds.max()}
        row |= {"fully_async/static/required_samples": 64.0, "fully_async/static/max_required_samples": 128.0}
        row |= {"fully_async/static/max_concurrent_samples": 320.0, "fully_async/monitor/active_tasks_size": 60.0}
        row |= {"response_length/mean": lengths.mean(), "response_length/max": lengths.max()}
        rows.append(row | {"prompt_length/mean": 300.0, "perf/total_num_tokens": 512 * (lengths.mean() + 300.0)})
    (lever,) = levers_of(_lines(tmp_path, rows))
    assert lever.cause == "judge or tool slow"
    share = 1.0 - 0.02 * tokens.max(axis=2).mean() / judged.max(axis=2).mean()
    assert lever.mean == pytest.approx(180.0 * share, rel=off)


ONE_OFF = {"timing_s/step": 115.0, "timing_s/gen": 66.0, "timing_s/generate_async": 120.0}
ONE_OFF |= {"timing_s/update_actor": 46.0, "response_length/mean": 1000.0, "response_length/max": 20000.0}
ONE_OFF |= {"prompt_length/mean": 300.0, "perf/total_num_tokens": 512 * 1300.0}


def test_without_its_tail_a_generation_is_as_much_shorter_as_its_longest_response(tmp_path: Path) -> None:
    """One in twenty has more than 3,600 tokens, the longest 20,000. Of a generation of 120 s that gives back all of a
    wait of 66 s, which is what of it the trainer does not hide."""
    (lever,) = levers_of(_lines(tmp_path, [ONE_OFF] * STEPS))
    assert lever.cause == "long tail"
    assert lever.mean == pytest.approx(66.0, rel=0.03)


USUAL = 128  # samples in flight, as of a batch whose first half is done


def _windowed(sigma: float, ahead: int, most: float, load: float, timed: bool) -> list[dict[str, float]]:
    """Steps of an asynchronous job, event by event: 32 + ahead groups of 8 are begun and not yet trained, each is
    complete with its longest response, at 10 ms a token, of which a share (load) is as long as many are in flight; the
    trainer takes the first 32 that are and works for 50 s. timed: the log says how long groups take, else how old."""
    random, rows, now, token = np.random.default_rng(3), list[dict[str, float]](), 0.0, 0.0
    flying: list[tuple[float, int, list[float], int, float]] = []
    ready: list[tuple[list[float], int, float]] = []
    left: dict[int, int] = {}

    def begin(number: int) -> None:
        for _ in range(number):
            group = np.minimum(500.0 * np.exp(sigma * random.normal(size=8)), most).tolist()
            left[len(left)] = 8
            for length in group:
                heapq.heappush(flying, (token + length, len(left) - 1, group, len(rows), now))

    def work(until: float, enough: float) -> None:
        nonlocal now, token
        while len(ready) < enough and now < until:
            pace = 0.01 * (1.0 - load + load * len(flying) / USUAL)
            after = now + (flying[0][0] - token) * pace if flying else math.inf
            if after > until:
                now, token = until, token + (until - now) / pace
                return
            now, (token, number, group, version, at) = after, heapq.heappop(flying)
            left[number] -= 1
            if not left[number]:
                ready.append((group, version, now - at))

    begin(32 + ahead)
    for _ in range(10 * STEPS):
        begun = now
        work(math.inf, 32)
        wait, taken = now - begun, ready[:32]
        del ready[:32]
        work(now + 50.0, math.inf)
        lengths = np.concatenate([one for one, *_ in taken])
        if timed:
            row = {"time/total": now - begun, "time/trainer_waiting_for_data": wait, "episode": 256.0 * len(rows)}
            row |= {"val/sequence_lengths": lengths.mean(), "val/sequence_lengths_max": lengths.max()}
            row |= {"val/total_reward_groups": 32.0, "time/group_generation_mean": np.mean([s for *_, s in taken])}
            rows.append(row | {"time/group_generation_max": max(s for *_, s in taken)})
        else:
            row = {"time/step": now - begun, "time/wait_for_batch": wait, "time/forward_backward": 50.0}
            row |= {"num_output_tokens/mean": lengths.mean(), "num_output_tokens/max": lengths.max()}
            row |= {"progress/rollouts": 256.0, "progress/tasks": 32.0}
            rows.append(row | {"off_policy/mean": float(np.mean([len(rows) - n for _, n, _ in taken]))})
        begin(32)
    return rows


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("sigma", [1.3, 1.6])
@pytest.mark.parametrize(("ahead", "load"), [(0, 0.25), (3, 0.5), (6, 0.0), (16, 0.5)])
def test_without_a_tail_is_a_batch_of_shorter_responses_or_a_window_one_batch_wider(
    tmp_path: Path, sigma: float, ahead: int, load: float, timed: bool
) -> None:
    rows, short = _windowed(sigma, ahead, 40000.0, load, timed), 500.0 * np.exp(1.645 * sigma)
    other = _windowed(sigma, ahead + 32 if ahead else 0, 40000.0 if ahead else short, load, timed)
    name = "time/total" if timed else "time/step"
    whole, less = (np.mean([row[name] for row in found]) for found in (rows, other))
    (lever,) = levers_of(_lines(tmp_path, rows[-200:]))
    assert lever.cause == "long tail"
    assert lever.mean == pytest.approx(float(whole - less), rel=0.15 if ahead else 0.3)


@pytest.mark.parametrize("training", [97.0, 67.0, 57.0])
def test_open_instruct_s_parts_are_those_of_its_step_whichever_of_them_its_timers_hold(
    tmp_path: Path, training: float
) -> None:
    """grpo_fast.py: broadcasts before the training (97 s) or in the health check (67 s); grpo_callbacks.py: no wait in
    the training either (57 s)."""
    row = {"time/total": 97.5, "time/training": training, "time/trainer_waiting_for_data": 10.0}
    row |= {"time/weight_sync": 30.0, "time/weight_sync_max": 30.0, "time/saving": 0.5, "val/sequence_lengths": 900.0}
    account = _lines(tmp_path, [row] * STEPS).account
    assert account is not None
    seconds = {p.column: p.seconds for p in account.phases}
    assert seconds == pytest.approx({"train_s": 57.0, "sync_s": 30.0, "wait_s": 10.0, "checkpoint_s": 0.5})


OPEN_INSTRUCT = {"time/total": 170.0, "time/training": 168.0, "time/trainer_waiting_for_data": 100.0}
OPEN_INSTRUCT |= {"time/generation_waiting_for_trainer": 0.0, "time/weight_sync": 1.0, "val/sequence_lengths": 1000.0}
OPEN_INSTRUCT |= {"val/sequence_lengths_max": 3000.0, "val/total_reward_groups": 64.0, "num_steps_off_policy": 1.2}
OPEN_INSTRUCT |= {"time/group_generation_mean": 200.0, "time/group_generation_max": 260.0}
NO_AGES = {name: value for name, value in OPEN_INSTRUCT.items() if name != "num_steps_off_policy"}
SKYRL = {"timing/step": 100.0, "timing/wait_for_generation_buffer": 50.0, "timing/run_training": 48.0}
SKYRL |= {"async/gen_buffer_qsize_at_wait_start": 0.0, "async/staleness_mean": 1.0, "generate/avg_num_tokens": 900.0}
SKYRL |= {"generate/max_num_tokens": 2000.0, "generate/batch_num_seq": 256.0}
SLIME = {"perf/rollout_time": 200.0, "perf/train_wait_time": 202.0, "perf/train_time": 43.0, "perf/step_time": 245.0}
SLIME |= {"perf/actor_train_time": 40.0, "perf/update_weights_time": 2.0, "rollout/response_len/mean": 900.0}
ROLL = {"time/step_generate": 40.0, "time/step_train": 45.0, "time/step_model_update": 2.0, "time/step_total": 88.0}
ROLL |= {"time/old_log_probs": 1.0, "scheduler/off_policy_ratio": 1.8, "scheduler/math_rule/time/reward/mean": 0.0}
ROLL |= {"scheduler/math_rule/time/generate/mean": 150.0, "scheduler/math_rule/time/generate/max": 190.0}
ROLL |= {"token/response_length/mean": 900.0, "token/response_length/max": 3000.0, "system/batch_size": 256.0}
NEMO = {"timing/train/exposed_generation": 60.0, "timing/train/policy_training": 40.0, "train/avg_trajectory_age": 1.9}
NEMO |= {"timing/train/total_step_time": 102.0, "train/mean_gen_tokens_per_sample": 900.0}


@pytest.mark.parametrize(
    ("row", "told", "cause"),
    [
        (OPEN_INSTRUCT, {}, "rollout slow"),
        (OPEN_INSTRUCT, {"stale_results_dropped": 30.0}, "stale samples dropped"),
        (OPEN_INSTRUCT, {"num_steps_off_policy": 0.2, "val/sequence_lengths_max": 20000.0}, "long tail"),
        (NO_AGES, {"val/sequence_lengths_max": 20000.0}, "rollout slow"),
        (NO_AGES, {"val/sequence_lengths_max": 20000.0, "time/group_generation_mean": 120.0}, "long tail"),
        (OPEN_INSTRUCT, {"num_steps_off_policy": 0.0}, "staleness window"),
        (OPEN_INSTRUCT, {"time/group_generation_mean": 45.0, "time/group_generation_max": 100.0}, "in-flight cap"),
        # 3 calls of 40 s, of the 200 s of a group
        (
            OPEN_INSTRUCT,
            {"tools/aggregate/avg_calls_per_rollout": 3.0, "tools/aggregate/avg_runtime": 40.0},
            "judge or tool slow",
        ),
        (SKYRL, {}, "rollout slow"),
        (SKYRL, {"async/staleness_mean": 0.0}, "staleness window"),
        (SKYRL, {"generate/group_completion_time_mean": 30.0}, "in-flight cap"),
        (SKYRL, {"generate/group_completion_time_mean": 180.0}, "rollout slow"),
        (SLIME, {}, "rollout slow"),
        (SLIME, {"perf/non_generation_time/mean": 90.0}, "judge or tool slow"),
        (SLIME, {"perf/non_generation_time/mean": 9.0}, "rollout slow"),
        # rewards are timed, and take nothing: that samples wait for a place in an engine makes no judge
        (ROLL, {}, "rollout slow"),
        (ROLL, {"scheduler/math_rule/time/reward/mean": 140.0}, "judge or tool slow"),
        # nothing is timed but the versions of the weights that pass
        (NEMO, {}, "rollout slow"),
        (NEMO, {"train/avg_trajectory_age": 0.3}, "in-flight cap"),
    ],
)
def test_why_rollout_is_slow_as_far_as_the_framework_s_own_metrics_say(
    tmp_path: Path, row: dict[str, float], told: dict[str, float], cause: str
) -> None:
    rows = [row | told | ({"episode": 512.0 * n} if "time/training" in row else {}) for n in range(STEPS)]
    found = levers_of(_lines(tmp_path, rows))
    assert [lever.cause for lever in found] == [cause]
    assert ("the log does not say" in found[0].why) == (not told and row in (NEMO, SKYRL))


@pytest.mark.parametrize(("sigma", "cause"), [(1.3, "long tail"), (0.5, "rollout slow")])
def test_a_log_of_mean_lengths_alone_tells_a_tail_by_how_the_means_swing(
    tmp_path: Path, sigma: float, cause: str
) -> None:
    """OpenRLHF, synchronous. A generation swings with the longest response of a batch in either case: where a slow
    engine makes it, the responses need no long tail."""
    random, rows = np.random.default_rng(4), []
    for _ in range(STEPS):
        lengths = 800.0 * np.exp(sigma * random.normal(size=256))
        parts = {"make_experience": 3.0, "ppo_train": 40.0, "broadcast": 2.0, "generation": 40 + 0.02 * lengths.max()}
        row = {f"timing/{name}": seconds for name, seconds in parts.items()}
        row |= {"timing/step_total": sum(parts.values()), "rollout/response_length_mean": lengths.mean()}
        rows.append(row | {"rollout/num_samples": 256.0})
    assert [lever.cause for lever in levers_of(_lines(tmp_path, rows))] == [cause]


def test_a_generation_that_its_longest_response_does_not_lengthen_has_no_tail(tmp_path: Path) -> None:
    random, rows = np.random.default_rng(4), []
    for n in range(STEPS):
        longest = float(random.uniform(9000, 15000))
        row = {
            "time/step_rollout": 200.0 + float(random.normal(0, 10)),
            "time/step_train": 46.0,
            "system/samples": 256.0 * n,
        }
        row |= {"tokens/response_length/mean": 1500.0, "tokens/response_length/max": longest}
        rows.append(row | {"time/step_total": row["time/step_rollout"] + 46.0})
    assert [lever.cause for lever in levers_of(_lines(tmp_path, rows))] == ["rollout slow"]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("locked", "cause"), [(True, "rollout slow"), (False, "weight sync slow")])
def test_a_broadcast_that_waits_for_the_generation_is_told_from_one_that_became_slower(
    tmp_path: Path, locked: bool, cause: str, late: bool
) -> None:
    """OpenRLHF, asynchronous (trainer/ppo_trainer_async.py): without partial rollouts the weights wait for a lock that
    the next generation holds. With them engines are always busy, and a slower sync makes a generation longer."""
    random, rows = np.random.default_rng(6), []
    made = 90.0 + random.normal(0, 5.0, STEPS + 1)
    made[: (STEPS if late and locked else 0) * 2 // 3] = 30.0  # at first engines are ahead
    for n in range(STEPS):
        train, sync = 40.0 + random.normal(0, 1.0), 2.0 if locked or n < STEPS // 2 else 35.0 + random.normal(0, 1.0)
        sync += max(0.0, made[n + 1] - train - 3.0) if locked else 0.0
        total = train + 3.0 + sync
        timers = {"make_experience": 3.0, "ppo_train": train, "broadcast": sync, "step_total": total + 0.1}
        timers["generation"] = made[n] if locked else total
        rows.append({f"timing/{name}": seconds for name, seconds in timers.items()})
    assert levers_of(_lines(tmp_path, rows))[0].cause == cause


def test_a_training_that_comes_with_a_rhythm_is_named(tmp_path: Path) -> None:
    """prime-rl's console times nothing but the wait: a checkpoint every five steps lies in what is left of a step."""
    rows = [{"time/step": 45.0 + 220.0 * (n % 5 == 4), "time/wait_for_batch": 0.5} for n in range(STEPS)]
    (lever,) = levers_of(_lines(tmp_path, rows))
    assert (lever.cause, lever.mean) == ("unexplained time", pytest.approx(44.0, rel=0.05))
    assert lever.why.startswith("every 5 steps update takes 220 s more than in the others")


@pytest.mark.parametrize("inside", [False, True])
def test_what_lies_between_two_steps_is_told_by_the_clock(tmp_path: Path, inside: bool) -> None:
    """OpenRLHF: an evaluation is in no timer, and after the step's. inside: the next step's wait has it."""
    rows, clock = [], 1.787e9
    for n in range(STEPS):
        parts = {"make_experience": 3.0, "ppo_train": 40.0, "broadcast": 2.0, "generation": 40.0}
        parts["generation"] += 300.0 if inside and n % 5 == 0 and n else 0.0
        row = {f"timing/{name}": seconds for name, seconds in parts.items()} | {
            "timing/step_total": sum(parts.values())
        }
        clock += 85.0 + (300.0 if n % 5 == 4 else 0.0)
        rows.append({**row, "_timestamp": clock})
    account = _lines(tmp_path, rows).account
    assert account is not None
    assert account.step_s == pytest.approx(140.0 if inside else 145.0, rel=0.01)
    assert (account.phase("between_s") is None) == inside


def test_a_wait_that_swings_by_more_than_all_else_is_not_taken_for_one_beside_the_trainer() -> None:
    """ROLL's log is the same in both modes. What the trainer takes longer is taken off the next wait one to one: waits
    that swing by a third can have any slope against seconds that hardly move."""
    own = 24.0 + 0.5 * np.sin(np.arange(STEPS) * 2.0)
    wait = 60.0 - 5.0 * np.r_[0.0, own[:-1] - 24.0] + np.random.default_rng(2).normal(0.0, 1.0, STEPS)
    log = {"step": np.arange(1.0, STEPS + 1), "wait_s": wait, "update_s": own, "step_s": wait + own}
    assert mode_of(StepLog("roll", log)) == "synchronous"
    log["wait_s"] = 60.0 - np.r_[0.0, own[:-1] - 24.0]
    assert mode_of(StepLog("roll", log | {"step_s": log["wait_s"] + own})) == "asynchronous"


def test_a_generation_that_may_be_a_wait_is_told_where_no_fault_is_found(tmp_path: Path) -> None:
    rows = [{"time/step_rollout": 36.0, "time/step_train": 40.0, "time/step_total": 76.0} for _ in range(STEPS)]
    seen = _lines(tmp_path, rows)
    assert levers_of(seen) == ()
    assert "the trainer waits 36 s for samples" in pace_words(seen)


def test_a_slow_pass_beside_it_does_not_hide_a_slow_rollout(tmp_path: Path) -> None:
    """The trainer without what is slow in it: 40 s of update, 3 s of log-probs and a third of the update."""
    found = levers_of(_seen(tmp_path, gen=120.0, ref=45.0))
    assert [lever.cause for lever in found] == ["rollout slow", "reference log-probs slow"]
    assert found[0].mean == pytest.approx(120.0 - 43.0 - 40.0 / 3.0, rel=0.05)


def test_a_critic_that_takes_longer_than_the_policy_is_named(tmp_path: Path) -> None:
    """One as large as the policy is asked forward and updated: a third more than the policy's update at most."""
    assert levers_of(_seen(tmp_path, values=12.0, update_critic=39.0)) == ()
    (lever,) = levers_of(_seen(tmp_path, values=22.0, update_critic=68.0))
    assert (lever.cause, lever.phase, lever.mean) == ("trainer slow", "critic", pytest.approx(50.0, rel=0.05))


def test_every_cause_has_a_remedy_for_any_framework() -> None:
    assert {cause for known in FRAMEWORKS for cause in known.cures} <= set(CAUSES)
    assert all(remedy_for(cause, None, {"p95": "2048"}) for cause in CAUSES)
    assert remedy_for("long tail", "trl", {"p95": "2048"}) == ("max_completion_length=2048",)
    assert remedy_for("long tail", "trl", {}) == ("fleetsim size --run LOG",)
    alone = remedy_for("long tail", "verl", {"p95": "2048"})  # a synchronous trainer has no async_training
    assert alone == ("data.max_response_length=2048",)
    assert "async_training.partial_rollout=True" in remedy_for("long tail", "verl", {"beside": "True"})


def test_more_samples_are_no_slower_rollout(tmp_path: Path) -> None:
    """A generation that rose because a step has more samples from then on, as long as they were."""
    more = np.where(np.arange(STEPS) < 30, 256.0, 384.0)
    rows = [json.loads(line) for line in _log(tmp_path, gen=0.12 * more).read_text().splitlines()]
    for row, samples in zip(rows, more.tolist(), strict=True):
        row["data"] |= {"perf/total_num_tokens": samples * 1200.0, "prompt_length/mean": 300.0}
    path = tmp_path / "more.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert levers_of(observe(read_file(path))) == ()


@pytest.mark.parametrize(
    ("timer", "cause", "usual"), [("update_actor", "trainer slow", 40.0), ("gen", "rollout slow", 30.0)]
)
def test_what_is_done_again_now_and_then_costs_its_mean(tmp_path: Path, timer: str, cause: str, usual: float) -> None:
    """As an update that runs out of memory, or a batch whose engine was lost: twice as long, at no distance."""
    again = np.isin(np.arange(STEPS), [3, 5, 17, 24, 25, 39, 47, 48, 56])
    (lever,) = levers_of(_seen(tmp_path, **{timer: np.where(again, 2.0 * usual, usual)}))
    assert lever.cause == cause
    assert lever.mean == pytest.approx(usual * 9 / STEPS, rel=0.05)
    assert lever.why.startswith("in 9 of 60 steps")
    twice = np.isin(np.arange(STEPS), [3, 17])
    assert levers_of(_seen(tmp_path, **{timer: np.where(twice, 3.0 * usual, usual)})) == ()
