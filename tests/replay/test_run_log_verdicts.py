"""A run log alone gives the diagnosis: jobs of a generator that writes verl's lines, and what each verdict must be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fleetsim.config.load import default_scenario
from fleetsim.history.history import StepLog
from fleetsim.history.run_log import read_run_log
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.diagnose.finding import Check, Finding, Verdict
from fleetsim.replay.observe.lengths import logged_lengths
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.steps import steps_of_log
from tests.history.verl_log import VerlJob, console

# A trainer of 60 s a step of 64 groups: 64 groups a minute keep it busy.
JOBS = {
    "too few engines": VerlJob(rate=0.6, window=640, train_s=60.0),
    "engines idle beside a busy trainer": VerlJob(rate=4.0, window=192, train_s=60.0),
    "work runs out": VerlJob(rate=1.6, window=64, train_s=60.0),
    "fetches slowly": VerlJob(rate=4.0, window=300, train_s=60.0, fetch_s=20.0),
    "odd time": VerlJob(rate=1.2, window=128, train_s=60.0, odd_s=30.0),
    "grows": VerlJob(rate=2.0, window=100_000, train_s=60.0),
}


def _seen(tmp_path: Path, job: VerlJob, versions: int = 24) -> tuple[Observed, Verdict]:
    path = tmp_path / "train.log"
    path.write_text(console(job, versions))
    observed = observe(read_run_log(path))
    return observed, diagnose(observed, default_scenario())


def _finding(verdict: Verdict, check: Check) -> Finding:
    return next(f for f in verdict.findings if f.check == check)


@pytest.mark.parametrize(
    ("name", "starves", "binding", "says"),
    [
        # at the cap of its client and at its rate: the log cannot tell which of the two holds, and a cap costs nothing
        ("too few engines", "trainer", "in_flight_cap", "in-flight cap"),
        ("engines idle beside a busy trainer", "rollout", "trainer", "trainer slow"),
        ("work runs out", "trainer", "rollout", "staleness window"),
        ("fetches slowly", "rollout", "trainer", "ready samples fetched slowly"),
        ("odd time", "rollout", "trainer", "unexplained time"),
        ("grows", "rollout", "trainer", "trainer slow"),
    ],
)
def test_the_log_alone_names_the_cause(tmp_path: Path, name: str, starves: str, binding: Check, says: str) -> None:
    _, verdict = _seen(tmp_path, JOBS[name])
    assert verdict.binding == binding, verdict.headline
    assert says in _finding(verdict, binding).title
    assert verdict.starves == starves
    assert "no fault was found" not in verdict.headline


def test_what_only_engines_could_tell_costs_nothing_or_says_which_metric(tmp_path: Path) -> None:
    _, idle = _seen(tmp_path, JOBS["engines idle beside a busy trainer"])
    assert [f.check for f in idle.findings if f.state == "unknown"] == ["model"]
    _, busy = _seen(tmp_path, JOBS["too few engines"])
    for finding in busy.findings:
        if finding.state == "unknown" and finding.check != "model":
            assert "vllm:" in (finding.next or ""), finding.check


def test_groups_are_counted_in_groups(tmp_path: Path) -> None:
    job = VerlJob(rate=4.0, window=192, train_s=60.0, size=16, pulls=2)
    observed, _ = _seen(tmp_path, job)
    assert observed.logged is not None
    assert observed.logged.group_size == 16
    assert observed.trainer.batch_samples is not None
    assert observed.trainer.batch_samples.value == 2 * 64 * 16
    assert observed.logged.in_flight == 16 * 16


def test_time_in_no_named_timer_is_a_row_of_its_own(tmp_path: Path) -> None:
    observed, _ = _seen(tmp_path, JOBS["odd time"])
    assert observed.trainer.unnamed_s is not None
    assert observed.trainer.unnamed_s.value == pytest.approx(30.0, abs=0.1)
    whole, _ = _seen(tmp_path, JOBS["too few engines"])
    assert whole.trainer.unnamed_s is not None
    assert whole.trainer.unnamed_s.value < 0.1


def test_the_sums_are_the_generator_s(tmp_path: Path) -> None:
    """What the log's seconds add up to, by a sum over its own lines."""
    path = tmp_path / "train.log"
    path.write_text(console(JOBS["too few engines"], 30))
    lines = [line for line in path.read_text().splitlines() if "timing_s/step" in line]
    pairs = [dict(part.rsplit(":", 1) for part in line.split(" - ")[1:]) for line in lines]
    waits = [float(p["timing_s/gen"]) for p in pairs]
    log = read_run_log(path).steps
    assert log is not None
    assert log.columns["wait_s"].tolist() == pytest.approx(waits[-len(log) :])


@pytest.mark.parametrize(
    ("mean", "sigma", "cap", "deviation"),
    [(800.0, 0.8, 4096.0, False), (6000.0, 0.9, 8192.0, False), (500.0, 0.5, 1e9, False), (500.0, 0.9, 1e9, True)],
)
def test_lengths_come_from_mean_longest_and_share_cut_or_from_their_deviation(
    mean: float, sigma: float, cap: float, deviation: bool
) -> None:
    random = np.random.default_rng(3)
    drawn = np.minimum(random.lognormal(np.log(mean) - sigma**2 / 2, sigma, (50, 2048)), cap)
    columns = {
        "step": np.arange(50.0), "step_s": np.full(50, 60.0), "length_mean": drawn.mean(axis=1),
        "length_max": drawn.max(axis=1), "clip_share": (drawn >= cap).mean(axis=1), "samples": np.full(50, 2048.0),
    }  # fmt: skip
    if deviation:
        columns = {k: v for k, v in columns.items() if not k.startswith(("clip", "samples", "length_max"))}
        columns["length_std"] = drawn.std(axis=1)
    log = StepLog("verl", columns)
    lengths = logged_lengths(log, steps_of_log(log))
    assert lengths is not None
    assert lengths.mean == pytest.approx(drawn.mean())
    for got, q in ((lengths.p50, 50), (lengths.p90, 90), (lengths.p99, 99)):
        assert got == pytest.approx(np.percentile(drawn, q), rel=0.06)
