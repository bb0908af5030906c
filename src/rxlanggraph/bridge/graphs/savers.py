"""LangGraph's own savers for asyncio: which one a saver is, and how its tables are reached.

The interface of savers can delete a thread, but no part of one. What breaks without this module:
rollback and retention, which delete parts, would each have to know how these savers store threads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

__all__ = [
    "IN_MEMORY",
    "POSTGRES",
    "SQLITE",
    "for_saver",
    "postgres_transaction",
    "sqlite_transaction",
    "values_of",
]

_T = TypeVar("_T")

IN_MEMORY: Final = "langgraph.checkpoint.memory.InMemorySaver"
SQLITE: Final = "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver"
POSTGRES: Final = "langgraph.checkpoint.postgres.aio.AsyncPostgresSaver"


def for_saver(saver: Any, known: Mapping[str, _T]) -> _T | None:
    """Return what is known under the name of the class of ``saver``, or of a base of that.

    Any thread; never blocks.
    """
    # By name: importing the classes would take the packages of savers that are not used.
    names = (f"{each.__module__}.{each.__name__}" for each in type(saver).__mro__)
    return next((known[name] for name in names if name in known), None)


@asynccontextmanager
async def sqlite_transaction(saver: Any) -> AsyncIterator[Any]:
    """A transaction under the saver's lock."""
    await saver.setup()
    async with saver.lock, saver.conn.cursor() as cursor:
        try:
            yield cursor
        except BaseException:
            await saver.conn.rollback()
            raise
        await saver.conn.commit()


@asynccontextmanager
async def postgres_transaction(saver: Any) -> AsyncIterator[Any]:
    """A transaction under the saver's lock."""
    async with saver._cursor() as cursor, cursor.connection.transaction():
        yield cursor


def values_of(row: Any) -> tuple[Any, ...]:
    """The values of a row, whatever the connection makes of rows. Any thread; never blocks."""
    return tuple(row.values() if isinstance(row, Mapping) else row)
