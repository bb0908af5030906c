"""Ways of keeping state in Redis: the backend's, and what people write over a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rxlanggraph.state.backend import NewTask, Write
from rxlanggraph.state.backends.redis import RedisBackend, open_backend
from support.servers.redis_proxy import exchange, packed

__all__ = ["NAMESPACE", "WAYS", "Backend", "Way", "opened", "plain"]

NAMESPACE = "test"


class Way(Protocol):
    """What the scenarios ask of each."""

    @classmethod
    async def open(cls, url: str) -> Self: ...

    async def close(self) -> None: ...


class Backend:
    """Ours."""

    def __init__(self, backend: RedisBackend) -> None:
        self.backend = backend

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(await open_backend(url, NAMESPACE))

    async def close(self) -> None:
        await self.backend.close()

    async def increment(self, key: str, by: int = 1) -> int:
        return await self.backend.increment(key, by, None)

    async def set(self, key: str, text: str) -> None:
        await self.backend.commit({key: Write(text)}, {})

    async def get(self, key: str) -> str | None:
        (entry,) = await self.backend.read([key])
        return entry.text

    async def add(self, *items: str) -> None:
        tasks = [NewTask(item, f'"{item}"', None, 0, 0.0, None, 5) for item in items]
        await self.backend.tasks_add("queue", tasks)

    async def claim(self) -> object:
        return await self.backend.task_claim("queue", "worker", 0.001)

    async def lock(self, owner: str) -> int | None:
        return await self.backend.lock_acquire("lock", owner, 60.0)


class _Client:
    """A client of redis-py.

    Args:
        url: The server.
        again: How often it sends again what was not answered.
    """

    def __init__(self, url: str, again: int = 0) -> None:
        retry = Retry(NoBackoff(), again)
        self.redis: Any = Redis.from_url(
            url,
            decode_responses=True,
            protocol=2,  # all that the proxy speaks
            retry=retry,
        )

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(url)

    async def close(self) -> None:
        await self.redis.aclose()

    async def set(self, key: str, text: str) -> None:
        await self.redis.set(key, text)

    async def get(self, key: str) -> str | None:
        text: str | None = await self.redis.get(key)
        return text


class Repeating(_Client):
    """It sends again what was not answered, as redis-py 6 and later do unless told otherwise."""

    def __init__(self, url: str) -> None:
        super().__init__(url, again=3)

    async def increment(self, key: str, by: int = 1) -> int:
        return int(await self.redis.incrby(key, by))


class GetThenSet(_Client):
    """Two steps, with room for another in between."""

    async def increment(self, key: str, pause: Callable[[], Awaitable[object]]) -> None:
        value = int(await self.get(key) or 0)
        await pause()
        await self.set(key, str(value + 1))


class PopAndCount(_Client):
    """A list of tasks with ``LPOP``, and a lock with tokens from ``INCR``."""

    async def add(self, item: str) -> None:
        await self.redis.rpush("tasks", item)

    async def claim(self) -> object:
        return await self.redis.lpop("tasks")

    async def lock(self, owner: str) -> int:
        assert await self.redis.set("lock", owner, nx=True, px=60_000)
        return int(await self.redis.incr("token"))


class OneConnection:
    """A connection that goes on being used after a request was cancelled."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._streams = streams
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    async def open(cls, url: str) -> Self:
        parts = urlsplit(url)
        streams = await asyncio.open_connection(parts.hostname, parts.port)
        await exchange(streams, packed("SELECT", parts.path[1:]))
        return cls(streams)

    async def close(self) -> None:
        self._streams[1].close()
        await self._streams[1].wait_closed()

    async def increment(self, key: str, by: int = 1) -> int:
        async with self._one_at_a_time:
            answer = await exchange(self._streams, packed("INCRBY", key, by))
        return int(answer[1:])


WAYS: dict[str, type[Way]] = {
    "the backend": Backend,
    "a client that repeats": Repeating,
    "a get-then-set": GetThenSet,
    "a list": PopAndCount,
    "one connection": OneConnection,
}


@asynccontextmanager
async def opened(way: str, url: str) -> AsyncIterator[Any]:
    it = await WAYS[way].open(url)
    try:
        yield it
    finally:
        await it.close()


@asynccontextmanager
async def plain(url: str) -> AsyncIterator[Any]:
    client = Redis.from_url(url, decode_responses=True)
    try:
        yield client
    finally:
        await client.aclose()
