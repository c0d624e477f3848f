"""A Prometheus of our own on the loopback: answers the queries that the reader sends, and fails in every way we need.

It evaluates only those shapes of PromQL, over series that a test gives it, with Prometheus's rules: a look-back of five
minutes for a plain selector, none for `last_over_time`, at most 11,000 points.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np

LOOKBACK_S = 300.0
_SELECTOR = r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?(?:\{(?P<matchers>(?:[^{}"]|"[^"]*")*)\})?'
_MATCHER = re.compile(r'([a-zA-Z_]\w*)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass
class Series:
    labels: dict[str, str]
    times: np.ndarray
    values: np.ndarray


@dataclass
class Fault:
    """What comes instead of an answer. after: bytes of the body that are sent before the connection is closed."""

    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    after: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # added to a right answer: warnings, isPartial


class FakePrometheus:
    """series: what it knows. faults: used up one per request; `always` for every one. asked: parameters seen."""

    def __init__(self, series: Sequence[Series]) -> None:
        self.series = list(series)
        self.faults: deque[Fault | None] = deque()
        self.always: Callable[[dict[str, str]], Fault | None] = lambda params: None
        self.asked: list[tuple[str, str, dict[str, str], dict[str, str]]] = []  # method, path, params, headers
        self.prefix = ""
        self.most_points = 11_000
        self.clock_ahead_s = 0.0
        self.url = ""

    def answer(self, path: str, params: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if path == "/api/v1/query":
            at = np.array([float(params["time"])])
        else:
            start, end, step = (float(params[k]) for k in ("start", "end", "step"))
            at = start + step * np.arange(int(np.floor((end - start) / step + 1e-9)) + 1)
            if len(at) > self.most_points:
                said = (
                    "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution"
                )
                return 400, {"status": "error", "errorType": "bad_data", "error": said}
        raw = re.fullmatch(rf"{_SELECTOR}\[(\d+)(ms|s|m|h)\]", params["query"])
        if raw and path == "/api/v1/query":
            back = float(raw[3]) * _UNITS[raw[4]]
            rows = [(s.labels, *_between(s, at[0] - back, at[0])) for s in self.select(raw["name"], raw["matchers"])]
            return 200, _success("matrix", [{"metric": m, "values": _points(t, v)} for m, t, v in rows if len(t)])
        try:
            rows = self.evaluate(params["query"], at)
        except ValueError as error:
            said = f'invalid parameter "query": {error}'
            return 400, {"status": "error", "errorType": "bad_data", "error": said}
        if path == "/api/v1/query":
            vector = [{"metric": m, "value": _points(at, v)[0]} for m, v in rows if np.isfinite(v[0])]
            return 200, _success("vector", vector)
        matrix = [{"metric": m, "values": _points(at[keep], v[keep])} for m, v in rows if (keep := ~_stale(v)).any()]
        return 200, _success("matrix", matrix)

    def select(self, name: str | None, matchers: str | None) -> list[Series]:
        wanted = [(k, op, v.replace("\\\\", "\\")) for k, op, v in _MATCHER.findall(matchers or "")]
        if name:
            wanted.append(("__name__", "=", name))
        return [s for s in self.series if all(_fits(s.labels.get(k, ""), op, v) for k, op, v in wanted)]

    def evaluate(self, expr: str, at: np.ndarray) -> list[tuple[dict[str, str], np.ndarray]]:
        expr = expr.strip()
        if found := re.fullmatch(rf"last_over_time\({_SELECTOR}\[(\d+)(ms|s|m|h)\]\)", expr):
            back = float(found[3]) * _UNITS[found[4]]
            return [(s.labels, _last(s, at, back)) for s in self.select(found["name"], found["matchers"])]
        if found := re.fullmatch(rf"max_over_time\(timestamp\({_SELECTOR}\)\[(\d+)h:1m\]\)", expr):
            back = float(found[3]) * 3600 + LOOKBACK_S
            return [
                (s.labels, _last(s, at, back, of_times=True)) for s in self.select(found["name"], found["matchers"])
            ]
        if found := re.fullmatch(r"(count|max|sum)(?: by \((\w+)\))? ?\((.*)\)", expr):
            return _aggregate(found[1], found[2], self.evaluate(found[3], at))
        if found := re.fullmatch(rf"timestamp\({_SELECTOR}\)", expr):
            rows = self.select(found["name"], found["matchers"])
            return [(s.labels, _last(s, at, LOOKBACK_S, of_times=True)) for s in rows]
        if expr == "vector(1)":
            return [({}, np.ones(len(at)))]
        if found := re.fullmatch(_SELECTOR, expr):
            return [(s.labels, _last(s, at, LOOKBACK_S)) for s in self.select(found["name"], found["matchers"])]
        raise ValueError(f"1:1: parse error: unexpected {expr!r}")


def _between(s: Series, start: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    keep = (s.times >= start) & (s.times <= end)
    return s.times[keep], s.values[keep]


def _last(s: Series, at: np.ndarray, back: float, *, of_times: bool = False) -> np.ndarray:
    if not len(s.times):
        return np.full(len(at), np.nan)
    index = np.searchsorted(s.times, at + 1e-9, side="right") - 1
    there = (index >= 0) & (s.times[np.maximum(index, 0)] >= at - back - 1e-9)
    return np.where(there, (s.times if of_times else s.values)[np.maximum(index, 0)], np.nan)


def _stale(values: np.ndarray) -> np.ndarray:
    return np.isnan(values)


def _fits(value: str, op: str, wanted: str) -> bool:
    hit = value == wanted if op in ("=", "!=") else re.fullmatch(wanted, value) is not None
    return hit != (op[0] == "!")


def _aggregate(
    how: str, by: str | None, rows: list[tuple[dict[str, str], np.ndarray]]
) -> list[tuple[dict[str, str], np.ndarray]]:
    groups: dict[str, list[np.ndarray]] = {}
    for labels, values in rows:
        groups.setdefault(labels.get(by, "") if by else "", []).append(values)
    out = []
    for key, members in groups.items():
        stack = np.stack(members)
        there = np.isfinite(stack).sum(axis=0).astype(float)
        filled = np.nan_to_num(stack, nan=-np.inf if how == "max" else 0.0)
        value = {"count": there, "max": filled.max(axis=0), "sum": filled.sum(axis=0)}[how]
        out.append(({by: key} if by else {}, np.where(there > 0, value, np.nan)))
    return out


def _points(times: np.ndarray, values: np.ndarray) -> list[list[Any]]:
    def text(v: float) -> str:
        return "+Inf" if v == np.inf else "-Inf" if v == -np.inf else "NaN" if v != v else f"{v:.17g}"

    return [[float(t), text(float(v))] for t, v in zip(times, values, strict=True)]


def _success(kind: str, result: list[Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": result}}


@contextmanager
def serving(series: Sequence[Series]) -> Iterator[FakePrometheus]:
    """A FakePrometheus that answers at its `url` until the block ends."""
    fake = FakePrometheus(series)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # header and body in one packet: the acknowledgement of the first would take 40 ms

        def do_GET(self) -> None:
            self._reply(dict(parse_qsl(urlsplit(self.path).query)))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._reply(dict(parse_qsl(body.decode())) or dict(parse_qsl(urlsplit(self.path).query)))

        def _reply(self, params: dict[str, str]) -> None:
            path = urlsplit(self.path).path
            fake.asked.append((self.command, path, params, {k.lower(): v for k, v in self.headers.items()}))
            fault = (fake.faults.popleft() if fake.faults else None) or fake.always(params)
            if not path.startswith(fake.prefix + "/api/v1/"):
                fault = Fault(404, b"404 page not found")
            status, document = 200, {}
            if fault is None or fault.body is None:
                status, document = fake.answer(path.removeprefix(fake.prefix), params)
            if fault is not None:
                status = fault.status if fault.body is not None or fault.status != 200 else status
                document = {**document, **fault.extra}
                time.sleep(fault.delay_s)
            body = fault.body if fault is not None and fault.body is not None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in (fault.headers if fault is not None else {}).items():
                self.send_header(name, value)
            self.end_headers()
            if fault is not None and fault.after is not None:
                self.wfile.write(body[: fault.after])
                self.close_connection = True
                return
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(time.time() + fake.clock_ahead_s)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # clients that gave up waiting

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        fake.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
