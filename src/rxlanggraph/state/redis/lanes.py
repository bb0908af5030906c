"""All connections to one server: whoever has a request takes the next one that is free.

Confined to the loop that made it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError
from rxlanggraph.state.redis.fitness import check_fitness
from rxlanggraph.state.redis.lane import Connection, Lane
from rxlanggraph.state.redis.scripts import Script

__all__ = ["Lanes"]

# How many requests are under way at once, unless the URL says otherwise (?max_connections=). A
# loop in Python cannot keep more of them busy; they would only wait on the server instead of here.
_CONNECTIONS = 32
_MOST_CONNECTIONS = 1024
# Seconds until an answer is given up, unless the URL says otherwise (?socket_timeout=).
_TIMEOUT = 5.0
_DATABASE = re.compile("/?|/[0-9]+/?")


class Lanes:
    """The lanes to one server.

    Args:
        url: As redis-py takes it.
        prefix: What the keys on the server start with.

    Raises:
        InvalidArgumentError: redis-py cannot use the URL.
    """

    def __init__(self, url: str, prefix: str) -> None:
        make, count, self._timeout = _understood(url)
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


def _check_place(url: str) -> None:
    """Refuse what redis-py overlooks, which then would be another database: number 0.

    Raises:
        ValueError: The URL has more than a server and a database, or a database without a number.
    """
    parts = urlsplit(url)
    # What it says instead is not repeated: it may be half a password.
    if parts.fragment or not (parts.scheme == "unix" or _DATABASE.fullmatch(parts.path)):
        raise ValueError(
            "after the server comes / and the number of a database, or nothing; in a password "
            "write / as %2F and # as %23"
        )


def _understood(url: str) -> tuple[Callable[[], Connection], int, float]:
    """What makes a connection to ``url``, how many there are to be, and the seconds for an answer.

    Raises:
        InvalidArgumentError: redis-py cannot use it.
    """
    try:
        _check_place(url)
        pool = ConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            socket_timeout=_TIMEOUT,
            decode_responses=True,
            protocol=2,  # nothing of a newer one is used
            retry=Retry(NoBackoff(), 0),
        )
        count, timeout = pool.max_connections, float(pool.connection_kwargs["socket_timeout"])
        # A time-out of ours is around the whole request; redis-py's costs more than the request.
        pool.connection_kwargs["socket_timeout"] = None
        make: Callable[[], Any] = partial(pool.connection_class, **pool.connection_kwargs)
        make()  # what it says to options that it does not know, it says here
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"redis-py cannot use the URL of the state: {error}") from error
    if not (1 <= count <= _MOST_CONNECTIONS and timeout > 0):
        raise InvalidArgumentError(
            "in the URL of the state, max_connections must be 1 to "
            f"{_MOST_CONNECTIONS}, and socket_timeout more than 0 seconds"
        )
    return make, count, timeout
