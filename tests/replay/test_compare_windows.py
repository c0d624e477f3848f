"""Windows of history against each other: intervals that hold the truth, known changes found, luck not taken for one."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest

from fleetsim.compare.compare import Comparison, MetricChange
from fleetsim.compare.windows import compare_windows
from fleetsim.config import Scenario, scenario_from_mapping, with_changes
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.history.files import read_file
from fleetsim.history.history import History
from fleetsim.history.window import window
from fleetsim.quantities import OBSERVED, WINDOW_METRICS, quantity
from fleetsim.replay.observe.window_metrics import (
    _MISSING,
    FEWEST,
    correlation,
    ratio_mean,
    section_mean,
    window_means,
    window_of,
)
from fleetsim.sim.run import simulate

JOB = scenario_from_mapping(
    {
        "workload": {"output_tokens": {"mean": 200, "cv": 0.8, "max": 800}, "prompt_tokens": 64, "group_size": 4},
        "engine": {"kind": "constant", "instance_tok_s": 400},
        "fleet": {"instances": 2},
        "admission": {"law": "barrier"},
        "trainer": {"batch_samples": 32, "fixed_s": 20.0},
        "run": {"steps": 130, "seed": 5},
    }
)
RUNS = 1500


def history(scenario: Scenario, folder: Path, every_s: float = 5.0) -> History:
    """The run as it would be read from its metrics, every 5 s."""
    records = simulate(scenario, scrape_every_s=every_s)
    text = io.StringIO()
    write_openmetrics(records, text, end_s=1.7e9)
    file = folder / "history.om"
    file.write_text(text.getvalue())
    return read_file(file)


def change(found: Comparison, metric: str) -> MetricChange:
    return next(c for c in found.changes if c.metric == metric)


def series(rng: np.random.Generator, n: int, rho: float) -> np.ndarray:
    """n values around 10, each like the one before by rho."""
    noise = rng.standard_normal(n)
    out = np.empty(n)
    out[0] = noise[0] / math.sqrt(1 - rho**2)
    for k in range(1, n):
        out[k] = rho * out[k - 1] + noise[k]
    return 10 + out


@pytest.mark.parametrize(("rho", "steps"), [(0.0, 200), (0.5, 200), (0.8, 200), (0.8, 1000), (-0.4, 100)])
def test_the_interval_of_a_mean_holds_the_truth_although_steps_are_alike(rho: float, steps: int) -> None:
    rng, hits = np.random.default_rng(3), 0
    for _ in range(RUNS):
        blocks = series(rng, steps, rho).reshape(20, -1).sum(axis=1)
        found = ratio_mean(blocks, np.full(20, steps / 20.0))
        assert found is not None
        e = found.estimate()
        hits += e.ci_low <= 10 <= e.ci_high
    assert hits / RUNS > 0.93, "in blocks of ten that are this alike, a little below 95 % is left"


def test_correlation_of_independent_blocks_is_about_nothing() -> None:
    rng = np.random.default_rng(4)
    assert np.mean([correlation(rng.standard_normal(20)) for _ in range(RUNS)]) < 0.12
    assert np.mean([correlation(series(rng, 20, 0.7) - 10) for _ in range(RUNS)]) > 0.5


def test_a_block_without_anything_counts_for_nothing() -> None:
    top, bottom = np.array([4.0, 6.0, 0.0, 5.0, 5.0, 5.5]), np.array([2.0, 3.0, 0.0, 2.5, 2.5, 2.75])
    found = ratio_mean(top, bottom)
    assert found is not None
    assert (found.value, found.error, found.freedom) == (2.0, 0.0, 4.0)
    assert ratio_mean(np.full(6, np.nan), bottom) is None
    few = section_mean(3.0, np.array([3.0, 4.0]))
    assert few is not None
    assert few.freedom == 0.0, f"fewer than {FEWEST} blocks say nothing of the error"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history(JOB, tmp_path_factory.mktemp("base"))


def test_a_window_equals_itself(base: History) -> None:
    found = compare_windows(("A", base), ("B", base))
    assert not found.significant
    assert found.inputs == ()
    for c in found.changes:
        if c.verdict != "not comparable":
            assert c.difference is not None
            assert c.difference.mean == 0.0
            assert c.ratio is None or c.ratio.mean == 1.0


def test_a_known_change_is_found(base: History, tmp_path: Path) -> None:
    """Behind a barrier, two seconds more compute are two seconds more per step."""
    after = history(with_changes(JOB, {"trainer.fixed_s": 22.0, "run.seed": 6}), tmp_path)
    found = compare_windows(("before", base), ("after", after))
    step, compute = change(found, "step_s"), change(found, "train_s")
    assert (step.verdict, compute.verdict) == ("worse", "worse")
    for c in (step, compute):
        assert c.difference is not None
        assert c.difference.ci_low <= 2.0 <= c.difference.ci_high
    assert change(found, "response_tokens.mean").verdict == "no significant change"
    assert found.inputs == ()
    assert (found.kind, found.paired) == ("windows", False)
    assert found.headline.startswith("B's step is ")
    assert any("batch means: 20 blocks" in note for note in found.notes)


def test_steps_shorter_than_the_scrape_interval_are_said_to_blur(base: History, tmp_path: Path) -> None:
    """Steps of 4 s read every 15 s: whole counts at block ends make most of the interval, and a longer window less."""
    short = with_changes(JOB, {"engine.instance_tok_s": 3000.0, "trainer.fixed_s": 2.0, "run.steps": 300})
    quick = history(short, tmp_path, 15.0)
    found = compare_windows(("A", quick), ("B", quick))
    said = [note for note in found.notes if "steps end between two readings, 15.0 s apart" in note]
    assert [note[:2] for note in said] == ["A:", "B:"]
    step = change(found, "step_s").a
    assert step is not None
    half = (step.ci_high - step.ci_low) / 2 / step.mean
    told = float(said[0].partition("uncertain by ")[2].partition(" %")[0]) / 100
    assert 0.5 * half < told < 2 * half
    assert not any("between two readings" in note for note in compare_windows(("A", base), ("B", base)).notes)


def test_another_fleet_is_an_input_and_longer_responses_are_other_work(base: History, tmp_path: Path) -> None:
    changes = {"fleet.instances": 3, "workload.output_tokens.mean": 260.0, "run.seed": 6}
    found = compare_windows(("before", base), ("after", history(with_changes(JOB, changes), tmp_path)))
    assert [(d.path, d.a, d.b) for d in found.inputs] == [("fleet.instances", 2, 3)]
    assert change(found, "response_tokens.mean").verdict == "changed"
    assert found.notes[0].startswith("the responses changed between the windows")
    assert change(found, "instance_s_per_step").verdict == "worse"


def test_what_is_seen_is_what_was(base: History) -> None:
    """The run's own figures lie in the window's intervals."""
    records = simulate(JOB)
    steps = records.steps
    means, missing = window_means(window_of(base))
    truth = {
        "step_s": float(np.diff(steps["end_s"]).mean()),
        "trainer_idle_fraction": float(steps["wait_s"].sum() / steps["end_s"][-1]),
        "train_s": 20.0,
        "trained_samples": 32.0,
    }
    for metric, value in truth.items():
        e = means[metric].estimate()
        slack = 0.005 * value  # the first step of the run is not the window's
        assert e.ci_low - slack <= value <= e.ci_high + slack, metric
    assert set(means) | set(missing) >= set(WINDOW_METRICS)
    assert set(missing) == {"mfu", "prefix_hit", "response_tokens.p99"}
    assert missing["response_tokens.p99"] == "it lies beyond the histogram's largest bucket"


def test_luck_between_parts_of_one_run(base: History) -> None:
    """Five parts of the same run against each other, no smallest change: ten pairs that share parts, so one may be
    wrong at most."""
    span = (base.end_s - base.start_s) / 5
    parts = [window(base, base.start_s + k * span, base.start_s + (k + 1) * span) for k in range(5)]
    wrong = 0
    for i in range(5):
        for k in range(i):
            found = compare_windows(("A", parts[k]), ("B", parts[i]), min_change=0.0)
            wrong += bool(found.significant)
    assert wrong <= 1


def test_a_short_window_is_not_comparable(base: History) -> None:
    short = window(base, base.start_s, base.start_s + 150.0)
    found = compare_windows(("A", short), ("B", base))
    assert {c.verdict for c in found.changes} == {"not comparable"}
    assert all("too short for an interval" in c.why for c in found.changes)
    assert found.headline == "A and B have no metric that can be compared"
    assert not any("blocks" in note for note in found.notes)


def test_a_run_log_has_its_steps(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    logs = []
    for name, step_s in (("a", 60.0), ("b", 66.0)):
        rows = ["step,timing_s/step,timing_s/gen,timing_s/update_actor,response_length/mean"]
        for k in range(120):
            gen = step_s / 2 + rng.normal(0, 1)
            rows.append(f"{k},{gen + step_s / 2:.3f},{gen:.3f},{step_s / 2:.3f},{1000 + rng.normal(0, 50):.1f}")
        file = tmp_path / f"{name}.csv"
        file.write_text("\n".join(rows) + "\n")
        logs.append((name, read_file(file, framework="verl")))
    found = compare_windows(logs[0], logs[1])
    step = change(found, "step_s")
    assert step.verdict == "worse"
    assert step.ratio is not None
    assert step.ratio.ci_low <= 1.1 <= step.ratio.ci_high
    assert change(found, "response_tokens.mean").verdict == "no significant change"
    assert change(found, "running").why == "no engine exports it"


def test_every_metric_of_a_window_is_described() -> None:
    assert set(_MISSING) == set(WINDOW_METRICS)
    assert {m.name for m in OBSERVED} <= set(WINDOW_METRICS)
    assert all(quantity(m).title for m in WINDOW_METRICS)
