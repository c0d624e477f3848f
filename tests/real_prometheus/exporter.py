"""A live exporter on loopback: serves whatever page a function returns at the moment of the scrape."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Exporter:
    """`page` -> /metrics. None = the target is down (503)."""

    def __init__(self, page: Callable[[], str | None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = page()
                self.send_response(200 if text is not None else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def target(self) -> str:
        """host:port, as a scrape configuration wants it."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Exporter:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
