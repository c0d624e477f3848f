"""One HTTP session with one Prometheus: what goes out, what comes back, and what comes back wrong.

The client library leaves some things to its caller: a range's `warnings` are dropped, POST sends the query in the
address all the same, and a body that is no JSON ends in an error of the JSON parser. A session sees each request before
and each answer before the library does, so they are mended here.

This is the boundary to the outside: whatever a server sends is a checked result or a `Refusal`. An answer has so many
bytes (unpacked), series and seconds at most. A socket's own patience begins anew with every byte, so a timer cuts the
connection off.
"""

from __future__ import annotations

import base64
import math
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit
from weakref import WeakSet

import msgspec
import numpy as np
import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from fleetsim.faces import Text, text
from fleetsim.history.access import IS_IT_UP, Access, Refusal, of_status
from fleetsim.history.history import SeriesData
from fleetsim.history.option_names import SELECTOR, STEP, way_in
from fleetsim.json_text import from_json, from_long_json


class Connections(HTTPAdapter):
    """Knows the sockets that it has opened: a socket's own patience begins anew with every byte that comes."""

    def __init__(self) -> None:
        self._opened: WeakSet[socket.socket] = WeakSet()
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **named: Any) -> None:
        """The pools of direct connections."""
        super().init_poolmanager(*args, **named)
        self._known(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        """The pools of connections through a proxy."""
        return self._known(super().proxy_manager_for(proxy, **named))

    def cut(self) -> None:
        """Ends whatever is read or written now."""
        for one in list(self._opened):
            with suppress(OSError, TypeError):  # it is closed, or no socket of the system
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    def _known(self, manager: Any) -> Any:
        kinds = {scheme: self._remembering(pool) for scheme, pool in manager.pool_classes_by_scheme.items()}
        manager.pool_classes_by_scheme = kinds
        return manager

    def _remembering(self, pool: Any) -> Any:
        opened = self._opened

        class Connection(pool.ConnectionCls):
            def connect(self) -> None:
                super().connect()
                opened.add(self.sock)

        return type(pool.__name__, (pool,), {"ConnectionCls": Connection})


LONGEST_ADDRESS = 4000  # characters of a query that may stand in an address; proxies begin to refuse at 8 KiB
_PIECE = 1 << 18  # bytes that are looked at together
# Of one answer: its bytes, unpacked, and its series. What is asked for in one piece has a third of these bytes.
MOST_BYTES, MOST_SERIES = 32 << 20, 50_000
# A whole answer may take so many times as long as its first byte.
WHOLE = 4.0


def bearer(token: str) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """The token as a header of each request, and in no repr."""

    def signed(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return signed


def secrets_of(authorization: str) -> set[str]:
    """What must not be shown of an Authorization header: its credential, and the password in it."""
    scheme, _, credential = authorization.partition(" ")
    if scheme.lower() != "basic":
        return {credential} - {""}
    try:
        _, _, password = base64.b64decode(credential).decode("latin-1").partition(":")
    except ValueError:
        password = ""
    return {credential, password} - {""}


class Session(requests.Session):
    """What the client library sends its requests through.

    deadline: monotonic seconds at which whatever this thread asks is given up; warnings: what answers said about
    partial data, each text once; server_ahead_s: by how much the server's clock is ahead of ours, None before any
    answer.
    """

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access, self._adapter = access, Connections()
        self.headers["Accept-Encoding"] = "gzip"
        self._of_thread = threading.local()
        self.warnings: dict[str, None] = {}
        self.server_ahead_s: float | None = None
        self.answered = False
        self._wait_s = access.timeout_s
        self._lent: set[str] = set()  # credentials that requests itself found, as in ~/.netrc
        self.verify = False if access.skip_verify else (access.ca_file or True)
        if access.client_cert:
            self.cert = (access.client_cert, access.client_key) if access.client_key else access.client_cert

    @property
    def deadline(self) -> float:
        """See above."""
        return float(getattr(self._of_thread, "deadline", math.inf))

    @deadline.setter
    def deadline(self, monotonic_s: float) -> None:
        self._of_thread.deadline = monotonic_s

    def get_adapter(self, url: str) -> Any:
        """Our own, whatever the client library has mounted."""
        return self._adapter

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: redirects are told, not followed, nor is their address looked at."""

    def request(self, method: str, url: str, **given: Any) -> requests.Response:  # type: ignore[override]
        """Sends one request; raises Refusal for everything but a complete answer of status 200 with a result."""
        params = given.pop("params", None) or {}
        if len(str(params.get("query", ""))) > LONGEST_ADDRESS:
            method, given["data"] = "POST", params
        else:
            given["params"] = params
        sent = time.time()
        response, body = self._bounded(method, url, given)
        self._lent |= secrets_of(str(response.request.headers.get("Authorization", "")))
        self._clock(response, sent)
        if response.status_code != 200:
            raise self._status(response, body)
        self.answered = True
        result = {"data": {"result": self._series(body)}}
        response._content = b""  # it was read in pieces, to hold the limits; requests itself need not read it
        response.json = lambda **_: result  # type: ignore[method-assign]
        return response

    def page(self, url: str, **given: Any) -> object:
        """The JSON of a page that a server may have or not; None where it has none."""
        try:
            response, body = self._bounded("GET", url, given)
            return from_json(body) if response.status_code == 200 else None
        except (Refusal, ValueError):
            return None

    def _bounded(self, method: str, url: str, given: dict[str, Any]) -> tuple[requests.Response, bytes]:
        """An answer with its whole body, within the limits of bytes and seconds. Raises Refusal."""
        given["timeout"] = (min(10.0, self._wait_s), self._wait_s)
        given |= {"stream": True, "allow_redirects": False}
        begun = time.monotonic()
        limit = min(self.deadline, begun + WHOLE * self._wait_s)
        timer = threading.Timer(max(limit - begun, 0.0), self._adapter.cut)
        timer.daemon = True
        timer.start()
        try:
            response = super().request(method, url, **given)
            return response, self._body(response, limit)
        except (requests.RequestException, HTTPError, OSError, ValueError, zlib.error) as error:
            if time.monotonic() >= limit:
                raise Refusal("timeout", "its answer takes too long", _LESS) from None
            raise self._connection(error) from None
        finally:
            timer.cancel()

    @contextmanager
    def patience(self, seconds: float) -> Iterator[None]:
        """Waits no longer for each answer than that, meanwhile."""
        self._wait_s = min(seconds, self._access.timeout_s)
        try:
            yield
        finally:
            self._wait_s = self._access.timeout_s

    def hide(self, text: str) -> str:
        """The text without what this session has authenticated with."""
        for secret in sorted(self._lent, key=len, reverse=True):
            text = text.replace(secret, "***")
        return self._access.hide(text)

    def _body(self, response: requests.Response, limit: float) -> bytes:
        form = response.headers.get("Content-Encoding", "").lower()
        if form not in ("", "identity", "gzip"):
            raise Refusal("broken", "packs its answer in a way that was not asked for", "is a proxy between?")
        unpacked = zlib.decompressobj(31) if form == "gzip" else None
        whole = bytearray()
        with response:
            for piece in response.raw.stream(_PIECE, decode_content=False):
                whole += piece if unpacked is None else unpacked.decompress(piece, MOST_BYTES + 1 - len(whole))
                if len(whole) > MOST_BYTES:
                    raise Refusal("too_large", f"its answer has more than {MOST_BYTES >> 20} MB", _LESS)
                if time.monotonic() >= limit:
                    raise Refusal("timeout", "its answer takes too long", _LESS)
        if time.monotonic() >= limit:  # cut off, which looks like its end where it has no length
            raise Refusal("timeout", "its answer takes too long", _LESS)
        return bytes(whole)

    def _clock(self, response: requests.Response, sent: float) -> None:
        try:
            there = parsedate_to_datetime(response.headers["Date"]).timestamp()
        except (KeyError, TypeError, ValueError, OverflowError, OSError):
            return
        now = time.time()
        if now - sent > 2.0:  # a long query: the header says when its answer began, which we cannot know
            return
        here = (sent + now) / 2
        self.server_ahead_s = there + 0.5 - here  # the header is cut to whole seconds

    def _series(self, body: bytes) -> list[SeriesData]:
        """The series of an answer. Raises Refusal."""
        start = body[:200].lstrip()
        if start.startswith(b"<"):
            remedy = "a proxy's login page? Then give credentials, or the address behind it"
            raise Refusal("broken", "answered with a web page instead of data", remedy)
        if (many := body.count(b'"metric"')) > MOST_SERIES:
            raise Refusal("too_large", f"answers with {many:,} series", text("narrow {}", SELECTOR))
        try:
            answer = _ANSWERS.decode(body)
            series = [_plain(one) for one in answer.data.result]
            said = {"warnings": answer.warnings, "infos": answer.infos, "isPartial": answer.isPartial}
        except (ValueError, RecursionError):
            said = self._document(body)
            series = [_careful(one) for one in said["data"]["result"]]
        for key in ("warnings", "infos"):
            found = said.get(key) or []
            for warning in found if isinstance(found, list) else [found]:
                self.warnings[self.hide(str(warning))[:300]] = None
        if said.get("isPartial"):  # VictoriaMetrics' cluster says it so
            self.warnings["the answer is partial: a storage node did not take part"] = None
        return series

    def _document(self, body: bytes) -> dict[str, Any]:
        try:
            document = from_long_json(body)
        except ValueError:
            size = f"{len(body):,} bytes"
            rule = f"its answer is no complete JSON ({size})" if body else "its answer is empty"
            raise Refusal("broken", rule, "the connection broke off? Try again", again=True) from None
        if not isinstance(document, dict) or document.get("status") != "success":
            said = document.get("error") if isinstance(document, dict) else None
            words = f": {self.hide(str(said))[:300]}" if said else ""
            raise Refusal("broken", f"answered 200, but not with success{words}", _OTHER)
        data = document.get("data")
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise Refusal("broken", "answered without a result", _OTHER)
        if data.get("resultType") == "scalar":
            data["result"] = [{"metric": {}, "value": data["result"]}]
        return document

    def _status(self, response: requests.Response, body: bytes) -> Refusal:
        said = ""
        try:
            document = from_json(body)
            said = str(document.get("error") or document.get("message") or "")
        except (ValueError, AttributeError):
            text = body[:100_000].decode("utf-8", "replace").strip()
            said = "" if text.startswith("<") else " ".join(text.split())
        location = _place(response.headers.get("Location", ""))
        wait_s = _seconds(response.headers.get("Retry-After"))
        return of_status(response.status_code, self.hide(said)[:300], location, wait_s, self._access)

    def _connection(self, error: Exception) -> Refusal:
        """What requests and urllib3 wrap in each other, by its innermost reason (their texts repeat the address)."""
        if isinstance(error, requests.exceptions.SSLError):
            why = _reason(error)
            plain = "WRONG_VERSION" in why or "RECORD_LAYER" in why
            remedy = (
                "does it speak plain http://?"
                if plain
                else Text("give --ca-file, or --insecure-skip-verify", "give access a ca_file, or skip_verify")
            )
            return Refusal("tls", f"TLS failed: {why}", remedy)
        if isinstance(error, requests.exceptions.ConnectTimeout):
            return Refusal("unreachable", "cannot be reached: no answer to connecting", IS_IT_UP, again=True)
        if isinstance(error, requests.exceptions.Timeout) or "timed out" in str(error):
            waited = f"{self._wait_s:g} s"
            return Refusal("timeout", f"did not answer within {waited}", _LESS, again=True)
        if isinstance(error, requests.exceptions.ProxyError):
            return Refusal("unreachable", f"the proxy does not let us through: {_reason(error)}", "see HTTPS_PROXY")
        if isinstance(error, (requests.exceptions.ChunkedEncodingError, HTTPError, zlib.error)):
            return Refusal("broken", "its answer broke off", "try again, or with a shorter window", again=True)
        if isinstance(error, requests.exceptions.ConnectionError):
            return Refusal("unreachable", f"cannot be reached: {_reason(error)}", IS_IT_UP, again=True)
        return Refusal("refused", f"cannot be asked: {_reason(error)}", "check the address and the TLS files")


class _Points(msgspec.Struct):
    """A series as every Prometheus writes it; its points are still text."""

    metric: dict[str, str]
    values: msgspec.Raw


class _Result(msgspec.Struct):
    result: list[_Points]


class _Answer(msgspec.Struct):
    status: Literal["success"]
    data: _Result
    warnings: list[str] = []
    infos: list[str] = []
    isPartial: bool = False  # noqa: N815 - the server's word


_ANSWERS, _FLOATS = msgspec.json.Decoder(_Answer), msgspec.json.Decoder(list[float])


def _plain(one: _Points) -> SeriesData:
    """Points that are nothing but finite numbers, in a seventh of the time that Python's objects take. Raises
    ValueError for all others."""
    written = bytes(one.values)
    bare = written.translate(None, b'[]"')
    numbers = _FLOATS.decode(b"[%b]" % bare)
    if len(numbers) % 2 or len(written) - len(bare) != 2 * len(numbers) + 2:
        raise ValueError('each point is [time, "value"]')
    points = np.fromiter(numbers, float, len(numbers)).reshape(-1, 2)
    return SeriesData(one.metric, points[:, 0], points[:, 1])


def _careful(one: Any) -> SeriesData:
    """Raises Refusal for what is no series."""
    try:
        points = one["values"] if "values" in one else [one["value"]] if "value" in one else []
        labels = {str(k): str(v) for k, v in one["metric"].items()}
        times, values = (np.fromiter((float(point[k]) for point in points), float, len(points)) for k in (0, 1))
        if not np.isfinite(times).all():
            raise ValueError("no time")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
        raise Refusal("broken", f"answered with what is no series of numbers: {str(one)[:60]}", _OTHER) from None
    return SeriesData(labels, times, values)


def _place(location: str) -> str:
    """Where a redirect leads to, as far as that can be read."""
    try:
        target = urlsplit(location)
        return f" ({target.scheme}://{target.hostname})" if target.hostname else ""
    except ValueError:
        return ""


_OTHER = "is this the address of a Prometheus?"
_LESS = text("shorten the window, give a larger {}, or more {}", STEP, way_in("timeout"))


def _reason(error: BaseException) -> str:
    """The innermost reason: an OSError's own words, else the class of what went wrong."""
    seen: list[BaseException] = []
    queue: list[BaseException] = [error]
    while queue:
        one = queue.pop(0)
        if one in seen or len(seen) > 20:
            continue
        seen.append(one)
        inner = [getattr(one, "reason", None), one.__cause__, one.__context__, *getattr(one, "args", ())]
        queue.extend(e for e in inner if isinstance(e, BaseException))
    for one in reversed(seen):
        verify = getattr(one, "verify_message", None)
        if verify:
            return str(verify)
        if isinstance(one, OSError) and one.strerror:
            return str(one.strerror)
    return type(seen[-1]).__name__


def _seconds(retry_after: str | None) -> float | None:
    if not retry_after:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError, OSError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
