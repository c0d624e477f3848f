"""`fleetsim doctor` says what is broken, and is never broken itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from fleetsim.cli import doctor as doctor_command
from fleetsim.cli import installation
from fleetsim.cli.installation import Check, guarded
from fleetsim.cli.main import app
from fleetsim.engine import compiled

ROOT = Path(__file__).parents[2]
ENGINE = "vllm:num_requests_running"


def doctor(*words: str, **environ: str) -> tuple[int, dict[str, Any]]:
    apart = {"FLEETSIM_TESTS_PART": None}  # of whoever runs the tests
    done = CliRunner().invoke(app, ["doctor", *words, "--json"], env={**apart, **environ})
    assert "Traceback" not in done.stdout + done.stderr
    document = json.loads(done.stdout)
    return done.exit_code, {check["name"]: check for check in document["checks"]} | {"ok": document["ok"]}


@contextmanager
def server(answers: Mapping[str, Any], body: bytes | None = None) -> Iterator[str]:
    """A Prometheus that knows the values of some expressions, and of `status/NAME`; or one that says `body`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            split = urlsplit(self.path)
            if "/status/" in split.path:
                data: Any = answers.get(split.path.rpartition("/")[2])
            else:
                value = answers.get(parse_qs(split.query)["query"][0])
                data = {
                    "resultType": "vector",
                    "result": [] if value is None else [{"metric": {}, "value": [1, value]}],
                }
            text = json.dumps({"status": "success", "data": data}).encode() if body is None else body
            self.send_response(200 if data is not None or body is not None else 404)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def test_a_sound_machine() -> None:
    code, checks = doctor("--compile")
    assert (code, checks["ok"]) == (0, True)
    assert checks["kernel"]["facts"]["step_s"] == pytest.approx(installation.closed_form_s(), rel=1e-9)
    assert checks["packages"]["facts"]["numpy"]
    assert checks["fleetsim"]["facts"]["folder"] == str(ROOT / "fleetsim")
    text = CliRunner().invoke(app, ["doctor"])
    assert text.exit_code == 0
    assert all(name in text.stdout for name in checks if name != "ok")


def test_every_extra_of_a_user_says_what_it_enables() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(installation.ENABLES) == set(extras) - installation.FOR_DEVELOPERS


def test_a_missing_extra_names_its_commands_and_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = installation.version_of
    monkeypatch.setattr(installation, "version_of", lambda name: None if name == "pyarrow" else real(name))
    code, checks = doctor()
    assert code == 0
    check = checks["extra parquet"]
    assert (check["state"], check["remedy"]) == ("info", "pip install 'fleetsim[parquet]'")
    assert "simulate --parquet" in check["text"]


def test_a_package_of_a_wrong_version_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    real = installation.version_of
    monkeypatch.setattr(installation, "version_of", lambda name: "1.99.0" if name == "numpy" else real(name))
    code, checks = doctor()
    assert code == 3
    assert "numpy 1.99.0, needs >=2.0" in checks["packages"]["text"]


@pytest.mark.parametrize(
    ("version", "allowed"),
    [("0.60.9", False), ("0.61", True), ("0.61.0", True), ("0.68.1", True), ("0.69.0rc1", False), ("1.0", False)],
)
def test_bounds_of_versions(version: str, allowed: bool) -> None:
    need, other = installation.parsed(["numba<0.69,>=0.61", "pyarrow>=18; extra == 'parquet'"], None)
    assert need.allows(version) is allowed
    assert (need.extra, other.extra) == (None, "parquet")


def test_nothing_is_compiled_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "is_compiled", lambda: False)
    _, checks = doctor()
    assert checks["kernel"]["facts"]["ran"] is False
    assert "doctor --compile" in checks["kernel"]["remedy"]


def test_a_kernel_that_computes_something_else_is_a_fault() -> None:
    assert installation.judged(installation.closed_form_s(), 0.1).state == "ok"
    assert installation.judged(installation.closed_form_s() * 1.001, 0.1).state == "fault"
    assert installation.judged(float("nan"), 0.1).state == "fault"


def test_a_kernel_that_cannot_be_loaded_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fleetsim.sim.run", None)
    code, checks = doctor("--compile")
    assert code == 3
    assert (checks["kernel"]["state"], checks["kernel"]["facts"]["error"][:11]) == ("fault", "ModuleNotFo"[:11])


def test_a_check_that_breaks_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Check:
        raise ZeroDivisionError

    assert guarded("x", broken).text == "could not be looked at: ZeroDivisionError"
    monkeypatch.setattr(installation, "gpu", broken)
    code, checks = doctor()
    assert (code, checks["gpu"]["state"], checks["environment"]["state"]) == (0, "warning", "ok")


def test_a_prometheus_that_is_useful() -> None:
    answers = {
        "count(up)": "5",
        f"count({ENGINE})": "4",
        "buildinfo": {"version": "3.5.0"},
        "runtimeinfo": {"storageRetention": "15d"},
    }
    with server(answers) as url:
        code, checks = doctor("--prometheus", url)
    assert (code, checks["prometheus"]["state"]) == (0, "ok")
    facts = checks["prometheus"]["facts"]
    assert (facts["version"], facts["retention"], facts["engines"]["vLLM"]) == ("3.5.0", "15d", 4)


def test_a_prometheus_without_engines_or_status_pages_is_a_warning() -> None:
    with server({"count(up)": "5"}) as url:
        code, checks = doctor("--prometheus", url)
    assert (code, checks["prometheus"]["state"]) == (0, "warning")
    assert "version not told" in checks["prometheus"]["text"]


@pytest.mark.parametrize("body", [b"", b"<html>hello</html>", b"[]", b'{"status": "success"}', b"\xff\x00"])
def test_a_server_that_talks_garbage_is_down(body: bytes) -> None:
    with server({}, body) as url:
        code, checks = doctor("--prometheus", url)
    assert (code, checks["prometheus"]["state"]) == (3, "fault")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "ftp://x", "http://user:hunter2@127.0.0.1:1", ""])
def test_a_server_that_is_not_there_is_down_and_no_password_is_shown(url: str) -> None:
    done = CliRunner().invoke(app, ["doctor", "--prometheus", url, "--json"])
    assert done.exit_code == 3
    assert "hunter2" not in done.stdout + done.stderr


def test_variables_are_shown_without_secrets() -> None:
    environ = {
        "FLEETSIM_PROMETHEUS_TOKEN": "hunter2",
        "FLEETSIM_DEBUG": "1",
        "FLEETSIM_FLEET__INSTANCES": "3",
        "FLEETSIM_CASH_DIR": "http://me:hunter2@host/",
        "HOME": "/y",
    }
    check = doctor_command.environment(environ)
    assert check.state == "warning"
    assert "hunter2" not in str(check)
    assert check.facts["unknown"] == ["FLEETSIM_CASH_DIR"]
    assert doctor_command.environment({"FLEETSIM_FLEET__INSTANCES": "3"}).state == "ok"
    wrong = doctor_command.environment({"FLEETSIM_FLEET__INSTANCS": "3"})
    assert wrong.state == "fault"
    assert "instances" in wrong.text or "names no field" in wrong.text


@pytest.mark.parametrize(
    ("script", "state", "said"),
    [
        ("echo 'NVIDIA H100, 81559 MiB, 550.54'; echo 'NVIDIA H100, 81559 MiB, 550.54'", "ok", "2 x NVIDIA H100"),
        ("echo 'driver/library version mismatch' >&2; exit 18", "warning", "version mismatch"),
        ("exit 0", "warning", "no GPU listed"),
    ],
)
def test_gpus(script: str, state: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    check = installation.gpu()
    assert check.state == state
    assert said in check.text


def test_it_imports_neither_numba_nor_pandas_before_something_asks_for_them() -> None:
    program = (
        "import sys\nfrom fleetsim.cli.doctor import examined\n"
        "from fleetsim.replay.history_fields import AccessFields\n"
        "names = [check.name for check in examined(None, AccessFields(), False)]\n"
        "print(len(names), *({'numba', 'pandas', 'vllm', 'torch', 'requests'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    count, *heavy = done.stdout.split()
    assert int(count) > 15
    assert heavy == []
