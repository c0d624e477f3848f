"""Simulated fleets, backfilled into a real Prometheus and replayed: the fleet comes back as it was."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from fleetsim.history.history import History
from fleetsim.history.prometheus import Prometheus
from fleetsim.history.read import read_prometheus
from fleetsim.replay.backtest import backtest
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.implied.implied_scenario import implied
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from tests.real_prometheus.runs import SCRAPE_S, Backfilled, backfilled

HOURS = 3.0
WINDOW = ("admission.law=version_window",)
# name -> scenario file, what is changed in it
JOBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "one step off-policy": ("scenarios/async-one-step.yaml", ()),
    "colocated": ("scenarios/sync-colocated.yaml", ()),
    # Always busy, and paused for 20 s after every step of a minute.
    "busy with pauses": (
        "scenarios/async-one-step.yaml",
        (*WINDOW, "fleet.instances=3", "admission.max_staleness=2", "sync.pause_s=20", "trainer.fixed_s=60"),
    ),
    # Twice the instances that the trainer can feed on: they stand empty, and the trainer never waits. The window has
    # what they made ahead at its beginning, which no steady run has: 2 of its 108 batches.
    "too many": (
        "scenarios/async-one-step.yaml",
        (*WINDOW, "fleet.instances=6", "trainer.batch_samples=256", "admission.max_staleness=2", "trainer.fixed_s=100"),
    ),
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was, and what was seen of it."""

    was: Backfilled
    history: History
    seen: Observed


@pytest.fixture(scope="module")
def replayed(prometheus: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Replayed]]:
    """Each job is simulated and read once by the tests of a worker."""
    known: dict[str, Replayed] = {}

    def find(job: str) -> Replayed:
        if job not in known:
            file, overrides = JOBS[job]
            was = backfilled(tmp_path_factory.mktemp("run"), file, overrides, HOURS)
            history = read_prometheus(Prometheus(was.server.url), was.start_unix, was.end_unix)
            known[job] = Replayed(was, history, observe(history))
        return known[job]

    yield find
    for one in known.values():
        one.was.server.stop()


@pytest.mark.parametrize("job", JOBS)
def test_the_rate_of_every_instance_to_two_percent(replayed: Callable[[str], Replayed], job: str) -> None:
    found = replayed(job)
    assert [v.tok_s for v in found.seen.instances] == pytest.approx(list(found.was.tok_s()), rel=0.02)


@pytest.mark.parametrize("job", JOBS)
def test_lengths_to_one_bucket(replayed: Callable[[str], Replayed], job: str) -> None:
    found = replayed(job)
    lengths, was = found.seen.lengths, found.was.lengths()
    assert lengths is not None
    assert lengths.mean == pytest.approx(was.mean(), rel=0.02)
    for share, seen in ((0.5, lengths.p50), (0.9, lengths.p90), (0.99, lengths.p99)):
        true = float(np.quantile(was, share))
        assert abs(bisect_left(lengths.le, seen) - bisect_left(lengths.le, true)) <= 1
    shares = np.array(lengths.count) / sum(lengths.count)
    known = np.histogram(was, bins=[-1.0, *lengths.le])[0] / len(was)
    assert np.abs(shares - known).max() < 0.01


def test_pauses_to_one_scrape_interval(replayed: Callable[[str], Replayed]) -> None:
    found = replayed("busy with pauses")
    was, pauses = found.was.pauses(), found.seen.pauses
    assert pauses is not None
    off = [min(max(abs(p.start_s - start), abs(p.end_s - end)) for p in pauses.each) for start, end in was.tolist()]
    hit = np.array(off) <= SCRAPE_S
    assert hit.mean() >= 0.95, sorted(off)[-10:]
    # And no others: what is reported is one of them.
    alien = [
        p
        for p in pauses.each
        if not any(p.start_s < end + SCRAPE_S and p.end_s > start - SCRAPE_S for start, end in was)
    ]
    assert len(alien) <= 0.02 * len(was)
    assert pauses.mean_s == pytest.approx(20.0, abs=SCRAPE_S / 2)


def test_no_pauses_where_there_were_none(replayed: Callable[[str], Replayed]) -> None:
    """One step off-policy pauses for a second a step: nothing that a scrape every 15 s could show."""
    pauses = replayed("one step off-policy").seen.pauses
    assert pauses is None or pauses.share < 0.02


@pytest.mark.parametrize("job", JOBS)
def test_the_backtest_of_its_own_output_to_three_percent(replayed: Callable[[str], Replayed], job: str) -> None:
    found = replayed(job)
    tested = backtest(found.seen, implied(found.seen, found.history))
    errors = {row.quantity: row.error for row in tested.overall}
    assert {"tok_s", "instance_tok_s", "step_s", "trainer_idle"} <= set(errors)
    assert all(abs(error) <= 0.03 for error in errors.values()), errors
    assert tested.verdict == "ok"


@pytest.mark.parametrize(
    ("job", "starves"), [("one step off-policy", "trainer"), ("colocated", "neither"), ("too many", "rollout")]
)
def test_which_side_starves(replayed: Callable[[str], Replayed], job: str, starves: str) -> None:
    found = replayed(job)
    model = implied(found.seen, found.history)
    verdict = diagnose(found.seen, model.scenario, backtest(found.seen, model))
    assert verdict.starves == starves, verdict.headline
