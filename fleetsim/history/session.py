"""One HTTP session with one Prometheus: what goes out, what comes back, and what comes back wrong.

The client library leaves some things to its caller: a range's `warnings` are dropped, POST sends the query in the
address all the same, and a body that is no JSON ends in an error of the JSON parser. A session sees each request before
and each answer before the library does, so they are mended here.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests

from fleetsim.faces import Text, text
from fleetsim.history.access import IS_IT_UP, Access, Refusal, of_status
from fleetsim.history.option_names import STEP, way_in
from fleetsim.json_text import from_json, from_long_json

LONGEST_ADDRESS = 4000  # characters of a query that may stand in an address; proxies begin to refuse at 8 KiB
_PIECE = 1 << 14


class BearerToken(requests.auth.AuthBase):
    """The token as a header, and in no repr."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        """Adds the header."""
        r.headers["Authorization"] = f"Bearer {self._token}"
        return r

    def __repr__(self) -> str:
        return "BearerToken(...)"


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

    deadline: monotonic seconds at which whatever is under way is given up; warnings: what answers said about partial
    data, each text once; server_ahead_s: by how much the server's clock is ahead of ours, None before any answer.
    """

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access
        self.deadline = float("inf")
        self.warnings: dict[str, None] = {}
        self.server_ahead_s: float | None = None
        self.answered = False
        self._wait_s = access.timeout_s
        self._lent: set[str] = set()  # credentials that requests itself found, as in ~/.netrc
        self.verify = False if access.skip_verify else (access.ca_file or True)
        if access.client_cert:
            self.cert = (access.client_cert, access.client_key) if access.client_key else access.client_cert

    def request(self, method: str, url: str, **given: Any) -> requests.Response:  # type: ignore[override]
        """Sends one request; raises Refusal for everything but a complete answer of status 200 with a result."""
        params = given.pop("params", None) or {}
        if len(str(params.get("query", ""))) > LONGEST_ADDRESS:
            method, given["data"] = "POST", params
        else:
            given["params"] = params
        given["timeout"] = (min(10.0, self._wait_s), self._wait_s)
        given |= {"stream": True, "allow_redirects": False}
        sent = time.time()
        try:
            response = super().request(method, url, **given)
            body = self._body(response)
        except requests.RequestException as error:
            raise self._connection(error) from None
        self._lent |= secrets_of(str(response.request.headers.get("Authorization", "")))
        self._clock(response, sent)
        if response.status_code != 200:
            raise self._status(response, body)
        self.answered = True
        document = self._document(response, body)
        response._content = b""  # it was read in pieces, to hold the deadline; requests itself need not read it
        response.json = lambda **_: document  # type: ignore[method-assign]
        return response

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

    def _body(self, response: requests.Response) -> bytes:
        pieces = []
        with response:
            for piece in response.iter_content(_PIECE):
                pieces.append(piece)
                if time.monotonic() > self.deadline:
                    raise Refusal("timeout", "its answer takes too long", _LESS)
        return b"".join(pieces)

    def _clock(self, response: requests.Response, sent: float) -> None:
        try:
            there = parsedate_to_datetime(response.headers["Date"]).timestamp()
        except (KeyError, TypeError, ValueError):
            return
        now = time.time()
        if now - sent > 2.0:  # a long query: the header says when its answer began, which we cannot know
            return
        here = (sent + now) / 2
        self.server_ahead_s = there + 0.5 - here  # the header is cut to whole seconds

    def _document(self, response: requests.Response, body: bytes) -> dict[str, Any]:
        start = body[:200].lstrip()
        if start.startswith(b"<"):
            remedy = "a proxy's login page? Then give credentials, or the address behind it"
            raise Refusal("broken", "answered with a web page instead of data", remedy)
        try:
            document = from_long_json(body)
        except ValueError:
            size = f"{len(body):,} bytes"
            rule = f"its answer is no complete JSON ({size})" if body else "its answer is empty"
            raise Refusal("broken", rule, "the connection broke off? Try again", again=True) from None
        if not isinstance(document, dict) or document.get("status") != "success":
            said = document.get("error") if isinstance(document, dict) else None
            rule = f"answered 200, but not with success{self._words(said)}"
            raise Refusal("broken", rule, "is this the address of a Prometheus?")
        data = document.get("data")
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise Refusal("broken", "answered without a result", "is this the address of a Prometheus?")
        for key in ("warnings", "infos"):
            for warning in document.get(key) or ():
                self.warnings[self.hide(str(warning))[:300]] = None
        if document.get("isPartial"):  # VictoriaMetrics' cluster says it so
            self.warnings["the answer is partial: a storage node did not take part"] = None
        return document

    def _status(self, response: requests.Response, body: bytes) -> Refusal:
        said = ""
        try:
            document = from_json(body)
            said = str(document.get("error") or document.get("message") or "")
        except (ValueError, AttributeError):
            text = body[:100_000].decode("utf-8", "replace").strip()
            said = "" if text.startswith("<") else " ".join(text.split())
        target = urlsplit(response.headers.get("Location", ""))
        location = f" ({target.scheme}://{target.hostname})" if target.hostname else ""
        wait_s = _seconds(response.headers.get("Retry-After"))
        return of_status(response.status_code, self.hide(said)[:300], location, wait_s, self._access)

    def _words(self, said: object) -> str:
        return f": {self.hide(str(said))[:300]}" if said else ""

    def _connection(self, error: requests.RequestException) -> Refusal:
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
        if isinstance(error, (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)):
            return Refusal("broken", "its answer broke off", "try again, or with a shorter window", again=True)
        if isinstance(error, requests.exceptions.ConnectionError):
            return Refusal("unreachable", f"cannot be reached: {_reason(error)}", IS_IT_UP, again=True)
        return Refusal("refused", f"cannot be asked: {_reason(error)}", "check the address and the TLS files")


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
        return max(float(retry_after), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError):
        return None
