"""A real Ray cluster of two nodes on this machine: the same bytes as without it, whatever dies in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetsim.config.load import dump_scenario
from fleetsim.errors import InputError, OutsideError
from fleetsim.sweep.cluster import check_ray
from fleetsim.sweep.run import sweep
from tests.sweep.cluster_of_two import LOOPBACK
from tests.sweep.jobs import SMALL, job
from tests.sweep.logged import PATIENCE_S, ROOT, begin_anew, environment, go_on, noted, wait_until
from tests.sweep.test_killed import CELLS, FLAGS, command, journalled, wanted_bytes

try:
    import ray
except ImportError:
    ray = None

REQUIRED = os.environ.get("FLEETSIM_REQUIRE_RAY") == "1"
WITHOUT_RAY = "SWEEPS ON A RAY CLUSTER ARE NOT TESTED: ray is not installed (pip install 'fleetsim[ray]')"
needs_ray = pytest.mark.skipif(ray is None and not REQUIRED, reason=WITHOUT_RAY)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a cluster of two nodes with a core each, and the log of its workers."""
    assert ray is not None, WITHOUT_RAY
    log = tmp_path_factory.mktemp("cluster") / "log"
    # Without tokens, which Ray would write into the home folder; set for a process of its own, before it imports ray.
    changed = {**environment(log, 5), "RAY_AUTH_MODE": "disabled", **LOOPBACK}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changed.items():
            patch.setenv(name, value)
        made = subprocess.Popen(
            [sys.executable, "-m", "tests.sweep.cluster_of_two"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert made.stdout is not None
        address = next((line.split()[1] for line in made.stdout if line.startswith("at ")), None)
        try:
            assert address is not None, made.communicate()[1]
            yield address, log
        finally:
            made.communicate(timeout=PATIENCE_S)


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(dump_scenario(job()))
    return str(file)


@needs_ray
def test_whatever_dies_the_table_is_the_local_one_to_the_byte(
    cluster: tuple[str, Path], scenario: str, tmp_path: Path
) -> None:
    """One test, so that it has one worker and one cluster: a cluster takes half a minute of processor time."""
    for name, dies in {"worker": a_worker_dies, "driver": a_driver_is_killed_and_goes_on_from_its_journal}.items():
        place = tmp_path / name
        place.mkdir()
        dies(cluster, scenario, place)


def a_worker_dies(cluster: tuple[str, Path], scenario: str, tmp_path: Path) -> None:
    address, log = cluster
    begin_anew(log)
    output = tmp_path / "t.parquet"
    call = command(scenario, *FLAGS, "--ray", address, "--out", str(output))
    with subprocess.Popen(call, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as sweeping:
        wait_until(lambda: len(noted(log, "begin")) > 5, sweeping)
        victim, lost = noted(log, "begin")[-1]  # it waits before it hands over, so it dies in the middle
        os.kill(victim, signal.SIGKILL)
        go_on(log)
        _, told = sweeping.communicate()
    assert sweeping.returncode == 0, told
    assert output.read_bytes() == wanted_bytes(tmp_path)
    begun = [cell for _, cell in noted(log, "begin")]
    assert set(begun) == set(range(CELLS))
    assert any(pid != victim and cell == lost for pid, cell in noted(log, "begin"))  # another took it
    assert not list(tmp_path.glob("*.jsonl"))


def a_driver_is_killed_and_goes_on_from_its_journal(cluster: tuple[str, Path], scenario: str, tmp_path: Path) -> None:
    address, log = cluster
    begin_anew(log)
    output = tmp_path / "t.parquet"
    call = command(scenario, *FLAGS, "--ray", address, "--out", str(output))
    with subprocess.Popen(call, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as killed:
        wait_until(lambda: len(noted(log, "begin")) > 5 and bool(journalled(output)), killed)
        killed.kill()
        killed.wait()
        go_on(log)
    kept = journalled(output)
    assert 0 < len(kept) < CELLS
    # Here on this machine what the cluster left: where cells run makes no difference.
    local = [sys.executable, "-m", "fleetsim", "sweep", scenario, *FLAGS, "--workers", "1", "--out", str(output)]
    done = subprocess.run(local, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == wanted_bytes(tmp_path)


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379"])
def test_no_cluster_at_an_address(address: str) -> None:
    assert ray is not None, WITHOUT_RAY
    with pytest.raises(OutsideError, match=r"no cluster there.*ray start --head"):
        sweep(job(), SMALL, ray=address)


@needs_ray
@pytest.mark.parametrize("ours", ["missing", "another"])
def test_a_cluster_that_asks_for_a_token(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], ours: str
) -> None:
    """As Ray 2.60 refuses: an error of its own without a token here; else lines of its core, and a ConnectionError."""
    assert ray is not None, WITHOUT_RAY

    def refused(**_: object) -> None:
        if ours == "missing":
            raise ray.exceptions.AuthenticationError("Token authentication is enabled but no token was found")
        os.write(2, b"gcs_client.cc:210: Unauthenticated: RPC error: InvalidAuthToken: missing or incorrect\n" * 20)
        raise ConnectionError("Failed to connect to Ray cluster")

    monkeypatch.setattr(ray, "init", refused)
    with pytest.raises(OutsideError, match=r"refuses us.*ray get-auth-token.*RAY_AUTH_TOKEN") as told:
        sweep(job(), SMALL, ray="auto")
    assert "no cluster there" not in str(told.value)
    assert capfd.readouterr().err == ""


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OutsideError, match=r"fleetsim\[ray\]"):
        check_ray("auto")
    with pytest.raises(InputError, match="names no cluster"):
        check_ray(" ")
