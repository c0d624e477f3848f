"""The watcher's status as Prometheus metrics, over HTTP, read-only.

Without a recommendation (none was made yet, or the data are stale) its series is not there. Zero would be taken for a
count. NaN would be as bad: KEDA's Prometheus scaler takes NaN and an empty result alike, as 0 unless
`ignoreNullValues: "false"` (then as an error), but prometheus-adapter converts a NaN to an integer, which no
specification bounds, while an empty result becomes the error that makes an HPA hold still. Sources: KEDA
`pkg/scalers/prometheus_scaler.go`; prometheus-adapter `pkg/external-provider/metric_converter.go`; Kubernetes
"Horizontal Pod Autoscaling", on metrics that cannot be fetched. Where the data are fresh and the fleet is only not to
be resized, the count that holds stays: whoever scales by it holds still, however it takes an empty result.
"""

from __future__ import annotations

import ipaddress
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, SHUT_RDWR
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import fleetsim
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.replay.diagnose.finding import MENDS
from fleetsim.watch.watch import Status

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LOOPBACK = "127.0.0.1"
REASONS = ("starting", "stale", "data", "model", "no_plan", *MENDS)


def parse_listen(text: str) -> tuple[str, int]:
    """ "HOST:PORT" to listen on. Without a host (":9105", "9105") it is loopback; a host must be written to open it.

    Raises InputError.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or LOOPBACK
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        rule = "a port is a number from 0 (any free one) to 65535"
        raise InputError([Problem("--listen", text, rule, "write 127.0.0.1:9105, :9105, or HOST:9105 to open it")])
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def families(status: Status) -> Iterator[Metric]:
    """The metrics of one status; those that are not known are not there. Needs prometheus_client."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    def gauges(*rows: tuple[str, str, float | None]) -> Iterator[Metric]:
        for name, doc, value in rows:
            if value is not None:
                yield GaugeMetricFamily(f"fleetsim_{name}", doc, value=float(value))

    def filled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
        for label, value in values.items():
            family.add_metric([label], float(value))
        return family

    look = status.look
    yield from gauges(
        ("up", "1 if the last evaluation succeeded", status.up),
        ("last_success_timestamp_seconds", "unix time of the last evaluation that succeeded", status.last_success_s),
        ("data_age_seconds", "seconds since the newest sample of the fleet", status.data_age_s),
        (
            "recommended_instances",
            "rollout instances to run, damped; those that hold while fleetsim_recommendation_withheld gives a reason; "
            "absent before the first and on stale data",
            status.recommended,
        ),
    )
    doc = "1 for the reason why nothing new is recommended"
    withheld = {reason: float(status.withheld == reason) for reason in REASONS}
    yield filled(GaugeMetricFamily("fleetsim_recommendation_withheld", doc, labels=["reason"]), withheld)
    if look is not None:
        yield from gauges(
            ("current_instances", "rollout instances present at the end of the window", look.current),
            ("wanted_instances", "what the last evaluation alone asks for, not damped", look.wanted),
            ("observed_trainer_idle_ratio", "trainer: share of the step waiting for samples", look.observed_idle),
            ("predicted_trainer_idle_ratio", "the same, simulated from the window's own numbers", look.predicted_idle),
            ("model_error_ratio", "back-test of the window: largest relative error", look.model_error),
        )
        doc = "1 where this check of the runbook finds a fault; absent: cannot say"
        yield filled(GaugeMetricFamily("fleetsim_verdict", doc, labels=["check"]), look.faults)
    yield filled(
        CounterMetricFamily("fleetsim_evaluations", "evaluations so far", labels=["result"]), status.evaluations
    )
    doc = "times that the recommendation moved"
    yield CounterMetricFamily("fleetsim_recommendation_changes", doc, value=status.changes)
    doc = "1, labelled with the version"
    yield filled(GaugeMetricFamily("fleetsim_build_info", doc, labels=["version"]), {fleetsim.__version__: 1.0})


class _Handler(BaseHTTPRequestHandler):
    timeout = 10  # a client that says nothing does not hold a thread,
    most_s = 30.0  # nor one that sends a byte now and then

    def setup(self) -> None:
        super().setup()
        self._end = threading.Timer(self.most_s, self._cut)
        self._end.daemon = True
        self._end.start()

    def finish(self) -> None:
        self._end.cancel()
        super().finish()

    def _cut(self) -> None:
        with suppress(OSError):  # it has gone by itself
            self.connection.shutdown(SHUT_RDWR)

    def do_GET(self) -> None:
        try:
            place = urlsplit(self.path).path
        except ValueError:
            place = ""
        if place == "/metrics":
            assert isinstance(self.server, _Server)
            self._send(200, *self.server.exposition(self.headers.get("Accept", "")))
        elif place == "/healthz":
            self._send(200, "text/plain", b"ok\n")
        else:
            self._send(404, "text/plain", b"/metrics is here\n")

    def _refuse(self) -> None:
        self.close_connection = True  # what else it sends is not read
        self._send(405, "text/plain", b"only GET: nothing can be changed here\n", Allow="GET")

    do_POST = do_PUT = do_PATCH = do_DELETE = _refuse  # noqa: N815 - the names that http.server looks for

    def _send(self, code: int, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object, **named: object) -> None:
        pass  # a line per scrape helps nobody


class _Server(ThreadingHTTPServer):
    """exposition: what a client accepts to the type and the text that it gets."""

    daemon_threads = True

    def __init__(self, host: str, port: int, exposition: Callable[[str], tuple[str, bytes]]) -> None:
        self.exposition = exposition
        self.address_family = AF_INET6 if ":" in host else ThreadingHTTPServer.address_family
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that breaks off is no error of ours
            super().handle_error(request, client_address)


class Exporter:
    """Serves GET /metrics, and /healthz for a probe; nothing else, and nothing that changes anything.

    Raises OutsideError when prometheus_client is not installed or the address cannot be bound.
    """

    def __init__(self, status: Callable[[], Status], host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import choose_encoder
            from prometheus_client.registry import Collector
        except ImportError as error:
            raise OutsideError(
                f"watch needs {error.name}, which is not installed; pip install 'fleetsim[prometheus]'"
            ) from None

        class Statuses(Collector):
            def collect(self) -> Iterator[Metric]:
                return families(status())

            def describe(self) -> list[Metric]:
                return []

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Statuses())

        def exposition(accepted: str) -> tuple[str, bytes]:
            try:
                encode, kind = choose_encoder(accepted)
            except (TypeError, ValueError):  # the library reads versions that are no numbers
                encode, kind = choose_encoder("")
            return kind, encode(registry)

        try:
            self._server = _Server(host, port, exposition)
        except OSError as error:
            raise OutsideError(
                f"cannot listen on {host}:{port}: {error.strerror or error}; give --listen another address"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="exporter", daemon=True)

    @property
    def address(self) -> str:
        """host:port, as bound."""
        host, port = self._server.server_address[:2]
        name = host if isinstance(host, str) else bytes(host).decode()
        return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"

    def __enter__(self) -> Exporter:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
