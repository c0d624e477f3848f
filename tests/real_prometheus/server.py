"""A real Prometheus on loopback: started with a folder of its own, backfilled, killed, started again, stopped."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

UP_S = 120.0
# Two tests may draw the same free port between them; the loser draws again.
PORTS = 5


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """One Prometheus.

    home: folder for its data, configuration and log. targets: "host:port" to scrape, by job; rules: files;
    honor_labels: a page's own job and instance labels win. It is started by `start`, and stopped by `stop` or at the
    end of `with`.
    """

    def __init__(
        self,
        home: Path,
        targets: dict[str, Sequence[str]] | None = None,
        rules: Sequence[Path] = (),
        scrape_interval: str = "1s",
        honor_labels: bool = False,
    ) -> None:
        self.home, self.port = home, 0
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        config = {
            "global": {"scrape_interval": scrape_interval, "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": job, "honor_labels": honor_labels, "static_configs": [{"targets": list(hosts)}]}
                for job, hosts in (targets or {}).items()
            ],
        }
        (home / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Its blocks."""
        return self.home / "data"

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def backfill(self, text: str | Path) -> None:
        """Puts OpenMetrics text into its data; before the start, or it is not seen for a while.

        In long blocks: promtool reads the whole text again for each of them.
        """
        path = text if isinstance(text, Path) else self.home / "backfill.txt"
        if isinstance(text, str):
            path.write_text(text)
        done = subprocess.run(
            [
                "promtool",
                "tsdb",
                "create-blocks-from",
                "--max-block-duration=1000h",
                "openmetrics",
                "--quiet",
                str(path),
                str(self.data),
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    def start(self) -> None:
        """Starts it, on its old port if it had one, and waits until it answers."""
        for _ in range(PORTS if not self.port else 1):
            port = self.port or free_port()
            with (self.home / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        "prometheus",
                        f"--config.file={self.home / 'prometheus.yml'}",
                        f"--storage.tsdb.path={self.data}",
                        "--storage.tsdb.retention.time=3650d",
                        f"--web.listen-address=127.0.0.1:{port}",
                        "--log.level=warn",
                    ],
                    stdout=log,
                    stderr=log,
                )
            if self._ready(port):
                self.port = port
                return
        raise AssertionError(self.log())

    def _ready(self, port: int) -> bool:
        assert self._process is not None
        until = time.monotonic() + UP_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                if "address already in use" in self.log():
                    return False
                raise AssertionError(self.log())
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2) as answer:
                    if answer.status == 200:
                        return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        self.kill()
        raise AssertionError(f"not ready after {UP_S} s: {self.log()}")

    def log(self) -> str:
        """The end of what it said."""
        return (self.home / "log").read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """kill -9: no flush, no goodbye; its connections are reset."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def stop(self) -> None:
        """SIGTERM, then patience, then SIGKILL."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def ask(self, path: str, **parameters: object) -> Any:
        """`data` of an API answer, past all of fleetsim: for what a test wants to know itself."""
        query = urllib.parse.urlencode(parameters, doseq=True)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=120) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def wait_for(self, expression: str, seconds: float = 120.0) -> Any:
        """The result of an instant query, as soon as there is one."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if result := self.ask("query", query=expression)["result"]:
                return result
            time.sleep(0.2)
        raise AssertionError(f"{expression}: nothing in {seconds} s; {self.log()}")
