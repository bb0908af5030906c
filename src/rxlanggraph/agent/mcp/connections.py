"""Connections: a limited number of them, and none that keeps its place by idling.

What breaks without it: uvicorn waits forever for the rest of a request. Clients that never send it
use up all file descriptors of the process, and no other client is accepted.

All of it is confined to the server's loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections import OrderedDict
from typing import Any

from rxlanggraph.agent.mcp.sdk import H11Protocol, h11

__all__ = ["Connections", "LimitedConnection"]

_log = logging.getLogger("rxlanggraph")
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Retry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_OTHER_DESCRIPTORS = 64
_FEWEST = 8


class Connections:
    """The connections of one server.

    When there is no room for another connection, the one is closed that has kept the server waiting
    longest: for its first request, or for the rest of it; else for a further one. If the server is
    working for all of them, the new one is refused, with status 503.

    Args:
        limit: The maximum number; less if the process may not have twice as many file descriptors,
            since the agents need some, too.
        header_timeout: Seconds for the header of a request to arrive.
        body_timeout: Seconds more for its body; and for the client to read what was written.
    """

    def __init__(self, limit: int, header_timeout: float, body_timeout: float) -> None:
        self.limit = min(limit, _affordable())
        self.timeouts = {"header": header_timeout, "body": body_timeout}
        self._all: set[LimitedConnection] = set()
        # Connections awaiting a request, the longest first: their first one, or a further one.
        self._new: OrderedDict[LimitedConnection, None] = OrderedDict()
        self._known: OrderedDict[LimitedConnection, None] = OrderedDict()
        self._warned_at = -math.inf

    def has_room(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether there is room for another one; makes some, if it can."""
        if len(self._all) < self.limit:
            return True
        if loop.time() - self._warned_at > 60:  # otherwise a flood would fill the log, too
            self._warned_at = loop.time()
            _log.warning("all %d connections are in use", self.limit)
        awaited = self._new or self._known
        if not awaited:
            return False
        awaited.popitem(last=False)[0].drop("to make room", logging.DEBUG)
        return True

    def drop_awaited(self) -> None:
        """Close the connections that are awaiting a request, or the rest of one."""
        for connection in (*self._new, *self._known):
            connection.drop("the server is stopping")

    def enter(self, connection: LimitedConnection) -> None:
        """Count it."""
        self._all.add(connection)

    def leave(self, connection: LimitedConnection) -> None:
        """Stop counting it; idempotent."""
        self._all.discard(connection)
        self.set_awaited(connection, awaited=False)

    def set_awaited(self, connection: LimitedConnection, *, awaited: bool) -> None:
        """Record what is waited for: the client, if it is ``awaited``, or the server."""
        self._new.pop(connection, None)
        self._known.pop(connection, None)
        if awaited and connection in self._all:
            (self._known if connection.served else self._new)[connection] = None


class LimitedConnection(H11Protocol):  # type: ignore[misc,unused-ignore] # where uvicorn is not
    """uvicorn's connection, with a place among all, and a timeout for each part of a request."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.served = False  # whether it has had an answer
        self._connections = connections
        self._part: str | None = None  # the awaited part of the request
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, or close."""
        super().connection_made(transport)
        if not self._connections.has_room(self.loop):
            transport.write(_BUSY)
            transport.close()
            return
        self._connections.enter(self)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._connections.leave(self)
        self._await(None)
        self._stop_reading_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Continue reading."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Continue with the next request, or with the end."""
        self.served = True
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Give the client time to read what there is."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Continue writing."""
        super().resume_writing()
        self._stop_reading_timer()
        if self.transport.is_closing():
            self._expect_reading()

    def drop(self, why: str, level: int = logging.INFO) -> None:
        """Close it, whatever is still to be read or written."""
        _log.log(level, "an HTTP connection from %s is dropped: %s", self.client, why)
        self._connections.leave(self)
        self._await(None)
        self.transport.abort()

    def _look(self) -> None:
        """Check which part of a request is awaited now, or whether the connection is ending."""
        if self.transport.is_closing():  # once the client has read everything
            self._expect_reading()
            return
        state = self.conn.their_state
        part = {h11.IDLE: "header", h11.SEND_BODY: "body"}.get(state)
        if part != self._part:
            self._connections.set_awaited(self, awaited=part is not None)
            self._await(part)

    def _await(self, part: str | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._part = part
        if part is not None:
            seconds = self._connections.timeouts[part]
            why = f"the {part} of a request has not come in {seconds:g} s"
            self._timer = self.loop.call_later(seconds, self.drop, why)

    def _expect_reading(self) -> None:
        self._stop_reading_timer()
        seconds = self._connections.timeouts["body"]
        self._unread = self.loop.call_later(seconds, self.drop, "it does not read its answer")

    def _stop_reading_timer(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def _affordable() -> float:
    """How many connections the process can have, leaving as many descriptors to its agents."""
    if sys.platform == "win32":
        return math.inf
    import resource  # noqa: PLC0415 # not on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return math.inf
    return max(_FEWEST, (soft - _OTHER_DESCRIPTORS) // 2)
