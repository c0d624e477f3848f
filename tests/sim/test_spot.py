"""Spot machines against timelines by hand, closed forms and sums that must agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.config.load import default_scenario, load_scenario, with_changes
from fleetsim.config.scenario import Scenario, reclaims_s
from fleetsim.engine.prices import prices_of
from fleetsim.errors import InputError, StuckError
from fleetsim.forecast.totals import gpus_of
from fleetsim.search.arrangements import colocated_sync, split
from fleetsim.search.objective import price_per_s, usd_per_h
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from fleetsim.workload.streams import stream

# 120 s a step; an instance makes a batch of 64 in 33 s, so that two of four are enough.
BASE: dict[str, Any] = {
    "engine.kind": "constant", "engine.instance_tok_s": 2000.0, "workload.output_tokens": 1024,
    "workload.prompt_tokens": 8, "trainer.batch_samples": 64, "trainer.fixed_s": 120.0, "fleet.instances": 4,
    "sync.pause_s": 0.0, "sync.publish_s": 0.0, "sync.trainer_block_s": 0.0,
}  # fmt: skip


def _job(**spot: Any) -> Scenario:
    changes = {"share": 0.5, **spot}
    return with_changes(default_scenario(), {**BASE, **{f"fleet.spot.{name}": x for name, x in changes.items()}})


def _trace(folder: Path, text: str, name: str = "trace.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_trace_takes_and_gives_machines_to_the_second(tmp_path: Path) -> None:
    """Two spot machines; 1,000 s of each 3,000 there is one. The newest goes, is empty or ends 60 s after its notice,
    and serves 40 s after it is found."""
    trace = _trace(tmp_path, "time_s,instances\n0,2\n1000,1\n2000,2\n3000,2\n")
    run = simulate(with_changes(_job(trace=trace, notice_s=60.0, start_s=40.0), {"run.steps": 60}))
    began = stream(0, 0, "spot trace").random() * 3000.0
    lost, found = ([t + 3000.0 * k - began for k in range(4)] for t in (1000.0, 2000.0))
    assert set(run.failures["instance"]) == {3}
    end = run.steps["end_s"][-1]
    pairs = [(t, next(f for f in found if f > t)) for t in lost if 0.0 <= t < end]
    if began > 1000.0:  # it began without the machine
        pairs.insert(0, (0.0, next(f for f in found if f > 0.0)))
    pairs = [(a, b + 40.0 if b + 40.0 < end else np.inf) for a, b in pairs]
    assert run.failures["down_s"].tolist() == pytest.approx([a for a, _ in pairs])
    assert run.failures["up_s"].tolist() == pytest.approx([b for _, b in pairs])


@pytest.mark.parametrize("replication", range(4))
def test_a_machine_that_is_not_back_by_the_end_does_not_serve(tmp_path: Path, replication: int) -> None:
    """Two spot machines, both there for 2,000 of each 9,000 s. Seconds and reclaims are counted by hand."""
    trace = _trace(tmp_path, "time_s,instances\n0,2\n2000,0\n9000,0\n")
    run = simulate(with_changes(_job(trace=trace, start_s=100.0), {"run.steps": 60}), replication=replication)
    at = stream(0, replication, "spot trace").random() * 9000.0
    window, spot = window_of(run), metrics_of(run)["spot"]
    falls = [k * 9000.0 + 2000.0 - at for k in (0, 1)]
    # Serving from its start (of the run, for a run that begins with machines) to its notice.
    shown = [(max(0.0, fall - 1900.0) if k or at >= 2000.0 else 0.0, fall) for k, fall in enumerate(falls)]
    served = sum(max(0.0, min(b, window.end_s) - max(a, window.start_s)) for a, b in shown)
    assert spot["serving"] == pytest.approx(served / window.span_s, abs=1e-9)
    inside = sum(window.start_s < fall <= window.end_s for fall in falls)
    assert spot["reclaims_per_h"] == pytest.approx(2 * inside * 3600.0 / window.span_s)


def test_machines_that_are_away_for_longer_than_a_run_are_away_in_it() -> None:
    """Of a machine that begins there, is lost at rate a and found at rate b, the chance to serve at t is
    (b + a exp(-(a + b) t)) / (a + b); it is lost a times so often in a second. 40 runs of an hour, four machines."""
    a, b = 1.0 / 1800.0, 1.0 / 1e5
    job = _job(share=1.0, mean_life_s=1 / a, mean_absence_s=1 / b, start_s=0.0, on_notice="move", notice_s=0.0)
    job = with_changes(job, {"fleet.instances": 4, "fleet.pools.own.instance_tok_s": 4000.0, "run.steps": 30})
    served, expected, lost = [], [], []
    for r in range(40):
        run = simulate(job, replication=r)
        window = window_of(run)
        faded = (np.exp(-(a + b) * window.start_s) - np.exp(-(a + b) * window.end_s)) / (a + b)
        expected.append((b * window.span_s + a * faded) / (a + b) / window.span_s)
        spot = metrics_of(run)["spot"]
        served.append(spot["serving"])
        lost.append(spot["reclaims_per_h"] - 4 * 3600.0 * a * spot["serving"])
    off = np.array(served) - expected
    assert abs(off.mean()) < 4 * off.std(ddof=1) / len(off) ** 0.5
    assert abs(np.mean(lost)) < 4 * np.std(lost, ddof=1) / len(lost) ** 0.5
    assert off.std(ddof=1) / len(off) ** 0.5 < 0.05 < 0.4 < 1 - np.mean(served)


@pytest.mark.parametrize("together", [0.0, 0.7])
def test_a_machine_serves_for_its_share_of_the_time(together: float) -> None:
    """Alternating renewal: life / (life + absence + start), whatever goes together; work moves at once, so the notice
    takes nothing. 20 runs of 300 steps; the mean lies within four of its own standard errors."""
    job = _job(
        share=1.0, mean_life_s=3000.0, mean_absence_s=900.0, start_s=300.0, on_notice="move", notice_s=0.0,
        together=together,
    )  # fmt: skip
    job = with_changes(job, {"run.steps": 300})
    served = np.array([metrics_of(simulate(job, replication=r))["spot"]["serving"] for r in range(20)])
    error = served.std(ddof=1) / len(served) ** 0.5
    assert served.mean() == pytest.approx(3000.0 / 4200.0, abs=4 * error)
    assert error < 0.02


@pytest.mark.parametrize(
    ("text", "count", "share"),
    [
        ("0,4\n300,0\n3000,0\n", 4, 400.0 / 3000.0),  # 300 s and the notice
        ("0,4\n300,0\n3000,0\n", 8, 200.0 / 3000.0),
        ("0,2\n1000,1\n1050,2\n1100,0\n2000,2\n3000,2\n", 2, 2200.0 / 3000.0),  # back within its notice
        ("0,0\n1000,3\n2000,1\n3000,1\n", 3, (1000.0 * 3 + 1000.0 + 2 * 100.0 + 100.0) / 9000.0),
    ],
)
def test_a_trace_s_machines_are_paid_for_while_they_can_be_had(
    tmp_path: Path, text: str, count: int, share: float
) -> None:
    """Seconds by hand; and what runs are charged whose work lasts longer than any notice, or leaves at once."""
    job = _job(share=1.0, trace=_trace(tmp_path, _HEAD + text), notice_s=100.0, start_s=40.0)
    own = {"fleet.instances": count, "fleet.pools.own.instance_tok_s": 4000.0, "fleet.pools.own.weight": 1.0}
    job = with_changes(job, {**own, "run.steps": 600, "engine.instance_tok_s": 50.0})
    assert job.fleet.held_share(count) == pytest.approx(share)
    moved = with_changes(job, {"fleet.spot.on_notice": "move"})
    for of, shortest in ((job, 0.97), (moved, 0.999)):
        last = simulate(of).steps[-1]
        # A batch of 600 steps is no whole number of periods: one of them may be missing, or too many.
        paid, whole = last["spot_s"] / count, of.fleet.held_share(count)
        assert shortest * whole * (last["end_s"] - 3000.0) <= paid <= whole * (last["end_s"] + 3000.0)


def test_a_machine_that_is_gone_before_it_has_started_never_serves(tmp_path: Path) -> None:
    job = _job(trace=_trace(tmp_path, f"{_HEAD}0,2\n300,0\n3000,0\n"), start_s=400.0)
    run = simulate(with_changes(job, {"run.steps": 200}))
    assert metrics_of(run)["spot"] == {"serving": 0.0, "reclaims_per_h": 0.0, "worst_hour": pytest.approx(1.0)}


def test_a_machine_that_a_trace_never_has_costs_nothing_and_counts(tmp_path: Path) -> None:
    job = _job(share=1.0, trace=_trace(tmp_path, "time_s,instances\n0,4\n3000,4\n"))
    assert usd_per_h(job, 6) == pytest.approx(usd_per_h(job, 4))
    assert gpus_of(with_changes(job, {"fleet.instances": 6})) == gpus_of(job)
    prices = [price_per_s(job, n) for n in (3, 4, 5)]
    assert prices[2] - prices[1] == pytest.approx(prices[1] - prices[0])


def test_reclaims_that_go_together_are_rarer_and_deeper() -> None:
    """The same lives; but of four instances that go together now and then none is left."""
    job = with_changes(_job(share=1.0, mean_life_s=3000.0, mean_absence_s=900.0), {"run.steps": 400})
    runs = [[simulate(with_changes(job, {"fleet.spot.together": p}), replication=r) for r in range(6)] for p in (0, 1)]
    alone, all_ = (np.concatenate([run.steps["instances"] for run in of]) for of in runs)
    assert (all_ == 0).mean() > 4 * (alone == 0).mean()
    gone = [run.failures["down_s"] for run in runs[1]]
    assert sum(len(np.unique(at)) for at in gone) < 0.5 * sum(map(len, gone))


def test_machines_that_stay_change_nothing_but_the_price() -> None:
    """Byte for byte the run without spot machines; half of the rollout GPU-hours cost what spot costs."""
    plain = with_changes(default_scenario(), {**BASE, "run.steps": 20})
    spot = with_changes(_job(mean_life_s=1e9), {"run.steps": 20, "cost.spot_price_usd_per_gpu_h": 1.0})
    a, b = simulate(plain), simulate(spot)
    for name, table in a.tables().items():
        for column in set(table.dtype.names) - {"spot_s"}:
            assert table[column].tobytes() == b.tables()[name][column].tobytes(), (name, column)
    prices = prices_of(plain)
    saved = (prices.rollout - 1.0) * 2 * plain.engine.gpus / 3600.0
    left, right = metrics_of(a), metrics_of(b)
    assert right["cost_per_step"] == pytest.approx(left["cost_per_step"] - saved * left["step_s"])
    assert usd_per_h(spot, 4) == pytest.approx(usd_per_h(plain, 4) - 3600.0 * saved)


@pytest.mark.parametrize("on_notice", ["finish", "move"])
def test_every_second_of_a_machine_is_paid_once(on_notice: str) -> None:
    """Instances on demand are paid all the time, spot machines for what is left of the fleet's seconds."""
    run = simulate(with_changes(_job(mean_life_s=1200.0, on_notice=on_notice), {"run.steps": 200}))
    last = run.steps[-1]
    held = sum(last[f"{name}_s"] for name in ("busy", "paused", "idle", "down"))
    assert last["spot_s"] == pytest.approx(held - 2 * last["end_s"])
    away = (run.failures["up_s"] - run.failures["down_s"]).sum()
    assert 2 * last["end_s"] - last["spot_s"] <= away
    assert len(run.failures) > 5


def test_work_that_moves_loses_nothing_and_work_that_stays_is_made_again() -> None:
    """A response of 300 s, machines that end 10 s after their notice."""
    job = _job(share=1.0, mean_life_s=900.0, notice_s=10.0)
    slow = with_changes(job, {"engine.instance_tok_s": 60.0, "run.steps": 30})
    stays = metrics_of(simulate(slow))["waste"]
    moves = metrics_of(simulate(with_changes(slow, {"fleet.spot.on_notice": "move"})))["waste"]
    assert moves["lost"] == 0.0 < stays["lost"]


def test_a_life_shorter_than_any_response_is_told_and_ends() -> None:
    job = _job(share=1.0, mean_life_s=1.0, notice_s=0.0, mean_absence_s=1.0, start_s=0.0)
    with pytest.raises(StuckError, match="before they finish"):
        simulate(with_changes(job, {"engine.instance_tok_s": 1.0, "run.steps": 4}))


_HEAD = "time_s,instances\n"


def test_a_run_lasts_for_several_reclaims_of_its_trace(tmp_path: Path) -> None:
    """Three machines of which four are asked: one goes at 1,000 and one at 2,000 s, of 10,000; they are missing for
    1,000 and 7,000 s. Without a drop nothing is waited for."""
    job = _job(share=1.0, trace=_trace(tmp_path, "time_s,instances\n0,3\n1000,2\n2000,2\n2000.5,1\n9000,3\n10000,3\n"))
    absent_s = (1 * (2000.5 - 1000) + 2 * (9000 - 2000.5)) / 2
    spot = job.fleet.spot
    assert reclaims_s(job) == pytest.approx(8 * max(absent_s + spot.notice_s + spot.start_s, 10_000 / 2))
    assert reclaims_s(_job(share=1.0, trace=_trace(tmp_path, "time_s,instances\n0,4\n5000,4\n"))) == 0.0


@pytest.mark.parametrize(
    "text",
    ["", "time_s,count\n0,1\n", f"{_HEAD}0,x\n", f"{_HEAD}0,2\n0,1\n", f"{_HEAD}5,2\n9,2\n", f"{_HEAD}0,nan\n9,2\n",
     f"{_HEAD}0,0\n9,0\n", f"{_HEAD}0,1\n0.5,2\n1,1\n", '{"data": [1]}', '{"metadata": 3}'],
)  # fmt: skip
def test_what_is_no_trace_is_refused_with_a_remedy(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as error:
        simulate(with_changes(_job(trace=_trace(tmp_path, text)), {"run.steps": 4}))
    assert error.value.problems[0].path == "fleet.spot.trace"
    assert error.value.problems[0].remedy


def test_skypilot_s_form_is_read_and_stands_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "zone.json").write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [2, 1, 0, 2]}))
    (tmp_path / "job.yaml").write_text(
        "fleet: {instances: 4, spot: {share: 0.5, trace: zone.json}}\nrun: {steps: 60}\n"
    )
    run = simulate(with_changes(load_scenario(tmp_path / "job.yaml"), {"trainer.fixed_s": 60.0}))
    assert set(run.failures["instance"]) == {2, 3}


def test_shared_gpus_are_no_spot_machines() -> None:
    with pytest.raises(InputError, match="colocated"):
        with_changes(_job(), {"fleet.placement": "colocated"})
    with_spot = with_changes(_job(), {"trainer.gpus": 4})
    assert colocated_sync(with_spot, 8).scenario.fleet.spot.share == 0.0
    assert split(with_spot, 4, 8).scenario.fleet.spot.share == 0.5


@pytest.mark.parametrize("laws", [{"zones": 2, "together": 0.5, "on_notice": "move"}, {"notice_s": 5.0}])
def test_a_second_pool_of_the_same_make_on_spot_machines_is_a_fleet_of_which_so_many_are(laws: dict[str, Any]) -> None:
    """The same machines under another name: every step, loss and dollar is the same."""
    each = {"mean_life_s": 300.0, "mean_absence_s": 150.0, **laws}
    one = with_changes(_job(**each), {"run.steps": 40})
    second = {"fleet.second.instance_tok_s": 2000.0, "fleet.second.instances": 2, "fleet.second.on_spot": True}
    two = with_changes(one, {"fleet.instances": 2, "fleet.spot.share": 0.0, **second})
    runs, metrics = [simulate(s) for s in (one, two)], [metrics_of(simulate(s)) for s in (one, two)]
    assert len(runs[0].failures) > 10
    assert np.array_equal(runs[0].failures, runs[1].failures)
    assert np.array_equal(runs[0].steps["end_s"], runs[1].steps["end_s"])
    assert metrics[0]["spot"] == metrics[1]["spot"]
    assert metrics[0]["cost_per_step"] == pytest.approx(metrics[1]["cost_per_step"], rel=1e-12)
    assert usd_per_h(one, 4) == pytest.approx(usd_per_h(two, 2), rel=1e-12)
    paid = with_changes(two, {"fleet.second.on_spot": False})
    assert metrics_of(simulate(paid))["cost_per_step"] > 1.1 * metrics[1]["cost_per_step"]
    assert "spot" not in metrics_of(simulate(paid))


def test_a_trace_takes_and_gives_the_machines_of_both_pools(tmp_path: Path) -> None:
    trace = _trace(tmp_path, "time_s,instances\n0,4\n1000,0\n2000,4\n3000,4\n")
    second = {"fleet.second.instance_tok_s": 2000.0, "fleet.second.instances": 2, "fleet.second.on_spot": True}
    run = simulate(with_changes(_job(trace=trace), {**second, "run.steps": 60}))
    assert set(run.failures["instance"]) == {2, 3, 4, 5}
