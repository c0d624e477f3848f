"""Jobs on shared GPUs: timetables by hand, bounds of cyclic schedules, sums of GPU-seconds, the best of all ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config.law_numbers import budget_steps
from fleetsim.errors import InputError, StuckError
from fleetsim.pack.together import PoolPhase, PoolTurn, Timetable, rotate
from fleetsim.pack.ways import ahead_of_trainer
from fleetsim.records import replace
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from tests.once import once

SECONDS = st.floats(0.5, 100.0)


def _phase(pool: str, *seconds: float, switch_s: float = 0.0) -> PoolPhase:
    return PoolPhase(pool, np.array(seconds), switch_s)


def least_round_s(jobs: Sequence[Sequence[PoolPhase]]) -> float:
    """Seconds that a round of constant phases takes at the least: those of the busiest pool with its switches, or of
    the longest job."""
    switches = len(jobs) > 1
    by_pool: dict[str, float] = {}
    for phases in jobs:
        for phase in phases:
            each = float(phase.seconds.mean()) + (phase.switch_s if switches else 0.0)
            by_pool[phase.pool] = by_pool.get(phase.pool, 0.0) + each
    longest = max(sum(float(p.seconds.mean()) for p in phases) for phases in jobs)
    return max(longest, *by_pool.values())


def test_two_jobs_by_hand() -> None:
    """a generates 10 s and trains 4, b generates 6 and trains 5; a switch takes 1. From the second round on the rollout
    GPUs are never free: 10 + 1 + 6 + 1 = 18 s a round, of which the trainer's work for 4 + 5 and switch for 2."""
    a = (_phase("rollout", 10.0, switch_s=1.0), _phase("trainer", 4.0, switch_s=1.0))
    b = (_phase("rollout", 6.0, switch_s=1.0), _phase("trainer", 5.0, switch_s=1.0))
    table = rotate([a, b], rounds=6, settling=2)
    assert table.ends[0][:3] == (14.0, 33.0, 51.0)  # a: 0-10, train 10-14; again from 17 (+1) to 28, 28 (+1) to 33
    assert table.ends[1][:3] == (23.0, 41.0, 59.0)  # b: 10 (+1) to 17, 17 (+1) to 23
    assert table.step_s(0) == table.step_s(1) == 18.0 == least_round_s([a, b])
    assert table.seconds("rollout", switches=False) / table.whole_s == pytest.approx(16 / 18)
    assert table.seconds("rollout") == pytest.approx(table.whole_s)
    assert table.seconds("trainer", job=0, switches=False) / table.whole_s == pytest.approx(4 / 18)


def _classed(*jobs: tuple[float, float], switch_s: float = 0.0) -> list[tuple[PoolPhase, PoolPhase]]:
    """Jobs that generate and train for so many seconds; generation gives way."""
    return [
        (replace(_phase("rollout", g, switch_s=switch_s), gives_way=True), _phase("trainer", t, switch_s=switch_s))
        for g, t in jobs
    ]


def test_a_higher_class_takes_the_rollout_gpus_at_once_and_training_is_let_finish() -> None:
    """a generates 10 s and trains 4, b generates 30 and trains 8. By hand, a first: a 0-10, trains 10-14; b from 10
    to 14, gives way, has 26 left. a 14-24, trains 24-28; b 24-28, 22 left; and so on: 4 s of b in each round of 14,
    the last 2 from 108 to 110. Then a trains until 112, b after it until 120, and a, which generates 112-122, waits for
    nobody."""
    table = rotate(_classed((10.0, 4.0), (30.0, 8.0)), rounds=3, settling=1, classes={0: 1})
    assert table.ends[0][:9] == tuple(14.0 * k for k in range(1, 10))
    assert table.ends[1][0] == 120.0
    # Without classes b is not interrupted: a waits for its turn.
    assert rotate(_classed((10.0, 4.0), (30.0, 8.0)), rounds=3, settling=1).ends[0][1] > 28.0


def test_a_switch_is_paid_for_again_after_every_interruption() -> None:
    """A switch takes 1 s, so of the 4 s in which a trains b works 3, and is cut off when a comes back."""
    table = rotate(_classed((10.0, 4.0), (30.0, 8.0), switch_s=1.0), rounds=2, settling=1, classes={0: 1})
    assert [row for row in table.rows if row.pool == "rollout"][:4] == [
        PoolTurn(0, "rollout", 0.0, 0.0, True),
        PoolTurn(0, "rollout", 0.0, 10.0, False),
        PoolTurn(1, "rollout", 10.0, 11.0, True),
        PoolTurn(1, "rollout", 11.0, 14.0, False),
    ]


@pytest.mark.parametrize(
    ("generates", "trains", "ahead", "step_s"),
    [(10.0, 4.0, 0, 14.0), (10.0, 4.0, 1, 10.0), (4.0, 10.0, 1, 10.0), (4.0, 10.0, 9, 10.0), (7.0, 7.0, 1, 7.0)],
)
def test_what_may_be_ahead_takes_the_longer_of_both(generates: float, trains: float, ahead: int, step_s: float) -> None:
    table = rotate([(_phase("rollout", generates), _phase("trainer", trains))], 40, 10, ahead=[ahead])
    assert table.step_s(0) == pytest.approx(step_s)


@pytest.mark.parametrize("trainer_step_s", [12, 16, 20, 40])
@pytest.mark.parametrize("ahead", [1, 3])
def test_what_is_ahead_of_a_trainer_waits_as_in_a_run(trainer_step_s: float, ahead: int) -> None:
    """Phases by runs of a job whose trainer takes 12 s, with one that waits for others: the rotation is its run."""
    job = fs.load(batch=128, len=800, max_len=2048, trainer_step_s=12, instances=2, max_staleness=ahead)
    job = job.with_(sync_pause_s=0.5, steps=80, replications=1)
    assert budget_steps(job.scenario) == ahead
    made, trained = ahead_of_trainer(job.scenario, "rollout", "trainer", ahead, 0.0)
    slower = replace(trained, seconds=trained.seconds + trainer_step_s - 12.0)
    run = window_of(simulate(job.with_(trainer_step_s=trainer_step_s).scenario))
    assert rotate([(made, slower)], ahead=[ahead]).step_s(0) == pytest.approx(run.step_s, rel=0.08)


TENS = st.tuples(st.floats(5.0, 50.0), st.floats(5.0, 50.0))


@settings(max_examples=30)
@given(TENS, TENS, st.floats(0.0, 5.0), st.integers(1, 8))
def test_trainers_in_turn_keep_to_their_bounds(
    made: tuple[float, float], trained: tuple[float, float], switch_s: float, ahead: int
) -> None:
    """No step is shorter than its own generation or training, nor longer than these with a turn of the other one
    before; and the trainer is never idle where either job alone would fill it."""
    jobs = [(_phase(f"own {i}", made[i]), _phase("trainer", trained[i], switch_s=switch_s)) for i in (0, 1)]
    table = rotate(jobs, rounds=60, settling=20, ahead=[ahead, ahead])
    for i in (0, 1):
        assert table.step_s(i) >= max(made[i], trained[i]) * 0.95
        assert table.step_s(i) <= max(made[i], sum(trained) + 2.0 * switch_s) * 1.05
    if any(trained[i] > made[i] for i in (0, 1)):
        assert table.seconds("trainer") == pytest.approx(table.whole_s, rel=0.02)


# Whole seconds, too: then several things happen at one time.
WHOLE = st.integers(1, 6).map(float)


@given(
    st.one_of(st.lists(st.tuples(each, each), min_size=2, max_size=3) for each in (SECONDS, WHOLE)),
    st.one_of(st.floats(0.0, 5.0), st.sampled_from([0.0, 1.0])),
)
def test_the_highest_class_waits_for_training_alone(jobs: list[tuple[float, float]], switch_s: float) -> None:
    """Its step is its own seconds, two switches, and one training step of another job at the most; work that is
    interrupted is neither lost nor done twice; and no pool is in use for more than the time there is."""
    try:
        table = rotate(_classed(*jobs, switch_s=switch_s), rounds=30, settling=5, classes={0: 2, 1: 1})
    except StuckError:
        return  # a lower class never has a turn: said, and no way
    (g, t), others = jobs[0], jobs[1:]
    assert g + t <= table.step_s(0) * (1 + 1e-9)
    assert table.step_s(0) <= g + t + 2 * switch_s + max(train + switch_s for _, train in others) + 1e-6
    for job, (generates, _) in enumerate(jobs):
        worked = sum(
            r.ended_s - r.began_s for r in table.rows if (r.job, r.pool, r.switches) == (job, "rollout", False)
        )
        made = len(table.ends[job])
        assert made * generates - 1e-6 <= worked <= (made + 1) * generates + 1e-6
    for pool in ("rollout", "trainer"):
        assert table.seconds(pool) <= table.whole_s * (1.0 + 1e-9)


def test_who_is_given_gpus_and_loses_them_at_the_same_time_comes_later() -> None:
    """Both ask at 0 s, the lower class first."""
    table = rotate(_classed((30.0, 8.0), (10.0, 4.0)), rounds=3, settling=1, classes={1: 1})
    assert table.ends[1][:3] == (14.0, 28.0, 42.0)
    assert table.ends[0][0] == 120.0


def test_a_class_that_never_gets_a_turn_is_told() -> None:
    """The rollout GPUs are back before the other job has switched to them."""
    with pytest.raises(StuckError, match="gets no turn"):
        rotate(_classed((10.0, 1.0), (5.0, 5.0), switch_s=4.0), classes={0: 1})


def test_classes_shorten_the_steps_of_the_higher_one_on_shared_gpus() -> None:
    a = fs.load(batch=128, len=800, max_len=2048, trainer_step_s=20, trainer_gpus=2, sync_pause_s=1)
    jobs = [a.with_({"name": "first"}), a.with_(batch=64).with_({"name": "second"})]
    plain, classed = (fs.pack(jobs, gpus=8, switch_s=2.0, priority=of) for of in (None, {"first": 1}))

    def step(result: fs.PackResult, label: str) -> float:
        return next(w for w in result.ways if (w.kind, w.label) == ("by_phase", label)).shares[0].step_s

    both = {w.label for w in plain.ways if w.kind == "by_phase"} & {
        w.label for w in classed.ways if w.kind == "by_phase"
    }
    assert both
    assert all(step(classed, label) <= step(plain, label) * (1 + 1e-9) for label in both)
    assert any(step(classed, label) < 0.99 * step(plain, label) for label in both)
    assert classed.to_dict()["classes"] == {"first": 1}
    assert "goes first" in str(classed.to_dict()["facts"])
    with pytest.raises(InputError, match="must read JOB:CLASS"):
        fs.pack(jobs, gpus=8, priority={"third": 1})


def test_a_job_beside_one_that_needs_nothing_is_alone() -> None:
    own = (_phase("rollout", 7.0, 9.0), _phase("trainer", 3.0, 2.0))
    none = (_phase("rollout", 0.0), _phase("trainer", 0.0))
    ends = rotate([own, none], rounds=8, settling=2).ends[0]
    assert ends == pytest.approx(list(np.cumsum([10.0, 11.0] * len(ends))[: len(ends)]))


@given(st.lists(st.tuples(SECONDS, SECONDS, st.floats(0.0, 20.0)), min_size=2, max_size=4))
def test_a_rotation_keeps_its_bounds_and_its_books(jobs: list[tuple[float, float, float]]) -> None:
    """No round is shorter than the busiest pool or the longest job, none longer than all phases one after the other;
    and no pool is in use for more than the time there is."""
    cycles = [(_phase("rollout", g, switch_s=s), _phase("trainer", t, switch_s=s)) for g, t, s in jobs]
    table = rotate(cycles, rounds=60, settling=20)
    rounds = [table.step_s(i) for i in range(len(jobs))]
    assert min(rounds) == pytest.approx(max(rounds), rel=0.1)  # who asks first is first, so each has its turn
    assert max(rounds) >= least_round_s(cycles) * 0.95
    assert max(rounds) <= sum(g + t + 2 * s for g, t, s in jobs) * 1.05
    for pool in ("rollout", "trainer"):
        assert table.seconds(pool) <= table.whole_s * (1.0 + 1e-9)


def _pack() -> dict[str, object]:
    a = fs.load(batch=128, len=800, max_len=2048, trainer_step_s=20, trainer_gpus=2, sync_pause_s=1)
    b = a.with_(batch=64).with_({"name": "small"})
    return fs.pack([a.with_({"name": "large"}), b], gpus=8, switch_s=2.0).to_dict()


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    return once("pack", _pack)


def test_the_best_is_the_best_of_all_ways(found: dict[str, object]) -> None:
    ways, best = found["ways"], found["best"]
    assert {way["kind"] for way in ways} == {"apart", "by_phase", "one_trainer", "in_turn"}
    assert best["mean"] == min(way["mean"] for way in ways)
    for way in ways:
        slow = [share["slower"] for share in way["shares"]]
        assert way["mean"] == pytest.approx(sum(slow) / 2)
        assert way["worst"] == max(slow)
        assert 0.0 < way["duty"] + way["switching"] <= 1.0 + 1e-9
        for share, job in zip(way["shares"], found["jobs"], strict=True):
            assert share["slower"] == pytest.approx(share["step_s"] / job["alone_step_s"])


def test_apart_is_what_split_says_of_each_part(found: dict[str, object]) -> None:
    """The part of a job is a job of its own: the same step as `split` finds for so many GPUs."""
    way = next(way for way in found["ways"] if way["kind"] == "apart" and way["label"] == "4 + 4")
    job = fs.load(batch=64, len=800, max_len=2048, trainer_step_s=20, trainer_gpus=2, sync_pause_s=1)
    alone = job.split(gpus=4)
    assert way["shares"][1]["step_s"] == pytest.approx(alone.mean["step_s"], rel=0.01)


@pytest.mark.usefixtures("quick")
def test_two_equal_jobs_pay_for_every_gpu_once() -> None:
    """By phase the dollars of both steps are those of all GPUs in a round."""
    job = fs.load(batch=64, len=800, max_len=2048, trainer_step_s=10, trainer_gpus=1, sync_pause_s=1)
    job = job.with_(instance_price=3, trainer_price=3)
    result = fs.pack([job, job], gpus=8, switch_s=0.0)
    way = next(way for way in result.ways if way.kind == "by_phase")
    assert way.usd_per_round == pytest.approx(8 * 3 * way.shares[0].step_s / 3600, rel=0.02)
    assert [job.scenario.name for job in result.jobs] == ["scenario 1", "scenario 2"]


@pytest.mark.usefixtures("quick")
def test_who_holds_the_dearer_pool_pays_for_it() -> None:
    """A trainer's GPU costs ten times a rollout's: the job that trains for longer pays nearly all of an hour."""
    a = fs.load(batch=32, len=200, max_len=400, trainer_step_s=1, trainer_gpus=1, instance_tok_s=500, replications=1)
    priced = a.with_(instance_price=1, trainer_price=10)
    jobs = [
        priced.with_({"name": "generates"}),
        priced.with_({"name": "trains"}, trainer_step_s=13, instance_tok_s=6000),
    ]
    way = next(way for way in fs.pack(jobs, gpus=2, switch_s=0).ways if way.kind == "by_phase")
    generates, trains = (share.usd / share.step_s for share in way.shares)
    assert trains > 4 * generates
    assert 3600 * (generates + trains) == pytest.approx(11)


@pytest.mark.usefixtures("quick")
def test_shared_pools_cost_what_both_have() -> None:
    """By phase each pool at its own price, in turn all GPUs as rollout's, and beside them the sandboxes of each job,
    which are those that are best for it there, however few it says."""
    a = fs.load(batch=32, len=200, max_len=400, trainer_step_s=5, trainer_gpus=1, instance_tok_s=2000, replications=1)
    priced = a.with_(instance_price=2, trainer_price=6, turns=2, tool_s=1, sandboxes=2, sandbox_price=0.1)
    found = fs.pack([priced.with_({"name": "a"}), priced.with_({"name": "b"})], gpus=2, switch_s=1.0)
    paid = {"1 + 1": 2 + 6, "all GPUs, a step each": 2 * 2}
    shared = [way for way in found.ways if way.kind != "apart"]
    assert len(shared) == 2
    for way in shared:
        sandboxes = [int(share.way.split()[-2]) for share in way.shares]
        assert min(sandboxes) > 2
        assert way.mean < 5
        an_hour = paid[way.label] + sum(sandboxes) * 0.1
        assert way.usd_per_round == pytest.approx(an_hour * way.shares[0].step_s / 3600, rel=0.02)


def test_a_job_on_gpus_of_its_own_says_the_workers_that_are_paid_for() -> None:
    """Those of the command that simulates it, not those of its file."""
    a = fs.load(batch=32, len=200, max_len=400, trainer_step_s=5, trainer_gpus=1, instance_tok_s=2000, replications=1)
    priced = a.with_(turns=2, tool_s=1, sandboxes=2, sandbox_price=0.1)
    found = fs.pack([priced.with_({"name": "a"}), priced.with_({"name": "b"})], gpus=4)
    apart = next(way for way in found.ways if way.kind == "apart")
    counted = [outcome.arrangement.scenario.stations.tools.workers for outcome in apart.outcomes]
    assert all(n is not None and n > 2 for n in counted)
    assert [share.way.rsplit(", ", 1)[-1] for share in apart.shares] == [f"{n} sandboxes" for n in counted]


def test_who_is_protected_keeps_its_step_or_nothing_is_advised() -> None:
    a = fs.load(batch=64, len=400, max_len=1024, trainer_step_s=10, trainer_gpus=1, sync_pause_s=1)
    jobs = [a.with_({"name": "first"}), a.with_({"name": "second"})]
    free = fs.pack(jobs, gpus=4)
    kept = fs.pack(jobs, gpus=4, protect={"first": 1000.0})
    assert kept.best == free.best or kept.best.shares[0].slower <= 11.0
    none = fs.pack(jobs, gpus=4, protect={"first": 0.0, "second": 0.0})
    assert none.best is None or none.best.worst <= 1.0
    assert "No way" in none.told().facts.answer if none.best is None else True


@pytest.mark.parametrize(
    ("jobs", "gpus", "says"), [(1, 16, "two jobs at least"), (5, 16, "4 at most"), (2, 0, "between 1 and"), (2, 1, "1")]
)
def test_what_cannot_be_shared_is_refused(jobs: int, gpus: int, says: str) -> None:
    job = fs.load(batch=64, len=400, trainer_step_s=10, trainer_gpus=1)
    with pytest.raises(InputError, match=says):
        fs.pack([job] * jobs, gpus=gpus)


def test_other_gpus_and_wrong_protections_are_refused() -> None:
    job = fs.load(batch=64, len=400, trainer_step_s=10, trainer_gpus=1)
    with pytest.raises(InputError, match="one type"):
        fs.pack([job, job.with_(gpu="A100")], gpus=16)
    with pytest.raises(InputError, match="JOB:PERCENT"):
        fs.pack([job, job], gpus=16, protect={"nobody": 5.0})


def test_a_timetable_without_a_switch_has_none() -> None:
    table: Timetable = rotate([(_phase("p", 2.0),), (_phase("p", 3.0),)], rounds=10, settling=2)
    assert table.step_s(0) == pytest.approx(5.0)
    assert table.seconds("p", switches=False) == pytest.approx(table.whole_s)
    assert table.seconds("p", switches=True) == 0.0
