"""Between clients and a server: passes bytes on, and ends connections as networks end them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

from support.servers.between import Between, Streams

__all__ = ["End", "Moment", "Relay"]

# The client is told in good order, by a reset, or by an answer that is none.
End = Literal["FIN", "RST", "nonsense"]
# While no call is made; when half of a request has arrived; when the server has answered, and none
# or half of that has been passed on.
Moment = Literal["idle", "mid-request", "before the reply", "mid-reply"]
# To neither server's clients an answer.
NONSENSE = b":what\r\n"
# Steps of the loop, more than a connection takes to tell its owner that it has ended.
STEPS = 10


class Fate(NamedTuple):
    moment: Moment
    end: End


class Relay(Between):
    """Stands before a server of Redis or PostgreSQL. Confined to the loop that enters it.

    Args:
        url: Of the server: over TCP, or with the folder of its socket as ``?host=``.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._parts = urlsplit(url)
        self._fate: Fate | None = None
        self._last_request: bytes | None = None
        self._parted: asyncio.StreamWriter | None = None
        self.parted = asyncio.Event()
        self._clients: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        user = f"{self._parts.username}@" if self._parts.username else ""
        options = "?sslmode=disable&gssencmode=disable" if self._is_postgresql else ""
        return f"{self._parts.scheme}://{user}{self.address}{self._parts.path}{options}"

    async def end(self, moment: Moment, how: End, steps: int = STEPS) -> None:
        """End all connections if they are to be idle, else the one that is used next, in use.

        Args:
            moment: When.
            how: In which way.
            steps: How many of the loop those that are idle have to notice it.
        """
        if moment == "idle":
            for client in list(self._clients):
                _end(client, how)
            for _ in range(steps):
                await asyncio.sleep(0)
        else:
            self._fate = Fate(moment, how)

    def part_after(self, text: bytes) -> None:
        """Let a client be cut off after a request with ``text``, whose answer sets `parted`.

        Neither end is told: what the client sends then is lost, its end included.
        """
        self._last_request = text

    def has_ended_one(self) -> bool:
        """Whether what `end` was told has come true."""
        return self._fate is None

    @property
    def _is_postgresql(self) -> bool:
        return self._parts.scheme == "postgresql"

    async def serve(self, client: Streams) -> None:
        reader, writer = client
        self._clients.add(writer)
        try:
            answers, requests = await self._connect()
            ways = [
                asyncio.ensure_future(self._pass_requests(reader, requests, writer)),
                asyncio.ensure_future(self._pass_answers(answers, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                requests.close()  # first: this may be cancelled while it waits for the two
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._clients.discard(writer)

    async def _connect(self) -> Streams:
        if self._is_postgresql:
            (folder,) = parse_qs(self._parts.query)["host"]
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        return await asyncio.open_connection(self._parts.hostname, self._parts.port)

    async def _pass_requests(
        self,
        reader: asyncio.StreamReader,
        requests: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                fate = self._take("mid-request")
                if fate is not None:
                    requests.write(data[: len(data) // 2])
                    await requests.drain()
                    _end(client, fate.end)
                    return
                requests.write(data)
                if self._last_request is not None and self._last_request in data:
                    self._parted = client
                    with contextlib.suppress(ConnectionError):
                        while await reader.read(65536):
                            pass
                    await asyncio.Event().wait()  # until the scenario ends

    async def _pass_answers(
        self, answers: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await answers.read(65536):
                fate = self._take("before the reply") or self._take("mid-reply")
                if fate is not None:
                    if fate.moment == "mid-reply":
                        client.write(data[: len(data) // 2])
                    _end(client, fate.end)
                    return
                client.write(data)
                if client is self._parted:
                    self.parted.set()

    def _take(self, moment: Moment) -> Fate | None:
        fate = self._fate
        if fate is None or fate.moment != moment:
            return None
        self._fate = None
        return fate


def _end(client: asyncio.StreamWriter, how: End) -> None:
    if how == "RST":
        # Closed while it lingers for no time at all, a connection is reset.
        linger = struct.pack("ii", 1, 0)
        client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.transport.abort()
        return
    if how == "nonsense":
        client.write(NONSENSE)
    client.close()
