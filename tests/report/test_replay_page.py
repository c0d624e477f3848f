"""docs/replay.md: what it tells a reader to type works as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
READY_S = 120.0


def blocks() -> tuple[str, str, str, str, str]:
    """simulate; replay of the file; load it; start Prometheus; ask it."""
    part = PAGE.partition("## Try it on a fleet that you do not have")[2].partition("\n## ")[0]
    simulate, from_file, serve, ask = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    load, _, start = serve.partition("prometheus --config")
    return simulate, from_file, load, f"exec prometheus --config{start}", ask


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader has it: the repository's scenarios, `fleetsim` on PATH, and the simulated history."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "scenarios").symlink_to(ROOT / "scenarios")
    (folder / "bin").mkdir()
    command = folder / "bin" / "fleetsim"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m fleetsim "$@"\n')
    command.chmod(0o755)
    told = shell(blocks()[0], folder)
    assert "2026-11-21 08:00:00 UTC" in told.stderr
    return folder


def shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a block as a reader would, and asks that it ends well."""
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-e", "-c", text],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def port(place: Path) -> Iterator[int]:
    """Where a Prometheus with the loaded history answers."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        reason = f"REAL PROMETHEUS NOT TESTED: no {' and no '.join(missing)} on PATH"
        if os.environ.get("FLEETSIM_REQUIRE_PROMETHEUS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    shell(blocks()[2], place)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = int(s.getsockname()[1])
    with (place / "log").open("ab") as log:
        process = subprocess.Popen(
            ["bash", "-c", blocks()[3].replace(":9090", f":{free}")], cwd=place, stdout=log, stderr=log
        )
    try:
        until = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{free}/-/ready", timeout=2):
                    break
            except OSError:
                assert process.poll() is None, (place / "log").read_text()
                assert time.monotonic() < until, (place / "log").read_text()
                time.sleep(0.1)
        yield free
    finally:
        process.terminate()
        process.wait(60)


def test_the_history_is_in_the_prometheus_of_the_page(port: int) -> None:
    query = "sum(increase(vllm:generation_tokens_total[1h]))&time=2026-11-21T08:00:00Z"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={query}", timeout=60) as answer:
        assert b'"status":"success"' in (text := answer.read())
        assert b'"value":[' in text


def test_replay_reads_the_file_without_prometheus(place: Path) -> None:
    pytest.importorskip("fleetsim.cli.replay")
    assert shell(blocks()[1], place).stdout


def test_replay_asks_the_prometheus_of_the_page(place: Path, port: int) -> None:
    pytest.importorskip("fleetsim.cli.replay")
    assert shell(blocks()[4].replace(":9090", f":{port}"), place).stdout


def test_faults_that_the_page_names_are_events(place: Path) -> None:
    run = "fleetsim simulate scenarios/async-one-step.yaml --steps 2 --replications 1"
    events = re.findall(r"`(?:--set 'run\.events=\[\{step: 60, )?([a-z_]+: [\d.]+)(?:\}\]')?`", PAGE)
    assert len(events) == 4
    for event in events:
        shell(f"{run} --set 'run.events=[{{step: 1, {event}}}]'", place)
