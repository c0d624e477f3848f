"""Secrets appear nowhere, and go nowhere else: against a server that says back whatever it was told."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

TOKEN, PASSWORD, KEY = "tok-3f9a-secret", "pass-77c1-secret", "key-0b2d-secret"


class Echo(BaseHTTPRequestHandler):
    """Refuses everything, and quotes address, headers and body in its refusal, as careless servers do."""

    seen: list[str]
    status = 401
    to = ""

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        told = f"{self.path} {dict(self.headers)} {self.rfile.read(length)!r}"
        self.seen.append(told)
        auth = self.headers.get("Authorization", "")
        decoded = base64.b64decode(auth[6:]).decode() if auth.startswith("Basic ") else auth
        body = json.dumps({"status": "error", "error": f"not for {decoded} {told}"}).encode()
        self.send_response(self.status)
        if self.to:
            self.send_header("Location", self.to + self.path)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer  # noqa: N815 - the library's names

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def server(status: int = 401, to: str = "") -> Iterator[tuple[str, list[str]]]:
    """host:port, and what it was told."""
    seen: list[str] = []
    handler = type("Handler", (Echo,), {"seen": seen, "status": status, "to": to})
    there = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=there.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{there.server_address[1]}", seen
    finally:
        there.shutdown()
        there.server_close()


def run(folder: Path, *arguments: str, **environment: str) -> str:
    """All that the command printed, debug trace included, and all that it left in its folder."""
    done = subprocess.run(
        [sys.executable, "-m", "fleetsim", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "FLEETSIM_DEBUG": "1", "NETRC": str(folder / "netrc"), **environment},
        check=False,
    )
    assert done.returncode in (2, 3), done.stderr
    left = [p.read_text(errors="replace") for p in folder.rglob("*") if p.is_file() and p.name != "netrc"]
    return "\n".join([done.stdout, done.stderr, *left])


@pytest.mark.parametrize(
    ("command", "how"),
    [
        *(("replay --json", how) for how in ("address", "token", "password", "netrc")),
        ("watch --once", "netrc"),
        ("doctor", "token"),
    ],
)
def test_a_server_that_quotes_its_client_brings_no_secret_out(tmp_path: Path, command: str, how: str) -> None:
    with server() as (host, seen):
        url = f"http://ann:{PASSWORD}@{host}" if how == "address" else f"http://{host}"
        environment = {
            "address": {},
            "token": {"FLEETSIM_PROMETHEUS_TOKEN": TOKEN},
            "password": {"FLEETSIM_PROMETHEUS_USER": "ann", "FLEETSIM_PROMETHEUS_PASSWORD": PASSWORD},
            "netrc": {},
        }[how]
        if how == "netrc":
            (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login ann password {PASSWORD}\n")
            (tmp_path / "netrc").chmod(0o600)
        word, *more = command.split()
        printed = run(tmp_path, word, "--prometheus", url, *more, **environment)
    assert seen, "it was never asked"
    coded = base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    for secret in (TOKEN, PASSWORD, coded):
        assert secret not in printed
    assert "Traceback" not in printed


def test_the_key_of_an_engine_comes_back_from_nowhere(tmp_path: Path) -> None:
    with server() as (host, seen):
        printed = run(tmp_path, "calibrate", "--url", f"http://{host}", "-o", "p.json", FLEETSIM_API_KEY=KEY)
    assert any(KEY in told for told in seen)
    assert KEY not in printed


@pytest.mark.parametrize("arguments", [("replay", "--prometheus"), ("calibrate", "-o", "p.json", "--url")])
def test_no_secret_follows_a_redirect_to_another_host(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with server() as (other, reached), server(302, f"http://{other}") as (host, seen):
        printed = run(tmp_path, *arguments, f"http://{host}", FLEETSIM_PROMETHEUS_TOKEN=TOKEN, FLEETSIM_API_KEY=KEY)
    assert seen
    assert not reached
    assert "redirect" in printed


def test_a_script_that_is_imported_is_read_and_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    (tmp_path / "train.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
        f"config = GRPOConfig(num_generations=8, output_dir=str(pathlib.Path({str(mark)!r}).touch()))\n"
    )
    (tmp_path / "run.sh").write_text(
        f"touch {mark}\nN=$(touch {mark}; echo 8)\n"
        f"python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=`touch {mark}; echo 8` "
        "data.train_batch_size=$N\n"
    )
    (tmp_path / "c.yaml").write_text(
        f"actor_rollout_ref: {{rollout: {{n: !!python/object/apply:os.system ['touch {mark}']}}}}\n"
    )
    for framework, file in (("trl", "train.py"), ("verl", "run.sh"), ("verl", "c.yaml")):
        subprocess.run(
            [sys.executable, "-m", "fleetsim", "scenario", "from", framework, file],
            cwd=tmp_path,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert not mark.exists(), file
