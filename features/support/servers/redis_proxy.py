"""Between a client and a Redis server: loses, delays and holds up what it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Literal
from urllib.parse import urlsplit

from support.concurrency.tasks import PATIENCE
from support.servers.between import Between, Streams

__all__ = ["Fate", "Proxy", "exchange", "packed"]

# Of a request: nothing happens to it; it never arrives; it arrives when `deliver` is called; its
# answer never arrives; it waits for `go_on`; its answer waits for `go_on`. The connection is cut by
# the second, third and fourth.
Fate = Literal["passed", "lost", "late", "unanswered", "waiting", "answer waiting"]
# The requests that meet a fate; what is said when a connection is made does not.
FATED = (b"EVALSHA", b"INCRBY", b"SET\r\n")


class Proxy(Between):
    """Passes on requests and answers, one at a time for each connection.

    Confined to the loop that enters it.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        self._database = parts.path
        self.fates: deque[Fate] = deque()  # of the next requests
        self._late: tuple[Streams, bytes] | None = None
        self._waiting = asyncio.Event()
        self._go_on = asyncio.Event()
        self.most_at_once = 0
        self.put_off = asyncio.Event()  # by an answer that says BUSY

    @property
    def url(self) -> str:
        return f"redis://{self.address}{self._database}"

    async def wait_waiting(self) -> None:
        """Until a request, or its answer, waits here."""
        await asyncio.wait_for(self._waiting.wait(), PATIENCE)

    async def wait_unconnected(self) -> None:
        """Until all connections are closed."""
        if self.serving:
            _, connected = await asyncio.wait(self.serving, timeout=PATIENCE / 4)
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

    async def serve(self, client: Streams) -> None:
        self.most_at_once = max(self.most_at_once, len(self.serving))
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
