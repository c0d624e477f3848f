from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.history.history import History
from fleetsim.records import replace
from fleetsim.replay.observe.lengths import group_from_hits, quantile
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.rates import MOST, edges_of
from tests.replay.histories import START, Fleet, buckets_of, history_of, log_of


def with_(history: History, **values: np.ndarray) -> History:
    return replace(history, values={**history.values, **values})


@settings(deadline=None, max_examples=25)
@given(
    instances=st.integers(1, 10),
    rate=st.floats(200, 20_000),
    noise=st.sampled_from([0.0, 0.03]),
    missing=st.floats(0, 0.1),
    restarted=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_rates_are_recovered_within_two_per_cent(
    instances: int, rate: float, noise: float, missing: float, restarted: bool, seed: int
) -> None:
    pauses = tuple((s, s + 60.0) for s in (600.0, 1500.0, 2400.0))
    history = Fleet(instances, rate, span_s=3 * 3600, pauses=pauses, noise=noise, seed=seed).history()
    tokens = history.values["generation_tokens"].copy()
    truth = (tokens[:, -1] - tokens[:, 0]) / (3 * 3600)
    if restarted:  # between two scrapes: nothing is lost here
        tokens[0, 300:] -= tokens[0, 299]
    rng = np.random.default_rng(seed)
    tokens[rng.random(tokens.shape) < missing] = np.nan
    seen = observe(with_(history, generation_tokens=tokens))
    for view, true in zip(seen.instances, truth, strict=True):
        assert view.tok_s == pytest.approx(true, rel=0.02)
        assert view.active_tok_s == pytest.approx(true / (1 - 180 / (3 * 3600)), rel=0.02)
    assert seen.fleet is not None
    assert seen.fleet.tok_s == pytest.approx(truth.sum(), rel=0.02)
    assert seen.fleet.instance_tok_s == pytest.approx(truth.mean(), rel=0.02)
    if restarted:
        assert seen.instances[0].restarts == 1


def test_an_instance_that_was_down_is_not_present_and_one_that_nobody_read_is_a_gap() -> None:
    history = Fleet(4).history()
    tokens = history.values["generation_tokens"].copy()
    tokens[0, 100:140] = np.nan
    tokens[0, 140:] -= tokens[0, 140] - 1000  # came back with a new counter
    tokens[1, 100:140] = np.nan
    seen = observe(with_(history, generation_tokens=tokens))
    assert seen.fleet is not None
    assert seen.fleet.instances == pytest.approx(4 - 41 / 240)
    assert (seen.fleet.instances_min, seen.fleet.instances_max, seen.fleet.instances_now) == (3, 4, 4)
    assert seen.gap_share == pytest.approx(41 / (4 * 240 - 41))
    assert [v.tok_s for v in seen.instances] == pytest.approx([4000] * 4, rel=0.01)


def test_a_pod_under_a_new_name_is_another_instance() -> None:
    history = Fleet(3).history()
    tokens = history.values["generation_tokens"].copy()
    tokens[0, 120:] = np.nan
    tokens[1, :122] = np.nan
    seen = observe(with_(history, generation_tokens=tokens))
    assert seen.fleet is not None
    assert seen.fleet.instances == pytest.approx(2, abs=0.02)
    assert seen.fleet.instances_now == 2
    assert seen.fleet.tok_s == pytest.approx(8000, rel=0.02)
    assert seen.gap_share == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_fleet_has_no_straggler(seed: int) -> None:
    seen = observe(Fleet(64, noise=0.15, seed=seed).history())
    assert not [v for v in seen.instances if v.straggler]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("instances", "same_load"),
    [(2, True), (3, True), (8, True), (64, True), (8, False), (64, False)],  # few at loads of their own: nobody can say
)
def test_slow_instances_are_named(instances: int, same_load: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    loads = {} if same_load else {i: float(rng.uniform(0.5, 1.5)) for i in range(instances)}
    slow = {1: 0.75} if same_load else {1: 0.7}
    seen = observe(Fleet(instances, slow=slow, loads=loads, noise=0.05, seed=seed).history())
    assert [v.straggler for v in seen.instances] == [i == 1 for i in range(instances)]
    assert seen.instances[1].pace == pytest.approx(slow[1], rel=0.1)


def test_one_instance_cannot_be_compared() -> None:
    (view,) = observe(Fleet(1, slow={0: 0.5}).history()).instances
    assert (view.pace, view.straggler) == (1.0, False)


def test_a_fleet_that_differs_as_a_whole_has_no_straggler() -> None:
    slow = {i: 1 - 0.03 * i for i in range(8)}
    assert not any(v.straggler for v in observe(Fleet(8, slow=slow).history()).instances)


LE = [1.0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000]


@settings(deadline=None, max_examples=25)
@given(mean=st.floats(50, 3000), cv=st.floats(0.1, 1.5), restarted=st.booleans(), seed=st.integers(0, 99))
def test_lengths_are_recovered_within_a_bucket(mean: float, cv: float, restarted: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sigma = np.sqrt(np.log(1 + cv**2))
    draws = np.minimum(np.exp(rng.normal(np.log(mean) - sigma**2 / 2, sigma, (2, 5, 400))), 8192).round() + 1
    times = START + np.arange(5) * 900.0
    buckets = buckets_of(LE, times, [list(d) for d in draws])
    truth = draws[:, 1:].ravel()
    if restarted:
        counts, sums = buckets.counts.copy(), buckets.sums.copy()
        counts[0, 3:] -= buckets.counts[0, 2]
        sums[0, 3:] -= buckets.sums[0, 2]
        buckets = replace(buckets, counts=counts, sums=sums)
    seen = observe(Fleet(2).history(histograms={"output_tokens": buckets})).lengths
    assert seen is not None
    if not restarted or counts[0, 3, -1] < counts[0, 2, -1]:
        assert seen.mean == pytest.approx(truth.mean())
        assert sum(seen.count) == truth.size
        for q, found in ((50, seen.p50), (90, seen.p90), (99, seen.p99)):
            exact = np.percentile(truth, q)
            bucket = int(np.searchsorted(LE, exact))
            low, high = ([0.0, *LE])[max(bucket - 1, 0)], LE[min(bucket + 1, len(LE) - 1)]
            assert low <= found <= high


def test_drift_of_the_lengths() -> None:
    times = START + np.arange(13) * 900.0
    draws = [[np.full(100, 1000.0 * (1 + 0.1 * h / 4)) for h in range(13)]]
    history = Fleet(1, span_s=3 * 3600).history(histograms={"output_tokens": buckets_of(LE, times, draws)})
    seen = observe(history).lengths
    assert seen is not None
    assert seen.drift_per_h == pytest.approx(100 / seen.mean)


def test_a_quantile_in_the_open_bucket_is_the_last_bound() -> None:
    assert quantile(np.array([10.0, np.inf]), np.array([1.0, 9.0]), 0.9) == 10.0
    assert quantile(np.array([10.0, 20.0, np.inf]), np.array([5.0, 5.0, 0.0]), 0.75) == pytest.approx(15)


@given(group=st.integers(2, 32), prompt=st.integers(200, 8000), block=st.sampled_from([16, 32, 64]))
def test_the_group_size_follows_from_the_hits(group: int, prompt: int, block: int) -> None:
    hits = (group - 1) * ((prompt - 1) // block * block)
    assert group_from_hits(hits / (group * prompt), prompt, block) == group


def test_spread_groups_and_no_hits_say_nothing() -> None:
    assert group_from_hits(0.0, 512, 16) is None
    assert group_from_hits(0.3, 512, 16) is None
    assert group_from_hits(0.99, 512, 16) is None


def trainer(step_s: float, wait: float, span_s: float = 7200.0) -> dict[str, np.ndarray]:
    """Counters as a real exporter moves them: at the end of each phase."""
    times = np.arange(0.0, span_s + 7.5, 15.0)
    steps = np.floor(times / step_s)
    return {
        "trainer.steps": steps + 40,
        "trainer.wait_s_total": wait * step_s * np.floor((times + (1 - wait) * step_s) / step_s),
        "trainer.train_s_total": (1 - wait) * step_s * steps,
        "trainer.trained_samples": 512 * steps,
        "trainer.trained_tokens": 512 * 1500 * steps,
        "trainer.dropped_samples": 128 * steps,
        "queue.samples": 100 + times / 36,
    }


@settings(deadline=None, max_examples=25)
@given(step_s=st.floats(40, 600), wait=st.floats(0, 0.9))
def test_steps_from_counters(step_s: float, wait: float) -> None:
    seen = observe(Fleet(2, span_s=7200.0).history(fleet=trainer(step_s, wait)))
    steps = seen.trainer
    assert steps.step_s is not None
    assert steps.idle_fraction is not None
    assert steps.batch_samples is not None
    assert steps.batch_tokens is not None
    rows = int(7200 // step_s) - 1
    assert steps.step_s.value == pytest.approx(step_s, abs=15 / rows)
    assert steps.step_s.source == "exported"
    assert steps.idle_fraction.value == pytest.approx(wait, abs=0.01 + 1.1 * wait / rows)
    assert steps.batch_samples.value == pytest.approx(512)
    assert steps.batch_tokens.value == pytest.approx(512 * 1500)
    assert seen.queue.dropped_share == pytest.approx(0.2)
    assert seen.queue.growth_per_h == pytest.approx(100)
    assert seen.queue.generated_per_trained == pytest.approx(8000 / (512 * 1500 / step_s), rel=0.05)


def test_a_trainer_that_resumes_from_a_checkpoint_made_no_steps() -> None:
    fleet = trainer(100.0, 0.2)
    fleet["trainer.steps"][300:] -= 10
    seen = observe(Fleet(2, span_s=7200.0).history(fleet=fleet)).trainer
    assert seen.step_s is not None
    assert seen.step_s.value == pytest.approx(100, rel=0.02)


def test_gauges_of_the_last_step_are_not_weighted_by_their_length() -> None:
    lengths = np.tile([60.0, 180.0], 30)
    ends = np.cumsum(lengths)
    times = np.arange(0.0, 7201.0, 15.0)
    at = np.clip(np.searchsorted(ends, times, side="right") - 1, 0, None)
    gauges = {"trainer.step_s": lengths[at], "trainer.wait_s": 0.25 * lengths[at]}
    seen = observe(Fleet(2, span_s=7200.0).history(fleet=gauges)).trainer
    assert seen.idle_fraction is not None
    assert seen.idle_fraction.value == pytest.approx(0.25, rel=0.01)
    counted = observe(
        Fleet(2, span_s=7200.0).history(fleet={**gauges, "trainer.steps": np.searchsorted(ends, times, "right") * 1.0})
    ).trainer
    assert counted.step_s is not None
    assert counted.step_s.value == pytest.approx(120, rel=0.03)
    assert counted.wait_s is not None
    assert counted.wait_s.value == pytest.approx(30, rel=0.03)


def test_colocated_steps_are_inferred_from_the_engines() -> None:
    truth = tuple((s, s + 80.0) for s in np.arange(150.0, 3400.0, 240.0))
    seen = observe(Fleet(4, pauses=truth, empty=True, drain_s=60.0).history())
    assert seen.placement == "colocated"
    step = seen.trainer
    assert step.step_s is not None
    assert step.idle_fraction is not None
    assert step.step_s.source == step.idle_fraction.source == "inferred"
    assert step.step_s.value == pytest.approx(240, rel=0.02)
    assert step.idle_fraction.value == pytest.approx(160 / 240, abs=0.05)
    assert step.sync_s is None
    assert any("inferred" in n.text for n in seen.notes)


def test_disaggregated_steps_are_the_period_of_the_pauses_and_nothing_more() -> None:
    truth = tuple((s, s + 40.0) for s in np.arange(150.0, 3400.0, 240.0))
    seen = observe(Fleet(4, pauses=truth).history())
    assert seen.placement == "disaggregated"
    assert seen.trainer.step_s is not None
    assert seen.trainer.step_s.value == pytest.approx(240, rel=0.01)
    assert seen.trainer.step_s.source == "inferred"
    assert seen.trainer.wait_s is None
    assert seen.trainer.idle_fraction is None


def test_nothing_is_known_of_a_trainer_that_shows_nowhere() -> None:
    seen = observe(Fleet(4).history())
    assert seen.trainer.step_s is None
    assert seen.queue.depth is None
    assert seen.lengths is None


def test_a_run_log_alone() -> None:
    n = 120
    time_s = list(START + 100.0 * np.arange(1, n + 1))
    log = log_of(
        time_s=time_s, step_s=[100.0] * n, wait_s=[30.0] * n, train_s=[60.0] * n, samples=[512.0] * n,
        length_mean=[1500.0] * n, queue_samples=list(np.arange(float(n))),
    )  # fmt: skip
    seen = observe(log)
    assert seen.fleet is None
    assert seen.lengths is None
    assert seen.trainer.idle_fraction is not None
    assert seen.trainer.idle_fraction.value == pytest.approx(0.3)
    assert seen.trainer.idle_fraction.source == "log"
    assert seen.trainer.batch_tokens is not None
    assert seen.trainer.batch_tokens.value == pytest.approx(512 * 1500)
    assert (seen.start_s, seen.end_s) == (START, START + 12_000)
    assert [h.step_s for h in seen.hours] == pytest.approx([100.0] * len(seen.hours))
    assert all(h.instances is None and h.instance_tok_s is None for h in seen.hours)
    assert seen.queue.growth_per_h == pytest.approx(36)


def test_a_synchronous_log_waits_while_it_generates() -> None:
    seen = observe(log_of(step_s=[100.0] * 9, generate_s=[55.0] * 9, train_s=[40.0] * 9))
    assert seen.placement == "colocated"
    assert seen.trainer.idle_fraction is not None
    assert seen.trainer.idle_fraction.value == pytest.approx(0.55)


@given(span=st.floats(60, 200_000))
def test_slices_cover_the_window_without_overlap(span: float) -> None:
    edges = edges_of(START, START + span)
    assert (edges[0], edges[-1]) == (START, pytest.approx(START + span))
    widths = np.diff(edges)
    assert widths.min() > 0
    if span >= 3.5 * 3600:
        assert widths[:-1] == pytest.approx(3600)
        assert 1800 - 1e-6 <= widths[-1] < 5400
    elif span >= 600:
        assert widths.min() >= 599
        assert len(widths) == min(4, span // 600)  # as many as a drift is told by


def test_a_clock_that_jumps_over_a_century_makes_no_million_slices() -> None:
    edges = edges_of(START, START + 136 * 365 * 86_400.0)
    assert 1000 < len(edges) <= MOST + 1
    assert np.diff(edges)[:-1] / 3600 == pytest.approx(round(np.diff(edges)[0] / 3600))


def test_every_hour_has_its_own_rate() -> None:
    history = Fleet(2, span_s=4 * 3600.0).history()
    times = history.times - START
    tokens = np.tile(np.cumsum(np.where(times <= 7200, 1000.0, 3000.0) * 15), (2, 1))
    seen = observe(with_(history, generation_tokens=tokens))
    assert [h.tok_s for h in seen.hours] == pytest.approx([2000, 2000, 6000, 6000], rel=0.01)
    assert [h.instances for h in seen.hours] == [2.0] * 4


@pytest.mark.parametrize(
    ("history", "says"),
    [
        (Fleet(2, span_s=30.0).history(), "too short"),
        (
            history_of(START + np.arange(9) * 15.0, 15.0, {"generation_tokens": np.full((2, 9), 7.0)}),
            "nobody generated",
        ),
        (history_of(START + np.arange(9) * 15.0, 15.0, {"generation_tokens": np.full((2, 9), np.nan)}), "no instance"),
        (replace(Fleet(2).history(), values={"running": np.ones((2, 241))}), "no metric carries"),
        (history_of(START + np.arange(9) * 15.0, 15.0, {}), "neither engines nor"),
        (log_of(step_s=[100.0]), "two optimizer steps"),
    ],
)
def test_what_cannot_be_observed_says_why(history: History, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        observe(history)
    assert all(p.remedy for p in error.value.problems)


def test_without_running_requests_rates_and_pauses_still_show() -> None:
    truth = tuple((s, s + 70.0) for s in (500.0, 1200.0, 1900.0, 2600.0))
    history = Fleet(4, pauses=truth, slow={2: 0.6}).history()
    seen = observe(replace(history, values={"generation_tokens": history.values["generation_tokens"]}))
    assert seen.pauses is not None
    assert len(seen.pauses.each) == 4
    assert [v.running for v in seen.instances] == [None] * 4
    assert any("by rate alone" in n.text for n in seen.notes)


def test_engines_that_run_dry_once_in_many_steps_are_not_colocated() -> None:
    truth = tuple((s, s + 200.0) for s in (300.0, 1500.0, 2700.0))
    history = Fleet(4, pauses=truth, empty=True, drain_s=60.0).history(
        fleet={"trainer.steps": np.arange(241) // 4 * 1.0}
    )
    assert observe(history).placement is None


def test_finding_no_pause_is_said_with_its_resolution() -> None:
    assert any("stops below 30 s" in n.text for n in observe(Fleet(4).history()).notes)
