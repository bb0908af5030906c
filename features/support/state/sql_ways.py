"""Ways of keeping state in a database: the backend's, and what people write over a connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg

from rxlanggraph.state.backend import Backend, NewTask
from rxlanggraph.state.backends.sql import open_backend

__all__ = ["COUNTS", "NAMESPACE", "add", "opened", "plain", "value_of"]

NAMESPACE = "test"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Backend]:
    """The backend, without what the state does on top of it."""
    backend = await open_backend(url, NAMESPACE)
    try:
        yield backend
    finally:
        await backend.close()


@contextmanager
def plain(url: str) -> Iterator[Any]:
    """Another client's connection, each statement of which is a transaction."""
    connection: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    else:
        connection = psycopg.connect(url, autocommit=True)
    try:
        yield connection
    finally:
        connection.close()


async def value_of(backend: Backend, key: str) -> str | None:
    (entry,) = await backend.read([key])
    return entry.text


async def add(backend: Backend, *items: str) -> None:
    tasks = [NewTask(item, f'"{item}"', None, 0, 0.0, None, 5) for item in items]
    await backend.tasks_add("queue", tasks)


# -- two increments at the same moment -------------------------------------------------------------


async def _by_backend(url: str) -> int:
    async with opened(url) as one, opened(url) as other:
        await asyncio.gather(one.increment("n", 1, None), other.increment("n", 1, None))
        return int(await value_of(one, "n") or 0)


async def _by_hand(url: str) -> int:
    """Get, add, set: each for itself is atomic."""
    with plain(url) as one, plain(url) as other:
        one.execute("CREATE TABLE counters (value integer)")
        one.execute("INSERT INTO counters VALUES (0)")
        read = [c.execute("SELECT value FROM counters").fetchone()[0] for c in (one, other)]
        for connection, value in zip((one, other), read, strict=True):
            connection.execute(f"UPDATE counters SET value = {value + 1}")
        return int(one.execute("SELECT value FROM counters").fetchone()[0])


COUNTS: dict[str, Callable[[str], Awaitable[int]]] = {
    "the backend": _by_backend,
    "a get-then-set": _by_hand,
}
