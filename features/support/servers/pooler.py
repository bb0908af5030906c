"""A pooler before PostgreSQL, which gives each client another session of the server as it likes.

It does what PgBouncer does, but deterministically the worst of it: where sessions change hands, the
one that was used last is given out last.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Literal, Self
from urllib.parse import parse_qs, urlsplit

from support.servers.between import Between, Streams

__all__ = ["Mode", "Pooler"]

# For how long a client keeps the session that it got.
Mode = Literal["session", "transaction", "statement"]
# The codes in the place of a version: a client that would like TLS, or GSS, or to cancel.
NO_STARTUP = (80877103, 80877104, 80877102)
READY = b"Z\0\0\0\5I"
MADE_UP_PROCESS = struct.pack("!cIII", b"K", 12, 1, 1)


class Pooler(Between):
    """Stands before a PostgreSQL server. Confined to the loop that enters it.

    Args:
        url: Of the server, with the folder of its socket as ``?host=``.
        mode: For how long a client keeps a session.
        sessions: How many of the server there are to give out.
    """

    def __init__(self, url: str, mode: Mode, sessions: int = 2) -> None:
        super().__init__()
        self._parts = urlsplit(url)
        self._mode = mode
        self._count = sessions
        self._free: asyncio.Queue[Streams] = asyncio.Queue()
        self._parameters = b""  # what a session says of itself

    @property
    def url(self) -> str:
        user = self._parts.username
        return f"postgresql://{user}@{self.address}{self._parts.path}?sslmode=disable&gssencmode=disable"

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            self._free.put_nowait(await self._connect())
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        while not self._free.empty():
            self._free.get_nowait()[1].close()

    async def _connect(self) -> Streams:
        (folder,) = parse_qs(self._parts.query)["host"]
        reader, writer = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        words = ("user", self._parts.username or "", "database", self._parts.path[1:], "")
        body = struct.pack("!I", 196608) + b"".join(word.encode() + b"\0" for word in words)
        writer.write(struct.pack("!I", len(body) + 4) + body)
        self._parameters = b""
        while not (message := await _read(reader)).startswith(b"Z"):
            if message.startswith(b"S"):
                self._parameters += message
        return reader, writer

    async def serve(self, client: Streams) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            if await self._greet(client):
                await self._pass_on(client)

    async def _greet(self, client: Streams) -> bool:
        reader, writer = client
        size, version = struct.unpack("!II", await reader.readexactly(8))
        words = (await reader.readexactly(size - 8)).split(b"\0")
        if version in NO_STARTUP:
            return False
        if b"options" in words[::2]:
            _refuse(writer, "unsupported startup parameter: options")
            return False
        authenticated = struct.pack("!cII", b"R", 8, 0)
        writer.write(authenticated + self._parameters + MADE_UP_PROCESS + READY)
        return True

    async def _pass_on(self, client: Streams) -> None:
        """Give the client a session when it asks for something, for as long as the mode says."""
        while not (message := await _read(client[0])).startswith(b"X"):
            session = await self._free.get()
            kept = False
            try:
                while await self._round(client, session, message) or self._mode == "session":
                    message = await _read(client[0])
                    if message.startswith(b"X"):
                        break
                kept = True
            finally:
                if kept:
                    self._free.put_nowait(session)
                else:  # it may be in the middle of anything
                    session[1].close()
                    self._free.put_nowait(await self._connect())

    async def _round(self, client: Streams, session: Streams, message: bytes) -> bool:
        """Pass on requests up to the next Sync; return whether a transaction is open."""
        session[1].write(message)
        while message[:1] not in (b"Q", b"S"):
            message = await _read(client[0])
            session[1].write(message)
        answers = []
        while not (answer := await _read(session[0])).startswith(b"Z"):
            answers.append(answer)
        is_open = answer != READY
        if is_open and self._mode == "statement":
            _refuse(client[1], "transaction blocks not allowed in statement pooling mode")
            raise ConnectionError
        client[1].write(b"".join([*answers, answer]))
        return is_open


async def _read(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


def _refuse(writer: asyncio.StreamWriter, why: str) -> None:
    fields = (b"SFATAL", b"VFATAL", b"C08P01", b"M" + why.encode(), b"")
    body = b"".join(field + b"\0" for field in fields)
    writer.write(struct.pack("!cI", b"E", len(body) + 4) + body)
