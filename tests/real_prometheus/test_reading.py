"""A fleet of known truth, read back from a real Prometheus: whole, or with its gaps named, or refused with a reason."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fleetsim.errors import FleetsimError
from fleetsim.history.access import Access, PrometheusError
from fleetsim.history.counters import increments
from fleetsim.history.history import History
from fleetsim.history.prometheus import Prometheus
from fleetsim.history.read import read_prometheus
from fleetsim.records import replace
from tests.real_prometheus.exporter import Exporter
from tests.real_prometheus.made import CYCLE, LE, MEAN, UPGRADE_S, Fleet
from tests.real_prometheus.proxy import Answer, Fault, Proxy, cut, late, refused, truncated, without_samples
from tests.real_prometheus.server import Server

HOUR = 3600.0
# Ends hours ago, so that no block of it meets what the server itself writes now.
START = float(int(time.time()) // 15 * 15 - 8 * HOUR)
QUIET = Fleet(START, 2 * HOUR, pauses=((1000.0, 90.0), (4000.0, 120.0)), trainer_step_s=100.0)
FAST = Access(timeout_s=60.0, deadline_s=300.0, tries=3)


def read(url: str, fleet: Fleet = QUIET, access: Access = FAST, selector: str = 'job="rollout"') -> History:
    """The fleet's window."""
    client = Prometheus(url, access, sleep=lambda seconds: time.sleep(min(seconds, 0.05)))
    try:
        return read_prometheus(client, fleet.start_unix, fleet.end_unix, None, selector, {})
    finally:
        client.close()


def growth(history: History) -> dict[str, float]:
    """Output tokens per instance name, resets mended, holes bridged."""
    grown = np.nansum(increments(history.values["generation_tokens"], history.step_s), axis=1)
    return {one.name: float(g) for one, g in zip(history.instances, grown, strict=True)}


def truth(fleet: Fleet = QUIET) -> dict[str, float]:
    """The same, known; of a fleet whose processes lived through the window."""
    return {f"rollout-{i}": rate * fleet.active_s(0.0, fleet.span_s) for i, rate in enumerate(fleet.rates)}


def kinds(history: History) -> set[str]:
    return {note.kind for note in history.notes}


@pytest.fixture(scope="module")
def quiet(prometheus: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the quiet fleet's history, for the tests that leave it alive."""
    server = Server(tmp_path_factory.mktemp("quiet"))
    server.backfill(QUIET.openmetrics())
    with server:
        yield server


@pytest.fixture
def proxy(quiet: Server) -> Iterator[Proxy]:
    with Proxy(quiet.url) as between:
        yield between


def test_the_fleet_is_read_back(quiet: Server) -> None:
    history = read(quiet.url)
    assert history.step_s == 15.0
    assert growth(history) == pytest.approx(truth(), rel=0.002)
    assert set(np.unique(history.values["running"])) == {24.0}
    assert history.fleet["trainer.steps"][-1] == 72
    assert "asleep" not in history.values  # nobody exports it: absent, not zero
    assert not kinds(history) & {"gap", "reset", "partial", "rename"}


def test_lengths_come_back_in_their_buckets(quiet: Server) -> None:
    found = read(quiet.url).histograms["output_tokens"]
    assert found.le.tolist() == list(LE)
    total = np.nansum(np.diff(found.counts, axis=1), axis=(0, 1))  # cumulative over le
    share = total / total[-1]
    expected = [sum(length <= le for length in CYCLE) / len(CYCLE) for le in LE]
    assert share == pytest.approx(expected, abs=0.005)
    sums = np.nansum(np.diff(found.sums, axis=1))
    assert sums / total[-1] == pytest.approx(MEAN, rel=0.005)


def test_a_tenth_of_the_samples_missing(proxy: Proxy) -> None:
    proxy.fault = without_samples(0.10)
    history = read(proxy.url)
    assert growth(history) == pytest.approx(truth(), rel=0.02)
    missing = np.isnan(history.values["generation_tokens"]).mean()
    assert 0.05 < missing < 0.15
    gaps = [note for note in history.notes if note.kind in ("gap", "missing")]
    assert gaps
    assert any(note.share is not None and 0.05 < note.share < 0.15 for note in gaps)


TRANSIENT: dict[str, list[Fault | None]] = {
    "one 503": [refused(503, "overloaded")],
    "one 429 in the middle": [None, None, refused(429, "slow down")],
    "one connection cut": [None, cut],
    "one answer truncated": [None, truncated],
    "a slow answer": [late(1.0)],
}


@pytest.mark.parametrize("name", TRANSIENT)
def test_a_fault_that_passes_leaves_the_answer_whole(proxy: Proxy, name: str) -> None:
    proxy.script = list(TRANSIENT[name])
    history = read(proxy.url)
    assert not proxy.script
    assert growth(history) == pytest.approx(truth(), rel=0.002)


LASTING: dict[str, tuple[Fault, str]] = {
    "400": (refused(400, "bad matcher"), "bad matcher"),
    "401": (refused(401), "FLEETSIM_PROMETHEUS_TOKEN"),
    "429": (refused(429), "429"),
    "503": (refused(503), "503"),
    "cut": (cut, "--prometheus"),
    "truncated": (truncated, "--prometheus"),
    "slow": (late(1.0), "--prometheus"),
}


@pytest.mark.parametrize("name", LASTING)
def test_a_fault_that_stays_is_an_error_of_the_outside_world(proxy: Proxy, name: str) -> None:
    fault, words = LASTING[name]
    proxy.fault = fault
    with pytest.raises(PrometheusError) as caught:
        read(proxy.url, access=replace(FAST, timeout_s=0.4 if name == "slow" else FAST.timeout_s, tries=2))
    assert caught.value.exit_code == 3
    assert words in str(caught.value)


def test_a_fault_in_the_middle_is_no_silent_half(proxy: Proxy) -> None:
    """Some queries have succeeded when the server begins to refuse: still an error, not a history of what there was."""
    proxy.script = [None] * 6
    proxy.fault = refused(503)
    with pytest.raises(PrometheusError):
        read(proxy.url, access=replace(FAST, tries=2))


def test_killed_and_restarted_in_the_middle_of_a_query(serve: Callable[..., Server]) -> None:
    server = serve(QUIET.openmetrics())

    def struck(answer: Answer) -> Answer:
        server.kill()
        threading.Timer(0.3, server.start).start()
        return Answer(answer.status, answer.body, cut=len(answer.body) // 2)

    with Proxy(server.url) as between:
        between.script = [None, None, struck]
        history = read_prometheus(
            Prometheus(between.url, Access(timeout_s=60.0, deadline_s=300.0)), START, QUIET.end_unix, None, "", {}
        )
    assert growth(history) == pytest.approx(truth(), rel=0.002)


def test_killed_for_good(serve: Callable[..., Server]) -> None:
    server = serve(QUIET.openmetrics())
    server.kill()
    with pytest.raises(PrometheusError) as caught:
        read(server.url)
    assert caught.value.kind == "unreachable"
    assert caught.value.exit_code == 3


def test_counters_that_begin_again(serve: Callable[..., Server]) -> None:
    fleet = replace(QUIET, restarts=((1, 1800.0), (1, 5400.0)))
    history = read(serve(fleet.openmetrics()).url, fleet)
    found, known = growth(history), truth(fleet)
    assert found["rollout-0"] == pytest.approx(known["rollout-0"], rel=0.002)
    # Away for a minute each time; of the first and last scrape interval of a life up to 15 s are not seen.
    least = known["rollout-1"] - fleet.rates[1] * 2 * (UPGRADE_S + 30.0)
    assert least <= found["rollout-1"] <= known["rollout-1"] - fleet.rates[1] * 2 * (UPGRADE_S - 30.0)
    assert any(note.kind == "reset" and "2" in note.text for note in history.notes)


def test_a_pod_that_comes_back_under_another_name(serve: Callable[..., Server]) -> None:
    fleet = replace(QUIET, renamed=((2, 3000.0),))
    history = read(serve(fleet.openmetrics()).url, fleet)
    found = growth(history)
    assert sorted(found) == ["rollout-0", "rollout-1", "rollout-2", "rollout-2-new"]
    both = found["rollout-2"] + found["rollout-2-new"]
    assert both == pytest.approx(truth(fleet)["rollout-2"] - fleet.rates[2] * UPGRADE_S, rel=0.01)
    present = np.isfinite(history.values["generation_tokens"]).sum(axis=0)
    assert set(present) <= {2, 3}
    assert present.max() == 3  # never counted twice


def test_an_upgrade_that_renames_metrics(serve: Callable[..., Server]) -> None:
    fleet = replace(QUIET, upgraded_s=3600.0)
    history = read(serve(fleet.openmetrics()).url, fleet)
    kv = history.values["kv_use"]
    away = np.isnan(kv).mean()
    assert set(kv[np.isfinite(kv)]) == {0.4}
    assert away < 0.05  # both names make one series; only the minute of the upgrade is missing
    hits = np.nansum(increments(history.values["prefix_hits"], history.step_s))
    queries = np.nansum(increments(history.values["prefix_queries"], history.step_s))
    assert hits / queries == pytest.approx(0.75, abs=0.01)
    assert "rename" in kinds(history)


def test_our_clock_is_ahead_of_the_samples(quiet: Server) -> None:
    """The window's end lies an hour after the newest sample: the rates are right and the rest is a stated gap."""
    client = Prometheus(quiet.url, FAST)
    end = QUIET.end_unix + HOUR
    history = read_prometheus(client, QUIET.start_unix, end, None, 'job="rollout"', {}, now_s=end)
    assert growth(history) == pytest.approx(truth(), rel=0.002)
    last = np.flatnonzero(np.isfinite(history.values["generation_tokens"]).any(axis=0))[-1]
    assert history.times[last] <= QUIET.end_unix + 300.0
    assert kinds(history) & {"gap", "missing", "skew"}


def test_an_empty_window_says_where_the_data_are(quiet: Server) -> None:
    client = Prometheus(quiet.url, FAST)
    now = time.time()
    with pytest.raises(FleetsimError) as caught:
        read_prometheus(client, now - HOUR, now, None, "", {})
    assert caught.value.exit_code in (2, 3)
    assert time.strftime("%Y-%m-%d", time.gmtime(QUIET.start_unix)) in str(caught.value)


def test_a_selector_that_matches_no_engine(quiet: Server, serve: Callable[..., Server]) -> None:
    """An error that says what there is, also where a trainer would be found without the selector."""
    alone = replace(QUIET, trainer_step_s=0.0)
    for url, fleet in ((quiet.url, QUIET), (serve(alone.openmetrics()).url, alone)):
        with pytest.raises(FleetsimError) as caught:
            read(url, fleet, selector='job="rolout"')
        assert 'job="rollout"' in str(caught.value)


def test_a_live_exporter_scraped_every_second(prometheus: None, tmp_path: Path) -> None:
    fleet = Fleet(0.0, 1e9, rates=(900.0, 1100.0), pauses=((6.0, 2.0),))
    began = math.inf  # the fleet begins when it is scraped, however long the server took to come up
    with (
        Exporter(lambda: fleet.page(max(0.0, time.time() - began))) as exporter,
        Server(tmp_path / "live", targets={"rollout": [exporter.target]}, honor_labels=True) as server,
    ):
        server.wait_for("vllm:generation_tokens_total == 0")
        began = time.time()
        server.wait_for("vllm:generation_tokens_total > 13 * 900")
        end = time.time() - 1.0
        history = read_prometheus(Prometheus(server.url, FAST), began, end, None, 'job="rollout"', {})
    assert history.step_s == 1.0
    counted = history.values["generation_tokens"]
    for row, rate in zip(counted, fleet.rates, strict=True):
        seen = np.flatnonzero(np.isfinite(row))
        span = history.times[seen[-1]] - history.times[seen[0]]
        assert (row[seen[-1]] - row[seen[0]]) / (span - 2.0) == pytest.approx(rate, rel=0.12)  # 12 s, to a scrape or so
