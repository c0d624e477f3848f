"""How sure an answer is: draws of all that is uncertain over a surface of short runs, held against direct runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config.load import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError
from fleetsim.estimates import Estimate
from fleetsim.job.looks import looked
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trials import Trials, remembered, simulated, unit_of, with_instances
from fleetsim.job.trials import planned as planned_job
from fleetsim.job.uncertainty import CONFIDENCE, UNCERTAIN, Z80, FactorLaw, law_name
from fleetsim.search.doubt import JointDoubt, middle
from fleetsim.search.objective import Target, price_per_s
from fleetsim.search.ranges import KnownMetrics, expected_loss
from fleetsim.search.surface import Surface
from fleetsim.sim.threads import side_by_side
from fleetsim.size.facts import measured_first
from fleetsim.size.size import Sizing
from fleetsim.size.spread import CountSpread, FleetCounts, count_doubt, spread_of
from fleetsim.size.words import headline
from fleetsim.trainer.estimate import estimate_of
from tests.plan.draws import all_off
from tests.plan.fakes import fluid, metrics

JOB = {"batch": 256, "len": 1536, "max_staleness": 3, "max_len": 4096, "replications": 2}
IDLE = Target("trainer_idle_fraction", "trainer_idle_fraction", 0.05)
Floats = npt.NDArray[np.float64]


def planned(changes: Any = None, **options: Any) -> Sizing:
    confidence = options.pop("confidence", None)
    return fs.load(None, changes or {}, **{**JOB, **options}).size(confidence=confidence).plan


def doubt_of(
    options: Mapping[str, Any], instances: int, targets: Sequence[Target] = (), changes: Any = None, measure: Any = None
) -> JointDoubt:
    job = fs.load(None, changes or {}, **options)
    scenario = planned_job(job.scenario, job.given)
    found = count_doubt(scenario, instances, job.given, targets, measure or simulated)
    assert found is not None
    return found


def slowed(rate: float, floor_s: float = 0.0) -> Any:
    """A fluid fleet that hears speed factors and what is lost inside a job; syncs take no time."""

    def measure(scenario: Scenario, replication: int) -> Mapping[str, Any]:
        factors = scenario.fleet.speed_factors
        slow = scenario.engine.slowdown * (factors[0] if factors else 1.0)
        run = fluid(rate / slow, floor_s)(scenario, replication)
        return {**run, "sync_fraction": 0.0}

    return measure


def test_what_was_given_is_not_in_doubt() -> None:
    alike = {"workload.group_correlation": 0.25}
    known = planned(alike, instance_tok_s=4000.0, trainer_step_s=20.0, sync_pause_s=1.0, len_cv=0.8)
    assert known.spread is None
    assert measured_first(known) is None
    assert "likely" not in headline(known)
    some = planned(alike, trainer_step_s=20.0, sync_pause_s=1.0)
    assert some.spread is not None
    assert {p.what for p in some.spread.parts} == {"engine speed", "speed lost in a training job", "spread of lengths"}


@given(st.floats(0.3, 1.0), st.floats(1.0, 4.0))
@settings(max_examples=20, deadline=None)
def test_a_law_has_its_interval(low: float, high: float) -> None:
    law = FactorLaw(law_name((low, high)), low, high, "")
    found = law.factors(np.array([-Z80, 0.0, Z80]))
    assert found == pytest.approx([low, 1.0, high])
    draws = law.factors(np.random.default_rng(0).normal(size=4000))
    assert np.mean((draws >= low) & (draws <= high)) >= CONFIDENCE - 0.03


def test_every_law_has_a_name_and_a_source() -> None:
    job = fs.load(**JOB)
    laws = {u.what: u.law(job.scenario, job.given) for u in UNCERTAIN}
    assert all(law is not None and law.source for law in laws.values())
    names = {what: law.name for what, law in laws.items() if law is not None}
    assert names["engine speed"] == names["trainer seconds"] == "lognormal"
    assert names["spread of lengths"] == "two-piece lognormal"
    assert law_name((0.6, 1.0)) == "lognormal to one side"


@pytest.mark.parametrize("targets", [(IDLE,), ()])
def test_counts_of_a_fluid_fleet_follow_the_engines_speed(targets: tuple[Target, ...]) -> None:
    """Demand is 256 x 1536 / 20 s = 19,661 tok/s. At a factor f of the engines' seconds n instances make f x demand;
    with targets the best count is that x 0.95, rounded up. Without, a step is as long as the slower side and the best
    count is one of the two around the even one. The factor is lognormal, of two. Counts are looked at 4 % apart."""
    job = fs.load(batch=256, len=1536, trainer_step_s=20.0, len_cv=0)
    slowdown = job.scenario.engine.slowdown
    changes = {"sync.pause_s": 0.0, "sync.trainer_block_s": 0.0, "sync.publish_s": 0.0}
    options = {"batch": 256, "len": 1536, "trainer_step_s": 20.0, "len_cv": 0}
    rate, held = 300.0 * slowdown, 0.95 if targets else 1.0
    even = 256 * 1536 * held / (300.0 * 20.0)
    doubt = doubt_of(options, math.ceil(even), targets, changes, slowed(rate))
    wide = math.hypot(*(math.log(law.high) for _, law in doubt.laws))
    low, high = doubt.counts()
    assert low == pytest.approx(even * math.exp(-wide), rel=0.05)
    assert high == pytest.approx(even * math.exp(wide), rel=0.05)


@pytest.mark.parametrize("worth", [0.0, 1.0, 3.0])
def test_cases_are_judged_by_what_time_is_worth(worth: float) -> None:
    """A step of 20 + 400 / n s at n + 8 GPUs: step^(1 + w) (n + 8) is least where 20 n^2 = 400 (w n + 8 (1 + w))."""

    def measure(scenario: Scenario, replication: int) -> Mapping[str, Any]:
        step = 20.0 + 400.0 / scenario.fleet.instances
        return metrics(step, 1.0 - 20.0 / step, sync_fraction=0.0)

    best = 10.0 * worth + math.sqrt(100.0 * worth**2 + 160.0 * (1.0 + worth))
    options = {"batch": 256, "len": 1536, "trainer_step_s": 20.0, "trainer_gpus": 8, "worth": worth}
    doubt = doubt_of(options, round(best), (), {"sync.pause_s": 0.0, "sync.publish_s": 0.0}, measure)
    likeliest = doubt.judged(doubt.factors(np.zeros((len(doubt.laws), 1))))
    assert int(likeliest.best[0]) == pytest.approx(best, rel=0.06)


@given(st.floats(0.5, 0.98), st.floats(0.5, 0.98))
@settings(max_examples=20, deadline=None)
def test_more_confidence_is_a_wider_range(one: float, other: float) -> None:
    values = np.random.default_rng(1).lognormal(size=200)
    (low_1, high_1), (low_2, high_2) = (middle(values, c) for c in sorted((one, other)))
    assert low_2 <= low_1 <= high_1 <= high_2
    assert np.mean((values >= low_1) & (values <= high_1)) >= min(one, other)


# A job; its likeliest best count without targets by direct runs; and the counts that are held against each other.
DEFAULT = ({"batch": 512, "len": 1536}, {}, 3, (1, 2, 3, 4, 5, 6, 7, 8, 10, 12))
QWEN3 = {"model": "Qwen/Qwen3-32B", "gpu": "H200", "batch": 1024, "len": 3000}
MIXTURE = {"model": "Qwen/Qwen3-30B-A3B", "gpu": "H100", "batch": 512, "len": 1536}
LATENT = {"model": "deepseek-ai/DeepSeek-V3", "tp": 16, "trainer_gpus": 256, "batch": 512, "len": 1536}
REWARDS = ({"batch": 512, "len": 1536}, {"workload.reward.latency_s": 20.0}, 4, (2, 3, 4, 5, 6, 7, 8, 10, 12))
# A window of one version and a cap on what is in flight hold a step up by more than either side takes.
WINDOW = {
    "engine.slowdown": 3.6,
    "fleet.max_in_flight_samples_per_instance": 128,
    "sync.trigger": "pulls",
    "sync.every_pulls": 1,
    "sync.in_flight": "abort_resume",
    "sync.trainer_block_s": 2.0,
    "admission.law": "per_sync_window",
    "admission.staleness_threshold": 1.0,
    "buffer.capacity_samples": 1024,
    "buffer.on_full": "drop_oldest",
}
OTHERS = [
    ({"batch": 512, "len": 800, "trainer_step_s": 60.0, "trainer_gpus": 4}, WINDOW, 3, (2, 3, 4, 5, 6)),
    (QWEN3, {}, 3, (1, 2, 3, 4, 5, 6, 8)),
    (MIXTURE, {}, 1, (1, 2, 3, 4, 5)),
    ({"batch": 512, "len": 1536, "trainer_step_s": 20.0}, {}, 5, (2, 3, 4, 5, 6, 7, 8, 9, 11, 13)),
    REWARDS,
    (LATENT, {}, 4, (2, 3, 4, 5, 6, 7, 9)),
]


@pytest.mark.parts
@pytest.mark.parametrize(
    ("options", "changes", "answer", "counts"), [DEFAULT, *(pytest.param(*x, marks=pytest.mark.slow) for x in OTHERS)]
)
def test_the_surface_says_what_direct_runs_of_joint_cases_say(
    options: dict[str, Any], changes: dict[str, Any], answer: int, counts: tuple[int, ...]
) -> None:
    """Brute force: every input drawn from its law at once, each count simulated directly, twice, in each case."""
    doubt = doubt_of(options, answer, changes=changes)
    cases = 16
    z = np.random.default_rng(0).normal(size=(len(doubt.laws), cases))
    moved = np.array([law.factors(row) for (_, law), row in zip(doubt.laws, z, strict=True)])
    job = looked(doubt.of.scenario)

    def step_s(at: tuple[int, int]) -> float:
        case, n = at
        off = [(u, float(moved[i, case])) for i, (u, _) in enumerate(doubt.laws)]
        scenario = all_off(with_instances(job, n), off)
        return float(np.mean([simulated(scenario, r)["step_s"] for r in range(2)]))

    pairs = [(case, n) for case in range(cases) for n in counts]
    steps = np.array(side_by_side(step_s, pairs)).reshape(cases, len(counts))
    cost = steps**2 * np.array([price_per_s(job, n) for n in counts])
    best = np.array(counts)[cost.argmin(axis=1)]
    loss = float(np.mean(cost[:, counts.index(answer)] / cost.min(axis=1) - 1.0))
    seen = doubt.judged(doubt.factors(z))
    for direct, on_surface in zip(middle(best, 0.8), middle(seen.best, 0.8), strict=True):
        assert abs(direct - on_surface) <= max(1, 0.2 * direct)
    assert doubt.loss(answer, seen) == pytest.approx(loss, abs=0.05)
    found = np.array([doubt.surface.step_s(n, doubt.factors(z)) for n in counts]).T
    assert np.log(found / steps).std() < 0.05
    assert abs(np.log(found / steps).mean()) < 0.03


def test_seconds_that_nothing_scales_are_simulated() -> None:
    """Rewards take 20 s whatever the engines do, so a step of engines that are twice as slow is not twice as long."""
    options, changes, answer, _ = REWARDS
    doubt = doubt_of(options, answer, changes=changes)
    slow, law = next((u, law) for u, law in doubt.laws if u.axis == "engine")
    z = np.zeros((len(doubt.laws), 2))
    z[[u.axis for u, _ in doubt.laws].index("engine")] = 0.0, 2.0
    job = with_instances(looked(doubt.of.scenario), 2)
    base, slower = (simulated(all_off(job, [(slow, float(x))]), 0)["step_s"] for x in law.factors(np.array([0.0, 2.0])))
    found = doubt.surface.step_s(2, doubt.factors(z))
    assert found[1] / found[0] == pytest.approx(slower / base, rel=0.04)


def test_a_step_scales_with_all_its_seconds() -> None:
    options, _, answer, _ = DEFAULT
    surface: Surface = doubt_of(options, answer).surface
    doubled = doubt_of(options, answer).factors(np.zeros((6, 1)))
    one = surface.step_s(answer, doubled)
    for axis in (doubled.engine, doubled.trainer, doubled.sync):
        axis *= 2.0
    # but for log-probs, whose seconds no factor scales: here less than a thousandth of a step
    assert surface.step_s(answer, doubled) == pytest.approx(2.0 * one, rel=1e-3)


@pytest.mark.parametrize(
    "options", [{"trainer_step_s": 15.0, "sync_pause_s": 2.0, "gpu": "H200"}, {"len": 3000, "max_len": 8192}]
)
def test_ranges_of_steps_hold_what_draws_of_all_inputs_at_once_give(options: dict[str, Any]) -> None:
    """Brute force: every input drawn from its law, the recommended fleet simulated for each."""
    job = fs.load(None, {"run.steps": 8}, **{**JOB, **options})
    plan = job.size().plan
    assert plan.spread is not None
    inputs = [(u, law) for u in UNCERTAIN if (law := u.law(plan.scenario, job.given))]
    z = np.random.default_rng(0).normal(size=(60, len(inputs)))
    there = with_instances(plan.scenario, plan.instances)
    cases = [all_off(there, [(u, float(law.factors(x))) for (u, law), x in zip(inputs, row, strict=True)]) for row in z]
    steps = side_by_side(lambda one: simulated(one, 0)["step_s"], cases)
    low, high = plan.spread.metrics["step_s"]
    assert sum(low <= x <= high for x in steps) >= (CONFIDENCE - 0.1) * len(steps)


def test_a_value_given_as_it_was_assumed_leaves_the_answer_and_narrows_its_range() -> None:
    options = {"batch": 512, "trainer_step_s": 20.0}
    assumed = planned(**options)
    told = planned(**options, slowdown=assumed.scenario.engine.slowdown)
    assert told.instances == assumed.instances
    assert assumed.spread is not None
    assert told.spread is not None
    (low, high), (from_, to) = assumed.spread.instances, told.spread.instances
    assert low <= from_ <= told.instances <= to <= high
    assert high / low > to / from_
    assert told.spread.expected_loss < assumed.spread.expected_loss


ALIKE = "workload.group_correlation"


@pytest.mark.slow
def test_siblings_move_a_step_as_long_runs_of_other_draws_show_and_given_they_are_not_in_doubt() -> None:
    """AReaL's groups hold their places until the longest sample has ended: the more alike, the sooner."""
    job, told = fs.load("areal"), fs.load("areal", {ALIKE: 0.25})
    plan, sure = job.size().plan, told.size().plan
    assert plan.spread is not None
    assert sure.spread is not None
    (part,) = (p for p in plan.spread.parts if p.path == ALIKE)
    assert part.factors == pytest.approx((0.4, 2.4))
    assert part.measure == "fleetsim replay --from LOG"
    there = with_changes(with_instances(plan.scenario, plan.instances), {"run.steps": 150})
    least, base, most = (
        np.mean([simulated(with_changes(there, {ALIKE: share}), k)["step_s"] for k in (7, 8)])
        for share in (0.1, 0.25, 0.6)
    )
    assert most < 0.93 * base < base < 0.98 * least
    assert part.low.metrics["step_s"] / part.high.metrics["step_s"] == pytest.approx(least / most, abs=0.04)
    assert sure.instances == plan.instances
    assert ALIKE not in {p.path for p in sure.spread.parts}
    (low, high), (from_, to) = (one.metrics["step_s"] for one in (plan.spread, sure.spread))
    assert to / from_ < high / low


def test_a_range_that_siblings_alone_make_names_them() -> None:
    """400 s of one instance at 0.25, 460 at 0.1, 260 at 0.6, beside 20 of the trainer: 20 instances, 13 to 23."""

    def measure(scenario: Scenario, replication: int) -> Mapping[str, Any]:
        rollout = 400.0 * (1.25 - scenario.workload.group_correlation) / scenario.fleet.instances
        step = max(rollout, mean_step_s(scenario))
        return metrics(step, 1.0 - mean_step_s(scenario) / step, sync_fraction=0.0)

    options = {"batch": 256, "len": 1536, "len_cv": 1, "instance_tok_s": 300, "trainer_step_s": 20, "sync_pause_s": 1}
    doubt = doubt_of(options, 20, (), {"sync.publish_s": 0.0}, measure)
    spread = spread_of(doubt, Trials(doubt.of.scenario, measure).at(20, 2))
    assert spread is not None
    assert spread.instances == (pytest.approx(13, abs=1), pytest.approx(23, abs=1))
    assert spread.widest == "likeness of siblings"
    assert [part.what for part in spread.parts] == [spread.widest]


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({}, (0.4, 2.4)),
        ({"workload.group_size": 1}, None),
        ({"workload.output_tokens": {"kind": "constant", "value": 900}}, None),
        ({ALIKE: 0.25}, None),
        ({"workload.turns": {"count": 3, "output_tokens": {"kind": "constant", "value": 300}}}, None),
    ],
)
def test_siblings_are_in_doubt_where_they_can_differ_and_nobody_said(changes: Any, ends: Any) -> None:
    job = fs.load(None, changes, **({} if "workload.group_size" in changes else {"batch": 512}))
    (siblings,) = (u for u in UNCERTAIN if u.axis == "siblings")
    found = siblings.interval(job.scenario, job.given)
    assert found == (None if ends is None else pytest.approx(ends))
    if ends is not None:
        assert "0.1 to 0.6" in siblings.why(job.scenario, ends)
        assert siblings.times(job.scenario, 8.0) == {ALIKE: 1.0}


def test_a_range_is_no_wider_than_its_inputs_make_it_and_says_which_does() -> None:
    options, _, answer, _ = DEFAULT
    alike = {"workload.group_correlation": 0.25}
    doubt = doubt_of(
        {**options, "trainer_step_s": 26.0, "sync_pause_s": 3.5, "len_cv": 1.0, "slowdown": 1.33}, answer, (), alike
    )
    assert all(max(law.high, 1.0 / law.low) < 1.5 for _, law in doubt.laws)
    low, high = doubt.counts()
    assert low <= answer <= high <= 4 * low
    plan = planned(batch=512)
    assert plan.spread is not None
    widths = {p.what: abs(math.log(p.high.instances / p.low.instances)) for p in plan.spread.parts}
    assert plan.spread.widest is not None
    assert widths[plan.spread.widest] == max(widths.values())


def test_the_count_of_the_least_expected_loss_loses_least() -> None:
    options, _, answer, _ = DEFAULT
    doubt = doubt_of(options, answer)
    least = doubt.least_expected_loss
    assert doubt.enough(0.9) == least
    assert all(doubt.loss(least) <= doubt.loss(int(n)) for n in doubt.cases.counts)
    assert 0.0 < doubt.loss(least) <= doubt.loss(answer) < 1.0


def test_a_target_is_held_in_the_share_of_cases_that_is_asked() -> None:
    options, _, _, _ = DEFAULT
    doubt = doubt_of(options, 4, (IDLE,))
    half, most = doubt.holding(0.5), doubt.holding(0.9)
    assert half is not None
    assert most is not None
    assert half < most
    assert doubt.counts()[1] <= most + unit_of(doubt.of.scenario)


def test_a_fleet_for_nine_cases_in_ten_is_larger_or_refused() -> None:
    options = {"trainer_step_s": 30.0, "sync_pause_s": 2.0, "target_idle": 0.05}
    likeliest, sure = planned(**options), planned(**options, confidence=0.9)
    assert sure.instances >= likeliest.instances
    assert sure.spread is not None
    if sure.enough:
        assert sure.spread.instances[1] >= sure.instances
        assert "enough in 90 % of cases" in headline(sure)
    else:
        assert sure.instances == likeliest.instances
        assert not sure.feasible
        assert headline(sure).startswith("No fleet is enough in 90 % of cases.")


def test_a_job_that_some_case_breaks_says_so() -> None:
    plan = planned(max_staleness=2, max_len=8192, batch=512, target_idle=0.05)
    assert plan.spread is not None
    assert not plan.spread.held
    said = measured_first(plan)
    assert said is not None
    assert "if it is slow, no count is enough" in said
    tight = planned(max_staleness=2, max_len=8192, batch=512, target_idle=0.05, confidence=0.9)
    assert tight.enough is False
    assert not tight.feasible


@pytest.mark.parametrize("confidence", [0.5, 0.0, 1.0, 1.2, -1.0, math.nan])
def test_a_confidence_is_a_share(confidence: float) -> None:
    with pytest.raises(InputError, match=r"above 0\.5 and at most 0\.99"):
        planned(confidence=confidence)


def test_a_wide_range_is_said_first() -> None:
    def spread(*instances: int) -> CountSpread:
        return CountSpread(
            instances=(instances[0], instances[1]), held=True, metrics={}, parts=(), expected_loss=0.1, widest=None,
            least_expected_loss_instances=5,
        )  # fmt: skip

    assert spread(4, 9).wide
    assert not spread(1, 2).wide
    assert not spread(6, 9).wide


def test_what_being_wrong_costs_is_said() -> None:
    plan = planned(batch=512)
    assert plan.spread is not None
    said = measured_first(plan)
    assert said is not None
    assert f"being wrong costs {plan.spread.expected_loss:.0%}".replace("%", " %") in said
    assert {"expected_loss", "least_expected_loss_instances", "widest"} <= plan.said()["spread"].keys()


def test_staying_with_the_first_of_two_costs_what_the_other_would_save() -> None:
    """A step of the first is 10 s times a lognormal factor of deviation s and median 1, one of the second 10 s: staying
    costs E[max(1, factor)] - 1 = exp(s^2 / 2) Phi(s) - 1 / 2 of it."""
    trainer = next(u for u in UNCERTAIN if u.axis == "trainer")
    laws, estimates = [(trainer, FactorLaw("lognormal", 0.5, 2.0, ""))], {"step_s": Estimate(10.0, 10.0, 10.0)}

    def known(step_s: Any) -> KnownMetrics:
        surface: Any = SimpleNamespace(step_s=lambda n, f: step_s(f.trainer))
        return KnownMetrics(default_scenario(), surface, 1, laws, estimates)

    first, second = known(lambda factor: 10.0 * factor), known(lambda factor: np.full_like(factor, 10.0))
    s = math.log(2.0) / Z80
    costs = math.exp(s * s / 2.0) * NormalDist().cdf(s) - 0.5
    assert expected_loss([first, second], "step_s") == pytest.approx(costs, rel=0.05)
    assert expected_loss([first], "step_s") == 0.0


def test_the_likeliest_case_is_as_long_runs_have_it() -> None:
    """By the surface two instances take half as long as one; by long runs, three quarters."""
    job = with_changes(default_scenario(), {"sync.pause_s": 0.0, "sync.publish_s": 0.0, "trainer.fixed_s": 0.001})
    trainer = [(u, law) for u in UNCERTAIN if u.axis == "trainer" and (law := u.law(job, ())) is not None]
    measure = remembered(slowed(1000.0))
    doubt = JointDoubt(FleetCounts(job, 1), 1, trainer, measure, (1.0, 0.0), long_s={1: 100.0, 2: 75.0})
    cases = doubt.judged(doubt.factors(np.zeros((len(trainer), 1))))
    one, two = (float(cases.losses[doubt.row_of(cases, n), 0]) + 1.0 for n in (1, 2))
    assert one / two == pytest.approx(100.0 / 75.0, rel=1e-6)


def test_an_estimated_trainer_has_the_error_of_its_kind_and_an_assumed_one_that_of_nobody() -> None:
    def trainer(**options: Any) -> Any:
        spread = planned(**options).spread
        assert spread is not None
        return next(p for p in spread.parts if p.what == "trainer seconds")

    estimated = trainer()
    job = fs.load(**JOB)
    error = estimate_of(job.scenario, job.scenario.trainer.gpus).error
    assert error is not None
    assert estimated.high.factor == pytest.approx((1 + error.p90) ** (1.2816 / 1.6449))
    assert "published runs" in estimated.why
    nobody = trainer(instance_tok_s=4000.0)
    assert (nobody.low.factor, nobody.high.factor) == (0.5, 2.0)
    assert nobody.why == "20.0 s a step is assumed"
