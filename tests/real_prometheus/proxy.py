"""A proxy before a Prometheus that spoils its answers: late, cut, refused, truncated, or with samples missing.

A fault is a function from the true answer (status, body) to what is sent; `None` passes it on. Faults of `script` are
used up in order, one a request; after that `fault` holds for all.
"""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes over the wire. cut: the connection is closed after so many bytes, whatever was announced."""

    status: int
    body: bytes
    cut: int | None = None


Fault = Callable[[Answer], Answer]


def late(seconds: float) -> Fault:
    """The true answer, after a while."""

    def fault(answer: Answer) -> Answer:
        time.sleep(seconds)
        return answer

    return fault


def refused(status: int, text: str = "no") -> Fault:
    """Another status, with the kind of body that Prometheus and the gateways before it send."""
    body = json.dumps({"status": "error", "errorType": "bad_data", "error": text}).encode()
    return lambda answer: Answer(status, body)


def cut(answer: Answer) -> Answer:
    """The connection breaks in the middle of the body."""
    return Answer(answer.status, answer.body, cut=len(answer.body) // 2)


def truncated(answer: Answer) -> Answer:
    """A complete answer of broken JSON."""
    return Answer(answer.status, answer.body[: len(answer.body) * 2 // 3])


def without_samples(share: float, seed: int = 0) -> Fault:
    """A share of all samples is missing, drawn one by one; the same ones whichever query asks for them."""

    def lost(labels: Any, time_s: float) -> bool:
        # By target and time: a scrape that failed takes all series of the target with it.
        return random.Random(f"{seed} {labels.get('instance')} {time_s}").random() < share

    def fault(answer: Answer) -> Answer:
        document = json.loads(answer.body)
        data = document.get("data")
        if isinstance(data, dict) and data.get("resultType") == "matrix":
            for series in data["result"]:
                series["values"] = [v for v in series["values"] if not lost(series["metric"], v[0])]
            data["result"] = [series for series in data["result"] if series["values"]]
        return Answer(answer.status, json.dumps(document).encode())

    return fault


class Proxy:
    """Between a client and the Prometheus at `upstream`. requests: paths asked for, in order."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.fault: Fault | None = None
        self.script: list[Fault | None] = []
        self.requests: list[str] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy._serve(self, None)

            def do_POST(self) -> None:
                proxy._serve(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Where clients ask."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler, body: bytes | None) -> None:
        with self._lock:
            self.requests.append(handler.path)
            fault = self.script.pop(0) if self.script else self.fault
        answer = self._asked(handler, body)
        if answer is not None and fault is not None:
            answer = fault(answer)
        if answer is None or answer.cut == 0:  # the server behind is gone: so is this connection
            handler.close_connection = True
            return
        try:
            handler.send_response(answer.status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(answer.body)))
            handler.end_headers()
            handler.wfile.write(answer.body[: answer.cut])
        except OSError:  # the client has gone
            handler.close_connection = True
        if answer.cut is not None:
            handler.close_connection = True

    def _asked(self, handler: BaseHTTPRequestHandler, body: bytes | None) -> Answer | None:
        headers = {k: v for k, v in handler.headers.items() if k.lower() in ("content-type", "authorization")}
        request = urllib.request.Request(self.upstream + handler.path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read())
        except OSError:
            return None
