"""LiveServer: the page, served by uvicorn in a thread of its own, until the end of a block.

The loop of that thread serves nothing but the page: a bridge whose loop is blocked can be looked
at, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.live.app import LiveApp
from rxlanggraph.live.http import uvicorn

__all__ = ["served"]

# Seconds for clients to read the end, and for the thread to end after that. Guesses.
_FLUSH_SECONDS = 1
_END_SECONDS = 5.0


class _Server(uvicorn.Server):  # type: ignore[misc,unused-ignore] # where uvicorn is not
    """uvicorn's server, in a thread that is not the main one."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Capture none: they are the program's."""
        return nullcontext()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut off clients that do not read, too: their connections would outlive the loop."""
        await super().shutdown(sockets)
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr,unused-ignore] # it is made


@contextlib.contextmanager
def served(app: LiveApp, listener: socket.socket) -> Iterator[None]:
    """Serve ``app`` on ``listener`` for the length of a block. Any thread; its end blocks.

    Args:
        app: The page; it is closed at the end, and its clients are told so.
        listener: A socket that listens, which is closed at the end.
    """
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,  # the program configures logging
            access_log=False,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_FLUSH_SECONDS,
        )
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
