"""LiveApp: the page and its data over HTTP, as an ASGI application.

    GET ./                           the page; with ?token=..., the cookie first
    GET live.css, live.js, ...       its other files
    GET api/snapshot                 a snapshot
    GET api/events                   snapshots as server-sent events, and the end
    GET api/runs/{id}/stack          the current stack of a run
    POST api/runs/{id}/cancel        cancels it
    POST api/interrupts/{id}/answer  answers a question: {"value": ...}

Each request is checked before anything else is done: see `rxlanggraph.live.access`.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

from rxlanggraph.live.access import HEADERS, Access
from rxlanggraph.live.feed import Feed, Feeds, encoded
from rxlanggraph.live.http import (
    ASGIApp,
    ClientDisconnect,
    EventSourceResponse,
    Headers,
    HTTPException,
    JSONResponse,
    Message,
    MutableHeaders,
    PlainTextResponse,
    Receive,
    RedirectResponse,
    Request,
    Response,
    Route,
    Scope,
    Send,
    Starlette,
)
from rxlanggraph.live.questions import from_json
from rxlanggraph.live.source import Source

__all__ = ["LiveApp"]

# Not from a table of the machine, which may differ: browsers are told to guess nothing.
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_STATIC = Path(__file__).parent / "static"
# How many may watch at a time; bytes of a request; seconds between two signs of life. All guesses.
_MOST_CLIENTS = 32
_LONGEST_BODY = 64 * 1024
_PING_SECONDS = 15.0
_NOT_OK = {"stale": 409, "refused": 503}


class LiveApp:
    """An ASGI application: the live page of one source. Any loop; several may serve it.

    Mount it under any path, or serve it by itself. It has no lifespan to run. Once it is garbage
    collected, or `close` was called, it no longer observes its source.

    Args:
        source: What it shows.
        access: Who may see it.
    """

    def __init__(self, source: Source, access: Access) -> None:
        self._access = access
        self._feeds = Feeds(source, _MOST_CLIENTS)
        self._app = _guarded(_Endpoints(source, self._feeds).routed(), self._access)
        self._finalizer = weakref.finalize(self, source.close)
        self._finalizer.atexit = False

    @property
    def token(self) -> str:
        """What each request must send. Any thread; never blocks."""
        return self._access.token

    @property
    def path(self) -> str:
        """The rest of the address at which the page is opened first, with the token in it."""
        return f"/?{urlencode({'token': self.token})}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """End the streams of all clients, and stop observing the source; idempotent.

        Any thread; never blocks. Requests are still answered.
        """
        self._feeds.end("closed")
        self._finalizer()


# -- the endpoints ---------------------------------------------------------------------------------


class _Endpoints:
    """The endpoints for one source. Any loop.

    Args:
        source: The source.
        feeds: Its snapshots, for the clients.
    """

    def __init__(self, source: Source, feeds: Feeds) -> None:
        self._source = source
        self._feeds = feeds

    def routed(self) -> Starlette:
        """Return them as an application."""
        return Starlette(
            routes=[
                *_static_routes(),
                Route("/api/snapshot", self.snapshot),
                Route("/api/events", self.events),
                Route("/api/runs/{run_id}/stack", self.stack),
                Route("/api/runs/{run_id}/cancel", self.cancel, methods=["POST"]),
                Route("/api/interrupts/{question_id}/answer", self.answer, methods=["POST"]),
            ],
            exception_handlers={HTTPException: _as_json},
        )

    async def snapshot(self, _: Request) -> Response:
        """Take a snapshot."""
        return Response(encoded(await self._source.snapshot()), media_type="application/json")

    async def events(self, _: Request) -> Response:
        """Stream snapshots."""
        feed = self._feeds.enter()
        if feed is None:
            raise HTTPException(503, f"{_MOST_CLIENTS} pages watch already; close one of them")
        return _EventStream(self._feeds, feed)

    async def stack(self, request: Request) -> Response:
        """Return the current stack of a run."""
        found = await self._source.stack(_run_id(request))
        if found is None:
            raise HTTPException(404, "this run is not in flight")
        return JSONResponse({"stack": found})

    async def cancel(self, request: Request) -> Response:
        """Cancel a run."""
        await _body(request)
        if not await self._source.cancel(_run_id(request)):
            raise HTTPException(404, "this run is not in flight, or was cancelled before")
        return JSONResponse({"cancelled": True})

    async def answer(self, request: Request) -> Response:
        """Answer a question."""
        body = await _body(request)
        if "value" not in body:
            raise HTTPException(400, 'the answer is missing; send {"value": ...}')
        answered = await self._source.answer(request.path_params["question_id"], body["value"])
        refused = _NOT_OK.get(answered.outcome)
        if refused is not None:
            content = {"outcome": answered.outcome, "error": answered.reason}
            return JSONResponse(content, refused)
        content = {"outcome": answered.outcome, "status": answered.status}
        return JSONResponse(content, 200 if answered.outcome == "ended" else 202)


def _static_routes() -> list[Route]:
    """Read the files of the page, once: they are small, and reading files blocks."""
    routes = []
    for file in sorted(_STATIC.iterdir()):
        if file.suffix in _TYPES:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            routes.append(Route(path, _file(file.read_bytes(), _TYPES[file.suffix])))
    return routes


def _file(content: bytes, type_: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(_: Request) -> Response:
        return Response(content, media_type=type_)

    return serve


def _run_id(request: Request) -> int:
    try:
        return int(request.path_params["run_id"])
    except ValueError:  # also for more digits than Python reads
        raise HTTPException(404, "this run is not in flight") from None


async def _body(request: Request) -> dict[str, Any]:
    """Read the JSON object that was sent."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "send JSON, with the content type application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST_BODY:
            raise HTTPException(413, f"more than {_LONGEST_BODY} bytes are too many")
    try:
        content = from_json(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise HTTPException(400, "send a JSON object")
    return content


async def _as_json(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


class _EventStream(EventSourceResponse):  # type: ignore[misc,unused-ignore] # where that is not
    """The event stream of one client, which has a place on the feed."""

    def __init__(self, feeds: Feeds, feed: Feed) -> None:
        super().__init__(feed.listen(), ping=_PING_SECONDS, sep="\n")
        self._feeds, self._feed = feeds, feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the feed ends, or the client leaves.

        A client that does not read keeps its place until the server cuts it off.
        """
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feeds.leave(self._feed)


# -- the checks ------------------------------------------------------------------------------------


def _guarded(app: ASGIApp, access: Access) -> ASGIApp:
    """Check each request first, and say in each response what browsers may do with it."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":  # the lifespan
            await app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        root, path = scope.get("root_path", ""), scope["path"]
        if not path.startswith(root):
            # The path is that behind a proxy that strips the outer part, as FastAPI(root_path=...)
            # declares. Starlette finds routes in whole paths only.
            scope = {**scope, "path": scope.get("app_root_path", root) + path}
        try:
            response = _refused_or_redirected(scope, access) or app
            await response(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass

    return guard


def _refused_or_redirected(scope: Scope, access: Access) -> Response | None:
    headers = Headers(scope=scope)
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    tokens = query.get("token", [])
    with_token = {**headers, "authorization": f"Bearer {tokens[0]}"} if tokens else headers
    refusal = access.refuse(scope["method"], with_token)
    if refusal is not None:
        if scope["path"].rpartition("/api/")[1]:
            return JSONResponse({"error": refusal.reason}, refusal.status)
        return PlainTextResponse(refusal.reason, refusal.status)
    root, path = scope.get("root_path", ""), scope["path"]
    # The last part of the path, relative to itself; a mounted page is left with a slash at its end.
    here = path.rpartition("/")[2]
    at_root = path in (root, "")
    if scope["method"] not in ("GET", "HEAD") or not (tokens or at_root):
        return None
    response = RedirectResponse(f"./{here}/" if at_root and here else f"./{here}", 303)
    if tokens:
        response.headers["set-cookie"] = access.cookie(
            f"{root}/", secure=scope.get("scheme") == "https"
        )
    return response
