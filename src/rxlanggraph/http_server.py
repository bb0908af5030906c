"""HttpServer: uvicorn with a limit on its connections, and on how long they may idle.

What breaks without it: uvicorn waits forever for the rest of a request. Clients that never send it
use up all file descriptors of the process, and no other client is accepted.

Everything is confined to the server's loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import sys
from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from rxlanggraph.errors import MissingExtraError

try:
    import h11
    from uvicorn import Config, Server
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtraError(
        "serving HTTP needs uvicorn; install it with pip install 'rxlanggraph[live]', or with "
        "'rxlanggraph[mcp]' for agents"
    ) from error

__all__ = ["Connections", "HttpServer", "LimitedConnection"]

_log = logging.getLogger("rxlanggraph")
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Retry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_LISTEN_BACKLOG = 2048  # uvicorn's default; the kernel may allow fewer
_OTHER_DESCRIPTORS = 64  # file descriptors that are neither connections nor the program's
_MIN_CONNECTIONS = 8  # even if there are fewer descriptors
_WARN_SECONDS = 60.0  # between two warnings, so that a flood of connections does not fill the log


class Connections:
    """The connections of one server.

    When a new connection exceeds the limit, the connection that has kept the server waiting longest
    is closed: one that has never completed a request, if there is any, otherwise one that may send
    another request. If the server is working for all of them, the new one is refused with status
    503.

    Args:
        limit: The maximum number; less if the process may not have twice as many file descriptors,
            since what is served needs some, too.
        header_timeout: Seconds for the header of a request to arrive.
        body_timeout: Seconds more for its body; and for the client to read what was written.
        remedy: What the log advises when all connections are in use.
    """

    def __init__(
        self,
        limit: int,
        header_timeout: float,
        body_timeout: float,
        *,
        remedy: str = "raise max_connections",
    ) -> None:
        self.limit = min(limit, _affordable())
        self.timeouts = {"header": header_timeout, "body": body_timeout}
        self._all: set[LimitedConnection] = set()
        # Ordered sets of the connections from which a request is awaited, the longest-waiting
        # first: the first request, or a further one.
        self._new: OrderedDict[LimitedConnection, None] = OrderedDict()
        self._served: OrderedDict[LimitedConnection, None] = OrderedDict()
        self._remedy = remedy
        self._warned_at = -math.inf

    def has_room(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether there is room for another one, if need be after closing a waiting one."""
        if len(self._all) < self.limit:
            return True
        if loop.time() - self._warned_at > _WARN_SECONDS:
            self._warned_at = loop.time()
            _log.warning("all %d connections are in use; %s", self.limit, self._remedy)
        awaited = self._new or self._served
        if not awaited:
            return False
        awaited.popitem(last=False)[0].drop("to make room", logging.DEBUG)
        return True

    def drop_awaited(self) -> None:
        """Close the connections from which a request, or the rest of one, is awaited."""
        for connection in (*self._new, *self._served):
            connection.drop("the server is stopping")

    def enter(self, connection: LimitedConnection) -> None:
        """Count it."""
        self._all.add(connection)

    def leave(self, connection: LimitedConnection) -> None:
        """Stop counting it; idempotent."""
        self._all.discard(connection)
        self.set_awaited(connection, awaited=False)

    def set_awaited(self, connection: LimitedConnection, *, awaited: bool) -> None:
        """Record whether the client of ``connection`` is awaited; otherwise the server is."""
        self._new.pop(connection, None)
        self._served.pop(connection, None)
        if awaited and connection in self._all:
            (self._served if connection.served else self._new)[connection] = None


class LimitedConnection(H11Protocol):  # type: ignore[misc,unused-ignore] # where uvicorn is not
    """uvicorn's connection, counted in `Connections`, with a timeout for each part of a request."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.served = False  # whether it has completed a request
        self._connections = connections
        self._part: str | None = None  # the awaited part of the request
        self._request_timer: asyncio.TimerHandle | None = None
        self._reading_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Enter the connections, or refuse the client with status 503."""
        super().connection_made(transport)
        if not self._connections.has_room(self.loop):
            transport.write(_BUSY)
            transport.close()
            return
        self._connections.enter(self)
        self._update_awaited_part()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the connections."""
        self._connections.leave(self)
        self._await(None)
        self._stop_reading_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Continue reading."""
        super().data_received(data)
        self._update_awaited_part()

    def on_response_complete(self) -> None:
        """Continue with the next request, or with the end."""
        self.served = True
        super().on_response_complete()
        self._update_awaited_part()

    def pause_writing(self) -> None:
        """Give the client a limited time to read what was written."""
        super().pause_writing()
        self._start_reading_timer()

    def resume_writing(self) -> None:
        """Continue writing."""
        super().resume_writing()
        self._stop_reading_timer()
        if self.transport.is_closing():
            self._start_reading_timer()

    def drop(self, why: str, level: int = logging.INFO) -> None:
        """Close it at once, without reading or writing the rest."""
        _log.log(level, "dropped the HTTP connection from %s: %s", self.client, why)
        self._connections.leave(self)
        self._await(None)
        self.transport.abort()

    def _update_awaited_part(self) -> None:
        """Update which part of a request is awaited, and the timers."""
        if self.transport.is_closing():  # it ends once the client has read everything
            self._start_reading_timer()
            return
        state = self.conn.their_state
        part = {h11.IDLE: "header", h11.SEND_BODY: "body"}.get(state)
        if part != self._part:
            self._connections.set_awaited(self, awaited=part is not None)
            self._await(part)

    def _await(self, part: str | None) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None
        self._part = part
        if part is not None:
            seconds = self._connections.timeouts[part]
            why = f"the {part} of a request did not arrive within {seconds:g} s"
            self._request_timer = self.loop.call_later(seconds, self.drop, why)

    def _start_reading_timer(self) -> None:
        self._stop_reading_timer()
        seconds = self._connections.timeouts["body"]
        why = f"its answer was not read within {seconds:g} s"
        self._reading_timer = self.loop.call_later(seconds, self.drop, why)

    def _stop_reading_timer(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None


class HttpServer(Server):  # type: ignore[misc,unused-ignore] # where uvicorn is not
    """uvicorn's server of one application, with limited connections and without its signals.

    Args:
        app: The application.
        connections: Its connections.
        flush_seconds: Seconds for clients to read the rest of their answers at the end.
        options: More of uvicorn's settings.
    """

    def __init__(
        self, app: Any, connections: Connections, flush_seconds: int, **options: Any
    ) -> None:
        super().__init__(
            Config(
                app,
                http=partial(LimitedConnection, connections),  # type: ignore[arg-type] # a factory
                log_config=None,  # the program configures logging
                ws="none",
                # Connections that asyncio accepts at once: no more than there is room for.
                backlog=max(4, min(128, int(connections.limit) // 4)),
                timeout_graceful_shutdown=flush_seconds,
                **options,
            )
        )

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Capture none: uvicorn would stop at once, and raise the signal again."""
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, with a longer backlog in the kernel than asyncio accepts at once."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_LISTEN_BACKLOG)


def _affordable() -> float:
    """The number of connections that leaves as many file descriptors to what is served."""
    if sys.platform == "win32":
        return math.inf
    import resource  # noqa: PLC0415 # not on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return math.inf
    return max(_MIN_CONNECTIONS, (soft - _OTHER_DESCRIPTORS) // 2)
