"""The connections to one server: each request takes a free one.

Confined to the loop that made it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.backends.redis.address import parse_address
from rxlanggraph.state.backends.redis.connection import SequencedConnection
from rxlanggraph.state.backends.redis.fitness import check_fitness
from rxlanggraph.state.backends.redis.scripts import Script

__all__ = ["ConnectionPool"]


class ConnectionPool:
    """The connections to one server.

    Args:
        url: The URL of the server, as redis-py accepts it.
        prefix: The prefix of all keys on the server.

    Raises:
        InvalidArgumentError: redis-py cannot use the URL.
    """

    def __init__(self, url: str, prefix: str) -> None:
        make, count, self._timeout = parse_address(url)
        self._prefix = prefix
        name = uuid4().hex
        self._connections = [
            SequencedConnection(
                make(), (f"{prefix}clock", f"{prefix}sequence:{name}:{number}"), self._timeout
            )
            for number in range(count)
        ]
        # Last in, first out: a program with little load keeps few connections.
        self._free: asyncio.LifoQueue[SequencedConnection] = asyncio.LifoQueue()
        for connection in reversed(self._connections):
            self._free.put_nowait(connection)
        self._now = asyncio.get_running_loop().time
        self._answered_at = self._now()

    async def connect(self) -> None:
        """Connect once, and check that the server is fit for shared state.

        Raises:
            InvalidArgumentError: The server refuses the connection permanently, or is not fit.
            StateUnavailableError: The server does not answer.
        """
        first = self._connections[0]
        await first.connect()
        await check_fitness(first, f"{self._prefix}schema")
        for connection in self._connections:
            connection.max_argument = first.max_argument

    async def call(self, script: Script, keys: Sequence[str], *arguments: str | int) -> Any:
        """Run ``script`` on the server; return its answer.

        If cancelled, the script may have been run.

        Raises:
            StateUnavailableError: No answer came, or the server refuses temporarily.
            InvalidArgumentError: The server refuses permanently.
            StateClosedError: The pool is closed.
        """
        connection = (
            self._free.get_nowait() if not self._free.empty() else await self._wait_for_connection()
        )
        try:
            answer = await connection.call(script, keys, arguments)
        finally:
            self._free.put_nowait(connection)
        self._answered_at = self._now()
        return answer

    async def _wait_for_connection(self) -> SequencedConnection:
        """Wait for a free connection, but not on a server that is silent (rule 6)."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout):
                    return await self._free.get()
            if self._now() - self._answered_at >= self._timeout:
                raise StateUnavailableError(
                    "the Redis server does not answer: all "
                    f"{len(self._connections)} connections wait for an answer",
                    in_doubt=False,
                )

    async def close(self) -> None:
        """Close the connections, even those that hang. No call may be pending.

        If cancelled, it aborts them, without waiting for the server.
        """
        for connection in self._connections:
            connection.seal()
        try:
            await asyncio.gather(*[connection.close() for connection in self._connections])
        except BaseException:
            # All of them: a task of the gather may have been cancelled before its first step.
            for connection in self._connections:
                await connection.abort()
            raise
