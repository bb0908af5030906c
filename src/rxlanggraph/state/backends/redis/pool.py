"""All connections to one server: each request takes the next one that is free.

Confined to the loop that made it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.backends.redis.address import understood
from rxlanggraph.state.backends.redis.connection import SequencedConnection
from rxlanggraph.state.backends.redis.fitness import check_fitness
from rxlanggraph.state.backends.redis.scripts import Script

__all__ = ["ConnectionPool"]


class ConnectionPool:
    """The connections to one server.

    Args:
        url: As redis-py takes it.
        prefix: What the keys on the server start with.

    Raises:
        InvalidArgumentError: redis-py cannot use the URL.
    """

    def __init__(self, url: str, prefix: str) -> None:
        make, count, self._timeout = understood(url)
        self._prefix = prefix
        name = uuid4().hex
        self._connections = [
            SequencedConnection(
                make(), (f"{prefix}clock", f"{prefix}sequence:{name}:{number}"), self._timeout
            )
            for number in range(count)
        ]
        # The last one used is used next: a program with little to do has few connections.
        self._free: asyncio.LifoQueue[SequencedConnection] = asyncio.LifoQueue()
        for connection in reversed(self._connections):
            self._free.put_nowait(connection)
        self._now = asyncio.get_running_loop().time
        self._answered_at = self._now()

    async def connect(self) -> None:
        """Connect once, to see that there is a server, and that it will do.

        Raises:
            InvalidArgumentError: It refuses us, and will do so again, or will not do.
            StateUnavailableError: There is none.
        """
        first = self._connections[0]
        await first.connect()
        await check_fitness(first, f"{self._prefix}schema")
        for connection in self._connections:
            connection.longest = first.longest

    async def call(self, script: Script, keys: Sequence[str], *arguments: str | int) -> Any:
        """Have the server run ``script``; return its answer.

        Cancelling leaves open whether it was run.

        Raises:
            StateUnavailableError: No answer came, or a refusal.
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
        """Wait for as long as answers come: a silent server ends the waiting (rule 6)."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout):
                    return await self._free.get()
            if self._now() - self._answered_at >= self._timeout:
                raise StateUnavailableError(
                    f"the Redis server does not answer: {len(self._connections)} requests wait "
                    "for one",
                    in_doubt=False,
                )

    async def close(self) -> None:
        """Close the connections, also those that hang. No call may be under way.

        Cancelled, it closes them without waiting for the server.
        """
        for connection in self._connections:
            connection.seal()
        try:
            await asyncio.gather(*[connection.close() for connection in self._connections])
        except BaseException:
            for (
                connection
            ) in self._connections:  # a task that is cancelled at once has not even begun
                await connection.drop()
            raise
