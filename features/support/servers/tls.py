"""A certificate authority, and what stands before a server that speaks no TLS, and speaks it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import trustme

from support.servers.between import Between, Streams

__all__ = ["Authority", "TlsEnd"]

# The codes in the place of a version by which a client of PostgreSQL asks for encryption.
ASKS_FOR_TLS = 80877103
ASKS_FOR_GSS = 80877104


class Authority:
    """Issues certificates, and writes its own one to a file."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self.file = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def context(self, *names: str) -> ssl.SSLContext:
        """For a server of these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(*names).configure_cert(context)
        return context


class TlsEnd(Between):
    """The end of TLS before a server of Redis or PostgreSQL. Confined to the loop that enters it.

    Args:
        url: Of the server: over TCP, or with the folder of its socket as ``?host=``.
        context: With the server's certificate.
    """

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        super().__init__()
        self.parts = urlsplit(url)
        self._context = context
        self.encrypted = 0

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def serve(self, client: Streams) -> None:
        reader, writer = client
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            if self.parts.scheme == "postgresql" and not await self._is_asked(reader, writer):
                return
            try:
                await writer.start_tls(self._context)
            except OSError:
                # The protocol has that error too, and asyncio would log it as never retrieved.
                await writer.wait_closed()
                raise
            self.encrypted += 1
            answers, requests = await self._connect()
            try:
                await asyncio.gather(_pass(reader, requests), _pass(answers, writer))
            finally:
                requests.close()

    async def _is_asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        while True:
            code: int = struct.unpack("!II", await reader.readexactly(8))[1]
            if code == ASKS_FOR_TLS:
                writer.write(b"S")
                return True
            if code != ASKS_FOR_GSS:
                return False
            writer.write(b"N")

    async def _connect(self) -> Streams:
        if self.parts.scheme == "postgresql":
            (folder,) = parse_qs(self.parts.query)["host"]
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        return await asyncio.open_connection(self.parts.hostname, self.parts.port)


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(65536):
        target.write(piece)
        await target.drain()
    target.close()
