"""All connections to one server: whoever has a request takes the next one that is free.

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
from rxlanggraph.state.backends.redis.connection import Lane
from rxlanggraph.state.backends.redis.fitness import check_fitness
from rxlanggraph.state.backends.redis.scripts import Script

__all__ = ["Lanes"]


class Lanes:
    """The lanes to one server.

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
        self._lanes = [
            Lane(make(), (f"{prefix}clock", f"{prefix}lane:{name}:{number}"), self._timeout)
            for number in range(count)
        ]
        # The last one used is used next: a program with little to do has few connections.
        self._free: asyncio.LifoQueue[Lane] = asyncio.LifoQueue()
        for lane in reversed(self._lanes):
            self._free.put_nowait(lane)
        self._now = asyncio.get_running_loop().time
        self._answered_at = self._now()

    async def connect(self) -> None:
        """Connect once, to see that there is a server, and that it will do.

        Raises:
            InvalidArgumentError: It refuses us, and will do so again, or will not do.
            StateUnavailableError: There is none.
        """
        first = self._lanes[0]
        await first.connect()
        await check_fitness(first, f"{self._prefix}schema")
        for lane in self._lanes:
            lane.longest = first.longest

    async def call(self, script: Script, keys: Sequence[str], *arguments: str | int) -> Any:
        """Have the server run ``script``; return its answer.

        Cancelling leaves open whether it was run.

        Raises:
            StateUnavailableError: No answer came, or a refusal.
            StateClosedError: The lanes are closed.
        """
        lane = self._free.get_nowait() if not self._free.empty() else await self._wait_for_lane()
        try:
            answer = await lane.call(script, keys, arguments)
        finally:
            self._free.put_nowait(lane)
        self._answered_at = self._now()
        return answer

    async def _wait_for_lane(self) -> Lane:
        """Wait for as long as anybody gets answers: a silent server holds nobody up (rule 6)."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout):
                    return await self._free.get()
            if self._now() - self._answered_at >= self._timeout:
                raise StateUnavailableError(
                    f"the Redis server gives no answer: {len(self._lanes)} requests wait for one",
                    in_doubt=False,
                )

    async def close(self) -> None:
        """Close the connections, also those that hang. No call may be under way.

        Cancelled, it closes them without waiting for the server.
        """
        for lane in self._lanes:
            lane.seal()
        try:
            await asyncio.gather(*[lane.close() for lane in self._lanes])
        except BaseException:
            for lane in self._lanes:  # a task that is cancelled at once has not even begun
                await lane.drop()
            raise
