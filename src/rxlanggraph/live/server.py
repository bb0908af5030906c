"""Serves the page in a thread of its own, until the end of a block.

The loop of that thread serves nothing else, so the page also works while the loop of its bridge is
blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.http_server import Connections, HttpServer
from rxlanggraph.live.app import LiveApp

__all__ = ["served"]

# How many connections there may be: each open page has one, and for moments more.
# Seconds for the header of a request; and more for its body, and to read what was written: a
# snapshot on a slow network. All are guesses.
_MOST_CONNECTIONS = 128
_HEADER_SECONDS = 10.0
_BODY_SECONDS = 60.0
# Seconds for clients to read the end, before they are cut off; until uvicorn cancels what has not
# ended by itself after that, on a machine that stands still, and logs a traceback for each; and for
# the thread to end. Guesses.
_FLUSH_SECONDS = 1
_CANCEL_SECONDS = 6
_END_SECONDS = 8.0


class _Server(HttpServer):
    """A server in a thread that is not the main one."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut off clients that do not read the end in time.

        Otherwise uvicorn cancels what they wait for, and logs a traceback for each.
        """
        end = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._cut_off)
        await super().shutdown(sockets)
        end.cancel()
        self._cut_off()  # their connections would outlive the loop

    def _cut_off(self) -> None:
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr,unused-ignore] # it is made


@contextlib.contextmanager
def served(app: LiveApp, listener: socket.socket) -> Iterator[None]:
    """Serve ``app`` on ``listener`` for the length of a block. Any thread; its end blocks.

    Args:
        app: The page; it is closed at the end, and its clients are told so.
        listener: A socket that listens, which is closed at the end.
    """
    connections = Connections(
        _MOST_CONNECTIONS, _HEADER_SECONDS, _BODY_SECONDS, remedy="close some pages"
    )
    server = _Server(
        app, connections, _CANCEL_SECONDS, lifespan="off", access_log=False, server_header=False
    )
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve([listener])), name="rxlanggraph-live", daemon=True
    )
    try:
        start_detached(thread)
        yield
    finally:
        app.close()
        server.should_exit = True
        if thread.ident is not None:
            thread.join(_END_SECONDS)
        listener.close()
