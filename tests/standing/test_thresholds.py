"""What is chosen for a small plan, and that it follows from the plan."""

from __future__ import annotations

import numpy as np
import pytest

from fleetsim.alerts import promtool_tests, rehearsal
from fleetsim.alerts.alert_rule import Tracer, alarms, duration, fires
from fleetsim.alerts.faults import BY_FAULT, HEALTHY, scraped_run, steady_run
from fleetsim.alerts.planned_fleet import PlanFields
from fleetsim.alerts.rehearsal import doubt_of, drawn, rehearse
from fleetsim.alerts.rules import Writing, only, rules_document
from fleetsim.alerts.signal_values import scraped_of
from fleetsim.alerts.signals import STANDING, MetricNames
from fleetsim.alerts.thresholds import choose, impossible, rounded
from fleetsim.config.load import with_changes
from fleetsim.records import replace
from fleetsim.sim.run import simulate
from tests.standing.plans import chosen, rehearsed, small

CAUSES = ("instance_lost", "trainer_slow", "sync_slow", "lengths_drift", "straggler", "cache_off", "groups_dropped")


def test_the_budget_holds_over_all_alerts() -> None:
    assert sum(rule.false_per_month for rule in chosen().rules) <= chosen().budget_per_month
    assert all(rule.seen == 0 for rule in chosen().rules)


def test_zero_seen_is_not_zero() -> None:
    for rule in chosen().rules:
        assert rule.seen_upper == pytest.approx(3.0 / rehearsed().hours * 730.0, rel=0.01)


@pytest.mark.parametrize("fault", CAUSES)
def test_a_fault_fires_its_own_alert_and_no_other(fault: str) -> None:
    own = next(signal.alert for signal in STANDING if signal.fault == fault)
    assert dict(chosen().fired[fault]) == {own: 1.0}


def test_what_cannot_be_seen_is_said() -> None:
    idle = chosen().rule("trainer_idle")  # this fleet has enough in hand for engines a quarter slower
    assert idle.delay_s is None
    assert idle.why_not is not None
    assert "the alert begins at" in idle.why_not
    assert 'Detection: "every instance a quarter slower"' in rules_text()


def test_a_wait_within_the_plan_s_own_target_is_no_alarm() -> None:
    made = rehearsed()
    for target in (made.scenario.targets.idle_limit, 0.2):
        scenario = with_changes(made.scenario, {"targets.trainer_idle_fraction": target})
        rule = next(
            (r for r in choose(replace(made, scenario=scenario)).rules if r.signal.name == "trainer_idle"), None
        )
        assert rule is None or rule.threshold >= target


def test_samples_that_are_one_version_older_are_no_alarm() -> None:
    """Ages are whole versions: a batch that is taken just after a sync is one older than the same just before it. Of 40
    healthy fleets of pipelinerl-max-lag, whose plan never shows it, five do."""
    rule = chosen().rule("oldest_age")
    assert rule.threshold >= rule.healthy + 1.0
    assert rule.delay_s is not None
    assert rule.delay_s < 120.0


def rules_text() -> str:
    return str(rules_document(chosen(), Writing(MetricNames(), "small")))


def test_a_smaller_budget_is_held_too() -> None:
    """By levels that lie further off, or without an alert that would then miss its fault."""
    strict = choose(rehearsed(), 0.01)
    assert all(rule.false_per_month <= 0.01 / len(STANDING) for rule in strict.rules)
    assert {rule.signal.name for rule in strict.rules} | set(strict.left_out) == {signal.name for signal in STANDING}
    assert len(strict.rules) >= 8


def test_expected_restarts_are_no_alarm() -> None:
    restarting = small(failures={"mtbf_s": 7200.0, "restart_s": 120.0})
    made = rehearse(restarting, hours=6.0, replications=1)
    rule = choose(made).rule("instances")
    assert rule.for_s >= 120.0
    assert rule.seen == 0


def test_reclaims_of_spot_machines_are_no_alarm() -> None:
    """Of twenty instances on spot machines some are always away; the alert is for more of them than ever."""
    spot = {"share": 1.0, "mean_life_s": 3600.0, "notice_s": 0.0, "mean_absence_s": 300.0, "start_s": 60.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1,))
        standing = choose(rehearse(small(instances=20, spot=spot), hours=4.0, replications=1))
    rule = standing.rule("instances")
    assert 0.0 < rule.threshold < 20.0
    assert rule.false_per_month <= standing.budget_per_month


def test_the_only_instance_is_missed_too() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1,))
        standing = choose(rehearse(small(instances=1), hours=2.0, replications=1))
    rule = standing.rule("instances")
    assert (rule.threshold, rule.faulty) == (1.0, 0.0)
    assert rule.delay_s is not None
    assert "straggler_pace" in standing.left_out


def test_a_fault_that_makes_steps_shorter_is_watched_as_long() -> None:
    """The trainer of this plan waits most of its time; with nothing to hold generation back it would not."""
    starving = with_changes(small(), {"trainer.fixed_s": 1.0, "fleet.instances": 1, "admission.law": "barrier"})
    span_s = 40 * 300.0
    run = with_changes(starving, {"run.steps": 40})
    steady = steady_run(run, BY_FAULT["cache_off"], 0, 15.0, 20, span_s, 0.5)
    assert steady is not None
    assert steady.times[-1] - steady.times[0] >= span_s - 30.0


def test_a_threshold_that_no_value_can_cross_is_no_alert() -> None:
    rule = chosen().rule("straggler_pace")
    assert not impossible(rule)
    assert impossible(replace(rule, threshold=-0.1))
    assert impossible(replace(chosen().rule("trainer_idle"), threshold=1.0))


def test_lost_samples_of_one_instance_do_not_make_it_a_straggler() -> None:
    made = rehearsed()
    run = made.healthy[0]
    gone = {name: values.copy() for name, values in run.engines.items()}
    for values in gone.values():
        values[1, 200:] = np.nan
    tracer = Tracer(made, replace(run, engines=gone), 7.0)
    fired = {alert for alert, firing in alarms(chosen(), tracer).items() if firing.any()}
    assert fired == {"RolloutInstanceLost"}


@pytest.mark.parametrize("compute_s", [25.0, 27.0, 28.0])
def test_a_fleet_whose_steps_keep_time_with_the_scrapes_has_no_straggler(compute_s: float) -> None:
    """Steps of 27, 29.4 and 30.4 s, of which scrapes every 15 s see the same moments again and again."""
    run = with_changes(small(), {"run.steps": 260, "trainer.fixed_s": compute_s})
    slow = with_changes(run, BY_FAULT["straggler"].changes(run))
    for scenario, expected in ((run, False), (slow, True)):
        tracer = Tracer(rehearsed(), scraped_run(scenario, 3, 15.0, 600.0), 3.0)
        assert alarms(chosen(), tracer)["RolloutStraggler"].any() == expected


@pytest.mark.parametrize("gauge", ["queue.samples", "queue.oldest_age_steps"])
def test_no_scrape_sees_more_of_a_queue_than_a_healthy_run_is_said_to_show(gauge: str) -> None:
    """A run looked at every 15 s, and every half a second: whatever moments of a step it sees, none is above."""
    run = with_changes(small(), {"run.steps": 60})
    often, seldom = (simulate(run, scrape_every_s=every_s) for every_s in (0.5, 15.0))
    fine, whole = scraped_of(often), scraped_of(seldom, whole=True).trainer[gauge]
    at = np.searchsorted(scraped_of(seldom).times, fine.times)
    inside = at < len(whole)
    assert (fine.trainer[gauge][inside] <= whole[at[inside]]).all()
    if gauge == "queue.samples":  # else the test shows nothing
        assert (fine.trainer[gauge][inside] > scraped_of(seldom).trainer[gauge][at[inside]]).any()


def test_a_turn_is_a_request_as_engines_count_it() -> None:
    """Else lengths that drift would be told of no agent: a threshold for whole samples is never reached by turns."""
    run = simulate(with_changes(small(), {"run.steps": 20, "workload.turns.count": 4}), scrape_every_s=1.0)
    seen, samples = scraped_of(run), run.samples
    over = samples[(samples["finish_s"] >= 0) & (samples["finish_s"] < seen.times[-1])]
    count, tokens = (seen.engines[f"output_tokens_{what}"][:, -1].sum() for what in ("count", "sum"))
    assert 4 * len(over) <= count <= 1.1 * 4 * len(over)
    assert tokens / count == pytest.approx(over["made"].mean() / 4, rel=0.03)


PRESETS = ("verl-sync", "verl-fully-async", "nemo-rl-sc-in-order", "pipelinerl", "areal")


@pytest.mark.parts
@pytest.mark.parametrize("preset", PRESETS)
def test_healthy_fleets_of_a_preset_fire_nothing(preset: str) -> None:
    """Four, each another draw of all that the preset is not sure of; benchmarks/alerts.py watches them for longer."""
    planned = PlanFields(preset=preset).planned("alerts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1, 2))
        made = rehearse(planned.scenario, hours=8.0, replications=1, given=planned.given)
    standing, random, fired = choose(made), np.random.default_rng(6), set()
    for k in range(4):
        fleet = with_changes(drawn(made.scenario, planned.given, random), {"run.steps": 200})
        tracer = Tracer(made, scraped_run(fleet, 60 + k, made.scrape_s, 20 * made.step_s), 3.0)
        fired |= {alert for alert, firing in alarms(standing, tracer).items() if firing.any()}
    assert not fired
    assert standing.rule("straggler_pace").delay_s is not None


def test_engines_without_a_trainer_keep_what_they_can() -> None:
    kept = only(chosen(), engines_only=True)
    assert {rule.signal.source for rule in kept.rules} == {"engines"}
    document = str(rules_document(kept, Writing(MetricNames(), "small")))
    assert "rl_trainer" not in document
    assert set(kept.left_out) == {s.name for s in STANDING if s.source != "engines"}


def test_an_alert_of_a_guessed_plan_stands_at_whatever_speed_the_fleet_has() -> None:
    """A client that always keeps 64 samples in flight: how old they grow depends on how fast the engines are."""
    capped = {
        "admission.law": "unbounded", "fleet.max_in_flight_samples": 64, "buffer.capacity_samples": 64,
        "buffer.on_full": "block", "trainer.fixed_s": 8.0,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1,))
        made = rehearse(with_changes(small(), capped), hours=1.0, replications=1, held=False)
    standing = choose(made)
    assert made.doubt.inputs == ("the engines' speed, which no back-test confirms",)
    assert {"instances", "trainer_pace", "output_length"} <= {rule.signal.name for rule in standing.rules}
    fired = set()
    for factor in (0.8, 1.2, 1.7):
        run = with_changes(made.scenario, {"run.steps": 250, "fleet.speed_factors": [factor] * 4})
        healthy = steady_run(run, HEALTHY, 9, 15.0, 20, 2.0 * made.windows_s[-1], 0.5)
        assert healthy is not None
        tracer = Tracer(made, healthy, 3.0)
        fired |= {alert for alert, firing in alarms(standing, tracer).items() if firing.any()}
    assert not fired


def test_a_condition_must_hold_for_its_time() -> None:
    true = np.array([True, True, False, True, True, True, True])
    assert fires(true, 3).tolist() == [False] * 5 + [True, True]


def test_thresholds_are_rounded_away_from_the_healthy_side() -> None:
    assert rounded(1.0341, up=True) == 1.04
    assert rounded(0.8279, up=False) == 0.827
    assert rounded(1.04, up=True) == 1.04
    assert (duration(90.0), duration(3600.0), duration(86_400.0 + 60.0)) == ("1m30s", "1h", "1d1m")


def test_every_alert_has_a_fault_and_a_test() -> None:
    assert {signal.fault for signal in STANDING} == set(BY_FAULT)
    document = promtool_tests.tests_document(chosen(), Writing(MetricNames(), "small"), "rules.yaml")
    assert {test["name"] for test in document["tests"]} >= {rule.signal.alert for rule in chosen().rules} | {"healthy"}


def test_what_nobody_measured_or_gave_has_no_alert() -> None:
    """A length that an import assumed, and a trainer that is only estimated."""
    given = {"fleet.instances", "trainer.batch_samples"}
    doubt = doubt_of(small(), given, None)
    assert set(doubt.unmeasured) == {"trainer_pace", "sync_seconds", "output_length"}
    assert "--trainer-step-s" in doubt.unmeasured["trainer_pace"]
    everything = {*given, "trainer.fixed_s", "sync.pause_s", "workload.output_tokens.mean"}
    assert not doubt_of(small(), everything, None).unmeasured
    assert not doubt_of(small(), None, True).unmeasured
    standing = choose(replace(rehearsed(), doubt=doubt))
    assert {"trainer_pace", "sync_seconds", "output_length"} <= set(standing.left_out)


def test_eight_healthy_fleets_fire_nothing() -> None:
    """Each off by what the plan is not sure of, and by what one run differs from the next."""
    given = {"trainer.fixed_s", "sync.pause_s", "workload.output_tokens.mean", "fleet.instances"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1,))
        made = rehearse(small(), hours=4.0, replications=1, given=given)
    standing = choose(made)
    random = np.random.default_rng(5)
    fired = set()
    for k in range(8):
        fleet = with_changes(drawn(small(), given, random), {"run.steps": 250})
        tracer = Tracer(made, scraped_run(fleet, 20 + k, 15.0, 20 * made.step_s), 3.0)
        fired |= {alert for alert, firing in alarms(standing, tracer).items() if firing.any()}
    assert not fired
    assert len(standing.rules) >= 8


def test_tail_batching_repeats_itself_after_all_its_rounds() -> None:
    """Four short rounds put off a quarter of their prompts each, which fill the fifth. Through windows of some of them
    two of 40 healthy fleets of rollpacker fired RolloutTokensWasted, again and again."""
    planned = PlanFields(preset="rollpacker").planned("alerts")
    assert rehearsal.cycle_of(planned.scenario) == 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1,))
        made = rehearse(planned.scenario, hours=2.0, replications=1, given=planned.given)
    assert made.windows_s[0] >= 2 * 5 * made.step_s
    assert all(rule.for_s >= 5 * made.step_s for rule in choose(made).rules if rule.signal.name != "instances")
    assert rehearsal.cycle_of(small()) == 1


def test_a_rehearsal_of_short_steps_is_bounded() -> None:
    """Half a second a step: a week of it were a million, and growth by 1 % a step has no end."""
    fast = with_changes(small(), {"trainer.fixed_s": 0.4, "trainer.batch_samples": 16, "sync.pause_s": 0.02,
        "sync.trainer_block_s": 0.02, "workload.output_tokens": {"kind": "constant", "value": 40}})  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "HEALTHY_STEPS", 2000)
        patch.setattr(rehearsal, "FAULTY_STEPS", 2000)
        made = rehearse(fast)
    steps = sum(float(run.trainer["trainer.steps"][-1]) for run in made.healthy)
    assert steps < 4 * 2000
    assert len(made.onsets["lengths_drift"]) == 1
    assert made.windows_s == (300.0,)
