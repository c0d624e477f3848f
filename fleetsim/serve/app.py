"""The server: the page, what it asks, and the limits of both. It writes nothing and reads no file that a page names."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fleetsim
from fleetsim.errors import OutsideError
from fleetsim.serve.answers import TooLongError, Worker, refusal

if TYPE_CHECKING:
    from aiohttp import web

    _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PAGE = Path(__file__).parent / "page"
_TEMPLATES = Path(fleetsim.__file__).parent / "tell" / "templates"
# Bytes of a file that is sent; seconds that sending a head, and a body, may take; seconds of the answers.
MOST_BYTES, SENDING_S = 8 << 20, 20.0
COUNT_S, WHOLE_S, READ_S = 20.0, 120.0, 60.0
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FILES = {
    "/": (_PAGE / "index.html", "text/html"),
    "/page.js": (_PAGE / "page.js", "text/javascript"),
    "/page.css": (_PAGE / "page.css", "text/css"),
    "/style.css": (_TEMPLATES / "style.css", "text/css"),
    "/chart.css": (_TEMPLATES / "chart.css", "text/css"),
    "/chart.js": (_TEMPLATES / "chart.js", "text/javascript"),
}


def installed() -> Any:
    """aiohttp's web. Raises OutsideError where it is missing."""
    try:
        from aiohttp import web
    except ImportError:
        raise OutsideError("serve needs aiohttp, which is not installed; pip install 'fleetsim[server]'") from None
    return web


class Site:
    """The page and its answers. loopback: whether only this machine may ask: then a request for any other name is
    refused, since a page elsewhere can give its own name this machine's address."""

    def __init__(self, loopback: bool) -> None:
        self._loopback = loopback
        # Connections: those whose request is answered now, and since when each of the others is waited for.
        self._answered: set[object] = set()
        self._since: dict[object, float] = {}
        self._workers = {"count": Worker(COUNT_S), "whole": Worker(WHOLE_S), "read": Worker(READ_S)}

    def app(self) -> web.Application:
        """The application. Raises OutsideError where aiohttp is missing."""
        installed()
        from aiohttp import web

        @web.middleware
        async def guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = web.Application(middlewares=[guarded], client_max_size=MOST_BYTES)
        for path in _FILES:
            app.router.add_get(path, self._file)
        app.router.add_get("/form", self._form)
        app.router.add_post("/count", self._asked)
        app.router.add_post("/whole", self._asked)
        app.router.add_post("/read", self._read)
        return app

    def start(self) -> None:
        """Starts the processes that answer."""
        for name in ("count", "whole"):
            self._workers[name].start()

    def stop(self) -> None:
        """Ends them."""
        for worker in self._workers.values():
            worker.stop()

    async def close_drips(self, server: web.Server) -> None:
        """Closes, again and again, connections whose request did not arrive in time: aiohttp waits for a head for as
        long as bytes drip."""
        while True:
            now, there = time.monotonic(), server.connections
            self._since = {one: self._since.get(one, now) for one in there if one not in self._answered}
            for one in there:
                if now - self._since.get(one, now) > SENDING_S and one.transport is not None:
                    one.transport.abort()
            await asyncio.sleep(min(1.0, SENDING_S / 4))

    async def _guarded(self, request: web.Request, handle: _Handler) -> web.StreamResponse:
        web = installed()
        self._answered.add(request.protocol)
        try:
            response = _refused("this server answers to localhost alone", 403) if self._foreign(request) else None
            response = response or await handle(request)
        except web.HTTPException as error:
            response = _refused(error.reason, error.status)
        except (TooLongError, TimeoutError) as error:
            response = _refused(str(error) or "the request took too long to arrive", 408)
        finally:
            self._answered.discard(request.protocol)
        response.headers.update(HEADERS)
        return response

    def _foreign(self, request: web.Request) -> bool:
        from fleetsim.watch.exporter import is_loopback

        host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
        return self._loopback and not is_loopback(host.strip("[]"))

    async def _file(self, request: web.Request) -> web.Response:
        place, kind = _FILES[request.path]
        response: web.Response = installed().Response(body=place.read_bytes(), content_type=kind, charset="utf-8")
        return response

    async def _form(self, _: web.Request) -> web.Response:
        from fleetsim.serve.form import form

        return _json({**form(), "version": fleetsim.__version__})

    async def _asked(self, request: web.Request) -> web.Response:
        """A question as JSON; the type is one that no form of another page can send."""
        if request.content_type != "application/json":
            return _refused("send JSON", 415)
        body = await asyncio.wait_for(request.read(), SENDING_S)
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            return _refused("is no JSON", 400)
        if not isinstance(asked, dict):
            return _refused("must be an object", 400)
        what = request.path.removeprefix("/")
        return _json(await asyncio.to_thread(self._workers[what].ask, what, asked))

    async def _read(self, request: web.Request) -> web.Response:
        if request.content_type != "application/octet-stream":
            return _refused("send the file's bytes", 415)
        body = await asyncio.wait_for(request.read(), SENDING_S)
        name, framework = request.query.get("name", "file"), request.query.get("framework") or None
        return _json(await asyncio.to_thread(self._workers["read"].ask, "read", name, framework, body))


def _json(document: dict[str, Any]) -> web.Response:
    response: web.Response = installed().json_response(document, status=422 if "problems" in document else 200)
    return response


def _refused(why: str, status: int) -> web.Response:
    response: web.Response = installed().json_response(refusal(why), status=status)
    return response


async def serve(site: Site, host: str, port: int, ready: Callable[[str], None], ended: asyncio.Event) -> None:
    """Serves until `ended` is set. ready: hears the address. Raises OutsideError where it cannot be bound."""
    web = installed()
    runner = web.AppRunner(site.app(), access_log=None, keepalive_timeout=20.0)
    await runner.setup()
    site.start()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            why = error.strerror or str(error)
            raise OutsideError(f"cannot listen on {host}:{port}: {why}; give --listen another address") from None
        bound = runner.addresses[0]
        drips = asyncio.create_task(site.close_drips(runner.server))
        ready(f"http://{f'[{host}]' if ':' in host else host}:{bound[1]}/")
        await ended.wait()
        drips.cancel()
    finally:
        await runner.cleanup()
        site.stop()
