"""Every question of the runbook: where it is the fault, where its neighbour is, where the window cannot say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from fleetsim.config.load import scenario_from_mapping
from fleetsim.config.scenario import Scenario
from fleetsim.records import replace
from fleetsim.replay.diagnose.checks.case import Gains, round_count
from fleetsim.replay.diagnose.cures import cures_of
from fleetsim.replay.diagnose.diagnosis import CHECKS, diagnose
from fleetsim.replay.diagnose.finding import Check, Finding, Verdict, pools_of, settle
from fleetsim.replay.observe.lengths import expected_hits
from fleetsim.replay.observe.observed import Observed, Reading
from fleetsim.replay.words import price_words
from tests.replay.windows import (
    ENGINES_ONLY,
    HEALTHY,
    RUN_LOG_ONLY,
    STARVED,
    exported,
    hours,
    instance,
    instances,
    pauses,
    window,
)

DEFAULT = Scenario()
ORDER = (
    "data", "trainer", "sync", "stragglers", "prefix_cache", "in_flight_cap", "max_num_seqs", "preemptions", "rollout",
    "backlog", "model",
)  # fmt: skip


def scenario(*overrides: str) -> tuple[Scenario, frozenset[str]]:
    return scenario_from_mapping({}, "test", overrides), frozenset(o.partition("=")[0] for o in overrides)


def judged(observed: Observed, *overrides: str) -> Verdict:
    base, given = scenario(*overrides)
    return diagnose(observed, base, given=given)


def finding(verdict: Verdict, check: str) -> Finding:
    return next(f for f in verdict.findings if f.check == check)


def states(observed: Observed, *overrides: str) -> dict[str, str]:
    return {f.check: f.state for f in judged(observed, *overrides).findings}


def text(f: Finding) -> str:
    return " | ".join((f.title, *f.evidence, f.next or ""))


# ------------------------------------------------------------------------------------------------------------ order


def test_all_questions_are_answered_in_the_runbooks_order() -> None:
    assert tuple(f.check for f in judged(HEALTHY).findings) == ORDER
    assert len(CHECKS) == len(ORDER)


def test_a_healthy_window_has_no_fault_and_says_so() -> None:
    verdict = judged(HEALTHY)
    assert verdict.binding is None
    assert verdict.starves == "neither"
    assert "2.1 %" in verdict.headline
    assert all(f.gpu_h_per_day is None for f in verdict.findings)
    assert {f.check for f in verdict.findings if f.state == "unknown"} == {"model"}


def test_the_first_fault_binds() -> None:
    both = window(**STARVED, **{"fleet.preemptions_per_s": 5.0, "trainer.train_s": exported(22.5)})
    slow = judged(both, "trainer.fixed_s=15")
    assert slow.binding == "trainer"
    assert finding(slow, "preemptions").state == "fault"
    assert judged(both).binding == "preemptions"
    assert slow.headline.startswith("The trainer waits for samples 36.5 % of every step: the trainer computes longer")


# ------------------------------------------------------------------------------------------------------------- data


def test_data_too_few_steps_too_many_gaps_no_engines() -> None:
    assert finding(judged(HEALTHY), "data").state == "ok"
    few = finding(judged(window(**{"trainer.steps": exported(4.0)})), "data")
    assert (few.state, few.title) == ("unknown", "only 4 optimizer steps")
    gaps = judged(window(gap_share=0.3))
    assert (finding(gaps, "data").state, gaps.binding) == ("fault", "data")
    assert judged(window(**STARVED, gap_share=0.3)).binding == "rollout"  # what to change in the job comes first
    log = judged(RUN_LOG_ONLY)
    assert finding(log, "data").title.startswith("a run log alone")
    assert log.starves == "neither"


def test_ten_percent_of_the_samples_missing_is_told_and_does_not_stop_the_verdict() -> None:
    f = finding(judged(window(gap_share=0.1)), "data")
    assert f.state == "ok"
    assert "10.0 % of the instances' time has no values" in text(f)


# ---------------------------------------------------------------------------------------------------------- trainer


def test_trainer_slower_than_its_scenario() -> None:
    f = finding(judged(HEALTHY, "trainer.fixed_s=15"), "trainer")
    assert f.state == "fault"
    assert "the scenario says 15.0 s (+50.0 %)" in text(f)
    # a step that is 7.5 s of 24 s shorter takes so much less of both pools
    assert f.gpu_h_per_day == pytest.approx(24 * (8 + 8) * 7.5 / 24)
    assert f.usd_per_day == pytest.approx(3.64 * f.gpu_h_per_day)


def test_trainer_that_gets_slower_within_the_window() -> None:
    f = finding(judged(window(hours=hours(growth=0.3))), "trainer")
    assert (f.state, f.title) == ("fault", "getting slower")


def test_trainer_whose_responses_grow_is_not_at_fault() -> None:
    grown = window(hours=hours(growth=0.3), **{"lengths.drift_per_h": 0.06})
    f = finding(judged(grown), "trainer")
    assert f.state == "ok"
    assert "the workload changed, not the trainer" in text(f)


def test_trainer_that_waits_longer_is_not_getting_slower() -> None:
    longer = tuple(replace(h, step_s=24.0 + 4 * k, idle_fraction=4 * k / (24.0 + 4 * k)) for k, h in enumerate(hours()))
    assert states(window(**{**STARVED, "hours": longer}))["trainer"] == "ok"


def test_seconds_held_by_sync_are_not_the_trainers() -> None:
    """From 1 to 6 of them, in six hours: the sync is the fault, and no second is paid for twice."""
    held = [1.0 + k for k in range(6)]
    slower = tuple(
        replace(h, step_s=23.0 + s, idle_fraction=0.02, sync_fraction=s / (23.0 + s))
        for h, s in zip(hours(), held, strict=True)
    )
    changes = {"hours": slower, "trainer.step_s": exported(26.5), "trainer.sync_s": exported(3.5)}
    verdict = judged(window(**changes))
    assert finding(verdict, "trainer").state == "ok"
    assert verdict.binding == "sync"
    # The same without exported sync seconds: the pauses say it.
    silent = tuple(replace(h, sync_fraction=None) for h in slower)
    stops = pauses(1.0, 24.0)
    each = tuple(
        replace(p, end_s=p.start_s + held[min(5, int((p.start_s - HEALTHY.start_s) // 3600))]) for p in stops.each
    )
    unsaid = {**changes, "hours": silent, "trainer.sync_s": None, "pauses": replace(stops, each=each)}
    assert states(window(**unsaid))["trainer"] == "ok"
    assert states(window(**{**unsaid, "pauses": None}))["trainer"] == "fault"


def test_what_is_left_of_a_step_that_mostly_waits_is_known_too_roughly_to_drift() -> None:
    waits = tuple(replace(h, step_s=68.0, idle_fraction=0.92 - 0.004 * k) for k, h in enumerate(hours()))
    assert states(window(**{**STARVED, "hours": waits}))["trainer"] == "ok"


def test_trainer_as_its_scenario_says_is_ok_and_a_default_is_no_evidence() -> None:
    assert states(HEALTHY, "trainer.fixed_s=22")["trainer"] == "ok"
    assert "scenario" not in text(finding(judged(HEALTHY), "trainer"))  # the default's 20 s are nobody's


def test_trainer_that_exports_nothing_is_unknown() -> None:
    assert states(ENGINES_ONLY)["trainer"] == "unknown"


# ------------------------------------------------------------------------------------------------------------- sync


def test_sync_that_stops_the_engines() -> None:
    f = finding(judged(window(pauses=pauses(4.0, 24.0))), "sync")
    assert f.state == "fault"
    assert "16.7 % of the time with work in hand: 900 pauses, 4.0 s on average (inferred" in text(f)
    # of a trainer that is held 1 s of a step and does not wait; and of engines that stand 4 s
    assert f.gpu_h_per_day == pytest.approx(24 * 8 * (4 / 24 + 1 / 24), rel=1e-3)


def test_sync_that_holds_the_trainer() -> None:
    f = finding(judged(window(**{"trainer.sync_s": exported(4.0)})), "sync")
    assert f.state == "fault"
    assert "held 4.0 s of a step (16.7 %)" in text(f)


def test_sync_that_overruns_its_scenario_beyond_the_scrape_interval() -> None:
    slow = window(pauses=pauses(40.0, 1200.0))
    assert finding(judged(slow, "sync.pause_s=10"), "sync").title == "longer than the scenario says"
    assert states(slow, "sync.pause_s=30")["sync"] == "ok"
    blurred = window(pauses=pauses(20.0, 1200.0))
    assert states(blurred, "sync.pause_s=10")["sync"] == "ok"  # ten seconds over, at a scrape interval of fifteen
    counted = window(pauses=pauses(20.0, 1200.0, source="counter"))
    assert states(counted, "sync.pause_s=10")["sync"] == "fault"


def test_engines_without_work_are_not_paused_by_a_sync() -> None:
    barrier = window(pauses=pauses(10.0, 24.0, empty=True))
    assert states(barrier)["sync"] == "ok"
    assert states(window(placement="colocated", pauses=pauses(10.0, 24.0, empty=True)))["sync"] == "ok"


def test_sync_that_nobody_shows_is_unknown() -> None:
    assert states(window(pauses=None, **{"trainer.sync_s": None}))["sync"] == "unknown"


# ------------------------------------------------------------------------------------------------------- stragglers


def test_a_straggler_is_named_and_costs_what_it_loses() -> None:
    slow = (*instances(7), instance(7, pace=0.6, straggler=True))
    f = finding(judged(window(instances=slow)), "stragglers")
    assert f.state == "fault"
    assert "rollout-7 makes 60.0 % of the median instance's rate" in text(f)
    assert f.gpu_h_per_day == pytest.approx(24 * 8 * 0.05)


def test_a_wide_spread_at_equal_pace_is_placement() -> None:
    uneven = (*(instance(n, running=90.0) for n in range(4)), *(instance(n, running=20.0) for n in range(4, 8)))
    f = finding(judged(window(instances=uneven, **{"fleet.tok_s_cv": 0.4})), "stragglers")
    assert f.state == "fault"
    assert "from 20 to 90" in text(f)


def test_a_slow_trainer_is_no_straggler_and_two_instances_have_no_median() -> None:
    assert states(window(**STARVED))["stragglers"] == "ok"
    assert states(window(instances=instances(2)))["stragglers"] == "unknown"


# ------------------------------------------------------------------------------------------------------ prefix cache


def test_expected_hits_are_those_that_vllm_shows() -> None:
    # Measured on vLLM: n = 8, prompts of 300 tokens, blocks of 32: seven siblings hit 288 tokens each.
    assert expected_hits(8, 300, 32) == pytest.approx(7 * 288 / (8 * 300))
    assert expected_hits(1, 300, 32) == 0
    assert expected_hits(8, 16, 16) == 0


LONG_PROMPTS = {**STARVED, "lengths.prompt_mean": 6000.0, "fleet.prefix_hit": 0.05, "fleet.finished_s": 21.0}


def test_low_hits_on_a_group_workload() -> None:
    f = finding(judged(window(**LONG_PROMPTS)), "prefix_cache")
    assert f.state == "fault"
    assert "allow 87.3 %" in text(f)
    assert f.gpu_h_per_day == pytest.approx(24 * (8 + 8) * 13.5 / 37)  # at most the trainer's wait


def test_siblings_spread_over_the_fleet_are_sent_together() -> None:
    places = 8 * (1 - (7 / 8) ** 8)
    spread = window(**{**LONG_PROMPTS, "fleet.prefix_hit": expected_hits(8, 6000, 16, places)})
    f = finding(judged(spread), "prefix_cache")
    assert f.state == "fault"
    assert "fleet.group_placement=together" in text(f)


def test_caching_that_is_off_is_a_flag() -> None:
    off = window(**{**LONG_PROMPTS, "fleet.prefix_hit": None, "prefix_caching": False})
    assert "--enable-prefix-caching" in text(finding(judged(off), "prefix_cache"))


def test_low_hits_cost_nothing_where_the_trainer_does_not_wait_or_a_simulation_says_so() -> None:
    short = {"lengths.prompt_mean": 60.0, "fleet.prefix_hit": 0.0}
    assert finding(judged(window(**short)), "prefix_cache").title == "low hits, at no cost to the trainer"
    base, given = scenario()
    waits = window(**STARVED, **short)
    assert finding(diagnose(waits, base, given=given), "prefix_cache").state == "fault"
    tried = finding(diagnose(waits, base, given=given, gains=Gains({"prefix_cache": 0.001})), "prefix_cache")
    assert (tried.state, tried.title) == ("ok", "low hits on a group workload; that costs nothing now")


def test_no_groups_no_hits_to_be_had() -> None:
    alone = window(**STARVED, **{"lengths.group_size": exported(1.0), "fleet.prefix_hit": 0.02})
    # n = 1 may be a client that sends each sample by itself: hits below those of pairs are told.
    assert "groups of only two samples" in text(finding(judged(alone), "prefix_cache"))
    assert states(alone, "workload.group_size=1")["prefix_cache"] == "ok"


@pytest.mark.parametrize(
    "changes",
    [
        {"fleet.prefix_hit": None},
        {"lengths": None},
        {"lengths.group_size": None},
        {"lengths.group_size": Reading(8.0, "inferred")},  # read off the hit ratio: it cannot contradict it
    ],
)
def test_hits_that_cannot_be_judged(changes: dict[str, Any]) -> None:
    assert states(window(**changes))["prefix_cache"] == "unknown"


# ----------------------------------------------------------------------------------------------------- in-flight cap

CAPPED = {**STARVED, "fleet.in_flight_mean": 505.0, "fleet.in_flight_peak": 512.0, "fleet.running": 505.0}


def test_a_client_cap_binds_while_engines_have_room() -> None:
    verdict = judged(window(**CAPPED))
    f = finding(verdict, "in_flight_cap")
    assert verdict.binding == "in_flight_cap"
    assert "512 at the most (1.00 batches)" in text(f)
    assert "--set fleet.max_in_flight_samples=819" in text(f)  # KV use of 50 % leaves room for 1.6 times as much
    assert "inferred" in text(f)
    assert f.gpu_h_per_day == pytest.approx(
        24 * (8 + 8) * 13.5 / 37
    )  # a step without the wait takes less of both pools
    assert f.step_share == pytest.approx(13.5 / 37)
    assert states(window(**CAPPED))["rollout"] == "ok"
    assert "not to be resized before the in-flight cap is raised" in text(finding(verdict, "rollout"))


def test_a_client_that_keeps_a_level_binds_where_the_trainer_waits() -> None:
    """A cap on groups, or a client that sends no faster: no sharp ceiling, and no swing with the batches either.
    Requests that come at random have a variance of their mean."""
    level = {**CAPPED, "fleet.in_flight_peak": 600.0, "fleet.in_flight_scatter": 1.5}
    verdict = judged(window(**level))
    assert verdict.binding == "in_flight_cap"
    assert "about 505 samples in flight" in text(finding(verdict, "in_flight_cap"))
    assert judged(window(**{**level, "fleet.in_flight_scatter": 40.0})).binding == "rollout"
    few = {"fleet.in_flight_mean": 50.5, "fleet.in_flight_peak": 90.0, "fleet.running": 50.5}
    assert judged(window(**{**level, **few, "fleet.in_flight_scatter": 3.0})).binding == "rollout"  # swings by 24 %
    calm = {k: v for k, v in level.items() if k.startswith("fleet.")}
    assert states(window(**calm))["in_flight_cap"] == "ok"


def test_engines_that_stand_still_are_not_full() -> None:
    """Between pauses none waits: what waits in an engine that runs nothing waits for the weights."""
    paused = {**CAPPED, "fleet.waiting": 60.0, "fleet.running": 445.0}
    assert finding(judged(window(**paused)), "in_flight_cap").state == "ok"
    assert judged(window(**{**paused, "fleet.waiting_behind": 1.0})).binding == "in_flight_cap"


def test_a_few_percent_that_wait_behind_others_are_on_their_way() -> None:
    """Their prompts are still to be computed; many of them, or without room in the caches, wait."""
    few = {**CAPPED, "fleet.waiting": 25.0, "fleet.running": 480.0, "fleet.waiting_behind": 15.0}
    assert judged(window(**few)).binding == "in_flight_cap"
    many = {**few, "fleet.waiting": 100.0, "fleet.running": 405.0, "fleet.waiting_behind": 90.0}
    for other in (many, {**few, "fleet.kv_use_peak": 0.99}):
        assert finding(judged(window(**other)), "in_flight_cap").state == "ok"


@pytest.mark.parametrize(
    ("changes", "neighbour"),
    [
        ({"fleet.waiting": 200.0, "fleet.running": 305.0}, "max_num_seqs"),
        ({"fleet.kv_use_peak": 0.99}, "rollout"),
        ({"fleet.in_flight_peak": 900.0}, "rollout"),
    ],
)
def test_full_engines_or_an_ebb_and_flow_are_no_client_cap(changes: dict[str, Any], neighbour: str) -> None:
    verdict = judged(window(**{**CAPPED, **changes}))
    assert finding(verdict, "in_flight_cap").state == "ok"
    assert verdict.binding == neighbour


def test_a_cap_that_costs_nothing_is_ok_and_engines_at_their_limit_are_no_cap() -> None:
    flat = {k: v for k, v in CAPPED.items() if k.startswith("fleet.")}
    assert states(window(**flat))["in_flight_cap"] == "ok"
    assert states(window(**CAPPED), "engine.max_num_seqs=64")["in_flight_cap"] == "ok"


def test_a_cap_that_cannot_be_judged() -> None:
    assert states(window(**{**CAPPED, "fleet.in_flight_mean": None}))["in_flight_cap"] == "unknown"
    assert states(window(**{**CAPPED, "fleet.kv_use_peak": None}))["in_flight_cap"] == "unknown"


# ------------------------------------------------------------------------------------------------------ max_num_seqs

QUEUED = {
    **STARVED, "instances": instances(8, running=63.5, waiting=20.0), "fleet.running": 508.0, "fleet.waiting": 160.0,
    "fleet.in_flight_mean": 668.0, "fleet.in_flight_peak": 690.0,
}  # fmt: skip


def test_a_low_max_num_seqs_holds_requests_back() -> None:
    verdict = judged(window(**QUEUED))
    f = finding(verdict, "max_num_seqs")
    assert verdict.binding == "max_num_seqs"
    assert "a limit of 64 (inferred)" in text(f)
    assert "--max-num-seqs 96" in text(f)  # 102 would fill the KV caches
    given = finding(judged(window(**QUEUED), "engine.max_num_seqs=64"), "max_num_seqs")
    assert "a limit of 64 |" in text(given)


def test_requests_that_wait_for_blocks_or_at_no_common_number_do_not_wait_for_a_slot() -> None:
    assert states(window(**{**QUEUED, "fleet.kv_use_peak": 0.97}))["max_num_seqs"] == "ok"
    uneven = tuple(instance(n, running=30.0 + 10 * n, waiting=20.0) for n in range(8))
    assert states(window(**{**QUEUED, "instances": uneven}))["max_num_seqs"] == "ok"
    assert states(HEALTHY)["max_num_seqs"] == "ok"
    assert states(window(**QUEUED), "engine.max_num_seqs=256")["max_num_seqs"] == "ok"


def test_a_limit_that_cannot_be_judged() -> None:
    assert states(window(**{**QUEUED, "fleet.kv_use_peak": None}))["max_num_seqs"] == "unknown"
    assert states(window(**{**QUEUED, "fleet.waiting": None}))["max_num_seqs"] == "unknown"


# ------------------------------------------------------------------------------------------------------- preemptions


def test_thrashing_engines() -> None:
    thrash = {"fleet.preemptions_per_s": 10.0, "fleet.kv_use_peak": 1.0}
    assert finding(judged(window(**thrash)), "preemptions").title == "at no cost to the trainer"
    f = finding(judged(window(**STARVED, **thrash)), "preemptions")
    assert f.state == "fault"
    assert "0.48 per finished request" in text(f)
    assert "max_in_flight_samples_per_instance=48" in text(f)
    assert f.gpu_h_per_day is not None


def test_a_full_cache_with_rare_preemptions_is_a_full_fleet() -> None:
    full = {**STARVED, "fleet.preemptions_per_s": 0.2, "fleet.kv_use_peak": 1.0}
    verdict = judged(window(**full))
    assert finding(verdict, "preemptions").state == "ok"
    assert verdict.binding == "rollout"


def test_preemptions_that_nobody_exports() -> None:
    assert states(window(**{"fleet.preemptions_per_s": None}))["preemptions"] == "unknown"
    assert states(window(**{"fleet.preemptions_per_s": 1.0, "fleet.finished_s": None}))["preemptions"] == "unknown"


# ----------------------------------------------------------------------------------------------- rollout and backlog


def test_a_fleet_that_is_too_small() -> None:
    verdict = judged(window(**STARVED))
    f = finding(verdict, "rollout")
    assert (verdict.binding, verdict.starves) == ("rollout", "trainer")
    assert "--recommend" in text(f)
    # more instances give back the trainer's wait, and are GPUs to be paid for
    assert f.step_share == pytest.approx(13.5 / 37)
    assert f.gpu_h_per_day == pytest.approx(24 * 8 * 13.5 / 37)


def test_instances_that_are_added_are_taken_off_the_price() -> None:
    base, given = scenario()
    more = Gains({"rollout": 0.15}, was=8)
    for gains in ({"gains": more}, {"ranked": more, "backtest": None}):
        f = finding(diagnose(window(**STARVED), base, given=given, **gains), "rollout")
        assert "simulated with 10 instances instead of 8, a step is 15.0 % shorter" in text(f)
        # both pools have 8 GPUs; ten instances work for 0.85 of a step's seconds
        assert (f.step_share, f.gpu_h_per_day) == (pytest.approx(0.15), pytest.approx(24 * ((8 + 8) - 0.85 * (8 + 10))))


def test_instances_that_cost_what_they_give_back_have_no_price() -> None:
    # one trainer GPU that waits is not worth two more instances beside eight
    base, given = scenario("trainer.gpus=1")
    f = finding(diagnose(window(**STARVED), base, given=given, gains=Gains({"rollout": 0.15}, was=8)), "rollout")
    assert f.gpu_h_per_day == 0.0
    assert price_words(f) == "none: what mends it costs as much as it gives back; a step up to 15.0 % shorter"


def test_idle_engines_beside_a_waiting_trainer_are_the_tail_not_the_count() -> None:
    ebbing = {**STARVED, "fleet.in_flight_mean": 74.0, "fleet.in_flight_peak": 261.0}
    for changes in ({**STARVED, "fleet.idle_share": 0.4}, ebbing):
        f = finding(judged(window(**changes), "admission.max_staleness=1"), "rollout")
        assert f.title == "the slowest responses of each batch bind, not the number of instances"
        assert "admission.max_staleness=2" in text(f)
    for full in ({"fleet.kv_use_peak": 0.95}, {"fleet.waiting": 30.0}, {"fleet.in_flight_peak": 100.0}):
        assert finding(judged(window(**{**ebbing, **full})), "rollout").title != f.title


def test_a_small_fault_does_not_hide_a_small_fleet() -> None:
    slow = (*instances(7), instance(7, pace=0.8, straggler=True))
    verdict = judged(window(**STARVED, instances=slow))
    assert verdict.binding == "stragglers"
    assert finding(verdict, "rollout").state == "fault"
    assert "stragglers can explain at most 2.5 %" in text(finding(verdict, "rollout"))


def test_the_wait_is_paid_for_once() -> None:
    slow = (*instances(7), instance(7, pace=0.8, straggler=True))
    verdict = judged(window(**STARVED, instances=slow))
    of = {f.check: f.gpu_h_per_day or 0.0 for f in verdict.findings}
    assert of["stragglers"] == pytest.approx(24 * 8 * 0.025 * 2)
    assert of["rollout"] == pytest.approx(24 * 8 * (13.5 / 37 - 0.025))  # of the trainer's wait no more than is left


def test_rollout_without_a_trainer_cannot_be_judged() -> None:
    verdict = judged(ENGINES_ONLY)
    assert verdict.starves == "unknown"
    assert "cannot be told" in verdict.headline
    assert finding(verdict, "rollout").state == "unknown"
    assert finding(verdict, "backlog").state == "ok"  # the engines have work all the time
    assert states(window(ENGINES_ONLY, **{"fleet.idle_share": None}))["backlog"] == "unknown"


GROWING = {"queue.growth_per_h": 4000.0, "queue.depth": 12_000.0, "queue.depth_max": 24_000.0}


def test_a_backlog_without_bound() -> None:
    verdict = judged(window(**GROWING))
    f = finding(verdict, "backlog")
    assert (verdict.binding, verdict.starves) == ("backlog", "rollout")
    assert "grows without bound" in f.title
    assert "buffer.capacity_samples=512" in text(f)
    assert f.gpu_h_per_day == pytest.approx(24 * 8 * 4000 / (3600 * 21))


def test_a_backlog_behind_a_slow_trainer_is_the_trainers() -> None:
    verdict = judged(window(**GROWING), "trainer.fixed_s=15")
    assert verdict.binding == "trainer"
    assert finding(verdict, "backlog").title.endswith("the trainer is slow")


def test_beside_a_backlog_nothing_is_wrong_that_would_make_rollout_faster_still() -> None:
    thrashing = {**GROWING, "fleet.preemptions_per_s": 10.0, "fleet.kv_use_peak": 1.0}
    verdict = judged(window(**thrashing))
    assert finding(verdict, "preemptions").state == "ok"
    assert verdict.binding == "backlog"
    assert finding(verdict, "backlog").gpu_h_per_day == finding(judged(window(**GROWING)), "backlog").gpu_h_per_day
    assert judged(window(**{**STARVED, **thrashing})).binding == "preemptions"  # a waiting trainer does want it faster


def test_a_queue_that_wanders_is_bounded() -> None:
    assert states(window(**{"queue.growth_per_h": 30.0}))["backlog"] == "ok"


def test_samples_thrown_away_and_idle_instances_are_too_many_instances() -> None:
    assert finding(judged(window(**{"queue.dropped_share": 0.2})), "backlog").state == "fault"
    idle = judged(window(**{"fleet.idle_share": 0.3}))
    assert (idle.binding, idle.starves) == ("backlog", "rollout")
    # of three instances a fifth is none, of ten it is two
    shares = {count: window(**{"fleet.idle_share": 0.2, "fleet.instances_now": count}) for count in (3, 10)}
    assert {count: states(seen)["backlog"] for count, seen in shares.items()} == {3: "ok", 10: "fault"}
    (cure,) = (c for c in cures_of(shares[10], judged(shares[10])) if c.mean_s == 0.0)
    step = shares[10].trainer.step_s
    assert step is not None
    assert (cure.verify.metric, cure.verify.high) == ("trainer.step_s", pytest.approx(1.01 * step.value))


def test_colocated_pools_wait_for_nobody() -> None:
    turns = window(
        placement="colocated", pauses=pauses(20.0, 60.0, empty=True),
        **{"trainer.step_s": exported(60.0), "trainer.wait_s": exported(36.0), "trainer.idle_fraction": exported(0.6)},
    )  # fmt: skip
    verdict = judged(turns)
    assert verdict.starves == "neither"
    assert verdict.binding is None
    assert "fleetsim split --gpus 8" in text(finding(verdict, "rollout"))


# ------------------------------------------------------------------------------------------------------------- money


def test_prices_that_nobody_gave_are_assumed() -> None:
    pools = pools_of(HEALTHY, DEFAULT)
    assert len(pools.assumed) == 4
    base, given = scenario("engine.tp=2", "cost.instance_price_usd_per_gpu_h=5", "trainer.gpus=16")
    pools = pools_of(HEALTHY, base, given)
    assert (pools.rollout_gpus, pools.trainer_gpus, len(pools.assumed)) == (16, 16, 1)
    sizes = settle([(0.5, 0.25)], pools)
    assert sizes[0] is not None
    assert (sizes[0].gpu_h_per_day, sizes[0].usd_per_day) == (24 * (4 + 8), pytest.approx(24 * (4 * 5 + 8 * 3.64)))


shares = st.floats(0, 1)


@for_all(st.lists(st.tuples(shares, shares) | st.none()))
def test_findings_never_cost_more_than_the_job(gives: list[tuple[float, float] | None]) -> None:
    pools = pools_of(HEALTHY, DEFAULT)
    total = sum(size.gpu_h_per_day for size in settle(gives, pools) if size is not None)
    assert 0 <= total <= 24 * (pools.rollout_gpus + pools.trainer_gpus) + 1e-9


@for_all(gain=st.floats(-0.1, 0.5), starved=st.booleans(), check=st.sampled_from(["sync", "stragglers", "preemptions"]))
def test_a_finding_costs_what_its_removal_gives_by_simulation(gain: float, starved: bool, check: Check) -> None:
    """A step that is 1 % shorter is 1 % of the day of the GPUs of both pools, whatever the rule of thumb says of the
    pauses."""
    slow = (*instances(7), instance(7, pace=0.8, straggler=True))
    faulty = {"pauses": pauses(6.0, 24.0), "instances": slow, "fleet.preemptions_per_s": 40.0, "fleet.kv_use_peak": 1.0}
    observed = window(**{**(STARVED if starved else {}), **faulty})
    base, given = scenario()
    (found,) = [
        f for f in diagnose(observed, base, given=given, gains=Gains({check: gain}, was=8)).findings if f.check == check
    ]
    if check == "preemptions" and not starved:  # nobody waits for it
        assert found.state == "ok"
        return
    size = 0.0 if found.gpu_h_per_day is None else found.gpu_h_per_day
    said = any("simulated without it" in line for line in found.evidence)
    assert said
    if (
        check == "stragglers" and gain < 0.01
    ):  # one GPU of 8 loses a fifth of its pace although no step is longer for it
        assert not found.step_share
        assert size <= 24 * 0.25
        return
    assert size <= 24 * (8 + 8) * max(0.0, gain) + 1e-9
    if found.state == "fault" and 0.01 <= gain <= 0.2:
        assert size == pytest.approx(24 * (8 + 8) * gain)


@for_all(
    idle=shares, waiting=st.floats(0, 500), kv=shares, hit=shares, preempted=st.floats(0, 20), paused=st.floats(0, 20),
    empty=st.booleans(), stand=shares, cv=shares, growth=st.floats(-1e5, 1e5), dropped=shares,
    placement=st.sampled_from(["colocated", "disaggregated", None]),
)  # fmt: skip
def test_any_window_gets_a_verdict_that_adds_up(
    idle: float, waiting: float, kv: float, hit: float, preempted: float, paused: float, empty: bool, stand: float,
    cv: float, growth: float, dropped: float, placement: Any,
) -> None:  # fmt: skip
    observed = window(
        placement=placement, pauses=pauses(paused, 24.0, empty=empty),
        **{
            "trainer.idle_fraction": exported(idle), "fleet.waiting": waiting, "fleet.kv_use_peak": kv,
            "fleet.prefix_hit": hit, "fleet.preemptions_per_s": preempted, "fleet.idle_share": stand,
            "fleet.tok_s_cv": cv, "queue.growth_per_h": growth, "queue.dropped_share": dropped,
        },
    )  # fmt: skip
    verdict = diagnose(observed, DEFAULT)
    assert tuple(f.check for f in verdict.findings) == ORDER
    faults = [f.check for f in verdict.findings if f.state == "fault"]
    assert (verdict.binding in faults) if faults else verdict.binding is None
    assert sum(f.gpu_h_per_day or 0.0 for f in verdict.findings) <= 24 * 16 + 1e-9
    assert all(f.next for f in verdict.findings if f.state == "fault")
    assert all(f.gpu_h_per_day is None for f in verdict.findings if f.state != "fault")
    assert "nan" not in " ".join(text(f) for f in verdict.findings) + verdict.headline


# ------------------------------------------------------------------------- what only a simulation, or a sign, can tell


PREEMPTING = {
    **STARVED, "fleet.preemptions_per_s": 40.0, "fleet.kv_use_peak": 1.0, "fleet.kv_use": 0.98, "fleet.waiting": 400.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("freed", "more", "binding"),
    [(0.05, 0.18, "rollout"), (0.25, 0.18, "preemptions"), (0.05, 0.03, "preemptions"), (0.11, 0.18, "rollout")],
)
def test_preemptions_of_a_fleet_that_is_too_small_are_a_symptom(freed: float, more: float, binding: str) -> None:
    base, given = scenario()
    observed = window(**PREEMPTING)
    assert diagnose(observed, base, given=given).binding == "preemptions"  # nobody simulated
    verdict = diagnose(observed, base, given=given, ranked=Gains({"preemptions": freed, "rollout": more}, was=8))
    assert verdict.binding == binding
    if binding == "rollout":
        assert finding(verdict, "preemptions").title.startswith("a symptom")
        assert (finding(verdict, "rollout").next or "").endswith("--recommend")


def test_a_lower_cap_against_preemptions_is_told_where_it_saves_time() -> None:
    """Engines that run 60 and throw some out: KV_ROOM of them is 48, and a step of these may be longer."""
    base, given = scenario()
    for saved, told in ((None, True), (0.2, True), (-0.6, False)):
        tried = {} if saved is None else {"preemptions": saved}
        gains = Gains({"preemptions": 0.25, "rollout": 0.1}, was=8)
        f = finding(diagnose(window(**PREEMPTING), base, given=given, gains=gains, tried=tried), "preemptions")
        assert f.state == "fault"
        assert (f.next or "").startswith("give the KV caches more memory")
        assert ("fleet.max_in_flight_samples_per_instance=48" in (f.next or "")) == told
        assert ("lower cap" in (f.next or "")) == told


def test_instances_that_a_step_does_not_miss_are_named_and_priced() -> None:
    light = window(**{"fleet.kv_use_peak": 0.03, "fleet.running": 56.0, "fleet.in_flight_mean": 56.0})
    base, given = scenario()
    verdict = diagnose(light, base, given=given, enough=2)
    found = finding(verdict, "backlog")
    assert (verdict.binding, verdict.starves, found.state) == ("backlog", "rollout", "fault")
    assert verdict.headline.startswith("Rollout GPUs idle")
    assert "2 of 8 instances make a step no longer" in text(found)
    assert (found.next or "").endswith("--recommend")
    # Two are three with a headroom of 0.8; the other five of eight GPUs, as far as they were not paused.
    assert found.gpu_h_per_day == pytest.approx(24 * 8 * 0.625, rel=0.05)
    assert found.usd_per_day == pytest.approx(3.64 * found.gpu_h_per_day)
    assert diagnose(light, base, given=given, enough=8).binding is None
    unknown = finding(diagnose(light, base, given=given), "backlog")  # next to empty, and nobody simulated fewer
    assert (unknown.state, unknown.next) == ("unknown", "fleetsim replay ... --recommend")
    busy = finding(diagnose(window(), base, given=given), "backlog")
    assert busy.state == "ok"


def test_a_fleet_that_starves_the_trainer_is_never_too_large() -> None:
    base, given = scenario()
    assert diagnose(window(**STARVED), base, given=given, enough=2).binding == "rollout"


def test_a_ceiling_is_suspected_where_nobody_knows_the_trainers_wait() -> None:
    flat = {"fleet.in_flight_mean": 62.0, "fleet.in_flight_peak": 64.0, "fleet.running": 62.0, "fleet.kv_use_peak": 0.1}
    verdict = judged(window(ENGINES_ONLY, **flat))
    found = finding(verdict, "in_flight_cap")
    assert (verdict.binding, found.state) == ("in_flight_cap", "fault")
    assert found.title.startswith("suspected: the client keeps 64 samples in flight")
    assert found.gpu_h_per_day is None  # what it costs is not known
    assert "--set fleet.max_in_flight_samples=128" in (found.next or "")
    for change in ({"fleet.in_flight_peak": 90.0}, {"fleet.waiting": 20.0}, {"fleet.kv_use_peak": 0.9}):
        assert states(window(ENGINES_ONLY, **{**flat, **change}))["in_flight_cap"] == "ok"


def test_recommended_counts_are_round() -> None:
    assert [round_count(n) for n in (15.9, 63.0, 127.0, 358.4, 505.6)] == [15, 56, 120, 352, 480]
