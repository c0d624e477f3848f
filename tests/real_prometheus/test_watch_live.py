"""`fleetsim watch` as a process between two real servers: one that it reads, and one that scrapes it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from typer.testing import CliRunner

from fleetsim.alerts import rehearsal
from fleetsim.cli.main import app
from tests.once import rehearse_once
from tests.real_prometheus.runs import Backfilled, backfilled
from tests.real_prometheus.server import Server, free_port

Found = TypeVar("Found")
PATIENCE_S = 300.0
STALE_S = 30.0  # the fleet is scraped every 15 s, and a look may take long on a busy machine


@pytest.fixture
def fleet(prometheus: None, tmp_path: Path) -> Iterator[Backfilled]:
    """A fleet whose history goes on for twenty minutes from now: there is a fresh sample whenever one looks."""
    found = backfilled(
        tmp_path / "fleet", "scenarios/async-one-step.yaml", ("fleet.instances=3",), 1.7, end_in_s=1200.0
    )
    yield found
    found.server.stop()


def command(url: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "fleetsim", "watch", "--prometheus", url, *more]


def page(port: int) -> dict[str, float]:
    """Sample, as written -> value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def first(look: Callable[[], Found], good: Callable[[Found], bool], log: Path) -> Found:
    """What is found at the first look that finds what is good."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            found = look()
            if good(found):
                return found
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


def test_a_watch_through_an_outage(fleet: Backfilled, tmp_path: Path) -> None:
    log = tmp_path / "log"
    flags = ["--listen", ":0", "--every", "1s", "--stale-after", f"{STALE_S:g}s", "--up-after", "2"]
    with log.open("wb") as out, subprocess.Popen(command(fleet.server.url, *flags), stdout=out, stderr=out) as process:
        try:
            exporting = re.compile(r"http://127\.0\.0\.1:(\d+)/metrics")
            port = int(exporting.findall(first(log.read_text, lambda text: bool(exporting.search(text)), log))[0])

            def look() -> dict[str, float]:
                return page(port)

            with Server(tmp_path / "scraper", targets={"watch": [f"127.0.0.1:{port}"]}) as scraper:
                seen = first(look, lambda page: "fleetsim_recommended_instances" in page, log)
                assert seen["fleetsim_up"] == 1.0
                assert seen["fleetsim_current_instances"] == 3.0
                assert seen["fleetsim_recommended_instances"] == seen["fleetsim_wanted_instances"]
                assert seen["fleetsim_model_error_ratio"] < 0.1
                assert seen["fleetsim_observed_trainer_idle_ratio"] == pytest.approx(
                    seen["fleetsim_predicted_trainer_idle_ratio"], abs=0.05
                )
                assert seen['fleetsim_verdict{check="rollout"}'] == 1.0
                assert seen["fleetsim_data_age_seconds"] < STALE_S
                # What KEDA would ask.
                value = scraper.wait_for("fleetsim_recommended_instances")[0]["value"][1]
                assert float(value) == seen["fleetsim_recommended_instances"]

                fleet.server.kill()
                first(look, lambda page: page["fleetsim_up"] == 0.0, log)
                gone = first(look, lambda page: "fleetsim_recommended_instances" not in page, log)
                assert gone['fleetsim_recommendation_withheld{reason="stale"}'] == 1.0
                assert "fleetsim_current_instances" not in gone
                assert gone["fleetsim_last_success_timestamp_seconds"] > time.time() - 2 * PATIENCE_S
                # Not the last value for five minutes: a scrape without the series ends it at once.
                first(
                    lambda: scraper.ask("query", query="fleetsim_recommended_instances")["result"],
                    lambda found: found == [],
                    log,
                )
                scraper.wait_for("fleetsim_up == 0")  # as of the last scrape, which may be older than our look

                fleet.server.start()
                again = first(look, lambda page: "fleetsim_recommended_instances" in page, log)
                assert again["fleetsim_recommended_instances"] == seen["fleetsim_recommended_instances"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    told = log.read_text()
    assert f"http://127.0.0.1:{port}/metrics" in told
    assert "evaluations succeed again" in told
    assert told.rstrip().endswith("ended")
    assert "Traceback" not in told


def test_once(fleet: Backfilled) -> None:
    done = subprocess.run(
        command(fleet.server.url, "--once", "--json"), check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema_version"] == 2
    assert document["current_instances"] == 3
    assert document["starves"] == "trainer"
    assert document["wanted_instances"] >= 1
    assert document["withheld"] is None


def test_a_dashboard_is_checked_against_what_a_prometheus_has(
    fleet: Backfilled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "rehearse", rehearse_once)

    def missing(*more: str) -> tuple[int, str]:
        arguments = ["dashboard", "async-one-step", "--hours", "1", *more]
        done = CliRunner().invoke(app, [*arguments, "--check-against", fleet.server.url])
        return done.exit_code, done.stderr

    code, told = missing()
    assert code == 0, told
    code, told = missing("--map", "trainer.steps=my_steps_total")
    assert (code, "not there: my_steps_total" in told) == (10, True)


def test_once_without_a_prometheus_is_the_outside_world() -> None:
    done = subprocess.run(
        command(f"http://127.0.0.1:{free_port()}", "--once"),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "FLEETSIM_PROMETHEUS_TOKEN": "hush-hush"},
    )
    assert done.returncode == 3
    assert "hush-hush" not in done.stdout + done.stderr
