"""Levers and what they buy: each by hand on a fake fleet, the wording by what the numbers say."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config import Scenario, with_changes
from fleetsim.config.workload import Gamma, Lognormal
from fleetsim.errors import StuckError
from fleetsim.estimates import differs, estimate, ratio_of
from fleetsim.job.looks import looked
from fleetsim.job.result import Later
from fleetsim.job.trials import simulated, with_instances
from fleetsim.job.words import BINDINGS, lost_words
from fleetsim.records import replace
from fleetsim.search.alternative import Alternatives
from fleetsim.search.change import Typed
from fleetsim.search.levers import (
    CADENCE,
    CAP,
    HOST,
    LENGTH,
    NO_CAP,
    ONE_MORE,
    RESUMED,
    STALENESS,
    levers_of,
    share_above,
)
from fleetsim.search.moves import alternatives_of
from fleetsim.size.explain import bound_by, explanation
from fleetsim.workload.lengths import quantile_length
from tests.plan.fakes import metrics, one_ahead
from tests.plan.typed import typed

NOTHING = estimate([0.0])
LOSES_NOTHING = dict.fromkeys(("samples_lost.all", "samples_lost.longest_tenth", "trainer_idle_fraction"), NOTHING)


def job(**changes: Any) -> Scenario:
    return with_changes(one_ahead(), {k.replace("__", "."): v for k, v in changes.items()})


def lever(scenario: Scenario, name: str) -> Scenario | None:
    found = {x.name: x.scenario for x in levers_of(scenario, with_instances(scenario, 9), "one more instance")}
    return found.get(name)


def changed(scenario: Scenario | None, path: str) -> Any:
    value: Any = scenario
    for key in path.split("."):
        value = getattr(value, key)
    return value


def test_host_memory_is_offered_where_samples_come_back_to_caches_that_are_too_small() -> None:
    agents = {"engine__kind": "roofline", "workload__turns__count": 4}
    for changes, preempted, gib in (
        (agents, True, 128),
        (agents | {"engine__tp": 2}, True, 256),
        (agents, False, None),
        ({"engine__kind": "roofline"}, True, None),  # nothing comes back
        (agents | {"engine__kv_offloading_gib": 64}, True, None),
        (agents | {"engine__model": "openai/gpt-oss-20b"}, True, None),  # no host keeps its windows
        (agents | {"engine__name": "tensorrt-llm"}, True, None),
    ):
        s = job(**changes)
        found = {x.name: x.scenario for x in levers_of(s, s, "", preempted=preempted)}.get(HOST)
        assert (None if found is None else found.engine.kv_offloading_gib) == gib, changes


@pytest.mark.parametrize(
    ("changes", "name", "path", "value"),
    [
        ({}, STALENESS, "admission.max_staleness", 2.0),
        ({"admission__law": "target_step"}, STALENESS, "admission.max_staleness", 2.0),
        ({"admission__law": "batches_ahead"}, STALENESS, "admission.batches_ahead", 2),
        ({"admission__law": "per_sync_window"}, STALENESS, "admission.staleness_threshold", 0.6),
        ({"admission__law": "cumulative_ratio"}, STALENESS, "admission.async_ratio", 1.0),
        ({"admission__law": "barrier"}, STALENESS, "admission.law", "batches_ahead"),
        ({"admission__age_action": "wait", "admission__max_age": 2.0}, STALENESS, "admission.max_age", 3.0),
        (
            {
                "admission__law": "cumulative_ratio",
                "admission__age_action": "cancel_in_flight",
                "admission__max_age": 0.0,
            },
            STALENESS,
            "admission.max_age",
            1.0,
        ),
        (
            {
                "admission__law": "per_sync_window",
                "admission__age_action": "drop_on_dequeue",
                "admission__max_age": 1.0,
            },
            STALENESS,
            "admission.max_age",
            2.0,
        ),
        ({"admission__age_action": "wait", "admission__max_age": 2.0}, CADENCE, "admission.max_age", 2.0),
        ({"admission__law": "barrier", "sync__in_flight": "drain"}, STALENESS, "sync.in_flight", "abort_resume"),
        ({"fleet__max_in_flight_samples": 100}, CAP, "fleet.max_in_flight_samples", 152),
        ({"fleet__max_in_flight_samples_per_instance": 64}, CAP, "fleet.max_in_flight_samples_per_instance", 96),
        ({"fleet__max_in_flight_samples": 100}, NO_CAP, "fleet.max_in_flight_samples", None),
        ({"admission__law": "fixed_pool", "admission__pool_samples": 80}, CAP, "admission.pool_samples", 120),
        ({"admission__law": "adaptive"}, CAP, "admission.adaptive.most_samples", 1536),
        ({}, CADENCE, "sync.every_steps", 2),
        ({"sync__trigger": "pulls", "sync__every_pulls": 3}, CADENCE, "sync.every_pulls", 6),
        ({"sync__trigger": "samples", "sync__every_samples": 512}, CADENCE, "sync.every_samples", 1024),
        ({"sync__in_flight": "drain"}, RESUMED, "sync.in_flight", "abort_resume"),
        ({}, ONE_MORE, "fleet.instances", 9),
    ],
)
def test_a_lever_is_one_change(changes: dict[str, Any], name: str, path: str, value: Any) -> None:
    assert changed(lever(job(**changes), name), path) == value


@pytest.mark.parametrize("placement", ["disaggregated", "colocated"])
def test_a_batch_ahead_of_a_barrier_shortens_a_step(placement: str) -> None:
    """On shared GPUs, too, where nothing is generated beside the batch in training: one ahead would be a barrier."""
    s = job(
        engine__kind="constant",
        engine__instance_tok_s=4000.0,
        fleet__placement=placement,
        trainer__batch_samples=64,
        trainer__fixed_s=4.0,
        admission__law="barrier",
        sync__in_flight="drain",
        run__steps=12,
    )
    assert simulated(lever(s, STALENESS), 0)["step_s"] < 0.95 * simulated(s, 0)["step_s"]


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ({"admission__law": "cumulative_ratio"}, "abort_resume"),
        ({"admission__law": "barrier"}, "abort_resume"),
        ({"admission__max_staleness": 0.0}, "abort_resume"),
        ({"admission__law": "cumulative_ratio", "admission__async_ratio": 1.0}, "abort_discard"),
        ({"admission__law": "cumulative_ratio", "admission__extra_groups": 4}, "abort_discard"),
        ({"admission__max_staleness": 1.0}, "abort_discard"),
    ],
)
def test_what_a_sync_now_finds_unfinished_is_not_thrown_away(now: dict[str, Any], then: str) -> None:
    """A recipe that never had anything in flight at a publication did not choose to discard it."""
    s = job(sync__in_flight="abort_discard", **now)
    assert changed(lever(s, STALENESS), "sync.in_flight") == then
    found = next(x for x in levers_of(s, s, "") if x.name == STALENESS)
    assert ("resumed after a sync" in found.text) == (then == "abort_resume")


def test_one_batch_ahead_of_rolls_synchronous_pipeline_loses_nothing() -> None:
    """As simulated: with its sync discarding what is unfinished, most of the long samples would be lost."""
    s = job(
        engine__kind="constant",
        engine__instance_tok_s=4000.0,
        trainer__batch_samples=64,
        trainer__fixed_s=0.5,
        admission__law="cumulative_ratio",
        sync__in_flight="abort_discard",
        buffer__wait_for_oldest=True,
        run__steps=12,
    )
    ahead = next(x.scenario for x in levers_of(s, s, "") if x.name == STALENESS)
    discarding = with_changes(ahead, {"sync.in_flight": "abort_discard"})
    assert simulated(ahead, 0)["samples_lost"]["longest_tenth"] == 0.0
    assert simulated(discarding, 0)["samples_lost"]["longest_tenth"] > 0.2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fleet__max_in_flight_samples": 256}, "384 instead of 256 samples"),
        ({"fleet__max_in_flight_samples_per_instance": 256}, "384 instead of 256 samples per instance"),
        (
            {"fleet__max_in_flight_samples": 256, "fleet__max_in_flight_samples_per_instance": 64},
            "384 instead of 256 samples and of 96 instead of 64 samples per instance",
        ),
    ],
)
def test_a_cap_says_what_it_is_of(changes: dict[str, Any], words: str) -> None:
    s = job(**changes)
    assert {x.name: x.text for x in levers_of(s, s, "")}[CAP] == f"an in-flight cap of {words}"


def test_the_queue_of_a_sync_window_grows_with_it() -> None:
    window = job(admission__law="per_sync_window", buffer__capacity_samples=600)
    assert changed(lever(window, CADENCE), "buffer.capacity_samples") == 1200
    assert changed(lever(window, STALENESS), "buffer.capacity_samples") == math.ceil(600 * 1.6 / 1.1)
    assert changed(lever(job(buffer__capacity_samples=600), CADENCE), "buffer.capacity_samples") == 600
    reserved = job(admission__law="target_step", admission__max_staleness=1.0, buffer__capacity_samples=1024)
    assert changed(lever(reserved, CADENCE), "buffer.capacity_samples") == 2048
    assert changed(lever(reserved, STALENESS), "buffer.capacity_samples") == 1536


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, CAP),
        ({"admission__law": "unbounded"}, STALENESS),
        ({"admission__law": "adaptive"}, STALENESS),
        ({"admission__law": "adaptive"}, NO_CAP),
        ({"admission__law": "barrier", "sync__in_flight": "drain"}, RESUMED),  # then nothing is in flight
        ({"workload__output_tokens": 512}, LENGTH),
    ],
)
def test_a_lever_that_the_law_does_not_have_is_not_pulled(changes: dict[str, Any], missing: str) -> None:
    assert lever(job(**changes), missing) is None


@given(mean=st.floats(100, 20_000), cv=st.floats(0.1, 3), cap=st.none() | st.floats(500, 40_000))
def test_the_length_cap_cuts_what_it_says(mean: float, cv: float, cap: float | None) -> None:
    law = Lognormal(mean=mean, cv=cv, max=cap)
    s = job(workload__output_tokens=law.model_dump(exclude_none=True))
    found = {x.name: x for x in levers_of(s, s, "")}.get(LENGTH)
    if found is None:
        assert cap is not None
        assert quantile_length(law, 0.8) >= 0.85 * cap, "the cap already cuts a fifth of the samples, or nearly"
        return
    new = changed(found.scenario, "workload.output_tokens.max")
    assert cap is None or new < cap
    assert found.truncated == pytest.approx(share_above(law, new))
    assert 0.0 <= found.truncated <= 0.35
    assert quantile_length(law, max(0.0, 1 - found.truncated - 0.01)) <= new * (1 + 1e-9)


def test_the_share_above_a_cap() -> None:
    law = Gamma(mean=1000.0, cv=1.0)  # exponential: P(L > 2000) = e^-2
    assert share_above(law, 2000.0) == pytest.approx(0.1353, abs=2e-4)
    assert share_above(law, quantile_length(law, 0.95)) == pytest.approx(0.05, abs=2e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"admission__law": "barrier", "sync__in_flight": "drain"},
        {"fleet__max_in_flight_samples": 64, "fleet__max_in_flight_samples_per_instance": 16},
        {"admission__age_action": "wait", "admission__max_age": 2.0},
    ],
)
def test_the_flag_of_a_lever_pulls_it(changes: dict[str, Any]) -> None:
    s = fs.load(job(**changes).model_dump(exclude_none=True)).scenario
    for found in levers_of(s, with_instances(s, 9), "one more instance"):
        changes, options = typed(found.flag)
        asked = fs.load(s.model_dump(exclude_none=True)).with_(changes, **options)
        assert with_changes(found.scenario, {"assumed": asked.scenario.assumed}) == asked.scenario, found.name


@given(
    st.dictionaries(
        st.sampled_from(["admission.max_staleness", "engine.tp", "sync.every_steps", "admission.max_age"]),
        st.integers(0, 10**9) | st.floats(0, 1e6).map(lambda x: float(f"{x:.12g}")) | st.none(),
    ),
    st.dictionaries(st.sampled_from(["len", "max_len"]), st.integers(1, 10**6)),
)
def test_what_is_typed_says_every_change_once(changes: dict[str, Any], options: dict[str, Any]) -> None:
    made = Typed(changes, options)
    assert typed(made) == (changes, options)
    own = {"admission.max_staleness": "max_staleness", "engine.tp": "tp"}
    left = {path: value for path, value in changes.items() if path not in own}
    assert typed(made.own) == (left, options | {own[path]: v for path, v in changes.items() if path in own})
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert pickle.loads(pickle.dumps(made)).changes == changes


def fleet(change: Callable[[Scenario], Mapping[str, Any]]) -> Any:
    """100 s a step and $1, scattered by replication alone; `change` says what differs."""

    def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
        luck = (0.8, 1.0, 1.2)[replication % 3]
        values = {"step_s": 100.0, "cost_per_step": 1.0} | change(s)
        others = {k: v for k, v in values.items() if k not in ("step_s", "cost_per_step")}
        return metrics(values["step_s"] * luck, 0.5, cost_per_step=values["cost_per_step"] * luck, **others)

    return measure


def tried(change: Callable[[Scenario], Mapping[str, Any]], replications: int = 3, **changes: Any) -> Alternatives:
    s = job(**changes)
    return alternatives_of(s, with_instances(s, s.fleet.instances + 1), replications, fleet(change))


def test_gain_price_and_the_cheapest_by_hand() -> None:
    """One more instance: 10 s for $0.05, half a cent a second. A cap: 5 s for $0.01, a fifth of a cent: cheapest."""

    def change(s: Scenario) -> dict[str, float]:
        if s.fleet.instances == 9:
            return {"step_s": 90.0, "cost_per_step": 1.05}
        if s.fleet.max_in_flight_samples == 96:
            return {"step_s": 95.0, "cost_per_step": 1.01}
        return {}

    found = tried(change, fleet__max_in_flight_samples=64)
    more, cap = found.named(ONE_MORE), found.named(CAP)
    assert more is not None
    assert cap is not None
    assert (more.gain_s, more.cost_change) == (pytest.approx(10.0), pytest.approx(0.05))
    assert more.step_ratio.mean == pytest.approx(0.9)
    assert more.step_ratio.ci_high - more.step_ratio.ci_low == pytest.approx(0.0, abs=1e-9), "luck is common to both"
    assert more.price_usd_per_s == pytest.approx(0.005)
    assert cap.price_usd_per_s == pytest.approx(0.002)
    assert (found.cheapest, found.cheapest_without_risk) == (CAP, CAP)


def test_what_is_free_comes_first_and_its_risk_is_named() -> None:
    def change(s: Scenario) -> dict[str, Any]:
        if s.fleet.instances == 9:
            return {"step_s": 90.0, "cost_per_step": 1.0001}
        if s.admission.max_staleness == 2.0:
            return {"step_s": 97.0, "cost_per_step": 0.97, "staleness_p99": 2.0}
        if s.sync.every_steps == 2:
            return {"step_s": 98.0, "cost_per_step": 0.98, "samples_lost": {"all": 0.02, "longest_tenth": 0.1}}
        return {}

    found = tried(change)
    assert (found.cheapest, found.cheapest_without_risk) == (STALENESS, ONE_MORE)
    risks = {a.name: a.risk for a in found.tried}
    assert risks[STALENESS] == "staleness p99 2 instead of 1 steps"
    assert risks[CADENCE] == "10.0 % instead of 0.0 % of the longest tenth lost"
    assert risks[LENGTH] == "5.0 % of the responses truncated"
    assert risks[ONE_MORE] is None
    text = explanation("rollout", found, LOSES_NOTHING)
    assert "Cheapest: a staleness budget of 2 instead of 1, 3.0 s off each step and $0.03 less per step" in text
    assert "without touching the algorithm one more instance, 10.0 s for $0.0001 more per step" in text


def losing(lost: dict[str, float]) -> Callable[[Scenario], dict[str, Any]]:
    """More staleness is much the best, and loses `lost`; syncing less often helps a little."""

    def change(s: Scenario) -> dict[str, Any]:
        if s.admission.max_staleness == 2.0:
            return {"step_s": 50.0, "cost_per_step": 0.5, "samples_lost": lost}
        return {"step_s": 98.0, "cost_per_step": 0.98} if s.sync.every_steps == 2 else {}

    return change


@pytest.mark.parametrize(
    ("lost", "risk"),
    [
        ({"all": 0.2, "longest_tenth": 0.9}, "90.0 % instead of 0.0 % of the longest tenth lost"),
        ({"all": 0.2, "longest_tenth": 0.0}, "20.0 % instead of 0.0 % of all samples lost"),
    ],
)
def test_what_throws_samples_away_is_never_the_cheapest(lost: dict[str, float], risk: str) -> None:
    found = tried(losing(lost))
    staleness = found.named(STALENESS)
    assert staleness is not None
    assert (staleness.risk, staleness.loses_more, staleness.samples_lost) == (risk, True, pytest.approx(0.2))
    assert found.cheapest == CADENCE
    text = explanation("rollout", found, LOSES_NOTHING)
    assert text.endswith(
        "More of them would be lost with a staleness budget "
        f"of 2 instead of 1, {100 * lost['longest_tenth']:.1f} % of the longest tenth and 20.0 % of all."
    )


def test_where_all_that_helps_loses_samples_nothing_is_cheapest() -> None:
    def change(s: Scenario) -> dict[str, Any]:
        return losing({"all": 0.2, "longest_tenth": 0.9})(s) if s.admission.max_staleness == 2.0 else {}

    found = tried(change)
    assert found.cheapest is None
    text = explanation("rollout", found, LOSES_NOTHING)
    assert "None of these makes a step measurably shorter without losing more samples." in text
    assert "Cheapest" not in text


def test_a_loss_within_what_is_lost_already_is_no_reason_against_a_lever() -> None:
    found = tried(losing({"all": 0.004, "longest_tenth": 0.004}))
    assert found.cheapest == STALENESS
    assert "would be lost" not in explanation("rollout", found, LOSES_NOTHING)


def test_where_nothing_helps_it_says_so() -> None:
    text = explanation("trainer", tried(lambda s: {}), LOSES_NOTHING)
    assert "One more instance buys nothing measurable." in text
    assert "A staleness budget of 2 instead of 1, a weight sync every 2nd step and responses cut at" in text
    assert "would buy nothing measurable" in text
    assert "None of these makes a step measurably shorter." in text
    assert "Cheapest" not in text


def test_what_harms_is_said_to_harm() -> None:
    found = tried(lambda s: {"step_s": 110.0} if s.sync.every_steps == 2 or s.fleet.instances == 9 else {})
    text = explanation("rollout", found, LOSES_NOTHING)
    assert "One more instance lengthens the step." in text
    assert "What would lengthen it: a weight sync every 2nd step, by 10.0 %." in text
    assert found.cheapest is None


def test_a_lever_that_blocks_the_run_is_told_apart_from_one_that_is_not_there() -> None:
    def change(s: Scenario) -> dict[str, float]:
        if s.sync.every_steps == 2:
            raise StuckError("nothing moves", [])
        return {}

    found = tried(change)
    assert found.stuck == (CADENCE,)
    assert found.named(CADENCE) is None
    assert "A weight sync every 2nd step would block the run." in explanation("trainer", found, LOSES_NOTHING)


def test_one_replication_has_no_interval_and_needs_a_clear_difference() -> None:
    found = tried(lambda s: {"step_s": 99.0} if s.sync.every_steps == 2 else {}, replications=1)
    assert not any(a.shortens for a in found.tried)
    clear = tried(lambda s: {"step_s": 90.0} if s.sync.every_steps == 2 else {}, replications=1)
    assert "a weight sync every 2nd step, by 10.0 %." in explanation("sync", clear, LOSES_NOTHING)


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("helps", [None, CAP, STALENESS, CADENCE, LENGTH, ONE_MORE])
def test_a_verdict_and_the_levers_never_contradict_each_other(binding: str, helps: str | None) -> None:
    """What binds is what a lever that shortens the step names, or has no lever that was tried."""
    names = {ONE_MORE: "rollout", CAP: "in_flight_cap", STALENESS: "staleness_window", CADENCE: "sync"}
    names[LENGTH] = "longest_response"
    base = job(fleet__max_in_flight_samples=64)
    lever = next((x for x in levers_of(base, with_instances(base, 9), "one more") if x.name == helps), None)

    def change(s: Scenario) -> dict[str, float]:
        alike = () if lever is None else (lever.scenario, looked(lever.scenario))
        return {"step_s": 90.0} if s in alike else {}

    found = bound_by(binding, tried(change, fleet__max_in_flight_samples=64), base, 100.0)
    if binding not in names.values():
        assert found == binding  # the trainer, tools and rewards: no lever moves them
    else:
        assert found == ("trainer" if helps is None else names[helps])


@pytest.mark.parametrize(("verdict", "told"), [("rollout", "trainer"), ("sync", "sync")])
def test_a_trainer_that_computes_all_the_time_binds_whatever_the_verdict_says(verdict: str, told: str) -> None:
    """Its seconds are those of the step, so nothing but these, and a sync that holds it, can make the step shorter: no
    lever is run."""

    def nobody_asks() -> None:
        raise AssertionError

    busy = job(trainer__fixed_s=100.0)
    levers = Alternatives({name: Later(nobody_asks) for name in (ONE_MORE, CADENCE)})
    assert bound_by(verdict, levers, busy, 100.0) == told
    with pytest.raises(AssertionError):
        bound_by(verdict, levers, busy, 200.0)


def test_a_lever_that_few_runs_cannot_tell_from_luck_contradicts_no_verdict() -> None:
    """Two runs of which one is a fifth shorter leave 1 in their interval, and the lever is still likely to help."""
    found = tried(lambda s: {"step_s": 99.0} if s.sync.every_steps == 2 else {})
    cut = found.named(LENGTH)
    assert cut is not None
    assert bound_by("longest_response", found, job(), 100.0) == "sync"
    doubtful = replace(cut, step_ratio=estimate([0.8, 0.98]))
    assert not differs(doubtful.step_ratio, 2)
    others = {**found.each, LENGTH: Later(lambda: doubtful)}
    assert bound_by("longest_response", replace(found, each=others), job(), 100.0) == "longest_response"


@pytest.mark.parametrize("binding", [*BINDINGS, "something_new"])
def test_every_binding_begins_the_paragraph(binding: str) -> None:
    assert explanation(binding, tried(lambda s: {}), LOSES_NOTHING).startswith("What binds: ")


def test_lost_samples_in_words() -> None:
    assert lost_words(NOTHING, NOTHING) == ""
    biased = lost_words(estimate([0.1, 0.1]), estimate([0.3, 0.32]))
    assert biased == (
        "Of the longest tenth of the samples 31.0 % are dropped or aborted, of all samples 10.0 %: training leans "
        "toward short responses."
    )
    assert "leans" not in lost_words(estimate([0.1, 0.1]), estimate([0.05, 0.16])), "within chance"


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0.5, 2.0)), min_size=2, max_size=8))
def test_a_paired_ratio_of_equal_factors_is_that_factor(runs: list[tuple[float, float]]) -> None:
    """Whatever the runs, a scenario that takes `factor` of another's time in each of them is found to do so."""
    factor = runs[0][1]
    those = [{"step_s": value} for value, _ in runs]
    these = [{"step_s": factor * value} for value, _ in runs]
    ratio = ratio_of(these, those, "step_s")
    assert ratio.mean == pytest.approx(factor)
    assert ratio.ci_high - ratio.ci_low <= 1e-9
    assert differs(ratio, len(runs)) == (abs(factor - 1.0) > 0.0005)


def test_zero_on_both_sides_is_no_change() -> None:
    assert ratio_of([{"x": 0.0}], [{"x": 0.0}], "x").mean == 1.0
    assert ratio_of([{"x": 1.0}], [{"x": 0.0}], "x").mean == float("inf")


def test_more_than_a_scenario_may_hold_is_no_lever() -> None:
    scenario = with_changes(fs.load("async-one-step").scenario, {"fleet.max_in_flight_samples": 10**9})
    found = [lever.name for lever in levers_of(scenario, scenario, "one more")]
    assert CAP not in found
    assert {ONE_MORE, CADENCE} <= set(found)
