"""What stands between clients and a server: it listens, and serves each client in a task."""

from __future__ import annotations

import asyncio
from typing import Self, TypeAlias

__all__ = ["Between", "Streams"]

Streams: TypeAlias = "tuple[asyncio.StreamReader, asyncio.StreamWriter]"


class Between:
    """Listens at a free port. Confined to the loop that enters it."""

    def __init__(self) -> None:
        self.serving: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def serve(self, client: Streams) -> None:
        """Serve one client; its connection is closed at the end."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self.serving:
            task.cancel()
        await asyncio.gather(*self.serving, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self.serve((reader, writer)))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)
        # Also where it has not begun, or got no connection to the server.
        task.add_done_callback(lambda _: writer.close())
