"""Judges: timelines by hand, queueing theory, an engine that is the rollout's, jumps against the loop, bad input.

- By hand: votes, several judges, groups, an API's gate, and a reward that holds its rollout's place.
- M/M/c and M/G/1-PS: a judge that is asked at random moments waits as theory says.
- A judge is an engine: its requests end when those of a rollout fleet of the same engine end, to the byte.
- Books: whatever a scenario does, each trained sample was read once by each judge.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim import units
from fleetsim.config import Scenario, default_scenario, scenario_from_mapping, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime
from fleetsim.engine.kernel import tables as t
from fleetsim.engine.native import command
from fleetsim.engine.requests import run_requests
from fleetsim.errors import InputError, StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.facts import run_facts
from fleetsim.job.trials import flat
from fleetsim.search.levers import MORE_OF, levers_of
from fleetsim.search.objective import usd_per_h
from fleetsim.sim.binding import gains_of
from fleetsim.sim.deadlock import wasting_error
from fleetsim.sim.engines import engine_of
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.judges import HomeJudge, JudgeFleet
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from tests.sim.random_scenarios import scenarios
from tests.sim.test_stations import erlang_wait, same_samples
from tests.sim.timelines import done, play, sends, whole, with_its_fleet

# An API that makes a hundred tokens a second: answers take a second.
API: dict[str, Any] = {"api": {"tok_s": 100.0, "concurrency": 1}, "output_tokens": 100}
MANY: dict[str, Any] = {"api": {"tok_s": 100.0}, "output_tokens": 100}


def one_batch(lengths: list[int | tuple[int, ...]], **changes: Any) -> tuple[float, ...]:
    """When the groups of one batch are ready that are sent at 0."""
    samples = sum(len(row) if isinstance(row, tuple) else 1 for row in lengths)
    run = play([*lengths, *lengths], admission__law="barrier", trainer__batch_samples=samples, run__steps=1, **changes)
    return done(run, *range(len(lengths)))


@pytest.mark.parametrize(
    ("judges", "ready"),
    [
        # three rollouts end at 2; one is read at a time
        ({"judge": API}, (3, 4, 5)),
        ({"judge": {**API, "votes": 2}}, (4, 6, 8)),
        # a teacher reads beside the judge, and is slower for the first one
        ({"judge": API, "teacher": {**MANY, "output_tokens": 200}}, (4, 4, 5)),
        # begun at 2, 4 and 6; or when 302 tokens of two for each second have gone by; a second on the way
        ({"judge": {**MANY, "api": {"tok_s": 100.0, "requests_per_s": 0.5}}}, (3, 5, 7)),
        ({"judge": {**MANY, "api": {"tok_s": 100.0, "tokens_per_s": 150.5}}}, (3, 5, 7)),
        ({"judge": {**MANY, "api": {"tok_s": 100.0, "first_token_s": 1.0}}}, (4, 4, 4)),
        # of half the rollout, 100 tokens with its prompt, it reads as many fewer
        ({"judge": {**MANY, "reads_share": 0.0, "api": {"tok_s": 100.0, "tokens_per_s": 101.0}}}, (3, 4, 5)),
    ],
)
def test_judges_by_hand(judges: dict[str, Any], ready: tuple[float, ...]) -> None:
    assert one_batch([2, 2, 2], **{f"stations__{name}": judge for name, judge in judges.items()}) == ready


def test_a_judge_of_groups_reads_them_when_their_last_sample_is_scored() -> None:
    """Groups end at 3 and 2; the second is read first. A rate of 202 tokens a second tells how many were read."""
    both: dict[str, Any] = {"workload__group_size": 2, "stations__judge": {**API, "per": "group"}}
    assert one_batch([(1, 3), (2, 2)], **both) == (4, 3)
    # 100 of the answer, one of the prompt, 200 of each: 501 tokens of the second one, then the first
    rate = {**MANY, "per": "group", "api": {"tok_s": 100.0, "tokens_per_s": 501 / 4}}
    assert one_batch([(1, 3), (2, 2)], workload__group_size=2, stations__judge=rate) == (7, 3)


def test_the_rest_of_a_group_that_is_complete_is_not_read() -> None:
    """Of three samples two are kept: the third, of nine seconds, is aborted at 2, and its tokens are not read."""
    judge = {**MANY, "per": "group", "api": {"tok_s": 100.0, "tokens_per_s": 501 / 4}}
    changes: dict[str, Any] = {"workload__group_size": 2, "buffer__group_oversampling": 1.5}
    run = play(
        [(2, 9, 2)], admission__law="barrier", trainer__batch_samples=4, run__steps=1, stations__judge=judge, **changes
    )
    assert done(run, 0, 1) == (3, 7)
    assert whole(run.samples["finish_s"][:3]) == (2, -1, 2)


HERE: dict[str, Any] = {"at": "rollout", "output_tokens": 100}


@pytest.mark.parametrize(
    ("judges", "cap", "ready"),
    [
        # three rollouts of two seconds at once; each is read for one by the same engine
        ({"judge": HERE}, None, (3, 3, 3)),
        ({"judge": {**HERE, "votes": 2}}, None, (3, 3, 3)),
        # one request at a time: what is read goes before what is not begun
        ({"judge": HERE}, 1, (3, 6, 9)),
        ({"judge": {**HERE, "votes": 2}}, 1, (4, 8, 12)),
        # a teacher of its own reads beside it, for three seconds
        ({"judge": HERE, "teacher": {**MANY, "output_tokens": 300}}, 1, (5, 8, 11)),
    ],
)
def test_a_judge_at_the_rollouts_engines_by_hand(judges: dict[str, Any], cap: int | None, ready: Any) -> None:
    stations = {f"stations__{name}": judge for name, judge in judges.items()}
    assert one_batch([2, 2, 2], fleet__max_in_flight_samples=cap, **stations) == ready


def test_a_group_is_read_at_the_rollouts_engines_when_it_is_complete() -> None:
    """Groups end at 3 and 2; a second each."""
    both: dict[str, Any] = {"workload__group_size": 2, "stations__judge": {**HERE, "per": "group"}}
    assert one_batch([(1, 3), (2, 2)], **both) == (4, 3)


def test_a_judge_at_the_rollouts_engines_is_the_same_requests_on_one_fleet() -> None:
    """What the rollouts and their judge ask of an engine, sent to it at the same moments without a trainer, ends at the
    same moments, to the last digit: a request of a judge is a request. Half of the seconds go to each of them."""
    engine = LinearStepTime(5e-3, 2e-4, 1e-5, 1e-8), EngineLimits(8, 512, 4_000)
    changes: dict[str, Any] = {
        "workload.group_size": 1,
        "workload.prompt_tokens": {"mean": 90, "cv": 0.5, "max": 300},
        "workload.output_tokens": {"mean": 80, "cv": 1.0, "max": 400},
        "engine.prefix_caching": False,
        "fleet.instances": 1,
        "trainer.batch_samples": 64,
        "admission.law": "barrier",
        "run.steps": 1,
        "run.warmup_steps": 0,
        "stations.judge": {"at": "rollout", "votes": 2, "prompt_tokens": 40, "reads_share": 0.5, "output_tokens": 30},
    }
    fleet = Fleet(with_changes(default_scenario(), changes), *engine, 0)
    fleet.draws.more()
    fleet.set(credits=64)
    fleet.advance(math.inf)
    world = fleet.world
    rows = world.samples[: world.get("n_samples")]
    of_judge = world.groups["zero_variance"][rows["group"]] == t.ASKED
    sent = rows[(rows["finish_s"] >= 0)]
    asked = of_judge[rows["finish_s"] >= 0]
    assert np.count_nonzero(asked) == 2 * 64
    alone = run_requests(
        *engine, sent["prompt"] + sent["extra"], sent["target"], arrival_s=np.round(sent["sent_s"], 12)
    )  # fmt: skip
    order = np.lexsort((sent["target"], sent["finish_s"]))
    assert np.abs(np.sort(alone.finish_s) - sent["finish_s"][order]).max() < 1e-9
    came = world.reward_s[: len(rows)][of_judge & (rows["finish_s"] >= 0)]
    read = rows[rows["asks"][of_judge & (rows["finish_s"] >= 0)]]
    assert np.all(came == read["finish_s"]), "asked for when the rollout had its reward"
    assert np.all(sent["extra"][asked] == 39 + (0.5 * (read["prompt"] + read["made"])).astype(int))


@pytest.mark.parametrize(("holds", "sent"), [(False, (0, 2, 4)), (True, (0, 3, 6))])
def test_a_reward_may_hold_the_place_of_its_rollout(holds: bool, sent: tuple[float, ...]) -> None:
    """One at a time, two seconds of tokens and one of a judge: the next begins when it has ended, or is scored."""
    for scoring in ({"stations__judge": MANY}, {"workload__reward__latency_s": 1.0}):
        run = play(
            [2],
            admission__law="barrier",
            trainer__batch_samples=3,
            fleet__max_in_flight_samples=1,
            run__steps=1,
            stations__reward__holds_slot=holds,
            **scoring,
        )
        assert sends(run, 3) == sent


def asked_at_random(n: int, rate: float, judge: dict[str, Any], seed: int) -> tuple[Fleet, JudgeFleet]:
    """Rollouts of one token that ask a judge at n moments that are uniform over n / rate seconds: a Poisson process,
    given their number."""
    scenario = with_changes(
        default_scenario(),
        {
            "workload.group_size": 1,
            "workload.prompt_tokens": 1,
            "workload.output_tokens": 1,
            "workload.reward.latency_s": {"kind": "histogram", "le": [n / rate], "count": [1]},
            "trainer.batch_samples": 1,
            "fleet.instances": 1,
            "run.seed": seed,
            "stations.judge": {"reads_share": 0.0, **judge},
        },
    )
    fleet = Fleet(scenario, LinearStepTime(1e-9), EngineLimits(1 << 15, 1 << 16, 1 << 26), 0)
    while fleet.get("n_groups") < n:
        fleet.draws.more()
    fleet.set(credits=n)
    fleet.advance(math.inf)
    return fleet, fleet.judges[0]


def mean_of_seeds(found: list[float], theory: float) -> None:
    mean, half = np.mean(found), 2.365 * np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(mean - theory) < 1.5 * half, (mean, half, theory)
    assert half < 0.15 * theory, "else the test says nothing"


def test_a_judge_of_limited_concurrency_is_m_m_c() -> None:
    """Exponential answers of a second on average at four at a time, load 0.8: the mean wait of Erlang C."""
    found = []
    law = {"kind": "gamma", "mean": 500, "cv": 1.0}
    for seed in range(8):
        _, judge = asked_at_random(8_000, 3.2, {"api": {"tok_s": 500.0, "concurrency": 4}, "output_tokens": law}, seed)
        last = judge.counts(np.array([1e9]))[0]
        assert last["asked"] == last["answered"] == 8_000
        found.append(float(last["waited_s"]) / 8_000)
    mean_of_seeds(found, erlang_wait(4, 0.8))


@pytest.mark.parametrize("law", [{"kind": "gamma", "mean": 300, "cv": 1.0}, {"mean": 300, "cv": 0.5}])
def test_an_engine_that_shares_its_rate_is_m_g_1_ps(law: dict[str, Any]) -> None:
    """The mean time at a processor that all requests share is service / (1 - load), whatever the law of service."""
    load, tok_s, n = 0.7, 3000.0, 4_000
    found = []
    for seed in range(8):
        engine = {"kind": "constant", "instance_tok_s": tok_s}
        _, judge = asked_at_random(n, load * tok_s / 300, {"engine": engine, "output_tokens": law}, seed)
        served = float(judge.counts(np.array([1e9]))["served_s"][0]) / n
        mean = float(judge.world.samples["target"][:n].mean()) - 1  # the first token comes with the free prompt
        found.append(served * (1 - load * mean / 300) / (mean / tok_s))
    mean_of_seeds(found, 1.0)


ENGINE: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-1.5B",
    "max_num_seqs": 24,
    "kv_blocks": 500,
    "max_num_batched_tokens": 1024,
}


def busy_judge(**more: Any) -> Scenario:
    """A run whose judge is short of cache, and is asked in bursts."""
    judge = {
        "engine": ENGINE,
        "instances": 3,
        "prompt_tokens": {"mean": 90, "cv": 0.3, "max": 200},
        "shared_prefix_tokens": 48,
        "output_tokens": {"mean": 120, "cv": 1.0, "max": 600},
        **more,
    }
    changes = {
        "workload.output_tokens": {"mean": 200, "cv": 0.8, "max": 900},
        "workload.group_size": 4,
        "trainer.batch_samples": 64,
        "fleet.instances": 2,
        "stations.judge": judge,
    }
    return with_changes(default_scenario(), changes)


def judged(scenario: Scenario, groups: int, every_s: float | None = None, until_s: float = math.inf) -> Fleet:
    """So many groups through the fleet and its judges; every_s: stopped and held for no time so often."""
    fleet = Fleet(scenario, *engine_of(scenario, log_probs=False), 0)
    fleet.draws.more()
    fleet.set(credits=groups)
    now = 0.0
    fleet.advance(0.0)
    while every_s is not None and not fleet.quiet():
        now += every_s
        fleet.advance(now)
        for world in (fleet.world, *(world for judge in fleet.judges for world in judge.worlds)):
            command(world.address, int(t.CMD_HOLD), int(t.ALL), now, now)
    fleet.advance(until_s)
    return fleet


@pytest.mark.parametrize("votes", [1, 2])
def test_a_judge_is_an_engine(votes: int) -> None:
    """The requests of a judge end when those of a rollout fleet of that engine do, which arrive at the same times."""
    (judge,) = judged(busy_judge(votes=votes), 48).judges
    n = 48 * 4 * votes
    asked = judge.world.samples[:n]
    came = judge.world.groups["submit_s"][asked["group"]]
    assert asked["preemptions"].sum() > 10, "else memory is not short"
    scenario = with_changes(
        default_scenario(),
        {"workload.shared_prefix_tokens": 48, "engine": ENGINE, "fleet.instances": 3, "workload.group_size": votes}
        | {"trainer.batch_samples": votes, "workload.output_tokens": {"mean": 120, "cv": 1.0, "max": 600}}
        | {"fleet.routing": "prefix_affinity" if votes > 1 else "least_loaded"},
    )
    fleet = Fleet(scenario, *engine_of(scenario, log_probs=False), 0)
    while fleet.get("n_samples") < n:
        fleet.draws.more()
    world = fleet.world
    order = np.argsort(came, kind="stable")
    world.samples["prompt"][:n], world.samples["target"][:n] = asked["prompt"], asked["target"]
    world.arrival_s, world.arrival = came[order], order.astype(np.int32)
    world.set(open_loop=1, n_arrivals=n)
    world.bind()
    fleet.advance(math.inf)
    for name in ("start_s", "first_token_s", "finish_s", "preemptions", "instance"):
        assert world.samples[name][:n].tobytes() == asked[name].tobytes(), name


def test_jumps_are_the_loop_with_judges_behind_them() -> None:
    """A hold of no seconds ends every jump at its next iteration: asked for in each, all engines go step by step."""
    scenario = with_changes(busy_judge(), {"stations.teacher": {"engine": ENGINE, "per": "group"}})
    jumps, loop = judged(scenario, 24), judged(scenario, 24, every_s=5e-4)
    found = [[f.world.groups["ready_s"][:24], *(j.world.samples["finish_s"] for j in f.judges)] for f in (jumps, loop)]
    for a, b in zip(*found, strict=True):
        assert np.abs(a - b).max() < 1e-9
    assert np.all(found[0][0] > 0)


def test_a_judge_beside_another_changes_nothing_of_it() -> None:
    alone = judged(busy_judge(), 48).judges[0].world.samples
    other = {"api": {"tok_s": 1e6}, "output_tokens": 30}
    beside = judged(with_changes(busy_judge(), {"stations.reference": other}), 48).judges[0].world.samples
    assert all(alone[name].tobytes() == beside[name].tobytes() for name in alone.dtype.names)


@pytest.mark.parametrize("per", ["sample", "group"])
def test_an_evaluation_on_the_fleet_ends_beside_judges(per: str) -> None:
    """Judges of samples read its responses, too; it is no group of which a judge of groups would be asked."""
    changes = {"evaluation": {"every_steps": 2, "samples": 64}, "stations.judge": {"per": per, "output_tokens": 40}}
    run = simulate(with_changes(default_scenario(), changes | {"run.steps": 5, "trainer.batch_samples": 64}))
    assert len(run.steps) == 5
    assert run.judges["answered"][-1] > 5 * 64 / (8 if per == "group" else 1)


def test_what_a_judge_costs() -> None:
    """Own engines by the hour, 2 x 4 GPUs at 2 dollars; an API by the token: all that is asked and answered."""
    base = {"run.steps": 6, "run.warmup_steps": 2, "workload.prompt_tokens": 100, "workload.output_tokens": 300}
    free = metrics_of(simulate(with_changes(default_scenario(), base)))
    own = {"engine": {"tp": 4}, "instances": 2, "price_usd_per_gpu_h": 2.0}
    paid = metrics_of(simulate(with_changes(default_scenario(), base | {"stations.judge": own})))
    usd = 8 * 2.0 * paid["step_s"] / 3600
    assert paid["stations"]["judge"]["usd"] == pytest.approx(usd)
    assert paid["cost_per_step"] - free["cost_per_step"] * paid["step_s"] / free["step_s"] == pytest.approx(usd)
    trained = 300 * default_scenario().trainer.batch_samples / paid["step_s"]
    assert trained / paid["goodput"] == pytest.approx(trained / free["goodput"] + 8)
    api = {"tok_s": 80.0, "usd_per_million_prompt_tokens": 3.0, "usd_per_million_output_tokens": 15.0}
    rented = {"api": api, "prompt_tokens": 50, "output_tokens": 40}
    run = simulate(with_changes(default_scenario(), base | {"stations.judge": rented}))
    found, last = metrics_of(run)["stations"]["judge"], run.judges[-1]
    assert last["prompt_tokens"] == last["asked"] * (50 + 100 + 300)
    each = (450 * 3.0 + 40 * 15.0) / 1e6
    assert found["usd"] == pytest.approx(found["calls"] * each, rel=0.02)


WAITING: dict[str, Any] = {
    "workload.output_tokens": {"mean": 400, "cv": 0.5, "max": 1500},
    "trainer.batch_samples": 128,
    "trainer.fixed_s": 2.0,
    "admission.law": "version_window",
    "admission.max_staleness": 4.0,
    "run.steps": 40,
    "run.warmup_steps": 15,
}


def test_a_judge_that_is_full_binds_and_a_fifth_more_of_it_saves_a_sixth() -> None:
    """Where its engines always compute, the step is tokens / their rate; a request's first token is free."""
    steps = []
    for engines in (5, 6):
        judge = {"engine": {"kind": "constant", "instance_tok_s": 1000.0}, "instances": engines, "output_tokens": 301}
        found = metrics_of(simulate(with_changes(default_scenario(), WAITING | {"stations.judge": judge})))
        assert found["binding"] == "judge"
        assert found["step_s"] == pytest.approx(128 * 300 / (engines * 1000.0), rel=0.05)
        steps.append(found["step_s"])
    assert steps[1] / steps[0] == pytest.approx(1 / 1.2, abs=0.03)


def test_what_a_faster_judge_saves_is_foretold() -> None:
    """Answers of ten seconds after every rollout, batch after batch: a fifth faster saves what the gain says."""
    steps, gains = [], {}
    for tok_s in (30.0, 36.0):
        judge = {"api": {"tok_s": tok_s}, "output_tokens": 301}
        run = simulate(
            with_changes(default_scenario(), WAITING | {"admission.law": "barrier", "stations.teacher": judge})
        )
        steps.append(metrics_of(run)["step_s"])
        gains = gains or gains_of(run, window_of(run))
    assert max(gains, key=gains.__getitem__) == "judge"
    assert gains["judge"] == pytest.approx(1 - steps[1] / steps[0], rel=0.1)


def test_a_judge_has_its_line_and_its_lever() -> None:
    """What is told of a fleet names its engines and their part of the bill; one more of them is tried."""
    judge = {"engine": {"kind": "constant", "instance_tok_s": 1000.0, "tp": 2}, "instances": 3, "output_tokens": 301}
    scenario = with_changes(default_scenario(), WAITING | {"stations.judge": judge})
    found = {name: Estimate(x, x, x) for name, x in flat(metrics_of(simulate(scenario))).items() if name != "binding"}
    told = {fact.name: fact.said for fact in run_facts(found, scenario)}
    assert told["judges"].startswith("judge: 3 engines, 100 % of the time at work, ")
    assert told["judges"].endswith(f"{units.money(found['stations.judge.usd'].mean)} a step")
    assert told["cost_per_hour"].endswith("for 8 + 8 + 6 GPUs")
    levers = levers_of(scenario, with_changes(scenario, {"fleet.instances": 5}), "one more")
    lever = next(lever for lever in levers if lever.name == MORE_OF["judge"])
    assert lever.scenario.stations.judge == scenario.stations.judge.model_copy(update={"instances": 4})
    assert usd_per_h(lever.scenario, 4) > usd_per_h(scenario, 4)


@st.composite
def judges(draw: st.DrawFn) -> dict[str, Any]:
    """A judge with anything that it may have."""
    api = {"tok_s": 50.0, "concurrency": 6, "requests_per_s": draw(st.sampled_from([None, 40.0])), "first_token_s": 0.1}
    limits = {"max_num_seqs": 8, "max_num_batched_tokens": 256, "kv_blocks": 150, "block_size": 16}
    engine = {**limits, "disaggregation": draw(st.sampled_from([None, {"prefill": 1}]))}
    return {
        "engine": engine | {"name": draw(st.sampled_from(["vllm", "sglang", "tensorrt-llm"]))},
        "instances": draw(st.integers(1, 2)),
        **draw(st.sampled_from([{}, {"api": api}, {"overflow": api}, {"overflow": {**api, "after_s": 0.5}}])),
        "per": draw(st.sampled_from(["sample", "group"])),
        "votes": draw(st.integers(1, 3)),
        "prompt_tokens": 20,
        "reads_share": draw(st.sampled_from([0.0, 0.4, 1.0])),
        "output_tokens": {"mean": 30, "cv": 1.0, "max": 100},
    }


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenarios(), judges(), judges(), st.sampled_from([(False, False), (True, False), (False, True)]))
def test_each_trained_sample_was_read_once(plain: Scenario, judge: Any, teacher: Any, how: tuple[bool, bool]) -> None:
    """Any scenario with any judges: nothing is ready before each judge has answered, and the books balance."""
    holds, here = how
    if here:
        teacher |= {"at": "rollout", "per": "sample", "api": None, "overflow": None}
    changes = {"stations": {"judge": judge, "teacher": teacher, "reward": {"holds_slot": holds}}}
    scenario = with_changes(plain, changes)
    try:
        run, fleet = with_its_fleet(scenario)
    except StuckError:
        return
    world = fleet.world
    ready = np.flatnonzero(world.groups["ready_s"][: fleet.started()] >= 0)
    samples = fleet.samples_of(ready)
    scored = samples[world.samples["status"][samples] == t.DONE]
    of_scored = world.samples["group"][scored]
    for each in fleet.judges:
        if isinstance(each, HomeJudge):
            asks = world.samples["asks"][scored][:, None] + np.arange(teacher["votes"])
            assert np.all(world.samples["status"][asks] == t.DONE)
            assert np.all(world.samples["finish_s"][asks].max(axis=1) <= world.groups["ready_s"][of_scored] + 1e-9)
            continue
        votes = each.world.groups
        own = ready if each.judge.per == "group" else scored
        of = ready if each.judge.per == "group" else of_scored
        assert np.all(votes["scored"][own] == each.judge.votes)
        assert np.all(votes["ready_s"][own] <= world.groups["ready_s"][of] + 1e-9)
        n = each.world.get("n_samples")
        for there in each.worlds:
            waiting = np.isin(there.samples["status"][:n], [t.WAITING, t.RUNNING, t.AWAY]).sum()
            assert there.get("in_flight") == waiting == there.instances["load"].sum()
        if each.beyond is not None:
            went = each.world.samples["status"][:n] == t.GONE
            sent = [at.samples["sent_s"][:n] >= 0 for at in each.worlds]
            assert not np.any(sent[1] & went)
            assert not np.any(sent[0] & ~went)
        rows = each.counts(run.steps["end_s"])
        assert np.all(np.diff(rows["answered"]) >= 0)
        assert np.all(rows["asked"] >= rows["answered"])
        if each.judge.api is None and scenario.engine.disaggregation is None:
            command(each.world.address, int(t.CMD_TOTALS), int(t.ALL), fleet.now, 0.0)
            end = each.counts(np.array([fleet.now]))["busy_s"][0]
            if each.judge.engine.disaggregation is None:
                assert end == pytest.approx(each.world.get("busy_s"), abs=1e-6)
    load = np.isin(world.samples["status"], [t.WAITING, t.RUNNING, t.AWAY] + ([t.SCORING] if holds else []))
    assert fleet.get("in_flight") == np.count_nonzero(load & (world.samples["instance"] >= 0))
    assert same_samples(simulate(scenario), run)


def test_a_judge_that_never_keeps_up_is_named() -> None:
    """All groups wait for it when the trainer's patience ends."""
    judge = {"engine": {"kind": "constant", "instance_tok_s": 0.1}, "output_tokens": 300}
    scenario = with_changes(default_scenario(), {"trainer.batch_samples": 16, "stations.judge": judge})
    fleet = judged(scenario, 32, until_s=1000.0)
    assert "stations.judge.instances: 1: 32 groups are generated" in str(wasting_error(scenario, fleet))


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        ({"engine": {"kv_blocks": 10}}, r"stations\.judge\.engine\.kv_blocks: 10.*never fits"),
        ({"engine": {"gpu": "H1000"}}, r"stations\.judge\.engine\.gpu: 'H1000'"),
        ({"engine": {"kind": "constant"}}, r"stations\.judge\.engine\.instance_tok_s.*needs instance_tok_s"),
        ({"engine": {"dp": 2}, "instances": 3}, r"stations\.judge\.instances: 3.*multiple of engine\.dp"),
        ({"at": "rollout", "api": {}}, r"stations\.judge\.api.*rents none"),
        ({"at": "rollout", "output_tokens": 10**7}, r"engine\.kv_blocks.*never fits"),
        ({"instances": 0}, r"stations\.judge\.instances: 0"),
    ],
)
def test_judges_that_cannot_be_are_refused(judge: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        simulate(scenario_from_mapping({"stations": {"judge": judge}, "run": {"steps": 2}}))
