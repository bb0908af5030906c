"""What is done behind a pooler, by a state and by others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import psycopg
from psycopg.errors import InvalidSqlStatementName

from rxlanggraph.state import open_state
from support.concurrency.raising import raised
from support.servers.dying_connections import Outcome, call_all
from support.servers.pooler import Mode, Pooler

__all__ = [
    "WAYS",
    "count_behind",
    "error_of_opening",
    "error_with_no_session",
    "use_behind",
]


async def _by_state(url: str, count: int) -> int:
    async with open_state(url) as state:

        async def once() -> None:
            async with state.lock("lock"):
                await state.increment_counter("locked")
            await state.increment_counter("counter")

        await asyncio.gather(*[once() for _ in range(count)])
        (counted, _), (locked, _) = await state.get("counter"), await state.get("locked")
        assert counted == locked, (counted, locked)
        return int(counted)


async def _by_hand(url: str, count: int) -> int:
    """As psycopg does it when it is told to prepare at once, and others after a few times."""
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, prepare_threshold=0
    ) as connection:
        await connection.execute("CREATE TABLE counter AS SELECT 0 AS n", prepare=False)
        for _ in range(count):
            with contextlib.suppress(InvalidSqlStatementName):  # logged, perhaps
                await connection.execute("UPDATE counter SET n = n + %s", [1])
        cursor = await connection.execute("SELECT n FROM counter", prepare=False)
        (counted,) = await cursor.fetchone() or (0,)
        return int(counted)


WAYS: dict[str, Callable[[str, int], Awaitable[int]]] = {
    "a state": _by_state,
    "a connection that prepares statements": _by_hand,
}


async def count_behind(url: str, mode: Mode, way: str, count: int) -> int:
    # In session mode as many as a state may have connections.
    async with Pooler(url, mode, sessions=8 if mode == "session" else 2) as pooler:
        return await WAYS[way](pooler.url, count)


async def use_behind(url: str, mode: Mode) -> Outcome:
    async with Pooler(url, mode) as pooler, open_state(pooler.url) as state:
        return await call_all(state)


async def error_of_opening(url: str, mode: Mode, more: str = "") -> Exception | None:
    async with Pooler(url, mode) as pooler:
        return await raised(_open(pooler.url + more))


async def error_with_no_session(url: str) -> Exception | None:
    async with (
        Pooler(url, "session", sessions=1) as pooler,
        await psycopg.AsyncConnection.connect(pooler.url) as other,
    ):
        await other.execute("SELECT 1")
        return await raised(_open(pooler.url))


async def _open(url: str) -> None:
    async with open_state(url):
        pass
