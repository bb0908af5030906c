"""Between a client and a Redis server: loses, delays and holds up what it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

from support.tasks import PATIENCE

__all__ = ["Fate", "Proxy", "exchange", "packed"]

# Of a request: nothing happens to it; it never arrives; it arrives when `deliver` is called; its
# answer never arrives; it waits for `go_on`; its answer waits for `go_on`. The connection is cut by
# the second, third and fourth.
Fate = Literal["passed", "lost", "late", "unanswered", "waiting", "answer waiting"]
# The requests that meet a fate; what is said when a connection is made does not.
FATED = (b"EVALSHA", b"INCRBY", b"SET\r\n")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Passes on requests and answers, one at a time for each connection.

    Confined to the loop that enters it.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        self._database = parts.path
        self.fates: deque[Fate] = deque()  # of the next requests
        self._late: tuple[Streams, bytes] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = asyncio.Event()
        self._go_on = asyncio.Event()
        self.most_at_once = 0
        self.put_off = asyncio.Event()  # by an answer that says BUSY

    @property
    def url(self) -> str:
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"redis://{host}:{port}{self._database}"

    async def wait_waiting(self) -> None:
        """Until a request, or its answer, waits here."""
        await asyncio.wait_for(self._waiting.wait(), PATIENCE)

    async def wait_unconnected(self) -> None:
        """Until all connections are closed."""
        if self._tasks:
            _, connected = await asyncio.wait(self._tasks, timeout=PATIENCE / 4)
            assert not connected, f"{len(connected)} connections are open"

    def go_on(self) -> None:
        self._go_on.set()

    async def deliver(self) -> None:
        """Let the late request arrive, and be carried out."""
        assert self._late is not None, "no request is late"
        streams, request = self._late
        self._late = None
        await exchange(streams, request)
        streams[1].close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve((reader, writer)))
        self._tasks.add(task)
        self.most_at_once = max(self.most_at_once, len(self._tasks))
        task.add_done_callback(self._tasks.discard)
        # Also where it has not begun, or got no connection to the server.
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, client: Streams) -> None:
        server = await asyncio.open_connection(*self._address)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._pass_on(client, server)
        finally:
            if self._late is None or self._late[0] is not server:
                server[1].close()

    async def _pass_on(self, client: Streams, server: Streams) -> None:
        while True:
            request = await _read(client[0])
            fate = self._take_fate(request)
            if fate == "waiting":
                await self._wait()
            if fate == "late":
                self._late = server, request
            if fate in ("lost", "late"):
                return
            answer = await exchange(server, request)
            if answer.startswith(b"-BUSY"):
                self.put_off.set()
            if fate == "unanswered":
                return
            if fate == "answer waiting":
                await self._wait()
            client[1].write(answer)

    async def _wait(self) -> None:
        self._waiting.set()
        await self._go_on.wait()

    def _take_fate(self, request: bytes) -> Fate | None:
        if self.fates and any(command in request[:40] for command in FATED):
            return self.fates.popleft()
        return None


# -- the protocol: https://redis.io/docs/latest/develop/reference/protocol-spec/ -------------------


def packed(*command: object) -> bytes:
    words = [str(word).encode() for word in command]
    parts = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    return b"*%d\r\n%b" % (len(words), parts)


async def exchange(streams: Streams, request: bytes) -> bytes:
    reader, writer = streams
    writer.write(request)
    return await _read(reader)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Read a request, or an answer, as it is on the wire."""
    line = await reader.readuntil(b"\r\n")
    kind, count = line[:1], line[1:-2]
    if kind == b"$" and count != b"-1":
        return line + await reader.readexactly(int(count) + 2)
    if kind == b"*":
        return line + b"".join([await _read(reader) for _ in range(int(count))])
    return line
