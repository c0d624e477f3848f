"""A scraped run: what is read is what the fleet holds at that moment, and reading it changes nothing.

- looking is free: with and without scrapes, every other record is the same to the byte.
- exact in the middle of a jump: tokens and blocks are those of the iterations that are over.
- counters never fall while an instance's process lives, and begin at zero with the next one.
- what an instance runs and has waiting is what is in flight.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, load_scenario, with_changes
from fleetsim.config.data_files import find_preset
from fleetsim.engine.kernel import instance as kernel_instance
from fleetsim.engine.kernel import tables as t
from fleetsim.errors import InputError, StuckError
from fleetsim.sim import scrape
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.scrape import COUNTERS, Scraper, iterations_done
from tests.sim.random_scenarios import scenarios
from tests.sim.timelines import FREE, TOKENS_PER_S, scenario_of

BUSY = {"workload.output_tokens": {"mean": 300.0, "cv": 1.0, "max": 900.0}, "trainer.batch_samples": 64}
SHORT = {"run.steps": 6, "run.warmup_steps": 0, **BUSY}
PRESETS = ["verl-fully-async", "areal", "prime-rl", "trl-grpo", "verl-sync", "rollpacker", "laminar"]

TOTALS = ("generated_tokens", "prefilled_tokens", "hit_tokens", "preemptions")  # of STEP, as the first of COUNTERS


def bytes_of(records: Records) -> dict[str, bytes]:
    """Every column of every table; what lies between the columns of a row is nobody's."""
    columns = {
        f"{name}.{column}": rows[column].tobytes()
        for name, rows in records.tables().items()
        for column in rows.dtype.names or ()
    }
    return columns | {"updates": records.updates.tobytes()}


def outcome(scenario: Scenario, every_s: float | None) -> dict[str, bytes] | str:
    try:
        return bytes_of(simulate(scenario, scrape_every_s=every_s))
    except StuckError as stuck:
        return str(stuck)


@settings(max_examples=60)
@given(scenarios(), st.sampled_from([0.05, 0.37, 1.0, 15.0]))
def test_looking_changes_nothing(scenario: Scenario, every_s: float) -> None:
    assert outcome(scenario, every_s) == outcome(scenario, None)


def test_seconds_of_decoding_are_those_of_the_requests() -> None:
    """From its first token to the scrape, or to its end, each request decodes on its instance; pauses count."""
    records = simulate(with_changes(default_scenario(), {**SHORT, "sync.pause_s": 3.0}), scrape_every_s=0.37)
    table = records.scrapes.reshape(-1, records.scenario.fleet.instances)
    began = records.samples[records.samples["first_token_s"] >= 0.0]
    ends = np.where(began["finish_s"] >= 0.0, began["finish_s"], np.inf)
    for row in table[:: len(table) // 9]:
        seconds = np.maximum(0.0, np.minimum(ends, row["time_s"][0]) - began["first_token_s"])
        expected = np.bincount(began["instance"], seconds, len(row))
        np.testing.assert_allclose(row["decode_s"], expected, rtol=1e-9, atol=1e-9)


CASES: dict[str, dict[str, Any]] = {
    "one step ahead": {},
    "rolling sync": {"sync.scope": "rolling", "sync.pause_s": 2.0, "sync.publish_s": 1.0},
    "rolling drain": {"sync.scope": "rolling", "sync.pause_s": 2.0, "sync.in_flight": "drain"},
    "lending": {"fleet.placement": "colocated_lending", "fleet.switch_s": 1.0, "fleet.lending.instances": 2},
    "colocated": {"fleet.placement": "colocated", "admission.law": "barrier", "fleet.switch_s": 1.0},
    "failures": {"fleet.failures.mtbf_s": 40.0, "fleet.failures.restart_s": 9.0},
    "adaptive": {"admission.law": "adaptive", "admission.adaptive.interval_s": 0.7, "engine.kv_blocks": 900},
    "repack": {"fleet.repack.every_s": 1.3, "fleet.repack.below_kv_use": 0.5},
    "round robin under a cap": {"fleet.routing": "round_robin", "fleet.max_in_flight_samples_per_instance": 11},
    "sglang": {"engine.name": "sglang", "engine.kv_blocks": 20_000},
    "resized": {"run.events": [{"step": 2, "instances": 6}, {"step": 4, "instances": 2}]},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_looking_changes_nothing_in_any_arrangement(changes: dict[str, Any]) -> None:
    scenario = with_changes(default_scenario(), SHORT | {"fleet.instances": 4} | changes)
    plain = bytes_of(simulate(scenario))
    for every_s in (0.25, 1.0, 7.0):
        assert bytes_of(simulate(scenario, scrape_every_s=every_s)) == plain


@pytest.mark.parametrize("preset", PRESETS)
def test_looking_changes_nothing_in_presets(preset: str) -> None:
    scenario = with_changes(load_scenario(find_preset(preset)), {"run.steps": 3, "run.warmup_steps": 0})
    assert bytes_of(simulate(scenario, scrape_every_s=5.0)) == bytes_of(simulate(scenario))


@settings(max_examples=60)
@given(scenarios(), st.sampled_from([0.07, 0.9]))
def test_what_is_read_is_what_the_fleet_holds(scenario: Scenario, every_s: float) -> None:
    look = Scraper.look

    def checked(self: Scraper) -> float:
        fleet, now = self.fleet, self.due_s
        assert fleet.now == pytest.approx(now, abs=1e-9), "the clock stands at the scrape"
        due = look(self)
        self.read()
        seen, rows, samples = self.rows[-1], fleet.world.instances, fleet.world.samples
        assert seen["kv_use"] == pytest.approx([fleet.kv_use(i) for i in range(len(rows))], abs=1e-12)
        away = np.count_nonzero((samples["status"] == t.AWAY) & (samples["instance"] >= 0))
        assert seen["running"].sum() + seen["waiting"].sum() == fleet.get("in_flight") - away
        for i in np.flatnonzero(seen["running"]):
            here = samples[(samples["instance"] == i) & (samples["status"] == t.RUNNING)]
            assert len(here) == seen["running"][i]
        assert np.all((seen["running"] == 0) | seen["up"])
        return due

    with mock.patch.object(Scraper, "look", checked):
        try:
            records = simulate(scenario, scrape_every_s=every_s)
        except StuckError:
            return
    check_counters(records, every_s)


def test_how_many_looks_are_worked_out_at_once_does_not_matter() -> None:
    changes = {"run.steps": 12, "fleet.failures": {"mtbf_s": 200.0, "restart_s": 20.0}}
    scenario = with_changes(default_scenario(), changes)
    found = []
    for at_once in (1, 7, scrape.AT_ONCE):
        with mock.patch.object(scrape, "AT_ONCE", at_once):
            found.append(simulate(scenario, scrape_every_s=3.0).scrapes)
    assert found[0]["incarnation"].max() > 0
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def check_counters(records: Records, every_s: float) -> None:
    """Even times; counters that only grow; the totals of the steps lie between the scrapes around their ends."""
    times = records.queue_scrapes["time_s"]
    assert times == pytest.approx(np.arange(len(times)) * every_s)
    table = records.scrapes.reshape(len(times), -1)
    assert np.all(table["time_s"] == times[:, None])
    same = np.diff(table["incarnation"], axis=0) == 0
    assert np.all(np.diff(table["incarnation"], axis=0) >= 0)
    for name in COUNTERS:
        assert np.all(table[name] >= 0)
        assert np.all(np.diff(table[name], axis=0)[same] >= 0)
    assert np.all(table["born_s"] <= table["time_s"])
    if table["incarnation"].max() > 0:
        return  # what the dead had counted is lost, as it is in reality
    for step in records.steps:
        k = int(np.searchsorted(times, step["end_s"]))
        for name, total in zip(COUNTERS, TOTALS, strict=False):
            before, after = table[name][k - 1].sum(), table[name][min(k, len(times) - 1)].sum()
            # the step's total leaves out what a jump has made so far, and counts a prompt when it starts
            slack = table["running"][k - 1].sum() + records.samples["target"].sum() * (name == "generated")
            assert before <= step[total] + slack
            assert k == len(times) or step[total] <= after


@settings(max_examples=300)
@given(
    st.floats(1e-4, 0.5),
    st.one_of(st.just(0.0), st.floats(1e-9, 1e-2)),
    st.integers(0, 5000),
    st.floats(0, 1e6),
    st.floats(0, 1.2),
)
def test_iterations_that_are_over(first_s: float, slope_s: float, k: int, began: float, share: float) -> None:
    rows = np.zeros(1, t.INSTANCE)
    rows["kind"], rows["t0"], rows["first_s"], rows["slope_s"], rows["k"] = t.JUMP, began, first_s, slope_s, k

    def ends(n: int) -> float:
        return began + n * first_s + 0.5 * slope_s * n * (n - 1.0)

    now = began + share * (ends(k) - began)
    done = int(iterations_done(rows, now)[0])
    rounding = 1e-9 * (1.0 + now)
    assert 0 <= done <= k
    assert ends(done) <= now + rounding
    assert done == k or ends(done + 1) > now - rounding
    rows["kind"] = t.STEP
    assert iterations_done(rows, now)[0] == 0


def test_the_same_rounding_as_the_kernel() -> None:
    assert scrape.EPSILON == kernel_instance.EPSILON


def test_tokens_in_the_middle_of_a_jump() -> None:
    # One engine makes 100 tokens a second of each of its two requests; the first token of a response costs as much.
    records = simulate(
        scenario_of({"workload.output_tokens": 700, "run.steps": 1, "admission.law": "barrier"}),
        engine=FREE,
        scrape_every_s=0.625,
    )
    made = records.scrapes["generated"]
    expected = np.minimum(2 * np.floor(records.scrapes["time_s"] * TOKENS_PER_S + 1e-6), 1400)
    assert made.tolist() == expected.tolist()
    assert made[-1] == records.steps["generated_tokens"][-1] == 1400


def test_the_last_scrape_has_the_totals_of_the_run() -> None:
    # The trainer is held for a second in which the fleet has long gone on: nothing is sent at the end of the step.
    quiet = {"sync.pause_s": 0.0, "sync.publish_s": 0.0, "sync.trainer_block_s": 1.0}
    scenario = with_changes(default_scenario(), SHORT | {"fleet.instances": 3} | quiet)
    end = simulate(scenario).steps[-1]
    last = simulate(scenario, scrape_every_s=end["end_s"] / 7).scrapes[-3:]
    assert last["time_s"] == pytest.approx(end["end_s"])
    for name in ("prefilled", "hit_tokens"):
        assert last[name].sum() == end[{"prefilled": "prefilled_tokens"}.get(name, name)]
    assert last["preemptions"].sum() == end["preemptions"]
    assert last["generated"].sum() >= end["generated_tokens"], "and what the jumps under way have made"


def test_a_restart_begins_the_counters_anew() -> None:
    changes = SHORT | {"run.steps": 60, "fleet.failures.mtbf_s": 60.0, "fleet.failures.restart_s": 9.0}
    records = simulate(with_changes(default_scenario(), changes), scrape_every_s=1.0)
    assert len(records.failures) > 5
    table = records.scrapes.reshape(-1, 8)
    for failure in records.failures:
        i, down, up = failure["instance"], failure["down_s"], failure["up_s"]
        column = table[:, i]
        # it dies at the end of the iteration that is under way
        inside = (column["time_s"] > down + 0.5) & (column["time_s"] < up)
        assert not column["up"][inside].any()
        after = column[column["time_s"] >= up][:1]
        if len(after) and after["up"][0]:
            assert after["born_s"][0] == up
            assert after["generated"][0] <= 0.1 * column["generated"].max()
    # one that is still down at the last scrape has not begun anew
    restarted = records.failures["up_s"] <= table[-1]["time_s"][0]
    assert table[-1]["incarnation"].sum() == np.count_nonzero(restarted)


def test_what_the_queue_held() -> None:
    # Two seconds a response, four a step: the fleet is ahead, and what is ready waits for the trainer.
    records = simulate(
        scenario_of(
            {"workload.output_tokens": 200, "admission.law": "batches_ahead", "run.steps": 3}
            | {"admission.batches_ahead": 2}
        ),
        engine=FREE,
        scrape_every_s=1.0,
    )
    queue = records.queue_scrapes
    ready = records.groups["ready_s"]
    left = np.where(records.groups["left_s"] < 0, np.inf, records.groups["left_s"])
    for row in queue[1:]:
        now = row["time_s"]
        sure = [np.count_nonzero((ready >= 0) & (ready < now - e) & (left > now + e)) for e in (0.1, -0.1)]
        assert sure[0] <= row["samples"] <= sure[1]
    assert queue["samples"].max() == 4
    assert queue["oldest_age_steps"].max() == 1


def test_scraped_for_a_while_only() -> None:
    scenario = with_changes(default_scenario(), SHORT)
    every, some = (
        simulate(scenario, scrape_every_s=2.0),
        simulate(scenario, scrape_every_s=2.0, scrape_between_s=(10.0, 21.0)),
    )
    times = every.scrapes["time_s"]
    assert some.scrapes.tobytes() == every.scrapes[(times >= 10.0) & (times <= 21.0)].tobytes()
    assert some.queue_scrapes["time_s"].tolist() == [10.0, 12.0, 14.0, 16.0, 18.0, 20.0]
    assert bytes_of(some) == bytes_of(every)


def test_a_bad_interval_is_refused() -> None:
    for every_s in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="scrape_every_s"):
            simulate(default_scenario(), scrape_every_s=every_s)


def test_a_step_of_years_is_refused_and_not_scraped_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    years = with_changes(default_scenario(), {"trainer.fixed_s": 9e8, "run.steps": 3})
    with pytest.raises(InputError, match="in another unit"):
        simulate(years, scrape_every_s=9e8 / scrape.MOST_LOOKS / 4)
    instances = default_scenario().fleet.instances
    monkeypatch.setattr(scrape, "MOST_ROWS", 100 * instances)
    day = with_changes(default_scenario(), {"run.steps": 6})
    with pytest.raises(InputError, match="100 in "):
        simulate(day, scrape_every_s=0.1)


def test_an_unscraped_run_has_no_scrapes() -> None:
    records = simulate(with_changes(default_scenario(), SHORT))
    assert len(records.scrapes) == len(records.queue_scrapes) == 0
