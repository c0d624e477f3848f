"""What a window implies: who wins where window, scenario and user differ, and the law behind a histogram."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetsim.config.base import MAX_COUNT
from fleetsim.config.load import default_scenario, load_scenario, with_changes
from fleetsim.config.workload import Lognormal
from fleetsim.errors import InputError
from fleetsim.job.nameplate import mean_step_s
from fleetsim.records import replace
from fleetsim.replay.implied.implied_scenario import implied
from fleetsim.replay.implied.workload import length_law
from fleetsim.replay.observe.observed import LengthHistogram, Reading
from fleetsim.replay.window_view import in_flight
from fleetsim.sim.run import simulate
from fleetsim.workload.lengths import mean_length, quantile_length, sample_lengths
from tests.replay.from_records import BOUNDS, history_of, observed_of, run_of
from tests.replay.test_backtest import window_of


def lengths_of(values: np.ndarray, most: float = np.inf) -> LengthHistogram:
    bounds = [float(b) for b in BOUNDS if b <= most] + [np.inf]
    count = np.histogram(values, [0.0, *(b + 0.5 for b in bounds)])[0]
    return LengthHistogram(tuple(bounds), tuple(map(float, count)), float(values.mean()), 0, 0, 0, None, None, None)


def drawn(law: Lognormal, n: int = 40_000) -> np.ndarray:
    return sample_lengths(law, np.random.default_rng(1), n)


def test_the_mean_is_the_observed_one_and_the_tail_is_right() -> None:
    values = drawn(Lognormal(mean=1536.0, cv=1.0, max=8192.0))
    found, how = length_law(lengths_of(values, 8192), 8192.0)
    assert how == "given"
    assert mean_length(found) == pytest.approx(values.mean(), rel=1e-4)
    for q in (0.1, 0.5, 0.9, 0.97, 0.99):
        assert quantile_length(found, q) == pytest.approx(np.quantile(values, q), rel=0.03)
    assert quantile_length(found, 0.9999) == 8192.0


def test_an_unknown_cap_is_found_from_the_share_of_cut_responses() -> None:
    values = drawn(Lognormal(mean=1536.0, cv=1.0, max=8192.0))
    found, how = length_law(lengths_of(values, 8192), None, float((values == 8192).mean()))
    assert how == "counted"
    assert found.max == pytest.approx(8192, rel=0.03)


def test_a_share_of_cut_responses_that_is_none_says_nothing() -> None:
    """Counters that differ by one in 10^20, as a mutated history had them: a quantile of 1 does not exist."""
    values = drawn(Lognormal(mean=1536.0, cv=1.0, max=8192.0))
    assert length_law(lengths_of(values, 8192), None, 1e-20) == length_law(lengths_of(values, 8192))


def test_an_unknown_cap_is_found_from_the_mean() -> None:
    values = drawn(Lognormal(mean=3000.0, cv=1.0, max=8192.0), 200_000)
    found, how = length_law(lengths_of(values, 8192))
    assert how == "mean"
    assert found.max == pytest.approx(8192, rel=0.08)
    assert mean_length(found) == pytest.approx(values.mean(), rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 10_000), min_size=2, max_size=17),
    share=st.floats(0.05, 0.95),
    cap=st.none() | st.floats(1, 200_000),
)
@example(counts=[1, 0, 1], share=0.5, cap=None)  # nothing between a bucket and what lies beyond the last bound
def test_any_histogram_gives_a_law_with_its_buckets_and_mean(
    counts: list[int], share: float, cap: float | None
) -> None:
    """The mean lies anywhere that the buckets allow; the law keeps every bucket's share, and the mean."""
    if not sum(counts):
        counts[0] = 1
    bounds = [*(float(b) for b in BOUNDS[: len(counts) - 1]), np.inf]
    lower = np.array([0.0, *bounds[:-1]])
    upper = np.array([*bounds[:-1], 2.0 * bounds[-2]])
    weights = np.array(counts) / sum(counts)
    mean = float(weights @ (lower + share * (upper - lower)))
    found, _ = length_law(LengthHistogram(tuple(bounds), tuple(counts), mean, 0, 0, 0, None, None, None), cap)
    at, total = 0.0, float(sum(found.count))
    below = np.cumsum(found.count) / total
    for bound, expected in zip(bounds[:-1], np.cumsum(weights)[:-1], strict=True):
        if bound < found.max:
            at = float(np.interp(bound, [0.0, *found.le], [0.0, *below]))
            assert at == pytest.approx(expected, abs=1e-6)
    assert 0 < mean_length(found) <= found.max + 1e-6


def test_the_window_wins_for_what_is_measured() -> None:
    history, observed = window_of("async-one-step")
    base = with_changes(
        load_scenario("async-one-step"),
        {"fleet.instances": 9, "trainer.fixed_s": 35.0, "workload.prompt_tokens": 100, "trainer.batch_samples": 256},
    )
    found = implied(observed, history, base)
    s = found.scenario
    assert s.fleet.instances == 4
    assert s.trainer.fixed_s == pytest.approx(20.0, rel=0.01)
    assert s.trainer.batch_samples == 512
    assert mean_length(s.workload.prompt_tokens) == 512
    assert observed.lengths is not None
    assert mean_length(s.workload.output_tokens) == pytest.approx(observed.lengths.mean, rel=1e-3)
    assert found.base == "async-one-step"
    assert any(line.startswith("fleet.instances: 4") for line in found.taken)


def test_the_scenario_wins_for_what_is_decided() -> None:
    history, observed = window_of("async-one-step")
    changes = {
        "admission.law": "version_window",
        "admission.max_staleness": 3.0,
        "sync.in_flight": "abort_resume",
        "fleet.routing": "round_robin",
        "cost.instance_price_usd_per_gpu_h": 1.5,
    }
    s = implied(observed, history, with_changes(load_scenario("async-one-step"), changes)).scenario
    assert s.admission.law == "version_window"
    assert s.admission.max_staleness == 3.0
    assert s.sync.in_flight == "abort_resume"
    assert s.fleet.routing == "round_robin"
    assert s.cost.instance_price_usd_per_gpu_h == 1.5


def test_the_user_wins_over_both() -> None:
    history, observed = window_of("async-one-step")
    base = with_changes(load_scenario("async-one-step"), {"fleet.instances": 9, "trainer.fixed_s": 35.0})
    found = implied(observed, history, base, given=frozenset({"fleet.instances", "trainer.fixed_s"}))
    assert found.scenario.fleet.instances == 9
    assert found.scenario.trainer.fixed_s == 35.0
    assert "fleet.instances: as set" in found.taken
    assert found.resizes[0][1] == 9


def test_what_tools_answer_is_trained_as_well() -> None:
    """A job of three turns whose tools answer 800 tokens each: its own window leaves its trainer as it is."""
    agentic = with_changes(
        load_scenario("async-one-step"),
        {
            "workload.turns.count": 3,
            "workload.turns.tool_tokens": 800,
            "workload.turns.tool_latency_s": 0.5,
            "trainer.fixed_s": 0.0,
            "trainer.per_token_s": 2e-5,
            "run.steps": 30,
        },
    )
    records = run_of(agentic)
    history = history_of(records)
    observed = observed_of(records, history)
    found = implied(observed, history, agentic).scenario
    assert observed.trainer.train_s is not None
    assert mean_step_s(found) == pytest.approx(observed.trainer.train_s.value, rel=0.03)
    assert found.trainer.per_token_s == pytest.approx(2e-5, rel=0.03)


def test_without_a_scenario_all_that_nothing_shows_is_listed() -> None:
    history, observed = window_of("async-one-step")
    found = implied(observed, history)
    assert found.base is None
    for path in (
        "engine.max_num_seqs",
        "workload.group_correlation",
        "sync.in_flight",
        "admission",
        "trainer.per_token_s",
    ):
        assert any(line.startswith(path) for line in found.assumed), path
    assert found.scenario.admission.law == "batches_ahead"
    assert found.scenario.admission.batches_ahead == 1
    # its metrics name the model, nobody the GPU: the shape of its roofline is assumed, the level is the window's
    assert found.speed is not None
    assert found.speed.shape == "assumed"
    assert found.speed.factor == pytest.approx(1.0, abs=0.03)
    (line,) = (line for line in found.assumed if line.startswith("engine speed"))
    assert "roofline of Qwen/Qwen2.5-7B on H100" in line


@pytest.mark.parametrize(("model", "shape"), [("my-own", "fitted"), ("my-own-7b", "assumed")])
def test_a_model_that_nobody_knows_has_its_speed_from_the_window(model: str, shape: str) -> None:
    """Alone, or with the shape of one that is as large as its name says."""
    history, observed = window_of("async-one-step")
    found = implied(history=history, observed=replace(observed, model=model))
    assert found.speed is not None
    assert found.speed.shape == shape


def test_defaults_are_no_policies() -> None:
    history, observed = window_of("sync-colocated")
    plain = implied(observed, history)
    same = implied(observed, history, default_scenario(), from_file=False)
    assert same == plain
    assert plain.scenario.fleet.placement == "colocated"
    assert plain.scenario.admission.law == "barrier"
    assert plain.scenario.fleet.switch_s == pytest.approx(5.0, abs=0.2)


def test_a_measured_engine_stays() -> None:
    history, observed = window_of("async-one-step")
    base = with_changes(load_scenario("async-one-step"), {"engine.kind": "constant", "engine.instance_tok_s": 4000.0})
    found = implied(observed, history, base)
    assert found.speed is None
    assert found.engine is not None
    assert found.engine[0].kind == "constant"


def test_an_engine_without_a_kv_cache_can_be_simulated_and_sized() -> None:
    """It exports more blocks than a scenario can say: a number that its own reader refused."""
    history, observed = window_of("async-one-step")
    endless = replace(observed, kv_blocks=1 << 40)
    base = with_changes(load_scenario("async-one-step"), {"engine.kind": "constant", "engine.instance_tok_s": 4000.0})
    for found in (implied(endless, history, base), implied(endless, history, default_scenario(), from_file=False)):
        assert found.engine is not None
        assert found.scenario.engine.kv_blocks == MAX_COUNT
        assert found.engine[1].kv_blocks >= MAX_COUNT
        assert with_changes(found.scenario, {"fleet.instances": 3}).fleet.instances == 3


def test_slow_instances_keep_their_pace() -> None:
    history, observed = window_of("async-one-step")
    views = tuple(replace(v, pace=0.8) if i == 2 else v for i, v in enumerate(observed.instances))
    found = implied(replace(observed, instances=views), history, load_scenario("async-one-step"))
    assert found.scenario.fleet.speed_factors == pytest.approx((1.0, 1.0, 1.25, 1.0))


def test_a_window_without_trainer_or_queue() -> None:
    history, observed = window_of("async-one-step")
    quiet = replace(observed, trainer=type(observed.trainer)(*(None,) * 9), queue=type(observed.queue)(*(None,) * 8))
    found = implied(quiet, history)
    assert found.scenario.admission.law == "fixed_pool"
    assert observed.fleet is not None
    assert observed.fleet.in_flight_mean is not None
    # Of groups, those samples that are done wait for their last one: more are kept than are in flight.
    running = in_flight(simulate(found.scenario, engine=found.engine, scrape_every_s=1.0)).mean
    assert running == pytest.approx(observed.fleet.in_flight_mean, rel=0.1)
    (said,) = [line for line in found.assumed if line.startswith("admission")]
    assert "no trainer was read" in said
    assert "although observed they ebb from" in said


def test_a_group_size_that_the_router_hides_is_not_taken() -> None:
    history, observed = window_of("presets/verl-fully-async")
    assert observed.lengths is not None
    hidden = replace(observed, lengths=replace(observed.lengths, group_size=Reading(1.0, "inferred")))
    found = implied(hidden, history)
    assert found.scenario.workload.group_size == 8
    assert any(line.startswith("workload.group_size") for line in found.assumed)


def test_nothing_to_simulate_is_an_error() -> None:
    history, observed = window_of("async-one-step")
    nothing = replace(observed, fleet=None, trainer=type(observed.trainer)(*(None,) * 9))
    with pytest.raises(InputError, match="nothing to simulate"):
        implied(nothing, history)
