"""A whole run from a few long ones: against one simulation of all its steps, and against arithmetic."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.config import with_changes
from fleetsim.errors import InputError
from fleetsim.forecast.ask import Forecast, forecast, scene_of
from fleetsim.forecast.facts import _resize_facts, _saves
from fleetsim.forecast.resizing_plan import _cheapest_way, resize_plan
from fleetsim.forecast.schedule import NOTHING, CoursePoint, RunCourse, Schedule, course_of, schedule_of
from fleetsim.job.nameplate import mean_step_s
from fleetsim.quantities import METRICS
from fleetsim.search.objective import usd_per_h
from fleetsim.sim.run import simulate
from fleetsim.workload.lengths import mean_length


def test_points_move_in_a_line_or_hold() -> None:
    found = schedule_of(["len=0:1000,100:2000", "batch=0:256,50:512", "turns=30:4"])
    assert found.at(0) == {"len": 1000.0, "batch": 256}
    assert found.at(49) == {"len": 1490.0, "batch": 256, "turns": 4}
    assert found.at(500) == {"len": 2000.0, "batch": 512, "turns": 4}
    assert found.stretches(200) == ((0, 29), (30, 49), (50, 99), (100, 199))
    assert found.words(200) == (
        "mean generated tokens 1,000 to 2,000 by step 100; samples per optimizer step 256, 512 from step 50; "
        "turns of a rollout 4 from step 30"
    )
    assert found.words(51).startswith("mean generated tokens 1,000 to 1,500 by step 50; ")
    assert schedule_of(["len=0:1000"]).words(51) == "mean generated tokens 1,000"


def test_what_binds_changes_half_way_between_two_points_of_a_stretch_and_at_once_where_one_begins() -> None:
    def points(*of: tuple[int, str]) -> tuple[CoursePoint, ...]:
        return tuple(CoursePoint(step, {}, fs.load(batch=64).scenario, {}, binding) for step, binding in of)

    moving = points((0, "sync"), (100, "sync"), (300, "trainer"), (399, "trainer"))
    course = RunCourse(500, (((0, 399), moving), ((400, 499), points((400, "rollout")))), 0.0)
    assert course.bound_by() == ((0, "sync"), (200, "trainer"), (400, "rollout"))


def test_a_csv_says_the_same(tmp_path: Path) -> None:
    place = tmp_path / "plan.csv"
    place.write_text("step,len,batch\n0,1000,256\n50,,512\n100,2000,\n")
    assert schedule_of([str(place)]).columns == schedule_of(["len=0:1000,100:2000", "batch=0:256,50:512"]).columns


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("len=0:1500,x", "is no list of STEP:VALUE"),
        ("lens=0:1500", "lens is no value that has a schedule"),
        ("len=100:1500,50:2000", "its steps must be 0 or more and increase"),
        ("filter=0:1.5", "out of range"),
        ("nowhere.csv", "there is no such file"),
    ],
)
def test_a_wrong_schedule_is_told(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        schedule_of([text])


def test_a_question_without_steps_is_refused() -> None:
    with pytest.raises(InputError, match="nobody said how many steps"):
        forecast(Forecast(job=fs.load("async-one-step")))


GROWING = "len=0:1000,150:2500"


@pytest.fixture(scope="module")
def grown() -> Any:
    return fs.load("async-one-step", replications=1, len=1000).forecast(steps=200, schedule=GROWING)


def test_it_is_what_one_simulation_of_the_whole_run_says(grown: Any) -> None:
    """The same lengths, step by step, in one run of 200 steps: within 1 %, the filling of the pipeline included."""
    scene, law = scene_of(grown.job), grown.job.scenario.workload.output_tokens
    events = [
        {"step": k, "length_factor": scene(grown.schedule.at(k)).workload.output_tokens.mean / law.mean}
        for k in range(0, 151, 5)
    ]
    whole = with_changes(grown.job.scenario, {"run.steps": 200, "run.warmup_steps": 0, "run.events": events})
    assert grown.hours == pytest.approx(simulate(whole).steps["end_s"][-1] / 3600.0, rel=0.01)
    assert grown.course.off < 0.01


def test_totals_are_sums_of_steps(grown: Any) -> None:
    t, course = grown.totals, grown.course
    assert t.trained_samples == 200 * 512
    gpus = grown.scenario.fleet.instances * grown.scenario.engine.gpus + grown.scenario.trainer.gpus
    assert t.gpu_hours == pytest.approx(gpus * t.hours)
    assert t.usd == pytest.approx(course.metric("cost_per_step").sum())
    mean_len = np.mean([grown.schedule.at(k)["len"] for k in range(200)])
    assert t.trained_tokens == pytest.approx(200 * 512 * mean_len, rel=0.02)
    for name in ("hours", "gpu_hours", "usd"):
        low, high = t.ranges[name]
        assert low < getattr(t, name) < high


def test_a_run_in_which_nothing_changes_is_its_step_times_their_number() -> None:
    job = fs.load("async-one-step", replications=2)
    found, one = job.forecast(steps=1000), job.simulate()
    assert found.hours == pytest.approx(1000 * one.mean["step_s"] / 3600.0)
    assert found.numbers()["usd"] == pytest.approx(1000 * one.mean["cost_per_step"])
    assert len(found.course.points) == 1


def test_lengths_that_drift_and_resizes_of_the_scenario_are_followed() -> None:
    changes = {"workload.length_drift_per_step": 0.004, "run.events": [{"step": 60, "instances": 6}]}
    found = fs.load("async-one-step", changes, replications=1).forecast(steps=120)
    assert set(found.schedule.columns) == {"len", "instances"}
    assert found.schedule.at(59)["len"] < 1.3 * found.schedule.at(0)["len"]
    assert [found.schedule.at(k).get("instances") for k in (0, 59, 60, 119)] == [None, None, 6, 6]
    assert found.totals.step_s[1] > found.totals.step_s[0]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_what_a_run_loses_and_what_serves_beside_it_is_said_as_simulate_says_it() -> None:
    """Of a job whose cost has all of it: a judge, spot machines, sandboxes that lose rollouts."""
    tools = {"stations.tools.workers": 24, "stations.tools.timeout_s": 6.0, "stations.tools.lost": "truncated",
             "workload.turns": {"count": 3, "tool_latency_s": {"mean": 4.0, "cv": 0.5}}}  # fmt: skip
    judge = {"stations.judge": {"output_tokens": 32, "instances": 2, "price_usd_per_gpu_h": 2.0}}
    changes = {**tools, **judge, "fleet.spot.share": 0.5, "run.steps": 20}
    job = fs.load("async-one-step", changes, replications=1, len=300, batch=64)
    one, whole = ({f.name: f.said for f in x.told().facts.rows} for x in (job.simulate(), job.forecast(steps=20)))
    for name, word in {"samples_lost.all": "truncated", "spot": "reclaims", "judges": "2 engines"}.items():
        assert word in whole[name]
        # The runs of a course are longer: its figures are others.
        words = [re.split(r"[:;]", re.sub(r"[\d.,]+", "", said[name]))[0] for said in (one, whole)]
        assert words[0] == words[1]
    assert "24 sandboxes, 2 engines of the judge" in whole["gpus"]


def test_failures_of_the_trainer_are_in_the_hours() -> None:
    changes = {"trainer.failures.mtbf_s": 7200.0, "trainer.checkpoint": {"every_steps": 20, "stall_s": 30.0}}
    job = fs.load("async-one-step", changes, replications=1)
    calm, failing = (one.forecast(steps=500) for one in (job.with_({"trainer.failures.mtbf_s": None}), job))
    assert calm.interval is None
    assert failing.interval is not None
    assert failing.hours - calm.hours == pytest.approx(failing.totals.lost_h)
    assert failing.totals.lost_h > 0.1 * calm.hours
    facts = {one["name"]: one for one in failing.to_dict()["facts"]}
    assert facts["checkpoint_every"]["value"] == failing.interval.best.every != 20
    assert "by Daly's formula every" in failing.to_dict()["brief"]["interval"]


# --- The resize plan, with steps that are written down: n instances take work / n seconds, 10 s at least.


def _measure(scenario: Any, replication: int) -> dict[str, Any]:
    step = max(10.0, mean_length(scenario.workload.output_tokens, at_least=1.0) / 20.0 / scenario.fleet.instances)
    return {**dict.fromkeys(METRICS, 1.0), "step_s": step, "cost_per_step": step, "binding": "rollout"}


def _course(steps: int, schedule: Schedule) -> Any:
    job = fs.load("async-one-step", {"fleet.instances": 8}, replications=1)
    return course_of(scene_of(job), schedule, steps, 1, _measure)


def forecast_of_lengths(lengths: str) -> str:
    """What a forecast says of changing counts."""
    plan = resize_plan(_course(1000, schedule_of([lengths])), _measure)
    return next(str(fact.said) for fact in _resize_facts(plan) if fact.name == "resize")


def test_a_plan_grows_with_the_responses_and_saves_against_every_fixed_count() -> None:
    found = resize_plan(_course(1000, schedule_of(["len=0:1000,500:2500,1000:4000"])), _measure)
    counts = [n for _, n in found.plan.counts]
    assert counts == sorted(counts)
    assert counts[0] < found.fixed.counts[0][1] < counts[-1]
    worth = found.usd_per_s
    assert found.plan.usd + worth * found.plan.seconds < found.fixed.usd + worth * found.fixed.seconds
    assert found.fixed.usd + worth * found.fixed.seconds <= found.as_is.usd + worth * found.as_is.seconds


@pytest.mark.parametrize("own", [1, 8, 400])
def test_the_best_count_is_found_wherever_the_run_begins(own: int) -> None:
    """4,000 tokens take 200 / n seconds, 10 at least."""
    job = fs.load("async-one-step", {"fleet.instances": own, "fleet.failures.restart_s": 0.0}, replications=1)
    course = course_of(scene_of(job), schedule_of(["len=0:4000"]), 100, 1, _measure)
    ((_, best),) = resize_plan(course, _measure).fixed.counts
    score = {n: usd_per_h(job.scenario, n) * max(10.0, 200.0 / n) ** 2 for n in range(1, 100)}
    assert score[best] <= 1.03 * min(score.values())


def test_a_run_that_stays_as_it_is_is_never_resized() -> None:
    found = resize_plan(_course(300, NOTHING), _measure)
    assert found.plan.counts == found.fixed.counts
    assert found.saved == (0.0, 0.0)


def test_changes_that_save_what_luck_is_are_not_told() -> None:
    """Two counts are all but equal here, whatever the lengths."""
    told = [forecast_of_lengths(lengths) for lengths in ("len=0:1000,1000:1150", "len=0:1000,500:2500,1000:4000")]
    assert [text.startswith("never: ") for text in told] == [True, False]
    assert "changes would save 0." in told[0]


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ("len=0:2500,400:2500", "mean generated tokens 2,500"),
        ("len=5000:800", "mean generated tokens 800"),
        ("len=5000:800,6000:900", "mean generated tokens 800"),
        ("len=0:800,500:2500", "mean generated tokens 800 to 2,500 by step 500"),
        ("len=0:800,500:2500,900:800", "mean generated tokens 800 to 800 by step 900"),
        ("batch=5000:512", ""),
    ],
)
def test_a_schedule_says_what_it_does_within_the_run(points: str, said: str) -> None:
    assert schedule_of([points]).words(1000) == said


def test_what_is_saved_is_said_once() -> None:
    assert [_saves(60.0, 5.0), _saves(-60.0, 5.0), _saves(60.0, -5.0)] == [
        "saves $5.00 and 1 min 00 s",
        "saves $5.00, takes 1 min 00 s longer",
        "costs $5.00 more, saves 1 min 00 s",
    ]


def test_the_cheapest_way_is_that_of_brute_force() -> None:
    random = np.random.default_rng(5)
    for _ in range(30):
        score, change = random.uniform(1.0, 9.0, (3, 6)), random.uniform(0.0, 6.0, (3, 3))
        np.fill_diagonal(change, 0.0)
        way = _cheapest_way(score, change)

        def cost(chosen: Any, score: Any = score, change: Any = change) -> float:
            moves = sum(change[a, b] for a, b in itertools.pairwise(chosen))
            return float(sum(score[n, k] for k, n in enumerate(chosen)) + moves)

        assert cost(way) == pytest.approx(min(map(cost, itertools.product(range(3), repeat=6))))


def test_a_bent_course_is_looked_at_again_where_it_bends() -> None:
    schedule = schedule_of(["len=0:500,900:4000"])
    course = _course(900, schedule)
    true = np.array([max(10.0, schedule.at(k)["len"] / 160.0) for k in range(900)])
    assert course.metric("step_s") == pytest.approx(true, rel=0.03)
    assert len(course.points) > 3


def test_seconds_that_somebody_measured_grow_as_the_trainers_model_says() -> None:
    """They are those of the first step; later ones take what the model's seconds take over its own first."""
    schedule, said = schedule_of(["len=0:1500,100:12000"]), {"max_len": 30_000, "trainer_gpus": 8}
    job, model = fs.load(**said, trainer_step_s=30.0), fs.load(**said)
    scene, by_model = (scene_of(one, schedule.at(0)) for one in (job, model))
    first, last = (mean_step_s(scene(schedule.at(step))) for step in (0, 100))
    assert first == pytest.approx(30.0)
    own = [mean_step_s(by_model(schedule.at(step))) for step in (0, 100)]
    assert last == pytest.approx(30.0 * own[1] / own[0], rel=1e-3)
    assert last > 30.0 * (12_000 + 512) / (1500 + 512)  # attention grows with the square
    stated = scene_of(fs.load(**said).with_({"trainer.per_token_s": 1e-5}), schedule.at(0))  # a law of the user's own
    assert stated(schedule.at(100)).trainer.per_token_s == 1e-5
