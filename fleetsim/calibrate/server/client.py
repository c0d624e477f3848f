"""HTTP to one server: its address and key, requests, streams, and what goes wrong with them, in words.

No redirect is followed, and no proxy from the environment is used: the key goes to this server alone.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct

from fleetsim.calibrate.session import LoadRefusedError
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.faces import flag
from fleetsim.json_text import from_json

CONNECT_S, GET_S = 10.0, 30.0
PATIENCE = 5  # answers of 429 that one request sits out
LONGEST_WAIT_S = 30.0
IDLE_S = 2.0  # until an idle connection is given up; servers do so after 5 s (uvicorn), and a request then is lost
MAX_BODY = 64 << 20
STREAMS = ("text/event-stream", "application/octet-stream")


def address_of(url: str) -> str:
    """Scheme, host, port and path prefix of a server, given with or without /v1, with a doubled /v1, or as a whole
    endpoint such as /v1/completions.

    Raises InputError for another scheme, a missing host, or credentials in the URL.
    """

    def refuse(value: str, rule: str, remedy: str) -> InputError:
        return InputError([Problem(flag("url"), value, rule, remedy)])

    text = url.strip()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise refuse(text, f"is no URL: {error}", "for example http://localhost:8000") from None
    if parts.username is not None or parts.password is not None:
        raise refuse(f"{parts.scheme}://...@{host}", "holds credentials", "give a key with --api-key instead")
    if parts.scheme not in ("http", "https"):
        raise refuse(text, "only http and https", f"http://{text}" if "//" not in text else "http://localhost:8000")
    if not host or any(c.isspace() or not c.isprintable() for c in text):
        raise refuse(text, "names no host", "for example http://localhost:8000")
    path = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/completions", "/models"):
        path = path.removesuffix(ending)
    while path.endswith("/v1"):
        path = path.removesuffix("/v1").rstrip("/")
    named = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{named}{f':{port}' if port is not None else ''}{path}"


class Key(Struct):
    """The bearer token. spare: what is tried only when the server asks for one, so that it goes nowhere unasked."""

    token: str | None
    spare: str | None

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def hide(self, text: str) -> str:
        """The text without the keys: a server may quote what it was sent."""
        for key in (self.token, self.spare):
            text = text.replace(key, "***") if key else text
        return text

    def use_spare(self) -> bool:
        """Takes the spare key after a 401. Returns whether there was one."""
        if self.token or not self.spare:
            return False
        self.token, self.spare = self.spare, None
        return True


def key_of(api_key: str | None) -> Key:
    """The user's key: the flag, else FLEETSIM_API_KEY; OPENAI_API_KEY only for a server that asks for one.

    Raises InputError for a key that cannot stand in a header.
    """
    token = (api_key or os.environ.get("FLEETSIM_API_KEY") or "").strip()
    spare = (os.environ.get("OPENAI_API_KEY") or "").strip()
    for name, value in (("--api-key", token), ("OPENAI_API_KEY", spare)):
        if any(not 32 < ord(c) < 127 for c in value):
            raise InputError([Problem(name, "(not shown)", "printable ASCII without spaces", "check the key")])
    return Key(token or None, spare or None)


class GoneError(OutsideError):
    """The server died, or the way to it: nothing more will come."""


class _StaleError(GoneError):
    """A connection was closed before an answer: it may have been one kept open for too long."""


class Client:
    """One session with one server.

    root: its address, below which paths are; messages show it.
    limited: requests that had to wait because the server limits its rate.
    """

    def __init__(self, root: str, key: Key, timeout_s: float) -> None:
        self.root, self.key, self.timeout_s = root, key, timeout_s
        self.limited = 0
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Begins the session; the event loop of its requests must be running."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=None, keepalive_timeout=IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            headers={"User-Agent": "fleetsim"},
            trust_env=False,
            auto_decompress=True,
        )

    async def close(self) -> None:
        """Ends the session."""
        assert self._session is not None
        await self._session.close()
        await asyncio.sleep(0)  # lets the transports close

    async def get(self, path: str) -> tuple[int, str, str]:
        """Status, content type and text; the status 0 where the server does not answer in time."""
        try:
            async with self._open("GET", path, None, GET_S) as response:
                return response.status, response.content_type, await _text(response)
        except TimeoutError:
            return 0, "", ""

    async def get_json(self, path: str) -> Any:
        """What an optional endpoint answers, None where it is not there or answers something else."""
        status, _, text = await self.get(path)
        if status != 200:
            return None
        try:
            return from_json(text)
        except ValueError:
            return None

    async def post(self, path: str) -> tuple[int, str]:
        """Status and text of a control endpoint without a body."""
        try:
            async with self._open("POST", path, b"", self.timeout_s) as response:
                return response.status, await _text(response)
        except TimeoutError:
            raise GoneError(self._hangs(self.timeout_s)) from None

    @asynccontextmanager
    async def stream(self, body: bytes, sent: Callable[[], None]) -> AsyncIterator[AsyncIterator[bytes]]:
        """A completion's bytes as they come. `sent` is called when the request goes out (again after a 429).

        Leaving the block early closes the connection, at which servers abort the request. Raises LoadRefusedError,
        GoneError, or OutsideError with a remedy for every other answer.
        """
        stale = False
        for attempt in range(PATIENCE + 1):
            sent()
            wait_s = 0.0
            answered = False
            try:
                async with self._open("POST", "v1/completions", body, None) as response:
                    answered = True
                    if response.status == 429:
                        wait_s = 0.5 * 2**attempt
                        with suppress(ValueError):  # none, or a date
                            wait_s = float(response.headers.get("Retry-After") or "")
                        wait_s = min(max(wait_s, 0.05), LONGEST_WAIT_S)
                    elif response.status == 401 and self.key.use_spare():
                        pass
                    else:
                        kind = response.content_type
                        if response.status != 200 or kind not in STREAMS:
                            text = "" if response.status == 200 else await _text(response)
                            raise self.failure(response.status, kind, text[:2000])
                        yield self._bytes(response)
                        return
            except _StaleError:
                if answered or stale:
                    raise
                stale = True  # once more, over a new connection
            self.limited += wait_s > 0
            await asyncio.sleep(wait_s)
        raise OutsideError(
            f"{self.root}: still answers 429 (too many requests) after {PATIENCE + 1} tries; "
            "lift its rate limit for this key, or measure the server behind the gateway"
        )

    async def _bytes(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for data in response.content.iter_any():
                yield data
        except (aiohttp.ClientError, OSError) as error:
            raise GoneError(f"{self.root}: the connection broke in the middle of a response ({error})") from None

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: bytes | None, total_s: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None
        headers = self.key.headers()
        if body:
            headers["Content-Type"] = "application/json"
        try:
            async with self._session.request(
                method,
                f"{self.root}/{path}",
                data=body,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S),
            ) as response:
                yield response
        except (aiohttp.ConnectionTimeoutError, aiohttp.SocketTimeoutError):
            raise GoneError(self._hangs(CONNECT_S)) from None
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError, ssl.SSLError) as error:
            raise OutsideError(
                f"{self.root}: TLS failed ({_said(error)}); use the name in its certificate, point "
                "SSL_CERT_FILE at the authority that signed it, or use http:// where it speaks plain HTTP"
            ) from None
        except aiohttp.ClientConnectorError as error:
            raise GoneError(
                f"{self.root}: no connection ({_said(error)}); is the server up, is this its address and port?"
            ) from None
        except aiohttp.InvalidURL:
            raise OutsideError(f"{self.root!r}: no usable address; for example http://localhost:8000") from None
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise _StaleError(
                f"{self.root}: the connection broke ({_said(error)}); is it an HTTP server, and still alive?"
            ) from None

    def _hangs(self, seconds: float) -> str:
        return f"{self.root}: no answer for {seconds:g} s; is the server alive, and not paused?"

    def failure(self, status: int, content_type: str, text: str) -> OutsideError:
        """The error for an answer that is none, with its remedy."""
        where, said = self.root, self.key.hide(_message(text))
        if status in (401, 403):
            what = "asks for a key" if not self.key.token else "refuses this key"
            return OutsideError(f"{where}: {what} ({status}{said}); give one with --api-key or FLEETSIM_API_KEY")
        if status == 404:
            return OutsideError(
                f"{where}: has no /v1/completions (404{said}); give the URL of an OpenAI-compatible server, such as "
                "http://localhost:8000"
            )
        if 300 <= status < 400:
            return OutsideError(f"{where}: redirects ({status}); give the URL that it redirects to")
        if status in (400, 413, 422):
            return LoadRefusedError(f"{where}: refused a request ({status}{said})")
        if status >= 500:
            return GoneError(f"{where}: failed with {status}{said}; see the server's own log for the reason")
        if status == 200:
            return OutsideError(
                f"{where}: answered {content_type or 'something'} instead of a stream; is this an OpenAI-compatible "
                "server that can stream completions?"
            )
        return OutsideError(f"{where}: answered {status}{said}; is this an OpenAI-compatible server?")


def _said(error: BaseException) -> str:
    inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    return str(getattr(inner, "strerror", None) or inner)[:200]


def _message(text: str) -> str:
    """What the server says of its error, in one line, empty for a page of HTML."""
    try:
        record = from_json(text)
    except ValueError:
        return "" if "<" in text or not text.strip() else f": {text.strip()[:200]}"
    for key in ("error", "message", "detail"):
        if isinstance(record, dict) and record.get(key):
            record = record[key]
    if isinstance(record, dict):
        record = record.get("message") or ""
    return f": {str(record)[:300]}" if record else ""


async def _text(response: aiohttp.ClientResponse) -> str:
    body = await response.content.read(MAX_BODY)
    while len(body) < MAX_BODY and (more := await response.content.read(MAX_BODY - len(body))):
        body += more
    return body.decode("utf-8", "replace")
